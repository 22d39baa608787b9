"""Tools that find what there is to work with: sessions, kits, spaces, and the tools of a space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from cmbs.client import AsyncClient
from cmbs.errors import Forbidden
from cmbs.mcp.server.answers import MAX_TOKENS, Answer, Json, ask_for_page, name_call, name_page
from cmbs.mcp.server.arguments import CallArguments, CaseId, ListArgs, PageArgs, SpaceId, Text, ToolId
from cmbs.mcp.server.failures import speak
from cmbs.mcp.server.table import ToolRow
from cmbs.substrate.kernel.model import ReasonCode
from cmbs.system import SystemClock

Asks = Literal["no", "yes", "denied", "depends"]


class FindSessionsArgs(ListArgs, kw_only=True):
    """The newest sessions, by a text of their id or title."""

    text: Text | None = None


class FoundSessions(Answer, kw_only=True):
    """Sessions, the newest first."""

    sessions: list[Json]


class FindKitsArgs(ListArgs, kw_only=True):
    """Kits, by id."""


class FoundKits(Answer, kw_only=True):
    """Kits on record, by id."""

    kits: list[Json]


class FindSpacesArgs(ListArgs, kw_only=True):
    """Spaces, by id."""


class FoundSpaces(Answer, kw_only=True):
    """Spaces, by id."""

    spaces: list[Json]


class FindToolsArgs(PageArgs, kw_only=True):
    """The tools of a space, or one of them, with arguments to try."""

    space_id: SpaceId
    tool_id: ToolId | None = None
    args: CallArguments | None = None
    case_id: CaseId | None = None


class FoundTools(Answer, kw_only=True):
    """Tools by id. `asks`: whether an operator would have to approve a call now; if not `no`, `why` says more."""

    tools: list[Json]


_CLOCK = SystemClock()
_DRY_RUN = "dry-run"
_OF_SESSION = ("session_id", "title", "state", "n_survivors", "conclusion", "updated_ts", "active_obligations")
_OF_KIT = ("kit_id", "title", "version", "n_hypotheses", "n_probes")
_OF_TOOL = ("tool_id", "description", "kind", "writes", "args_schema")


async def find_sessions(api: AsyncClient, args: FindSessionsArgs) -> Json:
    """The newest sessions that the caller may read."""

    async def ask(limit: int) -> Json:
        page = await api.request("list_sessions", order="newest", text=args.text, cursor=args.cursor, limit=limit)
        sessions = [{**_pick(each, _OF_SESSION), "kit_id": each["kit"]} for each in page["sessions"]]
        return {"sessions": sessions, "handles": {}, **name_page("find_sessions", args, page["next_cursor"])}

    return await ask_for_page(ask, args.limit, MAX_TOKENS)


async def find_kits(api: AsyncClient, args: FindKitsArgs) -> Json:
    """The kits on record, each in its newest content."""

    async def ask(limit: int) -> Json:
        page = await api.request("list_kits", cursor=args.cursor, limit=limit)
        kits = [_pick(each, _OF_KIT) for each in page["kits"]]
        return {"kits": kits, "handles": {}, **name_page("find_kits", args, page["next_cursor"])}

    return await ask_for_page(ask, args.limit, MAX_TOKENS)


async def find_spaces(api: AsyncClient, args: FindSpacesArgs) -> Json:
    """The spaces that the caller may read."""

    async def ask(limit: int) -> Json:
        page = await api.request("list_spaces", cursor=args.cursor, limit=limit)
        spaces = [_pick(each, ("space_id",)) for each in page["spaces"]]
        return {"spaces": spaces, "handles": {}, **name_page("find_spaces", args, page["next_cursor"])}

    return await ask_for_page(ask, args.limit, MAX_TOKENS)


async def find_tools(api: AsyncClient, args: FindToolsArgs) -> Json:
    """The tools that are in use, with what would be decided of a call by the caller, now."""
    agent_id = (await api.whoami()).id
    tokens = await _list_tokens(api, args.space_id, agent_id)

    def call_of(tool_id: str) -> Json:
        return _build_call(agent_id, tool_id, args.args or {}, tokens.get(tool_id), _DRY_RUN)

    async def ask(limit: int) -> Json:
        if args.tool_id is not None:
            tool = await api.request("get_tool", space_id=args.space_id, tool_id=args.tool_id)
            page: Json = {"tools": [tool], "next_cursor": None}
        else:
            page = await api.request("list_tools", space_id=args.space_id, cursor=args.cursor, limit=limit)
        tools = [
            {**_pick(each, _OF_TOOL), **await _try_call(api, args, each["tool_id"], call_of)}
            for each in page["tools"]
            if not each["retired"]
        ]
        handles = {"space_id": args.space_id}
        return {"tools": tools, "handles": handles, **name_page("find_tools", args, page["next_cursor"])}

    return await ask_for_page(ask, args.limit, args.max_tokens)


async def _try_call(api: AsyncClient, args: FindToolsArgs, tool_id: str, call_of: Callable[[str], Json]) -> Json:
    """What a dry run of a call comes to: nothing of it is recorded."""
    space = await api.request("get_space", fields=["state_snapshot_id"], space_id=args.space_id)
    try:
        tried = await api.request(
            "explain_proposal",
            fields=["decision", "refusals"],
            space_id=args.space_id,
            proposal_id=_DRY_RUN,
            state_snapshot_id=space["state_snapshot_id"],
            case_id=args.case_id,
            **call_of(tool_id),
        )
    except Forbidden:
        return {"asks": "denied", "why": ["you may not propose actions in this space; call `whoami`"]}
    asks = _read_decision(tried["decision"], args)
    told: Json = {"asks": asks}
    if asks == "depends":
        told["next"] = name_call("find_tools", {"space_id": args.space_id, "tool_id": tool_id, "args": args.args or {}})
    if asks != "no":
        told["why"] = [
            speak(f"{each['message']}; {each['next']}") or each["message"] for each in tried.get("refusals") or ()
        ]
    return told


def _read_decision(decision: Json, args: FindToolsArgs) -> Asks:
    if decision["verdict"] == "allow" or decision.get("observed"):
        return "no"
    if decision.get("failure") == "ask":
        return "yes"
    reason = decision["reason_code"]
    depends_on_args = reason == ReasonCode.ARGS_INVALID and args.args is None
    depends_on_case = reason == ReasonCode.NO_CASE and args.case_id is None
    return "depends" if depends_on_args or depends_on_case else "denied"


def _pick(item: Json, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: item[name] for name in names}


def _build_call(agent_id: str, tool_id: str, args: Json, token_id: str | None, idempotency_key: str) -> Json:
    """Provenance and candidates of a proposal of one call."""
    return {
        "provenance": {
            "source": agent_id,
            "timestamp": _CLOCK.now(),
            "permissions": [] if token_id is None else [token_id],
        },
        "candidates": [
            {
                "type": "tool_call",
                "tool_id": tool_id,
                "args": args,
                "capability_token_id": token_id,
                "idempotency_key": idempotency_key,
            }
        ],
    }


async def _list_tokens(api: AsyncClient, space_id: str, agent_id: str) -> dict[str, str]:
    """A token of an agent for each tool that it has one for: the first that was not revoked."""
    found: dict[str, str] = {}
    async for token in api.each(api.list_capabilities, space_id):
        if token.agent_id == agent_id and not token.revoked:
            for tool_id in token.tool_ids:
                found.setdefault(tool_id, token.token_id)
    return found


FINDING_TOOLS = (
    ToolRow(
        "find_sessions",
        "Find sessions",
        "The newest investigations. Call this first if you do not know the session that you were working on.",
        FindSessionsArgs,
        FoundSessions,
        find_sessions,
        reads=True,
    ),
    ToolRow(
        "find_kits",
        "Find kits",
        "The kits on record: each knows the hypotheses of one kind of incident, and the probes that rule them out.",
        FindKitsArgs,
        FoundKits,
        find_kits,
        reads=True,
    ),
    ToolRow(
        "find_spaces",
        "Find spaces",
        "The spaces in which actions can be proposed.",
        FindSpacesArgs,
        FoundSpaces,
        find_spaces,
        reads=True,
    ),
    ToolRow(
        "find_tools",
        "Find tools",
        "The tools of a space: the schema of their arguments, and whether a call needs an operator's approval now "
        "(`asks`: no, yes, denied, or depends on `args` and case).",
        FindToolsArgs,
        FoundTools,
        find_tools,
        reads=True,
    ),
)
