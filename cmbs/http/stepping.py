"""Coroutines of handlers, driven without an event loop as far as they go without one."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any


class _NextStep:
    """To wait for this is to let the others who are answered together come as far."""

    def __await__(self) -> Generator[Any, None, None]:
        yield self


NEXT_STEP = _NextStep()


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
