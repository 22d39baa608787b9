"""What a space waits for: approvals, keys, deadlines, and outcomes that are not reported."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from cmbs.errors import Conflict, RecordNotFound
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import (
    Approve,
    Expire,
    ExpiryOf,
    MarkInDoubt,
    OutcomeStatus,
    RecordOutcome,
    Reject,
    Start,
    Wake,
)
from cmbs.substrate.kernel.model import StateDelta, Verdict
from cmbs.substrate.kernel.state import ApprovalStatus, ExecutionStatus, ProposalStatus
from tests.support.spaces import (
    AGENT,
    ANY,
    ASKING,
    ENCODER,
    ENGINE,
    OTHER_AGENT,
    ROOT,
    SECOND,
    World,
    call,
    caller_tool,
    change_policy,
    constraint,
    delta,
    eventually,
    facts,
    http_tool,
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
    wrong = asking.say(Approve(asked.approval_id, args_hash="0" * 64))
    assert wrong.event.result.reason_code == "ARGS_CHANGED"
    approved = asking.say(Approve(asked.approval_id, args_hash=asked.args_hash))
    assert len(approved.event.result.intents) == 1
    assert wait_until_settled(asking, "p") is ProposalStatus.COMMITTED
    assert asking.space.state["goal.a"] == "1"
    assert (asking.space.approvals[asked.approval_id].approver, len(asking.runner.calls)) == (ROOT, 1)
    assert not asking.space.grants
    with pytest.raises(Conflict, match="approved already"):
        asking.say(Approve(asked.approval_id))


def test_an_approval_is_good_for_exactly_these_args_and_so_many_times(asking: World) -> None:
    (asked,) = asking.propose(call("t", {"x": 1}), proposal_id="p").event.result.asked
    asking.say(Approve(asked.approval_id, uses=2))
    assert status(asking.propose(call("t", {"x": 1}, key="2"), proposal_id="q").space, "q") is not ProposalStatus.ASKED
    assert status(asking.propose(call("t", {"x": 1}, key="3"), proposal_id="r").space, "r") is ProposalStatus.ASKED
    assert status(asking.propose(call("t", {"x": 2}, key="4"), proposal_id="s").space, "s") is ProposalStatus.ASKED


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
    deferring.propose(facts(other="x"), actor=ENCODER)
    deferring.server.keep()
    assert status(deferring.space, "p") is ProposalStatus.PARKED
    deferring.propose(facts(ready="yes"), actor=ENCODER)
    deferring.server.keep()
    assert wait_until_settled(deferring, "p") is ProposalStatus.COMMITTED
    assert (deferring.space.state["goal.a"], len(deferring.runner.calls)) == ("1", 1)
    assert (len(deferring.space.parked), len(deferring.space.waiting)) == (0, 0)


def test_a_parked_proposal_expires(deferring: World) -> None:
    deferring.propose(call("t"), proposal_id="p", defer_ms=5_000)
    deferring.clock.advance(timedelta(seconds=5))
    deferring.server.keep()
    assert (status(deferring.space, "p"), len(deferring.space.parked)) == (ProposalStatus.EXPIRED, 0)
    deferring.propose(facts(ready="yes"), actor=ENCODER)
    deferring.server.keep()
    assert not deferring.runner.calls


def test_a_woken_proposal_whose_own_keys_were_written_meanwhile_is_stale(deferring: World) -> None:
    deferring.propose(call("t"), delta(a="1"), proposal_id="p")
    deferring.propose(delta(a="other"))
    deferring.propose(facts(ready="yes"), actor=ENCODER)
    deferring.server.keep()
    assert status(deferring.space, "p") is ProposalStatus.DENIED
    assert (deferring.space.state["goal.a"], deferring.runner.calls) == ("other", [])


def test_what_is_left_of_a_proposal_that_is_not_atomic_waits_alone(deferring: World) -> None:
    answer = deferring.propose(delta(a="1"), call("t"), proposal_id="p", atomic=False)
    assert (answer.space.state["goal.a"], status(answer.space, "p")) == ("1", ProposalStatus.PARKED)
    deferring.propose(delta(a="2"))
    deferring.propose(facts(ready="yes"), actor=ENCODER)
    deferring.server.keep()
    assert wait_until_settled(deferring, "p") is ProposalStatus.COMMITTED
    # Not committed a second time.
    assert (deferring.space.state["goal.a"], len(deferring.runner.calls)) == ("2", 1)
    decisions = deferring.space.proposals["p"].decision.candidates
    assert [each.verdict for each in decisions] == [Verdict.ALLOW, Verdict.ALLOW]


def test_only_the_engine_takes_the_steps_of_the_engine(deferring: World) -> None:
    deferring.propose(call("t"), proposal_id="p")
    for message in (Wake("p", []), Expire(ExpiryOf.PARKED, "p"), Start("x"), MarkInDoubt("x")):
        with pytest.raises(Conflict, match="policy engine"):
            deferring.say(message)
    with pytest.raises(Conflict, match="not parked"):
        deferring.say(Expire(ExpiryOf.PARKED, "q"), ENGINE)
    with pytest.raises(RecordNotFound):
        deferring.say(Wake("q", []), ENGINE)


# --- doubt ------------------------------------------------------------------------------------------------------------


def test_an_execution_without_an_outcome_is_in_doubt_and_not_run_again(world: World) -> None:
    world.open(http_tool("t", timeout_ms=1_000))
    world.runner.unknown = True
    execution_id = world.start(call("t"), delta(a="1"), proposal_id="p")
    world.clock.advance(timedelta(seconds=10))
    world.server.keep()
    execution = world.space.executions[execution_id]
    assert (execution.status, status(world.space, "p")) == (ExecutionStatus.IN_DOUBT, ProposalStatus.RUNNING)
    with pytest.raises(Conflict, match="not be started again"):
        world.say(Start(execution_id), ENGINE)
    with pytest.raises(Conflict, match="not running"):
        world.say(MarkInDoubt(execution_id), ENGINE)
    looked = world.say(RecordOutcome(execution_id, OutcomeStatus.SUCCEEDED), ROOT)
    assert (looked.space.state["goal.a"], status(looked.space, "p")) == ("1", ProposalStatus.COMMITTED)
    assert len(world.runner.calls) == 1


def make(world: World, attempts: int) -> bool:
    return len(world.runner.calls) == attempts


def test_one_in_doubt_is_tried_again_where_its_tool_is_idempotent_and_not_for_ever(world: World) -> None:
    world.open(http_tool("t", timeout_ms=1_000, idempotent=True))
    world.runner.unknown = True
    execution_id = world.start(call("t"), proposal_id="p")
    for attempts in (1, 2, 3, 3, 3):
        assert eventually(partial(make, world, attempts))
        world.clock.advance(timedelta(seconds=10))
        world.server.keep()
    assert [context.attempt for _, _, context in world.runner.calls] == [1, 2, 3]
    assert len({context.idempotency_key for _, _, context in world.runner.calls}) == 1
    assert world.space.executions[execution_id].status is ExecutionStatus.IN_DOUBT


def test_an_execution_is_not_in_doubt_before_its_deadline(world: World) -> None:
    world.open(caller_tool("c"))
    execution_id = world.start(call("c"))
    with pytest.raises(Conflict, match="has until"):
        world.say(MarkInDoubt(execution_id), ENGINE)
