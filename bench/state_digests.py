"""What state digests and checkpoints of states cost: appends to one long stream, with them and without.

The dearest case: everything goes to one stream, so that its state is large and is frozen again and again, and commands
share their writes. Seconds are seconds of processor time, of all threads: waiting for the disk is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count

from bench.harness import ONTOLOGY, SOURCE, Effort, Result, at_least, hypothesis_ids, interleaved, shown
from bench.servers import disk_directory
from cmbs.belief.kernel.events import Stamp
from cmbs.belief.kernel.kind import BeliefKind
from cmbs.belief.kernel.requests import Command, Limits, RequestValidator
from cmbs.belief.kernel.session import decide_declare
from cmbs.errors import CmbsError
from cmbs.ledger import state_digest
from cmbs.messages import Actor, ActorKind, SessionPolicy
from cmbs.spi import AuditLog
from cmbs.stores.sqlite import SQLiteStore
from cmbs.streams.server import StreamServer
from cmbs.substrate.kernel.events import CreateSpace, Propose
from cmbs.substrate.kernel.model import Proposal, Provenance, StateDelta
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from cmbs.system import RandomIds, SystemClock

NAME = "state_digests"
EVENTS = 10_000
SESSION_SIZE = 1_000
_TOGETHER = 50
_OPERATOR = Actor(ActorKind.OPERATOR, "bench")
_AGENT = Actor(ActorKind.AGENT, "agent")


def run(effort: Effort) -> list[Result]:
    """Compare both, for a session and for a space."""
    with disk_directory() as directory:
        names = count()

        def measure(append_all: Callable[[AuditLog], None]) -> float:
            with closing(SQLiteStore(f"{directory}/{next(names)}.db")) as log:
                start = time.process_time()
                append_all(log)
                return EVENTS / (time.process_time() - start)

        def measure_without(append_all: Callable[[AuditLog], None]) -> float:
            with _no_digest_points():
                return measure(append_all)

        rates = interleaved(
            {
                "session": lambda: measure(_fill_session),
                "session without": lambda: measure_without(_fill_session),
                "space": lambda: measure(_fill_space),
                "space without": lambda: measure_without(_fill_space),
            },
            min(effort.rounds, 5),
        )
    return [
        Result(
            NAME,
            f"appends to one {kind} of {EVENTS:,} events on SQLite, with state digests and checkpoints: "
            f"{shown(rates[kind])} a second of processor time",
            f"without them: {shown(rates[f'{kind} without'])}/s",
            rates[kind] / rates[f"{kind} without"],
            at_least(0.9),
        )
        for kind in ("session", "space")
    ]


@contextmanager
def _no_digest_points() -> Iterator[None]:
    points, even = state_digest._POINT_SET, state_digest._EVEN_POINTS
    state_digest._POINT_SET, state_digest._EVEN_POINTS = frozenset(), range(0)
    try:
        yield
    finally:
        state_digest._POINT_SET, state_digest._EVEN_POINTS = points, even


def _fill_session(log: AuditLog) -> None:
    ids, clock, event_ids = hypothesis_ids(SESSION_SIZE), SystemClock(), RandomIds()
    validator = RequestValidator(Limits())
    kind = BeliefKind(lambda _key, _actor: Stamp(event_ids.new_id(), clock.now()), Limits())
    declare = validator.declare(ONTOLOGY, ids, None, SessionPolicy(), None)
    declared = decide_declare("session", declare, Stamp(event_ids.new_id(), clock.now()))
    with closing(StreamServer(log, kind, 1, codec=kind)) as server:
        server.perform(Command("session", declare, declared=declared))
        for first in range(0, EVENTS, _TOGETHER):
            messages = [
                validator.eliminate(SOURCE, f"observation-{number}", [ids[number * SESSION_SIZE // EVENTS]], None)
                for number in range(first, first + _TOGETHER)
            ]
            _refuse_errors(server.perform_all([validator.command("session", message) for message in messages]))


def _fill_space(log: AuditLog) -> None:
    policy = {"constraint.all": '{"v":1,"effect":"allow","subject":null}'}
    with closing(SubstrateServer(log=log, keeper_seconds=None)) as server:
        space = server.perform(SpaceCommand("space", _OPERATOR, CreateSpace("space", policy=policy))).space
        provenance = Provenance(_AGENT.id, "2026-01-31T09:30:00Z", ["observation-1"])
        for first in range(0, EVENTS, _TOGETHER):
            proposals = [
                Proposal(f"proposal-{number}", space.snapshot_id, provenance, [StateDelta({f"goal.{number}": "1"})])
                for number in range(first, first + _TOGETHER)
            ]
            _refuse_errors(server.perform_all([SpaceCommand("space", _AGENT, Propose(each)) for each in proposals]))
            space = server.current("space")


def _refuse_errors(answers: Sequence[object]) -> None:
    for answer in answers:
        if isinstance(answer, CmbsError):
            raise answer
