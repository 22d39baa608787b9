"""MCP tools against programs on stdio that only pretend to be servers."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from cmbs.substrate.kernel.events import OutcomeStatus
from cmbs.substrate.tools import mcp_stdio
from cmbs.substrate.tools.mcp_servers import StdioServer
from cmbs.substrate.tools.runner import OutcomeUnknown
from tests.support.mcp_served import TIMEOUT_SECONDS, Served, serve_over
from tests.support.tool_calls import result_of

pytestmark = pytest.mark.slow

# --- programs on stdio that are no servers ----------------------------------------------------------------------------


def pretending(program: str, notes: Path, **more: Any) -> Served:
    return Served(StdioServer([sys.executable, "-c", program], **more), notes)


def test_a_program_that_prints_where_it_should_not_is_understood_all_the_same(tmp_path: Path) -> None:
    with serve_over("stdio", tmp_path / "notes") as served:
        assert result_of(served.call("shout")) == {"content": [{"type": "text", "text": "sorry"}]}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["no-such-program-anywhere"], "there is no command `no-such-program-anywhere` here"),
        ([sys.executable, "-c", "raise SystemExit(1)"], "no connection to MCP server `s`: Connection closed"),
    ],
)
def test_a_program_that_does_not_start_is_told_and_nothing_is_in_doubt(
    tmp_path: Path, command: list[str], said: str
) -> None:
    served = Served(StdioServer(command), tmp_path)
    reply = served.call("add")
    served.runner.close()
    assert reply.status is OutcomeStatus.FAILED
    assert said in str(reply.error)


SILENT = "import sys; sys.stdin.read()"


@pytest.mark.parametrize(
    ("start_seconds", "timeout_ms", "said"),
    [
        (30, 300, "was not ready within 0.3 s"),
        (1, 30_000, "no connection to MCP server `s`: it was not ready within 1 s"),
    ],
)
def test_a_program_that_says_nothing_is_not_waited_for(
    tmp_path: Path, start_seconds: int, timeout_ms: int, said: str
) -> None:
    served = pretending(SILENT, tmp_path, start_seconds=start_seconds)
    reply = served.call("add", timeout_ms=timeout_ms)
    served.runner.close()
    assert reply.status is OutcomeStatus.FAILED
    assert said in str(reply.error)


# Answers the handshake as a server of 2025 would, and then does what the test wants.
HANDSHAKE = """
import json, sys
def say(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
def refuse(id, code, message):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        say(message["id"], {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "pretender", "version": "1"}})
    elif message["method"] == "tools/call":
        call = message["id"]
        CALLED
    elif "id" in message:
        refuse(message["id"], -32601, "what?")
"""


def call_it(reaction: str) -> str:
    return HANDSHAKE.replace("CALLED", reaction)


def call_again(reaction: str) -> str:
    """As `called`, but the first call is answered: so that the time of starting is not that of answering."""
    first = "globals().setdefault('first', call)"
    return call_it(f"say(call, {{'content': []}}) if {first} == call else {reaction}")


@pytest.mark.req("SS01-TOOL-03")
@pytest.mark.parametrize(
    ("reaction", "status", "said"),
    [
        ("say(call, {'content': 'not a list'})", OutcomeStatus.RESULT_REFUSED, "not one of MCP"),
        ("say(call, {'nothing': 1})", OutcomeStatus.RESULT_REFUSED, "not one of MCP"),
        ("refuse(call, -32602, 'no')", OutcomeStatus.FAILED, "MCP server `s` refused: no"),
        ("say(call, {'content': [], 'isError': True})", OutcomeStatus.FAILED, "`probe` failed"),
        (
            "say(call, {'content': [], 'structuredContent': {'n': 2**60}})",
            OutcomeStatus.RESULT_REFUSED,
            "is not exact in I-JSON",
        ),
        ("sys.stdout.write('x' * 100_000); sys.stdout.flush()", OutcomeStatus.RESULT_REFUSED, "`probe` allows 1000"),
    ],
)
def test_an_answer_that_is_none_is_refused(tmp_path: Path, reaction: str, status: OutcomeStatus, said: str) -> None:
    served = pretending(call_it(reaction), tmp_path, max_message_bytes=50_000)
    reply = served.call("add", max_result_bytes=1_000)
    served.runner.close()
    assert reply.status is status
    assert said in str(reply.error)


@pytest.mark.req("SS01-TOOL-03")
def test_an_answer_that_is_no_json_is_refused_at_once(tmp_path: Path) -> None:
    served = pretending(call_again("print('{\"jsonrpc\": ', flush=True)"), tmp_path)
    assert result_of(served.call("add")) == {"content": []}
    reply = served.call("add")
    served.runner.close()
    said = "MCP server `s` gave an answer that is not one of MCP"
    assert (reply.status, reply.error) == (OutcomeStatus.RESULT_REFUSED, said)


@pytest.mark.req("SS01-TOOL-04")
def test_a_program_that_stops_hearing_leaves_its_calls_in_doubt_and_is_replaced(tmp_path: Path) -> None:
    # Answers one call, closes its ears, and goes on living.
    served = pretending(
        "import os, time" + call_it("say(call, {'content': []}); os.close(0); time.sleep(60)"), tmp_path
    )
    assert result_of(served.call("add")) == {"content": []}
    with pytest.raises(OutcomeUnknown, match="broke off: Connection closed"):
        served.call("add", {"text": "x" * 1_000_000})
    assert result_of(served.call("add")) == {"content": []}
    served.runner.close()


def test_what_a_program_says_too_much_to_several_is_an_answer_to_none(tmp_path: Path) -> None:
    # Answers when a second call is there.
    flood = "calls = globals().setdefault('calls', []); calls.append(call); len(calls) < 2 or print('x' * 100_000)"
    served = pretending(call_it(flood), tmp_path, max_message_bytes=50_000)
    with ThreadPoolExecutor(2) as callers:
        for reply in [callers.submit(served.call, "add") for _ in range(2)]:
            with pytest.raises(OutcomeUnknown):
                reply.result(TIMEOUT_SECONDS)
    served.runner.close()


@pytest.mark.slow
def test_children_that_a_program_leaves_behind_are_ended_with_it(tmp_path: Path) -> None:
    child = tmp_path / "child"
    forking = (
        "import os, signal, subprocess, sys; from pathlib import Path\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"Path({str(child)!r}).write_text(str(left.pid))\n"
    )
    served = pretending(forking + call_it("say(call, {'content': []}); os._exit(0)"), tmp_path)
    assert result_of(served.call("add")) == {"content": []}
    left = psutil.Process(int(child.read_text("utf-8")))
    served.runner.close()
    assert psutil.wait_procs([left], TIMEOUT_SECONDS)[1] == []


@pytest.mark.slow
def test_a_program_that_does_not_listen_holds_up_no_other_call_and_is_ended(tmp_path: Path) -> None:
    # Ignores every polite way to be ended, and stops reading with its second call.
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + call_again("signal.pause()")
    served = pretending(deaf, tmp_path)
    before = {child.pid for child in psutil.Process().children()}
    assert result_of(served.call("add")) == {"content": []}
    for args in ({}, {"text": "x" * 1_000_000}):
        assert served.call("add", args, timeout_ms=300).status is OutcomeStatus.TIMED_OUT
    programs = [child for child in psutil.Process().children() if child.pid not in before]
    served.runner.close()
    assert programs
    assert psutil.wait_procs(programs, TIMEOUT_SECONDS)[1] == []


DEAF = """
import json, sys, time
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "d", "version": "1"}}
    elif message.get("method") == "tools/call":
        if message["params"]["name"] == "deaf":
            time.sleep(1_000)
        result = {"content": []}
    elif "id" in message:
        error = {"code": -32601, "message": "what?"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_a_program_that_reads_no_more_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_stdio, "_DEAF_SECONDS", 0.3)
    served = pretending(DEAF, tmp_path)
    assert result_of(served.call("add")) == {"content": []}
    # More than the pipe holds.
    for args in ({}, {"pad": "x" * 200_000}):
        assert served.call("deaf", args, timeout_ms=500).status is OutcomeStatus.TIMED_OUT
    assert result_of(served.call("add", {"pad": "x" * 200_000})) == {"content": []}
    served.close()


def test_words_of_a_program_are_a_refusal_and_nothing_more(tmp_path: Path) -> None:
    # It answers a call with the error that it has for what it does not know.
    refusing = DEAF.replace('"tools/call"', '"none"').replace("-32601", "-32000")
    served = pretending(refusing, tmp_path)
    for _ in range(2):
        reply = served.call("add")
        assert (reply.status, reply.error) == (OutcomeStatus.FAILED, "MCP server `s` refused: what?")
    served.close()
