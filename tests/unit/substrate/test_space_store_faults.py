"""A store that fails at any call, before or after the fact: no half steps, no effect without its intent, none twice."""

from __future__ import annotations

from concurrent.futures import Future, wait
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from cmbs.audit.fsck import check_space
from cmbs.errors import CmbsError, StoreUnavailable
from cmbs.messages import Actor
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.kernel.events import Approve, Propose, SpaceMessage
from cmbs.substrate.kernel.replay import read_space_event, verify_space
from cmbs.testing import FailingLog, Moment
from tests.support.spaces import (
    AGENT,
    ANY,
    ENCODER,
    ROOT,
    SPACE,
    STREAM,
    BlockingStore,
    World,
    call,
    constraint,
    delta,
    facts,
    http_tool,
)

WAIT_SECONDS = 20
POLICY = {
    "constraint.any": ANY,
    "constraint.ask": constraint(effect="deny", subject={"tool_id": "asked"}, on_fail="ask"),
    "constraint.wait": constraint(
        effect="deny", subject={"tool_id": "parked"}, when={"op": "missing", "args": ["fact.go"]}, on_fail="defer"
    ),
}


def insist(world: World, message: SpaceMessage, actor: Actor) -> object:
    """Send a message until it is answered; what it came to."""
    for _ in range(5):
        try:
            return world.say(message, actor)
        except StoreUnavailable:
            continue
        except CmbsError as exc:
            return exc
    raise AssertionError("it was never answered")


def story(world: World) -> None:
    """Everything that a space does, however often a call has to be made."""
    begun = note_begun(world)
    proposals = [
        (world.proposal(call("plain", key="1"), delta(a="1"), proposal_id="p"), AGENT),
        (world.proposal(call("asked", key="2"), proposal_id="q"), AGENT),
        (world.proposal(call("parked", key="3"), delta(b="1"), proposal_id="r"), AGENT),
        (world.proposal(facts(go="yes"), actor=ENCODER, proposal_id="s"), ENCODER),
    ]
    for proposal, actor in proposals:
        insist(world, Propose(proposal), actor)
    for approval_id in sorted(world.space.approvals):
        insist(world, Approve(approval_id), ROOT)
    for _ in range(9):
        world.server.keep()
    # Nothing is read for it: how often that is done must not change which call fails.
    assert wait(begun, WAIT_SECONDS).not_done == set()
    world.clock.advance(timedelta(days=1))
    for _ in range(2):
        world.server.keep()
    assert not world.space.running


def note_begun(world: World) -> list[Future[None]]:
    """The executions that the server has begun from now on."""
    begun: list[Future[None]] = []
    pool = world.server._executor._pool
    submit = pool.submit

    def note(*call: Any) -> Future[None]:
        begun.append(submit(*call))
        return begun[-1]

    pool.submit = note  # type: ignore[method-assign, assignment]
    return begun


def prepare(store: FailingLog[BlockingStore]) -> World:
    world = World(store)
    world.open(http_tool("plain"), http_tool("asked"), http_tool("parked"), policy=POLICY)
    return world


def calls_of_the_story() -> int:
    store = FailingLog(BlockingStore())
    world = prepare(store)
    before = len(store.calls)
    story(world)
    world.close()
    assert sorted(tool_id for tool_id, _, _ in world.runner.calls) == ["asked", "parked", "plain"]
    return len(store.calls) - before


CALLS = 90


def test_the_faults_of_the_property_cover_the_story() -> None:
    assert calls_of_the_story() <= CALLS


@pytest.mark.slow
@pytest.mark.req("SS01-EXEC-01")
@pytest.mark.parametrize("moment", list(Moment))
def test_a_store_that_fails_at_any_call_leaves_nothing_half_done(moment: Moment) -> None:
    for number in range(1, CALLS + 1):
        store = FailingLog(BlockingStore())
        world = prepare(store)
        store.fail(call=number, moment=moment)
        # Where it is a reading that fails, the caller is told so, and nothing has changed.
        with suppress(StoreUnavailable):
            story(world)
        world.close()
        entries = store.inner.read(STREAM)
        proven = verify_space(SPACE, entries, store.inner.head(STREAM))
        assert check_space(store.inner, SPACE).findings == []
        assert freeze_space(proven) == freeze_space(World(store.inner, space=9).space)
        intended = {
            (intent.execution_id, intent.attempt)
            for stored in entries
            for intent in read_space_event(stored).result.intents
        }
        ran = [(context.execution_id, context.attempt) for _, _, context in world.runner.calls]
        # Nothing ran without its intent in the log, and nothing ran twice.
        assert set(ran) <= intended
        assert len(ran) == len(set(ran))
        assert len({tool_id for tool_id, _, _ in world.runner.calls}) == len(ran)
