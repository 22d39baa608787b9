"""News of streams for what waits: long polls, and the feeds that followers share, without holding a thread each.

What this process writes wakes them at once. What others write is looked for at a bounded rate: the more requests wait,
the less often each of them looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from cmbs.api.errors import TransportCode, TransportError
from cmbs.errors import InvalidRequest
from cmbs.spi.audit_log import HEADS_PREFIX, Append

MAX_WAIT_SECONDS = 30
# Asking for more is a mistake.
MAX_ASKED_SECONDS = 3600
# How often one request looks at what other processes wrote, and how often all of them together do at most.
_LOOK_SECONDS = 0.25
_MAX_LOOKS_A_SECOND = 200.0
# In the place of a stream's name: what is written to any stream. No stream has this name.
ANY_STREAM = f"{HEADS_PREFIX}*"


def read_seconds(seconds: int) -> int:
    """The value of `wait`; InvalidRequest where it is too many seconds."""
    if seconds > MAX_ASKED_SECONDS:
        raise InvalidRequest(
            f"`wait` must be at most {MAX_ASKED_SECONDS}, got {seconds}",
            {"parameter": "wait", "field": "wait", "found": seconds, "accepted": f"0 to {MAX_ASKED_SECONDS}"},
        )
    return seconds


class _Waiter(NamedTuple):
    """What waits, and the loop that it waits on."""

    loop: asyncio.AbstractEventLoop
    moved: asyncio.Event

    def wake(self) -> None:
        """Have it look again. From any thread.

        What is told already has not looked yet, and will see what was written before.
        """
        if not self.moved.is_set() and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.moved.set)


class Waiting:
    """The requests that wait. `max_seconds` is the longest that one does, `max_waiters` how many may at a time."""

    def __init__(self, max_seconds: float = MAX_WAIT_SECONDS, max_waiters: int = 512) -> None:
        self.max_seconds = max_seconds
        self._max_waiters = max_waiters
        self._lock = Lock()
        self._waiters: dict[str, list[_Waiter]] = {}
        self._count = 0
        self._n_watching = 0
        self.is_draining = False

    async def wait(
        self, stream_id: str, seconds: float, is_over: Callable[[], Awaitable[bool]], gone: Awaitable[object]
    ) -> None:
        """Return when it is over, when the time is, when the caller is gone, or when the server stops.

        `is_over` looks at the stream; it is asked again whenever the stream has moved. `gone` ends with the caller.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + min(seconds, self.max_seconds)
        leaving = asyncio.ensure_future(gone)
        try:
            with self._count_one(), self.watch(stream_id) as moved:
                while not await is_over():
                    left = until - loop.time()
                    if left <= 0 or leaving.done() or self.is_draining:
                        return
                    moving = asyncio.ensure_future(moved.wait())
                    try:
                        pause = min(left, self.look_seconds)
                        await asyncio.wait({moving, leaving}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        moving.cancel()
                    moved.clear()
        finally:
            leaving.cancel()

    @property
    def look_seconds(self) -> float:
        """How long what waits lets pass before it looks at what other processes wrote."""
        return max(_LOOK_SECONDS, self._n_watching / _MAX_LOOKS_A_SECOND)

    @contextmanager
    def watch(self, stream_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when this process has written to a stream, or to any; clear it, then look.

        On the running loop. What other processes write is found by looking every `look_seconds`.
        """
        waiter = _Waiter(asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._n_watching += 1
            self._waiters.setdefault(stream_id, []).append(waiter)
        try:
            yield waiter.moved
        finally:
            with self._lock:
                self._n_watching -= 1
                self._waiters[stream_id].remove(waiter)
                if not self._waiters[stream_id]:
                    del self._waiters[stream_id]

    def note_appends(self, appends: Sequence[Append]) -> None:
        """Wake what waits for a stream; an observer of what a server writes."""
        if self._waiters:
            self._wake(appends[0].stream_id)
            self._wake(ANY_STREAM)

    def drain(self) -> None:
        """Answer the requests that wait with what there is, and let no other wait."""
        self.is_draining = True
        with self._lock:
            streams = list(self._waiters)
        for stream_id in streams:
            self._wake(stream_id)

    def _wake(self, stream_id: str) -> None:
        with self._lock:
            waiters = tuple(self._waiters.get(stream_id, ()))
        for waiter in waiters:
            waiter.wake()

    @contextmanager
    def _count_one(self) -> Iterator[None]:
        """Count a request among those that wait, if there is room for it."""
        with self._lock:
            if self._count >= self._max_waiters:
                raise TransportError(
                    TransportCode.BUSY,
                    f"{self._max_waiters} requests wait already, as many as may; ask without `wait`, or try again",
                    {"limit": "waiting_requests", "maximum": self._max_waiters},
                )
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
