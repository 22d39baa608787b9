"""Completion of the arguments of prompts and of URIs: ids of what there is, by what was typed of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import mcp_types
from mcp import MCPError

from cmbs.client import AsyncClient
from cmbs.mcp.server.answers import MAX_TOKENS, count_tokens
from cmbs.mcp.server.belief_tools import ListRuledOutArgs, list_ruled_out
from cmbs.mcp.server.prompts import PROMPTS
from cmbs.mcp.server.resources import TEMPLATES

# As MCP has it.
_MAX_VALUES = 100
_ELIMINATION = "cmbs://sessions/{session_id}/proofs/elimination/"

Known = dict[str, str]
Complete = Callable[[AsyncClient, str, Known], Awaitable[list[str]]]


async def complete(api: AsyncClient, params: mcp_types.CompleteRequestParams) -> mcp_types.Completion:
    """Ids with the text that was typed; none for an argument that is no id, or whose session or space is not known."""
    reference = params.ref
    is_prompt = isinstance(reference, mcp_types.PromptReference)
    name = reference.name if isinstance(reference, mcp_types.PromptReference) else reference.uri
    if name not in ({prompt.name for prompt in PROMPTS} if is_prompt else TEMPLATES):
        what = "prompt" if is_prompt else "resource template"
        raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"there is no {what} `{name[:256]}`")
    known = dict((params.context.arguments if params.context else None) or {})
    argument = params.argument.name
    find = (
        _list_ruled_out if argument == "hypothesis_id" and name.startswith(_ELIMINATION) else _COMPLETIONS.get(argument)
    )
    found = [] if find is None else await find(api, params.argument.value, known)
    values = found[:_MAX_VALUES]
    while count_tokens(values) > MAX_TOKENS:
        values = values[: len(values) // 2]
    return mcp_types.Completion(values=values, has_more=len(found) > len(values))


async def _find_nothing(_: AsyncClient, __: str, ___: Known) -> list[str]:
    return []


async def _list_sessions(api: AsyncClient, typed: str, _: Known) -> list[str]:
    page = await api.list_sessions(order="newest", text=typed or None, limit=_MAX_VALUES + 1)
    return [each.session_id for each in page.sessions]


async def _list_kits(api: AsyncClient, typed: str, _: Known) -> list[str]:
    return [each.kit_id async for each in api.each(api.list_kits) if _matches(typed, each.kit_id)]


async def _list_spaces(api: AsyncClient, typed: str, _: Known) -> list[str]:
    return [each.space_id async for each in api.each(api.list_spaces) if _matches(typed, each.space_id)]


async def _list_tools(api: AsyncClient, typed: str, known: Known) -> list[str]:
    if "space_id" not in known:
        return []
    tools = api.each(api.list_tools, known["space_id"])
    return [each.tool_id async for each in tools if not each.retired and _matches(typed, each.tool_id)]


async def _list_probes(api: AsyncClient, typed: str, known: Known) -> list[str]:
    if "session_id" not in known:
        return []
    return [
        each.probe_id async for each in api.each(api.list_probes, known["session_id"]) if _matches(typed, each.probe_id)
    ]


async def _list_survivors(api: AsyncClient, typed: str, known: Known) -> list[str]:
    if "session_id" not in known:
        return []
    page = await api.list_survivors(known["session_id"], text=typed or None, limit=_MAX_VALUES + 1)
    return page.survivors


async def _list_ruled_out(api: AsyncClient, typed: str, known: Known) -> list[str]:
    if "session_id" not in known:
        return []
    args = ListRuledOutArgs(known["session_id"], text=typed[:_MAX_VALUES] or None, limit=_MAX_VALUES + 1)
    return [each["hypothesis_id"] for each in (await list_ruled_out(api, args))["ruled_out"]]


def _matches(typed: str, found: str) -> bool:
    return typed.casefold() in found.casefold()


_COMPLETIONS: dict[str, Complete] = {
    "session_id": _list_sessions,
    "kit_id": _list_kits,
    "space_id": _list_spaces,
    "tool_id": _list_tools,
    "probe_id": _list_probes,
    "hypothesis_id": _list_survivors,
}
