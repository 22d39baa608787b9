"""Sessions as a store has them after a long life, written without living it."""

from __future__ import annotations

from hashlib import sha256
from itertools import islice

from bench.harness import ONTOLOGY, SOURCE, hypothesis_ids
from cmbs.belief.kernel.checkpoint import freeze
from cmbs.belief.kernel.events import Declare, Eliminate, Event, Stamp
from cmbs.belief.kernel.kind import append_of
from cmbs.belief.kernel.session import Session, decide, decide_declare, evolve
from cmbs.messages import SessionPolicy
from cmbs.spi import Append, AuditLog
from cmbs.streams.checkpoints import Checkpointer

_AT_ONCE = 500


def store_sessions(log: AuditLog, count: int) -> str:
    """Write so many sessions of two hypotheses that were only declared; the id of the last."""
    message = Declare(ONTOLOGY, ["a", "b"], SessionPolicy())
    appends: list[Append] = []
    for number in range(count):
        session_id = _uuid(f"session {number}")
        declared = decide_declare(session_id, message, Stamp(_uuid(f"event {number}"), _moment(number)))
        appends.append(append_of(evolve(None, declared), declared))
    _write(log, appends)
    return appends[-1].stream_id


def store_long_session(log: AuditLog, events: int, size: int) -> str:
    """Write one session of so many events over `size` hypotheses, with the checkpoint that a server would have kept."""
    ids, session_id = hypothesis_ids(size), _uuid("long session")
    event = decide_declare(session_id, Declare(ONTOLOGY, ids, SessionPolicy()), Stamp(_uuid("0"), _moment(0)))
    session, kept = evolve(None, event), 0
    appends, checkpoint = [append_of(session, event)], None
    for number in range(1, events):
        message = Eliminate(SOURCE, f"observation-{number}", [ids[number * (size - 1) // events]])
        decided = decide(session, message, Stamp(_uuid(str(number)), _moment(number)))
        if not isinstance(decided, Event):
            raise TypeError("a generated message repeats an earlier one")
        session = evolve(session, decided)
        appends.append(append_of(session, decided))
        if Checkpointer.is_due(number, kept):
            kept, checkpoint = number, session
    _write(log, appends)
    _keep(log, checkpoint)
    return session_id


def _keep(log: AuditLog, session: Session | None) -> None:
    if session is not None:
        log.put_checkpoint(session.session_id, session.head.seq, freeze(session))


def _write(log: AuditLog, appends: list[Append]) -> None:
    waiting = iter(appends)
    while group := list(islice(waiting, _AT_ONCE)):
        log.append(group)


def _uuid(name: str) -> str:
    digits = sha256(name.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


def _moment(number: int) -> str:
    return f"2026-01-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.{number:06d}Z"
