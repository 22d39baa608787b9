"""Spaces that many write to at once, and that have become large: what must not grow, and must not be mixed up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from threading import Event

import pytest
from msgspec import structs

from cmbs.errors import Conflict, SpaceNotFound
from cmbs.ledger import Head, StoredEntry
from cmbs.spi import Append
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.checkpoint import freeze_space, thaw_space
from cmbs.substrate.kernel.events import CreateSpace, Propose, Withdraw
from cmbs.substrate.kernel.kind import SpaceAnswer, append_of_space
from cmbs.substrate.kernel.model import BeliefReading, Tool
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event
from cmbs.substrate.kernel.requests import SpaceCommand, SpaceLimits
from cmbs.substrate.kernel.words import ProposalStatus
from cmbs.substrate.tools.runner import CallContext, ToolReply
from cmbs.testing import ManualClock
from tests.support.digest_points import digest_points_at
from tests.support.spaces import (
    AGENT,
    ENCODER,
    ROOT,
    SPACE,
    STREAM,
    BlockingStore,
    ScriptedRunner,
    World,
    call,
    constraint,
    delta,
    eventually,
    http_tool,
    status,
    wait_until_settled,
)

pytestmark = pytest.mark.slow

CROWD = 200
GO = {"op": "eq", "args": ["fact.go", "yes"]}
DEFERRING = {"constraint.go": constraint(when=GO, on_fail="defer")}
ENCODERS = constraint(when={"op": "eq", "args": ["$actor.id", ENCODER.id]}, on_fail="defer")


class CountingStore(BlockingStore):
    """A store that counts what is read and written."""

    writes = 0
    reads = 0
    entries_read = 0

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        self.reads += 1
        entries = super().read(stream_id, after, limit, max_bytes)
        self.entries_read += len(entries)
        return entries

    def append(self, appends: Sequence[Append]) -> None:
        self.writes += 1
        super().append(appends)


class ForgetfulStore(InMemoryStore):
    """A memory store of which streams can get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[str] = set()

    def head(self, stream_id: str) -> Head | None:
        return None if stream_id in self.lost else super().head(stream_id)


class CountingBelief:
    """A belief plane with one session, which counts how often it is asked."""

    asked = 0

    def read(self, session_id: str, independent_of: str | None = None) -> BeliefReading:
        self.asked += 1
        return BeliefReading(session_id, found=True, n_survivors=3)

    def is_conclusion(self, session_id: str, event_id: str) -> bool:
        return not (session_id or event_id)

    def subscribe(self, changed: Callable[[str], None]) -> None:
        pass


class SteppingClock(ManualClock):
    """A clock that is turned back right after it has been read, once."""

    back_to: str | None = None

    def now(self) -> str:
        moment = super().now()
        if self.back_to is not None:
            self.set(self.back_to)
            self.back_to = None
        return moment


@pytest.mark.usefixtures("digests_everywhere")
def test_what_was_proposed_is_read_again_as_it_was_said(world: World) -> None:
    world.create()
    said = Propose(world.proposal(delta(["goal.b"], a="ä", c="\U00010348")), ask_ms=7)
    live = world.say(said, AGENT).space
    world.say(Propose(world.proposal(delta(more="1"))), AGENT)
    entries = world.server.stored_entries(SPACE)
    again, thawed = catch_up_space(SPACE, None, entries), thaw_space(freeze_space(live), entries[-1])
    assert again is not None
    assert thawed is not None
    records = [space.proposals[said.proposal.proposal_id] for space in (live, again, thawed)]
    assert [record.message for record in records] == [said] * 3
    assert len({bytes(record.payload) for record in records}) == 1


@pytest.mark.parametrize("wake", [True, False])
def test_many_that_are_woken_or_due_share_their_writes(make_world: Callable[..., World], wake: bool) -> None:
    """A key for which hundreds wait must not cost a write for each of them: nothing else is looked after meanwhile."""
    log = CountingStore()
    world = make_world(log)
    world.create({**DEFERRING, "constraint.know": ENCODERS})
    for number in range(CROWD):
        world.propose(delta(**{f"k{number}": "1"}), proposal_id=f"k{number}", defer_ms=1_000)
    assert len(world.space.parked) == CROWD
    log.writes = 0
    if wake:
        world.know(go="yes")
        assert not world.space.parked
        assert len(world.space.state) == CROWD + 3
    else:
        world.advance(seconds=2)
        assert {record.status for record in world.space.proposals.values()} == {ProposalStatus.EXPIRED}
    assert log.writes < CROWD / 4


def test_what_thousands_wait_for_is_asked_once_a_round(make_world: Callable[..., World]) -> None:
    belief = CountingBelief()
    world = make_world(belief=belief)
    known = {"op": "eq", "args": ["$belief.S.n_survivors", 1]}
    world.create({"constraint.go": constraint(when=known, on_fail="defer")})
    for number in range(CROWD):
        world.propose(delta(a="1"), proposal_id=f"p{number}")
    world.server.keep()
    assert len(world.space.parked) == CROWD
    belief.asked = 0
    world.server.keep()
    assert belief.asked == 1


def test_a_deadline_is_kept_although_the_clock_went_back_in_between(make_world: Callable[..., World]) -> None:
    """What is due, and too early by the time that it is decided, is sent again when its time has come."""
    clock = SteppingClock()
    world = make_world(clock=clock)
    world.create(DEFERRING)
    world.propose(delta(a="1"), proposal_id="p", defer_ms=1_000)
    clock.advance(timedelta(seconds=2))
    clock.back_to = "2025-12-31T00:00:00Z"
    world.server.keep()
    assert status(world.space, "p") is ProposalStatus.PARKED
    clock.advance(timedelta(days=2))
    for _ in range(4):
        world.server.keep()
    assert status(world.space, "p") is ProposalStatus.EXPIRED


def test_a_space_that_cannot_be_read_keeps_no_other_from_its_deadlines(make_world: Callable[..., World]) -> None:
    log = ForgetfulStore()
    world = make_world(log)
    world.create(DEFERRING)
    lost = world.server.perform(SpaceCommand("lost", ROOT, CreateSpace("lost", policy=DEFERRING))).space
    for space_id, space in ("lost", lost), (SPACE, world.space):
        proposal = world.proposal(delta(a="1"), proposal_id="p", snapshot_id=space.snapshot_id)
        world.server.perform(SpaceCommand(space_id, AGENT, Propose(proposal, defer_ms=1_000)))
    log.lost.add("space:lost")
    world.advance(seconds=2)
    assert status(world.space, "p") is ProposalStatus.EXPIRED


def test_a_space_that_cannot_be_read_is_not_read_again_and_again(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    log = InMemoryStore()
    world = make_world(log)
    world.create()
    (entry,) = log.read(STREAM)
    bad = StoredEntry(entry.raw.replace(b"enforce", b"observe"), entry.event_hash)
    log.append([structs.replace(append_of_space(read_space_event(entry)), stream_id="space:bad", entry=bad)])
    with caplog.at_level("WARNING", "cmbs.substrate"):
        for _ in range(20):
            world.server.keep()
    assert [record.getMessage() for record in caplog.records if "`bad`" in record.getMessage()][1:] == []
    assert "`bad`" in caplog.text


def test_spaces_are_listed_and_watched_without_reading_all_of_them() -> None:
    """More spaces than are read in one round: a deadline in the last of them is kept, and listing reads none."""
    log = CountingStore()
    first = World(log)
    space_ids = [f"s{number:03}" for number in range(CROWD)]
    commands = [SpaceCommand(name, ROOT, CreateSpace(name, policy=DEFERRING)) for name in space_ids]
    assert all(isinstance(answer, SpaceAnswer) for answer in first.server.perform_all(commands))
    last = first.server.current(space_ids[-1])
    proposal = first.proposal(delta(a="1"), proposal_id="p", snapshot_id=last.snapshot_id)
    first.server.perform(SpaceCommand(last.space_id, AGENT, Propose(proposal, defer_ms=1_000)))
    first.close()

    log.reads = 0
    world = World(log)
    assert world.server.heads(None, CROWD) == [(name, 1 if name == last.space_id else 0) for name in space_ids]
    assert log.reads == 0
    world.advance(seconds=2)
    assert 0 < log.reads < CROWD
    world.server.keep()
    world.server.keep()
    assert status(world.server.current(last.space_id), "p") is ProposalStatus.EXPIRED
    world.close()


def test_commands_that_fail_leave_those_beside_them_alone(make_world: Callable[..., World]) -> None:
    world = make_world(CountingStore())
    space = world.create()
    good, other = world.proposal(delta(a="1"), proposal_id="p"), world.proposal(delta(b="1"), proposal_id="p")
    commands = [
        SpaceCommand(name, AGENT, Propose(each)) for name, each in ((SPACE, good), ("no", good), (SPACE, other))
    ]
    committed, missing, conflict = world.server.perform_all(commands)
    assert isinstance(committed, SpaceAnswer)
    assert committed.space.head.seq == space.head.seq + 1
    assert isinstance(missing, SpaceNotFound)
    assert isinstance(conflict, Conflict)


@pytest.fixture
def digest_at_41() -> Iterator[None]:
    with digest_points_at([41]):
        yield


@pytest.mark.usefixtures("digest_at_41")
def test_the_past_of_a_long_space_is_read_from_its_checkpoint_on(make_world: Callable[..., World]) -> None:
    log = CountingStore()
    world = make_world(log)
    world.create()
    for number in range(60):
        world.propose(delta(a=str(number)), proposal_id=f"p{number}")
    spaces = [world.server.at(SPACE, seq) for seq in range(61)]
    log.put_checkpoint(STREAM, 41, freeze_space(spaces[40]))
    for seq, space in enumerate(spaces):
        assert freeze_space(world.server.at(SPACE, seq)) == freeze_space(space)
    log.entries_read = 0
    assert world.server.decision(SPACE, "p49").reason_code == "ALLOWED"
    assert world.server.at(SPACE, 50).state["goal.a"] == "49"
    assert log.entries_read <= 30
    log.put_checkpoint(STREAM, 42, b"no checkpoint")
    assert freeze_space(world.server.at(SPACE, 50)) == freeze_space(spaces[50])


class SlowRunner(ScriptedRunner):
    """A runner whose calls last until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = Event()

    def run(self, tool: Tool, args: bytes, call: CallContext) -> ToolReply:
        reply = super().run(tool, args, call)
        assert self.let_go.wait(20)
        return reply


def occupy_the_only_turn(world: World, runner: SlowRunner, *, idempotent: bool) -> None:
    world.open(http_tool("t", idempotent=idempotent, timeout_ms=1_000))
    world.propose(call("t", key="first"), proposal_id="first")
    assert eventually(lambda: len(runner.calls) == 1)


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_had_no_turn_for_a_while_runs_once_when_it_comes(
    make_world: Callable[..., World], *, idempotent: bool
) -> None:
    runner = SlowRunner()
    world = make_world(runner=runner, limits=SpaceLimits(executions_at_once=1))
    occupy_the_only_turn(world, runner, idempotent=idempotent)
    world.propose(call("t", key="second"), proposal_id="second")
    assert status(world.space, "second") is ProposalStatus.READY
    world.advance(minutes=1)
    runner.let_go.set()
    assert wait_until_settled(world, "first") is ProposalStatus.COMMITTED
    assert wait_until_settled(world, "second") is ProposalStatus.COMMITTED
    assert [context.attempt for _, _, context in runner.calls if context.idempotency_key == "second"] == [1]


def test_what_was_withdrawn_while_it_waited_for_its_turn_does_not_run(make_world: Callable[..., World]) -> None:
    runner = SlowRunner()
    world = make_world(runner=runner, limits=SpaceLimits(executions_at_once=1))
    occupy_the_only_turn(world, runner, idempotent=True)
    world.start(call("t", key="second"), proposal_id="second")
    world.say(Withdraw("second"), AGENT)
    runner.let_go.set()
    assert wait_until_settled(world, "first") is ProposalStatus.COMMITTED
    world.close()
    assert [context.idempotency_key for _, _, context in runner.calls] == ["first"]
    assert status(world.space, "second") is ProposalStatus.WITHDRAWN
