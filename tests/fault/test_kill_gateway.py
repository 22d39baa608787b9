"""Kill -9 of gateways, of their server and of their upstreams in the middle of calls: no call has two effects."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import psutil
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.effort import EFFORT
from tests.support.http_server import ServerProcess, free_port

ROOT = Path(__file__).resolve().parents[2]
ANY = '{"v":1,"effect":"allow","subject":null}'
OPERATOR = {"x-cmbs-actor": "operator:ops"}
_CALLS_PER_KILL = 4
_ENDED = ("succeeded", "failed", "timed_out", "result_refused", "in_doubt", "not_started")


class GatewayProcess:
    """A gateway over HTTP, which can be killed and started again on its port."""

    def __init__(self, server_url: str, effects: Path) -> None:
        self.port = free_port()
        upstream = f"eff={sys.executable} -m tests.support.mcp_effects {effects}"
        self._command = [
            *(sys.executable, "-m", "cmbs", "gateway", "--server", server_url, "--port", str(self.port)),
            *("--upstream", upstream, "--wait", "1", "--timeout", "1"),
        ]
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, cwd=ROOT, stderr=subprocess.DEVNULL)

    async def wait_until_ready(self) -> None:
        """Return once it answers, or after a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(30), httpx2.AsyncClient(timeout=5) as http:
                while True:
                    with suppress(httpx2.TransportError):
                        await http.get(f"http://127.0.0.1:{self.port}/healthz")
                        return

    def kill(self) -> None:
        """Kill it and its upstream, and start it again."""
        self.stop()
        self.start()

    def kill_upstream(self) -> None:
        """Kill the server behind it alone."""
        with suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()

    def stop(self) -> None:
        self.kill_upstream()
        self.process.kill()
        self.process.wait(30)


@contextmanager
def open_gateways(server_url: str, effects: Path) -> Iterator[list[GatewayProcess]]:
    with ExitStack() as stack:
        gateways = [GatewayProcess(server_url, effects) for _ in range(2)]
        for each in gateways:
            stack.callback(each.stop)
        yield gateways


async def call_once(url: str, number: int) -> None:
    """One call through one gateway; whatever becomes of it is found in the ledger."""
    with suppress(Exception):
        async with (
            asyncio.timeout(5),
            httpx2.AsyncClient(headers={"x-cmbs-actor": "agent:medic"}, timeout=5) as http,
            Client(streamable_http_client(url, http_client=http), cache=None) as client,
        ):
            await client.call_tool("apply_change", {"n": number})


async def call_some(gateways: list[GatewayProcess], numbers: range) -> None:
    await asyncio.gather(*(call_once(gateways[number % len(gateways)].url, number) for number in numbers))


def list_executions(client: httpx2.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    params: dict[str, str] = {}
    while True:
        page = client.get("/v1/spaces/mcp/executions", headers=OPERATOR, params=params).json()
        found += page["executions"]
        if page["next_cursor"] is None:
            return found
        params = {"cursor": page["next_cursor"]}


def wait_until_ended(client: httpx2.Client) -> list[dict[str, Any]]:
    """The executions, once each has an outcome or is in doubt."""
    until = time.monotonic() + 90
    while True:
        found = list_executions(client)
        if all(each["status"] in _ENDED for each in found) or time.monotonic() > until:
            return found


def check_effects(executions: list[dict[str, Any]], effects: Path) -> None:
    """What happened at the upstream is what the ledger says, as far as it knows."""
    happened = Counter(map(int, effects.read_text().split())) if effects.exists() else Counter()
    assert max(happened.values(), default=0) <= 1
    by_number = {each["args"]["n"]: each for each in executions}
    assert len(by_number) == len(executions)
    assert {each["status"] for each in executions} <= set(_ENDED)
    for number, each in by_number.items():
        if each["status"] == "succeeded":
            assert happened[number] == 1
        elif each["status"] == "not_started":
            assert happened[number] == 0
    assert set(happened) <= set(by_number)


@pytest.mark.slow
@pytest.mark.req("CALL-GATEWAY-06")
def test_no_call_has_two_effects_while_gateways_servers_and_upstreams_are_killed(tmp_path: Path) -> None:
    random, effects, port = Random(31), tmp_path / "effects", free_port()
    options = ("--store", f"sqlite:///{tmp_path / 'g.db'}")
    server = ServerProcess(tmp_path, *options, port=port)
    try:
        server.wait_until_ready()
        with server.client() as client:
            body = {"space_id": "mcp", "policy": {"constraint.any": ANY}, "operators_needed": 1}
            client.post("/v1/spaces", headers=OPERATOR, json=body).raise_for_status()
        with open_gateways(server.url, effects) as gateways:
            for number in range(EFFORT.kills * EFFORT.kills // 4 + 1):
                numbers = range(number * _CALLS_PER_KILL, (number + 1) * _CALLS_PER_KILL)
                asyncio.run(kill_amid(call_some(gateways, numbers), random, gateways, server))
                if server.process.poll() is not None:
                    server = ServerProcess(tmp_path, *options, port=port)
                    server.wait_until_ready()
            with server.client() as client:
                executions = wait_until_ended(client)
    finally:
        server.discard()
    check_effects(executions, effects)
    assert any(each["status"] == "succeeded" for each in executions)


async def kill_amid(calls: Any, random: Random, gateways: list[GatewayProcess], server: ServerProcess) -> None:
    """Make calls, and kill something in the middle of them."""
    await asyncio.gather(*(each.wait_until_ready() for each in gateways))
    making = asyncio.ensure_future(calls)
    await asyncio.wait({making}, timeout=random.uniform(0.05, 1.0))
    match random.randrange(4):
        case 0:
            await asyncio.to_thread(server.kill)
        case 1 | 2 as place:
            await asyncio.to_thread(gateways[place - 1].kill)
        case _:
            gateways[0].kill_upstream()
    await making
