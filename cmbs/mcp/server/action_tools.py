"""Tools of the action plane: propose, wait, report, withdraw, read approvals; and who the caller is."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from cmbs.api.spaces import ProposalResponse, ToolCallItem
from cmbs.client import AsyncClient
from cmbs.errors import Conflict
from cmbs.mcp.asking import MAX_WAIT_SECONDS
from cmbs.mcp.server.answers import MAX_TOKENS, Answer, Json, ask_for_page, name_call, name_page, point_to_all
from cmbs.mcp.server.arguments import (
    Args,
    Because,
    CallArguments,
    CaseId,
    ExecutionId,
    NoArgs,
    PageArgs,
    ProposalId,
    Seconds,
    SpaceId,
    Tokens,
    ToolId,
)
from cmbs.mcp.server.failures import speak
from cmbs.mcp.server.proposing import build_call, list_tokens
from cmbs.mcp.server.table import ToolRow
from cmbs.substrate.kernel.model import ReasonCode
from cmbs.system import RandomIds

_IDS = RandomIds()
# Executions and approvals of one proposal.
_SHOWN = 10


class ProposeArgs(Args):
    """A call of a tool of a space."""

    space_id: SpaceId
    tool_id: ToolId
    args: CallArguments = {}
    case_id: CaseId | None = None
    capability_token_id: Annotated[str | None, Meta(description="By default one of yours that covers it.")] = None
    proposal_id: ProposalId | None = None


class WaitArgs(Args):
    """A proposal, and how long to wait for it."""

    space_id: SpaceId
    proposal_id: ProposalId
    seconds: Seconds = MAX_WAIT_SECONDS
    max_tokens: Tokens = MAX_TOKENS


class ReportArgs(Args):
    """The outcome of a call that you were to run yourself."""

    space_id: SpaceId
    execution_id: ExecutionId
    succeeded: bool
    result: Annotated[Any, Meta(description="What came of it.")] = None
    error: str | None = None


class WithdrawArgs(Args):
    """A proposal that waits, and why it is taken back."""

    space_id: SpaceId
    proposal_id: ProposalId
    because: Because = ""


class ApprovalsArgs(PageArgs):
    """A space, and which of its requests for approval to list."""

    space_id: SpaceId
    pending: Annotated[bool, Meta(description="Only those that wait.")] = True


class Action(Answer, kw_only=True):
    """A proposal: whether it is allowed, waits, runs, or is done; and what to do next."""

    status: str
    reason_code: str
    why: list[str] = []
    waits_for: list[str] = []
    executions: list[Json] = []


class Approvals(Answer, kw_only=True):
    """Requests for approval. An agent cannot approve: operators do, where they sign in."""

    approvals: list[Json]


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
    token_id = args.capability_token_id or (await list_tokens(api, args.space_id, agent_id)).get(args.tool_id)
    proposal_id = args.proposal_id or f"mcp-{_IDS.new_id()}"
    space = await api.request("get_space", fields=["state_snapshot_id"], space_id=args.space_id)
    call = build_call(agent_id, args.tool_id, args.args, token_id, proposal_id)
    try:
        proposal = await api.propose(
            args.space_id, proposal_id, space["state_snapshot_id"], **call, case_id=args.case_id
        )
    except Conflict:
        if args.proposal_id is None:
            raise
        proposal = await api.get_proposal(args.space_id, proposal_id)
        case_id = None if args.case_id is None else (await api.describe_case(args.case_id)).session_id
        if not _is_repeat(args, agent_id, case_id, proposal):
            raise
    return await _describe(api, args.space_id, proposal)


def _is_repeat(args: ProposeArgs, agent_id: str, case_id: str | None, proposal: ProposalResponse) -> bool:
    """Whether a proposal is the one that is made again: by the same agent, of the same call, in the same case."""
    calls = [(each.tool_id, each.args) for each in proposal.candidates if isinstance(each, ToolCallItem)]
    same_place = (proposal.actor.id, proposal.case_id) == (agent_id, case_id)
    return same_place and len(proposal.candidates) == 1 and calls == [(args.tool_id, args.args)]


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
    withdrawn = await api.withdraw_proposal(args.space_id, args.proposal_id, reason=args.because)
    return await _describe(api, args.space_id, withdrawn.proposal)


async def read_approvals(api: AsyncClient, args: ApprovalsArgs) -> Json:
    """Requests for approval, the oldest first."""
    status = "pending" if args.pending else None

    async def ask(limit: int) -> Json:
        page = await api.request(
            "list_approvals", space_id=args.space_id, status=status, cursor=args.cursor, limit=limit
        )
        more = name_page("read_approvals", args, page["next_cursor"])
        return {"approvals": page["approvals"], "handles": {"space_id": args.space_id}, **more}

    return await ask_for_page(ask, args.limit, args.max_tokens)


async def tell_identity(api: AsyncClient, _: NoArgs) -> Json:
    """Who asks."""
    me = await api.whoami()
    return {**{name: getattr(me, name) for name in ("kind", "id", "authenticated", "roles", "scopes")}, "handles": {}}


async def _describe(api: AsyncClient, space_id: str, proposal: ProposalResponse) -> Json:
    runs = [*proposal.execution_ids, *proposal.answered_by.values()]
    executions = [await api.get_execution(space_id, each) for each in runs[:_SHOWN]]
    kept = ("execution_id", "tool_id", "status", "result", "error", "deadline")
    waiting = {"space_id": space_id, "proposal_id": proposal.proposal_id}
    reason, do = proposal.decision.reason_code, _NEXT.get(proposal.status)
    advised: Json = {}
    if do is not None:
        advised = {"next": {"do": do, **name_call("wait_for_action", waiting)}}
    elif reason in (ReasonCode.UNKNOWN_TOOL, ReasonCode.TOOL_RETIRED, ReasonCode.ARGS_INVALID):
        advised = {"next": {"do": _CHOOSE, **name_call("find_tools", {"space_id": space_id})}}
    answer: Json = {
        "status": proposal.status,
        "reason_code": reason,
        "why": [speak(each.sentence) or each.message for each in proposal.refusals or ()],
        "waits_for": proposal.waits_for,
        "executions": [{name: getattr(each, name) for name in kept} for each in executions],
        **advised,
        "handles": {
            **waiting,
            "approval_ids": proposal.approval_ids[:_SHOWN],
            "execution_ids": proposal.execution_ids[:_SHOWN],
            "case_id": proposal.case_id,
        },
    }
    return point_to_all(
        answer, lambda size: name_call("wait_for_action", {**waiting, "seconds": 0, "max_tokens": size})
    )


_CHOOSE = "use a tool of the space, with arguments of its schema"
# By the status of a proposal.
_NEXT = {
    "asked": "an operator has to approve it: wait, or do something else meanwhile",
    "parked": "it runs by itself when what it waits for has changed: wait",
    "running": "wait; if the tool is one that you run yourself, run it and call `report_action`",
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
