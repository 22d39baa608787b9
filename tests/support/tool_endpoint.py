"""An HTTP endpoint on loopback that behaves as badly as asked: the path says how."""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

_PATIENCE = 30.0
_DRIP_SECONDS = 0.01


class Seen(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Endpoint:
    """Where it listens, and what it saw."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.seen: list[Seen] = []


# Body, status and headers of answers that are always the same.
_ANSWERS: dict[str, tuple[bytes, int, dict[str, str]]] = {
    "redirect": (b"", 307, {"location": "/echo"}),
    "refuse": (b'{"detail": "no such service"}', 422, {}),
    "long_refusal": (b"x" * 1_000_000, 500, {}),
    "invalid": (b'{"ok": tru', 200, {}),
    "duplicate": (b'{"ok": 1, "ok": 2}', 200, {}),
    "empty": (b"", 204, {}),
    "number": (b"41.50", 200, {}),
    "encoded": (b"\x1f\x8b not really", 200, {"content-encoding": "gzip"}),
}


class _Handler(BaseHTTPRequestHandler):
    endpoint: Endpoint
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.endpoint.seen.append(Seen(self.command, self.path, headers, body))
        self.close_connection = True
        name = self.path.split("/")[1].split("?")[0]
        if name in _ANSWERS:
            self.answer(*_ANSWERS[name])
        elif behave := getattr(self, f"on_{name}", None):
            behave()
        else:
            self.answer(json.dumps({"at": self.path}).encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - the names that the base class calls

    def answer(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def on_echo(self) -> None:
        self.answer(json.dumps({"headers": dict(self.endpoint.seen[-1].headers)}).encode())

    def on_leak(self) -> None:
        said = f"who are you, {self.headers['authorization']}?"
        self.answer(said.encode(), 403)

    def on_status(self) -> None:
        self.answer(b"", int(self.path.split("/")[2]))

    def on_huge(self) -> None:
        """Never ends: the caller has to."""
        self.send_response(200)
        self.end_headers()
        self.until_gone(b"[1," + b"1," * 10_000, 0)

    def on_drip(self) -> None:
        """A header that comes letter by letter, for good."""
        self.until_gone(b"H", _DRIP_SECONDS, b"HTTP/1.1 200 OK\r\nX-Slow: ")

    def on_hang(self) -> None:
        """Says nothing until the caller has left."""
        select.select([self.connection], [], [], _PATIENCE)

    def on_cut(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b'{"half": ')

    def on_close(self) -> None:
        """Ends the connection without a word."""

    def on_reset(self) -> None:
        """Ends the connection the hard way."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def until_gone(self, piece: bytes, pause: float, first: bytes = b"") -> None:
        try:
            self.wfile.write(first)
            while not select.select([self.connection], [], [], pause)[0]:
                self.wfile.write(piece)
        except OSError:
            pass  # it has left

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name that it overrides
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Callers leave in the middle; that is what they are tested for."""


@contextmanager
def listening(tls: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    """An endpoint, until the end of the block; with `tls` it is that of `localhost`."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        endpoint = Endpoint(server.server_port)
        if tls is not None:
            endpoint.url = f"https://localhost:{server.server_port}"
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.RequestHandlerClass = type("Handler", (_Handler,), {"endpoint": endpoint})
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()
