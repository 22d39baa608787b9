"""Endpoints over HTTP that are no good MCP servers: what goes wrong with one call is told to it, and to it alone."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cmbs.substrate.kernel.events import OutcomeStatus
from cmbs.substrate.tools import mcp_http
from cmbs.substrate.tools.runner import OutcomeUnknown
from tests.support.mcp_endpoint import Endpoint, Given, Message, answering, ok, refuse, succeed
from tests.support.mcp_served import TIMEOUT_SECONDS, Served
from tests.support.spaces import eventually
from tests.support.tool_calls import result_of

pytestmark = pytest.mark.slow
JSON = {"content-type": "application/json"}


@contextmanager
def calling(answer: Any, tmp_path: Path) -> Iterator[tuple[Served, Endpoint]]:
    """An endpoint, and a runner of its tools."""
    with answering(answer) as endpoint, closing(Served(endpoint.server, tmp_path)) as served:
        yield served, endpoint


@pytest.mark.req("SS01-TOOL-03")
@pytest.mark.parametrize("status", [202, 204, 408, 500, 502, 503, 504])
def test_a_status_that_leaves_open_whether_it_was_done_leaves_a_call_that_writes_in_doubt(
    tmp_path: Path, status: int
) -> None:
    with calling(lambda _: (status, {}, b""), tmp_path) as (served, endpoint):
        with pytest.raises(OutcomeUnknown, match=f"broke off: HTTP {status}"):
            served.call("add")
        assert served.call("add", writes=False).status is OutcomeStatus.FAILED
        assert (endpoint.calls, endpoint.sessions) == (["add", "add"], 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((400, JSON, b'{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no a"}}'), "refused: no a"),
        ((503, JSON, b'{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"too many"}}'), "refused: too many"),
        ((200, JSON, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}'), "refused: what?"),
        ((429, {}, b"later"), "refused: HTTP 429"),
        ((303, {"location": "/elsewhere"}, b""), "HTTP 303, a redirect, which is not followed"),
    ],
)
def test_a_refusal_is_told_and_nothing_is_in_doubt(tmp_path: Path, given: Given, said: str) -> None:
    def answer(message: Message) -> Given:
        assert isinstance(given, tuple)
        return given[0], given[1], given[2].replace(b"ID", str(message["id"]).encode())

    with calling(answer, tmp_path) as (served, endpoint):
        reply = served.call("add")
        assert (reply.status, endpoint.calls, endpoint.sessions) == (OutcomeStatus.FAILED, ["add"], 1)
        assert said in str(reply.error)


@pytest.mark.parametrize(
    ("code", "text", "more"),
    [
        (-32600, "Session terminated", {}),
        (-32000, "quota exceeded, nothing was done", {}),
        (-32000, "exceeded the 16777216 byte limit", {}),
        (-32000, "x", {"data": "cmbs: not reached"}),
        (-32700, "Failed to parse JSON response", {}),
    ],
)
def test_words_of_a_server_are_a_refusal_and_nothing_more(
    tmp_path: Path, code: int, text: str, more: dict[str, Any]
) -> None:
    with calling(lambda message: refuse(message, code, text, **more), tmp_path) as (served, endpoint):
        for _ in range(2):
            reply = served.call("add")
            assert (reply.status, reply.error) == (OutcomeStatus.FAILED, f"MCP server `s` refused: {text}")
        assert endpoint.sessions == 1


@pytest.mark.req("SS01-TOOL-03")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"id": 99_999, "result": {"content": []}}, "not one of MCP"),
        ({"method": "notifications/message", "params": {"level": "info", "data": 1}}, "not one of MCP"),
        ({"id": None, "result": None}, "not one of MCP"),
        ({"id": 99_999, "error": {"code": -1, "message": "for another"}}, "not one of MCP"),
        ({"id": "ID", "result": {"content": [{"type": "text", "text": "\ud800"}]}}, "cannot be recorded"),
        ({"id": "ID", "result": {"content": [], "structuredContent": {"a": float("nan")}}}, "cannot be recorded"),
    ],
)
def test_a_message_that_is_no_answer_to_the_call_is_refused_at_once(
    tmp_path: Path, body: dict[str, Any], said: str
) -> None:
    def answer(message: Message) -> Given:
        own = {"id": message["id"]} if body.get("id") == "ID" else {}
        return ok({"jsonrpc": "2.0", **body, **own})

    with calling(answer, tmp_path) as (served, _):
        reply = served.call("add", timeout_ms=60_000)
    assert (reply.status, said in str(reply.error)) == (OutcomeStatus.RESULT_REFUSED, True)


FORGOTTEN = {
    "404": (404, {}, b""),
    "404 with an error": (404, JSON, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no session"}}'),
    "404 of the SDK": (404, JSON, b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"none"}}'),
    "400": (400, JSON, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID"}}'),
}


@pytest.mark.parametrize("given", FORGOTTEN.values(), ids=FORGOTTEN.keys())
def test_a_session_that_is_forgotten_is_opened_again_and_what_runs_in_it_is_left_alone(
    tmp_path: Path, given: Given
) -> None:
    began, over = threading.Event(), threading.Event()

    def answer(message: Message) -> Given:
        if message["params"]["name"] == "runs":
            began.set()
            over.wait(TIMEOUT_SECONDS)
        return given if message["params"]["name"] == "lost" else succeed(message)

    with calling(answer, tmp_path) as (served, endpoint), ThreadPoolExecutor() as callers:
        running = callers.submit(served.call, "runs")
        try:
            assert began.wait(TIMEOUT_SECONDS)
            for reply in callers.map(served.call, ["lost"] * 8):
                assert (reply.status, "call it again" in str(reply.error)) == (OutcomeStatus.FAILED, True)
            before = endpoint.sessions
            assert result_of(served.call("add")) == {"content": []}
            assert endpoint.sessions == before + 1
        finally:
            over.set()
        assert result_of(running.result(TIMEOUT_SECONDS)) == {"content": []}
        assert result_of(served.call("add")) == {"content": []}
        assert endpoint.sessions == before + 1


def test_a_call_that_hangs_holds_up_no_other_where_the_server_does_not_take_that_it_is_called_off(
    tmp_path: Path,
) -> None:
    over = threading.Event()

    def answer(message: Message) -> Given:
        if message["params"]["name"] == "hang":
            over.wait(TIMEOUT_SECONDS)
        return succeed(message)

    with calling(answer, tmp_path) as (served, endpoint):
        result_of(served.call("add"))
        taken = threading.Event()

        def take(message: Message) -> None:
            if message["method"] == "notifications/cancelled":
                taken.set()
                over.wait(TIMEOUT_SECONDS)

        endpoint.take = take
        try:
            assert served.call("hang", timeout_ms=300).status is OutcomeStatus.TIMED_OUT
            assert taken.wait(TIMEOUT_SECONDS)
            for _ in range(3):
                assert result_of(served.call("add", timeout_ms=3_000)) == {"content": []}
        finally:
            over.set()
        assert endpoint.sessions == 1


def test_calls_that_hang_use_up_no_connections_and_one_that_gets_none_was_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_http, "_MAX_CONNECTIONS", 3)
    monkeypatch.setattr(mcp_http, "_CONNECT_SECONDS", 0.3)
    monkeypatch.setattr(mcp_http, "_GRACE_SECONDS", 0.2)
    over = threading.Event()

    def answer(message: Message) -> Given:
        if message["params"]["name"] == "hang":
            over.wait(TIMEOUT_SECONDS)
        return succeed(message)

    with calling(answer, tmp_path) as (served, endpoint), ThreadPoolExecutor() as callers:
        result_of(served.call("add"))
        try:
            hanging = [callers.submit(served.call, "hang", timeout_ms=3_000) for _ in range(3)]
            assert eventually(lambda: endpoint.calls.count("hang") == 3)
            # By the time-out of the pool, and by its own.
            for milliseconds in (2_000, 100):
                reply = served.call("add", timeout_ms=milliseconds)
                assert (reply.status, "no connection" in str(reply.error)) == (OutcomeStatus.FAILED, True)
            for each in hanging:
                assert each.result(TIMEOUT_SECONDS).status is OutcomeStatus.TIMED_OUT
            # Their streams are ended, although the server has not answered.
            assert eventually(lambda: served.call("add").status is OutcomeStatus.SUCCEEDED)
        finally:
            over.set()
        assert endpoint.calls.count("add") == 2


REDIRECTS: dict[str, Given] = {
    "to itself": (307, {"location": "/mcp"}, b""),
    "that breaks off": b"HTTP/1.1 307 X\r\nlocation: /mcp\r\ncontent-length: 100\r\n\r\nabc",
    "that is compressed": (307, {"location": "/mcp", "content-encoding": "gzip"}, b"zz"),
    "that is huge": (307, {"location": "/mcp"}, b"x" * 17_000_000),
    "to no address": (307, {"location": "http://[:bad"}, b""),
}


@pytest.mark.parametrize("given", REDIRECTS.values(), ids=REDIRECTS.keys())
def test_a_redirect_is_not_followed_and_leaves_other_calls_alone(tmp_path: Path, given: Given) -> None:
    began, over = threading.Event(), threading.Event()

    def answer(message: Message) -> Given:
        if message["params"]["name"] == "moved":
            return given
        began.set()
        over.wait(TIMEOUT_SECONDS)
        return succeed(message)

    with calling(answer, tmp_path) as (served, endpoint), ThreadPoolExecutor() as callers:
        other = callers.submit(served.call, "other")
        try:
            assert began.wait(TIMEOUT_SECONDS)
            reply = served.call("moved")
        finally:
            over.set()
        assert (reply.status, "a redirect, which is not followed" in str(reply.error)) == (OutcomeStatus.FAILED, True)
        assert result_of(other.result(TIMEOUT_SECONDS)) == {"content": []}
        assert sorted(endpoint.calls) == ["moved", "other"]


def test_a_stream_of_events_that_is_compressed_is_not_unpacked(tmp_path: Path) -> None:
    bomb = gzip.compress(gzip.compress(b":" + b"a" * 100_000_000 + b"\n\n"))
    given = (200, {"content-type": "text/event-stream", "content-encoding": "gzip, gzip"}, bomb)
    with calling(lambda _: given, tmp_path) as (served, _):
        reply = served.call("add")
    assert (reply.status, "not one of MCP" in str(reply.error)) == (OutcomeStatus.RESULT_REFUSED, True)


def test_a_stream_that_breaks_off_is_gone_on_with_and_no_longer_than_the_call_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_http, "_GRACE_SECONDS", 0.2)
    stream = {"content-type": "text/event-stream"}
    asked: list[float] = []
    rest: list[bytes] = []

    def resume() -> Given:
        asked.append(time.monotonic())
        return 200, stream, rest[0] if rest else b"id: 1\nretry: 0\ndata:\n\n"

    with calling(lambda _: (200, stream, b"id: 1\nretry: 10\ndata:\n\n"), tmp_path) as (served, endpoint):
        endpoint.resume = resume
        assert served.call("add", timeout_ms=1_000).status is OutcomeStatus.TIMED_OUT
        # It was asked again every tenth of a second.
        assert eventually(lambda: time.monotonic() - asked[-1] > 0.5, seconds=5)
        assert 1 < len(asked) < 20
        answer = {"jsonrpc": "2.0", "id": 0, "result": {"content": []}}
        rest.append(b"data: " + json.dumps(answer).encode() + b"\n\n")
        assert result_of(served.call("add")) == {"content": []}
        assert len(endpoint.calls) == 2
