"""What an approval covers, and how it is used up."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from immutables import Map

from cmbs.messages import Actor
from cmbs.substrate.kernel.events import Approve
from cmbs.substrate.kernel.state import Approval, ApprovalStatus, GrantKey, Space


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
        yield GrantKey(approval.proposer.id, asked.tool_id, asked.args_hash, constraint, approval.policy_hash)


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
