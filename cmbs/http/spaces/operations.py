"""The operations on spaces: what the table of the API has of them."""

from __future__ import annotations

from enum import StrEnum

from cmbs.errors import ErrorCode
from cmbs.http.operation import CURSOR, LIMIT, SINCE, Operation, Parameter
from cmbs.http.spaces import requests, schemas
from cmbs.identity import Scope
from cmbs.substrate.kernel.state import ApprovalStatus, ExecutionStatus, ProposalStatus

_SPACES = "/v1/spaces"
_SPACE = "/v1/spaces/{space_id}"
_PAGE = (CURSOR, LIMIT)
_THERE = (
    ErrorCode.STORE_UNAVAILABLE,
    ErrorCode.SPACE_NOT_FOUND,
    ErrorCode.LEDGER_CORRUPT,
    ErrorCode.LIMIT_EXCEEDED,
)
_RECORD = (*_THERE, ErrorCode.RECORD_NOT_FOUND)
_WRITE = (*_THERE, ErrorCode.CONFLICT)
_WRITE_RECORD = (*_RECORD, ErrorCode.CONFLICT)
_SNAPSHOT = Parameter("at", "A `state_snapshot_id`, or a seq: the state right after it.", {"type": "string"}, "0")
_PREFIX = Parameter("prefix", "Only keys that begin with this.", {"type": "string"}, "fact.")


def _status(kind: type[StrEnum]) -> Parameter:
    known = [each.value for each in kind]
    return Parameter("status", "Only those that stand so.", {"type": "string", "enum": known}, known[0])


def _list(path: str, operation_id: str, what: str, response: type, status: type[StrEnum] | None = None) -> Operation:
    return Operation(
        "GET",
        f"{_SPACE}/{path}",
        operation_id,
        f"List {what}",
        "A page at a time.",
        response,
        query=_PAGE if status is None else (*_PAGE, _status(status)),
        errors=_THERE,
        scope=Scope.SPACES_READ,
    )


def _one(path: str, operation_id: str, what: str, response: type) -> Operation:
    return Operation(
        "GET",
        f"{_SPACE}/{path}",
        operation_id,
        f"One {what}",
        f"The {what} as it is now.",
        response,
        errors=_RECORD,
        scope=Scope.SPACES_READ,
    )


def _write(
    path: str,
    operation_id: str,
    summary: str,
    description: str,
    body: type,
    scope: Scope,
    response: type = schemas.StepResponse,
) -> Operation:
    optional = body in (requests.ReasonRequest, requests.ApproveRequest, requests.RetireToolRequest)
    return Operation(
        "POST",
        f"{_SPACE}/{path}",
        operation_id,
        summary,
        description,
        response,
        body,
        errors=_WRITE_RECORD if "{" in path else _WRITE,
        body_required=not optional,
        scope=scope,
    )


_ABOUT_SPACES = (
    Operation(
        "POST",
        _SPACES,
        "create_space",
        "Make a space",
        "CREATE_SPACE. Under the policy that it starts with: the one policy that needs no second operator. Without any,"
        " nothing is allowed in it. For operators.",
        schemas.SpaceResponse,
        requests.CreateSpaceRequest,
        201,
        errors=(
            ErrorCode.STORE_UNAVAILABLE,
            ErrorCode.CONFLICT,
            ErrorCode.LIMIT_EXCEEDED,
            ErrorCode.LEDGER_CORRUPT,
        ),
        scope=Scope.SPACES_OPERATE,
    ),
    Operation(
        "GET",
        _SPACES,
        "list_spaces",
        "List spaces",
        "Sorted by id.",
        schemas.SpacesPage,
        query=_PAGE,
        errors=(ErrorCode.STORE_UNAVAILABLE, ErrorCode.LIMIT_EXCEEDED),
        scope=Scope.SPACES_READ,
    ),
    Operation(
        "GET",
        _SPACE,
        "get_space",
        "A space as it is now",
        "Its mode, its policy, its newest snapshot, and how much there is of everything.",
        schemas.SpaceResponse,
        errors=_THERE,
        scope=Scope.SPACES_READ,
    ),
    _write(
        "mode",
        "set_space_mode",
        "Enforce, or observe",
        "SET_MODE. While a space observes, every decision is made and recorded, and nothing is blocked. For operators;"
        " from enforcing to observing it takes two, and the first one's wish is recorded.",
        requests.SetModeRequest,
        Scope.SPACES_OPERATE,
    ),
    Operation(
        "GET",
        f"{_SPACE}/state",
        "read_state",
        "The state, now or at any snapshot",
        "Sorted by key. Keys that the caller may not read are left out: for all but operators these are policy.*,"
        " constraint.* and what `policy.private` names.",
        schemas.StateResponse,
        query=(_SNAPSHOT, _PREFIX, *_PAGE),
        errors=(*_THERE, ErrorCode.EVENT_NOT_FOUND),
        scope=Scope.SPACES_READ,
    ),
    _list("deltas", "list_deltas", "commits, the oldest first", schemas.CommitsPage),
    _list("decisions", "list_decisions", "decisions, the oldest first", schemas.DecisionsPage),
    Operation(
        "GET",
        f"{_SPACE}/audit",
        "space_audit",
        "The entries of a space's stream, as they were hashed",
        "Each is the stored bytes, with `event_hash` put before the closing brace. For operators: nothing is left out.",
        schemas.SpaceAuditResponse,
        query=(SINCE, *_PAGE),
        errors=(*_THERE, ErrorCode.EVENT_NOT_FOUND),
        scope=Scope.SPACES_READ,
    ),
)
_ABOUT_PROPOSALS = (
    _write(
        "proposals",
        "propose",
        "Propose something",
        "PROPOSE. It is validated at once; what is allowed is begun and committed, what is not is blocked, asked about,"
        " parked or offered cheaper. The same proposal again gives the first outcome again; another one under its id is"
        " a conflict.",
        requests.ProposeRequest,
        Scope.SPACES_PROPOSE,
        schemas.ProposalResponse,
    ),
    Operation(
        "POST",
        f"{_SPACE}/explain",
        "explain_proposal",
        "What would be decided of a proposal",
        "Decides on the state and policy of this moment; tells why, and the smallest change of facts that would turn"
        " it. Records nothing.",
        schemas.ExplainResponse,
        requests.ProposeRequest,
        errors=_THERE,
        scope=Scope.SPACES_PROPOSE,
        recorded=False,
    ),
    _list("proposals", "list_proposals", "proposals, the oldest first", schemas.ProposalsPage, ProposalStatus),
    _one("proposals/{proposal_id}", "get_proposal", "proposal", schemas.ProposalResponse),
    Operation(
        "GET",
        f"{_SPACE}/proposals/{{proposal_id}}/explain",
        "explain_decision",
        "Why a proposal was decided as it was",
        "The newest decision on it, made again on the state of its own moment: which stage, which constraint, which"
        " predicate, what it found, and the smallest change of facts that would have turned it.",
        schemas.ExplainResponse,
        errors=(*_RECORD, ErrorCode.EVENT_NOT_FOUND),
        scope=Scope.SPACES_READ,
    ),
    _list("approvals", "list_approvals", "requests for approval", schemas.ApprovalsPage, ApprovalStatus),
    _one("approvals/{approval_id}", "get_approval", "request for approval", schemas.ApprovalItem),
    _write(
        "approvals/{approval_id}/approve",
        "approve",
        "Approve exactly what was asked",
        "APPROVE. Bound to the args, the constraints that asked, and the policy. The proposal is decided again, on the"
        " state of this moment. Nobody approves their own proposal.",
        requests.ApproveRequest,
        Scope.SPACES_APPROVE,
        schemas.SettledApproval,
    ),
    _write(
        "approvals/{approval_id}/reject",
        "reject",
        "Reject what was asked",
        "REJECT.",
        requests.ReasonRequest,
        Scope.SPACES_APPROVE,
        schemas.SettledApproval,
    ),
    _list("executions", "list_executions", "executions, the oldest first", schemas.ExecutionsPage, ExecutionStatus),
    _one("executions/{execution_id}", "get_execution", "execution", schemas.ExecutionResponse),
    _write(
        "executions/{execution_id}/outcome",
        "report_outcome",
        "Report what came of an execution",
        "RECORD_OUTCOME. By the agent for a `caller` tool, by the tool itself, or by an operator for an execution in"
        " doubt. The first report counts.",
        requests.OutcomeRequest,
        Scope.SPACES_PROPOSE,
        schemas.RecordedOutcome,
    ),
)
_ABOUT_TOOLS = (
    _list("tools", "list_tools", "tools", schemas.ToolsPage),
    _one("tools/{tool_id}", "get_tool", "tool", schemas.ToolResponse),
    _write(
        "tools",
        "register_tool",
        "Register a tool, or a new version of one",
        "REGISTER_TOOL. For operators.",
        requests.RegisterToolRequest,
        Scope.SPACES_OPERATE,
    ),
    _write(
        "tools/{tool_id}/retire",
        "retire_tool",
        "Retire a tool",
        "RETIRE_TOOL. It may no longer be called. For operators.",
        requests.RetireToolRequest,
        Scope.SPACES_OPERATE,
    ),
    _list("capabilities", "list_capabilities", "capability tokens", schemas.CapabilitiesPage),
    _one("capabilities/{token_id}", "get_capability", "capability token", schemas.CapabilityResponse),
    _write(
        "capabilities",
        "issue_capability",
        "Issue a capability token",
        "ISSUE_CAPABILITY. By an operator, or by the holder of a wider one.",
        requests.IssueCapabilityRequest,
        Scope.SPACES_PROPOSE,
    ),
    _write(
        "capabilities/{token_id}/revoke",
        "revoke_capability",
        "Revoke a capability token",
        "REVOKE_CAPABILITY. The token, and every one issued under it, is no longer good.",
        requests.ReasonRequest,
        Scope.SPACES_PROPOSE,
    ),
)
_ABOUT_MEMORY = (
    _list("memory", "list_memory", "what is remembered, the oldest first", schemas.MemoryPage),
    _one("memory/{entry_id}", "get_memory", "memory entry", schemas.MemoryResponse),
    _write(
        "memory",
        "put_memory",
        "Remember a claim",
        "PUT_MEMORY. An unconfirmed claim is a hypothesis or derived, with an end or a review date.",
        requests.PutMemoryRequest,
        Scope.SPACES_PROPOSE,
    ),
    _write(
        "memory/{entry_id}/promote",
        "promote_memory",
        "Promote a claim",
        "PROMOTE_MEMORY. Only on evidence that was not there before.",
        requests.PromoteMemoryRequest,
        Scope.SPACES_PROPOSE,
    ),
    _write(
        "memory/{entry_id}/dispute",
        "dispute_memory",
        "Dispute a claim",
        "DISPUTE_MEMORY. Other claims speak against it, or no longer do.",
        requests.DisputeMemoryRequest,
        Scope.SPACES_PROPOSE,
    ),
)
_ABOUT_POLICY = (
    _list("policy", "read_policy", "the policy, by key; for operators", schemas.PolicyPage),
    _list("policy/changes", "list_policy_changes", "changes of policy; for operators", schemas.PolicyChangesPage),
    _one(
        "policy/changes/{change_id}",
        "get_policy_change",
        "change of policy, for operators",
        schemas.PolicyChangeResponse,
    ),
    _write(
        "policy/changes",
        "propose_policy_change",
        "Propose a change of policy",
        "PROPOSE_POLICY. Validated whole at once; applied when another operator authorises it.",
        requests.ProposePolicyRequest,
        Scope.SPACES_OPERATE,
    ),
    _write(
        "policy/changes/{change_id}/authorise",
        "authorise_policy_change",
        "Authorise a change of policy",
        "SETTLE_POLICY. Never by whoever proposed it, and only on the policy that it was proposed for.",
        requests.ReasonRequest,
        Scope.SPACES_OPERATE,
    ),
    _write(
        "policy/changes/{change_id}/reject",
        "reject_policy_change",
        "Turn a change of policy down",
        "SETTLE_POLICY. By any operator, whoever proposed it included.",
        requests.ReasonRequest,
        Scope.SPACES_OPERATE,
    ),
)
SPACE_OPERATIONS: tuple[Operation, ...] = (
    *_ABOUT_SPACES,
    *_ABOUT_PROPOSALS,
    *_ABOUT_TOOLS,
    *_ABOUT_MEMORY,
    *_ABOUT_POLICY,
)
