"""A reading of a session for a gate: what it says, and also what it would say without what one actor eliminated.

One elimination in twenty-five is by the actor that is left out. Readings are timed at the head of a session
of a thousand events, as a space takes them for every decision that a gate concerns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing

from bench.harness import ONTOLOGY, SOURCE, Effort, Result, at_most, hypothesis_ids, interleaved, microseconds
from cmbs.belief.server import BeliefServer
from cmbs.messages import Actor, ActorKind, EliminateOutcome
from cmbs.stores import open_store
from cmbs.substrate.belief_source import ServedBelief

NAME = "space_gates"
SIZES = (1_000, 100_000)
EVENTS = 1_000
# Few enough to be named in both parts of a reading.
NAMED_LEFT = 50
# Many short rounds: what else the machine does then falls on both.
_READINGS = 20
_ROUNDS_PER_EFFORT = 30
_EVENTS_PER_OWN = 25
_AGENT, _OTHER = (Actor(ActorKind.AGENT, name, authenticated=True) for name in ("agent", "other"))


def run(effort: Effort) -> list[Result]:
    """Compare readings at each size: with few survivors left, which are named, and with many."""
    return [_compare(size, left, effort) for size in SIZES for left in (NAMED_LEFT, size // 2)]


def _compare(size: int, left: int, effort: Effort) -> Result:
    with closing(BeliefServer(store=open_store("memory:"))) as server:
        session_id, read = _open_session(server, size, left)
        found = interleaved(
            {
                "plain": lambda: _seconds_each(lambda: read(session_id, None)),
                "independent": lambda: _seconds_each(lambda: read(session_id, _AGENT.id)),
            },
            effort.rounds * _ROUNDS_PER_EFFORT,
        )
    return Result(
        NAME,
        f"an independent reading, n = {size:,}, {EVENTS:,} events, {left:,} survivors: "
        f"{microseconds(found['independent'])}",
        f"a plain reading: {microseconds(found['plain'])}",
        found["independent"] / found["plain"],
        at_most(3),
    )


def _open_session(server: BeliefServer, size: int, left: int) -> tuple[str, Callable[[str, str | None], object]]:
    """A session after so many events of two actors, and how it is read."""
    ids = hypothesis_ids(size)
    session_id = server.declare_session(ONTOLOGY, ids).session_id
    gone = ids[left:]
    # The first takes out all that the others leave, and these one each, over and over where there are not enough.
    parts = [gone[EVENTS - 2 :] or gone[:1], *([gone[number % len(gone)]] for number in range(EVENTS - 2))]
    for number, part in enumerate(parts):
        message = server.requests.eliminate(SOURCE, f"observation-{number}", part, None)
        actor = _AGENT if number % _EVENTS_PER_OWN == 1 else _OTHER
        server._perform(server.requests.command(session_id, message, actor=actor), EliminateOutcome)
    belief = ServedBelief(server)
    plain, other = belief.read(session_id), belief.read(session_id, _AGENT.id)
    if plain.head_seq != EVENTS - 1 or plain.n_survivors != left or not _says_more(plain.n_survivors, other):
        raise RuntimeError("the session that is read is not the one that is meant")
    return session_id, belief.read


def _says_more(n_survivors: int | None, reading: object) -> bool:
    """Whether more is left without the actor, as it must be where some of what is gone is its own."""
    independent = getattr(reading, "independent", None)
    return n_survivors is not None and getattr(independent, "n_survivors", 0) > n_survivors


def _seconds_each(read: Callable[[], object]) -> float:
    """The median time of a reading."""
    times = []
    for _ in range(_READINGS):
        start = time.perf_counter()
        read()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
