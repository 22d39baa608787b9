"""A server that answers with bytes of the test's choice, one script for each connection."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TypeAlias

# The bytes to answer with, or what makes them of a request; None holds the connection and says nothing.
Script: TypeAlias = bytes | Callable[[bytes], bytes] | None
_END_OF_HEAD = b"\r\n\r\n"
_SECONDS = 10.0


class ScriptedServer:
    """Listens on loopback. Each connection gets the next script, and the last one over and over."""

    def __init__(self, *scripts: Script, drip_seconds: float | None = None) -> None:
        """With `drip_seconds`, bytes come one by one."""
        self._scripts = list(scripts)
        self._drip_seconds = drip_seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = Event()
        self._threads: list[Thread] = []
        self.requests: list[bytes] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
            thread = Thread(target=self._serve, args=(connection, script))
            thread.start()
            self._threads.append(thread)

    def _serve(self, connection: socket.socket, script: Script) -> None:
        with connection, suppress(OSError):
            connection.settimeout(_SECONDS)
            request = self._read(connection)
            self.requests.append(request)
            if callable(script):
                script = script(request)
            if script is None:
                self._over.wait(_SECONDS)
            elif self._drip_seconds is None:
                connection.sendall(script)
            else:
                for number in range(len(script)):
                    connection.sendall(script[number : number + 1])
                    if self._over.wait(self._drip_seconds):
                        return

    @staticmethod
    def _read(connection: socket.socket) -> bytes:
        """A request: its head, and as much of a body as it says."""
        data = b""
        while _END_OF_HEAD not in data:
            part = connection.recv(65536)
            if not part:
                return data
            data += part
        head, _, body = data.partition(_END_OF_HEAD)
        length = next(
            (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        return head + _END_OF_HEAD + body

    def close(self) -> None:
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(_SECONDS)


def response(status: int, body: bytes, *headers: str, length: int | None = None) -> bytes:
    """An answer of HTTP/1.1; `length` is what it claims where that is not the truth."""
    kind = (
        [] if any(each.lower().startswith("content-type") for each in headers) else ["Content-Type: application/json"]
    )
    lines = [
        f"HTTP/1.1 {status} Status",
        *kind,
        *headers,
        f"Content-Length: {len(body) if length is None else length}",
        "Connection: close",
    ]
    return "\r\n".join(lines).encode() + _END_OF_HEAD + body


@contextmanager
def scripted(*scripts: Script, drip_seconds: float | None = None) -> Iterator[ScriptedServer]:
    """A server for as long as a test needs it."""
    server = ScriptedServer(*scripts, drip_seconds=drip_seconds)
    thread = Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(_SECONDS)
