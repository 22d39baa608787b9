"""Observations through every client and command say what they say in Python: the same looks, rulings and refusals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError
from cmbs.messages import KitChoice
from cmbs.stores.sqlite import SQLiteStore
from tests.support.clients import CLIENTS, CallOperation, call_over
from tests.support.transports import to_json, transcribe

KIT = """id: coin
version: "1"
soundness: sound
hypotheses: [fair, {id: two-headed, attributes: {maker: eve}}, bent]
probes:
  - id: toss
    outcomes: [{id: heads, eliminates: []}, {id: tails, eliminates: [two-headed]}]
  - id: level
    reading: {normal: even, abnormal: odd, median: 0.5, mad: 0, constant: abnormal}
    window: {reduction: k-of-n, k: 2}
    outcomes: [{id: even, eliminates: [bent]}, {id: odd, eliminates: [fair]}]
"""
# What is looked at, in turn: outcomes, numbers, windows, nothing; again, otherwise, and what cannot be read.
LOOKS: list[dict[str, Any]] = [
    {"probe_id": "toss", "response": "heads"},
    {"probe_id": "toss", "response": "heads"},
    {"probe_id": "toss", "response": "tails"},
    {"probe_id": "toss", "response": "tails", "observation_id": "later", "seen_at": "2026-01-01T00:00:00Z"},
    {"probe_id": "level", "response": None, "source_id": "blind"},
    {"probe_id": "level", "response": 0.5, "source_id": "gauge", "justification": {"panel": 7}},
    {"probe_id": "level", "response": [0.5, 0.6, 0.7], "source_id": "camera"},
    {"probe_id": "level", "response": [], "source_id": "camera"},
    {"probe_id": "level", "response": [0.5, "x"], "source_id": "camera"},
    {"probe_id": "level", "response": True},
    {"probe_id": "nose", "response": "heads"},
]


def tell(observe: Callable[..., Any], list_probes: Callable[[], Any]) -> list[Any]:
    """Every answer, and after each what is worth asking next."""
    told: list[Any] = []
    for look in LOOKS:
        try:
            answer = observe(**look)
        except BeliefServerError as exc:
            answer = {"error": {"code": exc.code, "message": exc.message, "field": exc.details.get("field")}}
        told += [answer, list_probes()]
    return transcribe([drop_empty(each) for each in told])


def drop_empty(content: Any) -> Any:
    """Content without what says nothing, and without what HTTP alone has."""
    if isinstance(content, dict):
        kept = {name: drop_empty(value) for name, value in content.items() if name not in ("current", "next_cursor")}
        return {name: value for name, value in kept.items() if value is not None and value is not False}
    return [drop_empty(each) for each in content] if isinstance(content, list) else content


def tell_in_python() -> list[Any]:
    with closing(BeliefServer()) as server:
        server.kits.put(KIT, MediaType.YAML)
        session_id = server.declare_session(kit=KitChoice("coin")).session_id

        def observe(**look: Any) -> Any:
            answer = server.observe(session_id, **look)
            looks = [msgspec.structs.asdict(each) for each in answer.seen_before]
            return {**answer._asdict(), "snapshot": answer.snapshot.to_dict(), "seen_before": looks}

        return tell(observe, lambda: server.probes(session_id).to_dict())


def tell_through(call: CallOperation) -> list[Any]:
    session_id = to_json(call("declare_session", {}, kit="coin"))["session_id"]

    def observe(**look: Any) -> Any:
        answer = to_json(call("observe", {}, session_id=session_id, **look))
        if "error" in answer:
            # A command prints what the others raise.
            error = answer["error"]
            return {"error": {"code": error["code"], "message": error["message"], "field": error["details"]["field"]}}
        return answer

    return tell(observe, lambda: to_json(call("list_probes", {}, session_id=session_id)))


@pytest.mark.slow
@pytest.mark.req("OBS-07", "CLIENT-01")
@pytest.mark.parametrize("kind", CLIENTS)
def test_observations_are_the_same_through_every_client_as_in_python(kind: str, tmp_path: Path) -> None:
    with closing(BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db"))) as server:
        server.kits.put(KIT, MediaType.YAML)
    with call_over(kind, tmp_path) as call:
        told = tell_through(call)
    for mine, theirs in zip(told, tell_in_python(), strict=True):
        assert mine == theirs
