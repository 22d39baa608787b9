"""`cmbs gateway` as a process, in front of MCP servers of other projects, on standard streams and over HTTP."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests.support.http_server import serving

ROOT = Path(__file__).resolve().parents[2]
FILESYSTEM = ROOT / ".venv/mcp-servers/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
GIT = f"git={sys.executable} -m mcp_server_git"
needs_filesystem = pytest.mark.skipif(
    not (FILESYSTEM.exists() and shutil.which("node")),
    reason="the MCP server for files is not installed: `make .venv/.mcp-servers`, with npm on the PATH",
)


def gateway(store: Path, *arguments: str) -> list[str]:
    return ["-m", "cmbs", "gateway", "--store", f"sqlite:///{store}", "--wait", "0.2", *arguments]


def text_of(result: Any) -> str:
    return str(result.content[0].text)


def make_repository(directory: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(directory)], check=True)
    (directory / "a.txt").write_text("hello\n")
    return directory


def run(work: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await work

    return asyncio.run(bounded())


def check_store(store: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cmbs", "verify", "--store", f"sqlite:///{store}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.deep
@needs_filesystem
@pytest.mark.req("MCP-GW-04", "MCP-GW-05")
def test_servers_of_both_eras_serve_clients_of_both_eras_through_one_gateway(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repo")
    files = f"files=node {FILESYSTEM} {repository}"
    arguments = gateway(tmp_path / "g.db", "--upstream", GIT, "--upstream", files)
    program = StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)

    async def use(mode: Any) -> set[str]:
        async with Client(program, mode=mode) as client:
            assert client.session.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
            names = {each.name for each in (await client.list_tools()).tools}
            status = await client.call_tool("git_git_status", {"repo_path": str(repository)})
            assert "a.txt" in text_of(status)
            read = await client.call_tool("files_read_text_file", {"path": str(repository / "a.txt")})
            assert (text_of(read), read.is_error) == ("hello\n", False)
            assert read.structured_content == {"content": "hello\n"}
            for name, args in (
                ("git_git_add", {"repo_path": str(repository), "files": ["a.txt"]}),
                ("files_write_file", {"path": str(repository / "b.txt"), "content": "x"}),
            ):
                waiting = await client.call_tool(name, args)
                assert waiting.is_error
                assert "has to approve the call" in text_of(waiting)
            missing = await client.call_tool("files_read_text_file", {"path": str(repository / "none")})
            assert missing.is_error
        return names

    modern = run(use("auto"))
    assert run(use("legacy")) == modern
    assert {"git_git_status", "files_write_file"} <= modern
    assert not (repository / "b.txt").exists()
    assert "good space:mcp" in check_store(tmp_path / "g.db")


@contextmanager
def serve_gateway(store: Path, *arguments: str, **environment: str) -> Iterator[str]:
    """A gateway over HTTP, once it answers; stopped in the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, *gateway(store, "--port", str(port), *arguments)]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}) as process:
        try:
            for _ in range(600):
                with socket.socket() as client:
                    client.settimeout(1)
                    if client.connect_ex(("127.0.0.1", port)) == 0:
                        break
                with suppress(subprocess.TimeoutExpired):
                    pytest.fail(f"the gateway ended with {process.wait(0.1)}")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.slow
def test_a_gateway_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    upstream = f"eff={sys.executable} -m tests.support.mcp_effects {tmp_path / 'effects'}"
    with serve_gateway(tmp_path / "g.db", "--upstream", upstream) as url:
        port = str(urlsplit(url).port)
        (parent,) = [each for each in psutil.Process().children() if port in each.cmdline()]
        workers = parent.children(recursive=True)
        assert workers
        parent.kill()
        assert psutil.wait_procs(workers, timeout=60)[1] == []


@pytest.mark.slow
@pytest.mark.req("MCP-GW-09", "MCP-GW-10")
def test_over_http_actors_have_credentials_of_their_own_and_a_killed_server_leaves_an_unknown_outcome(
    tmp_path: Path,
) -> None:
    wiped = tmp_path / "wiped"
    config = tmp_path / "gateway.json"
    command = [sys.executable, "-m", "tests.support.mcp_dying", str(wiped)]
    config.write_text(
        json.dumps(
            {
                "servers": {"dying": {"transport": "stdio", "command": command, "env": {"WHO": "SHARED_NAME"}}},
                "credentials": {"medic": {"dying": {"WHO": "MEDIC_NAME"}}},
            }
        )
    )
    store = tmp_path / "g.db"

    async def use(url: str, actor: str, mode: Any, work: Any) -> Any:
        async with (
            httpx2.AsyncClient(headers={"x-cmbs-actor": f"agent:{actor}"}, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            return await work(client)

    async def ask_name(client: Client) -> str:
        return text_of(await client.call_tool("get_secret_name", {}))

    async def wipe(client: Client) -> str:
        return text_of(await client.call_tool("wipe", {}))

    with serve_gateway(store, "--config", str(config), SHARED_NAME="everyone", MEDIC_NAME="the medic") as url:
        assert run(use(url, "scout", "auto", ask_name)) == "everyone"
        assert run(use(url, "medic", "auto", ask_name)) == "the medic"
        assert run(use(url, "medic", "legacy", ask_name)) == "the medic"
        assert "has to approve" in run(use(url, "scout", "auto", wipe))
        approve_all(store)
        assert run(use(url, "scout", "legacy", wipe)).startswith("Unknown")
        assert run(use(url, "scout", "auto", wipe)).startswith("Unknown")
        assert run(use(url, "scout", "auto", ask_name)) == "everyone"
    assert wiped.read_text() == "wiped\n"
    assert "good space:mcp" in check_store(store)


@pytest.mark.slow
@pytest.mark.req("MCP-GW-12")
@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.deep)])
def test_a_host_over_http_is_shown_the_approval_in_the_console_of_the_server(tmp_path: Path, mode: Any) -> None:
    repository = make_repository(tmp_path / "repo")
    added = {"repo_path": str(repository), "files": ["a.txt"]}
    asked: list[str] = []

    async def approve_there(context: Any, params: Any) -> ElicitResult:
        """Do what the console does for who signs in at this address."""
        asked.append(params.url)
        address = urlsplit(params.url)
        (space,), (proposal,) = parse_qs(address.query)["space"], parse_qs(address.query)["proposal"]
        headers = {"x-cmbs-actor": "operator:boss"}
        async with httpx2.AsyncClient(base_url=f"http://{address.netloc}/v1/spaces/{space}", headers=headers) as http:
            for approval_id in (await http.get(f"/proposals/{proposal}")).json()["approval_ids"]:
                (await http.post(f"/approvals/{approval_id}/approve", json={})).raise_for_status()
        return ElicitResult(action="accept")

    async def use(url: str) -> str:
        async with Client(url, mode=mode, elicitation_callback=approve_there) as client:
            return text_of(await client.call_tool("git_add", added))

    with (
        serving(tmp_path) as server,
        serve_gateway(tmp_path / "unused.db", "--server", server.url, "--wait", "60", "--upstream", GIT) as url,
    ):
        assert "staged" in run(use(url))
        assert [each.startswith(f"{server.url}/inbox?space=mcp&proposal=c-") for each in asked] == [True]
    staged = subprocess.run(
        ["git", "-C", repository, "diff", "--cached", "--name-only"], capture_output=True, check=True
    )
    assert staged.stdout == b"a.txt\n"


def approve_all(store: Path) -> None:
    """An operator, by a server of their own over the same store."""
    from cmbs.bootstrap import Settings, build_app
    from cmbs.mcp.asking import identify_caller, open_api

    async def approve() -> int:
        app = build_app(Settings(store=f"sqlite:///{store}"), {})
        operator = open_api(app).acting_as(identify_caller("operator:boss"))
        pending = (await operator.list_approvals("mcp", status="pending")).approvals
        for each in pending:
            await operator.approve("mcp", each.approval_id)
        app.close()
        return len(pending)

    assert run(approve()) == 1


@pytest.mark.slow
@pytest.mark.req("MCP-DECIDE-01")
def test_cmbs_decide_answers_gateways_over_http_and_grpc(tmp_path: Path) -> None:
    import grpc

    from cmbs.mcp.deciders.proto import ext_mcp_pb2 as pb
    from cmbs.mcp.deciders.proto import ext_mcp_pb2_grpc as pb_grpc
    from tests.support.http_server import free_port
    from tests.support.mcp_served import wait_for_port

    port, grpc_port, store = free_port(), free_port(), tmp_path / "d.db"
    options = ["--port", str(port), "--grpc-port", str(grpc_port), "--store", f"sqlite:///{store}", "--wait", "0"]
    process = subprocess.Popen([sys.executable, "-m", "cmbs", "decide", *options], cwd=ROOT)
    try:
        wait_for_port(port, process)
        wait_for_port(grpc_port, process)
        # In a new space everything asks, and is not waited for.
        asked = {"method": "tools/call", "params": {"name": "search", "arguments": {}}}
        told = httpx2.post(f"http://127.0.0.1:{port}/docker/before", json=asked, timeout=60).json()
        assert (told["isError"], "it was withdrawn" in told["content"][0]["text"]) == (True, True)
        with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            stub: Any = pb_grpc.ExtMcpStub(channel)  # type: ignore[no-untyped-call]
            request = pb.McpRequest(service_names=["s"], method="tools/call", mcp_request=b'{"name": "search"}')
            assert "it was withdrawn" in stub.CheckRequest(request, timeout=60).error.reason
    finally:
        process.terminate()
        process.wait(60)
    assert "good space:mcp" in check_store(store)
