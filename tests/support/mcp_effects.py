"""An MCP server whose one tool leaves a line in a file, on standard streams: `-m tests.support.mcp_effects FILE`."""

import os
import sys
from typing import Any

import anyio
import mcp_types
from mcp.server import Server
from mcp.server.stdio import stdio_server


async def list_tools(ctx: Any, params: Any) -> mcp_types.ListToolsResult:
    return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="apply_change", input_schema={"type": "object"})])


async def call_tool(ctx: Any, params: Any) -> mcp_types.CallToolResult:
    line = f"{params.arguments['n']}\n".encode()
    # Appended in one write, so that several processes can share the file.
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text="applied")])


async def main() -> None:
    server: Server[Any] = Server("effects", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
