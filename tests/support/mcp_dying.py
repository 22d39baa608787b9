"""An MCP server on standard streams that ends in the middle of a call: `python -m tests.support.mcp_dying FILE`."""

import os
import sys
from typing import Any

import anyio
import mcp_types
from mcp.server import Server
from mcp.server.stdio import stdio_server

OBJECT = {"type": "object"}


async def list_tools(ctx: Any, params: Any) -> mcp_types.ListToolsResult:
    reads = mcp_types.ToolAnnotations(read_only_hint=True)
    return mcp_types.ListToolsResult(
        tools=[
            mcp_types.Tool(name="get_secret_name", input_schema=OBJECT, annotations=reads),
            mcp_types.Tool(name="wipe", input_schema=OBJECT),
        ]
    )


async def read_lines() -> list[str]:
    path = anyio.Path(sys.argv[1])
    return (await path.read_text()).splitlines() if await path.exists() else []


async def call_tool(ctx: Any, params: Any) -> mcp_types.CallToolResult:
    if params.name == "wipe":
        await anyio.Path(sys.argv[1]).write_text("wiped\n" * (1 + len(await read_lines())))
        os._exit(1)
    text = os.environ.get("WHO", "unknown")
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=text)])


async def main() -> None:
    server: Server[Any] = Server("dying", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
