"""The whole sequence in a space: proposal, validation, execution, commit; and what happens where it stops short."""

from __future__ import annotations

import msgspec
import pytest

from cmbs.errors import Conflict, EventNotFound
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import (
    Evidence,
    IssueCapability,
    MemoryKind,
    Mode,
    OutcomeStatus,
    Propose,
    PutMemory,
    RecordOutcome,
    RevokeCapability,
    SetMode,
)
from cmbs.substrate.kernel.model import Budget, Capability, ReasonCode
from cmbs.substrate.kernel.steps import fingerprint
from cmbs.substrate.kernel.words import ExecutionStatus, ProposalStatus
from tests.support.spaces import (
    AGENT,
    ANY,
    ENCODER,
    ENGINE,
    OTHER_AGENT,
    ROOT,
    SPACE,
    TOKEN,
    World,
    call,
    caller_tool,
    constraint,
    delta,
    facts,
    http_tool,
    raw,
    status,
    wait_until_settled,
)

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
    here = Evidence(confirmed_by_event_id=world.create().head_event_id)
    # To a claim the server adds whether its evidence was found; that does not make it another request.
    for key, message in (("k", SetMode(Mode.OBSERVE)), ("m", PutMemory("m", MemoryKind.FACT, raw("x"), here))):
        first, again = (world.say(message, idempotency_key=key) for _ in range(2))
        assert (again.seq, again.event.stored, again.repeated) == (first.seq, first.event.stored, True)
    with pytest.raises(Conflict, match="another request"):
        world.say(SetMode(Mode.ENFORCE), idempotency_key="k")


def test_the_head_that_a_caller_saw_must_still_be_the_head(world: World) -> None:
    space = world.create()
    world.propose(delta(a="1"))
    with pytest.raises(Conflict, match="audit head"):
        world.say(SetMode(Mode.OBSERVE), if_match=space.head_event_id)
    assert world.say(SetMode(Mode.OBSERVE), if_match=world.space.head_event_id).space.head.seq == 2


def test_an_atomic_proposal_commits_all_or_nothing_and_another_what_is_allowed(world: World) -> None:
    before = world.create(
        {
            "constraint.a": constraint(when={"op": "exists", "args": ["$args.set"]}),
            "constraint.no": constraint(effect="deny", when={"op": "eq", "args": ["$args.set", {"goal.bad": "1"}]}),
        }
    )
    atomic = world.propose(delta(a="1"), delta(bad="1"), proposal_id="atomic")
    assert (atomic.space.state, atomic.space.snapshot_id) == (before.state, before.snapshot_id)
    assert status(atomic.space, "atomic") is ProposalStatus.DENIED
    single = world.propose(delta(a="1"), delta(bad="1"), proposal_id="single", atomic=False)
    assert (single.space.state.get("goal.a"), "goal.bad" in single.space.state) == ("1", False)
    assert status(single.space, "single") is ProposalStatus.COMMITTED


# --- tool calls -------------------------------------------------------------------------------------------------------


def test_an_allowed_call_runs_after_its_intent_and_its_outcome_is_recorded(world: World) -> None:
    world.open(http_tool("t"))
    answer = world.propose(call("t", {"x": 1}), proposal_id="p")
    (intent,) = answer.event.result.intents
    assert (intent.tool_id, intent.capability_token_id, intent.idempotency_key) == ("t", TOKEN, "k1")
    assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED
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
    world.open(caller_tool("c"))
    answer = world.propose(call("c", key="1"), call("c", key="2"), delta(a="1"), proposal_id="p")
    first, second = [intent.execution_id for intent in answer.event.result.intents]
    assert status(answer.space, "p") is ProposalStatus.RUNNING
    half = world.report(first)
    assert ("goal.a" in half.space.state, status(half.space, "p")) == (False, ProposalStatus.RUNNING)
    whole = world.report(second)
    assert (whole.space.state["goal.a"], status(whole.space, "p")) == ("1", ProposalStatus.COMMITTED)
    assert whole.space.snapshot_id == whole.event.stored.event_hash.hex()


@pytest.mark.parametrize("ended", [OutcomeStatus.FAILED, OutcomeStatus.TIMED_OUT, OutcomeStatus.RESULT_REFUSED])
def test_where_an_execution_fails_nothing_is_committed(world: World, ended: OutcomeStatus) -> None:
    world.open(caller_tool("c"))
    execution_id = world.start(call("c"), delta(a="1"), proposal_id="p")
    answer = world.say(RecordOutcome(execution_id, ended, error="it broke"), AGENT)
    assert ("goal.a" in answer.space.state, status(answer.space, "p")) == (False, ProposalStatus.FAILED)
    assert answer.space.executions[execution_id].error == "it broke"


def test_deltas_that_became_stale_while_calls_ran_are_not_committed(world: World) -> None:
    world.open(caller_tool("c"))
    execution_id = world.start(call("c"), delta(a="1"), proposal_id="p")
    world.propose(delta(a="other"))
    answer = world.report(execution_id)
    assert (answer.space.state["goal.a"], status(answer.space, "p")) == ("other", ProposalStatus.FAILED)


def test_the_same_call_is_answered_by_its_first_execution_and_never_runs_twice(world: World) -> None:
    world.open(http_tool("t"))
    world.propose(call("t", {"x": 1}), proposal_id="p")
    assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED
    again = world.propose(call("t", {"x": 1}), delta(a="1"), proposal_id="q")
    assert (again.event.result.intents, len(again.event.result.answered_by)) == ((), 1)
    assert (status(again.space, "q"), again.space.state["goal.a"]) == (ProposalStatus.COMMITTED, "1")
    other = world.decide(call("t", {"x": 2}), proposal_id="r")
    assert other.reason_code is ReasonCode.IDEMPOTENCY_CONFLICT
    assert len(world.runner.calls) == 1


def test_a_caller_that_repeats_a_call_that_runs_waits_for_it(world: World) -> None:
    world.open(caller_tool("c"))
    execution_id = world.start(call("c"), proposal_id="p")
    waiting = world.propose(call("c"), delta(a="1"), proposal_id="q")
    assert (status(waiting.space, "q"), "goal.a" in waiting.space.state) == (ProposalStatus.RUNNING, False)
    answer = world.report(execution_id)
    assert [status(answer.space, each) for each in "pq"] == [ProposalStatus.COMMITTED] * 2
    assert answer.space.state["goal.a"] == "1"


def test_a_call_whose_first_execution_failed_fails_again(world: World) -> None:
    world.open(caller_tool("c"))
    execution_id = world.start(call("c"), proposal_id="p")
    world.report(execution_id, OutcomeStatus.FAILED)
    answer = world.propose(call("c"), delta(a="1"), proposal_id="q")
    assert (status(answer.space, "q"), "goal.a" in answer.space.state) == (ProposalStatus.FAILED, False)


def test_a_result_that_does_not_fit_its_schema_is_refused_and_its_facts_are_not_written(world: World) -> None:
    world.create()
    schema = raw({"type": "object", "required": ["state"]})
    world.equip(caller_tool("c", result_schema=schema, facts={"fact.state": "state"}, max_result_bytes=50))
    for key, result in (("1", {"other": 1}), ("2", {"state": "x" * 50})):
        execution_id = world.start(call("c", key=key))
        answer = world.report(execution_id, result=result)
        execution = answer.space.executions[execution_id]
        assert (execution.status, execution.result) == (ExecutionStatus.RESULT_REFUSED, b"null")
        assert "fact.state" not in answer.space.state


def test_the_facts_of_a_result_are_written_with_it(world: World) -> None:
    world.create()
    world.equip(
        caller_tool(
            "c",
            caller_facts=True,
            facts={"fact.state": "state", "fact.deep": "a.1", "fact.whole": "", "fact.gone": "no"},
        )
    )
    world.propose(facts(gone="soon"), actor=ENCODER)
    execution_id = world.start(call("c"))
    result = {"state": "up", "a": [1, {"z": 1, "b": None}]}
    answer = world.report(execution_id, result=result)
    assert answer.space.state["fact.state"] == "up"
    assert answer.space.state["fact.deep"] == '{"b":null,"z":1}'
    assert answer.space.state["fact.whole"] == '{"a":[1,{"b":null,"z":1}],"state":"up"}'
    assert "fact.gone" not in answer.space.state


def test_facts_that_break_an_invariant_are_not_written_and_the_outcome_still_counts(world: World) -> None:
    unbroken = '{"op":"not","args":[{"op":"eq","args":["fact.state","down"]}]}'
    world.open(
        caller_tool("c", caller_facts=True, facts={"fact.state": "state"}),
        policy={"constraint.any": ANY, "policy.invariant.up": unbroken},
    )
    execution_id = world.start(call("c"))
    message = RecordOutcome(execution_id, OutcomeStatus.SUCCEEDED, raw({"state": "down"}))
    answer = world.say(message, AGENT)
    assert (answer.event.result.reason_code, "fact.state" in answer.space.state) == ("FACTS_REFUSED", False)
    assert answer.space.executions[execution_id].status is ExecutionStatus.SUCCEEDED


@pytest.mark.parametrize("mode", Mode)
def test_a_fact_from_a_result_is_no_longer_than_other_values_in_either_mode(world: World, mode: Mode) -> None:
    world.open(
        caller_tool("c", caller_facts=True, facts={"fact.text": "text", "fact.at": "at"}),
        policy={"constraint.any": ANY},
        mode=mode,
    )
    for number, length in enumerate((65_534, 65_536, 65_537)):
        execution_id = world.start(call("c", {"n": number}, key=f"k{number}"))
        message = RecordOutcome(execution_id, OutcomeStatus.SUCCEEDED, raw({"text": "x" * length, "at": number}))
        answer = world.say(message, AGENT)
        assert answer.space.executions[execution_id].status is ExecutionStatus.SUCCEEDED
        assert answer.event.result.reason_code == (None if length <= 65_536 else "FACTS_REFUSED")
    assert (len(world.space.state["fact.text"]), world.space.state["fact.at"]) == (65_536, "1")


def test_only_the_actor_that_ran_a_call_may_record_its_outcome(world: World) -> None:
    world.open(caller_tool("c"))
    execution_id = world.start(call("c"), proposal_id="p")
    message = RecordOutcome(execution_id, OutcomeStatus.SUCCEEDED)
    for actor in (OTHER_AGENT, ROOT, ENGINE, ENCODER, Actor(ActorKind.TOOL, "other")):
        refused = world.say(message, actor)
        assert (refused.event.result.granted, refused.event.result.reason_code) == (False, "NOT_AUTHORISED")
        assert status(refused.space, "p") is ProposalStatus.RUNNING
    first = world.say(message, AGENT)
    assert world.say(message, AGENT).event.stored == first.event.stored
    with pytest.raises(Conflict, match="another outcome"):
        world.report(execution_id, OutcomeStatus.FAILED)


def test_a_budget_is_spent_by_a_child_and_all_above_it(world: World) -> None:
    world.open(caller_tool("c"), budget=Budget(calls=2))
    child = Capability("child", "agent", ["c"], budget=Budget(calls=2), parent_id=TOKEN)
    assert world.say(IssueCapability(child), AGENT).event.result.granted
    world.propose(call("c", key="1", token="child"))
    world.propose(call("c", key="2", token=TOKEN))
    assert (world.space.spent["child"].calls, world.space.spent[TOKEN].calls) == (1, 2)
    third = world.decide(call("c", key="3", token="child"))
    assert third.reason_code is ReasonCode.BUDGET_EXHAUSTED
    wide = Capability("wide", "agent", ["c"], parent_id=TOKEN)
    assert world.say(IssueCapability(wide), AGENT).event.result.reason_code == "WIDER_BUDGET"


def test_a_revoked_token_and_its_children_are_no_longer_good(world: World) -> None:
    world.open(caller_tool("c"))
    world.say(IssueCapability(Capability("child", "agent", ["c"], parent_id=TOKEN)), AGENT)
    assert not world.say(RevokeCapability(TOKEN), OTHER_AGENT).event.result.granted
    assert world.say(RevokeCapability(TOKEN)).event.result.granted
    for token in (TOKEN, "child"):
        decision = world.decide(call("c", key=token, token=token))
        assert decision.reason_code is ReasonCode.CAPABILITY_REVOKED
    with pytest.raises(Conflict, match="revoked before"):
        world.say(RevokeCapability(TOKEN))


def test_of_two_that_wait_for_one_execution_and_write_one_key_the_first_is_committed(world: World) -> None:
    world.open(caller_tool("c"))
    execution_id = world.start(call("c"), delta(a="1"), proposal_id="p")
    world.propose(call("c"), delta(a="2"), proposal_id="q")
    after = world.report(execution_id).space
    assert [status(after, each) for each in "pq"] == [ProposalStatus.COMMITTED, ProposalStatus.FAILED]
    assert after.state["goal.a"] == "1"


def test_observing_commits_what_ran_whatever_it_breaks(world: World) -> None:
    never = '{"op":"missing","args":["goal.a"]}'
    world.open(
        caller_tool("c", caller_facts=True, facts={"fact.x": "x"}),
        policy={"constraint.any": ANY, "policy.invariant.never": never},
        mode=Mode.OBSERVE,
    )
    execution_id = world.start(call("c"), delta(a="1"), proposal_id="p")
    outcome = RecordOutcome(execution_id, OutcomeStatus.SUCCEEDED, raw({"x": "y"}))
    after = world.say(outcome, AGENT).space
    assert (after.state["goal.a"], after.state["fact.x"], status(after, "p")) == ("1", "y", ProposalStatus.COMMITTED)


def test_a_tool_without_effects_needs_no_key_and_runs_every_time(world: World) -> None:
    world.open(caller_tool("c", writes=False))
    first = world.propose(call("c", key=None)).event.result.intents
    second = world.propose(call("c", key=None)).event.result.intents
    assert first[0].execution_id != second[0].execution_id
    assert not world.space.calls


def test_what_the_server_adds_does_not_make_another_request() -> None:
    said = PutMemory("m", MemoryKind.HYPOTHESIS, raw("it rains"), ttl_ms=1000)
    added = msgspec.structs.replace(said, confirming_event_found=True)
    assert fingerprint(added, AGENT) == fingerprint(said, AGENT) != fingerprint(said, ENCODER)
