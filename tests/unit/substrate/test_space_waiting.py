"""What a space waits for: approvals, keys, deadlines, and outcomes that are not reported."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cmbs.errors import Conflict
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import (
    Approve,
    Expire,
    ExpiryOf,
    MarkInDoubt,
    MemoryKind,
    OutcomeStatus,
    PutMemory,
    RecordOutcome,
    Reject,
    SpaceVerb,
    Start,
    Wake,
)
from cmbs.substrate.kernel.model import StateDelta, Verdict
from cmbs.substrate.kernel.proposals import situation_of
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus, ProposalStatus
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
    STREAM,
    World,
    call,
    caller_tool,
    change_policy,
    constraint,
    delta,
    eventually,
    facts,
    http_tool,
    raw,
    status,
    wait_until_settled,
)

# --- ask --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def asking(world: World) -> World:
    world.open(http_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    return world


def test_what_is_asked_for_runs_once_an_operator_has_approved_it(asking: World) -> None:
    answer = asking.propose(call("t", {"x": 1}), delta(a="1"), proposal_id="p")
    (asked,) = answer.event.result.asked
    assert (asked.constraints, asked.tool_id) == (["constraint.ask"], "t")
    assert status(answer.space, "p") is ProposalStatus.ASKED
    assert not asking.runner.calls
    for actor in (AGENT, OTHER_AGENT, Actor(ActorKind.OPERATOR, "agent")):
        refused = asking.say(Approve(asked.approval_id), actor)
        assert refused.event.result.granted is False
        assert status(refused.space, "p") is ProposalStatus.ASKED
    wrong = asking.say(Approve(asked.approval_id, call_hash="0" * 64))
    assert wrong.event.result.reason_code == "CALL_CHANGED"
    approved = asking.say(Approve(asked.approval_id, call_hash=asked.call_hash))
    assert len(approved.event.result.intents) == 1
    assert wait_until_settled(asking, "p") is ProposalStatus.COMMITTED
    assert asking.space.state["goal.a"] == "1"
    assert (asking.space.approvals[asked.approval_id].approver, len(asking.runner.calls)) == (ROOT, 1)
    assert not asking.space.grants
    with pytest.raises(Conflict, match="approved already"):
        asking.say(Approve(asked.approval_id))


def test_approval_decides_again_on_the_state_of_its_moment(world: World) -> None:
    closed = constraint(effect="deny", when={"op": "eq", "args": ["fact.door", "closed"]})
    world.open(http_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING, "constraint.door": closed})
    (asked,) = world.propose(call("t"), proposal_id="p").event.result.asked
    world.propose(StateDelta({"fact.door": "closed"}), actor=ENCODER)
    answer = world.say(Approve(asked.approval_id))
    decision = answer.event.result.decision
    assert decision is not None
    assert (decision.verdict, decision.candidates[0].matched) == (Verdict.DENY, ("constraint.door",))
    assert (status(answer.space, "p"), world.runner.calls) == (ProposalStatus.DENIED, [])


def test_an_approval_under_another_policy_asks_anew(asking: World) -> None:
    (asked,) = asking.propose(call("t"), proposal_id="p").event.result.asked
    change_policy(asking, {"policy.value.note": "changed"})
    (anew,) = asking.say(Approve(asked.approval_id)).event.result.asked
    assert anew.approval_id != asked.approval_id
    assert status(asking.space, "p") is ProposalStatus.ASKED
    asking.say(Approve(anew.approval_id))
    assert wait_until_settled(asking, "p") is ProposalStatus.COMMITTED


def test_what_is_rejected_never_runs(asking: World) -> None:
    answer = asking.propose(call("t", key="1"), call("t", {"x": 2}, key="2"), proposal_id="p")
    first, second = answer.event.result.asked
    assert not asking.say(Reject(first.approval_id), OTHER_AGENT).event.result.granted
    rejected = asking.say(Reject(first.approval_id, "no"), SECOND)
    assert status(rejected.space, "p") is ProposalStatus.REJECTED
    statuses = [rejected.space.approvals[each.approval_id].status for each in (first, second)]
    assert statuses == [ApprovalStatus.REJECTED] * 2
    with pytest.raises(Conflict, match="rejected already"):
        asking.say(Approve(second.approval_id))
    assert not asking.runner.calls


def test_all_of_several_requests_must_be_approved(asking: World) -> None:
    answer = asking.propose(call("t", key="1"), call("t", {"x": 2}, key="2"), proposal_id="p")
    first, second = answer.event.result.asked
    half = asking.say(Approve(first.approval_id))
    assert (half.event.result.intents, half.event.result.asked) == ((), ())
    assert status(half.space, "p") is ProposalStatus.ASKED
    assert len(asking.say(Approve(second.approval_id)).event.result.intents) == 2
    assert wait_until_settled(asking, "p") is ProposalStatus.COMMITTED


def test_a_request_without_an_answer_expires(asking: World) -> None:
    answer = asking.propose(call("t"), proposal_id="p", ask_ms=1_000)
    (asked,) = answer.event.result.asked
    with pytest.raises(Conflict, match="not over"):
        asking.say(Expire(ExpiryOf.APPROVAL, asked.approval_id), ENGINE)
    asking.server.keep()
    assert status(asking.space, "p") is ProposalStatus.ASKED
    asking.clock.advance(timedelta(seconds=1))
    late = asking.say(Approve(asked.approval_id))
    assert (late.event.result.granted, late.event.result.reason_code) == (False, "APPROVAL_EXPIRED")
    asking.server.keep()
    assert status(asking.space, "p") is ProposalStatus.EXPIRED
    assert asking.space.approvals[asked.approval_id].status is ApprovalStatus.EXPIRED
    assert not asking.runner.calls


# --- defer ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def deferring(world: World) -> World:
    only = {"op": "all", "args": [{"op": "exists", "args": ["$tool.id"]}, {"op": "missing", "args": ["fact.ready"]}]}
    world.open(
        http_tool("t"),
        policy={"constraint.any": ANY, "constraint.wait": constraint(effect="deny", when=only, on_fail="defer")},
    )
    return world


def test_a_deferred_proposal_is_parked_and_runs_by_itself_when_what_it_waits_for_is_there(deferring: World) -> None:
    answer = deferring.propose(call("t"), delta(a="1"), proposal_id="p")
    assert (status(answer.space, "p"), "fact.ready" in answer.space.waiting) == (ProposalStatus.PARKED, True)
    deferring.server.keep()
    assert deferring.space.head.seq == answer.seq
    deferring.know(other="x")
    assert status(deferring.space, "p") is ProposalStatus.PARKED
    deferring.know(ready="yes")
    assert wait_until_settled(deferring, "p") is ProposalStatus.COMMITTED
    assert (deferring.space.state["goal.a"], len(deferring.runner.calls)) == ("1", 1)
    assert (len(deferring.space.parked), len(deferring.space.waiting)) == (0, 0)


def test_a_parked_proposal_expires(deferring: World) -> None:
    deferring.propose(call("t"), proposal_id="p", defer_ms=5_000)
    deferring.advance(seconds=5)
    assert (status(deferring.space, "p"), len(deferring.space.parked)) == (ProposalStatus.EXPIRED, 0)
    deferring.know(ready="yes")
    assert not deferring.runner.calls


def test_a_woken_proposal_whose_own_keys_were_written_meanwhile_is_stale(deferring: World) -> None:
    deferring.propose(call("t"), delta(a="1"), proposal_id="p")
    deferring.propose(delta(a="other"))
    deferring.know(ready="yes")
    assert status(deferring.space, "p") is ProposalStatus.DENIED
    assert (deferring.space.state["goal.a"], deferring.runner.calls) == ("other", [])


def test_what_is_left_of_a_proposal_that_is_not_atomic_waits_alone(deferring: World) -> None:
    answer = deferring.propose(delta(a="1"), call("t"), proposal_id="p", atomic=False)
    assert (answer.space.state["goal.a"], status(answer.space, "p")) == ("1", ProposalStatus.PARKED)
    deferring.propose(delta(a="2"))
    deferring.know(ready="yes")
    assert wait_until_settled(deferring, "p") is ProposalStatus.COMMITTED
    # Not committed a second time.
    assert (deferring.space.state["goal.a"], len(deferring.runner.calls)) == ("2", 1)
    decisions = deferring.space.proposals["p"].decision.candidates
    assert [each.verdict for each in decisions] == [Verdict.ALLOW, Verdict.ALLOW]


def test_only_the_engine_takes_the_steps_of_the_engine(deferring: World) -> None:
    deferring.propose(call("t"), proposal_id="p")
    for message in (Wake("p", []), Expire(ExpiryOf.PARKED, "p"), MarkInDoubt("x")):
        with pytest.raises(Conflict, match="policy engine"):
            deferring.say(message)
    with pytest.raises(Conflict, match="not parked"):
        deferring.say(Expire(ExpiryOf.PARKED, "q"), ENGINE)


# --- doubt ------------------------------------------------------------------------------------------------------------


def test_an_execution_without_an_outcome_is_in_doubt_and_not_run_again(world: World) -> None:
    world.open(http_tool("t", timeout_ms=1_000))
    world.runner.unknown = True
    execution_id = world.start(call("t"), delta(a="1"), proposal_id="p")
    world.advance(seconds=10)
    execution = world.space.executions[execution_id]
    assert (execution.status, status(world.space, "p")) == (ExecutionStatus.IN_DOUBT, ProposalStatus.RUNNING)
    with pytest.raises(Conflict, match="not be started again"):
        world.say(Start(execution_id), ENGINE)
    with pytest.raises(Conflict, match="not running"):
        world.say(MarkInDoubt(execution_id), ENGINE)
    looked = world.say(RecordOutcome(execution_id, OutcomeStatus.SUCCEEDED), ROOT)
    assert (looked.space.state["goal.a"], status(looked.space, "p")) == ("1", ProposalStatus.COMMITTED)
    assert len(world.runner.calls) == 1


def test_one_in_doubt_is_tried_again_where_its_tool_is_idempotent_and_not_for_ever(world: World) -> None:
    world.open(http_tool("t", timeout_ms=1_000, idempotent=True))
    world.runner.unknown = True
    execution_id = world.start(call("t"), proposal_id="p")
    for attempts in (1, 2, 3, 3, 3):
        assert eventually(lambda: len(world.runner.calls) == attempts)  # noqa: B023 - it is called at once
        world.advance(seconds=10)
    assert [context.attempt for _, _, context in world.runner.calls] == [1, 2, 3]
    assert len({context.idempotency_key for _, _, context in world.runner.calls}) == 1
    assert world.space.executions[execution_id].status is ExecutionStatus.IN_DOUBT


def test_an_execution_is_not_in_doubt_before_its_deadline(world: World) -> None:
    world.open(caller_tool("c"))
    execution_id = world.start(call("c"))
    with pytest.raises(Conflict, match="has until"):
        world.say(MarkInDoubt(execution_id), ENGINE)


# --- several candidates ----------------------------------------------------------------------------------------------

FIRST = constraint(effect="deny", subject={"tool_id": "c"}, on_fail="ask")


LATER = constraint(effect="deny", subject={"tool_id": "c"}, when={"op": "exists", "args": ["fact.late"]}, on_fail="ask")


WAITING = constraint(
    effect="deny", subject={"tool_id": "c"}, when={"op": "missing", "args": ["fact.go"]}, on_fail="defer"
)


def test_approvals_that_overlap_are_used_up_each_for_itself(world: World) -> None:
    world.open(caller_tool("c"), policy={"constraint.any": ANY, "constraint.first": FIRST, "constraint.later": LATER})
    (narrow,) = world.propose(call("c", key="1"), proposal_id="p").event.result.asked
    world.propose(facts(late="yes"), actor=ENCODER)
    (wide,) = world.propose(call("c", key="2"), proposal_id="q").event.result.asked
    assert (narrow.constraints, wide.constraints) == (["constraint.first"], ["constraint.first", "constraint.later"])
    (first,) = world.say(Approve(wide.approval_id, 2)).event.result.intents
    world.claim(first.execution_id)
    (intent,) = world.say(Approve(narrow.approval_id, 2)).event.result.intents
    after = world.claim(intent.execution_id)
    assert status(after.space, "p") is ProposalStatus.RUNNING
    assert set(after.event.result.used_approvals) == {narrow.approval_id, wide.approval_id}
    left = {known: each.uses_left for known, each in after.space.approvals.items()}
    assert left == {narrow.approval_id: 1, wide.approval_id: 0}
    assert set(after.space.grants.values()) == {narrow.approval_id}


def test_what_was_approved_already_stays_approved_when_the_rest_is_rejected(world: World) -> None:
    world.open(caller_tool("c"), policy={"constraint.any": ANY, "constraint.first": FIRST})
    first, second = world.propose(call("c", key="1"), call("c", {"x": 1}, key="2"), proposal_id="p").event.result.asked
    world.say(Approve(first.approval_id))
    after = world.say(Reject(second.approval_id)).space
    statuses = [after.approvals[each.approval_id].status for each in (first, second)]
    assert statuses == [ApprovalStatus.APPROVED, ApprovalStatus.REJECTED]
    assert status(after, "p") is ProposalStatus.REJECTED


def test_a_rejection_does_not_end_what_already_runs(world: World) -> None:
    world.open(caller_tool("c"), caller_tool("free"), policy={"constraint.any": ANY, "constraint.first": FIRST})
    answer = world.propose(call("free", key="1"), call("c", key="2"), proposal_id="p", atomic=False)
    (asked,), (intent,) = answer.event.result.asked, answer.event.result.intents
    assert status(answer.space, "p") is ProposalStatus.RUNNING
    assert status(world.say(Reject(asked.approval_id)).space, "p") is ProposalStatus.RUNNING
    done = world.report(intent.execution_id)
    assert status(done.space, "p") is ProposalStatus.COMMITTED


@pytest.mark.parametrize("policy", [FIRST, WAITING])
def test_the_rest_of_a_proposal_goes_on_waiting_when_its_calls_are_done(world: World, policy: str) -> None:
    world.open(caller_tool("c"), caller_tool("free"), policy={"constraint.any": ANY, "constraint.c": policy})
    answer = world.propose(call("free", key="1"), call("c", key="2"), proposal_id="p", atomic=False)
    (intent,) = answer.event.result.intents
    done = world.report(intent.execution_id)
    expected = ProposalStatus.ASKED if policy == FIRST else ProposalStatus.PARKED
    assert status(done.space, "p") is expected
    if policy == WAITING:
        world.know(go="yes")
        told = world.server.decision(SPACE, "p")
        assert [each.verdict for each in told.candidates] == [Verdict.ALLOW, Verdict.ALLOW]
        assert {step.candidate for step in told.trace} <= {None, 1}
    else:
        (asked,) = answer.event.result.asked
        again = world.say(Approve(asked.approval_id))
        assert [intent.candidate for intent in again.event.result.intents] == [1]


def test_a_wake_was_decided_on_what_was_left_of_its_proposal(world: World) -> None:
    world.open(caller_tool("c"), policy={"constraint.any": ANY, "constraint.wait": WAITING})
    parked = world.propose(call("c"), proposal_id="p", atomic=False)
    world.know(go="yes")
    events = [read_space_event(stored) for stored in world.log.read(STREAM)]
    (woken,) = [event for event in events if event.body.verb == SpaceVerb.WAKE]
    before = world.server.at(SPACE, woken.body.seq - 1)
    space, proposal, actor = situation_of(before, woken)
    assert (space, actor) == (before, AGENT)
    assert proposal.candidates == parked.space.proposals["p"].message.proposal.candidates
    assert proposal.state_snapshot_id == before.snapshot_id


def test_nothing_is_woken_that_does_not_wait_and_nothing_expires_before_its_time(world: World) -> None:
    world.create()
    world.propose(delta(a="1"), proposal_id="p")
    with pytest.raises(Conflict, match="waits for nothing"):
        world.say(Wake("p", ["fact.go"]), ENGINE)
    world.say(PutMemory("m", MemoryKind.HYPOTHESIS, raw("it rains"), ttl_ms=1000), AGENT)
    with pytest.raises(Conflict, match="does not expire now"):
        world.say(Expire(ExpiryOf.MEMORY, "m"), ENGINE)
    world.advance(seconds=1)
    assert world.space.memory["m"].expired
