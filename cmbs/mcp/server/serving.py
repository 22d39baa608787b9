"""The MCP server: its tools, resources and prompts, for a client on standard streams or over HTTP.

Each request is asked of the API as the caller that sent it, by the caller's own key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import mcp_types
import msgspec
from mcp import MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from cmbs.client import AsyncClient
from cmbs.errors import CmbsError, RecordNotFound, SessionNotFound, SpaceNotFound
from cmbs.mcp.asking import ACTOR, AUTHORIZATION
from cmbs.mcp.bodies import BoundedMessages
from cmbs.mcp.server.action_tools import ACTION_TOOLS
from cmbs.mcp.server.answers import MAX_TOKENS, Json, fit, name_call, point_to_all
from cmbs.mcp.server.belief_tools import BELIEF_TOOLS
from cmbs.mcp.server.completing import complete
from cmbs.mcp.server.failures import Failed, describe_failure
from cmbs.mcp.server.finding_tools import FINDING_TOOLS
from cmbs.mcp.server.prompts import INSTRUCTIONS, fill_prompt, list_prompts
from cmbs.mcp.server.reporting import DEFAULT_LEVEL, Level, report
from cmbs.mcp.server.resources import MIME_TYPE, TEMPLATES, UNKNOWN_RESOURCE, list_resources, read_resource
from cmbs.mcp.server.table import ToolRow
from cmbs.mcp.server.watching import Connection, Room, keep_connection, listen, subscribe, unsubscribe

Context = ServerRequestContext[Any, Any]

NAME = "cmbs"
TOOLS: dict[str, ToolRow] = {row.name: row for row in (*FINDING_TOOLS, *BELIEF_TOOLS, *ACTION_TOOLS)}
# The definitions, made once: the SDK asks for the schema of a tool at every call of it.
_DEFINITIONS: dict[str, Json] = {row.name: row.describe() for row in TOOLS.values()}
_LISTED = [mcp_types.Tool.model_validate(each, by_name=False) for each in _DEFINITIONS.values()]
_PROMPTS = [mcp_types.Prompt.model_validate(each, by_name=False) for each in list_prompts()]
_ARGUMENTS = {name: set(each["inputSchema"]["properties"]) for name, each in _DEFINITIONS.items()}
# What is done instead where a resource cannot be read.
_READING = "find_sessions"


class McpServer:
    """Tools, resources and prompts over an API. `identity` is who asks where a request does not say.

    `has_connections`: each client has a connection of its own for as long as it stays, as on standard streams.
    `is_stopping`: whether what goes on without end has to end now.
    """

    def __init__(
        self,
        api: AsyncClient,
        identity: dict[str, str] | None = None,
        *,
        has_connections: bool = True,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._api = api
        self._identity = dict(identity or {})
        self._has_connections = has_connections
        self._is_stopping = is_stopping
        self._room = Room()

    def build(self) -> Server[Any]:
        """The server of the SDK. What a connection has to remember is offered where there are connections."""
        server: Server[Any] = Server(
            NAME,
            version="1",
            title="cmbs: what may still be believed, and what may be done about it",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=_find_schema,
            lifespan=keep_connection,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe if self._has_connections else None,
            on_unsubscribe_resource=self._unsubscribe if self._has_connections else None,
            on_subscriptions_listen=self._listen,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        # Not by the constructor, which warns of it: clients up to 2025-11-25 have nothing else.
        server.add_request_handler("logging/setLevel", mcp_types.SetLevelRequestParams, self._set_level)
        return server

    def _api_of(self, ctx: Context) -> AsyncClient:
        headers = {} if ctx.request is None else ctx.request.headers
        sent = {name: headers[name] for name in (AUTHORIZATION, ACTOR) if name in headers}
        return self._api.acting_as(sent or self._identity)

    # --- tools ---

    async def _list_tools(self, _: Context, __: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=_LISTED)

    async def _call_tool(self, ctx: Context, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        row, given = TOOLS.get(params.name), params.arguments or {}
        if row is None:
            known = ", ".join(f"`{name}`" for name in TOOLS)
            text = f"INVALID_REQUEST: there is no tool `{params.name}`; there are {known}"
            return _tell_error(Failed(text, "INVALID_REQUEST", {}, name_call("whoami", {})))
        try:
            args = msgspec.convert(given, row.args)
            answer = _fit_answer(row, args, msgspec.to_builtins(await row.run(self._api_of(ctx), args)))
        except msgspec.ValidationError as exc:
            names = ", ".join(f"`{name}`" for name in _DEFINITIONS[row.name]["inputSchema"]["properties"])
            text = f"INVALID_REQUEST: {exc}; nothing was changed; call `{row.name}` again with its arguments, {names}"
            accepted = {"accepted": _DEFINITIONS[row.name]["inputSchema"]}
            return _tell_error(Failed(text, "INVALID_REQUEST", accepted, name_call(row.name, {})))
        except CmbsError as exc:
            failed = describe_failure(exc, row.name, given, _ARGUMENTS)
            await self._report(ctx, "warning", {"tool": row.name, "code": failed.code, "failure": str(exc)})
            return _tell_error(failed)
        level: Level = "warning" if "warning" in answer else "debug" if row.reads else "info"
        await self._report(ctx, level, {"tool": row.name, **_summarise(answer)})
        content = mcp_types.TextContent(type="text", text=msgspec.json.encode(answer).decode())
        return mcp_types.CallToolResult(content=[content], structured_content=answer)

    # --- resources ---

    async def _list_resources(
        self, ctx: Context, params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListResourcesResult:
        with _telling_failures():
            listed, cursor = await list_resources(self._api_of(ctx), None if params is None else params.cursor)
        resources = [mcp_types.Resource.model_validate(each, by_name=False) for each in listed]
        return mcp_types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def _list_templates(self, _: Context, __: Any) -> mcp_types.ListResourceTemplatesResult:
        templates = [
            mcp_types.ResourceTemplate(uri_template=uri, name=name, description=text, mime_type=MIME_TYPE)
            for uri, (name, text) in TEMPLATES.items()
        ]
        return mcp_types.ListResourceTemplatesResult(resource_templates=templates)

    async def _read_resource(
        self, ctx: Context, params: mcp_types.ReadResourceRequestParams
    ) -> mcp_types.ReadResourceResult:
        uri = str(params.uri)
        with _telling_failures():
            content = await read_resource(self._api_of(ctx), uri)
        text = mcp_types.TextResourceContents(uri=uri, mime_type=MIME_TYPE, text=msgspec.json.encode(content).decode())
        return mcp_types.ReadResourceResult(contents=[text])

    # --- subscriptions ---

    async def _listen(
        self, ctx: Context, params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        return await listen(self._api_of(ctx), ctx, params, self._room, self._is_stopping)

    async def _subscribe(self, ctx: Context, params: mcp_types.SubscribeRequestParams) -> mcp_types.EmptyResult:
        with _telling_failures():
            await subscribe(self._api_of(ctx), ctx, str(params.uri))
        return mcp_types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: mcp_types.UnsubscribeRequestParams) -> mcp_types.EmptyResult:
        unsubscribe(ctx, str(params.uri))
        return mcp_types.EmptyResult()

    # --- prompts ---

    async def _list_prompts(self, _: Context, __: Any) -> mcp_types.ListPromptsResult:
        return mcp_types.ListPromptsResult(prompts=_PROMPTS)

    async def _get_prompt(self, _: Context, params: mcp_types.GetPromptRequestParams) -> mcp_types.GetPromptResult:
        filled = fill_prompt(params.name, params.arguments or {})
        if filled is None:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"there is no prompt `{params.name[:256]}`")
        return mcp_types.GetPromptResult.model_validate(filled, by_name=False)

    async def _complete(self, ctx: Context, params: mcp_types.CompleteRequestParams) -> mcp_types.CompleteResult:
        with _telling_failures():
            return mcp_types.CompleteResult(completion=await complete(self._api_of(ctx), params))

    # --- log ---

    async def _set_level(self, ctx: Context, params: mcp_types.SetLevelRequestParams) -> mcp_types.EmptyResult:
        if not self._has_connections:
            message = f"a level needs a connection that is kept; over HTTP, messages from `{DEFAULT_LEVEL}` on are sent"
            raise MCPError(code=mcp_types.INVALID_REQUEST, message=message)
        connection: Connection = ctx.lifespan_context
        connection.log_level = params.level
        return mcp_types.EmptyResult()

    async def _report(self, ctx: Context, level: Level, data: Json) -> None:
        connection: Connection = ctx.lifespan_context
        threshold = connection.log_level if self._has_connections else DEFAULT_LEVEL
        await report(ctx, threshold, level, fit(data))


async def serve_stdio(api: AsyncClient, identity: dict[str, str]) -> None:
    """Serve the client on standard streams until it goes."""
    server = McpServer(api, identity).build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


@asynccontextmanager
async def open_http(api: AsyncClient, is_stopping: Callable[[], bool]) -> AsyncIterator[Any]:
    """The handler of one endpoint over HTTP, as an ASGI application.

    Without sessions, in the older era too: then any worker answers any request. Who may ask is decided before.
    """
    server = McpServer(api, has_connections=False, is_stopping=is_stopping)
    app = server.build().streamable_http_app(stateless_http=True, host="")
    async with app.router.lifespan_context(app):
        yield BoundedMessages(app)


@contextmanager
def _telling_failures() -> Iterator[None]:
    """MCPError for an error of the API, in the words of the tools: no model sees what comes of a resource."""
    try:
        yield
    except CmbsError as exc:
        is_absent = isinstance(exc, SessionNotFound | RecordNotFound | SpaceNotFound)
        code = UNKNOWN_RESOURCE if is_absent else mcp_types.INVALID_REQUEST
        failed = describe_failure(exc, _READING, {}, _ARGUMENTS)
        raise MCPError(code=code, message=failed.text, data={"next": failed.next}) from exc


def _fit_answer(row: ToolRow, args: Any, answer: Json) -> Json:
    """The answer, cut to what its caller has room for; where the caller can ask for more, it says how."""
    if "max_tokens" not in row.args.__struct_fields__:
        return fit(answer)

    def ask_for_all(size: int) -> Json:
        return name_call(row.name, {**msgspec.to_builtins(args), "max_tokens": size})

    return fit(point_to_all(answer, ask_for_all, args.max_tokens), args.max_tokens)


def _summarise(answer: Json) -> Json:
    """What the log says of an answer."""
    shown = ("warning", "n_ruled_out", "n_survivors", "accepted", "status", "handles")
    return {name: answer[name] for name in shown if name in answer}


def _tell_error(failed: Failed) -> mcp_types.CallToolResult:
    told = {"error": failed.text, "code": failed.code, "details": msgspec.to_builtins(failed.details)}
    shown = fit({**told, "next": failed.next}, MAX_TOKENS)
    content = mcp_types.TextContent(type="text", text=shown["error"])
    return mcp_types.CallToolResult(content=[content], structured_content=shown, is_error=True)


def _find_schema(name: str) -> Json | None:
    definition = _DEFINITIONS.get(name)
    return None if definition is None else definition["inputSchema"]
