"""The servers of the benchmark `mcp`, each a process: `python -m bench.mcp_servers KIND PORT ARGUMENT`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types
import uvicorn
from fastmcp.server import create_proxy
from mcp import Client
from mcp.server import Server

from cmbs.belief_api import create_app
from cmbs.bootstrap import Settings
from cmbs.mcp.gateway.opening import GatewayOptions, build_app

_TOOL = mcp_types.Tool(
    name="get_nothing",
    input_schema={"type": "object"},
    annotations=mcp_types.ToolAnnotations(read_only_hint=True),
)


async def _list_tools(_: Any, __: Any) -> mcp_types.ListToolsResult:
    return mcp_types.ListToolsResult(tools=[_TOOL])


async def _answer(_: Any, __: Any) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text="nothing")])


def build_empty() -> Any:
    """An empty tool on the SDK."""
    server: Server[Any] = Server("empty", version="1", on_list_tools=_list_tools, on_call_tool=_answer)
    return server.streamable_http_app(stateless_http=True)


def build_hop(upstream: str) -> Any:
    """An empty gateway on the SDK: it hands calls on, and does nothing else."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[Client]:
        async with Client(upstream, cache=None) as client:
            yield client

    async def forward(ctx: Any, params: Any) -> Any:
        return await ctx.lifespan_context.call_tool(params.name, params.arguments)

    server: Server[Any] = Server("hop", version="1", lifespan=lifespan, on_list_tools=_list_tools, on_call_tool=forward)
    return server.streamable_http_app(stateless_http=True)


def build_proxy(upstream: str) -> Any:
    """The proxy of fastmcp, as it is by default."""
    return create_proxy(upstream).http_app(path="/mcp", stateless_http=True)


def build(kind: str, argument: str) -> Any:
    """The application of one kind; the argument is a store or the URL of an upstream."""
    if kind == "empty":
        return build_empty()
    if kind == "hop":
        return build_hop(argument)
    if kind == "fastmcp":
        return build_proxy(argument)
    if kind == "belief":
        return create_app(settings=Settings(store=argument))
    upstream, store = argument.split("|")
    return build_app(GatewayOptions(upstreams=(f"up={upstream}",), store=store, check_seconds=3600), os.environ)


if __name__ == "__main__":
    _, chosen, port, given = sys.argv
    uvicorn.run(build(chosen, given), port=int(port), log_level="error", access_log=False)
