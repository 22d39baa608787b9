"""The gateway over HTTP: who may ask, for how long, how many, and what it says of its servers."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.mcp.gateway.opening import GatewayOptions, build_app
from cmbs.messages import ActorKind
from cmbs.stores import open_store
from tests.support.bounded import run

UPSTREAM = f"up={sys.executable} -m tests.support.mcp_dying {{}}"
ACCEPTED = {"accept": "application/json, text/event-stream"}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
SESSION = "mcp-session-id"


class Endpoint:
    """A gateway over a store with keys: of the gateway itself, and of two agents."""

    def __init__(self, http: httpx2.AsyncClient, keys: dict[str, Any], registry: KeyRegistry) -> None:
        self.http = http
        self.keys = keys
        self.registry = registry

    async def send(
        self, method: str, params: Any = None, key: str | None = None, session: str | None = None, **more: str
    ) -> httpx2.Response:
        headers = {**ACCEPTED, **more}
        if key is not None:
            headers["authorization"] = f"Bearer {self.keys[key].text}"
        if session is not None:
            headers[SESSION] = session
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        return await self.http.post("/mcp", json=message, headers=headers)

    async def begin(self, key: str | None = "medic") -> httpx2.Response:
        return await self.send("initialize", INITIALIZE, key)


@asynccontextmanager
async def open_endpoint(path: Path, **options: Any) -> AsyncIterator[Endpoint]:
    url = f"sqlite:///{path / 'g.db'}"
    with closing(open_store(url)) as store:
        registry = KeyRegistry(store)
        keys = {
            "gateway": registry.create(None, "gateway", roles=[Role.OPERATOR], scopes=[]),
            "executor": registry.create(None, "gateway", roles=[Role.EXECUTOR], scopes=[]),
            "medic": registry.create(ActorKind.AGENT, "medic", roles=[Role.AGENT], scopes=[]),
            "scout": registry.create(ActorKind.AGENT, "scout", roles=[Role.AGENT], scopes=[]),
        }
        upstreams = (UPSTREAM.format(path / "wiped"),)
        chosen = GatewayOptions(upstreams=upstreams, store=url, wait_seconds=0.1, **options)
        own = {"CMBS_OPERATOR_KEY": keys["gateway"].text, "CMBS_EXECUTOR_KEY": keys["executor"].text}
        app = build_app(chosen, own)
        async with app.router.lifespan_context(app):
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
                yield Endpoint(http, keys, registry)


@pytest.mark.slow
@pytest.mark.req("MCP-GW-17")
def test_without_a_good_key_every_request_is_401_and_opens_no_session(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_endpoint(tmp_path) as endpoint:
            for method, params in (("initialize", INITIALIZE), ("tools/list", {}), ("server/discover", {})):
                refused = await endpoint.send(method, params)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"].startswith("Bearer")
                assert SESSION not in refused.headers
            # An operator is known, and makes no calls.
            assert (await endpoint.begin("gateway")).status_code == 403
            opened = await endpoint.begin()
            assert opened.status_code == 200
            session = opened.headers[SESSION]
            assert (await endpoint.send("tools/list", session=session)).status_code == 401
            # The session is that of one agent.
            assert (await endpoint.send("tools/list", key="scout", session=session)).status_code == 404
            assert "get_secret_name" in (await endpoint.send("tools/list", key="medic", session=session)).text

    run(test())


@pytest.mark.slow
@pytest.mark.req("MCP-GW-17")
def test_a_key_that_was_revoked_is_good_for_nothing_more_in_an_open_session(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_endpoint(tmp_path) as endpoint:
            session = (await endpoint.begin()).headers[SESSION]
            assert (await endpoint.send("tools/list", key="medic", session=session)).status_code == 200
            endpoint.registry.revoke(endpoint.keys["medic"].key.key_id)
            refused = await endpoint.send("tools/list", key="medic", session=session)
            # Other processes see it within a second.
            while refused.status_code == 200:
                refused = await endpoint.send("tools/list", key="medic", session=session)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "UNAUTHENTICATED")

    run(test())


@pytest.mark.slow
@pytest.mark.req("MCP-GW-17")
def test_sessions_end_when_they_are_idle_and_are_only_so_many(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_endpoint(tmp_path, max_sessions=2, idle_seconds=0.5) as endpoint:
            first, second, third = [await endpoint.begin() for _ in range(3)]
            assert [each.status_code for each in (first, second, third)] == [200, 200, 503]
            # One of them goes on, until the other has ended.
            while (await endpoint.begin()).status_code == 503:
                alive = await endpoint.send("ping", key="medic", session=first.headers[SESSION])
                assert alive.status_code == 200
            assert (await endpoint.send("ping", key="medic", session=second.headers[SESSION])).status_code == 404

    run(test())


@pytest.mark.slow
@pytest.mark.req("MCP-GW-17")
def test_the_state_of_each_server_is_told_without_a_key_and_without_its_words(tmp_path: Path) -> None:
    async def test() -> None:
        config = tmp_path / "gateway.json"
        config.write_text('{"servers": {"absent": {"transport": "stdio", "command": ["no-such-command"]}}}')
        async with open_endpoint(tmp_path, config=str(config)) as endpoint:
            told = (await endpoint.http.get("/healthz")).json()
            assert told == {
                "status": "degraded",
                "upstreams": {
                    "absent": {"state": "unreachable", "seen": False, "tools": 0, "changes_waiting": 0},
                    "up": {"state": "ready", "seen": True, "tools": 2, "changes_waiting": 0},
                },
            }

    run(test())
