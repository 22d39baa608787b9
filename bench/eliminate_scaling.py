"""ELIMINATE of ten ids in process, over the memory store: the cost must not follow the size of the universe."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import count

from bench.harness import (
    ONTOLOGY,
    SOURCE,
    Effort,
    Result,
    at_least,
    at_most,
    belief_server,
    hypothesis_ids,
    interleaved,
    microseconds,
)
from cmbs.belief.server import BeliefServer

NAME = "eliminate_scaling"
SMALL, LARGE = 1_000, 1_000_000
IDS_PER_CALL = 10
# A small session is given up with some survivors left, so that no call is cheap for want of them.
CALLS_PER_ROUND = SMALL // IDS_PER_CALL - 10
ROUNDS_PER_EFFORT = 4


def run(effort: Effort) -> list[Result]:
    """Compare a large universe with a small one, and with hashing the joined survivors as the spec's formula reads."""
    calls = effort.rounds * ROUNDS_PER_EFFORT * CALLS_PER_ROUND
    with belief_server() as server:
        large, small = _taking_turns(_one_session(server, LARGE, calls), _many_sessions(server, SMALL), calls)
    literal = interleaved({"literal": lambda: _join_and_hash_twice(LARGE)}, max(3, effort.rounds // 2))["literal"]
    measured = f"ELIMINATE of {IDS_PER_CALL} ids at n = {LARGE:,}: {microseconds(large)}"
    return [
        Result(NAME, measured, f"the same at n = {SMALL:,}: {microseconds(small)}", large / small, at_most(5)),
        Result(
            NAME,
            f"{measured}, speed-up",
            f"survivors joined and hashed twice: {microseconds(literal)}",
            literal / large,
            at_least(1000),
        ),
    ]


def measure_small(effort: Effort) -> float:
    """How many times faster ELIMINATE is in a small universe than hashing its joined survivors twice."""
    calls = effort.rounds * ROUNDS_PER_EFFORT * CALLS_PER_ROUND
    with belief_server() as server:
        literal = iter(lambda: _join_and_hash_twice(SMALL), None)
        hashed, eliminated = _taking_turns(literal, _many_sessions(server, SMALL), calls)
    return hashed / eliminated


def _taking_turns(large: Iterator[float], small: Iterator[float], calls: int) -> tuple[float, float]:
    """The median call of each. Call by call: both then meet the same machine and the same caches, as in a server that
    has large and small sessions; a machine that is busy for seconds would else slow one of them down.
    """
    of_large, of_small = zip(*((next(large), next(small)) for _ in range(calls)), strict=True)
    return statistics.median(of_large), statistics.median(of_small)


def _one_session(server: BeliefServer, size: int, calls: int) -> Iterator[float]:
    """How long eliminations take that all go on in one session, which is large enough for them."""
    ids = hypothesis_ids(size)
    session_id = server.declare_session(ONTOLOGY, ids).session_id
    return _times(server, session_id, _batches(ids, calls))


def _many_sessions(server: BeliefServer, size: int) -> Iterator[float]:
    """How long eliminations take in sessions that are begun anew before they run out of survivors."""
    ids = hypothesis_ids(size)
    while True:
        session_id = server.declare_session(ONTOLOGY, ids).session_id
        yield from _times(server, session_id, _batches(ids, CALLS_PER_ROUND))


def _batches(ids: list[str], calls: int) -> Iterator[list[str]]:
    """Ids to eliminate, scattered over the universe, none twice."""
    chosen = random.Random(1024).sample(ids, calls * IDS_PER_CALL)
    return (chosen[start : start + IDS_PER_CALL] for start in range(0, len(chosen), IDS_PER_CALL))


_observation = count()


def _times(server: BeliefServer, session_id: str, batches: Iterator[list[str]]) -> Iterator[float]:
    for batch in batches:
        # Strings of the caller's own, as a request brings them, not the very objects that the universe holds.
        own = [hypothesis_id.encode().decode() for hypothesis_id in batch]
        observation_id = f"observation-{next(_observation)}"
        start = time.perf_counter()
        # The last outcome stays alive during the next call, as it does for a caller that looks at it.
        outcome = server.eliminate(session_id, SOURCE, observation_id, own)
        elapsed = time.perf_counter() - start
        if len(outcome.applied_eliminated) != IDS_PER_CALL:
            raise AssertionError("a timed elimination did not apply")
        yield elapsed


def _join_and_hash_twice(size: int) -> float:
    survivors = set(hypothesis_ids(size))
    start = time.perf_counter()
    for _ in range(2):
        sha256("\n".join(sorted(survivors)).encode()).hexdigest()
    return time.perf_counter() - start
