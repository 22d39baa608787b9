"""Many small cases in one test: `subtests` as pytest has it, at no cost for a case that passes, and loops of them.

`pytest.mark.parametrize` makes an item of every case, which costs milliseconds to collect, set up and report: for
cases of microseconds that is nearly all the time of a run. `for_each` runs them in a loop of one item.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import pytest

Test: TypeAlias = Callable[..., None]

_LOOPS = "_loops"


class Subtests:
    """Cases of one test: each that fails is reported under its name, and those after it run all the same.

    pytest reports cases that pass too, and captures the output of each by itself: two milliseconds a case, four under
    xdist, where a request takes one. Here a case is reported where it failed.
    """

    def __init__(self, reporting: pytest.Subtests) -> None:
        self._reporting = reporting

    @contextmanager
    def test(self, msg: str | None = None, **named: Any) -> Iterator[None]:
        """Run the block as a case that goes by these names."""
        try:
            yield
        except BaseException:
            with self._reporting.test(msg, **named):
                raise


@pytest.fixture(name="subtests")
def lean_subtests(subtests: pytest.Subtests) -> Subtests:
    """Take the place of pytest's own fixture."""
    return Subtests(subtests)


class _Loop(NamedTuple):
    """Values of some parameters, and what a failure calls each of them."""

    names: list[str]
    values: list[Any]
    ids: Callable[[Any], object] | list[object]

    def arguments(self, index: int) -> dict[str, Any]:
        """The parameters of one case."""
        value = self.values[index]
        return dict(zip(self.names, [value] if len(self.names) == 1 else value, strict=True))

    def describe(self, index: int) -> str:
        """The name of one case."""
        if isinstance(self.ids, list):
            return str(self.ids[index])
        return "-".join(str(self.ids(value)) for value in self.arguments(index).values())


def for_each(
    names: str | Sequence[str], values: Iterable[Any], ids: Callable[[Any], object] | Iterable[object] = reprlib.repr
) -> Callable[[Test], Test]:
    """Run a test for each of `values`, called as `pytest.mark.parametrize` is.

    A case that fails is reported as a subtest with its values, and the next one runs. All cases have the same
    fixtures, so this is for tests that leave in them nothing that another case could see.
    """
    named = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
    loop = _Loop(named, list(values), ids if callable(ids) else list(ids))
    assert loop.values, f"there is no value for {', '.join(named)}: the test would check nothing"

    def decorate(test: Test) -> Test:
        if hasattr(test, _LOOPS):
            getattr(test, _LOOPS).append(loop)
            _take_as_fixtures(test, without=named)
            return test
        loops = [loop]
        takes_subtests = "subtests" in inspect.signature(test).parameters

        @wraps(test)
        def run(*instance: Any, subtests: pytest.Subtests, **fixtures: Any) -> None:
            if takes_subtests:
                fixtures["subtests"] = subtests
            for indexes in product(*(range(len(each.values)) for each in loops)):
                case = list(zip(loops, indexes, strict=True))
                arguments = {name: value for each, index in case for name, value in each.arguments(index).items()}
                with subtests.test("-".join(each.describe(index) for each, index in case)):
                    test(*instance, **fixtures, **arguments)

        setattr(run, _LOOPS, loops)
        _take_as_fixtures(run, without=named)
        return run

    return decorate


def _take_as_fixtures(test: Test, without: list[str]) -> None:
    """Let pytest fill the parameters of a test but these, and `subtests`."""
    signature = inspect.signature(test)
    missing = set(without) - set(signature.parameters)
    assert not missing, f"the test takes no {', '.join(sorted(missing))}"
    kept = [each for each in signature.parameters.values() if each.name not in (*without, "subtests")]
    kept.append(inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY))
    test.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
