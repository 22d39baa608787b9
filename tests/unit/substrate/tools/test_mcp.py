"""MCP tools against real servers of the SDK, on stdio and over HTTP, and against endpoints that only pretend."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from cmbs.substrate.kernel.events import OutcomeStatus
from cmbs.substrate.kernel.model import ToolKind
from cmbs.substrate.tools.mcp_servers import MESSAGE_BYTES, HttpServer, McpServer, StdioServer
from cmbs.substrate.tools.runner import CallContext, OutcomeUnknown
from tests.support.mcp_endpoint import answering, ok
from tests.support.mcp_served import TIMEOUT_SECONDS, Served, serve_over
from tests.support.spaces import eventually
from tests.support.tool_calls import result_of, run, tool_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["stdio", "http"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve_over(request.param, tmp_path_factory.mktemp(request.param) / "notes") as served:
        yield served


# --- both transports --------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-TOOL-01")
def test_a_call_gives_the_structured_content(served: Served) -> None:
    before = len(served.begun)
    assert result_of(served.call("add", {"a": 1, "b": 2})) == {"sum": 3}
    assert served.begun[before:] == ["add"]


def test_a_tool_without_structured_content_gives_its_blocks(served: Served) -> None:
    assert result_of(served.call("words")) == {"content": [{"type": "text", "text": "plain words"}]}


@pytest.mark.req("SS01-TOOL-02")
def test_the_key_and_the_execution_are_told_to_the_server(served: Served) -> None:
    assert result_of(served.call("meta")) == {"cmbs/execution-id": "execution-1", "cmbs/idempotency-key": "key-1"}
    unkeyed = served.call("meta", call=CallContext("ops", "execution-2", None, 1))
    assert result_of(unkeyed) == {"cmbs/execution-id": "execution-2"}


@pytest.mark.req("SS01-TOOL-03")
@pytest.mark.parametrize(
    ("name", "args", "status", "said"),
    [
        ("fail", {}, OutcomeStatus.FAILED, "no such service, "),
        ("nothing", {}, OutcomeStatus.FAILED, "Unknown tool: nothing"),
        ("ask_back", {}, OutcomeStatus.FAILED, "asks for more input, which this server does not give"),
        ("add", {"a": "one"}, OutcomeStatus.FAILED, "`probe` failed: "),
        ("huge", {"size": 2_000}, OutcomeStatus.RESULT_REFUSED, "`probe` allows 1000"),
    ],
)
def test_what_goes_wrong_is_told(
    served: Served, name: str, args: dict[str, Any], status: OutcomeStatus, said: str
) -> None:
    reply = served.call(name, args, max_result_bytes=1_000)
    assert (reply.status, bytes(reply.result)) == (status, b"null")
    assert said in str(reply.error)


@pytest.mark.slow
@pytest.mark.req("SS01-TOOL-03")
def test_a_tool_that_hangs_runs_out_of_time_and_holds_up_no_other_call(served: Served) -> None:
    before = served.begun.count("hang")
    served.call("add", {"a": 1, "b": 1})
    with ThreadPoolExecutor() as callers:
        hanging = callers.submit(served.call, "hang", timeout_ms=4_000)
        assert eventually(lambda: served.begun.count("hang") > before)
        assert result_of(served.call("add", {"a": 2, "b": 2})) == {"sum": 4}
        reply = hanging.result(TIMEOUT_SECONDS)
    assert (reply.status, reply.error) == (OutcomeStatus.TIMED_OUT, "`probe` gave no answer within 4000 ms")
    assert result_of(served.call("add", {"a": 3, "b": 3})) == {"sum": 6}
    assert served.begun.count("hang") == before + 1


def test_many_calls_at_once_get_each_its_own_answer(served: Served) -> None:
    with ThreadPoolExecutor(8) as callers:
        sums = list(callers.map(lambda n: result_of(served.call("add", {"a": n, "b": n})), range(8)))
    assert sums == [{"sum": 2 * n} for n in range(8)]


@pytest.mark.slow
@pytest.mark.req("SS01-TOOL-04")
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_server_that_dies_in_a_writing_call_leaves_it_in_doubt_and_does_not_get_it_twice(
    tmp_path: Path, transport: str
) -> None:
    with serve_over(transport, tmp_path / "notes") as served:
        served.call("add", {"a": 1, "b": 1})
        with pytest.raises(OutcomeUnknown, match="the exchange with MCP server `s` broke off"):
            served.call("die")
        assert served.begun == ["add", "die"]
        if transport == "stdio":
            # A program is started again for the next call.
            assert served.call("die", writes=False).status is OutcomeStatus.FAILED
            assert result_of(served.call("add", {"a": 1, "b": 1})) == {"sum": 2}
        else:
            gone = served.call("add", {"a": 1, "b": 1})
            assert gone.status is OutcomeStatus.FAILED
            assert "no connection to MCP server `s`" in str(gone.error)


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"server": "other"}, "no MCP server is configured as `other`"),
        (None, "`target` of a tool of kind `mcp`: expected `object`, got `null`"),
    ],
)
def test_without_a_target_that_is_configured_nothing_is_called(served: Served, target: Any, said: str) -> None:
    reply = run(served.runner, tool_of(ToolKind.MCP, target))
    assert (reply.status, reply.error) == (OutcomeStatus.FAILED, said)


@pytest.mark.parametrize(
    "server", [StdioServer(["x"], {"TOKEN": "NOT_SET"}), HttpServer("http://127.0.0.1:1/", {"X": "NOT_SET"})]
)
def test_without_its_credential_a_server_is_not_called(server: McpServer, tmp_path: Path) -> None:
    reply = Served(server, tmp_path).call("add")
    assert (reply.status, reply.error) == (OutcomeStatus.FAILED, "the environment variable `NOT_SET` is not set")


@pytest.mark.req("SS01-TOOL-06")
def test_the_environment_of_a_program_is_what_was_configured_and_its_credential_is_in_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMBS_STORE", "not for tools")
    notes = str(tmp_path / "notes")
    with serve_over("stdio", Path(notes)) as served:
        assert "no such service, [redacted]" in str(served.call("fail").error)
        (program,) = [child for child in psutil.Process().children() if notes in child.cmdline()]
        assert "CMBS_STORE" not in program.environ()


# --- endpoints over HTTP that are no servers --------------------------------------------------------------------------


@pytest.mark.req("SS01-TOOL-03")
@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ((200, {"content-type": "application/json"}, b'{"jsonrpc": '), OutcomeStatus.RESULT_REFUSED, "not one of MCP"),
        ((200, {"content-type": "text/html"}, b"<p>hello</p>"), OutcomeStatus.RESULT_REFUSED, "not one of MCP"),
        ((200, {}, b'{"jsonrpc":"2.0","id":1,"result":{}}'), OutcomeStatus.RESULT_REFUSED, "not one of MCP"),
        ((307, {"location": "http://127.0.0.1:1/"}, b""), OutcomeStatus.FAILED, "not followed"),
        (
            (200, {"content-type": "application/json"}, b'"' + b"x" * MESSAGE_BYTES + b'"'),
            OutcomeStatus.RESULT_REFUSED,
            "`probe` allows 1000",
        ),
        (
            (200, {"content-type": "text/event-stream"}, b"data: " + b"x" * MESSAGE_BYTES + b"\n\n"),
            OutcomeStatus.RESULT_REFUSED,
            "`probe` allows 1000",
        ),
    ],
)
def test_an_answer_over_http_that_is_none_is_told(
    tmp_path: Path, answer: tuple[int, dict[str, str], bytes], status: OutcomeStatus, said: str
) -> None:
    with answering(lambda _: answer) as endpoint:
        served = Served(endpoint.server, tmp_path)
        reply = served.call("add", max_result_bytes=1_000)
        served.runner.close()
    assert reply.status is status
    assert said in str(reply.error)


def test_an_answer_that_is_compressed_is_refused(tmp_path: Path) -> None:
    zipped = (200, {"content-type": "application/json", "content-encoding": "gzip"}, b"\x1f\x8b")
    with answering(lambda _: zipped) as endpoint:
        served = Served(endpoint.server, tmp_path)
        reply = served.call("add")
        served.runner.close()
    assert (reply.status, "not one of MCP" in str(reply.error)) == (OutcomeStatus.RESULT_REFUSED, True)


@pytest.mark.slow
def test_closing_ends_a_call_under_way_which_is_then_in_doubt(tmp_path: Path) -> None:
    with serve_over("stdio", tmp_path / "notes") as served, ThreadPoolExecutor() as callers:
        reply = callers.submit(served.call, "hang", timeout_ms=60_000)
        assert eventually(lambda: bool(served.begun))
        served.runner.close()
        with pytest.raises(OutcomeUnknown, match="the server is stopping"):
            reply.result(TIMEOUT_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["at once", "in the headers", "in the body", "in a stream"])
def test_a_call_that_breaks_off_leaves_another_on_the_same_connection_alone(tmp_path: Path, broken: str) -> None:
    """Both calls are under way when the first breaks off."""
    both, over = threading.Barrier(2, timeout=TIMEOUT_SECONDS), threading.Event()
    parts = {
        "at once": b"",
        "in the headers": b"HTTP/1.1 200 OK\r\ncontent-type: appl",
        "in the body": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        "in a stream": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100\r\n\r\ndata: {",
    }

    def answer(message: dict[str, Any]) -> tuple[int, dict[str, str], bytes] | bytes:
        both.wait()
        if message["params"]["name"] == "breaks":
            return parts[broken]
        over.wait(TIMEOUT_SECONDS)
        return ok({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})

    with answering(answer) as endpoint, ThreadPoolExecutor(2) as callers:
        served = Served(endpoint.server, tmp_path)
        other = callers.submit(served.call, "other")
        try:
            with pytest.raises(OutcomeUnknown):
                served.call("breaks")
        finally:
            over.set()
        assert result_of(other.result(TIMEOUT_SECONDS)) == {"content": []}
        callers.submit(both.wait)
        assert result_of(served.call("other")) == {"content": []}
        served.runner.close()
