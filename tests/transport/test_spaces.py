"""Spaces over HTTP: the whole sequence, reading it back, repeats, and who may do what."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from cmbs.ledger import StoredEntry
from cmbs.ledger.entry import hash_entry
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.replay import verify_space
from cmbs.testing import ManualClock
from tests.support.error_model import check_error
from tests.support.http_server import run_cmbs, serving
from tests.support.space_client import (
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


def pages(get: Any, path: str, name: str, limit: int = 1, **params: str) -> list[Any]:
    """Every item of a list, page by page."""
    found: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        answer = get(path, params={"limit": str(limit), **params, **cursor})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page[name]) <= limit
        found += page[name].items() if isinstance(page[name], dict) else page[name]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


# --- the whole sequence -----------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-HTTP-02")
def test_a_risky_call_is_asked_about_approved_run_by_its_agent_reported_committed_and_proved(
    space: SpaceClient, log: InMemoryStore
) -> None:
    space.equip("risky", facts={"fact.done": "at"}, caller_facts=True)
    proposed = space.propose(call("risky", {"x": 1}), delta(goal_mood="calm"))
    decision = proposed["decision"]
    assert (proposed["status"], decision["verdict"], decision["failure"]) == ("asked", "defer", "ask")
    [approval_id] = proposed["approval_ids"]
    pending = space.get("/approvals", params={"status": "pending"}).json()["approvals"]
    assert [(each["approval_id"], each["args"]) for each in pending] == [(approval_id, {"x": 1})]
    approved = space.post(f"/approvals/{approval_id}/approve", {"call_hash": pending[0]["call_hash"]}, LEAD).json()
    assert (approved["step"]["granted"], approved["approval"]["status"]) == (True, "approved")
    assert approved["proposal"]["status"] == "ready"
    reported = space.run(proposed["calls"]["0"], {"status": "succeeded", "result": {"at": "noon"}})
    assert (reported["status"], reported["result"]) == ("done", {"at": "noon"})
    assert space.get("/proposals/p1").json()["status"] == "committed"
    values = space.get("/state", PLANNER).json()["values"]
    assert values == {"fact.done": "noon", "goal.mood": "calm"}
    events = pages(space.get, "/audit", "events", 3)
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert {"PROPOSE", "APPROVE", "RECORD_OUTCOME"} <= {event["verb"] for event in events}
    stored = log.read("space:s")
    assert verify_space("s", stored, log.head("space:s")).state["goal.mood"] == "calm"
    raw = space.get("/audit").content
    for entry in stored:
        assert entry.raw[:-1] + b',"event_hash":"' + entry.event_hash.hex().encode() + b'"}' in raw
        assert entry == StoredEntry(entry.raw, hash_entry(entry.raw))


@pytest.mark.slow
@pytest.mark.req("SS01-HTTP-02", "ID-HTTP-01")
def test_with_keys_the_actor_of_a_step_is_that_of_the_key(tmp_path: Path) -> None:
    made = run_cmbs("keys", "create", "--id", "ops", "--role", "operator", directory=tmp_path)
    key = made.stdout.strip()
    with serving(tmp_path) as server, server.client() as client:
        headers = {"authorization": f"Bearer {key}"}
        assert client.get("/v1/spaces/default", headers=headers).json()["mode"] == "enforce"
        assert client.post("/v1/spaces", json={"space_id": "s"}).status_code == 401
        assert client.post("/v1/spaces", json={"space_id": "s"}, headers=headers).status_code == 201
        [event] = client.get("/v1/spaces/s/audit", headers=headers).json()["events"]
        actor = {"kind": "operator", "id": "ops", "authenticated": True, "key_id": key[5:21], "roles": ["operator"]}
        assert event["actor"] == actor
        forged = {**headers, "x-cmbs-actor": "operator:lead"}
        assert client.post("/v1/spaces/s/mode", json={"mode": "observe"}, headers=forged).status_code == 403


def test_an_operator_settles_what_is_in_doubt(space: SpaceClient, log: InMemoryStore) -> None:
    space.equip("safe", timeout_ms=1)
    proposed = space.propose(call("safe"))
    outcome, [execution_id] = f"/calls/{proposed['calls']['0']}/outcome", proposed["execution_ids"]
    early = space.post(outcome, {"status": "failed"}).json()
    assert (early["status"], early["refusal"]["code"]) == ("running", "NOT_AUTHORISED")
    app = app_over(log, ManualClock("2027-01-01T00:00:00.000000Z"), number=1)
    with space_client(app) as again:
        app.service.spaces.server.keep()
        in_doubt = again.get(f"/executions/{execution_id}").json()
        assert (in_doubt["status"], in_doubt["call_id"]) == ("in_doubt", proposed["calls"]["0"])
        settled = again.post(outcome, {"status": "failed", "error": "it never arrived"}).json()
        assert (settled["status"], settled.get("refusal")) == ("failed", None)


# --- reading back -----------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-HTTP-03")
def test_the_state_of_every_snapshot_can_be_read(space: SpaceClient) -> None:
    snapshots = [space.get().json()["state_snapshot_id"]]
    for number, text in enumerate(("one", "two", "three")):
        space.propose(delta(goal_n=text), proposal_id=f"p{number}")
        snapshots.append(space.get().json()["state_snapshot_id"])
    found = [space.get("/state", PLANNER, params={"at": at}).json() for at in snapshots]
    assert [each["values"].get("goal.n") for each in found] == [None, "one", "two", "three"]
    assert [each["state_snapshot_id"] for each in found] == snapshots
    by_seq = space.get("/state", PLANNER, params={"at": "2"}).json()
    assert by_seq["values"]["goal.n"] == "two"
    for nowhere in ("9", "f" * 64, "nothing"):
        check_error(space.get("/state", params={"at": nowhere}), 404, "EVENT_NOT_FOUND")


@pytest.mark.req("SS01-HTTP-03")
def test_every_list_is_paged_and_complete(space: SpaceClient) -> None:
    space.equip("a", "b", "risky")
    space.equip("c", agent="other", token="second")
    for number in range(5):
        space.propose(delta(**{f"goal_g{number}": "x"}), proposal_id=f"p{number}")
        space.propose(call("risky", {"n": number}, key=str(number)), proposal_id=f"q{number}")
        space.propose(call("a", key=str(number)), proposal_id=f"r{number}")
        put = {"entry_id": f"m{number}", "kind": "hypothesis", "claim": number, "ttl_ms": 1000}
        assert space.post("/memory", put, PLANNER).json()["granted"]
        change = space.policy_change(f"c{number}", set={f"policy.value.{number}": "x"})
        assert space.post("/policy/changes", change).json()["granted"]
    lists = {
        "/proposals": "proposals",
        "/approvals": "approvals",
        "/executions": "executions",
        "/tools": "tools",
        "/capabilities": "capabilities",
        "/memory": "memory",
        "/policy/changes": "changes",
        "/policy": "pairs",
        "/decisions": "decisions",
        "/deltas": "deltas",
        "/state": "values",
        "/audit": "events",
    }
    for path, name in lists.items():
        whole = space.get(path).json()
        assert whole["next_cursor"] is None, path
        items = list(whole[name].items() if isinstance(whole[name], dict) else whole[name])
        assert len(items) > 1, path
        for limit in (1, 2, len(items)):
            assert pages(space.get, path, name, limit) == items, path
    asked = pages(space.get, "/proposals", "proposals", 2, status="asked")
    assert [each["proposal_id"] for each in asked] == [f"q{number}" for number in range(5)]
    assert len(pages(space.get, "/state", "values", 2, prefix="goal.")) == 5
    assert [each["verb"] for each in pages(space.get, "/decisions", "decisions", 4)] == ["PROPOSE"] * 15


def test_spaces_are_listed(space: SpaceClient) -> None:
    for space_id in ("a", "b"):
        space.space_id = space_id
        space.create()

    def get(_: str, **options: Any) -> httpx2.Response:
        return space._request("GET", "/v1/spaces", **options)

    assert [each["space_id"] for each in pages(get, "", "spaces", 2)] == ["a", "b", "s"]


def test_what_is_not_there_is_not_found(subtests: pytest.Subtests, space: SpaceClient) -> None:
    for path in [
        "/proposals/x",
        "/approvals/x",
        "/executions/x",
        "/tools/x",
        "/capabilities/x",
        "/memory/x",
        "/policy/changes/x",
    ]:
        with subtests.test(path=path):
            space.space_id = "s"
            assert check_error(space.get(path), 404, "RECORD_NOT_FOUND")["id"] == "x"
            space.space_id = "elsewhere"
            check_error(space.get(path), 404, "SPACE_NOT_FOUND")


def test_an_invalid_query_is_refused(subtests: pytest.Subtests, space: SpaceClient) -> None:
    for query in ["limit=0", "limit=x", "cursor=x", "status=odd", "nothing=1", "limit=99999"]:
        with subtests.test(query=query):
            answer = space.get(f"/proposals?{query}")
            check_error(answer, 413 if query == "limit=99999" else 400, answer.json()["error"]["code"])


def test_an_id_may_hold_slashes(space: SpaceClient) -> None:
    space.equip("fs/write")
    assert space.get("/tools/fs%2Fwrite").json()["tool_id"] == "fs/write"
    assert space.post("/tools/fs%2Fwrite/retire").json()["granted"]
    assert space.get("/tools/fs%2Fwrite").json()["retired"] is True


# --- dry runs and repeats ---------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-HTTP-04")
def test_a_dry_run_decides_and_records_nothing(space: SpaceClient, log: InMemoryStore) -> None:
    space.equip("risky")
    before = log.head("space:s")
    explained = space.post("/explain", space.proposal(call("risky")), PLANNER).json()
    assert explained["recorded"] is False
    assert explained["decision"]["failure"] == "ask"
    assert explained["decision"]["trace"]
    assert log.head("space:s") == before
    assert space.get("/proposals").json()["proposals"] == []


@pytest.mark.req("SS01-HTTP-04")
def test_a_decision_is_explained_with_the_smallest_change_that_would_have_changed_it(space: SpaceClient) -> None:
    rule = '{"v":1,"effect":"deny","subject":null,"when":{"op":"eq","args":["fact.open","no"]},"reason":"closed"}'
    space.change_policy(constraint_open=rule)
    space.propose(delta(fact_open="no"), who=ENCODER)
    assert space.propose(delta(goal_x="1"), proposal_id="p2")["status"] == "denied"
    explained = space.get("/proposals/p2/explain", OPS).json()
    assert (explained["recorded"], explained["decision"]["reason_code"]) == (True, "CONSTRAINT_DENIED")
    [speaker] = explained["because"][0]["speakers"]
    assert (speaker["key"], speaker["reason"]) == ("constraint.open", "closed")
    assert (explained["flip"]["status"], explained["flip"]["changes"][0]["reference"]) == ("smallest", "fact.open")
    bound = space.get("/proposals/p2/explain", PLANNER).json()
    assert "value" not in bound["because"][0]["speakers"][0]
    check_error(space.get("/proposals/p9/explain"), 404, "RECORD_NOT_FOUND")


@pytest.mark.req("SS01-HTTP-08")
def test_the_same_proposal_again_gives_the_first_outcome_again(space: SpaceClient) -> None:
    space.equip("safe")
    body = space.proposal(call("safe"))
    first = space.post("/proposals", body, PLANNER)
    space.post(f"/calls/{first.json()['calls']['0']}/outcome", {"status": "succeeded"}, PLANNER)
    again = space.post("/proposals", body, PLANNER)
    assert again.json() == {**first.json(), "replayed": True}
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert space.get("/proposals/p1").json()["status"] == "committed"
    other = space.post("/proposals", {**body, "candidates": []}, PLANNER)
    assert check_error(other, 409, "CONFLICT")["proposal_id"] == "p1"
    assert len(space.get("/executions").json()["executions"]) == 1


@pytest.mark.req("SS01-HTTP-08")
def test_keys_of_requests_and_conditions_hold(space: SpaceClient) -> None:
    first = space.post("/mode", {"mode": "observe"}, idempotency_key="k")
    again = space.post("/mode", {"mode": "observe"}, idempotency_key="k")
    assert again.json() == {**first.json(), "replayed": True}
    assert again.headers["idempotent-replayed"] == "true"
    check_error(space.post("/mode", {"mode": "enforce"}, idempotency_key="k"), 409, "CONFLICT")
    seen = space.get().headers["etag"]
    assert space.post("/mode", {"mode": "enforce"}, if_match=seen).status_code == 200
    check_error(space.post("/mode", {"mode": "observe"}, if_match=seen), 412, "CONFLICT")
    check_error(space.post("/mode", {"mode": "observe"}, idempotency_key=" "), 400, "INVALID_REQUEST")


# --- who may do what --------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-HTTP-05")
def test_only_operators_make_spaces(space: SpaceClient) -> None:
    answer = space._request("POST", "/v1/spaces", json={"space_id": "mine"}, headers={"x-cmbs-actor": PLANNER})
    assert check_error(answer, 403, "FORBIDDEN")["reason"] == "operators_only"
    assert "X-Cmbs-Actor: operator:me" in answer.json()["error"]["message"]  # a key would not help without keys


@pytest.mark.req("SS01-HTTP-05")
def test_what_operators_govern_is_refused_to_others_and_recorded(subtests: pytest.Subtests, space: SpaceClient) -> None:
    for path, body in [
        ("/mode", {"mode": "observe"}),
        ("/tools", {"tool_id": "t", "kind": "caller", "args_schema": {}}),
        ("/capabilities", {"token_id": "t", "agent_id": "planner", "tool_ids": ["risky"]}),
    ]:
        with subtests.test(path=path, body=body):
            refused = space.post(path, body, PLANNER).json()
            assert refused["granted"] is False
            assert refused["reason_code"]
            assert space.get("/audit").json()["events"][-1]["event_id"] == refused["event_id"]


@pytest.mark.req("SS01-HTTP-05")
def test_forged_claims_are_denied_each_for_its_own_reason(space: SpaceClient) -> None:
    space.equip("safe")
    forged = {
        "FORGED_PROVENANCE": space.proposal(call("safe"), who=OTHER, proposal_id="a"),
        "UNKNOWN_SNAPSHOT": space.proposal(call("safe"), proposal_id="b", state_snapshot_id="f" * 64),
        "KEY_OUTSIDE_NAMESPACES": space.proposal(delta(other_x="1"), proposal_id="c"),
        "AUTHORITY_DENIED": space.proposal(delta(fact_x="1"), proposal_id="d"),
        "CAPABILITY_UNKNOWN": space.proposal(call("safe", token="none"), proposal_id="e"),
    }
    for reason, body in forged.items():
        decided = space.post("/proposals", body, PLANNER).json()
        assert (decided["status"], decided["decision"]["reason_code"]) == ("denied", reason)
    stolen = space.propose(call("safe"), who=OTHER, proposal_id="f")
    assert stolen["decision"]["reason_code"] == "CAPABILITY_OTHER_AGENT"
    assert space.get("/executions").json()["executions"] == []


@pytest.mark.req("SS01-HTTP-05")
def test_a_proposer_cannot_approve_and_an_approval_covers_only_the_args_that_were_seen(space: SpaceClient) -> None:
    space.equip("risky")
    [approval_id] = space.propose(call("risky"))["approval_ids"]
    path = f"/approvals/{approval_id}/approve"
    reasons = [
        space.post(path, who="operator:planner").json()["step"]["reason_code"],
        space.post(path, who=OTHER).json()["step"]["reason_code"],
        space.post(path, {"call_hash": "f" * 64}, LEAD).json()["step"]["reason_code"],
    ]
    assert reasons == ["SELF_APPROVAL", "NOT_AUTHORISED", "CALL_CHANGED"]
    assert space.post(path, who=LEAD).json()["proposal"]["status"] == "ready"
    check_error(space.post(path, who=LEAD), 409, "CONFLICT")


@pytest.mark.req("SS01-HTTP-05")
def test_a_change_of_policy_is_authorised_by_another_operator(space: SpaceClient) -> None:
    change = space.policy_change(set={"policy.value.x": "1"})
    assert space.post("/policy/changes", change).json()["granted"]
    assert space.post("/policy/changes/c/authorise").json()["reason_code"] == "SELF_APPROVAL"
    applied = space.post("/policy/changes/c/authorise", {"reason": "fine"}, LEAD).json()
    assert applied["granted"]
    assert space.get("/policy").json()["pairs"]["policy.value.x"] == "1"
    assert space.get("/policy/changes/c").json()["status"] == "applied"
    check_error(space.post("/policy/changes", {**change, "change_id": "d"}), 409, "CONFLICT")
    malformed = space.post("/policy/changes", space.policy_change("e", set={"constraint.x": "{}"}))
    assert check_error(malformed, 400, "INVALID_REQUEST")["faults"][0]["key"] == "constraint.x"


# --- withdrawal and governance ----------------------------------------------------------------------------------------


@pytest.mark.req("GATES-WITHDRAW-01")
def test_what_waits_is_withdrawn_by_its_agent_once_and_not_by_another(space: SpaceClient) -> None:
    space.equip("risky")
    [approval_id] = space.propose(call("risky"))["approval_ids"]
    path = "/proposals/p1/withdraw"
    refused = space.post(path, {}, "agent:other").json()
    assert (refused["step"]["granted"], refused["step"]["reason_code"]) == (False, "NOT_AUTHORISED")
    assert refused["proposal"]["status"] == "asked"
    first = space.post(path, {"reason": "not needed"}, PLANNER).json()
    assert (first["step"]["granted"], first["proposal"]["status"]) == (True, "withdrawn")
    assert space.get(f"/approvals/{approval_id}").json()["status"] == "withdrawn"
    assert space.post(path, {}, LEAD).json()["step"]["seq"] == first["step"]["seq"]
    withdrawn = space.get("/proposals", params={"status": "withdrawn"}).json()["proposals"]
    assert [each["proposal_id"] for each in withdrawn] == ["p1"]
    assert space.post("/proposals/unknown/withdraw", {}, PLANNER).status_code == 404
    space.propose(delta(goal_mood="calm"), proposal_id="p2")
    assert space.post("/proposals/p2/withdraw", {}, PLANNER).status_code == 409


@pytest.mark.req("GATES-GOVERN-02")
def test_governance_goes_down_by_two_operators_and_takes_no_other_number(space: SpaceClient) -> None:
    assert space.get().json()["operators_needed"] == 2
    asked = space.post("/governance", {"operators_needed": 1}).json()
    assert (asked["granted"], asked["reason_code"]) == (True, "SECOND_OPERATOR_NEEDED")
    assert space.get().json()["governance_asked_by"] == "ops"
    assert space.post("/governance", {"operators_needed": 1}, LEAD).json()["reason_code"] is None
    assert space.get().json()["operators_needed"] == 1
    for number in (0, 3):
        assert space.post("/governance", {"operators_needed": number}).status_code == 400
