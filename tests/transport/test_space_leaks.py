"""Who may read what of a space: the policy, private values, args of calls; and keys are never stored."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.kernel.scopes import Scope
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores.memory import InMemoryStore
from tests.support.error_model import check_error
from tests.support.in_process import JSON, client_of
from tests.support.space_client import (
    ALLOW,
    ENCODER,
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
def denied() -> Iterator[SpaceClient]:
    """A space in which a call was denied for what two constraints found: one in its args, one in the state."""
    with space_client(app_over(InMemoryStore())) as client:
        deny = {"v": 1, "effect": "deny", "subject": {"tool_id": "t"}}
        rules = {"constraint.password": PASSWORD, "constraint.plan": PLANNED}
        client.create({"constraint.any": ALLOW} | {key: json.dumps({**deny, "when": rules[key]}) for key in rules})
        client.equip("t")
        client.propose(delta(fact_plan="attack at dawn"), who=ENCODER, proposal_id="facts")
        client.propose(call("t", {"password": "hunter2"}), proposal_id="p")
        yield client


def test_what_constraints_found_in_the_args_of_a_call_is_for_its_agent_and_operators(
    subtests: pytest.Subtests, denied: SpaceClient
) -> None:
    for path in ["/proposals", "/proposals/p", "/proposals/p/explain", "/decisions"]:
        with subtests.test(path=path):
            for who in (OTHER, ENCODER):
                answer = denied.get(path, who)
                assert (answer.status_code, "hunter2" in answer.text) == (200, False)
                assert "CONSTRAINT_DENIED" in answer.text
            for who in (PLANNER, OPS):
                assert "hunter2" in denied.get(path, who).text


def test_a_fact_that_became_private_is_left_out_of_the_explanation_of_an_earlier_decision(denied: SpaceClient) -> None:
    path = "/proposals/p/explain"
    assert "attack at dawn" in denied.get(path, PLANNER).text
    denied.change_policy(policy_private='["fact.plan"]')
    answer = denied.get(path, PLANNER)
    assert (answer.status_code, "attack at dawn" in answer.text) == (200, False)
    assert answer.json()["withheld"] > 0
    assert "attack at dawn" in denied.get(path, OPS).text


@pytest.mark.req("SS01-HTTP-06")
def test_only_operators_read_the_policy_and_the_audit(subtests: pytest.Subtests, space: SpaceClient) -> None:
    for who in [PLANNER, ENCODER, "tool:t"]:
        for path in ["/audit", "/policy", "/policy/changes", "/policy/changes/c"]:
            with subtests.test(who=who, path=path):
                assert check_error(space.get(path, who), 403, "FORBIDDEN")["reason"] == "operators_only"


@pytest.mark.req("SS01-HTTP-06")
def test_private_values_are_left_out_wherever_they_would_show(space: SpaceClient) -> None:
    space.propose(delta(**{"fact_secret.pin": "1234", "fact_open": "yes"}), who=ENCODER)
    state = space.get("/state", PLANNER).json()["values"]
    assert state == {"fact.open": "yes"}
    assert space.get("/state", OPS).json()["values"]["fact.secret.pin"] == "1234"
    assert space.get(who=PLANNER).json()["n_keys"] == 1
    for path in ("/deltas", "/proposals", "/proposals/p1", "/decisions"):
        assert "1234" not in space.get(path, PLANNER).text, path
    for path in ("/deltas", "/proposals", "/proposals/p1"):
        assert "1234" in space.get(path, OPS).text, path
    # The proposer has seen it already.
    assert "1234" in space.get("/proposals/p1", ENCODER).text


@pytest.mark.req("SS01-HTTP-06")
def test_a_trace_leaves_out_the_values_of_private_keys(space: SpaceClient) -> None:
    rule = '{"v":1,"effect":"deny","subject":null,"when":{"op":"eq","args":["fact.secret.pin","1234"]}}'
    space.propose(delta(**{"fact_secret.pin": "1234"}), who=ENCODER)
    space.change_policy(constraint_pin=rule)
    denied = space.propose(delta(goal_x="1"), proposal_id="p2")
    assert denied["decision"]["reason_code"] == "CONSTRAINT_DENIED"
    assert "1234" not in str(denied)
    for path in ("/proposals/p2", "/decisions"):
        assert "1234" not in space.get(path, PLANNER).text
        assert "1234" in space.get(path, OPS).text
    dry = space.post("/explain", space.proposal(delta(goal_x="1"), proposal_id="p3"), PLANNER)
    assert "1234" not in dry.text


@pytest.mark.req("SS01-HTTP-06")
def test_what_went_into_a_call_and_came_out_is_for_those_concerned(space: SpaceClient) -> None:
    space.equip("safe")
    target = {"url": "https://tools.invalid/", "method": "POST"}
    space.equip("far", kind="http", target=target, token="far")
    proposed = space.propose(call("safe", {"to": "alice"}))
    call_id, [execution_id] = proposed["calls"]["0"], proposed["execution_ids"]
    space.post(f"/calls/{call_id}/outcome", {"status": "succeeded", "result": {"got": "bread"}}, PLANNER)
    for who, shown in ((PLANNER, True), (OPS, True), ("tool:safe", True), (OTHER, False), (ENCODER, False)):
        execution = space.get(f"/executions/{execution_id}", who).json()
        assert ("args" in execution, "result" in execution) == (shown, shown), who
        assert ("args_hash" in execution, "result_hash" in execution) == (shown, shown), who
    assert "alice" not in space.get("/proposals", OTHER).text
    assert "target" not in space.get("/tools/far", PLANNER).json()
    assert space.get("/tools/far", OPS).json()["target"] == target


@pytest.mark.parametrize("escaped", ["_", "c", "0"])
def test_a_key_that_is_escaped_as_json_does_not_get_into_the_ledger(escaped: str) -> None:
    def escape(text: str) -> str:
        return text.replace(escaped, f"\\u{ord(escaped):04x}")

    log = InMemoryStore()
    registry = KeyRegistry(log)
    key = registry.create(ActorKind.OPERATOR, "ops", scopes=list(Scope)).text
    app = BeliefApp(Service(BeliefServer(store=log), Gate(registry)))
    with client_of(app) as client:
        headers = {**JSON, "authorization": f"Bearer {key}"}

        def create(space_id: str, value: str) -> httpx2.Response:
            body = f'{{"space_id":"{space_id}","policy":{{"policy.value.x":"{value}"}}}}'
            return client.request("POST", "/v1/spaces", headers=headers, content=body.encode())

        assert check_error(create("s", escape(key)), 400, "INVALID_REQUEST")["where"] == "the body"
        assert create("t", escape("cmbs_ and no key")).status_code == 201
        asked = client.get(f"/v1/spaces/t/state?prefix={key.replace('_', '%5F')}", headers=headers)
        assert check_error(asked, 400, "INVALID_REQUEST")["where"] == "`prefix`"
    app.close()
