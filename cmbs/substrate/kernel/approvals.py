"""What an approval covers, how it is used up, and how requests for one end."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from immutables import Map

from cmbs.messages import Actor
from cmbs.substrate.kernel.events import Approve
from cmbs.substrate.kernel.state import Approval, GrantKey, ProposalRecord, Space
from cmbs.substrate.kernel.words import ApprovalStatus


def pending_approvals(space: Space, record: ProposalRecord) -> list[Approval]:
    """The requests for approval that a proposal still waits for."""
    known = [space.approvals[approval_id] for approval_id in record.approval_ids]
    return [approval for approval in known if approval.status is ApprovalStatus.PENDING]


def settle_approvals(
    approvals: Map[str, Approval], ended: Iterable[str], status: ApprovalStatus, settled_by: Actor, seq: int
) -> Map[str, Approval]:
    """The approvals with these requests ended, by a step at `seq`."""
    for approval_id in ended:
        settled = msgspec.structs.replace(approvals[approval_id], status=status, approver=settled_by, settled_seq=seq)
        approvals = approvals.set(approval_id, settled)
    return approvals


def with_approval(space: Space, message: Approve, approver: Actor, seq: int) -> Space:
    """The space with a request granted: what the proposal is then decided on."""
    approval = space.approvals[message.approval_id]
    granted = msgspec.structs.replace(
        approval,
        status=ApprovalStatus.APPROVED,
        approver=approver,
        uses_left=message.uses,
        good_until=message.expires_at or approval.asked.expires_at,
        settled_seq=seq,
    )
    grants = space.grants
    for key in _grant_keys(approval):
        grants = grants.set(key, message.approval_id)
    return msgspec.structs.replace(space, approvals=space.approvals.set(message.approval_id, granted), grants=grants)


def _grant_keys(approval: Approval) -> Iterable[GrantKey]:
    asked = approval.asked
    for constraint in asked.constraints:
        yield GrantKey(
            approval.proposer.id,
            asked.tool_id,
            asked.args_hash,
            constraint,
            approval.policy_hash,
            asked.tool_hash,
            asked.case_id,
        )


def use_approvals(
    grants: Map[GrantKey, str], approvals: Map[str, Approval], used: Iterable[str]
) -> tuple[Map[GrantKey, str], Map[str, Approval]]:
    """What is left of grants and approvals once each of these was used one more time."""
    for approval_id in used:
        approval = approvals[approval_id]
        approval = msgspec.structs.replace(approval, uses_left=approval.uses_left - 1)
        approvals = approvals.set(approval_id, approval)
        if approval.uses_left <= 0:
            for key in _grant_keys(approval):
                if grants.get(key) == approval_id:
                    grants = grants.delete(key)
    return grants, approvals
