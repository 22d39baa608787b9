"""Tools of the action plane: propose, wait, begin, report, withdraw, read approvals; and who the caller is."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cmbs.calls.gated_call import CallRequest, GatedCall
from cmbs.calls.sentences import describe_joined, describe_status
from cmbs.client import AsyncClient
from cmbs.mcp.asking import MAX_WAIT_SECONDS
from cmbs.mcp.server.answers import MAX_TOKENS, Answer, Json, ask_for_page, name_call, name_page, point_to_all
from cmbs.mcp.server.arguments import (
    Args,
    Because,
    CallArguments,
    CallId,
    CaseId,
    NoArgs,
    Nonce,
    PageArgs,
    Seconds,
    SpaceId,
    Tokens,
    ToolId,
)
from cmbs.mcp.server.failures import speak
from cmbs.mcp.server.table import ToolRow
from cmbs.substrate.kernel.model import ReasonCode
from cmbs.substrate.kernel.words import CALLER, CallStatus

# Approvals of one call.
_SHOWN = 10


class ProposeArgs(Args):
    """A call of a tool of a space."""

    space_id: SpaceId
    tool_id: ToolId
    args: CallArguments = {}
    case_id: CaseId | None = None


class WaitArgs(Args):
    """A call, and how long to wait for it."""

    space_id: SpaceId
    call_id: CallId
    seconds: Seconds = MAX_WAIT_SECONDS
    max_tokens: Tokens = MAX_TOKENS


class BeginArgs(Args):
    """A call that you are to run yourself."""

    space_id: SpaceId
    call_id: CallId


class ReportArgs(Args):
    """The outcome of a call that you began and ran yourself."""

    space_id: SpaceId
    call_id: CallId
    nonce: Nonce
    succeeded: bool
    result: Annotated[Any, Meta(description="What came of it.")] = None
    error: str | None = None


class WithdrawArgs(Args):
    """A call that waits, and why it is taken back."""

    space_id: SpaceId
    call_id: CallId
    because: Because = ""


class ApprovalsArgs(PageArgs):
    """A space, and which of its requests for approval to list."""

    space_id: SpaceId
    pending: Annotated[bool, Meta(description="Only those that wait.")] = True


class Action(Answer, kw_only=True):
    """A call: whether it is done, waits, runs, or is denied; and what to do next."""

    status: str
    reason_code: str
    message: str
    waits_for: Json | None = None
    result: Any = None


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
    """Make one call, or join the same one."""
    asked = CallRequest(
        tool_id=args.tool_id,
        args=args.args,
        case_id=args.case_id,
    )
    call = GatedCall(args.space_id, asked)
    await api.run(call.make())
    return _describe(call)


async def wait_for_action(api: AsyncClient, args: WaitArgs) -> Json:
    """Wait until nothing more is to be waited for, or the time is over."""
    call = await _find(api, args.space_id, args.call_id)
    await api.run(call.wait(args.seconds))
    return _describe(call)


async def begin_action(api: AsyncClient, args: BeginArgs) -> Json:
    """Claim a call that the agent runs itself; the secret of the claim is the agent's to keep."""
    call = await _find(api, args.space_id, args.call_id)
    await api.run(call.claim())
    return _describe(call)


async def report_action(api: AsyncClient, args: ReportArgs) -> Json:
    """Report what came of a call that the agent ran."""
    call = await _find(api, args.space_id, args.call_id, args.nonce)
    await api.run(call.report("succeeded" if args.succeeded else "failed", result=args.result, error=args.error))
    return _describe(call)


async def withdraw_action(api: AsyncClient, args: WithdrawArgs) -> Json:
    """Take back what waits."""
    call = await _find(api, args.space_id, args.call_id)
    await api.run(call.withdraw(args.because))
    return _describe(call)


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


async def _find(api: AsyncClient, space_id: str, call_id: str, nonce: str | None = None) -> GatedCall:
    call = GatedCall(space_id, nonce=nonce)
    await api.run(call.resume(call_id))
    return call


def _describe(call: GatedCall) -> Json:
    found = call.answer
    place = {"space_id": call.space_id, "call_id": found.call_id}
    waits_for = found.waits_for
    message = " ".join(filter(None, (describe_status(found, may_run=call.may_run), describe_joined(found))))
    answer: Json = {
        "status": found.status,
        "reason_code": found.reason_code,
        "message": speak(message) or f"{found.status}: {found.reason_code}",
        "waits_for": None if waits_for is None else msgspec.to_builtins(waits_for),
        "result": found.result,
        **_advise(call, place),
        "handles": {
            **place,
            **({"nonce": call.nonce} if call.may_run else {}),
            "approval_ids": list((waits_for and waits_for.approval_ids) or ())[:_SHOWN],
            "case_id": found.case_id,
        },
    }
    return point_to_all(answer, lambda size: name_call("wait_for_action", {**place, "seconds": 0, "max_tokens": size}))


def _advise(call: GatedCall, place: Json) -> Json:
    """`next`: the tool to call now; nothing where the message says it all."""
    if call.may_run:
        done = {**place, "nonce": call.nonce, "succeeded": True}
        return {"next": {"do": "run it now, once, and report what came of it", **name_call("report_action", done)}}
    if call.is_ready:
        return {"next": {"do": "begin it, and run it only if that says so", **name_call("begin_action", place)}}
    if call.waits or (call.answer.status is CallStatus.RUNNING and call.answer.executor != CALLER):
        do = "wait, or do something else meanwhile"
        return {"next": {"do": do, **name_call("wait_for_action", place)}}
    if call.answer.reason_code in (ReasonCode.UNKNOWN_TOOL, ReasonCode.TOOL_RETIRED, ReasonCode.ARGS_INVALID):
        return {"next": {"do": _CHOOSE, **name_call("find_tools", {"space_id": call.space_id})}}
    return {}


_CHOOSE = "use a tool of the space, with arguments of its schema"

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
        "Wait for a call that is not over, and get its result.",
        WaitArgs,
        Action,
        wait_for_action,
        reads=True,
    ),
    ToolRow(
        "begin_action",
        "Begin an action",
        "Claim a call that you run yourself. Run it only if the answer has a `nonce`.",
        BeginArgs,
        Action,
        begin_action,
        idempotent=False,
    ),
    ToolRow(
        "report_action",
        "Report an action",
        "Report the outcome of a call that you began and ran yourself. The first report counts.",
        ReportArgs,
        Action,
        report_action,
    ),
    ToolRow(
        "withdraw_action",
        "Withdraw an action",
        "Take back a call that waits.",
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
