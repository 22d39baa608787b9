"""Attacks on calls that run outside the server, over every transport: each of them is refused, and leaves no effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cmbs.substrate.kernel.events import hash_of_nonce
from tests.support.carriers import CARRIERS, CLIENT_CARRIERS, carry
from tests.support.space_client import ALLOW, ASK, LEAD, OPS, OTHER, PLANNER, SpaceClient

GATEWAY, STRANGER = "executor:gateway", "executor:stranger"
SENT = {"cmbs_executor": GATEWAY}
FIRST = ("asgi", "embedded client")
POLICY = {"constraint.any": ALLOW, "constraint.risky": ASK, "policy.forward.remote": '["trace"]'}

Json = dict[str, Any]


@pytest.fixture(
    params=[
        each if each in FIRST else pytest.param(each, marks=pytest.mark.slow) for each in (*CARRIERS, *CLIENT_CARRIERS)
    ]
)
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SpaceClient]:
    """A space over one transport: `risky` asks and its agent runs it, `remote` is for an executor to run."""
    with carry(request.param, tmp_path) as send:
        client = SpaceClient(send)
        client.create(POLICY, operators_needed=1)
        client.equip("risky", "plain")
        client.equip("remote", token="remote", executor="gateway")
        yield client


def make(space: SpaceClient, tool_id: str, args: Any = None, who: str = PLANNER, **parts: Any) -> Json:
    headers = parts.pop("headers", {})
    answer = space.post("/calls", {"tool_id": tool_id, "args": args or {}, **parts}, who, **headers)
    assert answer.status_code == 200, answer.text
    made: Json = answer.json()
    return made


def claim(space: SpaceClient, call: Json, who: str, nonce: str, **parts: Any) -> Any:
    body = {"nonce_hash": hash_of_nonce(nonce), "call_hash": call["call_hash"], **parts}
    return space.post(f"/calls/{call['call_id']}/claim", body, who)


def report(space: SpaceClient, call: Json, who: str, **outcome: Any) -> Json:
    answer = space.post(f"/calls/{call['call_id']}/outcome", {"status": "succeeded", **outcome}, who)
    assert answer.status_code == 200, answer.text
    reported: Json = answer.json()
    return reported


def approve(space: SpaceClient, call: Json, who: str = LEAD) -> None:
    [approval_id] = call["waits_for"]["approval_ids"]
    assert space.post(f"/approvals/{approval_id}/approve", {"call_hash": call["call_hash"]}, who).json()["step"][
        "granted"
    ]


@pytest.mark.req("CALL-ID-01", "CALL-CLAIM-02")
def test_what_is_approved_is_what_runs_and_under_no_id_that_an_agent_chose(space: SpaceClient) -> None:
    harmless = make(space, "risky", {"delete": "nothing"})
    harmful = make(space, "risky", {"delete": "everything"})
    assert harmless["status"] == harmful["status"] == "waiting"
    # An agent takes names that another program might go by: those of calls cannot be chosen, and lead to no call.
    taken = space.propose(
        {"type": "tool_call", "tool_id": "plain", "args": {}, "capability_token_id": "token", "idempotency_key": "x"},
        proposal_id=harmful["call_id"],
    )
    assert harmful["call_id"] not in taken["calls"].values()
    assert space.get(f"/calls/{harmful['call_id']}").json()["args"] == {"delete": "everything"}
    approve(space, harmless)
    refused = claim(space, harmful, PLANNER, "n")
    assert (refused.status_code, space.get(f"/calls/{harmful['call_id']}").json()["status"]) == (409, "waiting")
    swapped = claim(space, harmless, PLANNER, "n", call_hash=harmful["call_hash"])
    assert (swapped.status_code, swapped.json()["error"]["details"]["field"]) == (409, "call_hash")
    started = claim(space, harmless, PLANNER, "n").json()
    assert (started["status"], started["args"]) == ("running", {"delete": "nothing"})


@pytest.mark.req("CALL-CLAIM-02")
def test_one_approval_is_one_effect_however_many_processes_claim_it(space: SpaceClient) -> None:
    asked = make(space, "risky")
    joined = make(space, "risky")
    assert (joined["call_id"], joined["joined"]) == (asked["call_id"], True)
    approve(space, asked)
    # Approved, and not begun: the agent may not be there to run it.
    assert space.get(f"/calls/{asked['call_id']}", PLANNER).json()["waits_for"]["kind"] == "executor"
    answers = [claim(space, asked, PLANNER, nonce) for nonce in ("one", "two", "one")]
    assert [each.status_code for each in answers] == [200, 409, 200]
    late = make(space, "risky", claim={"nonce_hash": hash_of_nonce("three")})
    assert (late["call_id"], late["status"], late["joined"]) == (asked["call_id"], "running", True)
    assert report(space, asked, PLANNER, nonce="two")["status"] == "running"
    assert report(space, asked, PLANNER, nonce="three")["status"] == "running"
    assert report(space, asked, PLANNER, nonce="one")["status"] == "done"
    executions = space.get("/executions").json()["executions"]
    assert [each["status"] for each in executions] == ["succeeded"]


@pytest.mark.req("CALL-CLAIM-01", "CALL-CLAIM-03")
def test_an_agent_neither_claims_nor_reports_nor_settles_what_another_runs(space: SpaceClient) -> None:
    mine = {"nonce_hash": hash_of_nonce("agent")}
    waiting = make(space, "remote", {"n": 1}, claim=mine)
    assert (waiting["status"], "is_claimed" in waiting, waiting["executor"]) == ("waiting", False, "gateway")
    for who in (PLANNER, OTHER, STRANGER, OPS):
        assert claim(space, waiting, who, "agent").json()["refusal"]["code"] == "NOT_AUTHORISED"
    assert [each["call_id"] for each in space.get("/calls", GATEWAY).json()["calls"]] == [waiting["call_id"]]
    assert space.get("/calls", PLANNER).json()["calls"] == []
    begun = make(space, "remote", {"n": 2}, claim={"nonce_hash": hash_of_nonce("secret")}, headers=SENT)
    assert (begun["status"], begun.get("is_claimed")) == ("running", True)
    for who, told in ((PLANNER, {}), (PLANNER, {"nonce": "secret"}), (OTHER, {}), (STRANGER, {"nonce": "secret"})):
        assert report(space, begun, who, **told)["refusal"]["code"] == "NOT_AUTHORISED"
    assert report(space, begun, GATEWAY)["refusal"]["code"] == "WRONG_NONCE"
    assert report(space, begun, GATEWAY, nonce="secret", result=7)["result"] == 7
    # An executor makes no calls.
    assert make(space, "remote", {"n": 3}, GATEWAY)["status"] == "denied"


@pytest.mark.req("CALL-CLAIM-03")
def test_an_executor_of_an_agents_name_reads_nothing_of_what_the_agent_calls(space: SpaceClient) -> None:
    made = make(space, "plain", {"secret": 1})
    namesake = PLANNER.replace("agent:", "executor:")
    for path, part in ((f"/calls/{made['call_id']}", "args"), (f"/executions/{made['execution_id']}", "args")):
        assert space.get(path, PLANNER).json()[part] == {"secret": 1}
        assert space.get(path, namesake).json().get(part) is None


@pytest.mark.req("CALL-START-01")
@pytest.mark.parametrize("loss", ["token", "tool", "policy", "case"])
def test_a_claim_starts_nothing_for_which_permission_went_after_the_approval(space: SpaceClient, loss: str) -> None:
    session = space._request(
        "POST",
        "/v1/sessions",
        headers={"x-cmbs-actor": OPS},
        json={
            "ontology": {
                "hypothesis_space_id": "space",
                "hypothesis_version": "1",
                "causal_graph_ref": "none",
                "causal_graph_version": "1",
            },
            "hypotheses": ["a", "b"],
        },
    ).json()["session_id"]
    opened = {"case_id": session, "agents": ["planner"]}
    assert space.post("/cases", opened).json()["granted"]
    call = make(space, "risky", case_id=session)
    approve(space, call)
    match loss:
        case "token":
            assert space.post("/capabilities/token/revoke", {}).json()["granted"]
        case "tool":
            assert space.post("/tools/risky/retire", {}).json()["granted"]
        case "policy":
            denial = '{"v":1,"effect":"deny","subject":{"tool_id":"risky"}}'
            change = space.policy_change(set={"constraint.never": denial})
            assert space.post("/policy/changes", change).json()["granted"]
        case _:
            assert space.post(f"/cases/{session}/close", {}).json()["granted"]
    answer = claim(space, call, PLANNER, "n")
    if loss == "tool":
        # What was approved is not what is registered now; nor may that be run.
        assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (409, "call_hash")
        answer = claim(space, space.get(f"/calls/{call['call_id']}").json(), PLANNER, "n")
    assert answer.status_code != 200 or answer.json()["status"] in ("denied", "withdrawn"), answer.text
    stands = space.get(f"/calls/{call['call_id']}").json()
    assert (stands["status"] in ("denied", "withdrawn"), "is_claimed" in stands) == (True, False)
    assert not [each for each in space.get("/executions").json()["executions"] if each["status"] != "not_started"]


@pytest.mark.req("CALL-FORWARD-01")
def test_what_the_approver_did_not_see_reaches_no_tool(space: SpaceClient) -> None:
    plain = make(space, "plain", {"n": 1}, forwarded={"trace": "t", "hidden": "rm -rf"})
    assert "forwarded" not in plain
    bare = make(space, "plain", {"n": 1})
    assert (bare["call_id"], bare["call_hash"]) == (plain["call_id"], plain["call_hash"])
    let = make(space, "remote", {"n": 1}, forwarded={"trace": "t", "hidden": "rm -rf"})
    assert let["forwarded"] == {"trace": "t"}
    without = make(space, "remote", {"n": 1})
    assert (without["call_id"] != let["call_id"], without["call_hash"] != let["call_hash"]) == (True, True)
    ledger = space.get("/audit").text
    assert ('"forwarded":{"trace":"t"}' in ledger, "rm -rf" in ledger) == (True, False)


@pytest.mark.req("CALL-JOIN-01")
def test_a_call_is_found_by_its_key_while_it_waits_and_joins_the_same_one_only_if_it_says_so(
    space: SpaceClient,
) -> None:
    first = make(space, "risky", {"n": 1}, idempotency_key="one")
    again = make(space, "risky", {"n": 1}, idempotency_key="one")
    assert (again["call_id"], again["joined"]) == (first["call_id"], True)
    assert make(space, "risky", {"n": 1}, idempotency_key="two")["call_id"] != first["call_id"]
    joins = make(space, "risky", {"n": 1}, idempotency_key="three", joins=True)
    assert joins["joined"]
    assert make(space, "risky", {"n": 2}, idempotency_key="one")["call_id"] != first["call_id"]
