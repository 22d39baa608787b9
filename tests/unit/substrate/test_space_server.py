"""The server around spaces: event loops, crowds, restarts, checkpoints, broken tools, and a scheduler that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import Settings, build_substrate
from cmbs.errors import Conflict, InvalidRequest, LedgerCorrupt, RecordNotFound, SessionNotFound, SpaceNotFound
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.kernel.events import Mode, Propose, SetMode
from cmbs.substrate.kernel.model import Tool
from cmbs.substrate.kernel.requests import SpaceCommand, SpaceLimits
from cmbs.substrate.kernel.words import ExecutionStatus, ProposalStatus
from cmbs.substrate.server import DEFAULT_SPACE, SubstrateServer
from cmbs.substrate.tools.runner import CallContext, ToolReply
from cmbs.testing import FailingLog, ManualClock
from cmbs.testing.fakes.threads import run_together
from tests.support.digest_points import digest_points_at
from tests.support.spaces import (
    AGENT,
    ANY,
    ROOT,
    SPACE,
    STREAM,
    BlockingStore,
    ScriptedRunner,
    World,
    assert_replays,
    call,
    constraint,
    delta,
    eventually,
    http_tool,
    status,
    wait_until_settled,
)
from tests.support.store_fixture import BACKENDS, StoreFixture

CROWD = 16


# --- callers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [InMemoryStore, BlockingStore])
def test_an_event_loop_is_answered_as_a_thread_is(make_world: Callable[..., World], store: type[InMemoryStore]) -> None:
    world = make_world(store())
    world.create()

    async def talk() -> None:
        answers = await asyncio.gather(
            *(
                world.server.perform_async(SpaceCommand(SPACE, AGENT, Propose(world.proposal(delta(**{f"k{n}": "1"})))))
                for n in range(CROWD)
            )
        )
        assert len({answer.seq for answer in answers}) == CROWD
        message = answers[0].event.message
        again = await world.server.perform_async(SpaceCommand(SPACE, AGENT, message))
        assert (again.repeated, again.event.stored) == (True, answers[0].event.stored)
        with pytest.raises(SpaceNotFound):
            await world.server.perform_async(SpaceCommand("other", ROOT, SetMode(Mode.OBSERVE)))
        with pytest.raises(Conflict):
            await world.server.perform_async(SpaceCommand(SPACE, ROOT, SetMode(Mode.OBSERVE), if_match="nothing"))

    asyncio.run(talk())


def test_many_threads_on_one_space_leave_one_chain_with_all_their_proposals() -> None:
    world = World(BlockingStore())
    world.create()

    def propose(number: int) -> None:
        for step in range(10):
            world.propose(delta(**{f"k{number}-{step}": "1"}), proposal_id=f"{number}-{step}")

    run_together(propose, CROWD)
    world.close()
    assert len(world.space.proposals) == world.space.head.seq == CROWD * 10
    assert {record.status for record in world.space.proposals.values()} == {ProposalStatus.COMMITTED}
    assert_replays(world)


def test_two_servers_on_one_log_see_each_other() -> None:
    store = BlockingStore()
    one, other = World(store), World(store, space=1)
    one.create()
    for number in range(6):
        world = (one, other)[number % 2]
        world.propose(delta(**{f"k{number}": "1"}), proposal_id=f"p{number}")
    stale = one.space
    other.say(SetMode(Mode.OBSERVE))
    assert one.server._spaces.find_cached(STREAM) is stale
    with pytest.raises(Conflict, match="said something else"):
        one.propose(delta(z="1"), proposal_id="p5")
    assert one.space.head == other.space.head
    for world in (one, other):
        world.close()
        assert_replays(world)


def test_a_caller_that_waits_for_a_proposal_is_told_where_it_stands_when_the_time_is_over(world: World) -> None:
    world.create({"constraint.any": ANY, "constraint.ask": constraint(effect="deny", on_fail="ask")})
    world.propose(delta(a="1"), proposal_id="p")
    assert world.server.wait_for(SPACE, "p", 0).status is ProposalStatus.ASKED
    with pytest.raises(RecordNotFound):
        world.server.wait_for(SPACE, "q", 0)


# --- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", BACKENDS)
def test_what_waits_goes_on_waiting_in_the_next_process(place: str, tmp_path: Path) -> None:
    with StoreFixture.at(place, tmp_path) as fixture:
        first = World(fixture.store())
        first.create(
            {
                "constraint.any": ANY,
                "constraint.ask": constraint(effect="deny", subject={"tool_id": "asked"}, on_fail="ask"),
                "constraint.wait": constraint(
                    effect="deny",
                    subject={"tool_id": "parked"},
                    when={"op": "missing", "args": ["goal.go"]},
                    on_fail="defer",
                ),
            }
        )
        first.equip(http_tool("asked"), http_tool("parked"), http_tool("lost"))
        first.runner.unknown = True
        for name in ("asked", "parked", "lost"):
            first.propose(call(name), proposal_id=name)
        assert eventually(lambda: len(first.runner.calls) == 1)
        first.close()
        again = World(fixture.store(), space=1, clock=first.clock)
        assert freeze_space(again.space) == freeze_space(first.space)
        again.propose(delta(go="1"))
        again.server.keep()
        assert wait_until_settled(again, "parked") is ProposalStatus.COMMITTED
        again.advance(hours=2)
        assert status(again.space, "asked") is ProposalStatus.EXPIRED
        ((execution_id,),) = [
            (known,) for known, each in again.space.executions.items() if each.intent.tool_id == "lost"
        ]
        assert again.space.executions[execution_id].status is ExecutionStatus.IN_DOUBT
        again.close()
        assert_replays(again)


def test_a_long_space_begins_from_its_checkpoint(tmp_path: Path) -> None:
    with digest_points_at([5]), StoreFixture.at("sqlite", tmp_path) as fixture:
        first = World(fixture.store())
        first.create()
        for number in range(12):
            first.propose(delta(**{f"k{number}": "1"}))
        first.close()
        kept = fixture.store().checkpoint(STREAM)
        assert kept is not None
        assert kept[0] == 5
        again = World(fixture.store(), space=1)
        assert freeze_space(again.space) == freeze_space(first.space)
        again.propose(delta(z="1"))
        again.close()
        assert_replays(again)


def test_spaces_are_no_sessions_and_sessions_no_spaces() -> None:
    store = InMemoryStore()
    world, belief = World(store), BeliefServer(store=store)
    world.create()
    assert belief.list_sessions() == []
    with pytest.raises(SessionNotFound):
        belief.query_belief(STREAM)
    with pytest.raises(InvalidRequest, match="another kind"):
        belief.import_session(STREAM, store.read(STREAM), world.space.head)
    world.close()


def test_a_space_moves_to_another_store_byte_for_byte() -> None:
    source, target = World(), World(space=1)
    source.create()
    source.propose(delta(a="1"))
    entries, head = source.log.read(STREAM), source.space.head
    target.server.import_space(SPACE, entries, head)
    assert target.log.read(STREAM) == entries
    assert freeze_space(target.space) == freeze_space(source.space)
    with pytest.raises(LedgerCorrupt):
        target.server.import_space("other", entries, head)
    for world in (source, target):
        world.close()


# --- the default space ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [InMemoryStore, BlockingStore])
def test_the_default_space_is_there_for_the_first_caller(store: type[InMemoryStore]) -> None:
    for ask in ("current", "perform", "perform_async"):
        with closing(SubstrateServer(log=store(), keeper_seconds=None, default_space=True)) as server:
            command = SpaceCommand(DEFAULT_SPACE, ROOT, SetMode(Mode.OBSERVE))
            if ask == "perform":
                assert server.perform(command).seq == 1
            elif ask == "perform_async":
                assert asyncio.run(server.perform_async(command)).seq == 1
            assert server.current(DEFAULT_SPACE).space_id == DEFAULT_SPACE
            with pytest.raises(SpaceNotFound):
                server.current("other")


def test_the_settings_of_spaces_come_from_the_environment() -> None:
    settings = Settings.from_environment({"CMBS_LIMIT_CANDIDATES_PER_PROPOSAL": "1"})
    assert settings.space_limits == SpaceLimits(candidates_per_proposal=1)
    assert Settings.from_environment(settings.to_environment()) == settings
    belief = BeliefServer()
    with closing(build_substrate(belief, {}, settings.space_limits)) as substrate:
        substrate.start()
        substrate.start()
        assert substrate.requests.limits.candidates_per_proposal == 1
        assert substrate.current(DEFAULT_SPACE).head.seq == 0
    belief.close()


# --- tools ------------------------------------------------------------------------------------------------------------


class BrokenRunner(ScriptedRunner):
    """A runner with a defect."""

    def run(self, tool: Tool, args: bytes, call: CallContext) -> ToolReply:
        super().run(tool, args, call)
        raise ZeroDivisionError


def test_a_defect_of_a_runner_leaves_the_execution_in_doubt(make_world: Callable[..., World]) -> None:
    world = make_world(runner=BrokenRunner())
    world.open(http_tool("t"))
    execution_id = world.start(call("t"), proposal_id="p")
    assert eventually(lambda: len(world.runner.calls) == 1)
    world.advance(hours=1)
    assert world.space.executions[execution_id].status is ExecutionStatus.IN_DOUBT


def test_a_server_without_tools_says_that_it_has_none(make_world: Callable[..., World]) -> None:
    clock = ManualClock()
    world = make_world(clock=clock)
    world.open(http_tool("t"))
    with closing(SubstrateServer(log=world.log, clock=clock, keeper_seconds=None)) as server:
        answer = server.perform(SpaceCommand(SPACE, AGENT, Propose(world.proposal(call("t"), proposal_id="p"))))
        assert server.wait_for(SPACE, "p", 10).status is ProposalStatus.FAILED
        execution = server.current(SPACE).executions[answer.event.result.intents[0].execution_id]
        assert execution.error == "this server runs no tools"


def test_after_closing_nothing_begins() -> None:
    world = World()
    world.open(http_tool("t"))
    world.close()
    world.propose(call("t"), proposal_id="p")
    assert (status(world.space, "p"), world.runner.calls) == (ProposalStatus.RUNNING, [])


# --- the scheduler ----------------------------------------------------------------------------------------------------


def test_a_keeper_goes_on_after_a_round_that_failed(make_world: Callable[..., World]) -> None:
    store = FailingLog(InMemoryStore())
    store.fail("streams", error=ZeroDivisionError())
    world = make_world(store, keeper_seconds=0.001)
    world.create({"constraint.any": ANY, "constraint.ask": constraint(effect="deny", on_fail="ask")})
    world.propose(delta(a="1"), proposal_id="p", ask_ms=1_000)
    world.clock.advance(timedelta(seconds=2))
    assert eventually(lambda: status(world.space, "p") is ProposalStatus.EXPIRED)
