"""The MCP server: its tools, resources and prompts, for a client on standard streams or over HTTP.

Each request is asked of the API as the caller that sent it, by the caller's own key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import unquote

import mcp_types
import msgspec
from mcp import MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from cmbs.client import AsyncClient
from cmbs.errors import BeliefServerError, CmbsError, RecordNotFound, SessionNotFound
from cmbs.mcp.asking import ACTOR, AUTHORIZATION, describe_failure
from cmbs.mcp.bodies import BoundedMessages
from cmbs.mcp.server.action_tools import ACTION_TOOLS
from cmbs.mcp.server.answers import Json, fit
from cmbs.mcp.server.belief_tools import BELIEF_TOOLS
from cmbs.mcp.server.prompts import INSTRUCTIONS, fill_prompt, list_prompts
from cmbs.mcp.server.table import ToolRow

Context = ServerRequestContext[Any, Any]

NAME = "cmbs"
TOOLS: dict[str, ToolRow] = {row.name: row for row in (*BELIEF_TOOLS, *ACTION_TOOLS)}
# The definitions, made once: the SDK asks for the schema of a tool at every call of it.
_DEFINITIONS: dict[str, Json] = {row.name: row.describe() for row in TOOLS.values()}
_LISTED = [mcp_types.Tool.model_validate(each, by_name=False) for each in _DEFINITIONS.values()]
_PROMPTS = [mcp_types.Prompt.model_validate(each, by_name=False) for each in list_prompts()]
_JSON = "application/json"
_MAX_RESOURCES = 50
_TEMPLATES = {
    "cmbs://sessions/{session_id}": ("session", "A session as it is now: what may still be true."),
    "cmbs://sessions/{session_id}/proofs/elimination/{hypothesis_id}": (
        "proof",
        "The proof that a hypothesis was ruled out, which anyone can check without this server.",
    ),
    "cmbs://sessions/{session_id}/proofs/membership/{hypothesis_id}": (
        "membership proof",
        "The proof that a hypothesis still survives.",
    ),
    "cmbs://kits/{kit_id}": ("kit", "A kit as it was written: hypotheses, probes, and what responses rule out."),
}
_UNKNOWN_RESOURCE = -32002


class McpServer:
    """Tools, resources and prompts over an API. `identity` is who asks where a request does not say."""

    def __init__(self, api: AsyncClient, identity: dict[str, str] | None = None) -> None:
        self._api = api
        self._identity = dict(identity or {})

    def build(self) -> Server[Any]:
        """The server of the SDK."""
        return Server(
            NAME,
            version="1",
            title="cmbs: what may still be believed, and what may be done about it",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=_find_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )

    def _api_of(self, ctx: Context) -> AsyncClient:
        headers = {} if ctx.request is None else ctx.request.headers
        sent = {name: headers[name] for name in (AUTHORIZATION, ACTOR) if name in headers}
        return self._api.acting_as(sent or self._identity)

    # --- tools ---

    async def _list_tools(self, _: Context, __: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=_LISTED)

    async def _call_tool(self, ctx: Context, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        row = TOOLS.get(params.name)
        if row is None:
            known = ", ".join(f"`{name}`" for name in TOOLS)
            return _tell_error(f"there is no tool `{params.name}`; there are {known}", {})
        try:
            args = msgspec.convert(params.arguments or {}, row.args)
            answer = fit(msgspec.to_builtins(await row.run(self._api_of(ctx), args)))
        except msgspec.ValidationError as exc:
            return _tell_error(f"`{row.name}`: {exc}; nothing was changed", {"accepted": _find_schema(row.name)})
        except CmbsError as exc:
            details = {"code": exc.code, **exc.details} if isinstance(exc, BeliefServerError) else {}
            return _tell_error(describe_failure(exc), details)
        text = msgspec.json.encode(answer).decode()
        content = mcp_types.TextContent(type="text", text=text)
        return mcp_types.CallToolResult(content=[content], structured_content=answer)

    # --- resources ---

    async def _list_resources(self, ctx: Context, _: Any) -> mcp_types.ListResourcesResult:
        api = self._api_of(ctx)
        with _telling_failures():
            kits = (await api.list_kits(limit=_MAX_RESOURCES)).kits
        listed = [
            mcp_types.Resource(
                uri=f"cmbs://kits/{each.kit_id}", name=each.kit_id, title=each.title or None, mime_type=_JSON
            )
            for each in kits
        ]
        index = mcp_types.Resource(uri="cmbs://kits", name="kits", title="The kits on record", mime_type=_JSON)
        return mcp_types.ListResourcesResult(resources=[index, *listed])

    async def _list_templates(self, _: Context, __: Any) -> mcp_types.ListResourceTemplatesResult:
        templates = [
            mcp_types.ResourceTemplate(uri_template=uri, name=name, description=text, mime_type=_JSON)
            for uri, (name, text) in _TEMPLATES.items()
        ]
        return mcp_types.ListResourceTemplatesResult(resource_templates=templates)

    async def _read_resource(
        self, ctx: Context, params: mcp_types.ReadResourceRequestParams
    ) -> mcp_types.ReadResourceResult:
        api, uri = self._api_of(ctx), str(params.uri)
        with _telling_failures():
            content = await _read(api, uri)
        text = mcp_types.TextResourceContents(uri=uri, mime_type=_JSON, text=msgspec.json.encode(content).decode())
        return mcp_types.ReadResourceResult(contents=[text])

    # --- prompts ---

    async def _list_prompts(self, _: Context, __: Any) -> mcp_types.ListPromptsResult:
        return mcp_types.ListPromptsResult(prompts=_PROMPTS)

    async def _get_prompt(self, _: Context, params: mcp_types.GetPromptRequestParams) -> mcp_types.GetPromptResult:
        filled = fill_prompt(params.name, params.arguments or {})
        if filled is None:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"there is no prompt `{params.name}`")
        return mcp_types.GetPromptResult.model_validate(filled, by_name=False)


async def serve_stdio(api: AsyncClient, identity: dict[str, str]) -> None:
    """Serve the client on standard streams until it goes."""
    server = McpServer(api, identity).build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


@asynccontextmanager
async def open_http(api: AsyncClient) -> AsyncIterator[Any]:
    """The handler of one endpoint over HTTP, as an ASGI application.

    Without sessions, in the older era too: then any worker answers any request. Who may ask is decided before.
    """
    app = McpServer(api).build().streamable_http_app(stateless_http=True, host="")
    async with app.router.lifespan_context(app):
        yield BoundedMessages(app)


@contextmanager
def _telling_failures() -> Iterator[None]:
    """MCPError for an error of the API, since no model sees what comes of a resource."""
    try:
        yield
    except CmbsError as exc:
        is_absent = isinstance(exc, SessionNotFound | RecordNotFound)
        code = _UNKNOWN_RESOURCE if is_absent else mcp_types.INVALID_REQUEST
        raise MCPError(code=code, message=describe_failure(exc)) from exc


async def _read(api: AsyncClient, uri: str) -> Json:
    scheme, _, rest = uri.partition("://")
    segments = [unquote(each) for each in rest.split("/")] if scheme == NAME else []
    match segments:
        case ["kits"]:
            return await api.request("list_kits", limit=_MAX_RESOURCES)
        case ["kits", kit_id]:
            return await api.request("get_kit", kit_id=kit_id)
        case ["sessions", session_id]:
            return await api.request("query_belief", session_id=session_id)
        case ["sessions", session_id, "proofs", "elimination", hypothesis_id]:
            return await api.prove_session_elimination(session_id, hypothesis_id)
        case ["sessions", session_id, "proofs", "membership", hypothesis_id]:
            return await api.prove_session_membership(session_id, hypothesis_id)
        case _:
            known = ", ".join(_TEMPLATES)
            message = f"NOT_FOUND: there is no resource `{uri}`; read one of {known}"
            raise MCPError(code=_UNKNOWN_RESOURCE, message=message)


def _tell_error(text: str, details: Json) -> mcp_types.CallToolResult:
    shown = fit({"error": text, "details": msgspec.to_builtins(details)})
    content = mcp_types.TextContent(type="text", text=shown["error"])
    return mcp_types.CallToolResult(content=[content], structured_content=shown, is_error=True)


def _find_schema(name: str) -> Json | None:
    definition = _DEFINITIONS.get(name)
    return None if definition is None else definition["inputSchema"]
