"""MCP at `/mcp` of the HTTP server: the same keys, the same scopes, both eras, and no way around the gate."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from cmbs.belief_api import create_app
from cmbs.bootstrap import Settings
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.mcp.server.mounting import METADATA_PATH
from tests.support.bounded import run
from tests.support.mcp_upstream import text_of

URL = "http://127.0.0.1:8080"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"accept": "application/json, text/event-stream"}


class Mounted:
    def __init__(self, app: Any, registry: KeyRegistry) -> None:
        self.app = app
        self.registry = registry

    def http(self, address: str = "127.0.0.1", **headers: str) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=self.app, client=(address, 1234))
        return httpx2.AsyncClient(transport=transport, base_url=URL, headers=headers, timeout=60)

    @asynccontextmanager
    async def client(self, mode: Any, **headers: str) -> AsyncIterator[Client]:
        async with (
            self.http(**headers) as http,
            Client(streamable_http_client(f"{URL}/mcp", http_client=http), mode=mode, cache=None) as client,
        ):
            yield client


@asynccontextmanager
async def mounted() -> AsyncIterator[Mounted]:
    app = create_app(settings=Settings(store="memory:"))
    async with app.router.lifespan_context(app):
        yield Mounted(app, app.service.gate._registry)


@pytest.mark.req("MCP-SERVER-07")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_caller_is_who_its_key_says_and_may_do_what_its_scopes_say(mode: str) -> None:
    async def test() -> None:
        async with mounted() as here:
            async with here.client(mode, **{"x-cmbs-actor": "agent:scout"}) as client:
                assert client.session.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
                assert (await client.call_tool("whoami", {})).structured_content["id"] == "scout"
            reader = here.registry.create(None, "watcher", roles=[Role.READER]).text
            agent = here.registry.create(None, "planner", roles=[Role.AGENT]).text
            async with here.client(mode, authorization=f"Bearer {agent}") as client:
                me = (await client.call_tool("whoami", {})).structured_content
                assert me is not None
                assert (me["id"], me["authenticated"]) == ("planner", True)
                opened = await client.call_tool("open_case", {"hypotheses": ["a", "b"]})
                assert not opened.is_error
            async with here.client(mode, authorization=f"Bearer {reader}") as client:
                refused = await client.call_tool("open_case", {"hypotheses": ["a", "b"]})
                assert refused.is_error
                assert "lacks the scope `belief:write`" in text_of(refused)

    run(test())


@pytest.mark.req("MCP-SERVER-07")
def test_without_a_good_key_the_answer_says_where_to_learn_what_is_wanted() -> None:
    async def test() -> None:
        async with mounted() as here:
            here.registry.create(None, "planner", roles=[Role.AGENT])
            for headers in ({}, {"authorization": "Bearer cmbs_wrong"}):
                async with here.http(**headers) as http:
                    answer = await http.post("/mcp", json=PING, headers=ACCEPT)
                    assert answer.status_code == 401
                    challenge = answer.headers["www-authenticate"]
                    assert f'resource_metadata="{URL}{METADATA_PATH}"' in challenge
                    metadata = (await http.get(METADATA_PATH)).json()
                    assert metadata["resource"] == f"{URL}/mcp"
                    assert "belief:write" in metadata["scopes_supported"]

    run(test())


@pytest.mark.req("MCP-SERVER-07")
@pytest.mark.parametrize(
    ("address", "headers"),
    [("192.0.2.7", {}), ("127.0.0.1", {"host": "evil.example"}), ("127.0.0.1", {"origin": "http://evil.example"})],
)
def test_without_keys_other_machines_and_pages_of_other_sites_get_nothing(address: str, headers: Any) -> None:
    async def test() -> None:
        async with mounted() as here, here.http(address, **headers) as http:
            answer = await http.post("/mcp", json=PING, headers=ACCEPT)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")

    run(test())


@pytest.mark.slow
@pytest.mark.req("MCP-SERVER-01")
def test_cmbs_mcp_serves_a_host_on_standard_streams(tmp_path: Path) -> None:
    import sys

    from mcp import StdioServerParameters

    arguments = ["-m", "cmbs", "mcp", "--store", f"sqlite:///{tmp_path / 'm.db'}", "--actor", "agent:scout"]

    async def test() -> None:
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            opened = (await client.call_tool("open_case", {"hypotheses": ["a", "b"]})).structured_content
            assert opened is not None
            assert opened["survivors"] == ["a", "b"]

    run(test())
