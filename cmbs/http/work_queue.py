"""Work that keeps a processor busy: one piece at a time, in a thread of its own, behind a bounded queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from cmbs.api.errors import TransportCode, TransportError
from cmbs.http.exchange import Request
from cmbs.substrate.pace import Pace

R = TypeVar("R")
# Of the places of a queue, one actor has no more than this.
MAX_PIECES_PER_ACTOR = 2
# Where no key says who asks.
_WITHOUT_KEY = ""


class WorkQueue:
    """Runs pieces of work one at a time, never on the event loop.

    The queue is bounded, in all and for each actor. A piece stops at a bound in processor time, and when its caller has
    left: as soon as it asks its pace whether it may go on.
    """

    def __init__(self, max_waiting: int, milliseconds: int) -> None:
        """`milliseconds` are the processor time of one piece."""
        self._max_waiting = max_waiting
        self._seconds = milliseconds / 1_000
        self._thread: ThreadPoolExecutor | None = None
        # By whom each was asked for.
        self._unfinished: dict[Future[Any], str] = {}

    async def run(self, request: Request, work: Callable[[Pace], R]) -> R:
        """What `work` returns; TransportError if the queue is full, or the actor has its share of it."""
        # Counted until the thread has finished: a piece may run on for a moment after its caller has left.
        actor = request.actor
        owner = actor.id if actor.authenticated else _WITHOUT_KEY
        self._refuse_too_many(owner)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "cmbs-analysis")
        pace = Pace(self._seconds)
        future = self._thread.submit(_work, work, pace)
        self._unfinished[future] = owner
        future.add_done_callback(self._forget)
        answer: asyncio.Future[R] = asyncio.wrap_future(future)
        leaving = asyncio.ensure_future(request.gone())
        # Also where this task is cancelled: no caller waits any more then.
        leaving.add_done_callback(lambda _: pace.leave())
        try:
            return await answer
        finally:
            leaving.cancel()

    def _refuse_too_many(self, owner: str) -> None:
        unfinished = list(self._unfinished.values())
        if len(unfinished) > self._max_waiting:
            raise TransportError(
                TransportCode.BUSY,
                f"{self._max_waiting} analyses wait already, as many as `analyses_waiting` allows; try again later",
                {"limit": "analyses_waiting", "maximum": self._max_waiting},
            )
        if owner != _WITHOUT_KEY and unfinished.count(owner) >= MAX_PIECES_PER_ACTOR:
            raise TransportError(
                TransportCode.BUSY,
                f"{MAX_PIECES_PER_ACTOR} analyses that you asked for wait or run already; try again later",
                {"limit": "analyses_of_one_actor", "maximum": MAX_PIECES_PER_ACTOR},
            )

    def _forget(self, future: Future[Any]) -> None:
        self._unfinished.pop(future, None)

    def close(self) -> None:
        """Stop the thread and cancel what waits for it. The next piece of work starts another thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None


def _work(work: Callable[[Pace], R], pace: Pace) -> R:
    pace.begin()
    if not pace.may_go_on():
        raise TransportError(TransportCode.BUSY, "the caller left before the work began", {})
    return work(pace)
