"""What seldom happens in a space: approvals that overlap, executions that several wait for, thresholds that move."""

from __future__ import annotations

import msgspec
import pytest

from cmbs.belief.kernel.events import Stamp
from cmbs.errors import Conflict, RecordNotFound, SpaceNotFound
from cmbs.ledger import StoredEntry, hash_entry
from cmbs.substrate.kernel.decide import decide, evolve
from cmbs.substrate.kernel.events import (
    Approve,
    CreateSpace,
    Evidence,
    Expire,
    ExpiryOf,
    MemoryKind,
    Mode,
    OutcomeStatus,
    ProposePolicy,
    PutMemory,
    RecordOutcome,
    Reject,
    SetMode,
    SettlePolicy,
    SpaceVerb,
    Wake,
)
from cmbs.substrate.kernel.model import Verdict
from cmbs.substrate.kernel.proposals import situation_of
from cmbs.substrate.kernel.replay import read_space_event, verify_space
from cmbs.substrate.kernel.state import ApprovalStatus, ProposalStatus
from cmbs.substrate.kernel.steps import fingerprint
from tests.support.spaces import (
    AGENT,
    ANY,
    ENCODER,
    ENGINE,
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
    raw,
    status,
)

STREAM = f"space:{SPACE}"
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
    world.say(Approve(wide.approval_id, 2))
    after = world.say(Approve(narrow.approval_id, 2))
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
        world.propose(facts(go="yes"), actor=ENCODER)
        world.server.keep()
        told = world.server.decision(SPACE, "p")
        assert [each.verdict for each in told.candidates] == [Verdict.ALLOW, Verdict.ALLOW]
        assert {step.candidate for step in told.trace} <= {None, 1}
    else:
        (asked,) = answer.event.result.asked
        again = world.say(Approve(asked.approval_id))
        assert [intent.candidate for intent in again.event.result.intents] == [1]


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
        caller_tool("c", facts={"fact.x": "x"}),
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


def test_a_new_threshold_judges_what_is_remembered_again(world: World) -> None:
    world.create({"constraint.any": ANY, "policy.memory.confidence_threshold": "0.8"})
    evidence = Evidence(["chunk"], 850)
    assert world.say(PutMemory("m", MemoryKind.FACT, raw("x"), evidence), AGENT).space.memory["m"].confirmed
    after = change_policy(world, {"policy.memory.confidence_threshold": "0.9"})
    assert (after.memory["m"].confirmed, after.memory["m"].kind) == (False, MemoryKind.HYPOTHESIS)


def test_a_claim_under_an_idempotency_key_is_remembered_once(world: World) -> None:
    world.create()
    here = Evidence(confirmed_by_event_id=world.space.head_event_id)
    message = PutMemory("m", MemoryKind.FACT, raw("x"), here)
    first = world.say(message, AGENT, idempotency_key="k")
    again = world.say(message, AGENT, idempotency_key="k")
    assert (again.repeated, again.event.stored) == (True, first.event.stored)


def test_what_was_never_asked_for_is_not_found(world: World) -> None:
    world.create()
    for message in (Approve("a"), Reject("a")):
        with pytest.raises(RecordNotFound):
            world.say(message)


def test_a_change_of_policy_has_one_life(world: World) -> None:
    space = world.create()
    world.say(ProposePolicy("c", space.policy.policy_hash, {"policy.value.x": "1"}))
    with pytest.raises(Conflict, match="proposed before"):
        world.say(ProposePolicy("c", space.policy.policy_hash, {"policy.value.x": "2"}))
    with pytest.raises(RecordNotFound):
        world.say(SettlePolicy("d", True), SECOND)


def test_a_space_begins_with_its_creation_and_nothing_else(world: World) -> None:
    stamp = Stamp("event", "2026-01-01T00:00:00.000000Z", "key")
    with pytest.raises(SpaceNotFound, match="nowhere"):
        decide(None, SetMode(Mode.OBSERVE), ROOT, stamp, "nowhere")
    world.say(CreateSpace(SPACE), ENGINE, idempotency_key="key")
    assert world.say(CreateSpace(SPACE), ENGINE, idempotency_key="key").repeated
    world.say(SetMode(Mode.OBSERVE))
    with pytest.raises(TypeError, match="creates the space"):
        evolve(None, read_space_event(world.log.read(STREAM)[1]))


def test_a_frame_that_is_not_canonical_is_told_apart_from_what_it_says(world: World) -> None:
    world.create()
    (entry,) = world.log.read(STREAM)
    spaced = entry.raw.replace(b"{", b"{ ", 1)
    with pytest.raises(Exception, match="bytes are not in canonical form"):
        verify_space(SPACE, [StoredEntry(spaced, hash_entry(spaced))])


def test_nothing_is_woken_that_does_not_wait_and_nothing_expires_before_its_time(world: World) -> None:
    world.create()
    world.propose(delta(a="1"), proposal_id="p")
    with pytest.raises(Conflict, match="not parked"):
        world.say(Wake("p", ["fact.go"]), ENGINE)
    world.say(PutMemory("m", MemoryKind.HYPOTHESIS, raw("it rains"), ttl_ms=1000), AGENT)
    with pytest.raises(Conflict, match="does not expire now"):
        world.say(Expire(ExpiryOf.MEMORY, "m"), ENGINE)


def test_a_wake_was_decided_on_what_was_left_of_its_proposal(world: World) -> None:
    world.open(caller_tool("c"), policy={"constraint.any": ANY, "constraint.wait": WAITING})
    parked = world.propose(call("c"), proposal_id="p", atomic=False)
    world.propose(facts(go="yes"), actor=ENCODER)
    world.server.keep()
    events = [read_space_event(stored) for stored in world.log.read(STREAM)]
    (woken,) = [event for event in events if event.body.verb == SpaceVerb.WAKE]
    before = world.server.at(SPACE, woken.body.seq - 1)
    space, proposal, actor = situation_of(before, woken)
    assert (space, actor) == (before, AGENT)
    assert proposal.candidates == parked.space.proposals["p"].message.proposal.candidates
    assert proposal.state_snapshot_id == before.snapshot_id


def test_what_the_server_adds_does_not_make_another_request() -> None:
    said = PutMemory("m", MemoryKind.HYPOTHESIS, raw("it rains"), ttl_ms=1000)
    added = msgspec.structs.replace(said, confirming_event_found=True)
    assert fingerprint(added, AGENT) == fingerprint(said, AGENT) != fingerprint(said, ENCODER)
