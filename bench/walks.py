"""The walks of seven operations: which functions of this package each enters once its caches are filled.

`python -m bench.walks` prints how many functions and modules each walk has, `--list WALK` prints the functions in the
order in which they are entered, and `--record` writes the numbers to `bench/walks.json`. tests/system/test_walks.py
fails where a walk is not what that file says: a commit that makes one longer says why, and one that makes it shorter
lowers the numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

import msgspec

import cmbs
from bench.harness import ONTOLOGY, SOURCE, belief_server, hypothesis_ids
from cmbs.audit.actors import ActorCheck
from cmbs.audit.fsck import check_stream
from cmbs.bootstrap import Settings, build_server, build_substrate
from cmbs.client import connect
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.registry import KeyRegistry
from cmbs.stores import inspect_store
from tests.support.in_process import body_events, exchange
from tests.support.mcp_upstream import ScriptedUpstream, answer_text, define, open_bench

RECORDED = Path(__file__).with_name("walks.json")
RECORD_COMMAND = "python -m bench.walks --record"
# Enough to fill caches; few enough that what is due every sixteen events of a stream is not due yet.
WARM_UPS = 3
# The second one sees to it that other threads have ended what they do after the first one is answered.
TRACED = 2
_PACKAGE = Path(cmbs.__file__).parent
_IDS = hypothesis_ids(100)
_OPERATOR, _AGENT = "operator:ops", "agent:scout"
_KIT = {
    "id": "walk",
    "version": "1",
    "soundness": "sound",
    "hypotheses": _IDS,
    "probes": [
        {"id": f"probe-{number}", "outcomes": [{"id": "gone", "eliminates": [each]}, {"id": "here", "eliminates": []}]}
        for number, each in enumerate(_IDS[:20])
    ],
}

Operation = Callable[[], Awaitable[object]]


class Step(NamedTuple):
    """A function that was entered: its module, its name, its line, and how many callers of the package it has."""

    module: str
    function: str
    line: int
    depth: int


class Size(msgspec.Struct, frozen=True):
    """How long a walk is."""

    functions: int
    modules: int

    def __str__(self) -> str:
        return f"{self.functions} / {self.modules}"


class Walk(NamedTuple):
    """An operation: its name for people, how long its walk is meant to become, and what makes it ready to be traced."""

    title: str
    goal: Size
    prepare: Callable[[], AbstractAsyncContextManager[Operation]]


class Tracer:
    """Notes functions of the package, in the thread that opens it and in all that are started while it is open.

    A function is noted when it is entered and when it returns: a thread that waits for work is inside one. What has no
    name of its own (comprehensions, lambdas) is part of the function that it is written in.
    """

    def __init__(self) -> None:
        self.steps: dict[object, Step] = {}
        self._is_on = False

    def __enter__(self) -> Self:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Note what is entered meanwhile, in any thread."""
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    @property
    def size(self) -> Size:
        """How much was entered."""
        return Size(len(self.steps), len({step.module for step in self.steps.values()}))

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if not self._is_on or event not in {"call", "return"}:
            return
        code = frame.f_code
        if code not in self.steps and _is_counted(frame):
            module = str(Path(code.co_filename).relative_to(_PACKAGE.parent))
            self.steps[code] = Step(module, code.co_qualname, code.co_firstlineno, _depth(frame))


def _is_counted(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(f"{_PACKAGE}/") and not code.co_name.startswith("<")


def _depth(frame: FrameType) -> int:
    depth, caller = 0, frame.f_back
    while caller is not None:
        depth += _is_counted(caller)
        caller = caller.f_back
    return depth


def trace(walk: Walk) -> Tracer:
    """What one warm operation enters."""
    return asyncio.run(_trace(walk))


async def _trace(walk: Walk) -> Tracer:
    with Tracer() as tracer:
        async with walk.prepare() as operation:
            for _ in range(WARM_UPS):
                await operation()
            with tracer.on():
                for _ in range(TRACED):
                    await operation()
    return tracer


# --- the operations ---------------------------------------------------------------------------------------------------


class Server:
    """The application that `cmbs serve` serves, called as a web server calls it.

    The clock by which it reads the register of keys again is stopped: that is due once in a while, not in a walk.
    """

    def __init__(self, store_url: str) -> None:
        belief = build_server(Settings(store=store_url))
        keys = KeyRegistry(belief.log, elapsed=lambda: 0.0)
        self.app = BeliefApp(Service(belief, Gate(keys), build_substrate(belief, {}, registry=keys)))

    async def post(self, path: str, body: Mapping[str, Any], actor: str = _AGENT) -> dict[str, Any]:
        """The answer to a request that must succeed."""
        headers = {"host": "localhost", "content-type": "application/json", "x-cmbs-actor": actor}
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        sent = await exchange(self.app, "POST", path.encode(), lines, body_events(json.dumps(body).encode()))
        if sent.status not in {200, 201}:
            raise RuntimeError(f"POST {path} answered {sent.status}: {sent.body!r}")
        answer: dict[str, Any] = sent.json()
        return answer


@contextmanager
def _served(store_url: str) -> Iterator[Server]:
    server = Server(store_url)
    try:
        yield server
    finally:
        server.app.close()


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        yield f"sqlite:///{directory}/walk.db"


@asynccontextmanager
async def _eliminate_over_http() -> AsyncIterator[Operation]:
    with _sqlite() as url, _served(url) as server:
        declared = await server.post("/v1/sessions", {"ontology": msgspec.to_builtins(ONTOLOGY), "hypotheses": _IDS})
        left = enumerate(_IDS)

        async def eliminate() -> None:
            number, hypothesis_id = next(left)
            observed = {"source_id": SOURCE, "observation_id": f"observation-{number}", "eliminated": [hypothesis_id]}
            await server.post(f"/v1/sessions/{declared['session_id']}/eliminate", observed)

        yield eliminate


@asynccontextmanager
async def _eliminate_in_python() -> AsyncIterator[Operation]:
    with belief_server() as server:
        session_id = server.declare_session(ONTOLOGY, _IDS).session_id
        left = enumerate(_IDS)

        async def eliminate() -> None:
            number, hypothesis_id = next(left)
            server.eliminate(session_id, SOURCE, f"observation-{number}", [hypothesis_id])

        yield eliminate


@asynccontextmanager
async def _observe_over_http() -> AsyncIterator[Operation]:
    with _sqlite() as url, _served(url) as server:
        await server.post("/v1/kits", _KIT, _OPERATOR)
        declared = await server.post("/v1/sessions", {"kit": "walk"})
        numbers = count()

        async def observe() -> None:
            seen = {"source_id": SOURCE, "probe_id": f"probe-{next(numbers)}", "response": "gone"}
            await server.post(f"/v1/sessions/{declared['session_id']}/observations", seen)

        yield observe


@asynccontextmanager
async def _propose_over_http() -> AsyncIterator[Operation]:
    with _sqlite() as url, _served(url) as server:
        allow = json.dumps({"v": 1, "effect": "allow", "subject": {"tool_id": "restart"}})
        await server.post("/v1/spaces", {"space_id": "ops", "policy": {"constraint.a": allow}}, _OPERATOR)
        tool = {"tool_id": "restart", "kind": "caller", "args_schema": {"type": "object"}}
        await server.post("/v1/spaces/ops/tools", tool, _OPERATOR)
        token = {"token_id": "token", "agent_id": "scout", "tool_ids": ["restart"]}
        latest = await server.post("/v1/spaces/ops/capabilities", token, _OPERATOR)
        numbers = count()

        async def propose() -> None:
            nonlocal latest
            number = next(numbers)
            call = {"type": "tool_call", "tool_id": "restart", "args": {"service": "shop"}}
            proposal = {
                "proposal_id": f"proposal-{number}",
                "state_snapshot_id": latest["state_snapshot_id"],
                "provenance": {"source": "scout", "timestamp": "2026-01-31T09:30:00Z", "permissions": ["token"]},
                "candidates": [{**call, "capability_token_id": "token", "idempotency_key": f"key-{number}"}],
            }
            latest = await server.post("/v1/spaces/ops/proposals", proposal)
            if latest["status"] != "running":
                raise RuntimeError(f"the call was not allowed: {latest}")

        yield propose


@asynccontextmanager
async def _call_through_gateway() -> AsyncIterator[Operation]:
    upstream = ScriptedUpstream()
    upstream.tool(define("look", reads=True), answer_text("seen"))
    with _served("memory:") as server:
        async with open_bench({"upstream": upstream}, app=server.app) as bench, bench.client() as client:
            (tool,) = (await client.list_tools()).tools
            numbers = count()

            async def call() -> None:
                answer = await client.call_tool(tool.name, {"number": next(numbers)})
                if answer.is_error:
                    raise RuntimeError(f"the call was not allowed: {answer.content}")

            yield call


@asynccontextmanager
async def _observe_by_client() -> AsyncIterator[Operation]:
    with _served("memory:") as server, connect(server.app, actor=_AGENT) as client:
        await server.post("/v1/kits", _KIT, _OPERATOR)
        with client.case(kit="walk") as case:
            numbers = count()

            async def observe() -> None:
                case.observe(f"probe-{next(numbers)}", "gone")

            yield observe


@asynccontextmanager
async def _verify_stream() -> AsyncIterator[Operation]:
    with _sqlite() as url:
        with belief_server(url) as server:
            session_id = server.declare_session(ONTOLOGY, _IDS).session_id
            for number, hypothesis_id in enumerate(_IDS[:2]):
                server.eliminate(session_id, SOURCE, f"observation-{number}", [hypothesis_id])
        with closing(inspect_store(url)) as store:
            actors = ActorCheck(store, imported=False)

            async def verify() -> None:
                report = check_stream(store, session_id, actors)
                if report.findings or report.events != 3:
                    raise RuntimeError(f"the stream was not verified: {report}")

            yield verify


WALKS = {
    "eliminate-http": Walk("ELIMINATE over HTTP, SQLite", Size(60, 18), _eliminate_over_http),
    "eliminate-python": Walk("ELIMINATE in Python, memory", Size(35, 10), _eliminate_in_python),
    "observe-http": Walk("observe by kit, over HTTP, SQLite", Size(75, 22), _observe_over_http),
    "propose-http": Walk("PROPOSE, one call, allowed, over HTTP, SQLite", Size(80, 25), _propose_over_http),
    "gateway": Walk("MCP gateway, one read-only call, memory", Size(150, 40), _call_through_gateway),
    "client-case": Walk("`client.case(…).observe(…)` in process, memory", Size(90, 25), _observe_by_client),
    "verify": Walk("verify a stream of 3 events, SQLite", Size(70, 16), _verify_stream),
}


# --- the command ------------------------------------------------------------------------------------------------------


def load_recorded() -> dict[str, Size]:
    """The numbers that the walks are compared with."""
    return msgspec.json.decode(RECORDED.read_bytes(), type=dict[str, Size])


def main(arguments: list[str] | None = None) -> int:
    """Print the table, the steps of one walk, or nothing where the numbers are recorded."""
    parser = argparse.ArgumentParser(prog="bench.walks", description="Count the functions that one operation enters.")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--list", metavar="WALK", choices=WALKS, help=f"print the functions of one: {', '.join(WALKS)}")
    chosen.add_argument("--record", action="store_true", help="write the numbers to bench/walks.json")
    options = parser.parse_args(arguments)
    if options.list:
        for step in trace(WALKS[options.list]).steps.values():
            print(f"{'  ' * step.depth}{step.function}  {step.module}:{step.line}")
        return 0
    sizes = {name: trace(walk).size for name, walk in WALKS.items()}
    if options.record:
        RECORDED.write_text(json.dumps(msgspec.to_builtins(sizes), indent=2) + "\n", "utf-8")
    print("\n".join(write_table(sizes, load_recorded())))
    return 0


def write_table(sizes: Mapping[str, Size], recorded: Mapping[str, Size]) -> list[str]:
    """The lines of a Markdown table."""
    rows = [
        (name, WALKS[name].title, str(size), str(recorded.get(name, "none")), str(WALKS[name].goal))
        for name, size in sizes.items()
    ]
    table = [("walk", "operation", "functions / modules", "recorded", "goal"), ("---",) * 5, *rows]
    return [f"| {' | '.join(row)} |" for row in table]


if __name__ == "__main__":
    sys.exit(main())
