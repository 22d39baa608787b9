"""What a session believes, or believed at any moment of its log. Pure."""

from __future__ import annotations

from typing import NamedTuple

from cmbs.belief.kernel.session import ObligationRecord, Session, as_obligation
from cmbs.belief.kernel.survivors import Survivors
from cmbs.errors import EventNotFound
from cmbs.ledger import StoredEntry
from cmbs.messages import BeliefSnapshot, ObligationState, ObligationView, ReachDetail


class AuditPage(NamedTuple):
    """Some entries of a session; `next_event_id` is the last of them where others follow."""

    entries: list[StoredEntry]
    next_event_id: str | None


def snapshot(session: Session, at: int | None = None) -> BeliefSnapshot:
    """What the session believes, or believed right after event `at`. EventNotFound beyond the head."""
    if at is None or at == session.head.seq:
        survivors, active, head_event_id = session.survivors, list(session.active), session.head_event_id
        is_terminated = session.terminated_seq is not None
    else:
        survivors, active = survivors_at(session, at), list(active_at(session, at))
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
        raise EventNotFound(str(at), session.head.seq)
    gone: list[str] = []
    for _, record in session.observations.newest_first():
        if record.seq <= at:
            break
        gone.extend(record.applied)
    return session.survivors.restore(gone)


def active_at(session: Session, at: int) -> tuple[str, ...]:
    """The obligations that were active right after event `at`, in the order of entry."""
    if at == session.head.seq:
        return session.active
    return tuple(
        [
            obligation_id
            for obligation_id, record in session.obligations.items()
            if record.entered_seq <= at and (record.exited_seq is None or record.exited_seq > at)
        ]
    )


def reach_at(session: Session, obligation_id: str, at: int | None = None) -> ReachDetail:
    """How far an obligation is from being left, or was right after event `at`; once it was left, how far it was then.

    Every elimination takes one of those that are alive, so whether it can be reached is settled when it is entered.
    """
    record, seq = session.obligations[obligation_id], session.head.seq if at is None else at
    has_exited = record.exited_seq is not None and record.exited_seq <= seq
    gone = record.eliminated_at_exit if has_exited else len(session.universe) - len(survivors_at(session, seq))
    eliminated, alive = gone - record.eliminated_at_entry, len(session.universe) - gone
    needed = record.min_total_eliminations
    return ReachDetail(needed, eliminated, alive, eliminated + alive >= needed)


def seq_at(session: Session, at: int | str | None) -> int:
    """The place in the log of a seq or an event id; None means the head. EventNotFound where there is none."""
    if at is None:
        return session.head.seq
    if isinstance(at, str):
        seq = session.events.position(at)
    else:
        seq = at if type(at) is int and 0 <= at <= session.head.seq else None
    if seq is None:
        raise EventNotFound(str(at), session.head.seq)
    return seq


def _state_of(record: ObligationRecord) -> ObligationState:
    if record.exited_seq is None:
        return ObligationState.ACTIVE
    return ObligationState.LIFTED if record.lifted else ObligationState.EXITED


def obligations(session: Session) -> list[ObligationView]:
    """Every obligation, in the order of entry."""
    return [
        ObligationView(
            obligation_id,
            _state_of(record),
            record.min_total_eliminations,
            as_obligation(session, obligation_id, record).eliminations,
        )
        for obligation_id, record in session.obligations.items()
    ]
