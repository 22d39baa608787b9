"""What of a space waits for a person: requests for approval, executions in doubt, and what takes a second operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cmbs.messages import Actor
from cmbs.substrate.kernel.state import Approval, Execution, PolicyChange, Space
from cmbs.substrate.kernel.steps import is_operator, same_person
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus, PolicyChangeStatus, WaitKind


class Wait(NamedTuple):
    """One thing that waits, since the step at `seq`; where it has no record of its own, who asked for it."""

    seq: int
    kind: WaitKind
    id: str
    asked_by: str
    case_id: str | None = None
    expires_at: str | None = None
    record: Approval | Execution | PolicyChange | None = None


def find_waits(space: Space, actor: Actor, *, may_approve: bool, may_operate: bool) -> list[Wait]:
    """What this actor could settle, the oldest first: none of its own, of which another has to say yes."""
    if not is_operator(actor):
        return []
    waits = [*_find_approvals(space, actor)] if may_approve else []
    if may_operate:
        waits += _find_executions(space)
        waits += _find_second_operators(space, actor)
    return sorted(waits, key=lambda wait: (wait.seq, wait.kind, wait.id))


def _find_approvals(space: Space, actor: Actor) -> Iterator[Wait]:
    for approval_id, approval in space.approvals.items():
        if approval.status is ApprovalStatus.PENDING and not same_person(actor, approval.proposer):
            proposal = space.proposals[approval.proposal_id]
            yield Wait(
                proposal.seq,
                WaitKind.APPROVAL,
                approval_id,
                approval.proposer.id,
                proposal.case_id,
                approval.asked.expires_at,
                approval,
            )


def _find_executions(space: Space) -> Iterator[Wait]:
    for execution_id, execution in space.executions.items():
        if execution.status is ExecutionStatus.IN_DOUBT:
            proposal = space.proposals.get(execution.proposal_id)
            case_id = None if proposal is None else proposal.case_id
            yield Wait(
                execution.started_seq,
                WaitKind.EXECUTION_IN_DOUBT,
                execution_id,
                execution.agent_id,
                case_id,
                record=execution,
            )


def _find_second_operators(space: Space, actor: Actor) -> Iterator[Wait]:
    for change_id, change in space.policy_changes.items():
        if change.status is PolicyChangeStatus.PENDING and not same_person(actor, change.proposer):
            yield Wait(change.seq, WaitKind.POLICY_CHANGE, change_id, change.proposer.id, record=change)
    asked = ((WaitKind.OBSERVE_MODE, space.observe_asked_by), (WaitKind.GOVERNANCE, space.governance_asked_by))
    for kind, asked_by in asked:
        if asked_by is not None and not same_person(actor, asked_by):
            yield Wait(space.head.seq, kind, space.space_id, asked_by.id)
