"""Outcomes as JSON, straight from where they are kept: no copy of the survivors on the way."""

from __future__ import annotations

from typing import Any, assert_never

import msgspec
from msgspec import UNSET

from cmbs.belief.kernel.events import Eliminate
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.outcomes import Outcome, applied_by, outcome_of
from cmbs.belief.kernel.views import belief_at
from cmbs.core import entropy
from cmbs.http.belief.schemas import (
    ApprovalResponse,
    DeclareConclusionResponse,
    DeclareSessionResponse,
    EliminateResponse,
    EnterObligationResponse,
    Snapshot,
)
from cmbs.ledger import StoredEntry
from cmbs.messages import (
    BeliefSnapshot,
    ConclusionOutcome,
    DeclareOutcome,
    EliminateOutcome,
    EnterOutcome,
    ExitOutcome,
    Reason,
    TerminationOutcome,
)

_ENCODE = msgspec.json.Encoder().encode


def encoded(answer: Answer, *, with_survivors: bool) -> bytes:
    """The body of a write's answer; `with_survivors=False` leaves the list out."""
    session, message = answer.session, answer.message
    survivors, terminated, active, head = belief_at(session, answer.seq)
    ids = list(survivors) if with_survivors else UNSET
    belief = _snapshot(session.session_id, session.ontology, len(survivors), ids, terminated, active, head)
    if type(message) is Eliminate:  # by far the most common, and no object is made of its outcome
        record: Any = applied_by(session, message)
        # What is believed is that of its own moment, so that its head is this very event.
        return _ENCODE(EliminateResponse(record.applied, record.ignored, belief, head))
    return _ENCODE(_other(outcome_of(answer), belief))


def _other(outcome: Outcome, belief: Snapshot) -> msgspec.Struct:
    match outcome:
        case EliminateOutcome(applied, ignored, _, event_id):  # pragma: no cover - was seen to above
            return EliminateResponse(applied, ignored, belief, event_id)
        case DeclareOutcome(session_id, _):
            return DeclareSessionResponse(session_id, belief)
        case EnterOutcome(_, event_id):
            return EnterObligationResponse(belief, event_id)
        case ExitOutcome(approved, reason, _, event_id) | TerminationOutcome(approved, reason, _, event_id):
            return ApprovalResponse(approved, Reason(reason), belief, event_id)
        case ConclusionOutcome(accepted, reason, _, event_id):
            return DeclareConclusionResponse(accepted, Reason(reason), belief, event_id)
        case _:
            assert_never(outcome)


def encoded_snapshot(belief: BeliefSnapshot, *, with_survivors: bool) -> bytes:
    """The body of QUERY_BELIEF's answer."""
    ids = belief.survivors if with_survivors else UNSET
    head: Any = belief.audit_head_event_id
    return _ENCODE(
        _snapshot(
            belief.session_id,
            belief.ontology,
            belief.n_survivors,
            ids,
            belief.terminated,
            belief.active_obligation_id,
            head,
        )
    )


def with_hash(stored: StoredEntry) -> bytes:
    """An entry as a reader gets it: the stored bytes as they are, and their hash."""
    return b'%b,"event_hash":"%b"}' % (stored.raw[:-1], stored.event_hash.hex().encode())


def _snapshot(
    session_id: str,
    # The encoder writes a tuple as it does a list, and a dataclass as it does a struct: nothing needs to be converted.
    ontology: Any,
    count: int,
    survivors: Any,
    terminated: bool,  # noqa: FBT001 - a field of the protocol
    active_obligation_id: str | None,
    head: str,
) -> Snapshot:
    return Snapshot(
        session_id=session_id,
        ontology=ontology,
        survivors=survivors,
        n_survivors=count,
        entropy_proxy=entropy(count),
        terminated=terminated,
        active_obligation_id=active_obligation_id,
        audit_head_event_id=head,
    )
