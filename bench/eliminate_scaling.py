"""ELIMINATE of ten ids in process, over the memory store: the cost must not follow the size of the universe."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
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
from cmbs.belief_server import BeliefServer

NAME = "eliminate_scaling"
SMALL, LARGE = 1_000, 1_000_000
IDS_PER_CALL = 10
# A small session is given up with some survivors left, so that no call is cheap for want of them.
CALLS_PER_ROUND = SMALL // IDS_PER_CALL - 10
ROUNDS_PER_EFFORT = 4


def run(effort: Effort) -> list[Result]:
    """Compare a large universe with a small one, and with hashing the joined survivors as the spec's formula reads."""
    rounds = effort.rounds * ROUNDS_PER_EFFORT
    with belief_server() as server:
        subjects = {
            "large": _one_session(server, LARGE, rounds),
            "small": _many_sessions(server, SMALL),
        }
        medians = interleaved(subjects, rounds)
    literal = interleaved({"literal": _joined_twice}, max(3, effort.rounds // 2))["literal"]
    large, small = medians["large"], medians["small"]
    measured = f"ELIMINATE of {IDS_PER_CALL} ids at n = {LARGE:,}: {microseconds(large)}"
    return [
        Result(NAME, measured, f"the same at n = {SMALL:,}: {microseconds(small)}", large / small, at_most(3)),
        Result(
            NAME,
            f"{measured}, speed-up",
            f"survivors joined and hashed twice: {microseconds(literal)}",
            literal / large,
            at_least(1000),
        ),
    ]


def _one_session(server: BeliefServer, size: int, rounds: int) -> Callable[[], float]:
    """Rounds that all go on eliminating from one session, which is large enough for them."""
    ids = hypothesis_ids(size)
    session_id = server.declare_session(ONTOLOGY, ids).session_id
    batches = _batches(ids, rounds * CALLS_PER_ROUND)
    return lambda: _median_call(server, session_id, batches)


def _many_sessions(server: BeliefServer, size: int) -> Callable[[], float]:
    """Rounds that each begin with a fresh session."""
    ids = hypothesis_ids(size)

    def measure() -> float:
        session_id = server.declare_session(ONTOLOGY, ids).session_id
        return _median_call(server, session_id, _batches(ids, CALLS_PER_ROUND))

    return measure


def _batches(ids: list[str], calls: int) -> Iterator[list[str]]:
    """Ids to eliminate, scattered over the universe, none twice."""
    chosen = random.Random(1024).sample(ids, calls * IDS_PER_CALL)
    return (chosen[start : start + IDS_PER_CALL] for start in range(0, len(chosen), IDS_PER_CALL))


_observation = count()


def _median_call(server: BeliefServer, session_id: str, batches: Iterator[list[str]]) -> float:
    times = []
    for _ in range(CALLS_PER_ROUND):
        # Strings of the caller's own, as a request brings them, not the very objects that the universe holds.
        batch = [hypothesis_id.encode().decode() for hypothesis_id in next(batches)]
        observation_id = f"observation-{next(_observation)}"
        start = time.perf_counter()
        # The last outcome stays alive during the next call, as it does for a caller that looks at it.
        outcome = server.eliminate(session_id, SOURCE, observation_id, batch)
        times.append(time.perf_counter() - start)
        if len(outcome.applied_eliminated) != IDS_PER_CALL:
            raise AssertionError("a timed elimination did not apply")
    return statistics.median(times)


def _joined_twice() -> float:
    survivors = set(hypothesis_ids(LARGE))
    start = time.perf_counter()
    for _ in range(2):
        sha256("\n".join(sorted(survivors)).encode()).hexdigest()
    return time.perf_counter() - start
