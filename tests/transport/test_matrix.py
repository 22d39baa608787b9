"""Every operation of the table through every transport: the same answers, whatever carries them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from cmbs.http.operations import OPERATIONS
from tests.support.carriers import CARRIERS, Send, carry
from tests.support.transports import ONTOLOGY

BY_ID = {operation.operation_id: operation for operation in OPERATIONS}
OPS, LEAD, PLANNER = "operator:ops", "operator:lead", "agent:planner"
ALLOW = json.dumps(
    {"v": 1, "effect": "allow", "subject": None, "on_fail": "ask", "when": {"op": "eq", "args": ["fact.a", "yes"]}}
)
# What differs from run to run: ids, hashes, times.
CHANCE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{64}\b")
MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
CURSOR = re.compile(r'"(next_cursor|seconds)": ("[^"]+"|[0-9.e-]+)')


class Story:
    """One of everything: each operation is asked for at least once, and succeeds."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.ids: dict[str, str] = {"obligation_id": "net/dns"}
        self.told: list[tuple[str, int, Any]] = []

    def ask(self, operation_id: str, body: dict[str, Any] | None = None, actor: str = OPS, **query: str) -> Any:
        operation = BY_ID[operation_id]
        path = re.sub(r"{(\w+)}", lambda name: quote(self.ids[name[1]], safe=""), operation.path)
        options: dict[str, Any] = {} if body is None else {"json": body}
        answer = self._send(operation.method, path, headers={"x-cmbs-actor": actor}, params=query, **options)
        assert answer.status_code == operation.status, (operation_id, answer.text)
        assert answer.headers["content-type"] == "application/json"
        self.told.append((operation_id, answer.status_code, answer.json()))
        return answer.json()

    def tell(self) -> None:
        self._believe()
        self._act()
        for operation in OPERATIONS:
            if operation.method == "GET":
                self.ask(operation.operation_id)

    def _believe(self) -> None:
        declared = self.ask("declare_session", {"ontology": ONTOLOGY, "hypotheses": ["a", "b/c", "é"]})
        self.ids["session_id"] = declared["session_id"]
        self.ask("enter_obligation", {"obligation_id": "net/dns", "min_total_eliminations": 1})
        self.ask("eliminate", {"source_id": "s", "observation_id": "o", "eliminated": ["a", "é"]})
        self.ask("request_exit", {})
        self.ask("declare_conclusion", {"conclusion_id": "b/c"})
        self.ask("request_termination", {})

    def _act(self) -> None:
        self.ids |= {"space_id": "shop", "tool_id": "service.restart", "token_id": "t", "proposal_id": "restart-1"}
        self.ids |= {"entry_id": "leak", "change_id": "first"}
        policy = {"constraint.restart": ALLOW}
        space = self.ask("create_space", {"space_id": "shop", "policy": policy})
        self.ask("register_tool", {"tool_id": "service.restart", "kind": "caller", "args_schema": {"type": "object"}})
        token = {"token_id": "t", "agent_id": "planner", "tool_ids": ["service.restart"], "capabilities": ["restart"]}
        self.ask("issue_capability", {**token, "budget": {"calls": 3}, "expires_at": "2999-01-01T00:00:00Z"})
        provenance = {"source": "planner", "timestamp": "2026-03-01T10:50:20Z", "inputs": [], "permissions": ["t"]}
        call = {"type": "tool_call", "tool_id": "service.restart", "args": {}, "capability_token_id": "t"}
        proposal = {"state_snapshot_id": space["state_snapshot_id"], "provenance": provenance}

        def propose(proposal_id: str) -> dict[str, Any]:
            return {**proposal, "proposal_id": proposal_id, "candidates": [{**call, "idempotency_key": proposal_id}]}

        self.ask("explain_proposal", propose("restart-0"), PLANNER)
        for proposal_id, verdict in (("restart-2", "reject"), ("restart-1", "approve")):
            asked = self.ask("propose", propose(proposal_id), PLANNER)
            self.ids["approval_id"] = asked["approval_ids"][0]
            for execution_id in self.ask(verdict, {}, LEAD)["proposal"]["execution_ids"]:
                self.ids["execution_id"] = execution_id
        self.ask("report_outcome", {"status": "succeeded", "result": {"n": 1}, "duration_ms": 5}, PLANNER)
        evidence = {"source_chunk_ids": ["heap-1"], "confidence_milli": 900}
        claim = {"entry_id": "leak", "kind": "hypothesis", "claim": {"x": 1}, "ttl_ms": 86_400_000}
        self.ask("put_memory", {**claim, "evidence": {"source_chunk_ids": ["heap-1"]}}, PLANNER)
        self.ask("promote_memory", {"kind": "fact", "evidence": evidence}, PLANNER)
        self.ask("dispute_memory", {"conflict_state": "possible", "because": ["heap-4"]})
        change = {"base_policy_hash": space["policy_hash"], "set": {"policy.memory.confidence_threshold": "0.9"}}
        for change_id, verdict in (("first", "reject_policy_change"), ("second", "authorise_policy_change")):
            self.ids["change_id"] = change_id
            self.ask("propose_policy_change", {**change, "change_id": change_id})
            self.ask(verdict, {}, LEAD)
        self.ask("set_space_mode", {"mode": "observe"})
        self.ask("revoke_capability", {})
        self.ask("retire_tool", {})

    def transcript(self) -> list[Any]:
        """Every answer, without times, with ids and hashes numbered in the order in which they first appear."""
        numbers: dict[str, str] = {}
        text = CURSOR.sub('"?": "?"', MOMENT.sub("?", json.dumps(self.told, sort_keys=True)))
        transcript: list[Any] = json.loads(CHANCE.sub(lambda one: numbers.setdefault(one[0], f"#{len(numbers)}"), text))
        return transcript


def tell(send: Send) -> Story:
    story = Story(send)
    story.tell()
    return story


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with carry("asgi", tmp_path_factory.mktemp("expected")) as send:
        yield tell(send)


def test_every_operation_of_the_table_is_in_the_matrix(expected: Story) -> None:
    assert {operation_id for operation_id, *_ in expected.told} == set(BY_ID)


@pytest.mark.req("BS-3.1-HTTP-01", "HTTP-EXT-06", "HTTP-EXT-07")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_every_operation_gives_the_same_answer_over_every_transport(
    carrier: str, expected: Story, tmp_path: Path
) -> None:
    with carry(carrier, tmp_path) as send:
        told = tell(send).transcript()
        whole = send("GET", "/docs")
        bare = send("HEAD", "/docs")
    for mine, theirs in zip(told, expected.transcript(), strict=True):
        assert mine == theirs
    assert (whole.status_code, bare.status_code, bare.content) == (200, 200, b"")
    assert int(bare.headers["content-length"]) == len(whole.content)
