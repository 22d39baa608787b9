"""What arrives is understood the same however it is cut, and nothing of one connection is seen on another."""

import json
import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores import SQLiteStore
from tests.support.http_server import ServerProcess, serving
from tests.support.in_process import Exchanged
from tests.support.wire import HOST, LAST, answers, connected, declaring, exchanged, next_answer

pytestmark = pytest.mark.slow

# How many random requests are cut, each at every byte, and how many rounds callers take turns.
REQUESTS, ROUNDS = {"fast": (12, 15), "ci": (100, 400), "deep": (3000, 5000)}[os.environ.get("CMBS_EFFORT", "fast")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("cut"), "--store", "memory:") as server:
        yield server


def framed(generator: random.Random, body: bytes) -> bytes:
    """The rest of a request, from its framing on: in one piece, or in chunks."""
    if generator.random() < 0.5:
        return b"content-length: %d\r\n\r\n%b" % (len(body), body)
    middle = generator.randint(0, len(body))
    pieces = [piece for piece in (body[:middle], body[middle:]) if piece]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"transfer-encoding: chunked\r\n\r\n%b0\r\n\r\n" % chunks


def one_request(generator: random.Random, session_id: bytes, connection: bytes) -> bytes:
    """A request that changes nothing, or nothing any more when it comes again; often there is a mistake in it."""
    heads = [b"", b"prefer: return=minimal\r\n", b"x-cmbs-actor: operator:root\r\n", b"x-cmbs-actor: odd\r\n"]
    heads += [b"if-match: nothing\r\n", b"authorization: Bearer x\r\n", b"content-type: application/json\r\n"]
    head = connection + b"".join(generator.sample(heads, generator.randint(0, 3)))
    session = b"/v1/sessions/" + session_id
    if generator.random() < 0.4:
        paths = [b"/healthz", session, session + b"?at=0", session + b"/audit", b"/nowhere", b"/v1/sessions/a%2Fb"]
        method = generator.choice([b"GET", b"GET", b"HEAD", b"DELETE"])
        return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, generator.choice(paths), head)
    elimination = {"source_id": "s", "observation_id": "o", "eliminated": ["a"]}
    bodies = [
        json.dumps(elimination).encode(),
        b"{",
        b"[]",
        b'{"source_id":"s","source_id":"t"}',
        b"GET / HTTP/1.1\r\n\r\n",
    ]
    paths = [session + b"/eliminate", session + b"/terminate", b"/v1/spaces", b"/v1/sessions/none/eliminate"]
    line = b"POST %b HTTP/1.1\r\n" % generator.choice(paths[:1] * 3 + paths)
    return line + head + framed(generator, generator.choice(bodies[:1] * 3 + bodies))


def read_all(connection: socket.socket, heads: list[bool]) -> list[tuple[int, bytes, str]]:
    """Status and body of each answer, until the server hangs up; the answer to a HEAD has no body."""
    told = []
    with connection.makefile("rb") as received:
        for bare in heads:
            answer = next_answer(received, bare=bare)
            if answer is None:
                break
            told.append((answer.status, answer.body, answer.headers.get("content-length", "")))
        assert received.read() == b""
    return told


def cut_everywhere(port: int, sent: bytes, heads: list[bool]) -> int:
    """Send these bytes in two parts, cut at each position; how many answers they get, the same each time."""
    with connected(port) as connection:
        connection.sendall(sent)
        whole = read_all(connection, heads)
    # In parts of which each is sent to all before the next one is sent to any: the server has read the first by then.
    for start in range(1, len(sent), 200):
        cuts = range(start, min(start + 200, len(sent)))
        with ExitStack() as opened:
            connections = [opened.enter_context(connected(port)) for _ in cuts]
            for connection, cut in zip(connections, cuts, strict=True):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(sent[:cut])
            for connection, cut in zip(connections, cuts, strict=True):
                connection.sendall(sent[cut:])
            for connection, cut in zip(connections, cuts, strict=True):
                assert read_all(connection, heads) == whole, (sent[:cut], sent[cut:])
    return len(whole)


@pytest.mark.deep
def test_the_same_bytes_give_the_same_answers_however_they_are_cut(server: ServerProcess) -> None:
    session_id = exchanged(server.port, declaring(LAST)).json()["session_id"].encode()
    for seed in range(REQUESTS):
        generator = random.Random(seed)
        requests = [one_request(generator, session_id, HOST) for _ in range(generator.randint(0, 1))]
        requests.append(one_request(generator, session_id, LAST))
        # What was asked for before is done before, so that every repeat is one.
        for request in requests:
            exchanged(server.port, request.replace(HOST, LAST, 1) if LAST not in request else request)
        heads = [request.startswith(b"HEAD") for request in requests]
        assert cut_everywhere(server.port, b"".join(requests), heads) == len(requests)


def test_bytes_that_come_one_by_one_are_a_request(server: ServerProcess) -> None:
    with connected(server.port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in declaring() + declaring(LAST):
            connection.sendall(bytes([byte]))
        assert [answer.status for answer in answers(connection)] == [201, 201]


class Caller:
    """A connection that is kept, whose caller says the same of itself in every request."""

    def __init__(self, port: int, headers: bytes, expected: tuple[int, int]) -> None:
        self.connection = connected(port)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = self.connection.makefile("rb")
        self.headers = HOST + headers
        self.expected = expected
        self.unsent = b""

    def request(self, number: int) -> bytes:
        body = b'{"space_id":"space-%d"}' % number
        head = b"POST /v1/spaces HTTP/1.1\r\ncontent-type: application/json\r\n" + self.headers
        return b"%bcontent-length: %d\r\n\r\n%bGET /v1/spaces HTTP/1.1\r\n%b\r\n" % (
            head,
            len(body),
            body,
            self.headers,
        )

    def check(self) -> None:
        for expected in self.expected:
            answer: Exchanged | None = next_answer(self.received)
            assert answer is not None
            assert answer.status == expected, answer.body


@pytest.mark.deep
def test_headers_of_one_connection_are_never_seen_by_another(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "cmbs.db")
    registry = KeyRegistry(store)
    operator = registry.create(ActorKind.OPERATOR, "root", roles=[Role.OPERATOR]).text.encode()
    reader = registry.create(ActorKind.AGENT, "reader", roles=[Role.READER]).text.encode()
    store.close()
    said = {b"": (401, 401), b"authorization: Bearer " + reader + b"\r\n": (403, 200)}
    said[b"authorization: Bearer " + operator + b"\r\n"] = (201, 200)
    generator = random.Random(15)
    with serving(tmp_path) as server:
        callers = [Caller(server.port, headers, expected) for headers, expected in said.items() for _ in range(2)]
        for number in range(ROUNDS):
            for place, caller in enumerate(callers):
                caller.unsent = caller.request(number * len(callers) + place)
            # In pieces, in turns: every caller's request arrives in the middle of the others'.
            while waiting := [caller for caller in callers if caller.unsent]:
                caller = generator.choice(waiting)
                size = generator.randint(1, 200)
                caller.connection.sendall(caller.unsent[:size])
                caller.unsent = caller.unsent[size:]
            for caller in generator.sample(callers, len(callers)):
                caller.check()
        for caller in callers:
            caller.received.close()
            caller.connection.close()
