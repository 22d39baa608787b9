"""What of a space waits for a person, and for which one."""

from __future__ import annotations

from cmbs.messages import Actor
from cmbs.substrate.kernel.events import (
    Mode,
    OpenCase,
    OutcomeStatus,
    ProposePolicy,
    RecordOutcome,
    Reject,
    SetGovernance,
    SetMode,
    SettlePolicy,
)
from cmbs.substrate.kernel.inbox import Wait, find_waits
from cmbs.substrate.kernel.words import WaitKind
from tests.support.cases import open_world
from tests.support.spaces import AGENT, ANY, ASKING, ROOT, SECOND, World, call, http_tool


def find_all(world: World, actor: Actor = ROOT) -> list[Wait]:
    return find_waits(world.space, actor, may_approve=True, may_operate=True)


def test_an_execution_in_doubt_waits_for_an_operator_until_it_is_settled() -> None:
    world = open_world("c")
    world.open(http_tool("t", timeout_ms=1_000))
    world.say(OpenCase("c", agents=[AGENT.id]))
    world.runner.unknown = True
    execution_id = world.start(call("t"), proposal_id="p", case_id="c")
    assert find_all(world) == []
    world.advance(seconds=10)
    (wait,) = find_all(world, SECOND)
    assert (wait.kind, wait.id, wait.asked_by, wait.case_id) == (
        WaitKind.EXECUTION_IN_DOUBT,
        execution_id,
        AGENT.id,
        "c",
    )
    assert wait.seq == world.space.executions[execution_id].started_seq
    assert find_all(world, AGENT) == []
    assert find_waits(world.space, ROOT, may_approve=True, may_operate=False) == []
    world.say(RecordOutcome(execution_id, OutcomeStatus.SUCCEEDED), ROOT)
    assert find_all(world) == []


def test_an_approval_waits_for_another_than_its_proposer(world: World) -> None:
    world.open(http_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    (asked,) = world.propose(call("t"), proposal_id="p").event.result.asked
    (wait,) = find_all(world)
    assert (wait.kind, wait.id, wait.asked_by) == (WaitKind.APPROVAL, asked.approval_id, AGENT.id)
    assert find_waits(world.space, ROOT, may_approve=False, may_operate=True) == []
    assert find_all(world, AGENT) == []
    world.say(Reject(asked.approval_id), ROOT)
    assert find_all(world) == []


def test_what_takes_a_second_operator_does_not_wait_for_the_first(world: World) -> None:
    world.open(http_tool("t"))
    world.say(ProposePolicy("more", world.space.policy.policy_hash, {"constraint.more": ANY}), ROOT)
    world.say(SetMode(Mode.OBSERVE), ROOT)
    world.say(SetGovernance(1), ROOT)
    assert [(wait.kind, wait.id, wait.asked_by) for wait in find_all(world, SECOND)] == [
        (WaitKind.POLICY_CHANGE, "more", ROOT.id),
        (WaitKind.GOVERNANCE, world.space.space_id, ROOT.id),
        (WaitKind.OBSERVE_MODE, world.space.space_id, ROOT.id),
    ]
    assert find_all(world, ROOT) == []
    world.say(SettlePolicy("more", False), SECOND)
    assert [wait.kind for wait in find_all(world, SECOND)] == [WaitKind.GOVERNANCE, WaitKind.OBSERVE_MODE]
