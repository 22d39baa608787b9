"""Rules of spaces: withdrawal, facts of results, bound approvals, keys per actor, disputes, governance."""

from __future__ import annotations

from typing import Any

import pytest

from cmbs.errors import Conflict, InvalidRequest, RecordNotFound
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import (
    Approve,
    ConflictState,
    CreateSpace,
    DisputeMemory,
    MemoryKind,
    Mode,
    ProposePolicy,
    PutMemory,
    RegisterTool,
    SetGovernance,
    SetMode,
    SettlePolicy,
    SpaceMessage,
    Withdraw,
)
from cmbs.substrate.kernel.model import ReasonCode, Verdict
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus, PolicyChangeStatus, ProposalStatus
from tests.support.spaces import (
    AGENT,
    ANY,
    ASKING,
    ENCODER,
    ENGINE,
    OTHER_AGENT,
    ROOT,
    SECOND,
    SPACE,
    World,
    call,
    caller_tool,
    change_policy,
    constraint,
    delta,
    facts,
    http_tool,
    raw,
    status,
    wait_until_settled,
)

WAITING = constraint(
    effect="deny", subject={"tool_id": "w"}, on_fail="defer", when={"op": "missing", "args": ["fact.go"]}
)
POLICY = {"constraint.any": ANY, "constraint.ask": ASKING, "constraint.wait": WAITING}


# --- withdrawal -------------------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-WITHDRAW-01")
@pytest.mark.parametrize("actor", [AGENT, ROOT, SECOND])
@pytest.mark.parametrize("tool_id", ["t", "w"])
def test_author_and_operators_withdraw_what_waits(world: World, actor: Actor, tool_id: str) -> None:
    world.open(http_tool("t"), http_tool("w"), policy=POLICY)
    world.propose(call(tool_id), proposal_id="p")
    after = world.say(Withdraw("p", "not needed"), actor).space
    assert status(after, "p") is ProposalStatus.WITHDRAWN
    assert {each.status for each in after.approvals.values()} <= {ApprovalStatus.WITHDRAWN}
    assert (len(after.parked), len(after.waiting), len(after.loads)) == (0, 0, 0)
    world.know(go="1")
    world.advance(hours=2)
    assert (status(world.space, "p"), world.runner.calls) == (ProposalStatus.WITHDRAWN, [])


@pytest.mark.req("GATES-WITHDRAW-01")
def test_a_withdrawal_by_another_agent_is_refused_and_on_record(world: World) -> None:
    world.open(http_tool("t"), policy=POLICY)
    world.propose(call("t"), proposal_id="p")
    refused = world.say(Withdraw("p"), OTHER_AGENT)
    assert (refused.event.result.granted, refused.event.result.reason_code) == (False, "NOT_AUTHORISED")
    assert status(refused.space, "p") is ProposalStatus.ASKED


@pytest.mark.req("GATES-WITHDRAW-01")
def test_a_withdrawal_may_be_repeated_and_gives_the_first_answer(world: World) -> None:
    world.open(http_tool("t"), policy=POLICY)
    world.propose(call("t"), proposal_id="p")
    first = world.say(Withdraw("p"), AGENT)
    for actor in (AGENT, ROOT):
        again = world.say(Withdraw("p", "once more"), actor)
        assert (again.repeated, again.seq) == (True, first.seq)
    assert not world.say(Withdraw("p"), OTHER_AGENT).event.result.granted


@pytest.mark.req("GATES-WITHDRAW-01")
def test_what_waits_for_nothing_cannot_be_withdrawn(world: World) -> None:
    world.create()
    world.propose(delta(a="1"), proposal_id="p")
    with pytest.raises(Conflict, match="is committed, and waits for nothing"):
        world.say(Withdraw("p"), AGENT)
    with pytest.raises(RecordNotFound):
        world.say(Withdraw("q"), AGENT)


@pytest.mark.req("GATES-WITHDRAW-01")
def test_what_runs_already_goes_on_when_the_rest_is_withdrawn(world: World) -> None:
    world.open(caller_tool("t"), caller_tool("w"), caller_tool("c"), policy=POLICY)
    begun = world.start(call("t"), call("w"), call("c"), atomic=False, proposal_id="p")
    after = world.say(Withdraw("p"), AGENT).space
    assert (status(after, "p"), len(after.parked)) == (ProposalStatus.RUNNING, 0)
    assert [each.status for each in after.approvals.values()] == [ApprovalStatus.WITHDRAWN]
    assert status(world.report(begun).space, "p") is ProposalStatus.COMMITTED
    assert world.say(Withdraw("p"), AGENT).repeated


# --- what a result writes ---------------------------------------------------------------------------------------------

UP = {"fact.state": "state"}
ASKING_FOR_DELTAS = constraint(effect="deny", on_fail="ask", when={"op": "missing", "args": ["$tool.id"]})
NO_FACTS = constraint(effect="deny", subject=None, when={"op": "eq", "args": ["$args.set.fact.state", "down"]})


@pytest.mark.req("GATES-FACTS-01")
@pytest.mark.parametrize(
    ("policy", "said", "written"),
    [
        ({"constraint.any": ANY}, "up", True),
        ({"constraint.any": ANY, "constraint.no": NO_FACTS}, "up", True),
        ({"constraint.any": ANY, "constraint.no": NO_FACTS}, "down", False),
        ({"constraint.t": constraint(subject={"tool_id": "t"})}, "up", False),
        ({"constraint.any": ANY, "constraint.ask": ASKING_FOR_DELTAS}, "up", False),
    ],
    ids=["allowed", "not denied", "denied", "not allowed", "asked for"],
)
def test_what_a_result_writes_goes_through_the_constraints_on_deltas(
    world: World, policy: dict[str, str], said: str, written: bool
) -> None:
    world.runner.result = {"state": said}
    world.open(http_tool("t", facts=UP), policy=policy)
    world.propose(call("t"), proposal_id="p")
    assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED
    (execution,) = world.space.executions.values()
    assert execution.status is ExecutionStatus.SUCCEEDED
    assert ("fact.state" in world.space.state) is written
    assert reason_of_outcome(world) == (None if written else "FACTS_REFUSED")


def reason_of_outcome(world: World) -> str | None:
    """The reason code of the newest outcome."""
    events = [read_space_event(stored) for stored in world.server.stored_entries(SPACE)]
    return next(each.result.reason_code for each in reversed(events) if each.body.verb == "RECORD_OUTCOME")


@pytest.mark.req("GATES-FACTS-01")
def test_the_actor_of_such_a_delta_is_the_tool(world: World) -> None:
    mine = constraint(effect="deny", subject=None, when={"op": "eq", "args": ["$actor.id", "t"]})
    world.runner.result = {"state": "up"}
    world.open(http_tool("t", facts=UP), http_tool("u", facts=UP), policy={"constraint.any": ANY, "constraint.t": mine})
    for tool_id, written in (("t", False), ("u", True)):
        world.propose(call(tool_id), proposal_id=tool_id)
        wait_until_settled(world, tool_id)
        assert ("fact.state" in world.space.state) is written


@pytest.mark.req("GATES-FACTS-02")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("says", [None, False, True])
def test_a_result_that_an_agent_reports_itself_writes_facts_only_where_the_registration_says_so(
    world: World, says: bool | None, mode: Mode
) -> None:
    parts = {} if says is None else {"caller_facts": says}
    world.open(caller_tool("c", facts=UP, **parts), mode=mode)
    answer = world.report(world.start(call("c")), result={"state": "up"})
    assert ("fact.state" in answer.space.state) is (says is True)
    assert answer.event.result.reason_code == (None if says else "FACTS_REFUSED")


# --- approvals --------------------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-APPROVAL-01")
def test_an_approval_covers_the_tool_as_it_was_registered(world: World) -> None:
    world.open(http_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    (asked,) = world.propose(call("t"), proposal_id="p").event.result.asked
    world.say(Approve(asked.approval_id, uses=3), ROOT)
    assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED
    assert world.decide(call("t", key="k2"), proposal_id="q").verdict is Verdict.ALLOW
    world.say(RegisterTool(http_tool("t", description="does more than it did")))
    decision = world.decide(call("t", key="k3"), proposal_id="r")
    assert (decision.verdict, decision.reason_code) == (Verdict.DEFER, ReasonCode.CONSTRAINT_DENIED)
    world.say(RegisterTool(http_tool("t")))
    assert world.decide(call("t", key="k4"), proposal_id="s").verdict is Verdict.ALLOW


@pytest.mark.req("GATES-APPROVAL-01")
def test_a_tool_that_changes_while_an_approval_is_pending_asks_again(world: World) -> None:
    world.open(http_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    (first,) = world.propose(call("t"), proposal_id="p").event.result.asked
    world.say(RegisterTool(http_tool("t", description="new")))
    # The approver was quicker than the scheduler: what was approved is the tool that was, and another is asked for.
    answer = world.say(Approve(first.approval_id), ROOT)
    (second,) = answer.event.result.asked
    assert (status(answer.space, "p"), first.tool_hash != second.tool_hash) == (ProposalStatus.ASKED, True)
    world.say(Approve(second.approval_id), ROOT)
    assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED


@pytest.mark.req("GATES-APPROVAL-02")
def test_a_request_that_nothing_needs_any_more_is_withdrawn_with_the_decision_that_says_so(world: World) -> None:
    world.open(http_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    (asked,) = world.propose(call("t"), proposal_id="p").event.result.asked
    change_policy(world, {"constraint.never": constraint(effect="deny", subject={"tool_id": "t"})})
    world.server.keep()
    approval = world.space.approvals[asked.approval_id]
    assert (approval.status, approval.approver) == (ApprovalStatus.WITHDRAWN, ENGINE)
    assert (status(world.space, "p"), len(world.space.loads)) == (ProposalStatus.DENIED, 0)


# --- idempotency keys -------------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-KEYS-01")
def test_the_key_of_a_call_belongs_to_its_agent(world: World) -> None:
    world.open(caller_tool("c"))
    world.equip(caller_tool("c"), token="theirs", agent=OTHER_AGENT)
    mine = world.start(call("c", {"n": 1}))
    theirs = world.start(call("c", {"n": 2}, token="theirs"), actor=OTHER_AGENT)
    assert mine != theirs
    again = world.propose(call("c", {"n": 1}), proposal_id="again").event.result
    assert (again.intents, again.answered_by) == ((), {"0": mine})
    assert world.decide(call("c", {"n": 3})).reason_code is ReasonCode.IDEMPOTENCY_CONFLICT


@pytest.mark.req("GATES-KEYS-01")
def test_the_key_of_a_request_belongs_to_its_actor(world: World) -> None:
    world.open(http_tool("t"), policy=POLICY)
    first = world.say(SetMode(Mode.ENFORCE), ROOT, idempotency_key="k")
    other = world.say(SetMode(Mode.ENFORCE), SECOND, idempotency_key="k")
    assert (other.repeated, other.seq) == (False, first.seq + 1)
    same_id = world.say(SetMode(Mode.ENFORCE), Actor(ActorKind.AGENT, ROOT.id), idempotency_key="k")
    assert not same_id.repeated
    again = world.say(SetMode(Mode.ENFORCE), ROOT, idempotency_key="k")
    assert (again.repeated, again.seq) == (True, first.seq)
    with pytest.raises(Conflict, match="used for another request"):
        world.say(SetMode(Mode.OBSERVE), ROOT, idempotency_key="k")


# --- disputes ---------------------------------------------------------------------------------------------------------


def dispute(world: World, state: ConflictState, actor: Actor) -> str | None:
    return world.say(DisputeMemory("m", state), actor).event.result.reason_code


@pytest.fixture
def claim(world: World) -> World:
    world.create()
    world.say(PutMemory("m", MemoryKind.HYPOTHESIS, raw("it rains"), ttl_ms=60_000), AGENT)
    return world


@pytest.mark.req("GATES-DISPUTE-01")
def test_a_dispute_is_lifted_by_who_raised_it_or_by_an_operator(claim: World) -> None:
    for lifting in (OTHER_AGENT, ROOT):
        assert dispute(claim, ConflictState.CONTRADICTORY, OTHER_AGENT) is None
        for actor in (AGENT, ENCODER):
            assert dispute(claim, ConflictState.NONE, actor) == "DISPUTE_OF_ANOTHER"
            assert claim.space.memory["m"].conflict_state is ConflictState.CONTRADICTORY
        assert dispute(claim, ConflictState.NONE, lifting) is None
        assert claim.space.memory["m"].conflict_state is ConflictState.NONE
    # Where nothing is disputed, there is nothing to lift.
    assert dispute(claim, ConflictState.NONE, AGENT) is None


@pytest.mark.req("GATES-DISPUTE-01")
def test_a_dispute_of_another_actor_outlives_ones_own(claim: World) -> None:
    dispute(claim, ConflictState.POSSIBLE, OTHER_AGENT)
    dispute(claim, ConflictState.CONTRADICTORY, AGENT)
    assert dispute(claim, ConflictState.NONE, AGENT) is None
    entry = claim.space.memory["m"]
    assert (entry.conflict_state, entry.disputes) == (ConflictState.POSSIBLE, {"other": ConflictState.POSSIBLE})
    # An operator's word takes away as much from all of them.
    dispute(claim, ConflictState.CONTRADICTORY, OTHER_AGENT)
    assert dispute(claim, ConflictState.POSSIBLE, ROOT) is None
    assert claim.space.memory["m"].conflict_state is ConflictState.POSSIBLE


# --- governance -------------------------------------------------------------------------------------------------------


def propose_policy(world: World, change_id: str, actor: Actor = ROOT) -> SpaceMessage:
    message = ProposePolicy(change_id, world.space.policy.policy_hash, {"policy.value.x": change_id})
    world.say(message, actor)
    return message


@pytest.mark.req("GATES-GOVERN-01")
def test_where_one_operator_is_enough_a_change_of_policy_is_in_force_at_once(world: World) -> None:
    world.say(CreateSpace(SPACE, policy={"constraint.any": ANY}, operators_needed=1))
    before = world.space
    propose_policy(world, "c1")
    after = world.space
    change = after.policy_changes["c1"]
    assert (change.status, change.settled_by, change.settled_seq) == (PolicyChangeStatus.APPLIED, ROOT, change.seq)
    assert (after.policy.pairs["policy.value.x"], after.state["policy.value.x"]) == ("c1", "c1")
    assert (after.policy_version, after.head.seq) == (before.policy_version + 1, before.head.seq + 1)
    with pytest.raises(Conflict, match="applied already"):
        world.say(SettlePolicy("c1", True), SECOND)
    refused = ProposePolicy("c2", after.policy.policy_hash, {"policy.value.x": "2"})
    assert world.say(refused, AGENT).event.result.reason_code == "NOT_AUTHORISED"
    assert world.say(SetMode(Mode.OBSERVE), ROOT).space.mode is Mode.OBSERVE


@pytest.mark.req("GATES-GOVERN-01")
@pytest.mark.parametrize("parts", [{}, {"operators_needed": 2}])
def test_where_two_are_needed_or_nothing_is_said_it_waits_for_another(world: World, parts: dict[str, Any]) -> None:
    world.say(CreateSpace(SPACE, policy={"constraint.any": ANY}, **parts))
    propose_policy(world, "c1")
    assert (world.space.operators_needed, "policy.value.x" in world.space.state) == (2, False)
    assert world.say(SettlePolicy("c1", True), ROOT).event.result.reason_code == "SELF_APPROVAL"
    assert "policy.value.x" in world.say(SettlePolicy("c1", True), SECOND).space.state
    assert world.say(SetMode(Mode.OBSERVE), ROOT).space.mode is Mode.ENFORCE


@pytest.mark.req("GATES-GOVERN-02")
def test_from_one_to_two_takes_one_operator_and_back_takes_two(world: World) -> None:
    world.say(CreateSpace(SPACE, operators_needed=1))
    assert world.say(SetGovernance(2), AGENT).event.result.reason_code == "NOT_AUTHORISED"
    assert world.say(SetGovernance(2), ROOT).space.operators_needed == 2
    for _ in range(2):
        asked = world.say(SetGovernance(1), ROOT)
        assert (asked.event.result.granted, asked.event.result.reason_code) == (True, "SECOND_OPERATOR_NEEDED")
        assert (asked.space.operators_needed, asked.space.governance_asked_by) == (2, ROOT)
    # The same id under another kind is the same person, and no operator.
    assert not world.say(SetGovernance(1), Actor(ActorKind.AGENT, "root")).event.result.granted
    agreed = world.say(SetGovernance(1), SECOND).space
    assert (agreed.operators_needed, agreed.governance_asked_by) == (1, None)


@pytest.mark.req("GATES-GOVERN-02")
def test_a_request_to_need_one_operator_is_taken_back_by_asking_for_two(world: World) -> None:
    world.create()
    world.say(SetGovernance(1), ROOT)
    assert world.say(SetGovernance(2), ROOT).space.governance_asked_by is None
    assert world.say(SetGovernance(1), SECOND).space.operators_needed == 2


@pytest.mark.req("GATES-GOVERN-02")
def test_a_change_that_waited_when_one_became_enough_is_authorised_by_any_operator(world: World) -> None:
    world.create()
    propose_policy(world, "c1")
    world.say(SetGovernance(1), ROOT)
    world.say(SetGovernance(1), SECOND)
    assert "policy.value.x" in world.say(SettlePolicy("c1", True), ROOT).space.state


@pytest.mark.parametrize("number", [0, 3, -1])
def test_no_other_number_of_operators_can_be_needed(world: World, number: int) -> None:
    with pytest.raises(InvalidRequest, match="must be from 1 to 2"):
        world.say(CreateSpace(SPACE, operators_needed=number))
    world.create()
    with pytest.raises(InvalidRequest, match="must be from 1 to 2"):
        world.say(SetGovernance(number))


def test_a_repeated_creation_is_the_same_whatever_the_server_filled_in(world: World) -> None:
    first = world.say(CreateSpace(SPACE, operators_needed=1), idempotency_key="k")
    again = world.say(CreateSpace(SPACE, operators_needed=2), idempotency_key="k")
    assert (again.repeated, again.seq, again.space.operators_needed) == (True, first.seq, 1)


def test_facts_of_a_delta_and_of_a_result_meet_the_same_constraint(world: World) -> None:
    world.runner.result = {"state": "down"}
    world.open(http_tool("t", facts=UP), policy={"constraint.any": ANY, "constraint.no": NO_FACTS})
    assert world.decide(facts(state="down"), actor=ENCODER).reason_code is ReasonCode.CONSTRAINT_DENIED
    world.propose(call("t"), proposal_id="p")
    wait_until_settled(world, "p")
    assert "fact.state" not in world.space.state
