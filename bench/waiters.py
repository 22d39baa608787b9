"""Callers that wait for their answers: each a thread that asks again once it was answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence


def calls_per_second(callers: Sequence[Callable[[], object]], calls: int) -> float:
    """Let all callers make `calls` calls each, at once; the calls in a second."""
    start_line = threading.Barrier(len(callers) + 1)
    failures: list[BaseException] = []

    def work(call: Callable[[], object]) -> None:
        start_line.wait()
        try:
            for _ in range(calls):
                call()
        except BaseException as exc:  # noqa: BLE001 - it is raised again where it can be seen
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(call,)) for call in callers]
    for thread in threads:
        thread.start()
    start_line.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if failures:
        raise failures[0]
    return len(callers) * calls / seconds
