"""HTTP tools against a real endpoint on loopback that misbehaves in every way it can."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cmbs.errors import InvalidRequest
from cmbs.substrate.kernel.events import OutcomeStatus
from cmbs.substrate.kernel.model import Tool, ToolKind
from cmbs.substrate.tools.credentials import Credentials
from cmbs.substrate.tools.http import HttpTools
from cmbs.substrate.tools.opening import open_tools
from cmbs.substrate.tools.runner import CallContext, OutcomeUnknown, Runner
from tests.support.http_server import free_port
from tests.support.spaces import eventually
from tests.support.tool_calls import CALL, result_of, run, tool_of
from tests.support.tool_endpoint import Endpoint, listening

pytestmark = pytest.mark.slow

TLS = Path(__file__).resolve().parents[3] / "support" / "tls"
TOKEN = "Bearer very-secret-token"
CREDENTIALS = Credentials(
    {"CMBS_TOOL_SECRET_TOKEN": TOKEN, "CMBS_TOOL_SECRET_BAD": "two\nlines", "OTHER": "not for tools"}
)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    runner = Runner({ToolKind.HTTP: lambda: HttpTools(CREDENTIALS)}, CREDENTIALS)
    yield runner
    runner.close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with listening() as endpoint:
        yield endpoint


def http_tool(url: str, method: str = "POST", headers: dict[str, str] | None = None, **more: Any) -> Tool:
    return tool_of(ToolKind.HTTP, {"url": url, "method": method, "headers": headers or {}}, **more)


# --- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-TOOL-02")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_args_are_the_body_and_the_key_is_a_header(runner: Runner, endpoint: Endpoint, method: str) -> None:
    reply = run(runner, http_tool(endpoint.url + "/act", method), {"b": [1.5, None], "a": "é"})
    assert result_of(reply) == {"at": "/act"}
    (seen,) = endpoint.seen
    assert (seen.method, seen.body) == (method, '{"a":"é","b":[1.5,null]}'.encode())
    assert seen.headers["content-type"] == "application/json"
    assert (seen.headers["idempotency-key"], seen.headers["x-cmbs-execution"]) == ("key-1", "execution-1")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_args_are_the_query_where_there_is_no_body(runner: Runner, endpoint: Endpoint, method: str) -> None:
    args = {"name": "a b&c", "on": True, "n": 2, "tags": ["x", "é"], "none": None}
    run(runner, http_tool(endpoint.url + "/find?v=1", method), args)
    (seen,) = endpoint.seen
    assert (seen.method, seen.body) == (method, b"")
    assert seen.path == "/find?v=1&n=2&name=a%20b%26c&on=true&tags=x&tags=%C3%A9"


def test_a_query_of_nothing_leaves_the_url_as_it_is(runner: Runner, endpoint: Endpoint) -> None:
    run(runner, http_tool(endpoint.url + "/find", "GET"))
    assert endpoint.seen[0].path == "/find"


def test_an_argument_in_the_path_cannot_leave_its_place(runner: Runner, endpoint: Endpoint) -> None:
    tool = http_tool(endpoint.url + "/services/{name}/{n}")
    run(runner, tool, {"name": "../../admin?x=1#y", "n": 7, "why": "slow"})
    (seen,) = endpoint.seen
    assert (seen.path, json.loads(seen.body)) == ("/services/..%2F..%2Fadmin%3Fx%3D1%23y/7", {"why": "slow"})


@pytest.mark.parametrize(
    ("path", "method", "args", "said"),
    [
        *(
            ("/services/{name}", "POST", args, "`name` must be text or a number that can stand in a path")
            for args in ({}, {"name": ""}, {"name": "."}, {"name": ".."}, {"name": None}, {"name": ["a"]})
        ),
        ("/find", "GET", {"deep": {"a": 1}}, "`deep` is nested and cannot be sent in a query"),
    ],
)
def test_what_cannot_stand_in_a_path_or_a_query_is_not_sent(
    runner: Runner, endpoint: Endpoint, path: str, method: str, args: dict[str, Any], said: str
) -> None:
    reply = run(runner, http_tool(endpoint.url + path, method), args)
    assert (reply.status, reply.error, endpoint.seen) == (OutcomeStatus.FAILED, said, [])


def test_a_key_of_any_text_is_sent_as_visible_ascii_and_without_one_the_execution_is_the_key(
    runner: Runner, endpoint: Endpoint
) -> None:
    tool = http_tool(endpoint.url + "/act")
    run(runner, tool, call=CallContext("ops", "execution-1", "é\n%", 1))
    run(runner, tool, call=CallContext("ops", "execution-1", None, 1))
    assert [seen.headers["idempotency-key"] for seen in endpoint.seen] == ["%C3%A9%0A%25", "execution-1"]


# --- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-TOOL-06")
def test_a_credential_reaches_the_endpoint_and_nothing_else(runner: Runner, endpoint: Endpoint) -> None:
    headers = {"Authorization": "CMBS_TOOL_SECRET_TOKEN"}
    assert result_of(run(runner, http_tool(endpoint.url + "/act", headers=headers))) == {"at": "/act"}
    assert endpoint.seen[0].headers["authorization"] == TOKEN
    refused = run(runner, http_tool(endpoint.url + "/leak", headers=headers))
    assert refused.error is not None
    assert refused.error.endswith("answered with status 403: who are you, [redacted]?")
    echoed = run(runner, http_tool(endpoint.url + "/echo", headers=headers))
    assert (echoed.status, bytes(echoed.result)) == (OutcomeStatus.RESULT_REFUSED, b"null")
    assert echoed.error == "the result holds a credential of the tool"


@pytest.mark.parametrize(
    ("variable", "said"), [("CMBS_TOOL_SECRET_NONE", "is not set"), ("CMBS_TOOL_SECRET_BAD", "holds nothing that")]
)
def test_without_a_usable_credential_nothing_is_sent(
    runner: Runner, endpoint: Endpoint, variable: str, said: str
) -> None:
    reply = run(runner, http_tool(endpoint.url + "/act", headers={"X-Token": variable}))
    assert (reply.status, endpoint.seen) == (OutcomeStatus.FAILED, [])
    assert f"the environment variable `{variable}` {said}" in str(reply.error)


def test_only_listed_hosts_are_called(endpoint: Endpoint) -> None:
    port = endpoint.url.rpartition(":")[2]
    for hosts, allowed in (({"127.0.0.1"}, True), ({f"127.0.0.1:{port}"}, True), ({"127.0.0.1:1", "other"}, False)):
        runner = Runner({ToolKind.HTTP: partial(HttpTools, CREDENTIALS, frozenset(hosts))})
        reply = run(runner, http_tool(endpoint.url + "/act"))
        runner.close()
        assert (reply.status is OutcomeStatus.SUCCEEDED) is allowed
    assert len(endpoint.seen) == 2


@pytest.mark.parametrize("trusted", [True, False])
def test_over_tls_only_who_is_trusted_is_called(trusted: bool) -> None:
    certificate = TLS / "certificate.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, TLS / "key.pem")
    runner = open_tools({"CMBS_TOOL_CA": str(certificate)} if trusted else {})
    with listening(context) as endpoint:
        reply = run(runner, http_tool(endpoint.url + "/act"))
    runner.close()
    if trusted:
        assert result_of(reply) == {"at": "/act"}
    else:
        assert reply.status is OutcomeStatus.FAILED
        assert "certificate verify failed" in str(reply.error)
        assert endpoint.seen == []


@pytest.mark.parametrize(("name", "why"), [("none.pem", "No such file"), ("key.pem", "no certificates in PEM")])
def test_certificates_that_cannot_be_read_stop_the_start(name: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=f"cannot read `.*{name}`: {why}"):
        open_tools({"CMBS_TOOL_CA": str(TLS / name)})


# --- what comes back --------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-TOOL-03")
def test_a_result_is_canonical_json_and_nothing_is_null(runner: Runner, endpoint: Endpoint) -> None:
    assert bytes(run(runner, http_tool(endpoint.url + "/number")).result) == b"41.5"
    assert bytes(run(runner, http_tool(endpoint.url + "/empty")).result) == b"null"


@pytest.mark.req("SS01-TOOL-03")
@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/refuse", OutcomeStatus.FAILED, 'answered with status 422: {"detail": "no such service"}'),
        ("/long_refusal", OutcomeStatus.FAILED, "answered with status 500: xxx"),
        ("/redirect", OutcomeStatus.FAILED, "answered with status 307, a redirect, which is not followed"),
        ("/invalid", OutcomeStatus.RESULT_REFUSED, "the result cannot be recorded: malformed JSON"),
        ("/duplicate", OutcomeStatus.RESULT_REFUSED, "duplicate key `ok`"),
        ("/encoded", OutcomeStatus.RESULT_REFUSED, "encoded as `gzip`"),
        ("/huge", OutcomeStatus.RESULT_REFUSED, "`probe` allows 1000"),
        ("/hang", OutcomeStatus.TIMED_OUT, "`probe` gave no answer within 400 ms"),
        ("/drip", OutcomeStatus.TIMED_OUT, "`probe` gave no answer within 400 ms"),
    ],
)
def test_what_goes_wrong_is_told_and_tried_once(
    runner: Runner, endpoint: Endpoint, path: str, status: OutcomeStatus, said: str
) -> None:
    timeout = 400 if status is OutcomeStatus.TIMED_OUT else 30_000
    reply = run(runner, http_tool(endpoint.url + path, max_result_bytes=1_000, timeout_ms=timeout))
    assert (reply.status, bytes(reply.result), len(endpoint.seen)) == (status, b"null", 1)
    assert said in str(reply.error)
    assert len(str(reply.error)) <= 500


@pytest.mark.req("SS01-TOOL-04")
@pytest.mark.parametrize("path", ["/reset", "/close", "/cut"])
def test_where_the_connection_breaks_after_a_writing_call_was_sent_the_outcome_is_unknown(
    runner: Runner, endpoint: Endpoint, path: str
) -> None:
    with pytest.raises(OutcomeUnknown, match="broke off: "):
        run(runner, http_tool(endpoint.url + path))
    assert len(endpoint.seen) == 1


@pytest.mark.req("SS01-TOOL-04")
@pytest.mark.parametrize("status", [502, 504])
def test_what_is_lost_behind_a_gateway_is_in_doubt(runner: Runner, endpoint: Endpoint, status: int) -> None:
    with pytest.raises(OutcomeUnknown, match=f"answered with status {status}: a gateway got no answer"):
        run(runner, http_tool(f"{endpoint.url}/status/{status}"))


@pytest.mark.parametrize("path", ["/reset", "/close", "/cut", "/status/504"])
def test_where_it_breaks_in_a_call_without_effects_it_has_failed(runner: Runner, endpoint: Endpoint, path: str) -> None:
    reply = run(runner, http_tool(endpoint.url + path, "GET", writes=False))
    assert reply.status is OutcomeStatus.FAILED


def test_where_no_process_listens_it_has_failed_and_is_not_in_doubt(runner: Runner) -> None:
    port = free_port()
    reply = run(runner, http_tool(f"http://127.0.0.1:{port}/act"))
    assert reply.status is OutcomeStatus.FAILED
    assert str(reply.error).startswith(f"no connection to `127.0.0.1:{port}`: ")


def test_where_no_connection_is_accepted_in_time_it_has_failed_and_is_not_in_doubt(runner: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        port = deaf.getsockname()[1]
        callers = []
        # Fill what the system queues for it, until one more gets no answer.
        for _ in range(16):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
            callers.append(caller)
        reply = run(runner, http_tool(f"http://127.0.0.1:{port}/act", timeout_ms=300))
        for caller in callers:
            caller.close()
    assert (reply.status, reply.error) == (OutcomeStatus.FAILED, f"no connection to `127.0.0.1:{port}` within 300 ms")


def test_closing_ends_a_call_under_way_which_is_then_in_doubt(endpoint: Endpoint) -> None:
    runner = Runner({ToolKind.HTTP: lambda: HttpTools(CREDENTIALS)})
    with ThreadPoolExecutor() as callers:
        reply = callers.submit(run, runner, http_tool(endpoint.url + "/hang", timeout_ms=60_000))
        assert eventually(lambda: bool(endpoint.seen))
        runner.close()
        with pytest.raises(OutcomeUnknown, match="the server is stopping"):
            reply.result(30)
    after = run(runner, http_tool(endpoint.url + "/act"), call=CALL)
    assert after.error == f"nothing was sent to `{endpoint.url[7:]}`: the server is stopping"
