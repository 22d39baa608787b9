"""Outcomes as JSON, straight from where they are kept: no copy of the survivors on the way."""

from __future__ import annotations

from typing import Any, assert_never

import msgspec
from msgspec import UNSET

from cmbs.belief_events import Eliminate
from cmbs.belief_view import snapshot
from cmbs.core import entropy
from cmbs.http.schemas import (
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
from cmbs.serving.belief import Answer
from cmbs.serving.outcomes import Outcome, applied_by, outcome_of

_ENCODE = msgspec.json.Encoder().encode


def encoded(answer: Answer, *, with_survivors: bool) -> bytes:
    """The body of a write's answer; `with_survivors=False` leaves the list out."""
    message = answer.message
    if type(message) is Eliminate:  # by far the most common, and no object is made of its outcome
        record: Any = applied_by(answer.session, message)
        belief = _snapshot(snapshot(answer.session, answer.seq), with_survivors=with_survivors)
        # What is believed is that of its own moment, so that its head is this very event.
        return _ENCODE(EliminateResponse(record.applied, record.ignored, belief, belief.audit_head_event_id))
    outcome = outcome_of(answer)
    return _ENCODE(_other(outcome, _snapshot(outcome.snapshot, with_survivors=with_survivors)))


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
    return _ENCODE(_snapshot(belief, with_survivors=with_survivors))


def with_hash(stored: StoredEntry) -> bytes:
    """An entry as a reader gets it: the stored bytes as they are, and their hash."""
    return b'%b,"event_hash":"%b"}' % (stored.raw[:-1], stored.event_hash.hex().encode())


def _snapshot(belief: BeliefSnapshot, *, with_survivors: bool) -> Snapshot:
    # The encoder writes a tuple as it does a list, and a dataclass as it does a struct: nothing needs to be converted.
    kept: Any = belief
    count = belief.n_survivors
    return Snapshot(
        session_id=belief.session_id,
        ontology=kept.ontology,
        survivors=kept.in_order() if with_survivors else UNSET,
        n_survivors=count,
        entropy_proxy=entropy(count),
        terminated=belief.terminated,
        active_obligation_id=belief.active_obligation_id,
        audit_head_event_id=kept.audit_head_event_id,
    )
