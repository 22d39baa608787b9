"""Proofs of a session with a million hypotheses and many events: made, and checked, against replay of the same log.

They are made as a command makes them, from a store alone, and as a server does, which holds the session and, from the
first path on, the upper part of the tree over its ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from bench.harness import Effort, Result, at_least, interleaved, microseconds
from bench.servers import disk_directory
from bench.stored import store_long_session
from cmbs.audit.history import HistoryOfSession
from cmbs.audit.kernel.documents import Proof, write_proof
from cmbs.audit.proof_check import verify_proof
from cmbs.audit.proofs import Prover
from cmbs.belief.kernel.replay import verify_session
from cmbs.stores.sqlite import SQLiteStore

NAME = "proofs"
EVENTS = 100_000
IDS = 1_000_000
# By how much each must be faster than replay.
_BARS = {"from a store": 1.5, "in a server": 10, "checked": 1_000}


def run(effort: Effort) -> list[Result]:
    """Time every kind at its most expensive event, the newest."""
    with disk_directory() as directory, closing(SQLiteStore(f"{directory}/bench.db")) as log:
        session_id = store_long_session(log, EVENTS, IDS)
        session = verify_session(session_id, log.read(session_id))
        alive = session.universe.ids[-1]
        last = session.head.seq
        servers = Prover(log, lambda *_: HistoryOfSession(session), tree=lambda _: session.tree)
        kinds: dict[str, Callable[[Prover], Proof]] = {
            "inclusion": lambda prover: prover.inclusion(session_id, last // 2),
            "transition": lambda prover: prover.transition(session_id, last),
            "membership": lambda prover: prover.membership(session_id, alive, last),
        }
        timed = {"replay": _measure(_replay, log, session_id)}
        for kind, prove in kinds.items():
            text = write_proof(prove(servers))
            timed[f"{kind} from a store"] = _measure(_prove_anew, prove, log)
            timed[f"{kind} in a server"] = _measure(prove, servers)
            timed[f"{kind} checked, {len(text):,} bytes"] = _measure(verify_proof, text)
        seconds = interleaved(timed, effort.rounds)
    baseline = seconds.pop("replay")
    return [
        Result(
            NAME,
            f"{what}: {microseconds(taken)}",
            f"replay of {EVENTS:,} events over {IDS:,} ids: {microseconds(baseline)}",
            baseline / taken,
            at_least(next(bar for name, bar in _BARS.items() if name in what)),
        )
        for what, taken in seconds.items()
    ]


def _prove_anew(prove: Callable[[Prover], Proof], log: SQLiteStore) -> None:
    prove(Prover(log))


def _replay(log: SQLiteStore, session_id: str) -> None:
    verify_session(session_id, log.read(session_id))


def _measure(work: Callable[..., object], *arguments: object) -> Callable[[], float]:
    def measure() -> float:
        start = time.perf_counter()
        work(*arguments)
        return time.perf_counter() - start

    return measure
