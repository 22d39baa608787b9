"""Tools of MCP servers, over stdio and over streamable HTTP.

A program on stdio is started once and serves many calls; over HTTP every call has a session of its own, so that what
breaks breaks for one call alone.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import httpx2
import mcp_types
import msgspec
from mcp import Client, MCPError
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from pydantic import TypeAdapter, ValidationError

from cmbs.errors import BeliefServerError
from cmbs.ledger import canonical
from cmbs.substrate.kernel.model import Tool
from cmbs.substrate.kernel.targets import mcp_target
from cmbs.substrate.tools.credentials import Credentials
from cmbs.substrate.tools.event_loop import LoopClosed, LoopThread
from cmbs.substrate.tools.mcp_servers import HttpServer, McpServer, StdioServer
from cmbs.substrate.tools.mcp_stdio import StdioProgram, stdio_program
from cmbs.substrate.tools.runner import (
    CallContext,
    OutcomeUnknown,
    ResultRefused,
    ToolFailed,
    ToolTimedOut,
    time_out_error,
    too_large,
)

# Under `_meta` of the call: for servers that know what to do with them.
IDEMPOTENCY_KEY = "cmbs/idempotency-key"
EXECUTION_ID = "cmbs/execution-id"

_US = mcp_types.Implementation(name="cmbs", version="1")
_ANSWER: TypeAdapter[mcp_types.CallToolResult | mcp_types.InputRequiredResult] = TypeAdapter(
    mcp_types.CallToolResult | mcp_types.InputRequiredResult
)
# A result comes twice, as data and as text in which every quote is escaped, and in a frame.
_COPIES = 4
_FRAME_BYTES = 1_048_576


class McpTools:
    """Carries out calls of tools of the configured servers. `tls` says whom to trust over HTTP, as for `HttpTools`."""

    def __init__(
        self, servers: Mapping[str, McpServer], credentials: Credentials, tls: ssl.SSLContext | None = None
    ) -> None:
        self._tls = tls or ssl.create_default_context()
        self._servers = dict(servers)
        self._credentials = credentials
        self._loop = LoopThread("mcp tools")
        self._connections: dict[str, _Connection] = {}
        # Calls whose time is over, on their way out.
        self._parting: set[asyncio.Task[None]] = set()

    def execute(self, tool: Tool, args: bytes, call: CallContext) -> bytes:
        """See `Executor.execute`."""
        target = mcp_target(tool)
        server = self._servers.get(target.server)
        if server is None:
            raise ToolFailed(f"no MCP server is configured as `{target.server}`")
        exchange = _Exchange(tool, target.server, _request(target.tool or tool.tool_id, args, call))
        if isinstance(server, StdioServer):
            work = partial(self._over_stdio, exchange, server, self._values(server.env))
        else:
            work = partial(self._over_http, exchange, server, self._values(server.headers))
        try:
            self._loop.run(work)
        except LoopClosed as exc:
            raise exchange.interruption("the server is stopping") from exc
        return exchange.result()

    def close(self) -> None:
        """Call off what is under way, and stop the programs."""
        self._loop.close()

    def _values(self, names: Mapping[str, str]) -> dict[str, str]:
        values = {}
        for name, variable in names.items():
            value = self._credentials.get(variable)
            if value is None:
                raise ToolFailed(f"the environment variable `{variable}` is not set")
            values[name] = value
        return values

    async def _over_http(self, exchange: _Exchange, server: HttpServer, headers: dict[str, str]) -> None:
        bounded = _Bounded(exchange.tool.max_result_bytes * _COPIES + _FRAME_BYTES, self._tls)
        with anyio.move_on_after(exchange.seconds) as limit:
            try:
                async with httpx2.AsyncClient(
                    headers=headers, timeout=None, transport=bounded, trust_env=False
                ) as http:
                    connection = streamable_http_client(
                        server.url, http_client=http, max_sse_event_size=bounded.max_bytes
                    )
                    async with Client(connection, cache=None, client_info=_US) as client:
                        await exchange.ask(client.session)
            except Exception as exc:
                if exchange.answer is None:
                    raise exchange.failure(exc, said_too_much=bounded.exceeded) from exc
        # With the answer there, only parting took too long.
        if limit.cancelled_caught and exchange.answer is None:
            raise exchange.late()

    async def _over_stdio(self, exchange: _Exchange, server: StdioServer, env: dict[str, str]) -> None:
        connection = self._connection(exchange.server, server, env)
        began = asyncio.get_running_loop().time()
        with anyio.move_on_after(exchange.seconds):
            await connection.ready.wait()
        if not connection.ready.is_set():
            raise exchange.late()
        if connection.session is None:
            raise ToolFailed(f"{exchange.where} did not start: {connection.failure}")
        # In a task of its own: it can take a while to tell a program that does not listen not to answer any more.
        asking = asyncio.create_task(connection.ask(exchange, connection.session))
        await asyncio.wait({asking}, timeout=exchange.seconds - (asyncio.get_running_loop().time() - began))
        if not asking.done():
            self._parting.add(asking)
            asking.add_done_callback(self._forget)
            asking.cancel()
            raise time_out_error(exchange.tool)
        await asking

    def _forget(self, asking: asyncio.Task[None]) -> None:
        self._parting.discard(asking)
        if not asking.cancelled():
            asking.exception()  # its caller has left

    def _connection(self, name: str, server: StdioServer, env: dict[str, str]) -> _Connection:
        known = self._connections.get(name)
        if known is not None and known.good:
            return known
        if known is not None:
            known.closing.set()
        self._connections[name] = _Connection(server, env)
        return self._connections[name]


class _Exchange:
    """One call and its answer."""

    def __init__(self, tool: Tool, server: str, request: mcp_types.CallToolRequest) -> None:
        self.tool = tool
        self.server = server
        self.where = f"MCP server `{server}`"
        self.seconds = tool.timeout_ms / 1_000
        self.sent = False
        self.answer: mcp_types.CallToolResult | mcp_types.InputRequiredResult | None = None
        self._request = request

    async def ask(self, session: ClientSession) -> None:
        """Send the request and wait for the answer.

        Not by `call_tool`, which lists the server's tools to check the result by the server's own schema: the schema
        that counts is the one that an operator registered.
        """
        self.sent = True
        self.answer = await session.send_request(self._request, _ANSWER)

    def late(self) -> ToolTimedOut | ToolFailed:
        """That its time is over and there is no answer."""
        if self.sent:
            return time_out_error(self.tool)
        return ToolFailed(f"{self.where} was not ready within {self.tool.timeout_ms} ms")

    def interruption(self, why: str) -> OutcomeUnknown | ToolFailed:
        """That it came to no end."""
        if self.sent:
            return OutcomeUnknown(f"the exchange with {self.where} broke off: {why}")
        return ToolFailed(f"no connection to {self.where}: {why}")

    def failure(self, raised: Exception, *, said_too_much: bool) -> Exception:
        """What an exception on the way means for the call."""
        exc = _innermost(raised)
        if self.sent and said_too_much:
            return too_large(self.tool, self.tool.max_result_bytes + 1)
        if isinstance(exc, httpx2.ConnectError):
            return ToolFailed(f"no connection to {self.where}: {exc}")
        if self.sent and isinstance(exc, ValidationError):
            return ResultRefused(f"{self.where} gave an answer that is not one of MCP")
        if not isinstance(exc, MCPError) or exc.code == mcp_types.CONNECTION_CLOSED:
            return self.interruption(str(exc) or type(exc).__name__)
        if self.sent and exc.code == mcp_types.PARSE_ERROR:
            return ResultRefused(f"{self.where} gave an answer that is not one of MCP")
        return ToolFailed(f"{self.where} refused: {exc.message}")

    def result(self) -> bytes:
        """The result: the structured content where there is one, the content blocks otherwise."""
        answer = self.answer
        if not isinstance(answer, mcp_types.CallToolResult):
            raise ToolFailed(f"{self.where} asks for more input, which this server does not give")
        if answer.is_error:
            said = " ".join(block.text for block in answer.content if isinstance(block, mcp_types.TextContent))
            raise ToolFailed(f"`{self.tool.tool_id}` failed: {said}" if said else f"`{self.tool.tool_id}` failed")
        result = answer.structured_content
        if result is None:
            blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content]
            result = {"content": blocks}
        try:
            return canonical.encode(result)
        except BeliefServerError as exc:
            raise ResultRefused(f"the result cannot be recorded: {exc.message}") from exc


class _Connection:
    """A program on stdio and the session with it, from its start to its end, in a task of its own."""

    def __init__(self, server: StdioServer, env: dict[str, str]) -> None:
        self._server = server
        self._env = env
        self._program: StdioProgram | None = None
        # Set once it is known whether there is a session.
        self.ready = asyncio.Event()
        self.closing = asyncio.Event()
        self.session: ClientSession | None = None
        self.failure = "it ended at once"
        self._calls = 0
        self._said_too_much_to_one: bool | None = None
        self._task = asyncio.create_task(self._live())

    @property
    def good(self) -> bool:
        """Whether calls may still be sent; a connection in the making is."""
        if self._task.done() or self.closing.is_set():
            return False
        return self._program is None or (self._program.alive and not self._program.said_too_much)

    async def ask(self, exchange: _Exchange, session: ClientSession) -> None:
        """The exchange, from its request to its answer."""
        self._calls += 1
        try:
            await exchange.ask(session)
        except Exception as exc:
            said_too_much = self._program is not None and self._program.said_too_much
            # Then what it was going to say is lost. Where it had been asked one thing only, that is what it answered.
            if said_too_much and self._said_too_much_to_one is None:
                self._said_too_much_to_one = self._calls == 1
            raise exchange.failure(exc, said_too_much=self._said_too_much_to_one is True) from exc
        finally:
            self._calls -= 1

    async def _live(self) -> None:
        server = self._server
        try:
            self._program = StdioProgram(server.command, self._env, server.cwd, server.max_message_bytes)
            with anyio.move_on_after(server.start_seconds) as limit:
                async with Client(stdio_program(self._program), cache=None, client_info=_US) as client:
                    limit.deadline = math.inf
                    self.session = client.session
                    self.ready.set()
                    await self.closing.wait()
            if limit.cancelled_caught:
                self.failure = f"it was not ready within {server.start_seconds} s"
        except Exception as exc:  # noqa: BLE001 - whatever it is, those who wait for the connection are told
            inner = _innermost(exc)
            self.failure = str(inner) or type(inner).__name__
        finally:
            self.session = None
            self.ready.set()


class _Bounded(httpx2.AsyncHTTPTransport):
    """A transport of which no response has more than so many bytes."""

    def __init__(self, max_bytes: int, tls: ssl.SSLContext) -> None:
        super().__init__(verify=tls, limits=httpx2.Limits(max_keepalive_connections=0))
        self.max_bytes = max_bytes
        self.exceeded = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The response, whose content ends in an error where there is too much of it."""
        # Compressed, a little of it could become anything.
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is encoded in a way that was not asked for", request=request)
        response.stream = _BoundedStream(response.stream, self)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, transport: _Bounded) -> None:
        self._stream = stream
        self._transport = transport

    async def __aiter__(self) -> Any:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._transport.max_bytes:
                self._transport.exceeded = True
                raise httpx2.ReadError("the answer is too large")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _request(name: str, args: bytes, call: CallContext) -> mcp_types.CallToolRequest:
    meta: Any = {EXECUTION_ID: call.execution_id}
    if call.idempotency_key is not None:
        meta[IDEMPOTENCY_KEY] = call.idempotency_key
    arguments = msgspec.json.decode(args)
    return mcp_types.CallToolRequest(params=mcp_types.CallToolRequestParams(name=name, arguments=arguments, _meta=meta))


def _innermost(exc: BaseException) -> BaseException:
    """The first exception that is no group of others."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc
