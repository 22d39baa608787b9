"""A server over HTTP that says too much: its answer is refused, on record, and the connection goes on."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from cmbs.bootstrap import Settings, build_app
from cmbs.mcp.asking import open_api
from cmbs.mcp.gateway.callers import GatewaySettings
from cmbs.mcp.gateway.server import Gateway
from cmbs.substrate.tools.mcp_connections import Connections
from cmbs.substrate.tools.mcp_servers import MESSAGE_BYTES, HttpServer, McpServers
from tests.support.mcp_upstream import GATEWAY, Bench, build_ledger, define, text_of

# Answers of many megabytes.
pytestmark = pytest.mark.slow

INFO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "big", "version": "1"}}
TOOLS = [define("get_much", reads=True), define("write_much")]


class BigServer(ThreadingHTTPServer):
    """An MCP server of the handshake era whose tools answer with as many bytes as they are asked for."""

    daemon_threads = True

    def __init__(self, kind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kind = kind
        self.calls = 0


class _Handler(BaseHTTPRequestHandler):
    server: BigServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in request:
            self._send(202, "application/json", b"")
            return
        answer = {"jsonrpc": "2.0", "id": request["id"], **self._answer(request)}
        content = json.dumps(answer).encode()
        is_call = request["method"] == "tools/call"
        if self.server.kind == "stream" and is_call:
            self._send(200, "text/event-stream", b"event: message\ndata: " + content + b"\n\n")
        elif self.server.kind == "gzip" and is_call:
            self._send(200, "application/json", gzip.compress(content), ("content-encoding", "gzip"))
        else:
            self._send(200, "application/json", content)

    def do_GET(self) -> None:
        self._send(405, "application/json", b"")

    def do_DELETE(self) -> None:
        self.do_GET()

    def _answer(self, request: Any) -> dict[str, Any]:
        match request["method"]:
            case "initialize":
                return {"result": INFO}
            case "tools/list":
                return {"result": {"tools": TOOLS}}
            case "tools/call":
                self.server.calls += 1
                text = "x" * request["params"]["arguments"]["size"]
                return {"result": {"content": [{"type": "text", "text": text}]}}
            case _:
                return {"error": {"code": -32601, "message": "no such method"}}

    def _send(self, status: int, kind: str, content: bytes, *more: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("content-type", kind), ("content-length", str(len(content))), *more):
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@contextmanager
def serve(kind: str) -> Iterator[BigServer]:
    with BigServer(kind) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def use_gateway(server: BigServer, test: Any) -> None:
    async def use() -> None:
        app = build_app(Settings(store="memory:"), {})
        api = open_api(app)
        upstream = HttpServer(f"http://127.0.0.1:{server.server_address[1]}/mcp")
        connections = Connections(McpServers({"big": upstream}), {})
        ledger = build_ledger(api)
        gateway = Gateway(
            api, ledger, connections, GatewaySettings(wait_seconds=0.05, check_seconds=3600.0, executor=GATEWAY)
        )
        try:
            await gateway.start()
            await test(Bench(app, gateway, api))
        finally:
            await gateway.aclose()
            app.close()

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await use()

    asyncio.run(bounded())


@pytest.mark.req("MCP-GW-13")
@pytest.mark.parametrize("kind", ["json", "stream"])
def test_an_answer_that_is_too_large_is_refused_on_record_and_others_go_through(kind: str) -> None:
    async def test(bench: Bench) -> None:
        async with bench.client() as client:
            refused = await client.call_tool("get_much", {"size": MESSAGE_BYTES})
            assert refused.is_error
            assert f"answered with more than {MESSAGE_BYTES} bytes" in text_of(refused)
            assert "Ask for less" in text_of(refused)
            # More than what a stream of the SDK may have by default.
            whole = await client.call_tool("get_much", {"size": 2_000_000})
            assert (whole.is_error, len(text_of(whole))) == (False, 2_000_000)
            # What writes was sent and answered: it is not in doubt.
            await client.call_tool("write_much", {"size": MESSAGE_BYTES})
            await bench.approve_all()
            written = await client.call_tool("write_much", {"size": MESSAGE_BYTES})
            assert "The call was made" in text_of(written)
        statuses = [each.status for each in await bench.executions()]
        assert statuses == ["result_refused", "succeeded", "result_refused"]

    with serve(kind) as server:
        use_gateway(server, test)
        assert server.calls == 3


@pytest.mark.req("MCP-GW-13")
def test_an_answer_that_is_compressed_without_being_asked_for_is_not_unpacked_and_what_wrote_is_in_doubt() -> None:
    async def test(bench: Bench) -> None:
        async with bench.client() as client:
            read = await client.call_tool("get_much", {"size": MESSAGE_BYTES})
            assert "gave an answer that is not one of MCP" in text_of(read)
            await client.call_tool("write_much", {"size": 1})
            await bench.approve_all()
            assert text_of(await client.call_tool("write_much", {"size": 1})).startswith("Unknown")
        assert [each.status for each in await bench.executions()] == ["failed", "running"]

    with serve("gzip") as server:
        use_gateway(server, test)
