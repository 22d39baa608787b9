"""One event loop in one thread, for tools that are reached over a connection: work on it can be cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from typing import TypeVar

from anyio.from_thread import start_blocking_portal

T = TypeVar("T")


class LoopClosed(Exception):
    """The loop ended before the work did, or had ended already."""


class LoopThread:
    """Runs coroutines for callers in other threads, until it is closed."""

    def __init__(self, name: str) -> None:
        self._running = start_blocking_portal(name=name)
        self._portal = self._running.__enter__()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether it ends, or has ended: what breaks off meanwhile does so for that."""
        return self._closed

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """What the coroutine returns or raises; LoopClosed where the loop ends first."""
        try:
            return self._portal.call(work)
        except (CancelledError, RuntimeError) as exc:
            if not self._closed:
                raise
            raise LoopClosed("the loop was closed") from exc

    def close(self) -> None:
        """Cancel everything under way, wait until it is over, and end the thread."""
        if self._closed:
            return
        self._closed = True
        self._portal.call(self._portal.stop, True)
        self._running.__exit__(None, None, None)
