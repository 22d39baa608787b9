"""An MCP server over HTTP, with sessions, that answers calls as a test wants: with anything but MCP, or never."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cmbs.substrate.tools.mcp_servers import HttpServer

Message = dict[str, Any]
# A status, headers and a body; or bytes, after which it hangs up.
Given = tuple[int, dict[str, str], bytes] | bytes


class Endpoint(ThreadingHTTPServer):
    """Answers a handshake by itself; `calls` and `sessions` are what it has seen."""

    daemon_threads = True

    def __init__(self, answer: Callable[[Message], Given]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.take: Callable[[Message], None] = lambda _: None
        self.resume: Callable[[], Given] = lambda: (405, {}, b"")
        self.calls: list[str] = []
        self.sessions = 0

    @property
    def server(self) -> HttpServer:
        return HttpServer(f"http://127.0.0.1:{self.server_port}/mcp")


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = message["method"]
        if method == "tools/call":
            self.server.calls.append(message["params"]["name"])
            self._give(self.server.answer(message))
        elif method == "initialize":
            self.server.sessions += 1
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "pretender", "version": "1"},
            }
            status, headers, body = ok({"jsonrpc": "2.0", "id": message["id"], "result": result})
            self._give((status, {**headers, "mcp-session-id": str(self.server.sessions)}, body))
        elif "id" in message:
            self._give(refuse(message, -32601, "what?"))
        else:
            self.server.take(message)
            self._give((202, {}, b""))

    def do_GET(self) -> None:
        self._give(self.server.resume() if "last-event-id" in self.headers else (405, {}, b""))

    def do_DELETE(self) -> None:
        self._give((200, {}, b""))

    def _give(self, given: Given) -> None:
        with suppress(ConnectionError):
            if isinstance(given, bytes):
                self.wfile.write(given)
                self.close_connection = True
                return
            status, headers, body = given
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name that it overrides
        pass


@contextmanager
def answering(answer: Callable[[Message], Given]) -> Iterator[Endpoint]:
    with Endpoint(answer) as endpoint:
        thread = threading.Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield endpoint
        finally:
            endpoint.shutdown()
            thread.join()


def ok(content: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"content-type": "application/json"}, json.dumps(content).encode()


def succeed(message: Message) -> tuple[int, dict[str, str], bytes]:
    return ok({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})


def refuse(message: Message, code: int, text: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
    return ok({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text, **more}})
