"""The client against servers that break off, mislead or say nothing: typed errors, and always an end."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from cmbs.client import HeadWentBack, Patience, RequestFailed, Unreachable, UnreadableAnswer, connect
from cmbs.errors import InvalidRequest, StoreUnavailable
from tests.support.clients import connect_to
from tests.support.http_server import free_port
from tests.support.scripted_server import ScriptedServer, response, scripted

pytestmark = pytest.mark.slow

KINDS = ("client", "async client")
KEY = "cmbs_0123456789abcdef_0123456789abcdefghijklmnopqrstuv"
HURRIED = Patience(timeout=0.3, deadline=2.0, attempts=2, first_pause=0.001)
OK = response(200, b'{"status":"ok"}')
BUSY = response(503, b'{"error":{"code":"BUSY","message":"later","details":null}}')
DOWN = response(503, b'{"error":{"code":"STORE_UNAVAILABLE","message":"gone","details":null}}')
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def ask(server: ScriptedServer, kind: str, patience: Patience = HURRIED) -> str:
    with connect_to(server.url, kind, key=KEY, patience=patience) as call:
        status: str = call("healthz", {}).status
        return status


@pytest.mark.req("CLIENT-06")
def test_a_broken_answer_ends_in_a_typed_error(subtests: pytest.Subtests) -> None:
    for script, error in [
        (b"", Unreachable),
        (b"HTTP/1.1 200 OK\r\nContent-", Unreachable),
        (b"this is no HTTP\r\n\r\n", Unreachable),
        (response(200, b'{"status":"ok"', length=100), Unreachable),
        (CHUNKED + b'5\r\n{"sta\r\n', Unreachable),
        (CHUNKED + b"zz\r\n", Unreachable),
        (response(200, gzip.compress(b'{"status":"ok"}')[:-12], "Content-Encoding: gzip"), UnreadableAnswer),
        (response(200, b"not gzip at all", "Content-Encoding: gzip"), Unreachable),
        (response(200, b'{"status":"o'), UnreadableAnswer),
        (response(200, b"<html>", "Content-Type: text/html"), UnreadableAnswer),
        (response(302, b"", "Location: http://127.0.0.1:1/elsewhere"), UnreadableAnswer),
        (response(500, b"<html>", "Content-Type: text/html"), RequestFailed),
        (response(502, b"<html>", "Content-Type: text/html"), RequestFailed),
        (BUSY, RequestFailed),
        (DOWN, StoreUnavailable),
    ]:
        for kind in KINDS:
            with subtests.test(script=script, error=error, kind=kind):
                with scripted(script) as server, pytest.raises(error) as raised:
                    ask(server, kind)
                assert KEY not in f"{raised.value!r} {raised.value}"
                assert len(server.requests) <= HURRIED.attempts


@pytest.mark.req("CLIENT-04")
def test_what_can_be_asked_again_is(subtests: pytest.Subtests) -> None:
    for trouble in [b"", BUSY, response(200, b'{"sta', length=40)]:
        for kind in KINDS:
            with subtests.test(trouble=trouble, kind=kind):
                with scripted(trouble, OK) as server:
                    assert ask(server, kind) == "ok"
                assert len(server.requests) == 2


@pytest.mark.req("CLIENT-04")
def test_a_write_that_is_sent_again_is_the_same_request(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            refused = response(409, b'{"error":{"code":"CONFLICT","message":"taken","details":null}}')
            with scripted(b"", refused) as server, connect_to(server.url, kind, key=KEY, patience=HURRIED) as call:
                with pytest.raises(Exception, match="taken"):
                    call("declare_conclusion", {}, session_id="s", conclusion_id="a")
                first, second = server.requests
            assert first == second
            assert re.search(rb"idempotency-key: [0-9a-f-]{36}\r\n", first.lower())


@pytest.mark.req("CLIENT-06")
def test_where_no_server_listens_the_error_says_how_to_start_one(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            url = f"http://127.0.0.1:{free_port()}"
            with (
                connect_to(url, kind, patience=HURRIED) as call,
                pytest.raises(Unreachable, match="start a server there with `cmbs serve`, or correct the address"),
            ):
                call("healthz", {})


@pytest.mark.req("CLIENT-06")
def test_a_server_that_says_nothing_is_given_up(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind), scripted(None) as server, pytest.raises(Unreachable, match="in time"):
            ask(server, kind)


@pytest.mark.req("CLIENT-06")
def test_a_body_that_drips_is_given_up_at_the_deadline(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            slow = Patience(timeout=1.0, deadline=0.5, attempts=1)
            with scripted(response(200, b" " * 100_000), drip_seconds=0.01) as server, pytest.raises(Unreachable):
                ask(server, kind, slow)


@pytest.mark.req("CLIENT-06")
def test_where_no_server_listens_that_is_said(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            url = f"http://127.0.0.1:{free_port()}"
            with (
                connect_to(url, kind, key=KEY, patience=HURRIED) as call,
                pytest.raises(Unreachable, match="no connection"),
            ):
                call("healthz", {})


@pytest.mark.req("CLIENT-06")
def test_a_redirect_is_not_followed_and_takes_no_key_elsewhere(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind), scripted(OK) as other:
            away = response(307, b"", f"Location: {other.url}/healthz")
            with scripted(away) as server, pytest.raises(UnreadableAnswer, match="redirects are not followed"):
                ask(server, kind)
            assert other.requests == []


@pytest.mark.req("CLIENT-05")
def test_a_server_that_goes_back_behind_a_head_is_found_out(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):

            def show(seq: int) -> bytes:
                ontology = dict.fromkeys(
                    ("hypothesis_space_id", "hypothesis_version", "causal_graph_ref", "causal_graph_version"), "x"
                )
                belief = {
                    "session_id": "s",
                    "ontology": ontology,
                    "n_survivors": 1,
                    "entropy_proxy": 0.0,
                    "contradiction": False,
                    "terminated": False,
                }
                content = {**belief, "active_obligation_id": None, "audit_head_event_id": f"e{seq}"}
                return response(200, json.dumps(content).encode(), f"Cmbs-Head: {seq}:e{seq}")

            with scripted(show(5), show(4)) as server, connect_to(server.url, kind, patience=HURRIED) as call:
                call("query_belief", {}, session_id="s")
                with pytest.raises(HeadWentBack, match="event 5"):
                    call("query_belief", {}, session_id="s")


@pytest.mark.req("CLIENT-10")
def test_an_address_that_is_none_is_refused_and_not_shown(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        for address in [
            f"http://x:{KEY}@127.0.0.1:1",
            f"http://127.0.0.1:1/?key={KEY}",
            f"http://127.0.0.1:1/#{KEY}",
            "ftp://127.0.0.1",
            "http://",
            "127.0.0.1:8000",
            "http://[::1",
            f"http://x:{KEY}@[::1",
            "http://[zz]",
            "http://127.0.0.1:http",
            "http://\x00",
            "",
        ]:
            with subtests.test(kind=kind, address=address):
                with pytest.raises(InvalidRequest) as raised, connect_to(address, kind):
                    pass
                assert KEY not in str(raised.value)


@pytest.mark.req("CLIENT-10")
def test_a_client_shows_the_server_and_not_the_key() -> None:
    with connect("http://127.0.0.1:1/cmbs/", key=KEY) as client:
        assert repr(client) == "Client('http://127.0.0.1:1/cmbs/')"
        assert KEY not in repr(vars(client))


@pytest.mark.req("CLIENT-10")
def test_the_key_goes_into_one_header_and_nowhere_else(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            monkeypatch.setenv("CMBS_KEY", KEY)
            with scripted(OK) as server, connect_to(server.url, kind, patience=HURRIED) as call:
                call("healthz", {})
                head, _, rest = server.requests[0].partition(KEY.encode())
            assert head.lower().endswith(b"authorization: bearer ")
            assert KEY.encode() not in rest
            assert KEY.encode() not in head.split(b"\r\n")[0]
