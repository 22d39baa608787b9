"""An MCP server with tools that behave as badly as they are named: on stdio, or over HTTP on the port given.

With a file as the last argument it writes a line there for every call that it begins.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, TextContent

server = MCPServer("a server of tools")


def note(line: str) -> None:
    with Path(sys.argv[-1]).open("a", encoding="utf-8") as notes:
        notes.write(line + "\n")


@server.tool()
def add(a: int, b: int) -> dict[str, int]:
    note("add")
    return {"sum": a + b}


@server.tool()
def meta(ctx: Context[Any, Any]) -> dict[str, Any]:
    sent = ctx.request_context.meta or {}
    return {name: value for name, value in dict(sent).items() if name.startswith("cmbs/")}


@server.tool(structured_output=False)
def words() -> str:
    return "plain words"


@server.tool()
def fail() -> str:
    note("fail")
    raise ToolError(f"no such service, {os.environ.get('TOKEN', 'caller')}")


@server.tool()
def huge(size: int) -> dict[str, str]:
    note("huge")
    return {"text": "x" * size}


@server.tool()
async def hang() -> str:
    note("hang")
    await anyio.sleep_forever()
    return "never"


@server.tool()
def die() -> str:
    note("die")
    os._exit(3)


@server.tool(structured_output=False)
def ask_back() -> InputRequiredResult:
    """Wants to know more before it does anything."""
    return InputRequiredResult(request_state="more")


@server.tool(structured_output=False)
def shout() -> CallToolResult:
    """Prints where only the protocol may, then answers all the same."""
    sys.__stdout__.write("I am not JSON\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]
    return CallToolResult(content=[TextContent(type="text", text="sorry")])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
