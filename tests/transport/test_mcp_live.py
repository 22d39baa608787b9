"""Subscriptions and the log of MCP over HTTP: streams end when the server stops, and nothing is kept without them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from tests.support.http_server import ServerProcess, serving

pytestmark = pytest.mark.slow


@asynccontextmanager
async def connect(server: ServerProcess, mode: Any) -> AsyncIterator[Client]:
    url = f"http://127.0.0.1:{server.port}/mcp"
    async with (
        httpx2.AsyncClient(headers={"x-cmbs-actor": "agent:scout"}, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client,
    ):
        yield client


async def open_case(client: Client) -> str:
    opened = (await client.call_tool("open_case", {"hypotheses": ["a", "b", "c"]})).structured_content
    assert opened is not None
    return str(opened["handles"]["session_id"])


async def rule_out(client: Client, session_id: str, hypothesis_id: str) -> None:
    args = {"session_id": session_id, "hypotheses": [hypothesis_id], "observation_id": hypothesis_id, "because": "x"}
    assert not (await client.call_tool("rule_out", args)).is_error


@pytest.mark.req("MCP-SERVER-15")
def test_a_stream_over_http_tells_of_changes_and_ends_when_the_server_stops(tmp_path: Path) -> None:
    async def test(server: ServerProcess) -> None:
        with anyio.fail_after(60):
            async with connect(server, "auto") as client, connect(server, "auto") as other:
                session_id = await open_case(client)
                uri = f"cmbs://sessions/{session_id}"
                async with (
                    client.listen(resource_subscriptions=[uri]) as stream,
                    client.listen(tools_list_changed=True) as silent,
                ):
                    for hypothesis_id in ("a", "b"):
                        await rule_out(other, session_id, hypothesis_id)
                        event: Any = await anext(aiter(stream))
                        assert event.uri == uri
                    await anyio.to_thread.run_sync(server.stop)
                    # A stream that is closed on purpose ends; one that broke raises.
                    assert [each async for each in stream] == []
                    assert [each async for each in silent] == []

    with serving(tmp_path, "--store", "memory:") as server:
        anyio.run(test, server)


@pytest.mark.req("MCP-SERVER-15", "MCP-SERVER-16")
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_what_needs_a_connection_is_neither_offered_nor_accepted_over_http_in_the_handshake_era(
    tmp_path: Path,
) -> None:
    async def test(server: ServerProcess) -> None:
        with anyio.fail_after(60):
            async with connect(server, "legacy") as client:
                can = client.server_capabilities
                assert can is not None
                assert can.resources is not None
                assert can.resources.subscribe is False
                with pytest.raises(MCPError, match="needs a connection that is kept"):
                    await client.set_logging_level("debug")
                with pytest.raises(MCPError, match="Method not found"):
                    await client.subscribe_resource("cmbs://sessions/s")

    with serving(tmp_path, "--store", "memory:") as server:
        anyio.run(test, server)
