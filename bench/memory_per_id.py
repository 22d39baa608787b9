"""What a session of a million hypotheses holds in memory, how long declaring it takes, and what a snapshot of it costs.

`run` starts this module as a process of its own for each size, so that nothing measured before is in the way.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil

from bench.harness import ONTOLOGY, Effort, Result, at_most, belief_server, hypothesis_ids, microseconds, shown

NAME = "memory_per_id"
SMALL, LARGE = 1_000, 1_000_000
SNAPSHOTS = 2_000
MEBIBYTE = 1 << 20


class Footprint(msgspec.Struct, frozen=True):
    """What one process saw. Times are seconds, sizes bytes."""

    held: int
    declare: float
    snapshot: float = 0.0


def run(effort: Effort) -> list[Result]:
    """Declare a session in a fresh process; compare it with a plain set of the same ids and with a small session."""
    rounds = max(1, effort.rounds // 3)
    large, small, plain = [], [], []
    for _ in range(rounds):
        large.append(_in_a_process("session", LARGE))
        small.append(_in_a_process("session", SMALL))
        plain.append(_in_a_process("set", LARGE))
    held = statistics.median(each.held for each in large) / LARGE
    declare = statistics.median(each.declare for each in large)
    snapshot = statistics.median(each.snapshot for each in large)
    small_snapshot = statistics.median(each.snapshot for each in small)
    build_set = statistics.median(each.declare for each in plain)
    in_a_set = statistics.median(each.held for each in plain) / LARGE
    session = f"a session of n = {LARGE:,}"
    return [
        Result(
            NAME,
            f"{session}: {shown(held * LARGE / MEBIBYTE)} MiB, {shown(held)} bytes of RSS per id",
            f"a plain set of the same ids: {shown(in_a_set)} bytes per id; {shown(held / in_a_set)} × that",
            held,
            at_most(300, "bytes per id"),
        ),
        Result(
            NAME,
            f"{session}: declared in {shown(declare)} s",
            f"a plain set of the same ids: {shown(build_set)} s",
            declare,
            at_most(30, "s"),
        ),
        Result(
            NAME,
            f"snapshot without survivors of {session}: {microseconds(snapshot)}",
            f"the same at n = {SMALL:,}: {microseconds(small_snapshot)}",
            snapshot / small_snapshot,
            at_most(3),
        ),
    ]


def _in_a_process(what: str, size: int) -> Footprint:
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory_per_id", what, str(size)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Footprint)


def _rss() -> int:
    gc.collect()
    size: int = psutil.Process().memory_info().rss
    return size


def _session_footprint(size: int) -> Footprint:
    with belief_server() as server:
        before = _rss()
        start = time.perf_counter()
        session_id = server.declare_session(ONTOLOGY, hypothesis_ids(size)).session_id
        declare = time.perf_counter() - start
        held = _rss() - before
        times = []
        for _ in range(SNAPSHOTS):
            start = time.perf_counter()
            server.query_belief(session_id).to_dict(with_survivors=False)
            times.append(time.perf_counter() - start)
        return Footprint(held, declare, statistics.median(times))


def _set_footprint(size: int) -> Footprint:
    before = _rss()
    start = time.perf_counter()
    survivors = set(hypothesis_ids(size))
    build = time.perf_counter() - start
    held = _rss() - before
    if len(survivors) != size:
        raise AssertionError("ids repeat")
    return Footprint(held, build)


def main() -> None:
    """Measure one thing in this process and print what was seen."""
    measure = {"session": _session_footprint, "set": _set_footprint}[sys.argv[1]]
    sys.stdout.buffer.write(msgspec.json.encode(measure(int(sys.argv[2]))))


if __name__ == "__main__":
    main()
