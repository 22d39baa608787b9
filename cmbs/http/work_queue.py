"""Work that keeps a processor busy: one piece at a time, in a thread of its own, behind a bounded queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from cmbs.api.errors import TransportCode, TransportError


class WorkQueue:
    """Runs analyses one at a time, never on the event loop.

    The queue is bounded, so that a server does not work on analyses whose callers have long given up.
    """

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._thread: ThreadPoolExecutor | None = None
        self._unfinished: set[Future[bytes]] = set()

    async def run(self, work: Callable[[], bytes]) -> bytes:
        """What `work` returns; TransportError if the queue is full."""
        # Counted until the thread has finished: an analysis runs on after its caller has disconnected.
        if len(self._unfinished) > self._max_waiting:
            raise TransportError(
                TransportCode.BUSY,
                f"{self._max_waiting} analyses wait already, as many as `analyses_waiting` allows; try again later",
                {"limit": "analyses_waiting", "maximum": self._max_waiting},
            )
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "cmbs-analysis")
        future = self._thread.submit(work)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Stop the thread and cancel what waits for it. The next piece of work starts another thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
