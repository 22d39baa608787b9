"""Ways around the rules of a space that somebody tried, and that are closed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from cmbs.substrate.events import Approve
from cmbs.substrate.state import ProposalStatus
from tests.support.spaces import (
    ANY,
    ENCODER,
    SECOND,
    World,
    assert_replays,
    call,
    constraint,
    facts,
    http_tool,
    settled,
    status,
)

ASKING = constraint(effect="deny", subject={"tool_id": "t"}, on_fail="ask")
LATER = constraint(
    effect="deny", subject={"tool_id": "slow"}, when={"op": "missing", "args": ["fact.go"]}, on_fail="defer"
)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
    assert_replays(world)


# --- approvals --------------------------------------------------------------------------------------------------------


def test_calls_that_are_the_same_take_a_use_of_their_approval_each(world: World) -> None:
    world.create({"constraint.any": ANY, "constraint.ask": ASKING})
    world.equip(http_tool("t", writes=False))
    asked = world.propose(call("t", key="first")).event.result.asked
    world.say(Approve(asked[0].approval_id, uses=4), SECOND)
    twins = world.propose(call("t", key="a"), call("t", key="b"), call("t", key="c"))
    assert (len(twins.event.result.intents), twins.event.result.used_approvals) == (3, [asked[0].approval_id] * 3)
    assert world.space.approvals[asked[0].approval_id].uses_left == 0
    assert not world.propose(call("t", key="d")).event.result.intents


# --- proposals that are not atomic ------------------------------------------------------------------------------------


def test_what_was_blocked_stays_blocked_when_another_candidate_wakes(world: World) -> None:
    shut = constraint(effect="deny", subject={"tool_id": "risky"}, when={"op": "missing", "args": ["fact.open"]})
    world.create({"constraint.any": ANY, "constraint.shut": shut, "constraint.later": LATER})
    world.equip(http_tool("risky"), http_tool("slow"))
    world.propose(call("risky", key="r"), call("slow", key="s"), proposal_id="p", atomic=False)
    world.propose(facts(open="1", go="1"), actor=ENCODER)
    world.server.keep()
    assert settled(world, "p") is ProposalStatus.COMMITTED
    assert [tool_id for tool_id, _, _ in world.runner.calls] == ["slow"]
    assert [each.verdict.value for each in world.space.proposals["p"].decision.candidates] == ["deny", "allow"]


def test_what_was_deferred_beyond_its_time_does_not_run_when_another_candidate_is_approved(world: World) -> None:
    world.create({"constraint.any": ANY, "constraint.ask": ASKING, "constraint.later": LATER})
    world.equip(http_tool("t"), http_tool("slow"))
    both = (call("t", key="t"), call("slow", key="s"))
    asked = world.propose(*both, proposal_id="p", atomic=False, defer_ms=1_000).event.result.asked
    world.clock.advance(timedelta(seconds=2))
    world.server.keep()
    assert (status(world.space, "p"), len(world.space.parked)) == (ProposalStatus.ASKED, 0)
    world.propose(facts(go="1"), actor=ENCODER)
    world.say(Approve(asked[0].approval_id), SECOND)
    assert settled(world, "p") is ProposalStatus.COMMITTED
    assert [tool_id for tool_id, _, _ in world.runner.calls] == ["t"]
