"""The whole sequence in a space: proposal, validation, execution, commit; and what happens where it stops short."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest

from cmbs.errors import Conflict, EventNotFound, InvalidRequest, RecordNotFound, SpaceNotFound
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.checkpoint import freeze_space
from cmbs.substrate.door import SpaceCommand
from cmbs.substrate.events import (
    Approve,
    CreateSpace,
    Expire,
    ExpiryOf,
    IssueCapability,
    MarkInDoubt,
    Mode,
    OutcomeStatus,
    Propose,
    ProposePolicy,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    SetMode,
    SettlePolicy,
    Start,
    Wake,
)
from cmbs.substrate.model import Budget, Capability, Failure, ReasonCode, StateDelta, Verdict
from cmbs.substrate.replay import verify_space
from cmbs.substrate.state import ApprovalStatus, ExecutionStatus, PolicyChangeStatus, ProposalStatus, Space
from tests.support.spaces import (
    AGENT,
    ANY,
    ENCODER,
    ENGINE,
    OTHER_AGENT,
    ROOT,
    SECOND,
    SPACE,
    TOKEN,
    World,
    call,
    caller_tool,
    constraint,
    delta,
    eventually,
    facts,
    http_tool,
    raw,
)

ASKING = constraint(effect="deny", subject={"tool_id": "t"}, on_fail="ask")


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
    assert_replays(world)


def assert_replays(world: World) -> None:
    """Deciding everything again gives the same bytes, and so the same space."""
    entries = world.log.read(f"space:{SPACE}")
    if entries:
        assert freeze_space(verify_space(SPACE, entries, world.log.head(f"space:{SPACE}"))) == freeze_space(world.space)


def settled(world: World, proposal_id: str) -> ProposalStatus:
    return world.server.wait_for(SPACE, proposal_id, 10).status


def status(space: Space, proposal_id: str) -> ProposalStatus:
    return space.proposals[proposal_id].status


# --- deltas -----------------------------------------------------------------------------------------------------------


def test_an_allowed_delta_is_committed_in_the_entry_that_decides_it(world: World) -> None:
    before = world.create()
    answer = world.propose(delta(a="1", b="2"), proposal_id="p")
    assert answer.event.result.changes.set == {"goal.a": "1", "goal.b": "2"}
    assert (answer.space.state["goal.a"], status(answer.space, "p")) == ("1", ProposalStatus.COMMITTED)
    assert answer.space.snapshot_id == answer.event.stored.event_hash.hex() != before.snapshot_id
    assert answer.event.result.decision is not None
    assert answer.event.result.decision.state_snapshot_id == before.snapshot_id
    again = world.propose(delta(["goal.a", "goal.never"]), proposal_id="q")
    assert "goal.a" not in again.space.state
    assert again.event.result.changes.unset == ["goal.a"]


def test_a_state_of_the_past_is_rebuilt_from_its_snapshot_id(world: World) -> None:
    first = world.create()
    second = world.propose(delta(a="1")).space
    world.propose(delta(a="2"))
    assert dict(world.server.at(SPACE, second.snapshot_id).state) == dict(second.state)
    assert world.server.at(SPACE, 0).snapshot_id == first.snapshot_id
    assert world.server.at(SPACE, 2).state["goal.a"] == "2"
    for nowhere in ("ff", 3, -1):
        with pytest.raises(EventNotFound):
            world.server.at(SPACE, nowhere)


def test_without_an_allow_everything_is_denied_and_nothing_changes(world: World) -> None:
    before = world.create({})
    answer = world.propose(delta(a="1"), proposal_id="p")
    decision = answer.event.result.decision
    assert decision is not None
    assert (decision.verdict, decision.reason_code) == (Verdict.DENY, ReasonCode.NO_ALLOW)
    assert (answer.space.state, answer.space.snapshot_id) == (before.state, before.snapshot_id)
    assert status(answer.space, "p") is ProposalStatus.DENIED


def test_the_same_proposal_again_gives_the_first_outcome_and_another_one_under_its_id_is_a_conflict(
    world: World,
) -> None:
    world.create()
    proposal = world.proposal(delta(a="1"), proposal_id="p")
    first = world.say(Propose(proposal), AGENT)
    again = world.say(Propose(proposal), AGENT)
    assert (again.seq, again.event.stored, again.repeated) == (first.seq, first.event.stored, True)
    assert world.space.head.seq == first.seq
    for message, actor in (
        (Propose(world.proposal(delta(a="2"), proposal_id="p")), AGENT),
        (Propose(proposal), ENCODER),
    ):
        with pytest.raises(Conflict, match="said something else"):
            world.say(message, actor)


def test_an_idempotency_key_repeats_the_first_answer(world: World) -> None:
    world.create()
    first = world.say(SetMode(Mode.OBSERVE), idempotency_key="k")
    again = world.say(SetMode(Mode.OBSERVE), idempotency_key="k")
    assert (again.seq, again.event.stored) == (first.seq, first.event.stored)
    with pytest.raises(Conflict, match="another request"):
        world.say(SetMode(Mode.ENFORCE), idempotency_key="k")


def test_the_head_that_a_caller_saw_must_still_be_the_head(world: World) -> None:
    space = world.create()
    world.propose(delta(a="1"))
    with pytest.raises(Conflict, match="audit head"):
        world.say(SetMode(Mode.OBSERVE), if_match=space.head_event_id)
    assert world.say(SetMode(Mode.OBSERVE), if_match=world.space.head_event_id).space.mode is Mode.OBSERVE


def test_a_stale_proposal_is_deferred_and_not_parked(world: World) -> None:
    space = world.create()
    world.propose(delta(a="1"))
    answer = world.propose(delta(a="2"), snapshot_id=space.snapshot_id, proposal_id="late")
    decision = answer.event.result.decision
    assert decision is not None
    assert (decision.verdict, decision.reason_code) == (Verdict.DEFER, ReasonCode.STALE_SNAPSHOT)
    assert not answer.space.parked
    assert (answer.space.state["goal.a"], status(answer.space, "late")) == ("1", ProposalStatus.DENIED)


def test_an_atomic_proposal_commits_all_or_nothing_and_another_what_is_allowed(world: World) -> None:
    world.create(
        {
            "constraint.a": constraint(when={"op": "exists", "args": ["$args.set"]}),
            "constraint.no": constraint(effect="deny", when={"op": "eq", "args": ["$args.set", {"goal.bad": "1"}]}),
        }
    )
    atomic = world.propose(delta(a="1"), delta(bad="1"), proposal_id="atomic")
    assert ("goal.a" in atomic.space.state, status(atomic.space, "atomic")) == (False, ProposalStatus.DENIED)
    single = world.propose(delta(a="1"), delta(bad="1"), proposal_id="single", atomic=False)
    assert (single.space.state.get("goal.a"), "goal.bad" in single.space.state) == ("1", False)
    assert status(single.space, "single") is ProposalStatus.COMMITTED


# --- tool calls -------------------------------------------------------------------------------------------------------


def test_an_allowed_call_runs_after_its_intent_and_its_outcome_is_recorded(world: World) -> None:
    world.create()
    world.equip(http_tool("t"))
    answer = world.propose(call("t", {"x": 1}), proposal_id="p")
    (intent,) = answer.event.result.intents
    assert (intent.tool_id, intent.capability_token_id, intent.idempotency_key) == ("t", TOKEN, "k1")
    assert settled(world, "p") is ProposalStatus.COMMITTED
    ((tool_id, args, context),) = world.runner.calls
    assert (tool_id, args, context.execution_id) == ("t", b'{"x":1}', intent.execution_id)
    execution = world.space.executions[intent.execution_id]
    assert (execution.status, execution.result) == (ExecutionStatus.SUCCEEDED, b'{"ok":true}')
    assert execution.settled_seq is not None
    assert execution.started_seq < execution.settled_seq
    assert not world.space.running
    spent = world.space.spent[TOKEN]
    assert (spent.calls, spent.bytes, spent.wall_ms) == (1, len(args) + len(b'{"ok": true}'), 7)


def test_the_deltas_of_an_atomic_proposal_are_committed_with_the_last_outcome(world: World) -> None:
    world.create()
    world.equip(caller_tool("c"))
    answer = world.propose(call("c", key="1"), call("c", key="2"), delta(a="1"), proposal_id="p")
    first, second = [intent.execution_id for intent in answer.event.result.intents]
    assert status(answer.space, "p") is ProposalStatus.RUNNING
    half = world.say(RecordOutcome(first, OutcomeStatus.SUCCEEDED), AGENT)
    assert ("goal.a" in half.space.state, status(half.space, "p")) == (False, ProposalStatus.RUNNING)
    whole = world.say(RecordOutcome(second, OutcomeStatus.SUCCEEDED), AGENT)
    assert (whole.space.state["goal.a"], status(whole.space, "p")) == ("1", ProposalStatus.COMMITTED)
    assert whole.space.snapshot_id == whole.event.stored.event_hash.hex()


@pytest.mark.parametrize("ended", [OutcomeStatus.FAILED, OutcomeStatus.TIMED_OUT, OutcomeStatus.RESULT_REFUSED])
def test_where_an_execution_fails_nothing_is_committed(world: World, ended: OutcomeStatus) -> None:
    world.create()
    world.equip(caller_tool("c"))
    (intent,) = world.propose(call("c"), delta(a="1"), proposal_id="p").event.result.intents
    answer = world.say(RecordOutcome(intent.execution_id, ended, error="it broke"), AGENT)
    assert ("goal.a" in answer.space.state, status(answer.space, "p")) == (False, ProposalStatus.FAILED)
    assert answer.space.executions[intent.execution_id].error == "it broke"


def test_deltas_that_became_stale_while_calls_ran_are_not_committed(world: World) -> None:
    world.create()
    world.equip(caller_tool("c"))
    (intent,) = world.propose(call("c"), delta(a="1"), proposal_id="p").event.result.intents
    world.propose(delta(a="other"))
    answer = world.say(RecordOutcome(intent.execution_id, OutcomeStatus.SUCCEEDED), AGENT)
    assert (answer.space.state["goal.a"], status(answer.space, "p")) == ("other", ProposalStatus.FAILED)


def test_the_same_call_is_answered_by_its_first_execution_and_never_runs_twice(world: World) -> None:
    world.create()
    world.equip(http_tool("t"))
    world.propose(call("t", {"x": 1}), proposal_id="p")
    assert settled(world, "p") is ProposalStatus.COMMITTED
    again = world.propose(call("t", {"x": 1}), delta(a="1"), proposal_id="q")
    assert (again.event.result.intents, len(again.event.result.answered_by)) == ([], 1)
    assert (status(again.space, "q"), again.space.state["goal.a"]) == (ProposalStatus.COMMITTED, "1")
    other = world.propose(call("t", {"x": 2}), proposal_id="r").event.result.decision
    assert other is not None
    assert other.reason_code is ReasonCode.IDEMPOTENCY_CONFLICT
    assert len(world.runner.calls) == 1


def test_whoever_makes_a_call_that_runs_already_waits_for_it(world: World) -> None:
    world.create()
    world.equip(caller_tool("c"))
    (intent,) = world.propose(call("c"), proposal_id="p").event.result.intents
    waiting = world.propose(call("c"), delta(a="1"), proposal_id="q")
    assert (status(waiting.space, "q"), "goal.a" in waiting.space.state) == (ProposalStatus.RUNNING, False)
    answer = world.say(RecordOutcome(intent.execution_id, OutcomeStatus.SUCCEEDED), AGENT)
    assert [status(answer.space, each) for each in "pq"] == [ProposalStatus.COMMITTED] * 2
    assert answer.space.state["goal.a"] == "1"


def test_a_call_whose_first_execution_failed_fails_again(world: World) -> None:
    world.create()
    world.equip(caller_tool("c"))
    (intent,) = world.propose(call("c"), proposal_id="p").event.result.intents
    world.say(RecordOutcome(intent.execution_id, OutcomeStatus.FAILED), AGENT)
    answer = world.propose(call("c"), delta(a="1"), proposal_id="q")
    assert (status(answer.space, "q"), "goal.a" in answer.space.state) == (ProposalStatus.FAILED, False)


def test_a_result_that_does_not_fit_its_schema_is_refused_and_its_facts_are_not_written(world: World) -> None:
    world.create()
    schema = raw({"type": "object", "required": ["state"]})
    world.equip(caller_tool("c", result_schema=schema, facts={"fact.state": "state"}, max_result_bytes=50))
    for key, result in (("1", {"other": 1}), ("2", {"state": "x" * 50})):
        (intent,) = world.propose(call("c", key=key)).event.result.intents
        answer = world.say(RecordOutcome(intent.execution_id, OutcomeStatus.SUCCEEDED, raw(result)), AGENT)
        execution = answer.space.executions[intent.execution_id]
        assert (execution.status, execution.result) == (ExecutionStatus.RESULT_REFUSED, b"null")
        assert "fact.state" not in answer.space.state


def test_the_facts_of_a_result_are_written_with_it(world: World) -> None:
    world.create()
    world.equip(
        caller_tool("c", facts={"fact.state": "state", "fact.deep": "a.1", "fact.whole": "", "fact.gone": "no"})
    )
    world.propose(facts(gone="soon"), actor=ENCODER)
    (intent,) = world.propose(call("c")).event.result.intents
    result = {"state": "up", "a": [1, {"z": 1, "b": None}]}
    answer = world.say(RecordOutcome(intent.execution_id, OutcomeStatus.SUCCEEDED, raw(result)), AGENT)
    assert answer.space.state["fact.state"] == "up"
    assert answer.space.state["fact.deep"] == '{"b":null,"z":1}'
    assert answer.space.state["fact.whole"] == '{"a":[1,{"b":null,"z":1}],"state":"up"}'
    assert "fact.gone" not in answer.space.state


def test_facts_that_break_an_invariant_are_not_written_and_the_outcome_still_counts(world: World) -> None:
    unbroken = '{"op":"not","args":[{"op":"eq","args":["fact.state","down"]}]}'
    world.create({"constraint.any": ANY, "policy.invariant.up": unbroken})
    world.equip(caller_tool("c", facts={"fact.state": "state"}))
    (intent,) = world.propose(call("c")).event.result.intents
    message = RecordOutcome(intent.execution_id, OutcomeStatus.SUCCEEDED, raw({"state": "down"}))
    answer = world.say(message, AGENT)
    assert (answer.event.result.reason_code, "fact.state" in answer.space.state) == ("FACTS_REFUSED", False)
    assert answer.space.executions[intent.execution_id].status is ExecutionStatus.SUCCEEDED


def test_only_whoever_ran_it_may_say_what_came_of_it(world: World) -> None:
    world.create()
    world.equip(caller_tool("c"))
    (intent,) = world.propose(call("c"), proposal_id="p").event.result.intents
    message = RecordOutcome(intent.execution_id, OutcomeStatus.SUCCEEDED)
    for actor in (OTHER_AGENT, ROOT, ENGINE, ENCODER, Actor(ActorKind.TOOL, "other")):
        refused = world.say(message, actor)
        assert (refused.event.result.granted, refused.event.result.reason_code) == (False, "NOT_AUTHORISED")
        assert status(refused.space, "p") is ProposalStatus.RUNNING
    first = world.say(message, AGENT)
    assert world.say(message, AGENT).event.stored == first.event.stored
    with pytest.raises(Conflict, match="another outcome"):
        world.say(RecordOutcome(intent.execution_id, OutcomeStatus.FAILED), AGENT)
    with pytest.raises(RecordNotFound):
        world.say(RecordOutcome("nothing", OutcomeStatus.FAILED), AGENT)


def test_a_budget_is_spent_by_a_child_and_all_above_it(world: World) -> None:
    world.create()
    world.equip(caller_tool("c"), budget=Budget(calls=2))
    child = Capability("child", "agent", ["c"], budget=Budget(calls=2), parent_id=TOKEN)
    assert world.say(IssueCapability(child), AGENT).event.result.granted
    world.propose(call("c", key="1", token="child"))
    world.propose(call("c", key="2", token=TOKEN))
    assert (world.space.spent["child"].calls, world.space.spent[TOKEN].calls) == (1, 2)
    third = world.propose(call("c", key="3", token="child")).event.result.decision
    assert third is not None
    assert third.reason_code is ReasonCode.BUDGET_EXHAUSTED
    wider = world.say(IssueCapability(Capability("wide", "agent", ["c"], parent_id=TOKEN)), AGENT)
    assert (wider.event.result.granted, wider.event.result.reason_code) == (False, "WIDER_BUDGET")


def test_a_revoked_token_and_its_children_are_no_longer_good(world: World) -> None:
    world.create()
    world.equip(caller_tool("c"))
    world.say(IssueCapability(Capability("child", "agent", ["c"], parent_id=TOKEN)), AGENT)
    assert not world.say(RevokeCapability(TOKEN), OTHER_AGENT).event.result.granted
    assert world.say(RevokeCapability(TOKEN)).event.result.granted
    for token in (TOKEN, "child"):
        decision = world.propose(call("c", key=token, token=token)).event.result.decision
        assert decision is not None
        assert decision.reason_code is ReasonCode.CAPABILITY_REVOKED
    with pytest.raises(Conflict, match="revoked before"):
        world.say(RevokeCapability(TOKEN))
    with pytest.raises(RecordNotFound):
        world.say(RevokeCapability("nothing"))


# --- ask --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def asking(world: World) -> World:
    world.create({"constraint.any": ANY, "constraint.ask": ASKING})
    world.equip(http_tool("t"))
    return world


def test_what_is_asked_for_runs_once_somebody_else_has_approved_it(asking: World) -> None:
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
    assert settled(asking, "p") is ProposalStatus.COMMITTED
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
    world.create({"constraint.any": ANY, "constraint.ask": ASKING, "constraint.door": closed})
    world.equip(http_tool("t"))
    (asked,) = world.propose(call("t"), proposal_id="p").event.result.asked
    world.propose(StateDelta({"fact.door": "closed"}), actor=ENCODER)
    answer = world.say(Approve(asked.approval_id))
    decision = answer.event.result.decision
    assert decision is not None
    assert (decision.verdict, decision.candidates[0].matched) == (Verdict.DENY, ["constraint.door"])
    assert (status(answer.space, "p"), world.runner.calls) == (ProposalStatus.DENIED, [])


def test_an_approval_under_another_policy_asks_anew(asking: World) -> None:
    (asked,) = asking.propose(call("t"), proposal_id="p").event.result.asked
    change_policy(asking, {"policy.value.note": "changed"})
    (anew,) = asking.say(Approve(asked.approval_id)).event.result.asked
    assert anew.approval_id != asked.approval_id
    assert status(asking.space, "p") is ProposalStatus.ASKED
    asking.say(Approve(anew.approval_id))
    assert settled(asking, "p") is ProposalStatus.COMMITTED


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
    assert (half.event.result.intents, half.event.result.asked) == ([], [])
    assert status(half.space, "p") is ProposalStatus.ASKED
    assert len(asking.say(Approve(second.approval_id)).event.result.intents) == 2
    assert settled(asking, "p") is ProposalStatus.COMMITTED


def test_a_request_that_nobody_answers_expires(asking: World) -> None:
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
    world.create({"constraint.any": ANY, "constraint.wait": constraint(effect="deny", when=only, on_fail="defer")})
    world.equip(http_tool("t"))
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
    assert settled(deferring, "p") is ProposalStatus.COMMITTED
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
    assert settled(deferring, "p") is ProposalStatus.COMMITTED
    # Not committed a second time.
    assert (deferring.space.state["goal.a"], len(deferring.runner.calls)) == ("2", 1)
    decisions = deferring.space.proposals["p"].decision.candidates
    assert [each.verdict for each in decisions] == [Verdict.ALLOW, Verdict.ALLOW]


def test_the_steps_of_the_engine_are_nobody_elses(deferring: World) -> None:
    deferring.propose(call("t"), proposal_id="p")
    for message in (Wake("p", []), Expire(ExpiryOf.PARKED, "p"), Start("x"), MarkInDoubt("x")):
        with pytest.raises(Conflict, match="policy engine"):
            deferring.say(message)
    with pytest.raises(Conflict, match="not parked"):
        deferring.say(Expire(ExpiryOf.PARKED, "q"), ENGINE)
    with pytest.raises(RecordNotFound):
        deferring.say(Wake("q", []), ENGINE)


# --- doubt ------------------------------------------------------------------------------------------------------------


def test_an_execution_of_which_nobody_hears_is_in_doubt_and_not_run_again(world: World) -> None:
    world.create()
    world.equip(http_tool("t", timeout_ms=1_000))
    world.runner.unknown = True
    (intent,) = world.propose(call("t"), delta(a="1"), proposal_id="p").event.result.intents
    world.clock.advance(timedelta(seconds=10))
    world.server.keep()
    execution = world.space.executions[intent.execution_id]
    assert (execution.status, status(world.space, "p")) == (ExecutionStatus.IN_DOUBT, ProposalStatus.RUNNING)
    with pytest.raises(Conflict, match="not be started again"):
        world.say(Start(intent.execution_id), ENGINE)
    with pytest.raises(Conflict, match="not running"):
        world.say(MarkInDoubt(intent.execution_id), ENGINE)
    looked = world.say(RecordOutcome(intent.execution_id, OutcomeStatus.SUCCEEDED), ROOT)
    assert (looked.space.state["goal.a"], status(looked.space, "p")) == ("1", ProposalStatus.COMMITTED)
    assert len(world.runner.calls) == 1


def made(world: World, attempts: int) -> bool:
    return len(world.runner.calls) == attempts


def test_one_in_doubt_is_tried_again_where_its_tool_is_idempotent_and_not_for_ever(world: World) -> None:
    world.create()
    world.equip(http_tool("t", timeout_ms=1_000, idempotent=True))
    world.runner.unknown = True
    (intent,) = world.propose(call("t"), proposal_id="p").event.result.intents
    for attempts in (1, 2, 3, 3, 3):
        assert eventually(partial(made, world, attempts))
        world.clock.advance(timedelta(seconds=10))
        world.server.keep()
    assert [context.attempt for _, _, context in world.runner.calls] == [1, 2, 3]
    assert len({context.idempotency_key for _, _, context in world.runner.calls}) == 1
    assert world.space.executions[intent.execution_id].status is ExecutionStatus.IN_DOUBT


def test_an_execution_is_not_in_doubt_before_its_deadline(world: World) -> None:
    world.create()
    world.equip(caller_tool("c"))
    (intent,) = world.propose(call("c")).event.result.intents
    with pytest.raises(Conflict, match="has until"):
        world.say(MarkInDoubt(intent.execution_id), ENGINE)


# --- policy and the rest ----------------------------------------------------------------------------------------------


def change_policy(world: World, pairs: dict[str, str], unset: list[str] | None = None) -> Space:
    change_id = f"change {world.space.head.seq}"
    world.say(ProposePolicy(change_id, world.space.policy.policy_hash, pairs, unset or []), ROOT)
    return world.say(SettlePolicy(change_id, True), SECOND).space


def test_a_change_of_policy_needs_a_second_operator(world: World) -> None:
    before = world.create()
    proposed = world.say(ProposePolicy("c", before.policy.policy_hash, {"policy.value.x": "1"}, ["constraint.any"]))
    assert proposed.space.policy is before.policy
    assert world.say(SettlePolicy("c", True), ROOT).event.result.reason_code == "SELF_APPROVAL"
    assert world.say(SettlePolicy("c", True), AGENT).event.result.reason_code == "NOT_AUTHORISED"
    after = world.say(SettlePolicy("c", True), SECOND).space
    assert (after.policy_version, after.policy_changes["c"].status) == (2, PolicyChangeStatus.APPLIED)
    assert (after.state.get("policy.value.x"), "constraint.any" in after.state) == ("1", False)
    assert after.policy.policy_hash != before.policy.policy_hash
    decision = world.propose(delta(a="1")).event.result.decision
    assert decision is not None
    assert (decision.reason_code, decision.policy_hash) == (ReasonCode.NO_ALLOW, after.policy.policy_hash)
    with pytest.raises(Conflict, match="applied already"):
        world.say(SettlePolicy("c", False), SECOND)


def test_a_change_on_a_policy_that_has_moved_is_not_applied(world: World) -> None:
    space = world.create()
    for name in ("one", "two"):
        world.say(ProposePolicy(name, space.policy.policy_hash, {f"policy.value.{name}": "1"}))
    world.say(SettlePolicy("one", True), SECOND)
    assert world.say(SettlePolicy("two", True), SECOND).event.result.reason_code == "POLICY_MOVED"
    with pytest.raises(Conflict, match="the policy is"):
        world.say(ProposePolicy("three", space.policy.policy_hash, {"policy.value.x": "1"}))
    assert world.say(SettlePolicy("two", False), ROOT).space.policy_changes["two"].status is PolicyChangeStatus.REJECTED


def test_a_malformed_policy_is_refused_whole(world: World) -> None:
    bad = {"constraint.bad": '{"v":2}', "policy.value.good": "1"}
    with pytest.raises(InvalidRequest, match=r"constraint\.bad"):
        world.create(bad)
    space = world.create()
    with pytest.raises(InvalidRequest, match=r"constraint\.bad"):
        world.say(ProposePolicy("c", space.policy.policy_hash, bad))
    for change, said in (
        (ProposePolicy("c", space.policy.policy_hash), "changes nothing"),
        (ProposePolicy("c", space.policy.policy_hash, unset=["constraint.none"]), "has no"),
        (ProposePolicy("c", space.policy.policy_hash, {"constraint.any": ANY}, ["constraint.any"]), "both"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            world.say(change)
    assert world.space.head.seq == 0


def test_governing_is_for_operators(world: World) -> None:
    with pytest.raises(InvalidRequest, match="operator"):
        world.say(CreateSpace(SPACE), AGENT)
    space = world.create()
    world.equip(caller_tool("c"))
    for message in (
        SetMode(Mode.OBSERVE),
        RegisterTool(caller_tool("d")),
        RetireTool("c"),
        ProposePolicy("c", space.policy.policy_hash, {"policy.value.x": "1"}),
    ):
        answer = world.say(message, AGENT)
        assert (answer.event.result.granted, answer.event.result.reason_code) == (False, "NOT_AUTHORISED")
    assert (set(world.space.tools), world.space.mode, world.space.tools["c"].retired) == ({"c"}, Mode.ENFORCE, False)
    with pytest.raises(RecordNotFound):
        world.say(RetireTool("d"))
    assert world.say(RetireTool("c")).space.tools["c"].retired
    decision = world.propose(call("c")).event.result.decision
    assert decision is not None
    assert decision.reason_code is ReasonCode.TOOL_RETIRED
    with pytest.raises(Conflict, match="created before"):
        world.create()


def test_a_space_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(SpaceNotFound):
        world.server.current(SPACE)
    with pytest.raises(SpaceNotFound):
        world.say(SetMode(Mode.OBSERVE))
    with pytest.raises(InvalidRequest, match="space_id"):
        world.server.perform(SpaceCommand("a/b", ROOT, SetMode(Mode.OBSERVE)))
    assert world.server.ensure("default").space_id == "default"
    assert world.server.ensure("default").head.seq == 0
    assert world.server.spaces() == ["default"]


def test_observing_records_what_would_be_denied_and_lets_it_through(world: World) -> None:
    world.create({}, Mode.OBSERVE)
    answer = world.propose(delta(a="1"), proposal_id="p")
    decision = answer.event.result.decision
    assert decision is not None
    assert (decision.verdict, decision.observed) == (Verdict.DENY, True)
    assert (answer.space.state["goal.a"], status(answer.space, "p")) == ("1", ProposalStatus.COMMITTED)


def test_a_dry_run_records_nothing(world: World) -> None:
    space = world.create({})
    ruling = world.server.explain(SPACE, AGENT, world.proposal(delta(a="1")))
    assert (ruling.decision.reason_code, bool(ruling.decision.trace)) == (ReasonCode.NO_ALLOW, True)
    assert world.space.head == space.head


def test_a_plain_allow_is_told_with_its_trace_as_well(world: World) -> None:
    world.create({"constraint.any": ANY, "constraint.ask": ASKING})
    world.equip(http_tool("t"))
    world.propose(delta(a="1"), proposal_id="p")
    (asked,) = world.propose(call("t"), proposal_id="q").event.result.asked
    world.say(Approve(asked.approval_id))
    for proposal_id in ("p", "q"):
        told, kept = world.server.decision(SPACE, proposal_id), world.space.proposals[proposal_id].decision
        assert (told.verdict, bool(told.trace), bool(kept.trace)) == (Verdict.ALLOW, True, False)
        assert told.candidates == kept.candidates
    with pytest.raises(RecordNotFound):
        world.server.decision(SPACE, "nothing")


def test_degrading_offers_something_else_and_never_runs_the_call(world: World) -> None:
    world.create(
        {
            "constraint.any": ANY,
            "constraint.no": constraint(effect="deny", subject={"tool_id": "t"}),
            "policy.degrade.t": '{"tool_id":"cheap"}',
        }
    )
    world.equip(http_tool("t"))
    decision = world.propose(call("t")).event.result.decision
    assert decision is not None
    assert (decision.failure, decision.candidates[0].offer) == (Failure.DEGRADE, '{"tool_id":"cheap"}')
    assert not world.runner.calls
