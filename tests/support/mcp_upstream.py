"""An MCP server in this process whose tools a test scripts, a gateway in front of it, and its clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import mcp_types
from mcp import Client, MCPError
from mcp.client._memory import InMemoryTransport
from mcp.server import Server
from mcp.server.runner import serve_loop
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from cmbs.api.spaces import ExecutionResponse, ProposalResponse, ToolCallItem
from cmbs.bootstrap import Settings, build_app
from cmbs.client import AsyncClient
from cmbs.http import BeliefApp
from cmbs.mcp.asking import identify_caller, open_api
from cmbs.mcp.gateway.callers import GatewaySettings
from cmbs.mcp.gateway.ledger import GatewayLedger
from cmbs.mcp.gateway.server import Gateway
from cmbs.substrate.tools.mcp_connections import Connections
from cmbs.substrate.tools.mcp_servers import McpServers, StdioServer

Wire = dict[str, Any]
Behaviour = Callable[[Any, Wire], Awaitable[Wire]]
SPACE = "mcp"


def text_of(result: Any) -> str:
    return str(result.content[0].text)


def tool_of(proposal: ProposalResponse) -> str:
    """The tool that a proposal of one call is about."""
    (call,) = proposal.candidates
    assert isinstance(call, ToolCallItem)
    return call.tool_id


def define(name: str, *, reads: bool = False, **more: Any) -> Wire:
    definition: Wire = {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}}
    return {**definition, "annotations": {"readOnlyHint": reads}, **more}


class LegacyServer(Server[Any]):
    """A server that knows the handshake alone."""

    async def run(
        self,
        read_stream: Any,
        write_stream: Any,
        initialization_options: Any,
        raise_exceptions: bool = False,  # noqa: FBT002
    ) -> None:
        async with self.lifespan(self) as state:
            await serve_loop(self, read_stream, write_stream, lifespan_state=state, init_options=initialization_options)


class ScriptedUpstream:
    """A server whose list and whose behaviour can be changed at any time; it answers with the JSON that it is given."""

    def __init__(self, *, legacy: bool = False, modern_only: bool = False) -> None:
        self.tools: dict[str, Wire] = {}
        self.behaviours: dict[str, Behaviour] = {}
        self.received: list[Wire] = []
        self.reached = asyncio.Event()
        self.instructions = "be careful"
        self.legacy = legacy
        self.modern_only = modern_only

    def tool(self, definition: Wire, behaviour: Behaviour | None = None) -> None:
        self.tools[definition["name"]] = definition
        if behaviour is not None:
            self.behaviours[definition["name"]] = behaviour

    @property
    def calls(self) -> list[tuple[str, Any]]:
        return [(each["name"], each.get("arguments")) for each in self.received]

    def open(self) -> Any:
        """What a client connects to."""
        return InMemoryTransport(self.build())

    def build(self) -> Server[Any]:
        async def unreached(ctx: Any, params: Any) -> Any:
            raise AssertionError

        server = (LegacyServer if self.legacy else Server)(
            "scripted", version="1", instructions=self.instructions, on_list_tools=unreached, on_call_tool=unreached
        )
        server.middleware.append(self._answer)
        return server

    async def _answer(self, ctx: Any, call_next: Any) -> Any:
        envelope = {"resultType": "complete"} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else {}
        if ctx.method == "initialize" and self.modern_only:
            raise MCPError(code=mcp_types.METHOD_NOT_FOUND, message="there are no sessions here")
        if ctx.method == "tools/list":
            return {**envelope, "tools": list(self.tools.values()), "ttlMs": 0, "cacheScope": "private"}
        if ctx.method != "tools/call":
            return await call_next(ctx)
        params = dict(ctx.params)
        self.received.append(params)
        self.reached.set()
        behaviour = self.behaviours.get(params["name"])
        if behaviour is None:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message="no such tool here")
        return {**envelope, **await behaviour(ctx, params)}


class RawUpstream:
    """A server of the handshake era that says what it is told to, of MCP or not; a method without an answer hangs."""

    def __init__(self, tools: Any, **answers: Any) -> None:
        capabilities = {"tools": {}, **answers.pop("capabilities", {})}
        info = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
        self.answers: Wire = {
            "initialize": {**info, "serverInfo": {"name": "raw", "version": "1"}},
            "tools/list": {"tools": tools},
            **answers,
        }
        self.received: list[tuple[str, Any]] = []
        self._unanswered: list[tuple[Any, Any]] = []
        self.notify: Callable[[str, Wire], Awaitable[None]]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        to_client, from_server = anyio.create_memory_object_stream[Any](100)
        to_server, from_client = anyio.create_memory_object_stream[Any](100)

        async def notify(method: str, params: Wire) -> None:
            message = mcp_types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
            await to_client.send(SessionMessage(message))

        async def serve() -> None:
            self.notify = notify
            async for message in from_client:
                await self._answer(message.message, to_client)

        task = asyncio.create_task(serve())
        try:
            yield from_server, to_server
        finally:
            task.cancel()
            await asyncio.wait({task})
            for stream in (to_client, from_server, to_server, from_client):
                stream.close()

    async def answer_late(self, method: str) -> None:
        """Answer the requests of this method that hang."""
        late = [each for each in self._unanswered if each[0].method == method]
        for request, stream in late:
            await self._answer(request, stream)

    async def _answer(self, request: Any, stream: Any) -> None:
        self.received.append((request.method, request.params))
        if not isinstance(request, mcp_types.JSONRPCRequest):
            return
        message: Any
        if request.method == "server/discover":
            error = mcp_types.ErrorData(code=mcp_types.METHOD_NOT_FOUND, message="no such method")
            message = mcp_types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
        elif self.answers.get(request.method) is None:
            self._unanswered.append((request, stream))
            return
        else:
            answer = self.answers[request.method]
            result = answer(request.params or {}) if callable(answer) else answer
            message = mcp_types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)
        await stream.send(SessionMessage(message))


def answer_text(text: str, **more: Any) -> Behaviour:
    async def behave(ctx: Any, params: Wire) -> Wire:
        return {"content": [{"type": "text", "text": text}], **more}

    return behave


def make_reader(*, legacy: bool = False) -> ScriptedUpstream:
    """A server with one tool, which changes nothing."""
    upstream = ScriptedUpstream(legacy=legacy)
    upstream.tool(define("get_status", reads=True), answer_text("green"))
    return upstream


def make_upstream(*, legacy: bool = False) -> ScriptedUpstream:
    """A server with a tool that reads, and one that writes."""
    upstream = make_reader(legacy=legacy)
    upstream.tool(define("restart"), answer_text("restarted"))
    return upstream


class Bench:
    """A gateway, what stands behind it, and an operator."""

    def __init__(self, app: BeliefApp, gateway: Gateway, api: AsyncClient) -> None:
        self.app = app
        self.gateway = gateway
        self.api = api
        self.operator = api.acting_as(identify_caller("operator:boss"))

    def client(self, *, modern: bool = True, **options: Any) -> Client:
        server = self.gateway.build_server()
        mode = "auto" if modern else "legacy"
        # Over a stream, so that messages are framed as they are between processes.
        return Client(InMemoryTransport(server), mode=mode, cache=None, **options)

    async def approve_all(self) -> list[str]:
        operator = self.operator
        pending = [each.approval_id async for each in operator.each(operator.list_approvals, SPACE, status="pending")]
        for approval_id in pending:
            await operator.approve(SPACE, approval_id)
        return pending

    async def proposals(self) -> list[ProposalResponse]:
        return [each async for each in self.operator.each(self.operator.list_proposals, SPACE)]

    async def executions(self) -> list[ExecutionResponse]:
        return [each async for each in self.operator.each(self.operator.list_executions, SPACE)]

    async def notes(self, noticed: str) -> list[Wire]:
        claims = [each.claim async for each in self.operator.each(self.operator.list_memory, SPACE)]
        return [claim for claim in claims if claim.get("noticed") == noticed]


# Who a gateway is, to a server without keys.
GATEWAY = "executor:gateway"


def build_ledger(api: Any, operator: str = "operator:gateway") -> GatewayLedger:
    """The space behind a gateway, as the gateway asks for it."""
    executor = api.acting_as(identify_caller(GATEWAY))
    return GatewayLedger(api.acting_as(identify_caller(operator)), SPACE, executor, "gateway")


@asynccontextmanager
async def open_bench(
    upstreams: Mapping[str, ScriptedUpstream | RawUpstream],
    store: str = "memory:",
    app: BeliefApp | None = None,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """A gateway in front of scripted servers, over a store of its own or over an application that goes on after it."""
    own = app is None
    app = build_app(Settings(store=store), {}) if app is None else app
    api = open_api(app)
    config = McpServers({name: StdioServer([name]) for name in upstreams})

    async def open_target(server: Any, values: dict[str, str], stack: AsyncExitStack) -> Any:
        return upstreams[server.command[0]].open()

    connections = Connections(config, {}, open_target)
    ledger = build_ledger(api)
    chosen = GatewaySettings(**{"wait_seconds": 0.05, "check_seconds": 3600.0, "executor": GATEWAY, **settings})
    gateway = Gateway(api, ledger, connections, chosen)
    try:
        await gateway.start()
        yield Bench(app, gateway, api)
    finally:
        await gateway.aclose()
        if own:
            app.close()
