"""Refusals of spaces: the same words over HTTP, in Python, through a guard and on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cmbs.messages import Actor, ActorKind, OntologyBundle
from cmbs.refusals import Refusal
from cmbs.stores.memory import InMemoryStore
from cmbs.stores.sqlite import SQLiteStore
from cmbs.substrate.guard import Guard
from cmbs.substrate.guard.refusals import CallDenied
from cmbs.substrate.kernel.events import Propose
from cmbs.substrate.kernel.insight.advice import advise_on_answer, advise_on_record
from cmbs.substrate.kernel.model import Proposal
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.words import ProposalStatus
from cmbs.substrate.tools.python import PythonTools
from cmbs.testing import ManualClock
from tests.support.cli import invoke
from tests.support.error_model import check_error
from tests.support.space_client import (
    ALLOW,
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

SECRET = "only-operators-read-this"
SCHEMA = {"type": "object", "properties": {"service": {"enum": ["api", "web"]}}, "required": ["service"]}
AGENT = Actor(ActorKind.AGENT, "planner")


def gate(session_id: str, **more: Any) -> str:
    when = {"op": "eq", "args": [f"$belief.{session_id}.n_survivors", 1]}
    return json.dumps({"v": 1, "effect": "allow", "subject": {"tool_id": "restart"}, "when": when, **more})


@pytest.fixture
def space() -> Iterator[SpaceClient]:
    with space_client(app_over(InMemoryStore())) as client:
        client.create()
        yield client


def refusals(answer: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer["refusals"]
    for each in found:
        assert each["message"]
        assert each["next"]
    return found


def plain(made: Sequence[Refusal]) -> Any:
    return json.loads(msgspec.json.encode(made))


@pytest.mark.req("GATES-REFUSAL-01")
def test_a_refused_proposal_says_what_was_wrong_and_what_is_accepted(space: SpaceClient) -> None:
    space.equip("restart", args_schema=SCHEMA)
    [refusal] = refusals(space.propose(call("restart", {"service": "database"})))
    assert (refusal["code"], refusal["field"], refusal["found"]) == ("ARGS_INVALID", "args.service", "database")
    assert refusal["accepted"] == {"enum": ["api", "web"]}
    [refusal] = refusals(space.propose(call("restrt", {"service": "api"}), proposal_id="p2"))
    assert (refusal["code"], refusal["accepted"]) == ("UNKNOWN_TOOL", ["restart"])
    allowed = space.propose(call("restart", {"service": "api"}), proposal_id="p3")
    assert "refusals" not in allowed


@pytest.mark.req("GATES-REFUSAL-03")
def test_refusals_are_for_the_proposer_and_operators_and_show_no_private_value(space: SpaceClient) -> None:
    space.equip("restart")
    reads = json.dumps(
        {
            "v": 1,
            "effect": "deny",
            "subject": {"tool_id": "restart"},
            "when": {"op": "exists", "args": ["fact.secret.x"]},
        }
    )
    space.change_policy(constraint_no=reads)
    space.propose(delta(**{"fact_secret.x": SECRET}), who="encoder:probe", proposal_id="p0")
    answer = space.propose(call("restart"))
    [refusal] = refusals(answer)
    assert refusal["code"] == "CONSTRAINT_DENIED"
    assert SECRET not in json.dumps(answer)
    [seen] = refusals(space.get("/proposals/p1", OPS).json())
    assert seen["found"] == SECRET
    assert "refusals" not in space.get("/proposals/p1", OTHER).json()
    [own] = refusals(space.get("/proposals/p1", PLANNER).json())
    assert own == refusal
    listed = space.get("/proposals", OTHER).json()["proposals"]
    assert not any("refusals" in each for each in listed)
    assert SECRET not in json.dumps(space.get("/proposals/p1/explain", PLANNER).json())


@pytest.mark.req("GATES-REFUSAL-05")
def test_a_step_that_is_not_granted_says_what_to_do(space: SpaceClient) -> None:
    refused = space.post("/mode", {"mode": "observe"}, PLANNER).json()
    assert (refused["granted"], refused["refusal"]["code"]) == (False, "NOT_AUTHORISED")
    assert refused["refusal"]["next"] == "have an operator do it, or use an operator's key"
    asked = space.post("/mode", {"mode": "observe"}).json()
    assert (asked["granted"], asked["refusal"]["code"]) == (True, "SECOND_OPERATOR_NEEDED")
    assert "refusal" not in space.post("/mode", {"mode": "observe"}, LEAD).json()


@pytest.mark.req("GATES-REFUSAL-06")
def test_errors_of_a_space_say_what_to_do(space: SpaceClient) -> None:
    space.equip("restart")
    missing = check_error(space.get("/tools/restrt"), 404, "RECORD_NOT_FOUND")
    assert (missing["field"], missing["found"], missing["accepted"]) == ("tool_id", "restrt", ["restart"])
    assert missing["next"]
    unknown = check_error(space.post("/tools/restrt/retire"), 404, "RECORD_NOT_FOUND")
    assert unknown["accepted"] == ["restart"]
    for path in ("/approvals/a/approve", "/calls/c-x-0/outcome", "/capabilities/tokn/revoke", "/proposals/p/explain"):
        body = {"status": "succeeded"} if "outcome" in path else None
        answer = space.get(path) if path.endswith("explain") else space.post(path, body)
        assert check_error(answer, 404, "RECORD_NOT_FOUND")["next"]
    change = {"change_id": "c", "base_policy_hash": "0" * 64, "set": {"constraint.x": ALLOW}}
    moved = check_error(space.post("/policy/changes", change), 409, "CONFLICT")
    assert (moved["field"], moved["accepted"]) == ("base_policy_hash", space.get().json()["policy_hash"])
    space.post("/policy/changes", space.policy_change("change-1", set={"constraint.x": ALLOW}))
    near = check_error(space.post("/policy/changes/change-2/authorise", who=LEAD), 404, "RECORD_NOT_FOUND")
    assert near["accepted"] == ["change-1"]
    hidden = check_error(space.post("/policy/changes/change-2/authorise", who=PLANNER), 404, "RECORD_NOT_FOUND")
    assert "change-1" not in hidden["accepted"]
    gone = check_error(SpaceClient(space._request, "elsewhere").get(), 404, "SPACE_NOT_FOUND")
    assert (gone["field"], gone["found"]) == ("space_id", "elsewhere")


@pytest.mark.req("GATES-REPEAT-10")
def test_a_repeat_shows_the_belief_of_then_and_of_now() -> None:
    app = app_over(InMemoryStore())
    with space_client(app) as space:
        belief = app.service.belief_server
        session_id = belief.declare_session(OntologyBundle("shop", "1", "graph", "1"), ["a", "b", "c"]).session_id
        space.create({"constraint.gate": gate(session_id, on_fail="defer")})
        space.equip("restart")
        body = space.proposal(call("restart"))
        first = space.post("/proposals", body, PLANNER).json()
        [refusal] = refusals(first)
        assert (refusal["found"], refusal["accepted"]) == ("3", 1)
        assert refusal["next"].startswith(f"eliminate 2 more of the hypotheses in session `{session_id}`; it waits for")
        assert refusal["until"] == first["parked_until"]
        assert {"replayed", "belief"}.isdisjoint(first)
        belief.eliminate(session_id, "probe", "o", ["a", "b"])
        again = space.post("/proposals", body, PLANNER)
        assert again.headers["idempotent-replayed"] == "true"
        [read] = again.json()["belief"]
        assert (read["session_id"], read["then"]["n_survivors"], read["now"]["n_survivors"]) == (session_id, 3, 1)
        assert {**again.json(), "belief": None} == {**first, "replayed": True, "belief": None}
        created = {"space_id": "again", "policy": {}}
        headers = {"x-cmbs-actor": OPS, "idempotency-key": "k"}
        for number in range(2):
            answer = space._request("POST", "/v1/spaces", headers=headers, json=created)
            assert (answer.status_code, answer.headers.get("idempotent-replayed")) == (201, "true" if number else None)


# --- one refusal, every way -------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-REFUSAL-04")
def test_the_same_refusal_over_every_way(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'spaces.db'}"
    app = app_over(SQLiteStore(tmp_path / "spaces.db"), ManualClock())  # type: ignore[arg-type]
    when = {"op": "eq", "args": ["$args.service", "db"]}
    no = json.dumps({"v": 1, "effect": "deny", "subject": {"tool_id": "restart"}, "when": when})
    with space_client(app) as space:
        space.create({"constraint.any": ALLOW, "constraint.no": no})
        space.equip("restart")
        body = space.proposal(call("restart", {"service": "db"}))
        [over_http] = refusals(space.post("/proposals", body, PLANNER).json())
        server = app.service.spaces.server
        record = server.current("s").proposals["p1"]
        assert record.status is ProposalStatus.DENIED
        built = msgspec.json.decode(json.dumps(body | {"proposal_id": "p2"}), type=Proposal)
        answer = server.perform(SpaceCommand("s", AGENT, Propose(built)))
        for made in (advise_on_answer(answer, AGENT), advise_on_record(server.current("s"), record, AGENT)):
            assert plain(made) == [over_http]

        guard = Guard(server, PythonTools(), "s", AGENT, "token")
        restart = guard.tool("restart", args_schema={"type": "object"})(lambda service: service)
        with pytest.raises(CallDenied) as denied:
            restart("db")
        assert plain(denied.value.refusals) == [over_http]
        assert (
            str(denied.value) == f"the call is denied: CONSTRAINT_DENIED: {over_http['message']}; {over_http['next']}"
        )

        explained = space.get("/proposals/p1/explain", PLANNER).json()["refusals"]
        ran = invoke("policy", "explain", "--store", url, "--space", "s", "--proposal", "p1", "--as", "agent", "--json")
        assert json.loads(ran.stdout)["refusals"] == explained == [over_http]
        ran = invoke("policy", "explain", "--store", url, "--space", "s", "--proposal", "p1", "--as", "agent")
        told, step = ran.stdout.splitlines()[-2:]
        assert told == f"candidate 0 is told CONSTRAINT_DENIED: {over_http['message']}"
        assert step == f"  next: {over_http['next']}"
        ran = invoke("policy", "explain", "--store", url, "--space", "s", "--proposal", "none")
        assert ran.stderr.splitlines()[-1].startswith("  next: list what this space has")
