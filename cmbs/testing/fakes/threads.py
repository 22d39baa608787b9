"""Threads of a test whose errors are the test's errors."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

# A call that takes longer hangs: better a failure that says so than a test run that never ends.
_HANGS_AFTER_SECONDS = 60.0


class Beside:
    """Work in a thread beside the test."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._error: BaseException | None = None
        self._work = work
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as exc:  # noqa: BLE001 - raised where the test waits
            self._error = exc

    def wait_at_most(self, seconds: float) -> None:
        """Wait until the work is done, or so long."""
        self._thread.join(seconds)

    def join(self) -> None:
        """Wait until the work is done; raises what it raised."""
        self._thread.join(_HANGS_AFTER_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"a call did not return in {_HANGS_AFTER_SECONDS:g} seconds")
        if self._error is not None:
            raise self._error


def run_together(work: Callable[[int], object], threads: int) -> None:
    """Do the work in so many threads, each with its number, and wait for all."""
    running = [Beside(lambda number=number: work(number)) for number in range(threads)]  # type: ignore[misc]
    for each in running:
        each.join()
