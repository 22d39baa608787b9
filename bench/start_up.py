"""From nothing to the first answer over a store with 10 sessions and with 100,000, and the memory that it takes.

`run` starts this module as a process of its own for each measurement, so that nothing is cached that a start would not
have.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec
import psutil

from bench.harness import Effort, Result, at_most, belief_server, microseconds, shown
from bench.postgres import database
from bench.servers import disk_directory
from bench.stored import store_sessions
from cmbs.stores import open_store

NAME = "start_up"
FEW, MANY = 10, 100_000
MEBIBYTE = 1 << 20


class Start(msgspec.Struct, frozen=True):
    """What one process saw: seconds to the first answer, bytes of resident memory then."""

    seconds: float
    resident: int


def run(effort: Effort) -> list[Result]:
    """Compare a start over many sessions with one over a few, on SQLite and on PostgreSQL."""
    results: list[Result] = []
    for kind in ("SQLite", "PostgreSQL"):
        with ExitStack() as stack:
            stored = {count: _stored(stack.enter_context(_place(kind)), count) for count in (FEW, MANY)}
            starts: dict[int, list[Start]] = {FEW: [], MANY: []}
            for _ in range(max(5, effort.rounds)):
                for count, (url, session_id) in stored.items():
                    starts[count].append(_started(url, session_id))
        seconds = {count: statistics.median(start.seconds for start in found) for count, found in starts.items()}
        resident = {count: statistics.median(start.resident for start in found) for count, found in starts.items()}
        measured, baseline = f"{kind}, {MANY:,} sessions: {{}}", f"{FEW} sessions: {{}}"
        results += [
            Result(
                NAME,
                measured.format(f"first answer after {microseconds(seconds[MANY])}"),
                baseline.format(microseconds(seconds[FEW])),
                seconds[MANY] / seconds[FEW],
                at_most(2),
            ),
            Result(
                NAME,
                measured.format(f"{shown(resident[MANY] / MEBIBYTE)} MiB resident"),
                baseline.format(f"{shown(resident[FEW] / MEBIBYTE)} MiB"),
                resident[MANY] / resident[FEW],
                at_most(1.1),
            ),
        ]
    return results


@contextmanager
def _place(kind: str) -> Iterator[str]:
    if kind == "PostgreSQL":
        with database() as url:
            yield url
    else:
        with disk_directory() as directory:
            yield f"sqlite:///{directory}/bench.db"


def _stored(url: str, count: int) -> tuple[str, str]:
    with closing(open_store(url)) as log:
        return url, store_sessions(log, count)


def _started(url: str, session_id: str) -> Start:
    done = subprocess.run(
        [sys.executable, "-m", "bench.start_up", url, session_id],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Start)


def _start(url: str, session_id: str) -> Start:
    start = time.perf_counter()
    with belief_server(url) as server:
        server.query_belief(session_id)
        seconds = time.perf_counter() - start
        return Start(seconds, psutil.Process().memory_info().rss)


if __name__ == "__main__":
    print(msgspec.json.encode(_start(sys.argv[1], sys.argv[2])).decode())
