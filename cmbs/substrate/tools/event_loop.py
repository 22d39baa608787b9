"""One event loop in one thread, for tools that are reached over a connection: what it runs can be called off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

T = TypeVar("T")


class LoopClosed(Exception):
    """The loop ended before the work did, or had ended already."""


class LoopThread:
    """Runs coroutines for callers in other threads; starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises; LoopClosed where the loop ends first. The work ends by itself."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._started())
        except LoopClosed:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError as exc:
            raise LoopClosed("the loop was closed") from exc

    def close(self) -> None:
        """Call off everything under way, wait until it is over, and end the thread."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_call_off_the_others(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise LoopClosed("the loop was closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def _call_off_the_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
