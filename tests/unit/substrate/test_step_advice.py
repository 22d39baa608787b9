"""Advice on answers of a server: to proposals as they stand, and to the steps of operators, agents and memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.messages import Actor, ActorKind, OntologyBundle
from cmbs.refusals import Refusal
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.arbitration.capabilities import IssueRefusal
from cmbs.substrate.kernel.events import (
    Approve,
    Evidence,
    IssueCapability,
    MemoryKind,
    Mode,
    PromoteMemory,
    Propose,
    ProposePolicy,
    PutMemory,
    RegisterTool,
    Reject,
    RevokeCapability,
    SetMode,
    SettlePolicy,
    SpaceMessage,
)
from cmbs.substrate.kernel.insight.advice import advise_on_answer, advise_on_record
from cmbs.substrate.kernel.insight.step_advice import STEP_ADVICE, advise_on_step
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.memory import MemoryReason
from cmbs.substrate.kernel.model import Budget, Capability, ReasonCode, Scope, ScopeMatch
from cmbs.substrate.kernel.steps import StepReason
from tests.support.spaces import (
    AGENT,
    ANY,
    ASKING,
    OTHER_AGENT,
    ROOT,
    SECOND,
    World,
    call,
    caller_tool,
    change_policy,
    constraint,
    delta,
    raw,
)

Make = Callable[..., World]


def refuse(answer: SpaceAnswer, code: str) -> Refusal:
    refusal = advise_on_step(answer)
    assert refusal is not None
    assert refusal.code == code
    assert refusal.message
    assert refusal.next
    return refusal


@pytest.mark.req("GATES-REFUSAL-05")
def test_every_reason_of_a_step_has_advice() -> None:
    reasons = {reason.value for kind in (StepReason, IssueRefusal, MemoryReason) for reason in kind}
    assert set(STEP_ADVICE) == reasons


def test_a_reason_without_a_row_still_has_a_sentence(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world()
    world.create()
    monkeypatch.delitem(STEP_ADVICE, "NOT_AUTHORISED")
    refusal = refuse(world.say(SetMode(Mode.OBSERVE), AGENT), "NOT_AUTHORISED")
    assert refusal.sentence == "it was not done: NOT_AUTHORISED; ask an operator"


@pytest.mark.req("GATES-REFUSAL-05")
def test_steps_of_operators(make_world: Make) -> None:
    world = make_world()
    world.create()
    assert refuse(world.say(RegisterTool(caller_tool("t")), AGENT), "NOT_AUTHORISED").found == "agent"
    assert refuse(world.say(SetMode(Mode.OBSERVE)), "SECOND_OPERATOR_NEEDED").found == "root"
    assert advise_on_step(world.say(SetMode(Mode.ENFORCE))) is None
    change = ProposePolicy("c", world.space.policy.policy_hash, {"constraint.b": ANY}, [])
    assert advise_on_step(world.say(change)) is None
    assert refuse(world.say(SettlePolicy("c", True)), "SELF_APPROVAL").found == "root"
    before = world.space.policy.policy_hash
    change_policy(world, {"constraint.d": ANY})
    moved = refuse(world.say(SettlePolicy("c", True), SECOND), "POLICY_MOVED")
    assert (moved.found, moved.accepted) == (before, world.space.policy.policy_hash)


@pytest.mark.req("GATES-REFUSAL-05")
def test_approvals(make_world: Make) -> None:
    world = make_world()
    world.open(caller_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    answer = world.propose(call("t"))
    [asked] = answer.event.result.asked
    changed = refuse(world.say(Approve(asked.approval_id, call_hash="0" * 64)), "CALL_CHANGED")
    assert (changed.found, changed.accepted) == ("0" * 64, asked.call_hash)
    world.clock.advance(timedelta(hours=2))
    late = refuse(world.say(Approve(asked.approval_id)), "APPROVAL_EXPIRED")
    assert late.accepted == {"before": asked.expires_at}


@pytest.mark.req("GATES-REFUSAL-05")
@pytest.mark.parametrize(
    ("code", "parts", "field"),
    [
        ("MALFORMED", {"tool_ids": []}, "capability"),
        ("ALREADY_ISSUED", {"token_id": "token"}, "token_id"),
        ("PARENT_UNKNOWN", {"parent_id": "none"}, "parent_id"),
        ("PARENT_REVOKED", {"parent_id": "revoked"}, "parent_id"),
        ("WIDER_TOOLS", {"tool_ids": ["t", "u"]}, "tool_ids"),
        ("WIDER_CAPABILITIES", {"capabilities": ["net"]}, "capabilities"),
        ("WIDER_SCOPES", {"scopes": []}, "scopes"),
        ("WIDER_BUDGET", {"budget": Budget(calls=9)}, "budget"),
        ("WIDER_EXPIRY", {"expires_at": None}, "expires_at"),
    ],
)
def test_tokens_that_are_not_issued(make_world: Make, code: str, parts: dict[str, Any], field: str) -> None:
    world = make_world()
    scope = Scope("path", ScopeMatch.PREFIX, "/data")
    until = "2099-01-01T00:00:00.000000Z"
    world.open(caller_tool("t"), scopes=[scope], budget=Budget(calls=3), expires_at=until)
    world.say(IssueCapability(Capability("revoked", AGENT.id, ["t"])))
    world.say(RevokeCapability("revoked"))
    child: dict[str, Any] = {
        "token_id": "child",
        "agent_id": AGENT.id,
        "tool_ids": ["t"],
        "scopes": [scope],
        "budget": Budget(calls=2),
        "expires_at": until,
        "parent_id": "token",
    }
    refusal = refuse(world.say(IssueCapability(Capability(**(child | parts)))), code)
    assert refusal.field == field
    if code.startswith("WIDER"):
        assert refusal.accepted == getattr(world.space.capabilities["token"], field)


@pytest.mark.req("GATES-REFUSAL-05")
def test_a_token_without_a_parent_is_for_operators(make_world: Make) -> None:
    world = make_world()
    world.create()
    refusal = refuse(world.say(IssueCapability(Capability("x", AGENT.id, ["t"])), AGENT), "NOT_PERMITTED")
    assert refusal.found == "agent"


@pytest.mark.req("GATES-REFUSAL-05")
def test_memory(make_world: Make) -> None:
    world = make_world()
    world.create()
    unconfirmed = refuse(world.say(PutMemory("m", MemoryKind.FACT, raw("x")), AGENT), "CLAIM_UNCONFIRMED")
    assert (unconfirmed.found, unconfirmed.accepted) == ("fact", ["derived", "hypothesis"])
    refuse(world.say(PutMemory("m", MemoryKind.DERIVED, raw("x")), AGENT), "REVIEW_REQUIRED")
    world.say(PutMemory("m", MemoryKind.DERIVED, raw("x"), ttl_ms=1_000_000), AGENT)
    assert (
        refuse(world.say(PutMemory("m", MemoryKind.DERIVED, raw("y"), ttl_ms=9), AGENT), "MEMORY_EXISTS").found == "m"
    )
    refuse(world.say(PromoteMemory("n", MemoryKind.FACT, Evidence()), AGENT), "MEMORY_UNKNOWN")
    same = refuse(world.say(PromoteMemory("m", MemoryKind.DERIVED, Evidence()), AGENT), "NOT_A_PROMOTION")
    assert same.found == {"from": "derived", "to": "derived"}
    refuse(world.say(PromoteMemory("m", MemoryKind.FACT, Evidence()), AGENT), "NO_NEW_EVIDENCE")
    unknown = Evidence(confirmed_by_event_id="e")
    refusal = refuse(world.say(PromoteMemory("m", MemoryKind.FACT, unknown), AGENT), "CONFIRMING_EVENT_UNKNOWN")
    assert refusal.found == "e"


# --- proposals, as they stand -----------------------------------------------------------------------------------------


def said(message: SpaceMessage) -> str:
    assert isinstance(message, Propose)
    return message.proposal.proposal_id


@pytest.mark.req("GATES-REFUSAL-04")
def test_an_answer_and_the_record_of_it_give_the_same_refusals(make_world: Make) -> None:
    world = make_world()
    parks = constraint(subject={"tool_id": "t"}, when={"op": "eq", "args": ["fact.x", "1"]}, on_fail="defer")
    deltas = constraint(when={"op": "missing", "args": ["$tool.id"]})
    world.open(caller_tool("t"), policy={"constraint.t": parks, "constraint.deltas": deltas})
    parked = world.propose(call("t"))
    [refusal] = advise_on_answer(parked, AGENT)
    assert (refusal.code, refusal.until) == (ReasonCode.ALLOW_UNMET, parked.event.result.parked_until)
    record = world.space.proposals[said(parked.event.message)]
    assert advise_on_record(world.space, record, AGENT) == [refusal]
    assert advise_on_record(world.space, record, OTHER_AGENT) == []
    [shown] = advise_on_record(world.space, record, ROOT)
    assert (refusal.accepted, shown.accepted) == (None, "1")
    world.know(x="1")
    settled = world.space.proposals[said(parked.event.message)]
    assert advise_on_record(world.space, settled, AGENT) == []
    assert advise_on_answer(world.propose(delta(a="1")), AGENT) == []
    assert advise_on_answer(world.say(SetMode(Mode.OBSERVE)), ROOT) == []
    [nothing] = advise_on_answer(world.propose(), AGENT)
    assert nothing.code == ReasonCode.NOTHING_PROPOSED


@pytest.mark.req("GATES-REFUSAL-04")
def test_what_waits_for_an_approval_names_it_until_that_is_over(make_world: Make) -> None:
    world = make_world()
    world.open(caller_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    answer = world.propose(call("t"))
    [asked] = answer.event.result.asked
    [refusal] = advise_on_answer(answer, AGENT)
    assert (refusal.approval_id, refusal.until) == (asked.approval_id, asked.expires_at)
    rejected = world.say(Reject(asked.approval_id))
    assert advise_on_answer(rejected, ROOT) == []
    [over] = advise_on_record(world.space, world.space.proposals[said(answer.event.message)], AGENT)
    assert (over.approval_id, over.next.startswith("it no longer waits, since it is rejected")) == (None, True)


def test_what_only_was_observed_was_not_refused(make_world: Make) -> None:
    world = make_world()
    world.open(caller_tool("t", writes=False), policy={}, mode=Mode.OBSERVE)
    answer = world.propose(call("t"))
    assert answer.event.result.decision is not None
    assert (answer.event.result.decision.reason_code, advise_on_answer(answer, AGENT)) == (ReasonCode.NO_ALLOW, [])


@pytest.mark.req("GATES-REPEAT-10")
def test_a_repeat_knows_the_belief_of_now() -> None:
    store = InMemoryStore()
    belief = BeliefServer(store=store)
    session_id = belief.declare_session(OntologyBundle("shop", "1", "graph", "1"), ["a", "b"]).session_id
    world = World(store, belief=ServedBelief(belief))
    gate = constraint(subject={"tool_id": "t"}, when={"op": "eq", "args": [f"$belief.{session_id}.n_survivors", 1]})
    world.open(caller_tool("t"), policy={"constraint.gate": gate})
    first = world.propose(call("t"), proposal_id="p")
    assert (first.repeated, first.belief_now) == (False, ())
    belief.eliminate(session_id, "probe", "o", ["a"])
    message = first.event.message
    again = world.say(message, AGENT)
    [now] = again.belief_now
    assert isinstance(message, Propose)
    assert (again.repeated, [each.n_survivors for each in message.belief], now.n_survivors) == (True, [2], 1)
    assert advise_on_answer(again, AGENT) == advise_on_answer(first, AGENT)
    world.close()


def test_an_operator_who_poses_as_the_agent_is_still_an_operator(make_world: Make) -> None:
    world = make_world()
    world.open(caller_tool("t"), policy={})
    answer = world.propose(call("t"))
    assert advise_on_answer(answer, Actor(ActorKind.OPERATOR, AGENT.id)) == advise_on_answer(answer, AGENT)
