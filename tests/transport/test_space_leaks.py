"""What others are not to see of a space: args of calls that are not theirs, what became private, keys."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.identity import Gate, KeyRegistry, Scope
from cmbs.messages import ActorKind
from cmbs.stores.memory import InMemoryStore
from tests.support.error_model import check_error
from tests.support.in_process import JSON, client_of
from tests.support.space_client import (
    ALLOW,
    ENCODER,
    LEAD,
    OPS,
    OTHER,
    PLANNER,
    SpaceClient,
    app_over,
    call,
    delta,
    space_client,
)

PASSWORD = {"op": "eq", "args": ["$args.password", "hunter2"]}
PLANNED = {"op": "eq", "args": ["fact.plan", "other"]}


@pytest.fixture
def space() -> Iterator[SpaceClient]:
    with space_client(app_over(InMemoryStore())) as client:
        deny = {"v": 1, "effect": "deny", "subject": {"tool_id": "t"}}
        rules = {"constraint.password": PASSWORD, "constraint.plan": PLANNED}
        client.create({"constraint.any": ALLOW} | {key: json.dumps({**deny, "when": rules[key]}) for key in rules})
        client.equip("t")
        client.propose(delta(fact_plan="attack at dawn"), who=ENCODER, proposal_id="facts")
        client.propose(call("t", {"password": "hunter2"}), proposal_id="p")
        yield client


@pytest.mark.parametrize("path", ["/proposals", "/proposals/p", "/proposals/p/explain", "/decisions"])
def test_what_constraints_found_in_the_args_of_a_call_is_for_its_agent_and_operators(
    space: SpaceClient, path: str
) -> None:
    for who in (OTHER, ENCODER):
        told = space.get(path, who)
        assert (told.status_code, "hunter2" in told.text) == (200, False)
        assert "CONSTRAINT_DENIED" in told.text
    for who in (PLANNER, OPS):
        assert "hunter2" in space.get(path, who).text


def test_a_fact_that_became_private_is_not_told_by_explaining_what_was_decided_before(space: SpaceClient) -> None:
    path = "/proposals/p/explain"
    assert "attack at dawn" in space.get(path, PLANNER).text
    change = {"change_id": "c", "base_policy_hash": space.get().json()["policy_hash"]}
    space.post("/policy/changes", {**change, "set": {"policy.private": '["fact.plan"]'}})
    assert space.post("/policy/changes/c/authorise", who=LEAD).json()["granted"]
    told = space.get(path, PLANNER)
    assert (told.status_code, "attack at dawn" in told.text) == (200, False)
    assert told.json()["withheld"] > 0
    assert "attack at dawn" in space.get(path, OPS).text


@pytest.mark.parametrize("escaped", ["_", "c", "0"])
def test_a_key_that_is_escaped_as_json_does_not_get_into_the_ledger(escaped: str) -> None:
    def escape(text: str) -> str:
        return text.replace(escaped, f"\\u{ord(escaped):04x}")

    log = InMemoryStore()
    registry = KeyRegistry(log)
    key = registry.create(ActorKind.OPERATOR, "ops", scopes=list(Scope)).text
    app = BeliefApp(BeliefServer(store=log), Gate(registry))
    with client_of(app) as client:
        headers = {**JSON, "authorization": f"Bearer {key}"}

        def created(space_id: str, value: str) -> httpx.Response:
            body = f'{{"space_id":"{space_id}","policy":{{"policy.value.x":"{value}"}}}}'
            return client.request("POST", "/v1/spaces", headers=headers, content=body.encode())

        assert check_error(created("s", escape(key)), 400, "INVALID_REQUEST")["where"] == "the body"
        assert created("t", escape("cmbs_ and no key")).status_code == 201
        asked = client.get(f"/v1/spaces/t/state?prefix={key.replace('_', '%5F')}", headers=headers)
        assert check_error(asked, 400, "INVALID_REQUEST")["where"] == "the query"
    app.close()


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 200),
        ("http://127.0.0.1", 200),
        ("https://[::1]:1", 200),
        ("http://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_without_keys_no_page_of_others_is_answered(origin: str, status: int) -> None:
    app = app_over(InMemoryStore())
    with client_of(app) as client:
        answer = client.get("/v1/spaces", headers={"origin": origin})
        assert answer.status_code == status, answer.text
        if status != 200:
            assert check_error(answer, 403, "FORBIDDEN")["reason"] == "foreign_origin"
    app.close()
