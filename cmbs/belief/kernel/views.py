"""What a session believes, or believed at any moment of its log. Pure."""

from __future__ import annotations

from cmbs.belief.kernel.session import Session, as_obligation
from cmbs.belief.kernel.survivors import Survivors
from cmbs.errors import EventNotFound
from cmbs.messages import BeliefSnapshot, ObligationState, ObligationView


def snapshot(session: Session, at: int | None = None) -> BeliefSnapshot:
    """What the session believes, or believed right after event `at`. EventNotFound beyond the head."""
    if at is None or at == session.head.seq:
        survivors, active, head_event_id = session.survivors, list(session.active), session.head_event_id
        is_terminated = session.terminated_seq is not None
    else:
        survivors = survivors_at(session, at)
        active = [
            obligation_id
            for obligation_id, record in session.obligations.items()
            if record.entered_seq <= at and (record.exited_seq is None or record.exited_seq > at)
        ]
        head_event_id = session.events.at(at)[0]
        is_terminated = False  # nothing follows a termination, so before the head there is none
    newest = active[-1] if active else None
    return BeliefSnapshot(session.session_id, session.ontology, survivors, is_terminated, newest, head_event_id)


def survivors_at(session: Session, at: int) -> Survivors:
    """What survived right after event `at`: what survives now, and all that was eliminated since.

    A session keeps no earlier survivor sets; they follow from what its eliminations recorded.
    """
    if at == session.head.seq:
        return session.survivors
    if not 0 <= at < session.head.seq:
        raise EventNotFound(str(at))
    gone: list[str] = []
    for _, record in session.observations.newest_first():
        if record.seq <= at:
            break
        gone.extend(record.applied)
    return session.survivors.restore(gone)


def seq_at(session: Session, at: int | str | None) -> int:
    """The place in the log of a seq or an event id; None means the head. EventNotFound where there is none."""
    if at is None:
        return session.head.seq
    if isinstance(at, str):
        seq = session.events.position(at)
    else:
        seq = at if type(at) is int and 0 <= at <= session.head.seq else None
    if seq is None:
        raise EventNotFound(str(at))
    return seq


def obligations(session: Session) -> list[ObligationView]:
    """Every obligation, in the order of entry."""
    return [
        ObligationView(
            obligation_id,
            ObligationState.ACTIVE if record.exited_seq is None else ObligationState.EXITED,
            record.min_total_eliminations,
            as_obligation(session, obligation_id, record).eliminations,
        )
        for obligation_id, record in session.obligations.items()
    ]
