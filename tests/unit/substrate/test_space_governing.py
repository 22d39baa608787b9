"""Governing a space: its policy, its tools, its mode, and what can be asked of it without a trace."""

from __future__ import annotations

import pytest

from cmbs.belief.kernel.events import Stamp
from cmbs.errors import Conflict, InvalidRequest, RecordNotFound, SpaceNotFound
from cmbs.messages import Actor
from cmbs.substrate.kernel.decide import decide, evolve
from cmbs.substrate.kernel.events import (
    Approve,
    CreateSpace,
    Evidence,
    MemoryKind,
    Mode,
    OutcomeStatus,
    ProposePolicy,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    SetMode,
    SettlePolicy,
    SpaceMessage,
    Wake,
)
from cmbs.substrate.kernel.model import ReasonCode, Verdict
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.words import PolicyChangeStatus
from tests.support.spaces import (
    AGENT,
    ANY,
    ASKING,
    ENGINE,
    ROOT,
    SECOND,
    SPACE,
    STREAM,
    World,
    call,
    caller_tool,
    change_policy,
    delta,
    http_tool,
    raw,
)


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
    decision = world.decide(delta(a="1"))
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
    assert world.say(RetireTool("c")).space.tools["c"].retired
    decision = world.decide(call("c"))
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


def test_to_set_the_policy_aside_takes_two_operators_and_to_enforce_it_one(world: World) -> None:
    world.create()
    for _ in range(2):  # saying it again is not a second opinion
        asked = world.say(SetMode(Mode.OBSERVE), ROOT)
        assert asked.event.result.reason_code == "SECOND_OPERATOR_NEEDED"
        assert (asked.space.mode, asked.space.observe_asked_by) == (Mode.ENFORCE, ROOT)
    agreed = world.say(SetMode(Mode.OBSERVE), SECOND).space
    assert (agreed.mode, agreed.observe_asked_by) == (Mode.OBSERVE, None)
    assert world.say(SetMode(Mode.OBSERVE), ROOT).space.mode is Mode.OBSERVE
    assert world.say(SetMode(Mode.ENFORCE), ROOT).space.mode is Mode.ENFORCE
    world.say(SetMode(Mode.OBSERVE), ROOT)
    withdrawn = world.say(SetMode(Mode.ENFORCE), ROOT).space
    assert withdrawn.observe_asked_by is None
    assert world.say(SetMode(Mode.OBSERVE), SECOND).space.mode is Mode.ENFORCE


def test_a_dry_run_records_nothing(world: World) -> None:
    space = world.create({})
    ruling = world.server.explain(SPACE, AGENT, world.proposal(delta(a="1")))
    assert (ruling.decision.reason_code, bool(ruling.decision.trace)) == (ReasonCode.NO_ALLOW, True)
    assert world.space.head == space.head


def test_a_plain_allow_is_told_with_its_trace_as_well(world: World) -> None:
    world.open(http_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    world.propose(delta(a="1"), proposal_id="p")
    (asked,) = world.propose(call("t"), proposal_id="q").event.result.asked
    world.say(Approve(asked.approval_id))
    for proposal_id in ("p", "q"):
        told, kept = world.server.decision(SPACE, proposal_id), world.space.proposals[proposal_id].decision
        assert (told.verdict, bool(told.trace), bool(kept.trace)) == (Verdict.ALLOW, True, False)
        assert told.candidates == kept.candidates
    with pytest.raises(RecordNotFound):
        world.server.decision(SPACE, "nothing")


def test_a_new_threshold_judges_what_is_remembered_again(world: World) -> None:
    world.create({"constraint.any": ANY, "policy.memory.confidence_threshold": "0.8"})
    evidence = Evidence(["chunk"], 850)
    assert world.say(PutMemory("m", MemoryKind.FACT, raw("x"), evidence), AGENT).space.memory["m"].confirmed
    after = change_policy(world, {"policy.memory.confidence_threshold": "0.9"})
    assert (after.memory["m"].confirmed, after.memory["m"].kind) == (False, MemoryKind.HYPOTHESIS)


def test_a_change_of_policy_has_one_life(world: World) -> None:
    space = world.create()
    world.say(ProposePolicy("c", space.policy.policy_hash, {"policy.value.x": "1"}))
    with pytest.raises(Conflict, match="proposed before"):
        world.say(ProposePolicy("c", space.policy.policy_hash, {"policy.value.x": "2"}))


@pytest.mark.parametrize(
    ("message", "actor"),
    [
        (Approve("a"), ROOT),
        (Reject("a"), ROOT),
        (SettlePolicy("c", True), SECOND),
        (RetireTool("t"), ROOT),
        (RevokeCapability("token"), ROOT),
        (RecordOutcome("x", OutcomeStatus.FAILED), AGENT),
        (Wake("p", []), ENGINE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_was_never_recorded_is_not_found(world: World, message: SpaceMessage, actor: Actor) -> None:
    world.create()
    with pytest.raises(RecordNotFound):
        world.say(message, actor)


def test_a_space_begins_with_its_creation_and_nothing_else(world: World) -> None:
    stamp = Stamp("event", "2026-01-01T00:00:00.000000Z", "key")
    with pytest.raises(SpaceNotFound, match="nowhere"):
        decide(None, SetMode(Mode.OBSERVE), ROOT, stamp, "nowhere")
    world.say(CreateSpace(SPACE), ENGINE, idempotency_key="key")
    assert world.say(CreateSpace(SPACE), ENGINE, idempotency_key="key").repeated
    world.say(SetMode(Mode.OBSERVE))
    with pytest.raises(TypeError, match="creates the space"):
        evolve(None, read_space_event(world.log.read(STREAM)[1]))
