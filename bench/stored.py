"""Sessions as a store has them after a long life, written without living it."""

from __future__ import annotations

from hashlib import sha256
from itertools import count, islice

from bench.harness import ONTOLOGY, SOURCE, hypothesis_ids
from cmbs.belief.kernel.case_fields import build_case_fields
from cmbs.belief.kernel.events import Declare, Eliminate, Stamp
from cmbs.belief.kernel.kind import BeliefKind, append_of
from cmbs.belief.kernel.requests import Command, Limits
from cmbs.belief.kernel.session import Session, decide_declare, evolve
from cmbs.messages import Actor, ActorKind, SessionPolicy
from cmbs.spi import Append, AuditLog

_AT_ONCE = 500


def store_sessions(log: AuditLog, sessions: int) -> str:
    """Write so many sessions of two hypotheses that were only declared; the id of the last."""
    message = Declare(ONTOLOGY, ["a", "b"], SessionPolicy())
    appends: list[Append] = []
    for number in range(sessions):
        session_id = _uuid(f"session {number}")
        declared = decide_declare(session_id, message, Stamp(_uuid(f"event {number}"), _moment(number)))
        appends.append(append_of(None, evolve(None, declared), declared))
    _write(log, appends)
    return appends[-1].stream_id


def store_listed_sessions(log: AuditLog, sessions: int) -> None:
    """Write so many sessions with a title, labels, an actor and a report each."""
    numbers = count()

    def stamp(_key: str | None, actor: Actor | None) -> Stamp:
        number = next(numbers)
        return Stamp(_uuid(f"event {number}"), _moment(number), actor=actor)

    kind, appends = BeliefKind(stamp, Limits()), list[Append]()
    for number in range(sessions):
        session_id = _uuid(f"session {number}")
        actor = Actor(ActorKind.AGENT, f"agent-{number % 20}", authenticated=True, key_id="bench")
        case = build_case_fields(f"Incident {number}", {"team": str(number % 50), "severity": str(number % 4)})
        message = Declare(ONTOLOGY, ["a", "b"], SessionPolicy(), title=case.title, labels=case.labels)
        declared = decide_declare(session_id, message, stamp(None, actor))
        report = Eliminate(f"source-{number % 5}", "observation", ["a", "b"][: number % 3])
        session: Session | None = None
        for command in (Command(session_id, message, declared=declared), Command(session_id, report, actor=actor)):
            _, step = kind.decide(session, command)
            if step is None:
                raise TypeError("a generated message repeats an earlier one")
            session = step[0]
            appends.append(step[1])
        if len(appends) >= _AT_ONCE:
            log.append(appends)
            appends = []
    log.append(appends)


def store_long_session(log: AuditLog, events: int, size: int) -> str:
    """Write one session of so many events over `size` hypotheses, with the checkpoint that a server would have kept."""
    ids, session_id = hypothesis_ids(size), _uuid("long session")
    numbers = count()

    def stamp(_key: str | None, _actor: Actor | None) -> Stamp:
        number = next(numbers)
        return Stamp(_uuid(str(number)), _moment(number))

    kind = BeliefKind(stamp, Limits())
    declare = Declare(ONTOLOGY, ids, SessionPolicy())
    declared = decide_declare(session_id, declare, stamp(None, None))
    session: Session | None = None
    appends: list[Append] = []
    for number in range(events):
        command = Command(session_id, declare, declared=declared)
        if number:
            message = Eliminate(SOURCE, f"observation-{number}", [ids[number * (size - 1) // events]])
            command = Command(session_id, message)
        _, step = kind.decide(session, command)
        if step is None:
            raise TypeError("a generated message repeats an earlier one")
        session = step[0]
        appends.append(step[1])
    _write(log, appends)
    for append in appends:
        if append.checkpoint is not None:
            log.put_checkpoint(session_id, append.seq, append.checkpoint)
    return session_id


def _write(log: AuditLog, appends: list[Append]) -> None:
    waiting = iter(appends)
    while group := list(islice(waiting, _AT_ONCE)):
        log.append(group)


def _uuid(name: str) -> str:
    digits = sha256(name.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


def _moment(number: int) -> str:
    return f"2026-01-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.{number:06d}Z"
