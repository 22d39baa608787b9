"""A session driven at the kernel, without server, store or clock: decide, keep the bytes, evolve."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import asdict
from typing import Any

from msgspec import UNSET

from cmbs.belief.kernel.events import Declare, Event, Message, Repeat, Stamp, read_event
from cmbs.belief.kernel.forks import fork_declaration, list_declarers, origin_of, repeat_message
from cmbs.belief.kernel.independence import survivors_without
from cmbs.belief.kernel.requests import Limits, RequestValidator
from cmbs.belief.kernel.session import Session, decide, decide_declare, evolve
from cmbs.belief.kernel.views import obligations, snapshot
from cmbs.errors import BeliefServerError
from cmbs.ledger import StoredEntry
from cmbs.messages import Actor, ActorKind, OntologyBundle, Origin, SessionPolicy
from cmbs.testing import Call, History, ManualClock, SequentialIds
from cmbs.testing.history import METHOD_OF

ONTOLOGY = OntologyBundle("space", "1", "graphstore://causes", "v17")
VALIDATOR = RequestValidator(Limits())


class Line:
    """One session, its log, and every state that it has been in."""

    def __init__(
        self, declaration: Declare, session_id: str = "session", key: str | None = None, actor: str | None = None
    ) -> None:
        self.session_id = session_id
        self._clock = ManualClock()
        self._ids = SequentialIds()
        event = decide_declare(session_id, declaration, self.stamp(key, actor))
        self.states: list[Session] = [evolve(None, event)]
        self.log: list[StoredEntry] = [event.stored]

    @classmethod
    def over(cls, *hypotheses: str, **policy: Any) -> Line:
        """A session over these hypotheses, under this policy."""
        return cls(VALIDATOR.declare(ONTOLOGY, hypotheses, None, SessionPolicy(**policy), None))

    def fork(self) -> Line:
        """Another future of the newest state."""
        branch = copy(self)
        branch.states, branch.log = [self.session], list(self.log)
        branch._clock, branch._ids = ManualClock(), SequentialIds(space=1)
        return branch

    @property
    def session(self) -> Session:
        """The newest state."""
        return self.states[-1]

    def stamp(self, key: str | None = None, actor: str | None = None, kind: ActorKind = ActorKind.AGENT) -> Stamp:
        """A fresh id and time; `actor` is the id of an authenticated agent, or actor of another kind."""
        who = None if actor is None else Actor(kind, actor, authenticated=True, key_id="key")
        return Stamp(self._ids.new_id(), self._clock.now(), key, who)

    def decide(self, message: Message, key: str | None = None, **more: Any) -> Event | Repeat:
        """Decide, and leave it at that."""
        return decide(self.session, message, self.stamp(key, **more))

    def tell(self, message: Message, key: str | None = None, **more: Any) -> Event | Repeat:
        """Decide; what is an event is logged and applied."""
        decided = self.decide(message, key, **more)
        if isinstance(decided, Event):
            self.states.append(evolve(self.session, decided))
            self.log.append(decided.stored)
        return decided

    def eliminate(self, observation_id: str, *eliminated: str, key: str | None = None, **more: Any) -> Event | Repeat:
        """Eliminate, as seen by one and the same source."""
        return self.tell(VALIDATOR.eliminate("source", observation_id, eliminated, None), key, **more)


def fork_of(line: Line, fork_id: str, actor: str | None, left_out: tuple[int, ...] = ()) -> Line:
    """A fork of everything that a line was told."""
    declared = read_event(line.log[0])
    known = line.session
    origin = Origin(
        line.session_id, known.head.seq, known.head.event_hash.hex(), left_out or UNSET, list_declarers(declared)
    )
    fork = Line(fork_declaration(declared, origin), fork_id, actor=actor)
    for seq, stored in enumerate(line.log[1:], 1):
        if seq not in left_out:
            fork.tell(repeat_message(origin_of(declared), read_event(stored)), actor=actor)
    return fork


def message_of(call: Call) -> Message:
    """The message that a call becomes."""
    message: Message = getattr(VALIDATOR, METHOD_OF[call.verb])(**call.arguments)
    return message


def line_of(history: History) -> Line:
    """The session of a history, declared and not yet told anything."""
    return Line(VALIDATOR.declare(history.ontology, history.hypotheses, history.metadata, history.policy, None))


def replay_steps(history: History, line: Line | None = None) -> Line:
    """The session of a history, or another one, told all that the history has to say; errors change nothing."""
    line = line_of(history) if line is None else line
    for call in history.calls:
        with suppress(BeliefServerError):
            line.tell(message_of(call), call.idempotency_key)
    return line


def describe(session: Session) -> dict[str, Any]:
    """Everything that a state knows, as plain data that can be compared."""
    return {
        "session_id": session.session_id,
        "ontology": session.ontology.to_dict(),
        "policy": asdict(session.policy),
        "attributes": dict(session.attributes),
        "independent": {actor_id: list(survivors_without(session, actor_id)[1]) for actor_id in ("", "ann", "bob")},
        "provider": session.provider,
        "universe": session.universe.ids,
        "survivors": list(session.survivors),
        "root": session.survivors.root,
        "head": session.head,
        "events": list(session.events),
        "observations": list(session.observations),
        "requests": list(session.requests),
        "conclusions": list(session.conclusions),
        "obligations": dict(session.obligations),
        "obligation_views": obligations(session),
        "active": session.active,
        "terminated_seq": session.terminated_seq,
        "snapshot": snapshot(session).to_dict(),
    }
