"""The resources: sessions, probes, proofs, kits and tools, by their URIs; none is longer than a context can take."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import mcp_types
import msgspec
from mcp import MCPError

from cmbs.client import AsyncClient
from cmbs.mcp.server.answers import MAX_TOKENS, Json, ask_for_page, fit, outline, point_to_all
from cmbs.mcp.server.arguments import PageArgs, Text
from cmbs.mcp.server.belief_tools import ReadBeliefArgs, read_belief
from cmbs.mcp.server.finding_tools import FindKitsArgs, find_kits

SCHEME = "cmbs"
UNKNOWN_RESOURCE = -32002
MIME_TYPE = "application/json"
_LISTED = 50
_KITS = f"{SCHEME}://kits"

TEMPLATES = {
    "cmbs://sessions/{session_id}{?text,limit,cursor,max_tokens}": (
        "session",
        "A session as it is now: what may still be true, in pages.",
    ),
    "cmbs://sessions/{session_id}/probes/{probe_id}{?max_tokens}": (
        "probe",
        "A probe that can still rule something out.",
    ),
    "cmbs://sessions/{session_id}/proofs/elimination/{hypothesis_id}{?max_tokens}": (
        "proof",
        "The proof that a hypothesis was ruled out, which anyone can check without this server.",
    ),
    "cmbs://sessions/{session_id}/proofs/membership/{hypothesis_id}{?max_tokens}": (
        "membership proof",
        "The proof that a hypothesis still survives.",
    ),
    "cmbs://kits{?limit,cursor}": ("kits", "The kits on record."),
    "cmbs://kits/{kit_id}{?max_tokens}": (
        "kit",
        "A kit as it was written: hypotheses, probes, and what responses rule out.",
    ),
    "cmbs://spaces/{space_id}/tools/{tool_id}{?max_tokens}": ("tool", "A tool of a space, as it was registered."),
}


class ResourceQuery(PageArgs, kw_only=True):
    """What may follow the `?` of a URI."""

    text: Text | None = None


def find_session_of(uri: str) -> str | None:
    """The session that a URI is the resource of; None for any other."""
    match _split(uri)[0]:
        case ["sessions", session_id] if session_id:
            return session_id
        case _:
            return None


async def list_resources(api: AsyncClient, cursor: str | None) -> tuple[list[Json], str | None]:
    """The kits on record as resources, a page at a time, and the cursor of the next page."""

    async def ask(limit: int) -> Json:
        return await api.request("list_kits", limit=limit, cursor=cursor)

    page = await ask_for_page(ask, _LISTED, MAX_TOKENS)
    listed: list[Json] = [{"uri": _KITS, "name": "kits", "title": "The kits on record", "mimeType": MIME_TYPE}]
    for each in page["kits"]:
        title = {"title": each["title"]} if each["title"] else {}
        uri = f"{_KITS}/{quote(each['kit_id'], safe='')}"
        listed.append({"uri": uri, "name": each["kit_id"], "mimeType": MIME_TYPE, **title})
    return listed[cursor is not None :], page["next_cursor"]


async def read_resource(api: AsyncClient, uri: str) -> Json:
    """What a resource holds; what is left out of it says so, with the URI that has it."""
    segments, query = _split(uri)
    max_tokens = query.max_tokens

    def ask_for_all(size: int) -> Json:
        return {"uri": _vary(uri, {"max_tokens": size})}

    match segments:
        case ["kits"]:
            kits = await find_kits(api, FindKitsArgs(limit=query.limit, cursor=query.cursor))
            return fit(point_to_all(_point_to_page(uri, kits), ask_for_all, max_tokens), max_tokens)
        case ["kits", kit_id]:
            return outline(await api.request("get_kit", kit_id=kit_id), max_tokens, ask_for_all)
        case ["sessions", session_id]:
            args = ReadBeliefArgs(session_id, query.text, limit=query.limit, cursor=query.cursor, max_tokens=max_tokens)
            page = _point_to_page(uri, await read_belief(api, args))
            return fit(point_to_all(page, ask_for_all, max_tokens), max_tokens)
        case ["sessions", session_id, "probes", probe_id]:
            return outline(await _find_probe(api, session_id, probe_id), max_tokens, ask_for_all)
        case ["sessions", session_id, "proofs", "elimination", hypothesis_id]:
            return outline(await api.prove_session_elimination(session_id, hypothesis_id), max_tokens, ask_for_all)
        case ["sessions", session_id, "proofs", "membership", hypothesis_id]:
            return outline(await api.prove_session_membership(session_id, hypothesis_id), max_tokens, ask_for_all)
        case ["spaces", space_id, "tools", tool_id]:
            return outline(await api.request("get_tool", space_id=space_id, tool_id=tool_id), max_tokens, ask_for_all)
        case _:
            raise _refuse_uri(uri)


async def _find_probe(api: AsyncClient, session_id: str, probe_id: str) -> Json:
    async for probe in api.each(api.list_probes, session_id):
        if probe.probe_id == probe_id:
            found: Json = msgspec.to_builtins(probe)
            return found
    message = f"NOT_FOUND: no probe `{probe_id[:256]}` can still rule something out; call `next_probes`"
    raise MCPError(code=UNKNOWN_RESOURCE, message=message)


def _split(uri: str) -> tuple[list[str], ResourceQuery]:
    """The segments of a URI, and what it asks for; MCPError where that makes no sense."""
    scheme, _, rest = uri.partition("://")
    path, _, query = rest.partition("?")
    segments = [unquote(each) for each in path.split("/")] if scheme == SCHEME else []
    try:
        return segments, msgspec.convert(dict(parse_qsl(query)), ResourceQuery, strict=False)
    except msgspec.ValidationError as exc:
        raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"INVALID_REQUEST: `{uri[:256]}`: {exc}") from exc


def _point_to_page(uri: str, answer: Json) -> Json:
    """The answer of a tool as a resource: what is left out is named by its URI, and not by a call."""
    if "more" not in answer:
        return answer
    return {**answer, "more": {"uri": _vary(uri, {"cursor": answer["more"]["arguments"]["cursor"]})}}


def _vary(uri: str, changes: dict[str, Any]) -> str:
    path, _, query = uri.partition("?")
    return f"{path}?{urlencode({**dict(parse_qsl(query)), **changes})}"


def _refuse_uri(uri: str) -> MCPError:
    known = ", ".join(TEMPLATES)
    return MCPError(
        code=UNKNOWN_RESOURCE, message=f"NOT_FOUND: there is no resource `{uri[:256]}`; read one of {known}"
    )
