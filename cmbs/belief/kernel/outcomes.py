"""From a place in the log to what the caller is told."""

from __future__ import annotations

from typing import TypeAlias, assert_never

from cmbs.belief.kernel.events import (
    Declare,
    DeclareConclusion,
    Eliminate,
    EnterObligation,
    RequestExit,
    RequestTermination,
    UpdateCase,
)
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.session import Verdict
from cmbs.belief.kernel.views import snapshot
from cmbs.messages import (
    ConclusionOutcome,
    DeclareOutcome,
    EliminateOutcome,
    EnterOutcome,
    ExitOutcome,
    TerminationOutcome,
    UpdateCaseOutcome,
)

Outcome: TypeAlias = (
    DeclareOutcome
    | EliminateOutcome
    | EnterOutcome
    | ExitOutcome
    | ConclusionOutcome
    | TerminationOutcome
    | UpdateCaseOutcome
)


def outcome_of(answer: Answer) -> Outcome:
    """The outcome of a message, the same for a repeat as for the first time: the belief is that of its own moment."""
    session, message, seq = answer.session, answer.message, answer.seq
    belief = snapshot(session, seq)
    event_id, verdict = session.events.at(seq)
    match message:
        case Eliminate():
            record = session.observations.get((message.source_id, message.observation_id))
            if record is None:  # pragma: no cover - an elimination in the log has its record
                raise KeyError(message.observation_id)
            return EliminateOutcome(list(record.applied), list(record.ignored), belief, event_id)
        case Declare():
            return DeclareOutcome(session.session_id, belief)
        case EnterObligation():
            return EnterOutcome(belief, event_id)
        case RequestExit():
            return ExitOutcome(*_plain(verdict), belief, event_id)
        case DeclareConclusion():
            return ConclusionOutcome(*_plain(verdict), belief, event_id)
        case RequestTermination():
            return TerminationOutcome(*_plain(verdict), belief, event_id)
        case UpdateCase():
            return UpdateCaseOutcome(belief, event_id)
        case _:
            assert_never(message)


def _plain(verdict: Verdict | None) -> tuple[bool, str]:
    if verdict is None:  # pragma: no cover - a request in the log has its verdict
        raise ValueError("a request without a verdict")
    return verdict.granted, verdict.reason.value
