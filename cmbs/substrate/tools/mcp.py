"""Tools of MCP servers, over stdio and over streamable HTTP, by the connections that a gateway has too."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any

import mcp_types
import msgspec
from mcp import MCPError
from pydantic import TypeAdapter, ValidationError

from cmbs.errors import BeliefServerError
from cmbs.ledger import canonical
from cmbs.substrate.kernel.model import Tool
from cmbs.substrate.kernel.targets import mcp_target
from cmbs.substrate.tools.event_loop import LoopClosed, LoopThread
from cmbs.substrate.tools.mcp_connection import (
    NEWEST,
    UpstreamBroke,
    UpstreamFailed,
    UpstreamGarbled,
    UpstreamSaidTooMuch,
    UpstreamUnfit,
    Wire,
)
from cmbs.substrate.tools.mcp_connections import Connections
from cmbs.substrate.tools.mcp_servers import McpServer, McpServers
from cmbs.substrate.tools.runner import (
    CallContext,
    OutcomeUnknown,
    ResultRefused,
    ToolFailed,
    time_out_error,
    too_large,
)

# Under `_meta` of the call: for servers that know what to do with them.
IDEMPOTENCY_KEY = "cmbs/idempotency-key"
EXECUTION_ID = "cmbs/execution-id"

_ANSWER: TypeAdapter[mcp_types.CallToolResult | mcp_types.InputRequiredResult] = TypeAdapter(
    mcp_types.CallToolResult | mcp_types.InputRequiredResult
)


class McpTools:
    """Carries out calls of tools of the configured servers. `tls` says whom to trust over HTTP, as for `HttpTools`."""

    def __init__(
        self, servers: Mapping[str, McpServer], environment: Mapping[str, str], tls: ssl.SSLContext | None = None
    ) -> None:
        self._servers = McpServers(dict(servers))
        self._environment = environment
        self._tls = tls
        self._loop = LoopThread("mcp tools")
        self._connections: Connections | None = None

    def execute(self, tool: Tool, args: bytes, call: CallContext) -> bytes:
        """See `Executor.execute`."""
        target = mcp_target(tool)
        if target.server not in self._servers.servers:
            raise ToolFailed(f"no MCP server is configured as `{target.server}`")
        exchange = _Exchange(tool, target.server, _params(target.tool or tool.tool_id, args, call))
        try:
            answer = self._loop.run(partial(self._ask, exchange))
        except (LoopClosed, OutcomeUnknown) as exc:
            if isinstance(exc, OutcomeUnknown) and not self._loop.is_closed:
                raise
            raise exchange.interruption("the server is stopping") from exc
        return exchange.read(answer)

    def close(self) -> None:
        """Call off what is under way, and stop the programs."""
        self._loop.close()

    async def _ask(self, exchange: _Exchange) -> Wire:
        if self._connections is None:
            self._connections = Connections(self._servers, self._environment, tls=self._tls)
        return await exchange.ask(self._connections)


class _Exchange:
    """One call and its answer."""

    def __init__(self, tool: Tool, server: str, params: Wire) -> None:
        self._tool = tool
        self._server = server
        self._where = f"MCP server `{server}`"
        self._params = params
        self._is_sent = False

    async def ask(self, connections: Connections) -> Wire:
        """Send the request and wait for the answer.

        Not by `call_tool`, which lists the server's tools to check the result by the server's own schema: the schema
        that counts is the one that an operator registered.
        """
        clock, seconds = asyncio.get_running_loop().time, self._tool.timeout_ms / 1_000
        until = clock() + seconds
        try:
            connection = await connections.reach(self._server, "", NEWEST, seconds)
            self._is_sent = True
            return await connection.request("tools/call", self._params, seconds=until - clock())
        except UpstreamFailed as exc:
            raise ToolFailed(str(exc)) from exc
        except UpstreamSaidTooMuch as exc:
            raise too_large(self._tool, self._tool.max_result_bytes + 1) from exc
        except (UpstreamGarbled, UpstreamUnfit) as exc:
            raise ResultRefused(str(exc)) from exc
        except UpstreamBroke as exc:
            raise OutcomeUnknown(str(exc)) from exc
        except TimeoutError as exc:
            raise time_out_error(self._tool) from exc
        except MCPError as exc:
            raise ToolFailed(f"{self._where} refused: {exc.message}") from exc

    def interruption(self, why: str) -> OutcomeUnknown | ToolFailed:
        """That it came to no end."""
        if self._is_sent:
            return OutcomeUnknown(f"the exchange with {self._where} broke off: {why}")
        return ToolFailed(f"no connection to {self._where}: {why}")

    def read(self, said: Wire) -> bytes:
        """The result: the structured content where there is one, the content blocks otherwise."""
        try:
            answer = _ANSWER.validate_python(said, by_name=False)
        except ValidationError as exc:
            raise ResultRefused(f"{self._where} gave an answer that is not one of MCP") from exc
        if not isinstance(answer, mcp_types.CallToolResult):
            raise ToolFailed(f"{self._where} asks for more input, which this server does not give")
        if answer.is_error:
            text = " ".join(block.text for block in answer.content if isinstance(block, mcp_types.TextContent))
            raise ToolFailed(f"`{self._tool.tool_id}` failed: {text}" if text else f"`{self._tool.tool_id}` failed")
        result = answer.structured_content
        if result is None:
            blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content]
            result = {"content": blocks}
        try:
            return canonical.encode(result)
        except BeliefServerError as exc:
            raise ResultRefused(f"the result cannot be recorded: {exc.message}") from exc


def _params(name: str, args: bytes, call: CallContext) -> Wire:
    meta: Any = {EXECUTION_ID: call.execution_id}
    if call.idempotency_key is not None:
        meta[IDEMPOTENCY_KEY] = call.idempotency_key
    return {"name": name, "arguments": msgspec.json.decode(args), "_meta": meta}
