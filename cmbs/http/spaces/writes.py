"""The writes of a space: one table of the bodies that become messages, and of how the answers are shown.

From a row comes the operation of the OpenAPI document; one handler in `cmbs.http.spaces.routes` serves every row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec

from cmbs.errors import ErrorCode
from cmbs.http.operation import Operation
from cmbs.http.spaces import requests, schemas, views
from cmbs.http.spaces.resources import EXECUTION_BULK, PROPOSAL_BULK, READ_ERRORS, SPACE
from cmbs.http.spaces.views import Reader
from cmbs.identity import Scope
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel import events
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import NULL, Capability, Proposal, StateDelta, Tool, ToolCall

_CANDIDATES = {requests.StateDeltaRequest: StateDelta, requests.ToolCallRequest: ToolCall}
_SETTLED_BULK = ("approval.args", *(f"proposal.{part}" for part in PROPOSAL_BULK))
Build: TypeAlias = Callable[..., events.SpaceMessage]


@dataclass(frozen=True, slots=True)
class Write:
    """A POST that becomes a message to the space. `path` is relative to the space.

    `build` is called with the ids of the path and the fields of the body that were sent; `show` builds the response.
    """

    path: str
    operation_id: str
    summary: str
    description: str
    scope: Scope
    body: type[msgspec.Struct]
    build: Build
    response: type = schemas.StepResponse
    show: Callable[[SpaceAnswer, Reader], msgspec.Struct] = views.show_step
    # Whether a caller with this body acts as an operator, so that its key needs `spaces:operate` too.
    governs: Callable[[Actor, Any], bool] | None = None
    # The parts of the answer that a minimal one leaves out.
    bulk: tuple[str, ...] = ()

    @property
    def operation(self) -> Operation:
        """The operation as the document describes it."""
        record = (ErrorCode.RECORD_NOT_FOUND,) if "{" in self.path else ()
        return Operation(
            "POST",
            f"{SPACE}/{self.path}",
            self.operation_id,
            self.summary,
            self.description,
            self.response,
            self.body,
            errors=(*READ_ERRORS, *record, ErrorCode.CONFLICT),
            body_required=any(field.required for field in msgspec.structs.fields(self.body)),
            scope=self.scope,
            bulk=self.bulk,
        )


def _build_proposal(candidates: list[msgspec.Struct], defer_ms: int, ask_ms: int, **fields: Any) -> events.Propose:
    built = [_CANDIDATES[type(each)](*msgspec.structs.astuple(each)) for each in candidates]
    return events.Propose(Proposal(candidates=built, **fields), defer_ms=defer_ms, ask_ms=ask_ms)


def _build_outcome(result: msgspec.Raw = NULL, **fields: Any) -> events.RecordOutcome:
    return events.RecordOutcome(result=result, result_bytes=len(bytes(result)), **fields)


def _is_operator(actor: Actor, _: Any) -> bool:
    return actor.kind is ActorKind.OPERATOR


def _issues_as_operator(actor: Actor, body: requests.IssueCapabilityRequest) -> bool:
    """A root token is an operator's to issue; a narrower one under it, its holder's."""
    return body.parent_id is None or actor.kind is ActorKind.OPERATOR


PROPOSE = Write(
    "proposals",
    "propose",
    "Make a proposal",
    "PROPOSE. It is validated at once. What is allowed is started and committed; what is not is blocked, parked, sent"
    " for approval, or answered with a cheaper offer. Repeating a proposal gives the first answer again; another"
    " proposal under the same id is a conflict.",
    Scope.SPACES_PROPOSE,
    requests.ProposeRequest,
    _build_proposal,
    schemas.ProposalResponse,
    views.show_recorded_decision,
    bulk=PROPOSAL_BULK,
)
WRITES = (
    Write(
        "mode",
        "set_space_mode",
        "Enforce or observe",
        "SET_MODE. While a space observes, every decision is made and recorded, and nothing is blocked. For operators."
        " The change from enforcing to observing takes as many operators as a change of policy; the request of the"
        " first one is recorded.",
        Scope.SPACES_OPERATE,
        requests.SetModeRequest,
        events.SetMode,
    ),
    Write(
        "governance",
        "set_space_governance",
        "Set how many operators a change of policy takes",
        "SET_GOVERNANCE. One operator can ask for two. From two to one takes two operators; the request of the first"
        " one is recorded. For operators.",
        Scope.SPACES_OPERATE,
        requests.SetGovernanceRequest,
        events.SetGovernance,
    ),
    PROPOSE,
    Write(
        "proposals/{proposal_id}/withdraw",
        "withdraw_proposal",
        "Withdraw a proposal that waits",
        "WITHDRAW. By its proposer or an operator, while it is parked or waits for approval. What runs already goes on."
        " Repeating it gives the first answer again.",
        Scope.SPACES_PROPOSE,
        requests.ReasonRequest,
        events.Withdraw,
        schemas.WithdrawnProposal,
        views.show_withdrawal,
    ),
    Write(
        "approvals/{approval_id}/approve",
        "approve",
        "Approve exactly what was asked",
        "APPROVE. Bound to the args, the constraints that asked, and the policy. The proposal is decided again"
        " on the current state. A proposer cannot approve the proposal.",
        Scope.SPACES_APPROVE,
        requests.ApproveRequest,
        events.Approve,
        schemas.SettledApproval,
        views.show_settled_approval,
        bulk=_SETTLED_BULK,
    ),
    Write(
        "approvals/{approval_id}/reject",
        "reject",
        "Reject what was asked",
        "REJECT.",
        Scope.SPACES_APPROVE,
        requests.ReasonRequest,
        events.Reject,
        schemas.SettledApproval,
        views.show_settled_approval,
        bulk=_SETTLED_BULK,
    ),
    Write(
        "executions/{execution_id}/outcome",
        "report_outcome",
        "Report the outcome of an execution",
        "RECORD_OUTCOME. By the agent for a `caller` tool, by the tool itself, or by an operator for an"
        " execution in doubt, which needs the scope `spaces:operate`. The first report counts.",
        Scope.SPACES_PROPOSE,
        requests.OutcomeRequest,
        _build_outcome,
        schemas.RecordedOutcome,
        views.show_outcome,
        _is_operator,
        tuple(f"execution.{part}" for part in EXECUTION_BULK),
    ),
    Write(
        "tools",
        "register_tool",
        "Register a tool, or a new version of one",
        "REGISTER_TOOL. For operators.",
        Scope.SPACES_OPERATE,
        requests.RegisterToolRequest,
        lambda **fields: events.RegisterTool(Tool(**fields)),
    ),
    Write(
        "tools/{tool_id}/retire",
        "retire_tool",
        "Retire a tool",
        "RETIRE_TOOL. It can no longer be called. For operators.",
        Scope.SPACES_OPERATE,
        requests.RetireToolRequest,
        events.RetireTool,
    ),
    Write(
        "capabilities",
        "issue_capability",
        "Issue a capability token",
        "ISSUE_CAPABILITY. By an operator, which needs the scope `spaces:operate`, or by the holder of a wider token.",
        Scope.SPACES_PROPOSE,
        requests.IssueCapabilityRequest,
        lambda **fields: events.IssueCapability(Capability(**fields)),
        governs=_issues_as_operator,
    ),
    Write(
        "capabilities/{token_id}/revoke",
        "revoke_capability",
        "Revoke a capability token",
        "REVOKE_CAPABILITY. The token, and every token issued under it, stops working. By its holder, by the holder of"
        " the one above it, or by an operator, which needs the scope `spaces:operate`.",
        Scope.SPACES_PROPOSE,
        requests.ReasonRequest,
        events.RevokeCapability,
        governs=_is_operator,
    ),
    Write(
        "cases",
        "open_case",
        "Open a case",
        "OPEN_CASE. Joins proposals of the named agents to one belief session, which their gates then read. For"
        " operators, and for keys with the scope `spaces:cases`; never for agents. Repeating it gives the first answer"
        " again.",
        Scope.SPACES_CASES,
        requests.OpenCaseRequest,
        events.OpenCase,
    ),
    Write(
        "cases/{case_id}/close",
        "close_case",
        "Close a case",
        "CLOSE_CASE. Nothing is done under it any more, and what waits under it is withdrawn. For those who may open"
        " one.",
        Scope.SPACES_CASES,
        requests.ReasonRequest,
        events.CloseCase,
    ),
    Write(
        "memory",
        "put_memory",
        "Put a claim into memory",
        "PUT_MEMORY. An unconfirmed claim is a hypothesis or derived, and has an end or a review date.",
        Scope.SPACES_PROPOSE,
        requests.PutMemoryRequest,
        events.PutMemory,
    ),
    Write(
        "memory/{entry_id}/promote",
        "promote_memory",
        "Promote a claim",
        "PROMOTE_MEMORY. Only on new evidence.",
        Scope.SPACES_PROPOSE,
        requests.PromoteMemoryRequest,
        events.PromoteMemory,
    ),
    Write(
        "memory/{entry_id}/dispute",
        "dispute_memory",
        "Dispute a claim",
        "DISPUTE_MEMORY. Records whether other claims contradict it. A dispute is taken back by who raised it, or by an"
        " operator.",
        Scope.SPACES_PROPOSE,
        requests.DisputeMemoryRequest,
        events.DisputeMemory,
    ),
    Write(
        "policy/changes",
        "propose_policy_change",
        "Propose a change of policy",
        "PROPOSE_POLICY. Validated at once; applied when another operator authorises it, or at once where one operator"
        " is enough.",
        Scope.SPACES_OPERATE,
        requests.ProposePolicyRequest,
        events.ProposePolicy,
    ),
    Write(
        "policy/changes/{change_id}/authorise",
        "authorise_policy_change",
        "Authorise a change of policy",
        "SETTLE_POLICY. By an operator other than the proposer, and only on the policy that the change was"
        " proposed for.",
        Scope.SPACES_OPERATE,
        requests.ReasonRequest,
        partial(events.SettlePolicy, authorise=True),
    ),
    Write(
        "policy/changes/{change_id}/reject",
        "reject_policy_change",
        "Reject a change of policy",
        "SETTLE_POLICY. By any operator, including the proposer.",
        Scope.SPACES_OPERATE,
        requests.ReasonRequest,
        partial(events.SettlePolicy, authorise=False),
    ),
)
