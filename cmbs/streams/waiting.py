"""How a caller waits for a result that another thread settles: by its thread, or by its event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from threading import Lock, Semaphore
from typing import Generic, TypeAlias

from cmbs.streams.writer import A, Settle, unwrap

Submit: TypeAlias = Callable[[Settle[A]], None]


def wait_in_thread(submit: Submit[A]) -> A:
    """Submit, and hold this thread until the result is there."""
    results: list[A | Exception] = []
    pending = Lock()
    pending.acquire()

    def settle(result: A | Exception) -> None:
        results.append(result)
        pending.release()

    submit(settle)
    with pending:
        return unwrap(results[0])


def wait_for_all(number: int, submit: Callable[[int, Settle[A]], None]) -> list[A | Exception]:
    """Submit so many, in their order, and hold this thread until every result, or error in submitting, is there."""
    results: dict[int, A | Exception] = {}
    left = Semaphore(0)

    def settle_at(place: int) -> Settle[A]:
        def settle(result: A | Exception) -> None:
            results[place] = result
            left.release()

        return settle

    for place in range(number):
        try:
            submit(place, settle_at(place))
        except Exception as exc:  # noqa: BLE001 - it is the result of this one, and the others go on
            settle_at(place)(exc)
    for _ in range(number):
        left.acquire()
    return [results[place] for place in range(number)]


class Mailbox(Generic[A]):
    """Results for one event loop. However many a group settles, the loop is woken once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[tuple[asyncio.Future[A], A | Exception]] = deque()
        self._awake = False

    async def wait(self, submit: Submit[A]) -> A:
        """Submit, and let the loop go on with other work until the result is there."""
        future: asyncio.Future[A] = self.loop.create_future()
        submit(lambda result: self._post(future, result))
        return await future

    def _post(self, future: asyncio.Future[A], result: A | Exception) -> None:
        self._arrived.append((future, result))
        if not self._awake:
            self._awake = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                if not self.loop.is_closed():
                    raise
                self._arrived.clear()  # nobody is left to hear it

    def _deliver(self) -> None:
        # Cleared before the queue is emptied: what arrives from here on wakes the loop again, at worst for nothing.
        self._awake = False
        while self._arrived:
            future, result = self._arrived.popleft()
            if future.done():  # the caller went away
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)


class Mailboxes(Generic[A]):
    """A mailbox for each event loop that asks; those of loops that are closed are let go."""

    def __init__(self) -> None:
        self._boxes: dict[asyncio.AbstractEventLoop, Mailbox[A]] = {}
        self._lock = Lock()

    def here(self) -> Mailbox[A]:
        """The mailbox of the loop that runs."""
        loop = asyncio.get_running_loop()
        box = self._boxes.get(loop)
        if box is None:
            with self._lock:
                self._boxes = {known: box for known, box in self._boxes.items() if not known.is_closed()}
                box = self._boxes[loop] = Mailbox(loop)
        return box
