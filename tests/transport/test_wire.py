"""Over a real connection to `cmbs serve`: what only a network brings along."""

import json
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import httpx2
import pytest

from tests.support.error_model import check_error
from tests.support.http_server import ServerProcess, serving
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

LIMIT = 2_000_000
JSON = LAST + b"content-type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("wire"), variables={"CMBS_LIMIT_BODY_BYTES": str(LIMIT)}) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx2.Client]:
    with server.client() as client:
        yield client


@pytest.mark.req("BS-3.2-ERR-07", "BS-3.2-ERR-08")
def test_an_odd_request_line_is_answered_in_the_error_model(subtests: pytest.Subtests, server: ServerProcess) -> None:
    for line, status, code in [
        (b"GET /nowhere", 404, "NOT_FOUND"),
        (b"GET /v1/../healthz", 404, "NOT_FOUND"),
        (b"OPTIONS *", 404, "NOT_FOUND"),
        (b"PROPFIND /healthz", 405, "METHOD_NOT_ALLOWED"),
        (b"GET /v1/sessions/%ff", 400, "INVALID_REQUEST"),
        (b"GET /v1/sessions?limit=%ff", 400, "INVALID_REQUEST"),
        (b"GET /v1/sessions/%E2%9C%93", 404, "SESSION_NOT_FOUND"),
        (b"GET http://localhost/v1/sessions/x?at=0", 404, "SESSION_NOT_FOUND"),
        (b"BREW /nowhere", 404, "NOT_FOUND"),
        (b"GET /v1/sessions/a%2Fb/audit", 404, "SESSION_NOT_FOUND"),
        (b"POST /v1/sessions/a/elimnate", 404, "NOT_FOUND"),
        (b"PUT /v1/sessions/a/b/c", 404, "NOT_FOUND"),
    ]:
        with subtests.test(line=line, status=status, code=code):
            check_error(exchanged(server.port, line + b" HTTP/1.1\r\n" + JSON + b"\r\n"), status, code)


@pytest.mark.req("BS-3.2-ERR-10")
def test_a_body_that_is_too_large_is_refused_however_much_of_it_comes(
    subtests: pytest.Subtests, server: ServerProcess
) -> None:
    for framed in [
        b"content-length: %d\r\n\r\n" % (LIMIT + 1),
        b"content-length: %d\r\n\r\n%b" % (LIMIT + 1, b"x" * 100),
        b"content-length: %d\r\n\r\n%b" % (LIMIT + 1, b"x" * (LIMIT + 1)),
        b"transfer-encoding: chunked\r\n\r\n%b0\r\n\r\n" % (b"%x\r\n%b\r\n" % (LIMIT // 2, b"x" * (LIMIT // 2)) * 3),
    ]:
        with subtests.test(framed=framed):
            answer = exchanged(server.port, DECLARE + LAST + framed)
            assert check_error(answer, 413, "LIMIT_EXCEEDED")["limit"] == "body_bytes"


def test_a_body_in_chunks_is_as_good_as_one_in_one_piece(client: httpx2.Client) -> None:
    pieces = iter([DECLARATION[:10], DECLARATION[10:11], DECLARATION[11:]])
    answer = client.post("/v1/sessions", content=pieces, headers={"content-type": "application/json"})
    assert answer.status_code == 201


@pytest.mark.req("BS-3.2-ERR-09")
def test_a_body_whose_chunks_are_broken_is_refused(subtests: pytest.Subtests, server: ServerProcess) -> None:
    for framing in [b"transfer-encoding: chunked\r\n\r\nzz\r\n", b"transfer-encoding: chunked\r\n\r\n5\r\n{"]:
        with subtests.test(framing=framing):
            with connected(server.port) as connection:
                connection.sendall(b"POST /v1/sessions HTTP/1.1\r\n" + JSON + framing)
                connection.shutdown(socket.SHUT_WR)
                (answer,) = answers(connection)
            check_error(answer, 400, "INVALID_REQUEST")


@pytest.mark.parametrize("rudely", [False, True], ids=["politely", "rudely"])
def test_callers_that_hang_up_in_the_middle_of_a_request_do_no_harm(
    server: ServerProcess, client: httpx2.Client, rudely: bool
) -> None:
    opened = exchanged(server.port, declaring(LAST)).json()["session_id"]
    line = f"POST /v1/sessions/{opened}/conclusions HTTP/1.1\r\n".encode()
    body = b'{"conclusion_id":"a"}'
    whole = b"%b%bcontent-length: %d\r\n\r\n%b" % (line, JSON, len(body), body)
    for length in range(1, len(whole), 9):
        connection = connected(server.port)
        connection.sendall(whole[:length])
        if rudely:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    events = client.get(f"/v1/sessions/{opened}/audit").json()["events"]
    assert [event["verb"] for event in events] == ["DECLARE_SESSION"]


def test_what_is_not_http_is_refused_and_the_connection_closed(
    subtests: pytest.Subtests, server: ServerProcess
) -> None:
    for sent in [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /healthz\r\n\r\n",
        b"GET /heal thz HTTP/1.1\r\n\r\n",
        HEALTH + b"host : localhost\r\n\r\n",
        HEALTH + b"host: local\x00host\r\n\r\n",
        HEALTH + b"no colon\r\n\r\n",
    ]:
        with subtests.test(sent=sent):
            assert exchanged(server.port, sent).status == 400


def test_a_head_that_is_too_large_is_refused(subtests: pytest.Subtests, server: ServerProcess) -> None:
    for sent in [
        HEALTH + HOST + b"x-large: %b\r\n\r\n" % (b"x" * 300_000),
        HEALTH + HOST + b"x: y\r\n" * 10_000 + b"\r\n",
    ]:
        with subtests.test(sent=sent):
            with connected(server.port) as connection:
                # It may hang up before everything is sent.
                with suppress(OSError):
                    connection.sendall(sent)
                with suppress(ConnectionResetError):
                    assert statuses(answers(connection)) == [431]
            assert exchanged(server.port, HEALTH + LAST + b"\r\n").status == 200


def test_a_request_with_two_possible_ends_gets_one_answer_and_the_connection_is_closed(
    subtests: pytest.Subtests, server: ServerProcess
) -> None:
    for framing in [
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        b"content-length: 5\r\ncontent-length: 6\r\n",
        b"content-length: 5, 6\r\n",
        b"content-length: +5\r\n",
        b"content-length: 99999999999999999999999\r\n",
        b"transfer-encoding: gzip\r\n",
        b"transfer-encoding: chunked, gzip\r\n",
        b"transfer-encoding : chunked\r\n",
    ]:
        with subtests.test(framing=framing):
            hidden = b"0\r\n\r\n" + HEALTH + HOST + b"\r\n"
            answer = exchanged(server.port, DECLARE + HOST + framing + b"\r\n" + hidden)
            assert answer.status == 400
            assert answer.headers["connection"] == "close"


def test_a_caller_that_asks_whether_to_send_its_body_is_told_to(server: ServerProcess) -> None:
    with connected(server.port) as connection, connection.makefile("rb") as received:
        connection.sendall(DECLARE + LAST + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(DECLARATION))
        assert received.readline() + received.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(DECLARATION)
        answer = next_answer(received)
        assert answer is not None
        assert answer.status == 201


def test_requests_that_come_all_at_once_are_answered_in_their_order(server: ServerProcess) -> None:
    session_id = exchanged(server.port, declaring(LAST)).json()["session_id"]
    path = f"/v1/sessions/{session_id}".encode()
    sent = []
    for number in range(20):
        body = b'{"obligation_id":"%d","min_total_eliminations":0}' % number
        head = b"POST %b/obligations HTTP/1.1\r\ncontent-type: application/json\r\n" % path
        sent.append(b"%b%bcontent-length: %d\r\n\r\n%b" % (head, HOST, len(body), body))
        sent.append(b"GET %b/audit HTTP/1.1\r\n%b\r\n" % (path, HOST if number < 19 else LAST))
    with connected(server.port) as connection:
        connection.sendall(b"".join(sent))
        answered = answers(connection)
    assert statuses(answered) == [200] * 40
    assert [len(answer.json()["events"]) for answer in answered[1::2]] == list(range(2, 22))


def test_a_connection_lives_on_after_an_error(server: ServerProcess) -> None:
    with connected(server.port) as connection:
        connection.sendall(declaring(body=b"{") * 2 + HEALTH + LAST + b"\r\n")
        answered = answers(connection)
    assert statuses(answered) == [400, 400, 200]
    assert answered[-1].json() == {"status": "ok"}


@pytest.mark.req("ID-OPEN-04")
def test_an_unknown_host_name_is_refused_before_a_body_is_sent(
    subtests: pytest.Subtests, server: ServerProcess
) -> None:
    for head in [b"GET /v1/sessions HTTP/1.1\r\n", DECLARE + b"expect: 100-continue\r\ncontent-length: 5\r\n"]:
        with subtests.test(head=head):
            answer = exchanged(server.port, head + b"host: rebound.example\r\nconnection: close\r\n\r\n")
            assert check_error(answer, 403, "FORBIDDEN")["reason"] == "foreign_host"


def test_a_header_that_is_not_text_or_stands_twice_is_refused_not_overlooked(
    subtests: pytest.Subtests, server: ServerProcess
) -> None:
    for odd in [b"idempotency-key: caf\xe9", b"prefer: caf\xe9", b"idempotency-key: a\r\nidempotency-key: b"]:
        with subtests.test(odd=odd):
            answer = exchanged(server.port, declaring(LAST + odd + b"\r\n"))
            assert check_error(answer, 400, "INVALID_REQUEST")["header"] == odd.partition(b":")[0].decode()


def test_a_request_of_http_1_0_is_answered(server: ServerProcess) -> None:
    with connected(server.port) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n" + HOST + b"\r\n")
        with connection.makefile("rb") as received:
            head, _, body = received.read().partition(b"\r\n\r\n")
    assert re.match(rb"HTTP/1\.[01] 200 ", head)
    assert json.loads(body) == {"status": "ok"}


@pytest.mark.slow
def test_a_request_to_upgrade_gets_an_ordinary_answer(subtests: pytest.Subtests, server: ServerProcess) -> None:
    for protocol in [b"h2c\r\nhttp2-settings: AAMAAABkAAQAAP__", b"websocket"]:
        with subtests.test(protocol=protocol):
            upgrade = b"connection: upgrade, close\r\nupgrade: " + protocol + b"\r\n\r\n"
            assert exchanged(server.port, HEALTH + HOST + upgrade).json() == {"status": "ok"}


@pytest.mark.slow
def test_a_large_universe_goes_over_the_wire_and_back(client: httpx2.Client) -> None:
    ids = [f"hypothesis-{number:06}" for number in range(70_000)]
    opened = client.post("/v1/sessions", json={"ontology": ONTOLOGY, "hypotheses": ids}).json()
    assert opened["snapshot"]["survivors"] == ids
    body = {"source_id": "s", "observation_id": "o", "eliminated": ids[1:]}
    gone = client.post(f"/v1/sessions/{opened['session_id']}/eliminate", json=body).json()
    assert gone["snapshot"]["survivors"] == ids[:1]
    assert gone["applied_eliminated"] == ids[1:]
    before = client.get(f"/v1/sessions/{opened['session_id']}?at=0").json()
    assert before["survivors"] == ids
