"""What steps do to proposals that wait, and to cases. Part of `evolve`: nothing is decided here."""

from __future__ import annotations

from typing import Any

import msgspec
from immutables import Map

from cmbs.substrate.kernel.approvals import pending_approvals, settle_approvals
from cmbs.substrate.kernel.arbitration.cases import agents_of
from cmbs.substrate.kernel.events import CloseCase, OpenCase, SpaceEvent, StepResult
from cmbs.substrate.kernel.state import Case, Parked, ProposalRecord, Space
from cmbs.substrate.kernel.words import ApprovalStatus, CaseStatus, ProposalStatus

# What a step changes of a space, by field.
ChangedFields = dict[str, Any]


def park(space: Space, proposal_id: str, parked: Parked | None) -> ChangedFields:
    """The proposal parked as this says, or not at all; and the index of who waits for what."""
    before = space.parked.get(proposal_id)
    if before is None and parked is None:
        return {}
    waiting = space.waiting
    for key in () if before is None else before.waits_for:
        left = waiting[key].delete(proposal_id)
        waiting = waiting.set(key, left) if left else waiting.delete(key)
    if parked is None:
        return {"parked": space.parked.delete(proposal_id), "waiting": waiting}
    for key in parked.waits_for:
        waiting = waiting.set(key, waiting.get(key, Map()).set(proposal_id, parked.until))
    return {"parked": space.parked.set(proposal_id, parked), "waiting": waiting}


def end_waiting(space: Space, event: SpaceEvent, status: ApprovalStatus) -> ChangedFields:
    """The proposals that a step names wait for nothing any more: all their requests for approval end with `status`."""
    body, approvals = event.body, space.approvals
    proposals: Map[str, ProposalRecord] = with_statuses(space, event.result)["proposals"]
    waiting: ChangedFields = {}
    for proposal_id in event.result.statuses:
        record = proposals[proposal_id]
        pending = [each.asked.approval_id for each in pending_approvals(space, record)]
        approvals = settle_approvals(approvals, pending, status, body.actor, body.seq)
        if status is ApprovalStatus.WITHDRAWN:
            proposals = proposals.set(proposal_id, msgspec.structs.replace(record, withdrawn_seq=body.seq))
        waiting = waiting | park(msgspec.structs.replace(space, **waiting), proposal_id, None)
    return {"proposals": proposals, "approvals": approvals, **waiting}


def with_statuses(space: Space, result: StepResult) -> ChangedFields:
    """The proposals that a step names where it says that they stand."""
    proposals = space.proposals
    for proposal_id, status in result.statuses.items():
        record = msgspec.structs.replace(proposals[proposal_id], status=ProposalStatus(status))
        proposals = proposals.set(proposal_id, record)
    return {"proposals": proposals}


def open_case(space: Space, message: OpenCase, event: SpaceEvent) -> ChangedFields:
    """A case more to act under, or again."""
    body = event.body
    case = Case(
        message.case_id,
        bytes(message.attributes),
        frozenset(message.agents),
        body.actor,
        body.seq,
        body.ts,
        title=message.title,
        labels=message.labels,
        listed_agents=frozenset(agents_of(message.belief) or ()),
    )
    return {"cases": space.cases.set(message.case_id, case)}


def close_case(space: Space, message: CloseCase, event: SpaceEvent) -> ChangedFields:
    """A case less to act under, and nothing that waits under it."""
    body = event.body
    closed = msgspec.structs.replace(
        space.cases[message.case_id],
        status=CaseStatus.CLOSED,
        closed_by=body.actor,
        closed_seq=body.seq,
        closed_ts=body.ts,
        reason=message.reason,
    )
    return {
        "cases": space.cases.set(message.case_id, closed),
        **end_waiting(space, event, ApprovalStatus.WITHDRAWN),
    }
