"""MCP over loopback: a read beside an empty tool, what the gateway adds beside other gateways, and many agents."""

from __future__ import annotations

import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bench.harness import Effort, Result, at_least, at_most

NAME = "mcp"
AGENTS = 200
CALLERS = 16
_START_SECONDS = 120
# That many agents have for their calls of one half.
_CROWD_SECONDS = 180


def run(effort: Effort) -> list[Result]:
    """All of it, in one run."""
    with tempfile.TemporaryDirectory() as directory, _servers(Path(directory)) as (urls, gateway):
        return asyncio.run(_measure(effort, urls, gateway))


def measure_gateway(effort: Effort) -> float:
    """What an empty gateway adds to a call, divided by what ours adds."""
    with tempfile.TemporaryDirectory() as directory, _servers(Path(directory)) as (urls, _):
        median = asyncio.run(_time_calls(effort.rounds * 30, urls))
    return (median["hop"] - median["empty"]) / (median["gateway"] - median["empty"])


async def _measure(effort: Effort, urls: dict[str, str], gateway: psutil.Process) -> list[Result]:
    median = await _time_calls(effort.rounds * 10, urls)
    read, empty = median["belief"], median["empty"]
    added, hop, proxy = (median[kind] - empty for kind in ("gateway", "hop", "fastmcp"))
    alone, through = [await _measure_rate(urls[kind], effort.rounds) for kind in ("empty", "gateway")]
    errors, growth = await _crowd(urls["gateway"], gateway, effort)
    return [
        Result(NAME, f"a read of belief, {read:.1f} ms", f"an empty tool, {empty:.1f} ms", read / empty, at_most(2)),
        Result(NAME, f"the gateway adds {added:.1f} ms", f"an empty one, {hop:.1f} ms", added / hop, at_most(2)),
        Result(NAME, f"the gateway adds {added:.1f} ms", f"fastmcp's proxy, {proxy:.1f} ms", added / proxy, at_most(1)),
        Result(
            NAME,
            f"{CALLERS} callers at once, through the gateway: {through:,.0f} calls/s",
            f"the upstream alone, {alone:,.0f} calls/s",
            through / alone,
            at_least(0.4),
        ),
        Result(NAME, f"{AGENTS} agents at once: errors", "none", errors, at_most(0, "errors")),
        Result(NAME, f"{AGENTS} agents at once: growth of RSS", "the first half", growth, at_most(1.25)),
    ]


async def _time_calls(rounds: int, urls: dict[str, str]) -> dict[str, float]:
    """The median of calls to each server, which take turns, in milliseconds."""
    async with AsyncExitStack() as stack:
        clients = {kind: await stack.enter_async_context(_connect(url, "bench")) for kind, url in urls.items()}
        opened = await clients["belief"].call_tool("open_case", {"hypotheses": [f"h-{n:03}" for n in range(200)]})
        session_id = (opened.structured_content or {})["handles"]["session_id"]
        calls = {
            "belief": ("read_belief", {"session_id": session_id}),
            "empty": ("get_nothing", {}),
            "hop": ("get_nothing", {}),
            "fastmcp": ("get_nothing", {}),
            "gateway": ("get_nothing", {}),
        }
        times: dict[str, list[float]] = {kind: [] for kind in calls}
        for number in range(rounds):
            for kind, (tool, args) in calls.items():
                given = {**args, "n": number} if kind == "gateway" else args
                start = time.perf_counter()
                answer = await clients[kind].call_tool(tool, given)
                times[kind].append(time.perf_counter() - start)
                if answer.is_error:
                    raise RuntimeError(answer.content)
    return {kind: statistics.median(found) * 1_000 for kind, found in times.items()}


async def _measure_rate(url: str, rounds: int) -> float:
    """Calls in a second while several agents call all the time."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_connect(url, f"caller-{n}")) for n in range(CALLERS)]

        async def work(client: Client) -> None:
            for number in range(rounds):
                answer = await client.call_tool("get_nothing", {"n": number})
                if answer.is_error:
                    raise RuntimeError(answer.content)

        start = time.perf_counter()
        await asyncio.gather(*map(work, clients))
        return CALLERS * rounds / (time.perf_counter() - start)


async def _crowd(url: str, gateway: psutil.Process, effort: Effort) -> tuple[int, float]:
    """Errors of many agents that call at once, and how much larger the gateway is after the second half than before."""
    errors = 0
    calls = max(2, effort.rounds // 2)

    async def work(number: int, half: int) -> None:
        nonlocal errors
        done = 0
        with suppress(Exception):  # counted, whatever it is: what is not done in time is an error
            async with asyncio.timeout(_CROWD_SECONDS), _connect(url, f"agent-{number}") as client:
                for call in range(calls):
                    answer = await client.call_tool("get_nothing", {"half": half, "call": call})
                    done += answer.is_error is not True
        errors += calls - done

    sizes = []
    for half in range(3):
        await asyncio.gather(*(work(number, half) for number in range(AGENTS)))
        sizes.append(gateway.memory_info().rss)
    return errors, sizes[2] / sizes[1]


@asynccontextmanager
async def _connect(url: str, actor: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"x-cmbs-actor": f"agent:{actor}"}, timeout=120, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), cache=None) as client,
    ):
        yield client


@contextmanager
def _servers(directory: Path) -> Iterator[tuple[dict[str, str], psutil.Process]]:
    """Every server in a process of its own, once it answers; all are stopped in the end."""
    ports = {kind: _free_port() for kind in ("empty", "hop", "fastmcp", "belief", "gateway")}
    urls = {kind: f"http://127.0.0.1:{port}/mcp" for kind, port in ports.items()}
    given = {
        "empty": "-",
        "hop": urls["empty"],
        "fastmcp": urls["empty"],
        "belief": f"sqlite:///{directory / 'belief.db'}",
        "gateway": f"{urls['empty']}|sqlite:///{directory / 'gateway.db'}",
    }
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for kind, port in ports.items():
            command = [sys.executable, "-m", "bench.mcp_servers", kind, str(port), given[kind]]
            processes[kind] = subprocess.Popen(command)
            _wait_for(port, processes[kind])
        yield urls, psutil.Process(processes["gateway"].pid)
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait(60)


def _wait_for(port: int, process: subprocess.Popen[Any]) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            raise RuntimeError(f"a server ended with {process.returncode}")
        time.sleep(0.1)
    raise RuntimeError("a server did not answer in time")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
