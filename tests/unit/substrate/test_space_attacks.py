"""Ways around the rules of a space that were tried, and that are closed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import msgspec
import pytest

from cmbs.belief.kernel.events import Stamp
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, LedgerCorrupt
from cmbs.ledger import canonical
from cmbs.messages import Actor, ActorKind
from cmbs.stores import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.decide import decide
from cmbs.substrate.kernel.events import (
    Approve,
    Evidence,
    MemoryKind,
    Mode,
    OutcomeStatus,
    PromoteMemory,
    Propose,
    PutMemory,
    RecordOutcome,
    RetireTool,
    RevokeCapability,
    SetMode,
    SpaceEvent,
    Start,
)
from cmbs.substrate.kernel.insight import flips as flipping
from cmbs.substrate.kernel.insight.flips import smallest_flip
from cmbs.substrate.kernel.insight.lint import lint
from cmbs.substrate.kernel.model import ReasonCode, StateDelta, Verdict
from cmbs.substrate.kernel.policy.predicates import show
from cmbs.substrate.kernel.policy.references import EvaluationContext
from cmbs.substrate.kernel.replay import (
    belief_sessions_in,
    read_space_event,
    readings_in,
    verify_belief_pins,
    verify_space,
)
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.words import ExecutionStatus, FlipStatus, ProposalStatus
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
    TOKEN,
    World,
    assert_replays,
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
from tests.support.store_fixture import declared
from tests.support.subtests import for_each

LATER = constraint(
    effect="deny", subject={"tool_id": "slow"}, when={"op": "missing", "args": ["fact.go"]}, on_fail="defer"
)


# --- approvals --------------------------------------------------------------------------------------------------------


def test_calls_that_are_the_same_take_a_use_of_their_approval_each(world: World) -> None:
    world.open(http_tool("t", writes=False), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    asked = world.propose(call("t", key="first")).event.result.asked
    world.say(Approve(asked[0].approval_id, uses=4), SECOND)
    twins = world.propose(call("t", key="a"), call("t", key="b"), call("t", key="c"))
    assert (len(twins.event.result.intents), twins.event.result.used_approvals) == (3, (asked[0].approval_id,) * 3)
    assert world.space.approvals[asked[0].approval_id].uses_left == 0
    assert not world.propose(call("t", key="d")).event.result.intents


def test_an_approval_is_no_good_for_another_actor_of_the_same_id(world: World) -> None:
    asking = constraint(effect="deny", when={"op": "exists", "args": ["$args.set.fact.x"]}, on_fail="ask")
    world.create({"constraint.any": ANY, "constraint.ask": asking})
    asked = world.propose(facts(x="1"), actor=ENCODER).event.result.asked
    world.say(Approve(asked[0].approval_id, uses=9), SECOND)
    same_id = Actor(ActorKind.TOOL, ENCODER.id)
    assert world.propose(facts(x="1"), actor=same_id).event.result.asked
    assert not world.propose(facts(x="1"), actor=ENCODER).event.result.asked


# --- what the belief plane says ---------------------------------------------------------------------------------------


class TwoProcesses:
    """Two servers over one store, the second of which still has the space as it was before its policy read beliefs."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.belief = BeliefServer(store=self.store)
        self.session_id = declared(self.belief, "abc")
        self.belief.enter_obligation(self.session_id, "o", 1)
        self.first = World(self.store, belief=ServedBelief(self.belief))
        self.second = World(self.store, belief=ServedBelief(self.belief), space=1)
        self.first.open(http_tool("t"), caller_tool("own"))

    def gate(self) -> None:
        """From now on nothing while an obligation is open."""
        obliged = {"op": "exists", "args": [f"$belief.{self.session_id}.active_obligation_id"]}
        change_policy(self.first, {"constraint.obliged": constraint(effect="deny", when=obliged)})

    def close(self) -> None:
        self.first.close()
        self.second.close()
        assert_replays(self.first)


@pytest.fixture
def two() -> Iterator[TwoProcesses]:
    two = TwoProcesses()
    yield two
    two.close()


@pytest.mark.parametrize("on_event_loop", [False, True])
def test_a_policy_that_begins_to_read_beliefs_is_not_judged_without_them(
    two: TwoProcesses, on_event_loop: bool
) -> None:
    command = SpaceCommand(SPACE, AGENT, Propose(two.second.proposal(call("t"), proposal_id="p")))
    two.gate()
    server = two.second.server
    answer = asyncio.run(server.perform_async(command)) if on_event_loop else server.perform(command)
    decision = answer.event.result.decision
    assert decision is not None
    assert (decision.verdict, decision.reason_code) == (Verdict.DENY, ReasonCode.CONSTRAINT_DENIED)
    assert [reading.active_obligation_id for reading in readings_in(answer.event)] == ["o"]


def test_a_log_without_a_reading_that_its_policy_needs_does_not_verify(two: TwoProcesses) -> None:
    two.gate()
    two.first.propose(call("t"), proposal_id="p")
    entries = two.store.read(STREAM)
    space = verify_space(SPACE, entries[:-1])
    body = read_space_event(entries[-1]).body
    bare = Propose(two.first.space.proposals["p"].message.proposal)
    with pytest.raises(Conflict, match="of which nothing was read"):
        decide(space, bare, AGENT, Stamp(body.event_id, body.ts, None))


def test_a_reading_pinned_before_the_first_event_of_its_session_is_found_out(two: TwoProcesses) -> None:
    two.gate()
    event = two.first.propose(call("t"), proposal_id="p").event
    (reading,) = readings_in(event)
    forged = msgspec.structs.replace(
        event.message, belief=[msgspec.structs.replace(reading, head_seq=-1, active_obligation_id=None)]
    )
    entries = two.store.read(STREAM)
    before = verify_space(SPACE, entries[:-1])
    again = decide(before, forged, AGENT, Stamp(event.body.event_id, event.body.ts, None))
    assert isinstance(again, SpaceEvent)
    with pytest.raises(LedgerCorrupt, match="has no event -1"):
        verify_belief_pins([*entries[:-1], again.stored], {two.session_id: two.store.read(two.session_id)})


# --- what was allowed once --------------------------------------------------------------------------------------------


def test_a_delta_that_was_denied_and_only_observed_does_not_commit_once_denials_count(world: World) -> None:
    world.open(caller_tool("t"), policy={"constraint.t": constraint(subject={"tool_id": "t"})}, mode=Mode.OBSERVE)
    execution_id = world.start(call("t"), delta(evil="1"), proposal_id="p")
    world.say(SetMode(Mode.ENFORCE))
    world.report(execution_id)
    assert (status(world.space, "p"), "goal.evil" in world.space.state) == (ProposalStatus.FAILED, False)


@pytest.mark.parametrize("forbidden", [True, False])
def test_a_delta_is_judged_by_the_policy_of_the_moment_at_which_it_commits(world: World, forbidden: bool) -> None:
    world.open(caller_tool("t"))
    execution_id = world.start(call("t"), delta(evil="1"), proposal_id="p")
    denied = {"op": "eq", "args": ["$args.set.goal.evil", "1" if forbidden else "2"]}
    change_policy(world, {"constraint.no": constraint(effect="deny", when=denied)})
    world.report(execution_id)
    expected = ProposalStatus.FAILED if forbidden else ProposalStatus.COMMITTED
    assert (status(world.space, "p"), "goal.evil" in world.space.state) == (expected, not forbidden)


def test_a_delta_that_commits_late_is_judged_on_what_the_belief_plane_says_then(two: TwoProcesses) -> None:
    execution_id = two.first.start(call("own"), delta(evil="1"), proposal_id="p")
    two.gate()
    event = two.first.report(execution_id).event
    assert [reading.session_id for reading in readings_in(event)] == [two.session_id]
    assert (status(two.first.space, "p"), "goal.evil" in two.first.space.state) == (ProposalStatus.FAILED, False)


def test_a_wish_to_observe_is_not_taken_up_under_another_policy(world: World) -> None:
    world.create()
    assert world.say(SetMode(Mode.OBSERVE), SECOND).event.result.reason_code == "SECOND_OPERATOR_NEEDED"
    change_policy(world, {"constraint.no": constraint(effect="deny", subject={"tool_id": "t"})})
    assert world.say(SetMode(Mode.OBSERVE), ROOT).space.mode is Mode.ENFORCE
    assert world.say(SetMode(Mode.OBSERVE), ROOT).space.mode is Mode.ENFORCE
    assert world.say(SetMode(Mode.OBSERVE), SECOND).space.mode is Mode.OBSERVE


FORBIDDING = {"constraint.no": constraint(effect="deny", subject={"tool_id": "t"})}
WITHDRAWALS: dict[str, Callable[[World], object]] = {
    "revoke the token": lambda world: world.say(RevokeCapability(TOKEN)),
    "retire the tool": lambda world: world.say(RetireTool("t")),
    "forbid the call": lambda world: change_policy(world, FORBIDDING),
    "retire, and only observe": lambda world: [
        world.say(message, actor)
        for message, actor in ((RetireTool("t"), ROOT), (SetMode(Mode.OBSERVE), ROOT), (SetMode(Mode.OBSERVE), SECOND))
    ],
}


@pytest.mark.parametrize("withdraw", WITHDRAWALS.values(), ids=WITHDRAWALS)
def test_a_call_in_doubt_is_not_tried_again_once_it_is_no_longer_permitted(
    world: World, withdraw: Callable[[World], object]
) -> None:
    world.open(http_tool("t", idempotent=True))
    world.runner.unknown = True
    execution_id = world.start(call("t"))
    assert eventually(lambda: len(world.runner.calls) == 1)
    withdraw(world)
    world.advance(minutes=1)
    assert world.space.executions[execution_id].status is ExecutionStatus.IN_DOUBT
    with pytest.raises(Conflict, match="may not be started again"):
        world.say(Start(execution_id), ENGINE)


def test_a_call_that_was_only_observed_is_not_tried_again_once_denials_count(world: World) -> None:
    world.open(http_tool("t", idempotent=True), policy={}, mode=Mode.OBSERVE)
    world.runner.unknown = True
    execution_id = world.start(call("t"))
    assert eventually(lambda: len(world.runner.calls) == 1)
    world.advance(minutes=1)
    assert eventually(lambda: len(world.runner.calls) == 2)
    world.say(SetMode(Mode.ENFORCE))
    world.advance(minutes=1)
    assert world.space.executions[execution_id].status is ExecutionStatus.IN_DOUBT


# --- proposals that are not atomic ------------------------------------------------------------------------------------


def test_what_was_blocked_stays_blocked_when_another_candidate_wakes(world: World) -> None:
    shut = constraint(effect="deny", subject={"tool_id": "risky"}, when={"op": "missing", "args": ["fact.open"]})
    world.open(
        http_tool("risky"),
        http_tool("slow"),
        policy={"constraint.any": ANY, "constraint.shut": shut, "constraint.later": LATER},
    )
    world.propose(call("risky", key="r"), call("slow", key="s"), proposal_id="p", atomic=False)
    world.know(open="1", go="1")
    assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED
    assert [tool_id for tool_id, _, _ in world.runner.calls] == ["slow"]
    assert [each.verdict.value for each in world.space.proposals["p"].decision.candidates] == ["deny", "allow"]


def test_what_was_deferred_beyond_its_time_does_not_run_when_another_candidate_is_approved(world: World) -> None:
    world.open(
        http_tool("t"),
        http_tool("slow"),
        policy={"constraint.any": ANY, "constraint.ask": ASKING, "constraint.later": LATER},
    )
    both = (call("t", key="t"), call("slow", key="s"))
    asked = world.propose(*both, proposal_id="p", atomic=False, defer_ms=1_000).event.result.asked
    world.advance(seconds=2)
    assert (status(world.space, "p"), len(world.space.parked)) == (ProposalStatus.ASKED, 0)
    world.propose(facts(go="1"), actor=ENCODER)
    world.say(Approve(asked[0].approval_id), SECOND)
    assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED
    assert [tool_id for tool_id, _, _ in world.runner.calls] == ["t"]


# --- what a constraint sees -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1", "true", "null", "[]", "prod"])
def test_a_text_that_a_delta_sets_is_equal_to_itself_whatever_it_looks_like(world: World, text: str) -> None:
    named = {"op": "eq", "args": ["$args.set.goal.a.b", text]}
    listed = {"op": "in", "args": ["$args.set.goal.c", ["x", text]]}
    world.create(
        {"constraint.any": ANY, "constraint.no": constraint(effect="deny", when={"op": "any", "args": [named, listed]})}
    )
    assert not world.propose(delta(**{"a.b": text})).event.result.changes.set
    assert not world.propose(delta(c=text)).event.result.changes.set
    assert world.propose(delta(a=text)).event.result.changes.set
    # A call has args of its own, in which keys have no dots.
    world.equip(http_tool("t"))
    assert world.propose(call("t", {"set": {"goal.c": text}})).event.result.intents


def test_lint_knows_that_a_delta_sets_texts() -> None:
    both = [
        {"op": "eq", "args": ["$args.set.goal.a", "1"]},
        {"op": "schema", "args": ["$args.set.goal.a", {"type": "number"}]},
    ]
    deny = constraint(effect="deny", when={"op": "all", "args": both})
    assert lint({"constraint.any": ANY, "constraint.no": deny}).findings == []


def test_a_large_value_is_parsed_once_however_many_constraints_are_about_it() -> None:
    text = json.dumps(list(range(1_000)))
    seen = EvaluationContext({}, {}, None)
    assert seen.value_of(text) is seen.value_of(text)


@for_each(
    "value",
    [
        "text",
        "x" * 300,
        None,
        True,
        1.0,
        -0.0,
        [],
        {},
        [1, [True, None], {"b": [1.5, {}], "a": "é", "\U00010000": 1, "\ufffd": 2}],
        {str(number): [number] for number in range(1_000)},
    ],
)
def test_what_was_found_is_shown_as_the_beginning_of_its_canonical_text(value: object) -> None:
    whole = value if isinstance(value, str) else canonical.encode(value).decode()
    assert show(value) == (whole if len(whole) <= 256 else whole[:256] + "…")


def test_a_search_for_what_would_turn_a_decision_asks_only_so_much(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = {"op": "any", "args": [{"op": "eq", "args": [f"fact.k{number}", "1"]} for number in range(50)]}
    policy = {"constraint.any": ANY, "policy.invariant.i": json.dumps({"op": "not", "args": [asks]})}
    world.create(policy | {"constraint.all": constraint(effect="deny", when={"op": "all", "args": [asks, asks]})})
    asked = world.server.hypothetical(SPACE, AGENT, world.proposal(delta(a="1")))
    assert smallest_flip(asked).status is FlipStatus.SMALLEST
    # Each decision asks 151 times at most, counting one for itself; three are needed.
    monkeypatch.setattr(flipping, "MAX_PROBES", 302)
    found = smallest_flip(asked)
    assert (found.decisions, found.status) == (2, FlipStatus.UNKNOWN)


# --- memory -----------------------------------------------------------------------------------------------------------


def promote(world: World, event_id: str) -> bool:
    """Whether an agent gets a claim of its own confirmed by this event."""
    entry_id = f"m{world.space.head.seq}"
    world.say(PutMemory(entry_id, MemoryKind.HYPOTHESIS, raw(entry_id), ttl_ms=1_000_000), AGENT)
    promotion = PromoteMemory(entry_id, MemoryKind.FACT, Evidence(confirmed_by_event_id=event_id))
    return world.say(promotion, AGENT).event.result.granted


def test_an_agent_confirms_nothing_by_what_it_can_bring_about_itself(world: World) -> None:
    world.open(caller_tool("own"), http_tool("t"))
    events = [
        world.say(PutMemory("m", MemoryKind.HYPOTHESIS, raw("x"), ttl_ms=1_000_000), AGENT).event,
        world.propose(StateDelta({"policy.x": "1"})).event,
        world.propose(delta(a="1")).event,
        world.propose(StateDelta({"policy.x": "1"}), actor=ENCODER).event,
    ]
    begun = world.propose(call("own")).event
    outcome = RecordOutcome(begun.result.intents[0].execution_id, OutcomeStatus.SUCCEEDED, raw({}))
    events += [begun, world.say(outcome, OTHER_AGENT).event, world.say(outcome, AGENT).event]
    world.runner.status = OutcomeStatus.FAILED
    world.propose(call("t"), proposal_id="failing")
    assert wait_until_settled(world, "failing") is ProposalStatus.FAILED
    events.append(read_space_event(world.log.read(STREAM)[-1]))
    assert [promote(world, event.body.event_id) for event in events] == [False] * len(events)
    assert not promote(world, "no such event")


def test_what_others_saw_did_or_approved_confirms_a_claim(world: World) -> None:
    world.open(http_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    assert promote(world, world.propose(facts(a="1"), actor=ENCODER).event.body.event_id)
    asked = world.propose(call("t"), proposal_id="p").event.result.asked[0].approval_id
    assert not promote(world, world.say(Approve(asked), AGENT).event.body.event_id)
    approval = world.say(Approve(asked), SECOND).event.body.event_id
    assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED
    outcome = read_space_event(world.log.read(STREAM)[-1]).body
    assert outcome.verb == "RECORD_OUTCOME"
    assert promote(world, approval)
    assert promote(world, outcome.event_id)


def test_a_log_that_says_of_an_event_that_it_confirms_a_claim_is_not_believed(world: World) -> None:
    space = world.create()
    evidence = Evidence(confirmed_by_event_id=space.head_event_id)
    forged = PutMemory("m", MemoryKind.FACT, raw("x"), evidence, confirming_event_found=True)
    with pytest.raises(Conflict, match="confirms nothing"):
        decide(space, forged, AGENT, Stamp("e", "2026-01-01T00:00:00.000000Z", None))


@pytest.mark.parametrize("event_id", [None, "nothing"])
def test_a_conclusion_that_confirms_a_claim_is_held_against_the_log_of_its_session(
    two: TwoProcesses, event_id: str | None
) -> None:
    space = two.first.space
    # An event that is there, but no conclusion.
    event_id = event_id or two.belief.current_session(two.session_id).head_event_id
    evidence = Evidence(confirmed_by_event_id=event_id, confirmed_in_session_id=two.session_id)
    forged = PutMemory("m", MemoryKind.FACT, raw("x"), evidence, confirming_event_found=True)
    event = decide(space, forged, AGENT, Stamp("e", "2026-01-01T00:00:00.000000Z", None))
    assert isinstance(event, SpaceEvent)
    entries = [*two.store.read(STREAM), event.stored]
    assert belief_sessions_in(entries) == [two.session_id]
    with pytest.raises(LedgerCorrupt, match="has no conclusion"):
        verify_belief_pins(entries, {two.session_id: two.store.read(two.session_id)})
    with pytest.raises(LedgerCorrupt, match="is not there"):
        verify_belief_pins(entries, {})


def test_no_operator_settles_a_doubt_about_a_call_of_their_own(world: World) -> None:
    world.open(http_tool("t"))
    world.runner.unknown = True
    execution_id = world.start(call("t"))
    assert eventually(lambda: len(world.runner.calls) == 1)
    world.advance(minutes=1)
    outcome = RecordOutcome(execution_id, OutcomeStatus.SUCCEEDED, raw({}))
    assert world.say(outcome, Actor(ActorKind.OPERATOR, AGENT.id)).event.result.reason_code == "NOT_AUTHORISED"
    assert world.say(outcome, AGENT).event.result.reason_code == "NOT_AUTHORISED"
    assert world.say(outcome, SECOND).event.result.granted


# --- actors of one id -------------------------------------------------------------------------------------------------


@pytest.mark.req("CALL-HIDE-01")
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.usefixtures("short_epochs")
def test_an_actor_of_another_kind_shares_no_call_with_an_agent_of_its_id(world: World, *, settled: bool) -> None:
    # Only where decisions are observed do calls of others than agents run at all.
    world.open(caller_tool("t"), mode=Mode.OBSERVE)
    mine = world.propose(call("t", key="k")).event.result.intents[0].execution_id
    world.report(mine, result="mine")
    if settled:
        for number in range(9):
            world.propose(delta(a=str(number)))
        assert mine not in world.space.executions
    namesake = Actor(ActorKind.ENCODER, AGENT.id)
    proposed = world.propose(call("t", key="k"), actor=namesake).event.result
    [theirs] = [each.execution_id for each in proposed.intents]
    assert (theirs != mine, proposed.answered_by) == (True, {})
    # The agent neither reports what the other runs, nor is it answered by it.
    said = world.say(RecordOutcome(theirs, OutcomeStatus.SUCCEEDED, raw("forged")), AGENT)
    assert said.event.result.reason_code == "NOT_AUTHORISED"
    assert world.propose(call("t", key="k")).event.result.answered_by == {"0": mine}
    assert world.say(RecordOutcome(theirs, OutcomeStatus.FAILED), namesake).event.result.granted
