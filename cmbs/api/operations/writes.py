"""The writes of a space: one table of the requests that become messages to it."""

from __future__ import annotations

import msgspec

from cmbs.api import space_requests as requests
from cmbs.api import spaces as schemas
from cmbs.api.operation import Operation
from cmbs.api.operations.reads import READ_ERRORS, SPACE
from cmbs.api.operations.records import PROPOSAL_BULK
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import Scope
from cmbs.substrate.kernel import events
from cmbs.substrate.kernel.model import Capability

_SETTLED_BULK = ("approval.args", *(f"proposal.{part}" for part in PROPOSAL_BULK))


def _describe_write(  # noqa: PLR0913 - a row of the table
    path: str,
    operation_id: str,
    summary: str,
    description: str,
    scope: Scope,
    body: type[msgspec.Struct],
    response: type[msgspec.Struct] = schemas.StepResponse,
    bulk: tuple[str, ...] = (),
    *,
    has_own_key: bool = False,
) -> Operation:
    """Describe a POST below a space that becomes a message to it."""
    record = (ErrorCode.RECORD_NOT_FOUND,) if "{" in path else ()
    return Operation(
        "POST",
        f"{SPACE}/{path}",
        operation_id,
        summary,
        description,
        response,
        body,
        errors=(*READ_ERRORS, *record, ErrorCode.CONFLICT),
        body_required=any(field.required for field in msgspec.structs.fields(body)),
        scope=scope,
        bulk=bulk,
        has_own_key=has_own_key,
    )


WRITES = (
    _describe_write(
        "mode",
        "set_space_mode",
        "Enforce or observe",
        "SET_MODE. While a space observes, every decision is made and recorded, and nothing is blocked. For operators."
        " The change from enforcing to observing takes as many operators as a change of policy; the request of the"
        " first one is recorded.",
        Scope.SPACES_OPERATE,
        events.SetMode,
    ),
    _describe_write(
        "governance",
        "set_space_governance",
        "Set how many operators a change of policy takes",
        "SET_GOVERNANCE. One operator can ask for two. From two to one takes two operators; the request of the first"
        " one is recorded. For operators.",
        Scope.SPACES_OPERATE,
        events.SetGovernance,
    ),
    _describe_write(
        "proposals",
        "propose",
        "Make a proposal",
        "PROPOSE. It is validated at once. What is allowed is started and committed; what is not is blocked, parked,"
        " sent for approval, or answered with a cheaper offer. Repeating a proposal gives the first answer again;"
        " another proposal under the same id is a conflict.",
        Scope.SPACES_PROPOSE,
        requests.ProposeRequest,
        schemas.ProposalResponse,
        bulk=PROPOSAL_BULK,
        has_own_key=True,
    ),
    _describe_write(
        "proposals/{proposal_id}/withdraw",
        "withdraw_proposal",
        "Withdraw a proposal that waits",
        "WITHDRAW. By its proposer or an operator, while it is parked or waits for approval. What runs already goes on."
        " Repeating it gives the first answer again.",
        Scope.SPACES_PROPOSE,
        requests.ReasonRequest,
        schemas.WithdrawnProposal,
    ),
    _describe_write(
        "approvals/{approval_id}/approve",
        "approve",
        "Approve exactly what was asked",
        "APPROVE. Bound to the args, the constraints that asked, and the policy. The proposal is decided again"
        " on the current state. A proposer cannot approve the proposal.",
        Scope.SPACES_APPROVE,
        requests.ApproveRequest,
        schemas.SettledApproval,
        bulk=_SETTLED_BULK,
    ),
    _describe_write(
        "approvals/{approval_id}/reject",
        "reject",
        "Reject what was asked",
        "REJECT.",
        Scope.SPACES_APPROVE,
        requests.ReasonRequest,
        schemas.SettledApproval,
        bulk=_SETTLED_BULK,
    ),
    _describe_write(
        "tools",
        "register_tool",
        "Register a tool, or a new version of one",
        "REGISTER_TOOL. For operators.",
        Scope.SPACES_OPERATE,
        requests.RegisterToolRequest,
    ),
    _describe_write(
        "tools/{tool_id}/retire",
        "retire_tool",
        "Retire a tool",
        "RETIRE_TOOL. It can no longer be called. For operators.",
        Scope.SPACES_OPERATE,
        requests.RetireToolRequest,
    ),
    _describe_write(
        "capabilities",
        "issue_capability",
        "Issue a capability token",
        "ISSUE_CAPABILITY. By an operator, which needs the scope `spaces:operate`, or by the holder of a wider token.",
        Scope.SPACES_PROPOSE,
        Capability,
    ),
    _describe_write(
        "capabilities/{token_id}/revoke",
        "revoke_capability",
        "Revoke a capability token",
        "REVOKE_CAPABILITY. The token, and every token issued under it, stops working. By its holder, by the holder of"
        " the one above it, or by an operator, which needs the scope `spaces:operate`.",
        Scope.SPACES_PROPOSE,
        requests.ReasonRequest,
    ),
    _describe_write(
        "cases",
        "open_case",
        "Admit a case to the space",
        "OPEN_CASE. From now on agents of the case may act under it here, and their gates read its belief session. For"
        " operators, and for keys with the scope `spaces:cases`; never for agents. A case that was closed can be"
        " admitted again. While it is open, repeating it gives the first answer again.",
        Scope.SPACES_CASES,
        requests.OpenCaseRequest,
    ),
    _describe_write(
        "cases/{case_id}/close",
        "close_case",
        "Close a case",
        "CLOSE_CASE. Nothing is done under it any more, and what waits under it is withdrawn. For those who may open"
        " one.",
        Scope.SPACES_CASES,
        requests.ReasonRequest,
    ),
    _describe_write(
        "memory",
        "put_memory",
        "Put a claim into memory",
        "PUT_MEMORY. An unconfirmed claim is a hypothesis or derived, and has an end or a review date.",
        Scope.SPACES_PROPOSE,
        requests.PutMemoryRequest,
    ),
    _describe_write(
        "memory/{entry_id}/promote",
        "promote_memory",
        "Promote a claim",
        "PROMOTE_MEMORY. Only on new evidence.",
        Scope.SPACES_PROPOSE,
        requests.PromoteMemoryRequest,
    ),
    _describe_write(
        "memory/{entry_id}/dispute",
        "dispute_memory",
        "Dispute a claim",
        "DISPUTE_MEMORY. Records whether other claims contradict it. A dispute is taken back by who raised it, or by an"
        " operator.",
        Scope.SPACES_PROPOSE,
        requests.DisputeMemoryRequest,
    ),
    _describe_write(
        "policy/changes",
        "propose_policy_change",
        "Propose a change of policy",
        "PROPOSE_POLICY. Validated at once; applied when another operator authorises it, or at once where one operator"
        " is enough.",
        Scope.SPACES_OPERATE,
        requests.ProposePolicyRequest,
    ),
    _describe_write(
        "policy/changes/{change_id}/authorise",
        "authorise_policy_change",
        "Authorise a change of policy",
        "SETTLE_POLICY. By an operator other than the proposer, and only on the policy that the change was"
        " proposed for.",
        Scope.SPACES_OPERATE,
        requests.ReasonRequest,
    ),
    _describe_write(
        "policy/changes/{change_id}/reject",
        "reject_policy_change",
        "Reject a change of policy",
        "SETTLE_POLICY. By any operator, including the proposer.",
        Scope.SPACES_OPERATE,
        requests.ReasonRequest,
    ),
)
