"""How a caller waits for a result that another thread settles: by its thread, or by its event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import TypeAlias

from cmbs.serving.commit import Answer, Result, Settle

Submit: TypeAlias = Callable[[Settle], None]


def wait_in_thread(submit: Submit) -> Answer:
    """Submit, and hold this thread until the result is there."""
    results: list[Result] = []
    pending = Lock()
    pending.acquire()

    def settle(result: Result) -> None:
        results.append(result)
        pending.release()

    submit(settle)
    with pending:
        return unwrap(results[0])


def unwrap(result: Result) -> Answer:
    """The answer, or raise the error in its place."""
    if isinstance(result, Exception):
        raise result
    return result


class Mailbox:
    """Results for one event loop. However many a group settles, the loop is woken once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[tuple[asyncio.Future[Answer], Result]] = deque()
        self._awake = False

    async def wait(self, submit: Submit) -> Answer:
        """Submit, and let the loop go on with other work until the result is there."""
        future: asyncio.Future[Answer] = self.loop.create_future()
        submit(lambda result: self._post(future, result))
        return await future

    def _post(self, future: asyncio.Future[Answer], result: Result) -> None:
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
