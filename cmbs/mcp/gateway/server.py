"""The MCP side of a gateway: one server for clients of both eras, whose lists are the pins and whose calls are gated.

Requests are answered in a middleware, before the SDK makes models of them: what it does not know would be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import anyio
import mcp_types
import msgspec
from mcp import MCPError
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from cmbs.client import AsyncClient
from cmbs.errors import CmbsError
from cmbs.mcp.asking import ACTOR, AUTHORIZATION, describe_failure, identify_caller, require_agent
from cmbs.mcp.gateway import answers
from cmbs.mcp.gateway.calls import Calls
from cmbs.mcp.gateway.connections import Connections, UpstreamBroke, UpstreamFailed, Wire
from cmbs.mcp.gateway.ledger import GatewayLedger, Pin
from cmbs.mcp.gateway.offers import Offers
from cmbs.mcp.gateway.open_call import CallRequest
from cmbs.mcp.gateway.pinning import GET_PROMPT, READ_RESOURCE, Pinning, list_all
from cmbs.mcp.gateway.resources import Owners

_log = logging.getLogger("cmbs.gateway")
Context = ServerRequestContext[Any, Any]

NAME = "cmbs-gateway"
# Under `_meta` of a request, or as a header: the case that the call belongs to.
CASE_META = "cmbs/case-id"
CASE_HEADER = "x-cmbs-case"
_MAX_CALLERS = 10_000
_CHANGE_SECONDS = 2.0
_OWN_META = frozenset(
    {
        CASE_META,
        "progressToken",
        mcp_types.PROTOCOL_VERSION_META_KEY,
        mcp_types.CLIENT_INFO_META_KEY,
        mcp_types.CLIENT_CAPABILITIES_META_KEY,
    }
)
_NOT_SENT = frozenset({"inputResponses", "requestState", "_meta", "name"})
_ELICITATION: TypeAdapter[Any] = TypeAdapter(mcp_types.ElicitRequestParams)
_UNKNOWN_RESOURCE = -32002


class GatewaySettings(msgspec.Struct, frozen=True):
    """How a gateway behaves. `agent` and `key` are those of a client on standard streams, or of one without headers."""

    agent: str = "agent"
    key: str | None = None
    case_id: str | None = None
    wait_seconds: float = 20.0
    timeout_ms: int = 60_000
    check_seconds: float = 60.0
    state_keys: tuple[str, ...] = ()
    # Where operators sign in to approve, if that is known.
    console: str | None = None


class Caller(NamedTuple):
    """Who makes a call, and how the API is asked on their behalf."""

    api: AsyncClient
    agent_id: str


class Gateway:
    """Everything behind one endpoint. `start` before the first request, `aclose` after the last."""

    def __init__(
        self, api: AsyncClient, ledger: GatewayLedger, connections: Connections, settings: GatewaySettings | None = None
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._connections = connections
        self._settings = settings or GatewaySettings()
        self.pinning = Pinning(ledger, connections, self._settings.timeout_ms)
        offers = Offers(ledger, self._settings.console)
        self._calls = Calls(ledger, connections, lambda: self.pinning.pins, self._settings.wait_seconds, offers)
        self._callers: dict[tuple[str, str], str] = {}
        self._owners = Owners()
        self._checking: set[asyncio.Task[None]] = set()
        self._due: set[str] = set()
        self._methods: dict[str, Callable[[Context, Wire], Awaitable[Wire]]] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
        }

    @property
    def servers(self) -> list[str]:
        """The names of the servers that it stands in front of."""
        return sorted(self._connections.config.servers)

    async def start(self) -> None:
        """Connect, pin what is new, and look at the servers from now on."""
        await self.pinning.start()
        self._connections.on_list_changed = self._check_soon
        self._spawn(self._keep_checking())

    async def aclose(self) -> None:
        """Stop looking, stop calls, and close the connections."""
        for task in list(self._checking):
            task.cancel()
        await self._calls.aclose()
        await self._connections.aclose()

    def build_server(self) -> Server[Any]:
        """The server for clients; after `start`, since it says what is pinned."""
        server: Server[Any] = Server(
            NAME,
            version="1",
            instructions=self.pinning.instructions,
            get_tool_input_schema=self._find_schema,
            on_list_tools=_refuse_unanswered,
            on_call_tool=_refuse_unanswered,
            **self._optional_handlers(),
        )
        keys = self._settings.state_keys
        security = (
            RequestStateSecurity(keys=list(keys), bind_principal=self._principal)
            if keys
            else RequestStateSecurity.ephemeral()
        )
        security.bind_principal = self._principal
        boundary = RequestStateBoundary(security, default_audience=f"{NAME}:{self._ledger.space_id}")
        server.middleware += [self._note_forgery, boundary, self._answer]
        return server

    def _optional_handlers(self) -> dict[str, Any]:
        """So that the server declares what its upstreams have."""
        handlers: dict[str, Any] = {}
        if self.pinning.serving(GET_PROMPT):
            handlers |= {"on_list_prompts": _refuse_unanswered, "on_get_prompt": _refuse_unanswered}
        if self.pinning.serving(READ_RESOURCE):
            handlers |= {
                "on_list_resources": _refuse_unanswered,
                "on_list_resource_templates": _refuse_unanswered,
                "on_read_resource": _refuse_unanswered,
            }
        return handlers

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._checking.add(task)
        task.add_done_callback(self._checking.discard)

    def _check_soon(self, upstream: str) -> None:
        """Look at a server that says its lists changed: once for all that it says within a few seconds."""
        if upstream not in self._due:
            self._due.add(upstream)
            self._spawn(self._check_due(upstream))

    async def _check_due(self, upstream: str) -> None:
        await asyncio.sleep(_CHANGE_SECONDS)
        self._due.discard(upstream)
        await self.pinning.check(upstream)

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(self._settings.check_seconds)
            for upstream in sorted(self._connections.config.servers):
                await self.pinning.check(upstream)

    # --- middleware ---

    async def _note_forgery(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Record that a request state was presented which is not one of ours, or is for something else."""
        try:
            return await call_next(ctx)
        except MCPError as exc:
            if exc.code == mcp_types.INVALID_PARAMS and (ctx.params or {}).get("requestState") is not None:
                agent = _identity_of(ctx, self._settings).get(ACTOR, "a caller with a key")
                await self._ledger.note(
                    "forged", {"noticed": "forged request state", "agent": agent, "method": ctx.method}
                )
            raise

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        method = self._methods.get(ctx.method)
        if method is None:
            return await call_next(ctx)
        result = await method(ctx, dict(ctx.params or {}))
        if is_modern(ctx):
            return result if "resultType" in result else {"resultType": "complete", **result}
        return {name: value for name, value in result.items() if name != "resultType"}

    # --- who asks ---

    async def _caller(self, ctx: Context) -> Caller:
        identity = _identity_of(ctx, self._settings)
        api = self._api.acting_as(identity)
        known = (identity.get(AUTHORIZATION, ""), identity.get(ACTOR, ""))
        agent_id = self._callers.get(known)
        if agent_id is None:
            agent_id = self._callers[known] = await require_agent(api)
            while len(self._callers) > _MAX_CALLERS:
                del self._callers[next(iter(self._callers))]
        return Caller(api, agent_id)

    def _principal(self, ctx: Context) -> str | None:
        identity = _identity_of(ctx, self._settings)
        return identity.get(AUTHORIZATION) or identity.get(ACTOR)

    async def _admit(self, ctx: Context) -> Caller:
        """The caller of a list; MCPError where it may not ask."""
        try:
            return await self._caller(ctx)
        except CmbsError as exc:
            raise MCPError(code=mcp_types.INVALID_REQUEST, message=describe_failure(exc)) from exc

    # --- lists ---

    async def _list_tools(self, ctx: Context, _: Wire) -> Wire:
        await self._admit(ctx)
        tools = [{**pin.definition, "name": name} for name, pin in sorted(self.pinning.tools.items())]
        return _listing("tools", tools)

    async def _list_prompts(self, ctx: Context, _: Wire) -> Wire:
        await self._admit(ctx)
        return _listing("prompts", [{**prompt, "name": name} for name, (__, prompt) in self.pinning.prompts.items()])

    async def _list_resources(self, ctx: Context, params: Wire) -> Wire:
        return await self._list_upstreams(ctx, "resources/list", "resources", params, self._owners.note)

    async def _list_templates(self, ctx: Context, params: Wire) -> Wire:
        note = self._owners.note_templates
        return await self._list_upstreams(ctx, "resources/templates/list", "resourceTemplates", params, note)

    async def _list_upstreams(
        self, ctx: Context, method: str, collection: str, params: Wire, note: Callable[[str, list[Any]], None]
    ) -> Wire:
        caller = await self._admit(ctx)
        serving = self.pinning.serving(READ_RESOURCE)
        if len(serving) == 1:
            try:
                return await self._connections.connection(serving[0], caller.agent_id).request(method, _forward(params))
            except (UpstreamFailed, UpstreamBroke) as exc:
                raise MCPError(code=mcp_types.INTERNAL_ERROR, message=str(exc)) from exc
        items: list[Wire] = []
        for upstream in serving:
            try:
                found = await list_all(self._connections.connection(upstream, caller.agent_id), method, collection)
            except (UpstreamFailed, UpstreamBroke, MCPError) as exc:
                _log.warning("the %s of %s are not listed: %s", collection, upstream, exc)
                continue
            items += found
            note(upstream, found)
        return _listing(collection, items)

    # --- calls ---

    async def _call_tool(self, ctx: Context, params: Wire) -> Wire:
        pin = self.pinning.tools.get(str(params.get("name")))
        if pin is None:
            known = ", ".join(f"`{name}`" for name in sorted(self.pinning.tools)[:50])
            return answers.build_error(f"Not done: there is no tool `{params.get('name')}`.\nThe tools are {known}.")
        args = params.get("arguments")
        if args is not None and not isinstance(args, Mapping):
            raise MCPError(code=mcp_types.INVALID_PARAMS, message="`arguments` must be an object")
        sent = {**_forward(params), "name": pin.name}
        return await self._gate(ctx, pin, "tools/call", sent, dict(args or {}), params)

    async def _get_prompt(self, ctx: Context, params: Wire) -> Wire:
        found = self.pinning.prompts.get(str(params.get("name")))
        if found is None:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"there is no prompt `{params.get('name')}`")
        upstream, prompt = found
        sent = {**_forward(params), "name": prompt["name"]}
        args = {"name": prompt["name"], **sent.get("arguments", {})}
        return await self._read(ctx, upstream, GET_PROMPT, sent, args, params)

    async def _read_resource(self, ctx: Context, params: Wire) -> Wire:
        uri = str(params.get("uri"))
        serving = self.pinning.serving(READ_RESOURCE)
        upstream = serving[0] if len(serving) == 1 else self._owners.find(uri)
        if upstream is None:
            raise MCPError(
                code=_UNKNOWN_RESOURCE,
                message=f"`{uri}` is not known to be of one server, and one alone; list the resources first, "
                "and their templates",
            )
        return await self._read(ctx, upstream, READ_RESOURCE, _forward(params), {"uri": uri}, params)

    async def _read(self, ctx: Context, upstream: str, method: str, sent: Wire, args: Wire, params: Wire) -> Wire:
        """A read beside tools: gated as a call is, and refused as a protocol error, since no model sees the result."""
        pin = self.pinning.beside(upstream, method)
        if pin is None:
            raise MCPError(code=mcp_types.METHOD_NOT_FOUND, message=f"`{upstream}` does not serve `{method}`")
        result = await self._gate(ctx, pin, method, sent, args, params)
        if result.get("isError") is True:
            raise MCPError(code=mcp_types.INVALID_REQUEST, message=result["content"][0]["text"])
        return result

    async def _gate(self, ctx: Context, pin: Pin, method: str, sent: Wire, args: Wire, params: Wire) -> Wire:
        suspension = self.pinning.find_suspension(pin)
        try:
            caller = await self._caller(ctx)
            if suspension is not None:
                noticed = {"noticed": "call of a tool that changed", "agent": caller.agent_id, "tool_id": pin.tool_id}
                await self._ledger.note("suspended", {**noticed, "kind": suspension.kind.value})
                return answers.tell_suspended(pin.name, suspension)
        except CmbsError as exc:
            return answers.tell_failure(exc)
        case_id = _case_of(ctx, self._settings)
        request = CallRequest(caller.api, caller.agent_id, case_id, pin, method, sent, args)
        listener = ClientOfCall(ctx)
        try:
            if params.get("requestState") is not None:
                responses = dict(params.get("inputResponses") or {})
                return await self._calls.resume(request, listener, str(params["requestState"]), responses)
            return await self._calls.call(request, listener)
        except CmbsError as exc:
            return answers.tell_failure(exc)
        except anyio.get_cancelled_exc_class():
            # A stream that was closed may be one that broke: what writes goes on, and a retry gets the value.
            if not (is_modern(ctx) and ctx.request is not None and pin.writes):
                self._calls.cancel(request)
            raise

    def _find_schema(self, name: str) -> Mapping[str, Any] | None:
        pin = self.pinning.tools.get(name)
        schema = None if pin is None else pin.definition.get("inputSchema")
        return schema if isinstance(schema, Mapping) else None


class ClientOfCall:
    """The client that waits for one call, by the request that brought it."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.modern = is_modern(ctx)
        declared = ctx.session.client_capabilities
        elicitation = None if declared is None else declared.elicitation
        self.takes_urls = elicitation is not None and elicitation.url is not None

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """See `Listener.progress`."""
        await self._ctx.session.report_progress(progress, total, message)

    async def ask(self, params: Wire) -> Wire:
        """See `Listener.ask`."""
        if self.modern:
            raise MCPError(
                code=mcp_types.INVALID_REQUEST,
                message="the server asks in the middle of a call, which clients of this version do not answer",
            )
        request = mcp_types.ElicitRequest(params=_ELICITATION.validate_python(params, by_name=False))
        metadata = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        answer = await self._ctx.session.send_request(request, mcp_types.ElicitResult, metadata=metadata)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


def is_modern(ctx: Context) -> bool:
    """Whether a request is of the protocol without sessions."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _identity_of(ctx: Context, settings: GatewaySettings) -> dict[str, str]:
    """The headers by which the API knows the caller: those of the request, or those of the configuration."""
    headers = {} if ctx.request is None else ctx.request.headers
    identity = {name: headers[name] for name in (AUTHORIZATION, ACTOR) if name in headers}
    if identity:
        return identity
    # The key is that of a client on standard streams: over HTTP each sends its own.
    return identify_caller(f"agent:{settings.agent}", settings.key if ctx.request is None else None)


def _case_of(ctx: Context, settings: GatewaySettings) -> str | None:
    meta = (ctx.params or {}).get("_meta")
    named = meta.get(CASE_META) if isinstance(meta, Mapping) else None
    if named is None and ctx.request is not None:
        named = ctx.request.headers.get(CASE_HEADER)
    return str(named) if named is not None else settings.case_id


def _forward(params: Wire) -> Wire:
    """What the upstream is sent of a request: all of it, without what is between the client and us."""
    sent = {name: value for name, value in params.items() if name not in _NOT_SENT}
    meta = params.get("_meta")
    kept = {name: value for name, value in meta.items() if name not in _OWN_META} if isinstance(meta, Mapping) else {}
    return {**sent, "_meta": kept} if kept else sent


def _listing(collection: str, items: list[Wire]) -> Wire:
    return {collection: items, "ttlMs": 0, "cacheScope": "private"}


async def _refuse_unanswered(ctx: Any, params: Any) -> Any:  # noqa: ARG001
    """Registered so that the server declares the method; the middleware answers before it is reached."""
    raise MCPError(code=mcp_types.INTERNAL_ERROR, message="the gateway has no such handler")
