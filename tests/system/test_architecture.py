"""The walk in docs/concepts/architecture.md is the route that a real request takes."""

import asyncio
import importlib
import inspect
import json
import re
import sys
import threading
from collections.abc import MutableMapping
from pathlib import Path
from types import FrameType
from typing import Any

from cmbs.belief_api import create_app
from cmbs.belief_server import BeliefServer
from cmbs.http.app import BeliefApp
from cmbs.stores import open_store

ROOT = Path(__file__).resolve().parents[2]
# Hashing, canonical JSON, the survivor set and plain values: what the walk leaves out.
LEAVES = re.compile(r"cmbs/(ledger/.*|belief/kernel/survivors|core|messages|system)\.py")
WALK_LINE = re.compile(r"^ +(?P<file>cmbs/\S+\.py)? +(?P<functions>\S.*)$")

Function = tuple[str, str]


def documented_walk() -> set[Function]:
    text = (ROOT / "docs" / "concepts" / "architecture.md").read_text("utf-8")
    walk, file = set(), ""
    for line in text.partition("```text walk\n")[2].partition("```")[0].splitlines():
        if match := WALK_LINE.match(line):
            file = match["file"] or file
            walk |= {(file, name.strip()) for name in match["functions"].split("·") if name.strip()}
    return walk


def is_plain_function(function: Function) -> bool:
    """Whether it is neither a property nor a closure nor a method of the language, but for the application itself."""
    file, name = function
    if name == "BeliefApp.__call__":
        return True
    if "<" in name or "__" in name:
        return False
    found: Any = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    return not isinstance(found, property)


class Trace:
    """The functions of cmbs that are called, in any thread, while it is armed."""

    def __init__(self) -> None:
        self.functions: set[Function] = set()
        self.is_armed = False

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_armed and event == "call" and "/cmbs/" in frame.f_code.co_filename:
            file = "cmbs/" + frame.f_code.co_filename.rpartition("/cmbs/")[2]
            self.functions.add((file, frame.f_code.co_qualname))


async def post(app: BeliefApp, path: str, body: dict[str, Any]) -> dict[str, Any]:
    raw = json.dumps(body).encode()
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": raw, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
    await app({**scope, "query_string": b"", "client": ("127.0.0.1", 1)}, receive, send)
    answer: dict[str, Any] = json.loads(sent[1]["body"])
    return answer


async def trace_elimination(app: BeliefApp, trace: Trace) -> None:
    ontology = dict.fromkeys(
        ["hypothesis_space_id", "hypothesis_version", "causal_graph_ref", "causal_graph_version"], "x"
    )
    declared = await post(app, "/v1/sessions", {"ontology": ontology, "hypotheses": ["a", "b", "c"]})
    path = f"/v1/sessions/{declared['session_id']}/eliminate"
    elimination = {"source_id": "s", "observation_id": "1", "eliminated": ["a"], "justification": {"why": 1}}
    # What the table of operations works out once is no part of the walk.
    await post(app, path, {**elimination, "observation_id": "0", "eliminated": ["c"]})
    trace.is_armed = True
    answer = await post(app, path, elimination)
    trace.is_armed = False
    assert answer["applied_eliminated"] == ["a"]


def test_the_walk_of_the_architecture_page_is_the_route_of_a_real_request(tmp_path: Path) -> None:
    trace = Trace()
    app = create_app(BeliefServer(store=open_store(f"sqlite:///{tmp_path / 'walk.db'}")))
    threading.setprofile(trace.profile)
    sys.setprofile(trace.profile)
    try:
        asyncio.run(trace_elimination(app, trace))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        app.close()
    called = {each for each in trace.functions if not LEAVES.fullmatch(each[0]) and is_plain_function(each)}
    # The writer is in its loop before the trace is armed, and may come back for the next group after it is disarmed.
    loop = {("cmbs/streams/group_commit.py", f"GroupWriter.{name}") for name in ("_work", "_gather")}
    assert called | loop == documented_walk()
