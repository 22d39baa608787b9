"""Requests whose headers were read before: they are what a parser would make of them, and nothing secret is kept."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp, Receive, Scope, Send

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.http import remembered
from cmbs.http.headers import Headers
from cmbs.http.incoming import Incoming
from cmbs.http.remembered import remember, request_in
from cmbs.identity.tokens import new_key
from tests.support.in_thread import served
from tests.support.wire import DECLARE, HOST, LAST, connected, exchanged, next_answer

USUAL = b"Host: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: 2\r\n"
ASKED = ("host", "content-type", "accept", "prefer", "if-match", "idempotency-key", "authorization", "x-cmbs-actor")


@dataclass
class Parsed:
    """What the parser finds, whole requests alone."""

    found: list[Incoming] = field(default_factory=list)
    pairs: list[tuple[bytes, bytes]] = field(default_factory=list)
    url: bytes = b""
    body: bytes = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        incoming = Incoming()
        incoming.method, incoming.url, incoming.body = self.parser.get_method().decode(), self.url, self.body
        incoming.headers = Headers(self.pairs)
        incoming.is_plain = self.parser.should_keep_alive() and self.parser.get_http_version() == "1.1"
        incoming.has_head = incoming.is_whole = True
        self.found.append(incoming)
        self.pairs, self.url, self.body = [], b"", b""

    def __post_init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)


def parsed(data: bytes) -> Incoming | None:
    """The one whole request that the parser finds in these bytes; None where they are something else."""
    reader = Parsed()
    try:
        reader.parser.feed_data(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    is_all = len(reader.found) == 1 and not reader.pairs and not reader.url
    return reader.found[0] if is_all else None


def told(incoming: Incoming | None) -> object:
    if incoming is None:
        return None
    headers = [incoming.headers.value(name) for name in ASKED]
    return incoming.method, incoming.url, incoming.body, headers, incoming.headers.pairs, incoming.is_plain


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    remembered._known.clear()
    yield
    remembered._known.clear()


def request(line: bytes = b"POST /v1/sessions HTTP/1.1", headers: bytes = USUAL, body: bytes = b"{}") -> bytes:
    return b"%b\r\n%b\r\n%b" % (line, headers, body)


LINES = st.sampled_from(
    [
        *(b"POST /v1/sessions HTTP/1.1", b"GET /healthz HTTP/1.1", b"GET / HTTP/1.1", b"GET /a%2Fb~c HTTP/1.1"),
        *(b"GET  / HTTP/1.1", b"get / HTTP/1.1", b"GET /? HTTP/1.1", b"GET /#a HTTP/1.1", b"GET * HTTP/1.1"),
        *(
            b"GET http://localhost/ HTTP/1.1",
            b"GET / HTTP/1.0",
            b"GET / HTTP/1.1 ",
            b" GET / HTTP/1.1",
            b"HEAD / HTTP/1.1",
        ),
        *(
            b"",
            b"\r\nGET / HTTP/1.1",
            b"GET /\x00 HTTP/1.1",
            b"GET / HTTP/1.1\r\nX: y",
            b"CONNECT / HTTP/1.1",
            b"GET /",
        ),
    ]
)
FIELDS = st.lists(
    st.sampled_from(
        [
            *(b"Host: localhost", b"host:localhost", b"Content-Length: 2", b"Content-Length: 0", b"content-length: 3"),
            *(b"Connection: close", b"Connection: keep-alive", b"Connection: upgrade", b"Upgrade: h2c", b"Prefer: a"),
            *(
                b"Transfer-Encoding: chunked",
                b"Expect: 100-continue",
                b"User-Agent:  x  ",
                b"Accept: \xff",
                b"no colon",
            ),
            *(b" folded: yes", b"Accept: a\r\n b", b"Accept : a", b"X-Other: y", b"Authorization: Bearer x"),
        ]
    ),
    max_size=4,
)
BODIES = st.sampled_from([b"", b"{}", b"{} ", b"\r\n", b"GET / HTTP/1.1\r\n\r\n", b"0\r\n\r\n"])
REQUESTS = st.builds(
    lambda line, fields, body: request(line, b"".join(field + b"\r\n" for field in fields), body), LINES, FIELDS, BODIES
)


@given(st.lists(REQUESTS, min_size=1, max_size=12), LINES, BODIES)
def test_what_is_told_without_a_parser_is_what_the_parser_tells(sent: list[bytes], line: bytes, body: bytes) -> None:
    remembered._known.clear()
    for data in sent:
        found = parsed(data)
        if found is not None:
            remember(data, found)
    # With every block that is known now, whatever the line before it and the body after it.
    others = [line + block + b"\r\n\r\n" + body for block in remembered._known]
    for data in [*sent, *others]:
        incoming = request_in(data)
        if incoming is not None:
            assert told(incoming) == told(parsed(data))


def test_a_request_like_the_one_before_it_needs_no_parser() -> None:
    first = parsed(request())
    assert first is not None
    assert request_in(request()) is None
    remember(request(), first)
    again = request_in(request(b"POST /v1/sessions/a/eliminate HTTP/1.1", body=b"[]"))
    assert again is not None
    assert (again.method, again.url, again.body) == ("POST", b"/v1/sessions/a/eliminate", b"[]")
    assert [request_in(request(body=body)) for body in (b"", b"{", b"{}{", b"{}GET / HTTP/1.1\r\n\r\n")] == [None] * 4


@pytest.mark.parametrize(
    "said",
    [
        b"Authorization: Bearer cmbs_secret",
        b"Cookie: session=secret",
        b"Idempotency-Key: once",
        b'If-Match: "head"',
        b"X-Other: whatever",
        b"Host: elsewhere",  # a second one
        b"Connection: close",
        b"Prefer: \xff",
        b"User-Agent: KEY",
        b"User-Agent: " + b"a" * 2000,
    ],
)
def test_what_is_secret_or_said_once_is_not_remembered(said: bytes) -> None:
    data = request(headers=USUAL + said.replace(b"KEY", new_key().text.encode()) + b"\r\n")
    found = parsed(data)
    assert found is not None
    remember(data, found)
    assert not remembered._known
    assert request_in(data) is None


def test_strangers_cannot_fill_the_memory() -> None:
    for number in range(5000):
        data = request(headers=USUAL + b"User-Agent: %d\r\n" % number)
        found = parsed(data)
        assert found is not None
        remember(data, found)
    assert 0 < len(remembered._known) <= 1024


def test_a_connection_answers_the_same_whether_it_has_seen_the_headers_or_not() -> None:
    sent = [
        request(b"GET /healthz HTTP/1.1", b"Host: localhost\r\n", b""),
        request(b"GET /v1/sessions HTTP/1.1", b"Host: localhost\r\n", b""),
        request(b"GET /nowhere HTTP/1.1", b"Host: localhost\r\n", b""),
        request(b"POST /v1/sessions/nobody/terminate HTTP/1.1"),
        request(b"POST /v1/sessions/nobody/eliminate HTTP/1.1", body=b"[]"),
    ]
    with served(create_app(BeliefServer())) as running, connected(running.port) as connection:
        answered: list[tuple[int, bytes]] = []
        with connection.makefile("rb") as received:
            for data in [*sent, *sent, b"".join(sent), sent[0][:20], sent[0][20:]]:
                connection.sendall(data)
                for _ in range(len(sent) if data == b"".join(sent) else 0 if data == sent[0][:20] else 1):
                    answer = next_answer(received)
                    assert answer is not None
                    answered.append((answer.status, answer.body))
    assert len(remembered._known) == 2
    assert answered == [*answered[:5], *answered[:5], *answered[:5], answered[0]]
    assert [status for status, _ in answered[:5]] == [200, 200, 404, 404, 400]


def test_what_middleware_adds_to_the_headers_of_one_request_is_nobody_elses() -> None:
    app = create_app(BeliefServer())
    seen: list[list[tuple[bytes, bytes]]] = []

    class Naming:
        """Says who asks, where the query says so."""

        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                if scope["query_string"]:
                    scope["headers"].append((b"x-cmbs-actor", b"operator:alice"))
                seen.append(list(scope["headers"]))
            await self._app(scope, receive, send)

    app.add_middleware(Naming)
    with served(app) as running:
        for query in (b"", b"?limit=1", b"", b"?limit=1"):
            exchanged(running.port, b"GET /v1/sessions%b HTTP/1.1\r\n%b\r\n" % (query, LAST))
    assert [[name for name, _ in headers].count(b"x-cmbs-actor") for headers in seen] == [0, 1, 0, 1]


def test_nothing_of_a_request_is_kept_by_a_caller_that_stays() -> None:
    body = b" " * 100_000
    head = DECLARE + HOST + b"authorization: Bearer a-secret\r\ncontent-length: %d\r\n\r\n" % len(body)
    with served(create_app(BeliefServer())) as running, connected(running.port) as connection:
        connection.sendall(head + body)
        with connection.makefile("rb") as received:
            answer = next_answer(received)
        assert answer is not None
        assert answer.status == 400
        gc.collect()
        left = [each for each in gc.get_objects() if type(each) is Incoming]
        assert [(each.body, each.headers.pairs) for each in left if each.body or each.headers.pairs] == []
