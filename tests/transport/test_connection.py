"""The connections of `cmbs serve`, byte for byte: what is not HTTP, what never ends, and what comes all at once."""

import json
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.errors import StoreUnavailable
from cmbs.http import BeliefApp
from cmbs.stores import SQLiteStore
from tests.support.error_model import check_error
from tests.support.http_server import PATIENCE
from tests.support.in_thread import Serving, served
from tests.support.transports import ONTOLOGY
from tests.support.wire import (
    DECLARATION,
    DECLARE,
    HEALTH,
    HOST,
    LAST,
    answers,
    connected,
    declaring,
    exchanged,
    next_answer,
    statuses,
)

HEAD_BYTES = 65_536
BODY_BYTES = 200_000


def chunked(*pieces: bytes, trailers: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n%b\r\n" % trailers


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def server(request: pytest.FixtureRequest) -> Iterator[Serving]:
    app = create_app(BeliefServer(limits=Limits(body_bytes=BODY_BYTES)))
    with served(app, loop=request.param) as running:
        yield running


# --- what is not HTTP -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"BREW /healthz HTTP/1.1\r\n\r\n",
        b"get /healthz HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nconnection: keep-alive\r\n\r\n",
        b"GET /healthz HTTP/1.2\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /heal thz HTTP/1.1\r\n\r\n",
        b"GET /v1/sessions/\xe2\x9c\x93 HTTP/1.1\r\n\r\n",
        HEALTH + b"host : localhost\r\n\r\n",
        HEALTH + b"host: local\x00host\r\n\r\n",
        HEALTH + b"host: localhost\r\n folded\r\n\r\n",
        HEALTH + b"no colon\r\n\r\n",
        b"GET /healthz HTTP/1.1\nhost: localhost\n\n",
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_closed(server: Serving, sent: bytes) -> None:
    answer = exchanged(server.port, sent)
    assert check_error(answer, 400, "INVALID_REQUEST")["message"].startswith("the request is not HTTP/1.1")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        b"content-length: 5\r\ncontent-length: 6\r\n",
        b"content-length: 5, 6\r\n",
        b"content-length: +5\r\n",
        b"content-length: 99999999999999999999999\r\n",
        b"transfer-encoding: gzip\r\n",
        b"transfer-encoding: chunked, gzip\r\n",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        b"transfer-encoding : chunked\r\n",
    ],
)
def test_a_body_whose_end_two_could_see_in_two_places_is_refused(server: Serving, framing: bytes) -> None:
    hidden = b"0\r\n\r\n" + HEALTH + HOST + b"\r\n"
    answer = exchanged(server.port, DECLARE + HOST + framing + b"\r\n" + hidden)
    check_error(answer, 400, "INVALID_REQUEST")
    assert answer.headers["connection"] == "close"


def test_chunks_in_http_1_0_are_refused(server: Serving) -> None:
    head = DECLARE.replace(b"HTTP/1.1", b"HTTP/1.0") + HOST + b"connection: keep-alive\r\n"
    answer = exchanged(server.port, head + b"transfer-encoding: chunked\r\n\r\n" + chunked(DECLARATION))
    check_error(answer, 400, "INVALID_REQUEST")


def test_what_is_not_http_does_not_keep_the_requests_before_it_from_being_answered(server: Serving) -> None:
    with connected(server.port) as connection:
        connection.sendall(declaring() + HEALTH + HOST + b"\r\n" + b"nonsense\r\n\r\n" + declaring())
        answered = answers(connection)
    assert statuses(answered) == [201, 200, 400]


@pytest.mark.parametrize("broken", [b"zz\r\n", b"5 \r\nabcde\r\n0\r\n\r\n", b"5\nabcde\n0\n\n", b"2\r\nabcde"])
def test_broken_chunks_are_refused(server: Serving, broken: bytes) -> None:
    answer = exchanged(server.port, DECLARE + HOST + b"transfer-encoding: chunked\r\n\r\n" + broken)
    assert check_error(answer, 400, "INVALID_REQUEST")["message"] == "the body ended before it was complete"


def test_what_stands_after_a_body_in_chunks_is_no_header(server: Serving) -> None:
    body = chunked(
        DECLARATION[:10], DECLARATION[10:], trailers=b"content-type: text/plain\r\nhost: rebound.example\r\n"
    )
    assert exchanged(server.port, DECLARE + LAST + b"transfer-encoding: chunked\r\n\r\n" + body).status == 201


# --- what is too large ------------------------------------------------------------------------------------------------


def of_size(size: int) -> bytes:
    """A head of so many bytes, as they are counted: what is asked for, and the header lines."""
    head = HEALTH + LAST
    return head + b"x-large: %b\r\n\r\n" % (b"x" * (size - len(b"/healthz" + LAST + b"x-large: \r\n")))


def test_a_head_as_large_as_it_may_be_is_read(server: Serving) -> None:
    assert exchanged(server.port, of_size(HEAD_BYTES)).status == 200


@pytest.mark.parametrize(
    "sent",
    [
        of_size(HEAD_BYTES + 1),
        of_size(300_000),
        HEALTH + b"".join(b"x-%d: y\r\n" % number for number in range(10_000)) + b"\r\n",
        b"GET /" + b"x" * HEAD_BYTES + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        HEALTH + b"x-endless: " + b"x" * 1_000_000,
        b"GET /" + b"x" * 1_000_000,
        of_size(HEAD_BYTES + 1).replace(b"\r\n\r\n", b"\r\ncontent-length: 5\r\n\r\n"),
    ],
    ids=["by a byte", "by far", "headers", "path", "endless header", "endless path", "before a body"],
)
def test_a_head_that_is_too_large_is_refused(server: Serving, sent: bytes) -> None:
    answer = exchanged(server.port, sent)
    assert check_error(answer, 431, "HEAD_TOO_LARGE")["maximum"] == HEAD_BYTES
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("around", [b"5;%b\r\nabcde\r\n", b"0\r\nx: %b\r\n\r\n"], ids=["extension", "trailer"])
def test_what_is_around_a_body_has_an_end_too(server: Serving, around: bytes) -> None:
    sent = DECLARE + HOST + b"transfer-encoding: chunked\r\n\r\n" + around % (b"x" * 1_000_000)
    check_error(exchanged(server.port, sent), 431, "HEAD_TOO_LARGE")


@pytest.mark.parametrize("headers", [b"", b"expect: 100-continue\r\n"], ids=["at once", "asked before"])
def test_a_body_that_says_it_is_too_large_is_not_waited_for(server: Serving, headers: bytes) -> None:
    with connected(server.port) as connection:
        connection.sendall(DECLARE + HOST + headers + b"content-length: %d\r\n\r\n" % (BODY_BYTES + 1))
        (answer,) = answers(connection)
        assert check_error(answer, 413, "LIMIT_EXCEEDED")["limit"] == "body_bytes"
        assert answer.headers["connection"] == "close"


def test_a_body_in_chunks_is_not_read_to_its_end_once_it_is_too_large(server: Serving) -> None:
    with connected(server.port) as connection:
        connection.sendall(DECLARE + HOST + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(BODY_BYTES // 50_000 + 1):
            connection.sendall(b"%x\r\n%b\r\n" % (50_000, b"x" * 50_000))
        (answer,) = answers(connection)
    check_error(answer, 413, "LIMIT_EXCEEDED")


def test_a_body_that_is_exactly_as_large_as_it_may_be_is_read(server: Serving) -> None:
    body = DECLARATION.ljust(BODY_BYTES)
    assert exchanged(server.port, declaring(LAST, body)).status == 201
    assert exchanged(server.port, declaring(LAST, body + b" ")).status == 413


# --- one after the other ----------------------------------------------------------------------------------------------


def test_a_request_may_come_byte_for_byte(server: Serving) -> None:
    with connected(server.port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in declaring() + declaring(LAST):
            connection.sendall(bytes([byte]))
        assert statuses(answers(connection)) == [201, 201]


def written_and_read(session_id: str, count: int) -> bytes:
    path = f"/v1/sessions/{session_id}".encode()
    bodies = [json.dumps({"obligation_id": str(number), "min_total_eliminations": 0}) for number in range(count)]
    line = b"POST %b/obligations HTTP/1.1\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
    written = [line % (path, HOST, len(body), body.encode()) for body in bodies]
    read = [b"GET %b/audit HTTP/1.1\r\n%b\r\n" % (path, HOST), HEALTH + HOST + b"\r\n"] * (count // 2)
    return b"".join(x + y for x, y in zip(written, read, strict=True))


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serving]:
    """A server whose writes are done at once, and one whose writes have to be waited for."""
    log = SQLiteStore(tmp_path / "cmbs.db") if request.param == "sqlite" else None
    with served(create_app(BeliefServer(audit_log=log))) as running:
        yield running


@pytest.mark.parametrize("leaving", [False, True], ids=["stays", "sends no more"])
def test_requests_that_come_all_at_once_are_answered_in_their_order(kept: Serving, leaving: bool) -> None:
    count = 40
    session_id = exchanged(kept.port, declaring(LAST)).json()["session_id"]
    with connected(kept.port) as connection:
        connection.sendall(written_and_read(session_id, count))
        if leaving:
            connection.shutdown(socket.SHUT_WR)
        else:
            connection.sendall(HEALTH + LAST + b"\r\n")
        answered = answers(connection)
    assert statuses(answered) == [200] * (2 * count + (not leaving))
    seen = [len(answer.json()["events"]) for answer in answered[1 : 2 * count : 4]]
    assert seen == list(range(2, count + 2, 2))
    assert [answer.json() for answer in answered[3 : 2 * count : 4]] == [{"status": "ok"}] * (count // 2)


def test_many_who_ask_at_once_get_their_own_answers_in_their_own_order(kept: Serving) -> None:
    def eliminating(session_id: str, gone: str, headers: bytes = HOST) -> bytes:
        body = json.dumps({"source_id": "s", "observation_id": gone, "eliminated": [gone]}).encode()
        head = b"POST /v1/sessions/%b/eliminate HTTP/1.1\r\ncontent-type: application/json\r\n" % session_id.encode()
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (head, headers, len(body), body)

    callers = []
    for number in range(24):
        ids = [f"{number}-{letter}" for letter in "abc"]
        connection = connected(kept.port)
        connection.sendall(declaring(body=json.dumps({"ontology": ONTOLOGY, "hypotheses": ids}).encode()))
        received = connection.makefile("rb")
        declared = next_answer(received)
        assert declared is not None
        callers.append((connection, received, ids, declared.json()["session_id"]))
    for number, (connection, _, ids, session_id) in enumerate(callers):
        sent = [eliminating(session_id, ids[0]), eliminating("nobody", ids[0]), HEALTH + HOST + b"\r\n"]
        sent += [eliminating(session_id, ids[1], HOST + b"prefer: return=minimal\r\n")]
        # Some say that this was all, some send the beginning of one more and hang up, some go without listening.
        sent += [HEALTH + LAST + b"\r\n", b"GET /heal", HEALTH + b"no colon\r\n\r\n"][number % 3 :][:1]
        connection.sendall(b"".join(sent))
        if number % 3 == 1:
            connection.shutdown(socket.SHUT_WR)
    for number, (connection, received, ids, _) in enumerate(callers):
        with connection, received:
            first, unknown, health, minimal, *rest = iter(partial(next_answer, received), None)
        assert first.json()["snapshot"]["survivors"] == ids[1:]
        assert (unknown.status, health.status, statuses(rest)) == (404, 200, [[200], [], [400]][number % 3])
        assert (minimal.json()["applied_eliminated"], minimal.json()["snapshot"]["n_survivors"]) == ([ids[1]], 1)
        assert minimal.headers["preference-applied"] == "return=minimal"


def test_a_caller_that_does_not_fetch_its_answers_is_waited_for(kept: Serving) -> None:
    ids = [f"hypothesis-{number:06}" for number in range(10_000)]
    body = json.dumps({"ontology": ONTOLOGY, "hypotheses": ids}).encode()
    session_id = exchanged(kept.port, declaring(LAST, body)).json()["session_id"]
    asking = f"GET /v1/sessions/{session_id} HTTP/1.1\r\n".encode()
    with connected(kept.port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        sending = threading.Thread(
            target=connection.sendall, args=((asking + HOST + b"\r\n") * 80 + asking + LAST + b"\r\n",)
        )
        sending.start()
        answered = answers(connection)
        sending.join(PATIENCE)
    assert statuses(answered) == [200] * 81
    assert {len(answer.json()["survivors"]) for answer in answered} == {len(ids)}


@pytest.mark.parametrize("rudely", [False, True], ids=["politely", "rudely"])
def test_a_caller_that_does_not_wait_for_its_answer_does_no_harm(kept: Serving, rudely: bool) -> None:
    session_id = exchanged(kept.port, declaring(LAST)).json()["session_id"]
    for _ in range(5):
        connection = connected(kept.port)
        connection.sendall(written_and_read(session_id, 2))
        if rudely:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert exchanged(kept.port, HEALTH + LAST + b"\r\n").status == 200


def test_what_was_asked_for_is_done_though_nobody_waits_for_it(kept: Serving) -> None:
    session_id = exchanged(kept.port, declaring(LAST)).json()["session_id"]
    with connected(kept.port) as connection:
        connection.sendall(written_and_read(session_id, 2)[:-1])
    audit = f"GET /v1/sessions/{session_id}/audit HTTP/1.1\r\n".encode() + LAST + b"\r\n"
    events: list[dict[str, str]] = []
    for _ in range(5_000):
        events = exchanged(kept.port, audit).json()["events"]
        if len(events) > 1:
            break
    assert [event["verb"] for event in events[:2]] == ["DECLARE_SESSION", "ENTER_OBLIGATION"]


# --- bodies that are asked about, or not wanted -----------------------------------------------------------------------


def test_a_caller_that_asks_whether_to_send_its_body_is_told_to(server: Serving) -> None:
    with connected(server.port) as connection, connection.makefile("rb") as received:
        head = DECLARE + HOST + b"Expect: 100-Continue\r\ncontent-length: %d\r\n\r\n" % len(DECLARATION)
        for _ in range(2):
            connection.sendall(head)
            assert received.readline() + received.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(DECLARATION)
            answer = next_answer(received)
            assert answer is not None
            assert answer.status == 201
        # Whoever does not wait for it needs no leave.
        connection.sendall(head + DECLARATION)
        answer = next_answer(received)
        assert answer is not None
        assert answer.status == 201


def test_a_stranger_that_asks_whether_to_send_its_body_is_told_to_go(server: Serving) -> None:
    asking = b"host: rebound.example\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n"
    answer = exchanged(server.port, DECLARE + asking)
    assert check_error(answer, 403, "FORBIDDEN")["reason"] == "foreign_host"
    assert answer.headers["connection"] == "close"


def test_a_stranger_is_turned_away_before_its_body_is_read(server: Serving) -> None:
    with connected(server.port) as connection, connection.makefile("rb") as received:
        connection.sendall(DECLARE + b"host: rebound.example\r\ncontent-length: 10\r\n\r\n12345")
        answer = next_answer(received)
        assert answer is not None
        check_error(answer, 403, "FORBIDDEN")
        assert "connection" not in answer.headers
        # What is left of so small a body is read, and the connection is good for another request.
        connection.sendall(b"67890" + HEALTH + LAST + b"\r\n")
        answer = next_answer(received)
        assert answer is not None
        assert answer.json() == {"status": "ok"}


def test_a_stranger_that_hangs_up_in_the_body_that_nobody_wants_does_no_harm(server: Serving) -> None:
    with connected(server.port) as connection:
        connection.sendall(DECLARE + b"host: rebound.example\r\ncontent-length: 10\r\n\r\n12345")
        connection.shutdown(socket.SHUT_WR)
        assert statuses(answers(connection)) == [403]


# --- other versions, other protocols ----------------------------------------------------------------------------------


def test_http_1_0_is_answered_and_the_connection_closed(server: Serving) -> None:
    answer = exchanged(server.port, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert (answer.status, answer.headers["connection"]) == (200, "close")


def test_http_1_0_keeps_its_connection_where_it_asks_to(server: Serving) -> None:
    with connected(server.port) as connection:
        asking = b"GET /healthz HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
        connection.sendall(asking + asking + b"GET /healthz HTTP/1.0\r\n\r\n")
        answered = answers(connection)
    assert [answer.headers["connection"] for answer in answered] == ["keep-alive", "keep-alive", "close"]


def test_nothing_is_read_after_a_request_that_was_to_be_the_last(server: Serving) -> None:
    with connected(server.port) as connection:
        connection.sendall(HEALTH + LAST + b"\r\n" + HEALTH + HOST + b"\r\n" + b"nonsense")
        assert statuses(answers(connection)) == [200]


@pytest.mark.parametrize("path", [b"/healthz", b"/docs"])
def test_a_head_says_how_long_the_body_would_be(server: Serving, path: bytes) -> None:
    whole = exchanged(server.port, b"GET %b HTTP/1.1\r\n%b\r\n" % (path, LAST))
    with connected(server.port) as connection, connection.makefile("rb") as received:
        connection.sendall(b"HEAD %b HTTP/1.1\r\n%b\r\n" % (path, HOST) * 2)
        for _ in range(2):
            bare = next_answer(received, bare=True)
            assert bare is not None
            assert int(bare.headers["content-length"]) == len(whole.body) > 0
            assert bare.headers["content-type"] == whole.headers["content-type"]


UPGRADES = [
    b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eA==\r\n",
]


@pytest.mark.parametrize("upgrade", UPGRADES, ids=["h2c", "websocket"])
def test_who_wants_to_change_the_protocol_is_answered_in_this_one(server: Serving, upgrade: bytes) -> None:
    with connected(server.port) as connection:
        in_chunks = DECLARE + HOST + upgrade + b"transfer-encoding: chunked\r\n\r\n" + chunked(DECLARATION)
        connection.sendall(HEALTH + HOST + upgrade + b"\r\n" + declaring(HOST + upgrade) + in_chunks + declaring(LAST))
        answered = answers(connection)
    assert statuses(answered) == [200, 201, 201, 201]


@pytest.mark.parametrize("upgrade", UPGRADES, ids=["h2c", "websocket"])
def test_a_body_after_such_a_wish_may_come_later_and_be_the_last(server: Serving, upgrade: bytes) -> None:
    sent = declaring(HOST + upgrade.replace(b"\r\n", b", close\r\n", 1))
    with connected(server.port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for first, last in pairwise([0, len(sent) - 30, len(sent) - 3, len(sent)]):
            connection.sendall(sent[first:last])
        (answer,) = answers(connection)
    assert (answer.status, answer.headers["connection"]) == (201, "close")


def test_an_answer_has_a_date_and_does_not_say_what_server_it_is_from(server: Serving) -> None:
    for path in (b"/healthz", b"/v1/sessions/none", b"/nowhere"):
        headers = exchanged(server.port, b"GET %b HTTP/1.1\r\n%b\r\n" % (path, LAST)).headers
        assert parsedate_to_datetime(headers["date"]).utcoffset() is not None
        assert "server" not in headers


# --- the application behind it ----------------------------------------------------------------------------------------


def with_routes_of_somebody_else() -> BeliefApp:
    app = create_app(BeliefServer())

    @app.get("/streamed")
    async def streamed() -> StreamingResponse:
        return StreamingResponse(iter([b"one", b"two"]), media_type="text/plain")

    @app.post("/echo")
    async def echo(request: Request) -> Response:
        assert request.client is not None
        told = [request.url.path, request.url.query, request.client.host, (await request.body()).decode()]
        return Response(" ".join(told), headers={"x-echo": "yes", "connection": "upgrade"})

    @app.get("/broken")
    async def broken() -> None:
        raise StoreUnavailable("secret")

    return app


def test_routes_of_others_are_served_too() -> None:
    with served(with_routes_of_somebody_else()) as running:
        streamed = exchanged(running.port, b"GET /streamed HTTP/1.1\r\n" + LAST + b"\r\n")
        assert (streamed.body, streamed.headers["content-length"]) == (b"onetwo", "6")
        said = b"POST http://localhost/echo?a=%20b HTTP/1.1\r\n" + LAST + b"content-length: 3\r\n\r\nabc"
        echoed = exchanged(running.port, said)
        assert (echoed.body, echoed.headers["x-echo"]) == (b"/echo a=%20b 127.0.0.1 abc", "yes")
        assert echoed.headers["connection"] == "close"
        assert exchanged(running.port, b"GET /broken HTTP/1.1\r\n" + LAST + b"\r\n").status == 503


def test_middleware_sees_every_request() -> None:
    app = create_app(BeliefServer())
    seen: list[str] = []

    @app.middleware("http")
    async def noting(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        seen.append(request.url.path)
        return await call_next(request)

    with served(app) as running:
        assert exchanged(running.port, declaring(LAST)).status == 201
    assert seen == ["/v1/sessions"]
