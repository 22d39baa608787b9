"""What goes back of a verb: the belief, why it was refused, that it is a repeat, and the belief of now."""

from __future__ import annotations

from typing import Any

from cmbs.api.sessions import ForeignTombstones, Snapshot, StoreView
from cmbs.belief.kernel.agreement import StoreReport
from cmbs.belief.kernel.events import EnterObligation
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.refusals import refusal_of
from cmbs.belief.kernel.views import reach_at, snapshot
from cmbs.messages import BeliefSnapshot

# Of tombstones that others put into a session, in a view of it.
_MAX_FOREIGN = 100


def show_snapshot(belief: BeliefSnapshot, *, whole: bool, store: StoreView | None = None) -> Snapshot:
    """A belief as it is answered; not `whole`, without the survivors."""
    return Snapshot(
        session_id=belief.session_id,
        ontology=belief.ontology,
        survivors=belief.survivors if whole else None,
        n_survivors=belief.n_survivors,
        entropy_proxy=belief.entropy_proxy,
        contradiction=belief.contradiction,
        terminated=belief.terminated,
        active_obligation_id=belief.active_obligation_id,
        audit_head_event_id=belief.audit_head_event_id or "",
        store=store,
    )


def show_store(report: StoreReport) -> StoreView:
    """What is known of a session's tombstones in their store; of foreign ones the first few."""
    room, foreign = _MAX_FOREIGN, []
    for each in report.foreign:
        ids = each.hypothesis_ids[:room]
        room -= len(ids)
        if ids:
            foreign.append(ForeignTombstones(each.source_id, each.trigger, list(ids)))
    return StoreView(report.state, report.n_foreign, foreign, report.reason or None)


def describe_answer(answer: Answer, note: str | None) -> dict[str, Any]:
    """The further members of an answer; each only where there is something to say."""
    content: dict[str, Any] = {}
    if note is not None:
        content["note"] = note
    if isinstance(answer.message, EnterObligation):
        content["reach"] = reach_at(answer.session, answer.message.obligation_id, answer.seq)
    refusal = refusal_of(answer)
    if refusal is not None:
        content["refusal"] = refusal
    if answer.replayed:
        belief = snapshot(answer.session)
        content["replayed"] = True
        content["current"] = {
            "n_survivors": belief.n_survivors,
            "audit_head_event_id": belief.audit_head_event_id,
            "terminated": belief.terminated,
        }
    return content
