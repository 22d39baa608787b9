"""What changed in a space between two moments, and who may see it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from cmbs.errors import EventNotFound, InvalidRequest, LimitExceeded
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.events import (
    Approve,
    ConflictState,
    CreateSpace,
    DisputeMemory,
    MemoryKind,
    Mode,
    ProposePolicy,
    PutMemory,
    Reject,
    RetireTool,
    RevokeCapability,
    SetGovernance,
    SetMode,
)
from cmbs.substrate.kernel.insight.differences import SpaceDiff
from cmbs.substrate.kernel.requests import SpaceLimits
from tests.support.space_client import PLANNER, app_over, space_client
from tests.support.space_client import delta as delta_item
from tests.support.spaces import (
    AGENT,
    ANY,
    ASKING,
    ROOT,
    SECOND,
    SPACE,
    TOKEN,
    World,
    call,
    caller_tool,
    change_policy,
    constraint,
    delta,
    raw,
)

MakeWorld = Callable[..., World]


def touched(diff: SpaceDiff) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    return {(change.kind.value, change.id): (change.before, change.after) for change in diff.changes}


@pytest.mark.req("DIFF-02")
def test_everything_that_is_another_is_told_once_with_what_it_became(make_world: MakeWorld) -> None:
    world = make_world()
    world.open(caller_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    world.propose(delta(a="1", b="1", c="1"), proposal_id="before")
    start = world.space.head.seq
    world.propose(delta(a="2"), proposal_id="p1")
    world.propose(delta(["goal.b"], c="9", d="1"), proposal_id="p2")
    world.propose(delta(c="1"), proposal_id="p3")
    (asked,) = world.propose(call("t"), proposal_id="ask").event.result.asked
    (intent,) = world.say(Approve(asked.approval_id)).event.result.intents
    world.report(intent.execution_id)
    (other,) = world.propose(call("t", key="k2"), proposal_id="ask2").event.result.asked
    world.say(Reject(other.approval_id))
    world.say(PutMemory("m", MemoryKind.HYPOTHESIS, raw({"x": 1}), ttl_ms=86_400_000), AGENT)
    world.say(DisputeMemory("m", ConflictState.POSSIBLE))
    change_policy(world, {"constraint.more": ANY})
    world.say(SetMode(Mode.OBSERVE), ROOT)
    world.say(SetMode(Mode.OBSERVE), SECOND)
    world.say(RevokeCapability(TOKEN))
    world.say(RetireTool("t"))
    diff = world.server.diff(SPACE, start)
    found = touched(diff)
    assert {each: found[each] for each in found if each[0] == "fact"} == {
        ("fact", "goal.a"): ("1", "2"),
        ("fact", "goal.b"): ("1", None),
        ("fact", "goal.d"): (None, "1"),
    }
    assert found["policy", "constraint.more"] == (None, ANY)
    assert found["proposal", "ask"] == (None, "committed")
    assert found["proposal", "ask2"] == (None, "rejected")
    assert found["approval", asked.approval_id] == (None, "approved")
    assert found["approval", other.approval_id] == (None, "rejected")
    assert found["execution", intent.execution_id] == (None, "succeeded")
    assert found["memory", "m"] == (None, "possible")
    assert found["mode", "mode"] == (None, "observe")
    assert (found["tool", "t"], found["capability", TOKEN]) == ((None, "retired"), (None, "revoked"))
    assert {kind for kind, _ in found} >= {"policy_change"}
    assert [change.seq for change in diff.changes] == sorted(change.seq for change in diff.changes)
    assert (diff.from_seq, diff.to_seq) == (start, world.space.head.seq)
    assert diff.snapshot_id_after == world.space.snapshot_id
    assert touched(world.server.diff(SPACE, start, start)) == {}
    assert touched(world.server.diff(SPACE, 0, 1)) == {("tool", "t"): (None, "registered")}


def test_what_was_refused_or_expired_is_counted_and_told(make_world: MakeWorld) -> None:
    world = make_world()
    world.open(caller_tool("t"), policy={"constraint.any": ANY, "constraint.ask": ASKING})
    start = world.space.head.seq
    (asked,) = world.propose(call("t"), proposal_id="ask", ask_ms=1_000).event.result.asked
    world.say(Approve(asked.approval_id), AGENT)
    world.say(PutMemory("m", MemoryKind.HYPOTHESIS, raw({"x": 1}), ttl_ms=1_000), AGENT)
    world.clock.advance(timedelta(seconds=10))
    world.server.keep()
    diff = world.server.diff(SPACE, start)
    assert diff.refused == 1
    found = touched(diff)
    assert (found["approval", asked.approval_id], found["memory", "m"]) == ((None, "expired"), (None, "expired"))


def test_a_difference_goes_forward_between_places_that_are_there_and_is_limited(make_world: MakeWorld) -> None:
    world = make_world(limits=SpaceLimits(diff_events=2))
    world.open(policy={"constraint.any": ANY})
    for number in range(4):
        world.propose(delta(a=str(number)))
    snapshot_id = world.space.snapshot_id
    last = world.space.head.seq
    assert touched(world.server.diff(SPACE, last - 1, snapshot_id))["fact", "goal.a"] == ("2", "3")
    with pytest.raises(InvalidRequest, match="goes forward"):
        world.server.diff(SPACE, 2, 1)
    with pytest.raises(EventNotFound):
        world.server.diff(SPACE, 0, last + 1)
    with pytest.raises(LimitExceeded):
        world.server.diff(SPACE, 0)


@pytest.mark.req("DIFF-02")
def test_over_http_a_difference_comes_in_pages_without_what_the_reader_may_not_see() -> None:
    with space_client(app_over(InMemoryStore())) as space:
        space.create()
        space.propose(delta_item(**{"goal.a": "1", "goal.b": "1", "goal.c": "1"}), proposal_id="p1")
        space.change_policy(constraint_x=ANY)
        whole = space.get("/diff", params={"from": "0"}).json()
        assert {item["kind"] for item in whole["changes"]} == {"fact", "policy", "policy_change", "proposal"}
        pieces, cursor = [], None
        while True:
            query = {"from": "0", "limit": 2, **({} if cursor is None else {"cursor": cursor})}
            page = space.get("/diff", params=query).json()
            pieces += page["changes"]
            cursor = page["next_cursor"]
            assert page["n_changes"] == whole["n_changes"] == len(whole["changes"])
            if cursor is None:
                break
        assert pieces == whole["changes"]
        seen = space.get("/diff", PLANNER).json()["changes"]
        assert {item["kind"] for item in seen} == {"fact", "proposal"}


def test_a_diff_names_governance_withdrawn_requests_and_policy_that_is_applied_at_once(world: World) -> None:
    world.say(CreateSpace(SPACE, policy={"constraint.any": ANY, "constraint.ask": ASKING}, operators_needed=1))
    world.equip(caller_tool("t"))
    (asked,) = world.propose(call("t"), proposal_id="p").event.result.asked
    start = world.space.head.seq
    never = constraint(effect="deny", subject={"tool_id": "t"})
    world.say(ProposePolicy("c", world.space.policy.policy_hash, {"constraint.never": never}))
    world.server.keep()
    world.say(SetGovernance(2))
    world.say(SetGovernance(1))
    found = {(each.kind.value, each.id): each.after for each in world.server.diff(SPACE, start).changes}
    assert found["governance", "operators_needed"] == "2"
    assert found["approval", asked.approval_id] == "withdrawn"
    assert found["policy_change", "c"] == "applied"
    assert found["proposal", "p"] == "denied"
