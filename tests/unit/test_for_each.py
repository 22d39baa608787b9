"""`for_each` runs every case and reports each failure by its name, and pytest knows the test by one item."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.subtests import for_each


class Reported:
    """What a test hands to the fixture `subtests`."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    @contextmanager
    def test(self, case: str) -> Iterator[None]:
        try:
            yield
        except (AssertionError, pytest.fail.Exception):
            self.failures.append(case)


def test_every_case_runs_and_each_failure_is_reported_by_name() -> None:
    seen: list[tuple[Any, ...]] = []

    @for_each("left, right", [(1, 1), (2, 3)])
    @for_each("word", ["", "no raise", "raise"], ids=str.upper)
    def check(fixture: str, left: int, right: int, word: str) -> None:
        seen.append((fixture, left, right, word))
        if word == "no raise":
            with pytest.raises(KeyError):
                pass
        assert not word
        assert left == right

    reported = Reported()
    assert list(inspect.signature(check).parameters) == ["fixture", "subtests"]
    check(fixture="f", subtests=reported)
    assert sorted(seen) == sorted(("f", n, m, word) for word in ("", "no raise", "raise") for n, m in ((1, 1), (2, 3)))
    assert sorted(reported.failures) == ["-2-3", "NO RAISE-1-1", "NO RAISE-2-3", "RAISE-1-1", "RAISE-2-3"]


def test_a_parameter_that_the_test_does_not_take_is_an_error() -> None:
    with pytest.raises(AssertionError, match="takes no other"):
        for_each("other", [1])(print)


def test_a_loop_without_values_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no value for left, right"):
        for_each("left, right", iter(()))


@for_each("value", range(3))
def test_the_fixture_is_that_of_pytest(value: int, subtests: pytest.Subtests, request: pytest.FixtureRequest) -> None:
    with subtests.test("within"):
        assert request.node.name == "test_the_fixture_is_that_of_pytest"
        assert value in range(3)
