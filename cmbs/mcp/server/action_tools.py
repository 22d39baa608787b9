"""Tools of the action plane: propose, wait, report, withdraw, read approvals; and who the caller is."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cmbs.api.spaces import ProposalResponse
from cmbs.client import AsyncClient
from cmbs.errors import Conflict
from cmbs.mcp.asking import MAX_WAIT_SECONDS
from cmbs.mcp.server.answers import Json
from cmbs.mcp.server.belief_tools import Answer, Limit, Space
from cmbs.mcp.server.table import ToolRow
from cmbs.system import RandomIds, SystemClock

_CLOCK, _IDS = SystemClock(), RandomIds()
ProposalId = Annotated[str, Meta(description="As `propose_action` gave it.", min_length=1)]


class ProposeArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A call of a tool of a space."""

    space_id: Space
    tool_id: Annotated[str, Meta(description="The tool to be called.", min_length=1)]
    args: Annotated[dict[str, Any], Meta(description="Its arguments.")] = {}
    case_id: Annotated[str | None, Meta(description="The case that the action belongs to.")] = None
    capability_token_id: Annotated[str | None, Meta(description="Your token; by default one that covers it.")] = None
    proposal_id: Annotated[str | None, Meta(description="The same again gives the first answer.")] = None


class WaitArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A proposal, and how long to wait for it."""

    space_id: Space
    proposal_id: ProposalId
    seconds: Annotated[int, Meta(ge=0, le=MAX_WAIT_SECONDS)] = MAX_WAIT_SECONDS


class ReportArgs(msgspec.Struct, forbid_unknown_fields=True):
    """The outcome of a call that you were to run yourself."""

    space_id: Space
    execution_id: Annotated[str, Meta(min_length=1)]
    succeeded: bool
    result: Annotated[Any, Meta(description="What came of it.")] = None
    error: str | None = None


class WithdrawArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A proposal that waits, and why it is taken back."""

    space_id: Space
    proposal_id: ProposalId
    reason: str = ""


class ApprovalsArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A space, and how many of its requests for approval to list."""

    space_id: Space
    pending: Annotated[bool, Meta(description="Only those that wait.")] = True
    limit: Limit = 10


class NoArgs(msgspec.Struct):
    """Nothing needs to be said."""


class Action(Answer, kw_only=True):
    """A proposal: whether it is allowed, waits, runs, or is done; and what to do next."""

    status: Annotated[str, Meta(description="denied, asked, parked, running, committed, failed, …")]
    reason_code: str
    why: Annotated[list[str], Meta(description="Why it was not let through, and what to do next.")] = []
    waits_for: list[str] = []
    executions: Annotated[list[dict[str, Any]], Meta(description="What ran, and what came of it.")] = []
    next: str = ""


class Approvals(Answer, kw_only=True):
    """Requests for approval. An agent cannot approve: operators do, where they sign in."""

    approvals: list[dict[str, Any]]


class WhoAmI(Answer, kw_only=True):
    """Who the server takes you for."""

    kind: str
    id: str
    authenticated: bool
    roles: list[str] = []
    scopes: list[str] = []


async def propose_action(api: AsyncClient, args: ProposeArgs) -> Json:
    """Propose one call on the newest state."""
    agent_id = (await api.whoami()).id
    token_id = args.capability_token_id or await _find_token(api, args.space_id, agent_id, args.tool_id)
    proposal_id = args.proposal_id or f"mcp-{_IDS.new_id()}"
    space = await api.request("get_space", fields=["state_snapshot_id"], space_id=args.space_id)
    provenance = {"source": agent_id, "timestamp": _CLOCK.now(), "permissions": [token_id] if token_id else []}
    call = {
        "type": "tool_call",
        "tool_id": args.tool_id,
        "args": args.args,
        "capability_token_id": token_id,
        "idempotency_key": proposal_id,
    }
    try:
        proposal = await api.propose(
            args.space_id, proposal_id, space["state_snapshot_id"], provenance, [call], case_id=args.case_id
        )
    except Conflict:
        if args.proposal_id is None:
            raise
        proposal = await api.get_proposal(args.space_id, proposal_id)
    return await _describe(api, args.space_id, proposal)


async def _find_token(api: AsyncClient, space_id: str, agent_id: str, tool_id: str) -> str | None:
    async for token in api.each(api.list_capabilities, space_id):
        if token.agent_id == agent_id and tool_id in token.tool_ids and not token.revoked:
            return token.token_id
    return None


async def wait_for_action(api: AsyncClient, args: WaitArgs) -> Json:
    """Wait until nothing more is to be waited for, or the time is over."""
    proposal = await api.get_proposal(args.space_id, args.proposal_id, wait=args.seconds or None)
    return await _describe(api, args.space_id, proposal)


async def report_action(api: AsyncClient, args: ReportArgs) -> Json:
    """Report what came of a call of a `caller` tool."""
    status = "succeeded" if args.succeeded else "failed"
    recorded = await api.report_outcome(args.space_id, args.execution_id, status, result=args.result, error=args.error)
    proposal = await api.get_proposal(args.space_id, recorded.execution.proposal_id)
    return await _describe(api, args.space_id, proposal)


async def withdraw_action(api: AsyncClient, args: WithdrawArgs) -> Json:
    """Take back what waits."""
    withdrawn = await api.withdraw_proposal(args.space_id, args.proposal_id, reason=args.reason)
    return await _describe(api, args.space_id, withdrawn.proposal)


async def read_approvals(api: AsyncClient, args: ApprovalsArgs) -> Json:
    """Requests for approval, the oldest first."""
    status = "pending" if args.pending else None
    page = await api.request("list_approvals", space_id=args.space_id, status=status, limit=args.limit)
    return {"approvals": page["approvals"], "handles": {"space_id": args.space_id}}


async def tell_identity(api: AsyncClient, _: NoArgs) -> Json:
    """Who asks."""
    me = await api.whoami()
    return {**{name: getattr(me, name) for name in ("kind", "id", "authenticated", "roles", "scopes")}, "handles": {}}


async def _describe(api: AsyncClient, space_id: str, proposal: ProposalResponse) -> Json:
    runs = [*proposal.execution_ids, *proposal.answered_by.values()]
    executions = [await api.get_execution(space_id, each) for each in runs[:10]]
    kept = ("execution_id", "tool_id", "status", "result", "error", "deadline")
    return {
        "status": proposal.status,
        "reason_code": proposal.decision.reason_code,
        "why": [each.sentence for each in proposal.refusals or ()],
        "waits_for": proposal.waits_for,
        "executions": [{name: getattr(each, name) for name in kept} for each in executions],
        "next": _NEXT.get(proposal.status, ""),
        "handles": {
            "space_id": space_id,
            "proposal_id": proposal.proposal_id,
            "approval_ids": proposal.approval_ids,
            "execution_ids": proposal.execution_ids,
            "case_id": proposal.case_id,
        },
    }


_NEXT = {
    "asked": "an operator has to approve it; call `wait_for_action`, or do something else meanwhile",
    "parked": "it runs by itself when what it waits for has changed; call `wait_for_action`",
    "running": "call `wait_for_action`; if the tool is one that you run yourself, run it and call `report_action`",
}

ACTION_TOOLS = (
    ToolRow(
        "propose_action",
        "Propose an action",
        "Ask for a tool call in a space. It runs only where the policy allows it; where it is not allowed, the answer "
        "says why and what to do next.",
        ProposeArgs,
        Action,
        propose_action,
        idempotent=False,
    ),
    ToolRow(
        "wait_for_action",
        "Wait for an action",
        "Wait for a proposal that needs an approval, is parked or runs, and get its result.",
        WaitArgs,
        Action,
        wait_for_action,
        reads=True,
    ),
    ToolRow(
        "report_action",
        "Report an action",
        "Report the outcome of a call of a `caller` tool, which you ran yourself. The first report counts.",
        ReportArgs,
        Action,
        report_action,
    ),
    ToolRow(
        "withdraw_action",
        "Withdraw an action",
        "Take back a proposal that is parked or waits for approval.",
        WithdrawArgs,
        Action,
        withdraw_action,
    ),
    ToolRow(
        "read_approvals",
        "Read approvals",
        "Which actions wait for an operator. Approval is given where operators sign in, never here.",
        ApprovalsArgs,
        Approvals,
        read_approvals,
        reads=True,
    ),
    ToolRow(
        "whoami",
        "Who am I",
        "Who the server takes you for, and what your key is good for.",
        NoArgs,
        WhoAmI,
        tell_identity,
        reads=True,
    ),
)
