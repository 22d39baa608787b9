"""Callers of other spaces while something heavy goes on beside them: what their slowest calls take."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.harness import microseconds, shown

# Calls begin so far apart. One that begins late, because the one before took long, has waited since it was due: else a
# long stall would be one slow call among many, however many calls it has kept from being made.
INTERVAL_SECONDS = 0.04


class Latencies(NamedTuple):
    """What calls took, in seconds, and for how long they were made; `due_p99` counts from when each was due."""

    calls: int
    p50: float
    p99: float
    slowest: float
    due_p99: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"p50 {microseconds(self.p50)}, slowest {microseconds(self.slowest)}, p99 from when it was due "
            f"{microseconds(self.due_p99)}, {self.calls:,} calls in {shown(self.seconds)} s"
        )


def time_calls_during(work: Callable[[], object], callers: Sequence[Callable[[], object]]) -> Latencies:
    """Let every caller call at its times until `work` is done; what the calls took."""
    done = threading.Event()
    taken: list[float] = []
    waited: list[float] = []
    failures: list[BaseException] = []

    def ask(call: Callable[[], object]) -> None:
        try:
            due = time.perf_counter()
            while not done.is_set() or due < time.perf_counter() - INTERVAL_SECONDS:
                start = time.perf_counter()
                call()
                end = time.perf_counter()
                taken.append(end - start)
                waited.append(end - due)
                due += INTERVAL_SECONDS
                time.sleep(max(0.0, due - time.perf_counter()))
        except BaseException as exc:  # noqa: BLE001 - it is raised again where it can be seen
            failures.append(exc)

    threads = [threading.Thread(target=ask, args=(call,)) for call in callers]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    try:
        work()
    finally:
        seconds = time.perf_counter() - start
        done.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return Latencies(len(taken), statistics.median(taken), _p99(taken), max(taken), _p99(waited), seconds)


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
