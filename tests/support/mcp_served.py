"""A runner of MCP tools with one server, which is real: of the SDK, or a program that only pretends."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from cmbs.substrate.kernel.model import ToolKind
from cmbs.substrate.tools.credentials import Credentials
from cmbs.substrate.tools.mcp import McpTools
from cmbs.substrate.tools.mcp_servers import HttpServer, McpServer, StdioServer
from cmbs.substrate.tools.runner import CallContext, Runner
from tests.support import mcp_tools
from tests.support.http_server import free_port
from tests.support.tool_calls import CALL, run, tool_of

SCRIPT = str(Path(mcp_tools.__file__))
ENVIRONMENT = {"A_TOKEN": "very-secret-token"}
CREDENTIALS = Credentials(ENVIRONMENT, ["A_TOKEN"])
TIMEOUT_SECONDS = 30.0


class Served:
    """A runner whose one server is called `s`, and the file in which that server notes its calls."""

    def __init__(self, server: McpServer, notes: Path) -> None:
        self.runner = Runner({ToolKind.MCP: lambda: McpTools({"s": server}, ENVIRONMENT)}, CREDENTIALS)
        self._notes = notes

    def close(self) -> None:
        self.runner.close()

    @property
    def begun(self) -> list[str]:
        return self._notes.read_text("utf-8").split()

    def call(self, name: str, args: dict[str, Any] | None = None, call: CallContext = CALL, **more: Any) -> Any:
        tool = tool_of(ToolKind.MCP, {"server": "s", "tool": name}, **more)
        return run(self.runner, tool, args, call)


def stdio_server(notes: Path, **more: Any) -> StdioServer:
    return StdioServer([sys.executable, SCRIPT, "stdio", str(notes)], {"TOKEN": "A_TOKEN"}, **more)


@contextmanager
def http_server(notes: Path) -> Iterator[HttpServer]:
    port = free_port()
    log = notes.with_suffix(".log").open("wb")
    process = subprocess.Popen([sys.executable, SCRIPT, str(port), str(notes)], stdout=log, stderr=log)
    try:
        wait_for_port(port, process)
        yield HttpServer(f"http://127.0.0.1:{port}/mcp", {"Authorization": "A_TOKEN"})
    finally:
        process.kill()
        process.wait(TIMEOUT_SECONDS)
        log.close()


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(int(TIMEOUT_SECONDS / 0.02)):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError("the server ended") from None
        else:
            return
    raise AssertionError("the server does not listen")


@contextmanager
def serve_over(transport: str, notes: Path) -> Iterator[Served]:
    notes.touch()
    if transport == "http":
        with http_server(notes) as server, closing(Served(server, notes)) as served:
            yield served
        return
    with closing(Served(stdio_server(notes), notes)) as served:
        yield served
