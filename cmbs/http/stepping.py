"""Coroutines of handlers, driven without an event loop as far as they go without one."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, Final

# What a coroutine that is driven step by step waits for, to let the others who are answered together come as far.
NEXT_STEP: Final = object()
_ONCE, _NEVER = (NEXT_STEP,), ()


class Course:
    """How a request is answered: together with others, or in a task of its own. To await it is to let others catch up.

    The iterators are the tuples' own: nothing of this is worth a generator.
    """

    # It is answered in a task of its own, and waits for nobody.
    has_task = False

    def __await__(self) -> Generator[Any, None, None]:
        return iter(_NEVER if self.has_task else _ONCE)  # type: ignore[return-value] # any iterator will do


class _Alone(Course):
    """A request that is answered in a task from its beginning."""

    has_task = True


ALONE: Final = _Alone()


async def resumed(answering: Coroutine[Any, None, None], waited_for: Any) -> None:
    """Go on, in a task, with a coroutine that was begun without one and waits."""
    await _going_on(answering, waited_for)


@coroutine
def _going_on(answering: Coroutine[Any, None, None], waited_for: Any) -> Generator[Any, None, None]:
    try:
        yield waited_for
    except BaseException as exc:  # noqa: BLE001 - a failure or a cancellation, which is for the coroutine to deal with
        try:
            waited_for = answering.throw(exc)
        except StopIteration:
            return
        yield from _going_on(answering, waited_for)
    else:
        yield from answering.__await__()
