"""Calls to a store that may hang: each in a thread of its own, and waited for no longer than a time-out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cmbs.errors import StoreUnavailable

T = TypeVar("T")

# Beyond, calls wait for a free thread, and their time-out runs meanwhile.
_MAX_CALLS = 64


class RemoteCalls:
    """Calls to one store, from several threads at once."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._threads = ThreadPoolExecutor(_MAX_CALLS, "cmbs-remote")

    def ask(self, call: Callable[[], T]) -> T:
        """What a call comes to; StoreUnavailable where it does not come to its end in time, and is left to itself."""
        try:
            return self._threads.submit(call).result(self._timeout_seconds)
        except TimeoutError as exc:
            seconds = self._timeout_seconds
            raise StoreUnavailable(f"the elimination store did not answer in {seconds:g} seconds") from exc

    def close(self) -> None:
        """Begin no further calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)
