"""What a case does beside its gate: closing withdraws, approvals stay in it, commits are judged in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from cmbs.audit.fsck import check_space
from cmbs.errors import Conflict
from cmbs.substrate.kernel.events import (
    Approve,
    Start,
)
from cmbs.substrate.kernel.model import Failure, ReasonCode, Stage, Verdict
from cmbs.substrate.kernel.replay import readings_in
from cmbs.substrate.kernel.words import ApprovalStatus, ProposalStatus, SpaceChangeKind
from tests.support.cases import (
    AGENT,
    ALLOWED,
    HARNESS,
    KNOWN,
    NO_CASE,
    Incidents,
    at_most,
    equal,
    gated,
    outcome,
)
from tests.support.spaces import (
    ANY,
    ENGINE,
    SPACE,
    call,
    caller_tool,
    change_policy,
    constraint,
    delta,
)

# --- closing ----------------------------------------------------------------------------------------------------------

WAITING = {
    "constraint.any": ANY,
    "constraint.restart": gated(effect="deny", when={"op": "not", "args": [KNOWN]}),
    "constraint.ask": constraint(subject={"tool_id": "ask"}, effect="deny", on_fail="ask"),
}


@pytest.fixture
def waiting() -> Iterator[Incidents]:
    """Two incidents, and under each a call that is parked, one that asks, and one that is both and runs already."""
    with closing(Incidents(WAITING)) as incidents:
        incidents.world.equip(caller_tool("ask"), caller_tool("run"), token="more")
        for case_id in ("c", "d"):
            incidents.begin(case_id)
            incidents.restart(f"parked {case_id}", case_id)
            ask = call("ask", key=f"ask {case_id}", token="more")
            run = call("run", key=f"run {case_id}", token="more")
            incidents.world.propose(ask, proposal_id=f"asked {case_id}", case_id=case_id)
            again = call("ask", key=f"again {case_id}", token="more")
            incidents.world.propose(again, run, atomic=False, proposal_id=f"running {case_id}", case_id=case_id)
        yield incidents
        incidents.assert_replays()


def standing(incidents: Incidents, case_id: str) -> list[str]:
    proposals = incidents.world.space.proposals
    return [proposals[f"{name} {case_id}"].status.value for name in ("parked", "asked", "running")]


@pytest.mark.req("CASE-CLOSE-01")
def test_closing_a_case_withdraws_what_waits_under_it_and_nothing_else(waiting: Incidents) -> None:
    answer = waiting.close_case("c", HARNESS, "handed over")
    assert answer.event.result.statuses == {
        "parked c": "withdrawn",
        "asked c": "withdrawn",
        # What has begun goes on.
        "running c": "running",
    }
    assert standing(waiting, "c") == ["withdrawn", "withdrawn", "running"]
    assert standing(waiting, "d") == ["parked", "asked", "running"]
    space = waiting.world.space
    assert set(space.parked) == {"parked d"}
    assert set(space.waiting) == {"$case.d", f"$belief.{waiting.sessions['d']}"}
    ended = {each.proposal_id: each.status for each in space.approvals.values()}
    assert [ended[f"{name} {case}"].value for case in "cd" for name in ("asked", "running")] == [
        *["withdrawn"] * 2,
        *["pending"] * 2,
    ]
    for approval_id, approval in space.approvals.items():
        if approval.status is ApprovalStatus.WITHDRAWN:
            with pytest.raises(Conflict, match="withdrawn already"):
                waiting.world.say(Approve(approval_id))
    waiting.rule_out("c", "cache", "dns")
    assert waiting.status("parked c") is ProposalStatus.WITHDRAWN


@pytest.mark.req("CASE-CLOSE-01")
def test_a_refused_closing_leaves_everything_waiting(waiting: Incidents) -> None:
    assert waiting.close_case("c", AGENT).event.result.reason_code == "NOT_AUTHORISED"
    assert standing(waiting, "c") == ["parked", "asked", "running"]


@pytest.mark.req("CASE-CLOSE-01")
def test_a_call_in_doubt_is_not_tried_again_once_its_case_is_closed() -> None:
    with closing(Incidents({"constraint.any": ANY})) as incidents:
        world = incidents.world
        world.equip(caller_tool("unused"), token="more")
        world.equip(msgspec.structs.replace(world.space.tools["restart"], idempotent=True), token="again")
        incidents.begin("c")
        incidents.runner.unknown = True
        incidents.restart("p", "c")
        (execution_id,) = world.space.proposals["p"].execution_ids
        incidents.close_case("c")
        world.advance(minutes=5)
        assert [each.intent.attempt for each in world.space.executions.values()] == [1]
        with pytest.raises(Conflict, match="may not be started again"):
            world.say(Start(execution_id), ENGINE)
        incidents.assert_replays()


# --- approvals --------------------------------------------------------------------------------------------------------


@pytest.mark.req("CASE-GATE-04")
def test_an_approval_of_one_case_is_of_no_use_in_another() -> None:
    asked = gated(on_fail="ask", when=equal("$case.belief.n_survivors", 0))
    with closing(Incidents({"constraint.restart": asked})) as incidents:
        for case_id in ("c", "d"):
            incidents.begin(case_id)
        assert incidents.restart("p", "c").failure is Failure.ASK
        (approval_id,) = incidents.world.space.approvals
        assert incidents.world.space.approvals[approval_id].asked.case_id == "c"
        incidents.world.say(Approve(approval_id, uses=3))
        assert incidents.status("p") is ProposalStatus.COMMITTED
        assert outcome(incidents.restart("again", "c")) == ALLOWED
        assert incidents.restart("q", "d").failure is Failure.ASK
        assert outcome(incidents.restart("r")) == NO_CASE
        incidents.close_case("c")
        assert outcome(incidents.restart("s", "c")) == NO_CASE
        incidents.assert_replays()


def test_an_approval_that_comes_after_its_agent_lost_the_case_lets_nothing_through() -> None:
    asked = {
        "constraint.any": ANY,
        "constraint.ask": constraint(subject={"tool_id": "restart"}, effect="deny", on_fail="ask"),
        "constraint.case": gated(effect="deny", when={"op": "not", "args": [equal("$case.belief.n_survivors", 3)]}),
    }
    with closing(Incidents(asked)) as incidents:
        incidents.begin("c")
        assert incidents.restart("p", "c").failure is Failure.ASK
        (approval_id,) = incidents.world.space.approvals
        incidents.rule_out("c", "dns")
        decision = incidents.world.say(Approve(approval_id)).event.result.decision
        assert decision is not None
        assert (decision.verdict, decision.reason_code) == (Verdict.DEFER, ReasonCode.CONSTRAINT_DENIED)
        incidents.assert_replays()


# --- invariants and results -------------------------------------------------------------------------------------------

INVARIANT = msgspec.json.encode({"v": 2, "when": at_most("$case.belief.independent.n_survivors", 2)}).decode()
JUDGED = {"constraint.any": ANY, "policy.invariant.known": INVARIANT}


@pytest.mark.req("CASE-GATE-05")
def test_an_invariant_reads_the_case_of_the_proposal_whose_commit_it_judges() -> None:
    with closing(Incidents(JUDGED)) as incidents:
        world = incidents.world
        incidents.begin("c")
        incidents.begin("d")
        incidents.rule_out("c", "cache")
        assert outcome(world.decide(delta(x="1"), case_id="c")) == ALLOWED
        violated = (Verdict.DENY, ReasonCode.INVARIANT_VIOLATED, Failure.BLOCK)
        assert outcome(world.decide(delta(x="2"), case_id="d")) == violated
        decision = world.decide(delta(x="2"))
        assert outcome(decision) == NO_CASE
        assert (decision.stage, decision.candidates[0].matched) == (Stage.INVARIANTS, ("policy.invariant.known",))
        assert world.space.state["goal.x"] == "1"
        # What the agent rules out itself does not count in an invariant either.
        incidents.rule_out("d", "cache", actor=AGENT)
        assert outcome(world.decide(delta(x="2"), case_id="d")) == violated
        assert check_space(incidents.log, SPACE).findings == []
        incidents.assert_replays()


def _wait_for_outcome(incidents: Incidents, case_id: str | None) -> str:
    parts = {} if case_id is None else {"case_id": case_id}
    return incidents.world.start(
        call("run", key=f"{case_id}", token="more"), delta(**{case_id or "none": "1"}), **parts
    )


@pytest.mark.req("CASE-GATE-05")
def test_the_commit_that_waits_for_a_call_and_the_facts_of_its_result_are_judged_in_its_case() -> None:
    with closing(Incidents({"constraint.any": ANY})) as incidents:
        world = incidents.world
        world.equip(caller_tool("run", facts={"fact.seen": ""}, caller_facts=True), token="more")
        for case_id in ("c", "d", "e"):
            incidents.begin(case_id)
            incidents.rule_out(case_id, "cache")
        begun = {case_id: _wait_for_outcome(incidents, case_id) for case_id in ("c", "d", "e", None)}
        change_policy(world, {"policy.invariant.known": INVARIANT})
        incidents.begin("late")
        incidents.close_case("e")
        results = {case_id: world.report(each, result=str(case_id)) for case_id, each in begun.items()}
        assert [each.event.result.reason_code for each in results.values()] == [None, None, *["FACTS_REFUSED"] * 2]
        readings = readings_in(results["c"].event)
        assert [reading.session_id for reading in readings] == [incidents.sessions["c"]]
        assert readings_in(results["e"].event) == []
        assert world.space.state["fact.seen"] == "d"
        assert [f"goal.{name}" in world.space.state for name in ("c", "d", "e", "none")] == [True, True, False, False]
        assert check_space(incidents.log, SPACE).findings == []
        incidents.assert_replays()


def test_a_difference_of_a_space_names_the_cases_that_were_opened_and_closed(waiting: Incidents) -> None:
    server = waiting.world.server
    start = waiting.world.space.head.seq
    waiting.close_case("c")
    waiting.open_case("e")
    changes = {(each.kind, each.id): each.after for each in server.diff(SPACE, start).changes}
    assert changes[SpaceChangeKind.CASE, "c"] == "closed"
    assert changes[SpaceChangeKind.CASE, "e"] == "open"
    assert changes[SpaceChangeKind.PROPOSAL, "parked c"] == "withdrawn"
