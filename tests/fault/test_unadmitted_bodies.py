"""Callers without a key who send a lot: they are refused, and the server holds none of it."""

import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cmbs.api.operations import OPERATIONS
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores import SQLiteStore
from tests.support.http_server import ServerProcess, serving
from tests.support.wire import connected

pytestmark = pytest.mark.slow

CALLERS = 8
BODY = 60 * 1024 * 1024
PIECE = b"x" * 65_536
# More than the allocator and the interpreter take for so many requests; far less than one of the bodies.
MAX_GROWTH = 24 * 1024 * 1024
TABLE = [f"{each.method} " + re.sub(r"{\w+}", "x", each.path) for each in OPERATIONS]
OTHERS = ["GET /", "GET /docs", "POST /docs", "GET /openapi.json"]
OTHERS += ["POST /nowhere", "PUT /v1/sessions", "DELETE /healthz"]
OPEN = {"/", "/docs", "/openapi.json", "/healthz", "/readyz", "/nowhere"}
EXPECTED = {
    True: {b"HTTP/1.1 %b\r\n" % status for status in (b"200 OK", b"404 Not Found", b"405 Method Not Allowed")},
    False: {b"HTTP/1.1 %b\r\n" % status for status in (b"401 Unauthorized", b"405 Method Not Allowed")},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory: Path = tmp_path_factory.mktemp("unadmitted")
    store = SQLiteStore(directory / "cmbs.db")
    KeyRegistry(store).create(ActorKind.OPERATOR, "root", roles=[Role.OPERATOR])
    store.close()
    with serving(directory) as server:
        yield server


def send_without_key(port: int, line: str, framing: bytes) -> bytes:
    """Send as much of a large body as the server takes; the first line of its answer, if it can still be read."""
    with connected(port) as connection:
        with suppress(OSError):
            connection.sendall(b"%b HTTP/1.1\r\nhost: localhost\r\n%b\r\n\r\n" % (line.encode(), framing))
            chunk = b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if b"chunked" in framing else PIECE
            for _ in range(BODY // len(PIECE)):
                connection.sendall(chunk)
            if b"chunked" in framing:
                connection.sendall(b"0\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
        with suppress(OSError), connection.makefile("rb") as received:
            return received.readline()
    return b""


@pytest.mark.parametrize(
    "framing",
    [
        pytest.param(b"content-length: %d" % BODY, marks=pytest.mark.deep, id="length"),
        pytest.param(b"transfer-encoding: chunked", id="chunks"),
    ],
)
def test_callers_without_a_key_leave_memory_where_it_was(server: ServerProcess, framing: bytes) -> None:
    (worker,) = server.workers()
    # Everything that is loaded when it is first needed is there before it is measured.
    for line in OTHERS:
        send_without_key(server.port, line, b"content-length: 0")
    before = worker.memory_info().rss
    for line in TABLE + OTHERS:
        with ThreadPoolExecutor(CALLERS) as threads:
            answered = [threads.submit(send_without_key, server.port, line, framing) for _ in range(CALLERS)]
            while not all(each.done() for each in answered):
                assert worker.memory_info().rss - before < MAX_GROWTH, line
                psutil.wait_procs([worker], 0.05)
        # Some hear of it only as a connection that is reset while they send.
        assert {each.result() for each in answered} <= {b""} | EXPECTED[line.split()[1] in OPEN], line
    assert worker.memory_info().rss - before < MAX_GROWTH
