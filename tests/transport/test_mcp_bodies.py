"""Bodies that are too large for MCP, over real connections: the caller gets an answer in our words in any case."""

import http.client
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from cmbs.mcp.bodies import MAX_MESSAGE_BYTES
from tests.support.http_server import ServerProcess, free_port, serving
from tests.support.mcp_served import wait_for_port

pytestmark = [pytest.mark.req("MCP-SERVER-08"), pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "x-cmbs-actor": "agent:scout",
}
PIECE = 65_536


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("bodies"), "--store", "memory:") as server:
        yield server


def build_ping(size: int) -> bytes:
    """A request of exactly this size."""
    start = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"fill":"'
    return start + b"x" * (size - len(start) - 4) + b'"}}}'


def post(port: int, body: Any, path: str = "/mcp", **headers: str) -> tuple[int, bytes]:
    """Send all of a body before anything of the answer is read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body, {**HEADERS, **headers}, encode_chunked=not isinstance(body, bytes))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def check_refusal(status: int, content: bytes) -> dict[str, Any]:
    error = json.loads(content)["error"]
    assert (status, error["code"]) == (413, "LIMIT_EXCEEDED")
    details: dict[str, Any] = error["details"]
    assert (details["limit"], details["maximum"]) == ("mcp_message_bytes", MAX_MESSAGE_BYTES)
    assert details["next"] == "send less in one message: this limit is fixed"
    return details


@pytest.mark.slow
def test_a_message_of_the_limit_goes_through_and_one_byte_more_does_not(server: ServerProcess) -> None:
    status, content = post(server.port, build_ping(MAX_MESSAGE_BYTES))
    assert (status, b'"result"' in content) == (200, True)
    assert check_refusal(*post(server.port, build_ping(MAX_MESSAGE_BYTES + 1)))["actual"] == MAX_MESSAGE_BYTES + 1


@pytest.mark.parametrize("size", [5_000_000, 40_000_000])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_caller_that_sends_everything_first_gets_the_answer(
    server: ServerProcess, size: int, in_pieces: bool
) -> None:
    body = build_ping(size)
    pieces = (body[start : start + PIECE] for start in range(0, size, PIECE))
    headers = {"transfer-encoding": "chunked"} if in_pieces else {}
    check_refusal(*post(server.port, pieces if in_pieces else body, **headers))


@contextmanager
def serve_gateway(store: Path) -> Iterator[int]:
    port = free_port()
    upstream = f"git={sys.executable} -m mcp_server_git"
    options = ["--port", str(port), "--store", f"sqlite:///{store}", "--upstream", upstream]
    with Popen([sys.executable, "-m", "cmbs", "gateway", *options], cwd=ROOT) as process:
        try:
            wait_for_port(port, process)
            yield port
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.deep
def test_the_gateway_answers_in_the_same_words(tmp_path: Path) -> None:
    with serve_gateway(tmp_path / "g.db") as port:
        check_refusal(*post(port, build_ping(5_000_000)))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_of_the_sdk_goes_on_after_a_refusal(server: ServerProcess, mode: Any) -> None:
    async def use() -> None:
        async with Client(f"{server.url}/mcp", mode=mode) as client:
            # A broken connection would end the client, and not only the call.
            with pytest.raises(MCPError, match="error response"):
                await client.call_tool("whoami", {"fill": "x" * 5_000_000})
            assert not (await client.call_tool("whoami", {})).is_error

    anyio.run(use)
