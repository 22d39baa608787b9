"""Whatever is sent to a space, in whatever order: that settled things leave the state changes no decision and no read.

A whole log is verified on a state that nothing ever left: a decision that would have been another on it is found.
"""

from __future__ import annotations

from contextlib import ExitStack

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from cmbs.messages import Actor
from cmbs.substrate.kernel.events import Approve, Evidence, MemoryKind, OutcomeStatus, PutMemory, RecordOutcome, Reject
from cmbs.substrate.kernel.replay import catch_up_whole, read_space_event
from cmbs.substrate.kernel.state import ProposalRecord, Space
from cmbs.substrate.listing import Listed, Position, RecordFilter, list_records
from tests.support.epochs import epochs_of
from tests.support.spaces import SPACE, STREAM, World, raw
from tests.unit.substrate.test_space_laws import ACTORS, NAMES, SpaceMachine

PAGE = 3


class ForgetfulMachine(SpaceMachine):
    """A space of which hardly anything stays in the state; what has left is asked for again and again."""

    def __init__(self) -> None:
        self.patches = ExitStack()
        self.patches.enter_context(epochs_of(3))
        super().__init__()

    def _ids(self, what: str) -> list[str]:
        events = map(read_space_event, self.world.log.read(STREAM))
        return sorted({getattr(each, f"{what}_id") for event in events for each in getattr(event.result, NAMED[what])})

    @precondition(lambda self: self._ids("approval"))
    @rule(data=st.data(), actor=ACTORS, yes=st.booleans())
    def answer_what_was_ever_asked(self, data: st.DataObject, actor: Actor, yes: bool) -> None:
        approval_id = data.draw(st.sampled_from(self._ids("approval")))
        self._try(Approve(approval_id) if yes else Reject(approval_id), actor)

    @precondition(lambda self: self._ids("execution"))
    @rule(data=st.data(), actor=ACTORS, ended=st.sampled_from(OutcomeStatus))
    def report_what_was_ever_begun(self, data: st.DataObject, actor: Actor, ended: OutcomeStatus) -> None:
        execution_id = data.draw(st.sampled_from(self._ids("execution")))
        self._try(RecordOutcome(execution_id, ended, raw({"b": "seen"})), actor)

    @rule(data=st.data(), entry_id=NAMES, actor=ACTORS)
    def remember_what_was_ever_confirmed(self, data: st.DataObject, entry_id: str, actor: Actor) -> None:
        events = [read_space_event(stored).body.event_id for stored in self.world.log.read(STREAM)]
        evidence = Evidence(confirmed_by_event_id=data.draw(st.sampled_from(events)))
        self._try(PutMemory(entry_id, MemoryKind.FACT, raw("claim"), evidence), actor)

    def teardown(self) -> None:
        super().teardown()
        assert_readable(self.world)
        self.patches.close()


NAMED = {"approval": "asked", "execution": "intents"}


def assert_readable(world: World) -> None:
    """Every record, and every list of them, is what a state that nothing left has."""
    server, space = world.server, world.space
    whole = catch_up_whole(SPACE, None, world.log.read(STREAM))
    assert whole is not None
    everything = whole.everything
    for name, record in everything.proposals.items():
        assert shown(server.settled.with_proposal(space, name).proposals[name]) == shown(record)
    for name, execution in everything.executions.items():
        found = server.settled.with_execution(space, name).executions[name]
        assert msgspec.structs.replace(found, awaited_by=()) == msgspec.structs.replace(execution, awaited_by=())
    for name, approval in everything.approvals.items():
        assert server.settled.with_approval(space, name).approvals[name] == approval
    for event_id, (seq, _) in everything.events.items():
        assert server.settled.find_seq(space, event_id) == seq
    for snapshot_id, seq in everything.snapshots.items():
        assert server.settled.find_commit(space, snapshot_id) == seq
    for listed in Listed:
        records = getattr(everything, listed)
        for status in (None, *sorted({record.status for record in records.values()})):
            names = {name for name, record in records.items() if status is None or record.status == status}
            expected = sorted(Position(place(everything, each, listed), each) for each in names)
            assert list_all(world, listed, RecordFilter(status)) == expected
            newest_first = RecordFilter(status, newest_first=True)
            assert list_all(world, listed, newest_first) == expected[::-1]
            first, end = space.head.seq // 4, space.head.seq // 2
            for wanted in (RecordFilter(status), newest_first):
                bounded = wanted._replace(first_seq=first, end_seq=end)
                between = [each for each in expected if first <= each.seq < end]
                assert list_all(world, listed, bounded) == (between[::-1] if wanted.newest_first else between)


def shown(record: ProposalRecord) -> bytes:
    return msgspec.json.encode(record)


def place(space: Space, name: str, listed: Listed) -> int:
    match listed:
        case Listed.PROPOSALS:
            return space.proposals[name].seq
        case Listed.APPROVALS:
            return space.proposals[space.approvals[name].proposal_id].seq
        case Listed.EXECUTIONS:
            return space.executions[name].started_seq


def list_all(world: World, listed: Listed, wanted: RecordFilter) -> list[Position]:
    """All pages, one after the other; the records of each are in the space that comes with it."""
    found: list[Position] = []
    after: Position | None = None
    while True:
        page = list_records(world.server.settled, world.space, listed, after, PAGE, wanted)
        assert all(each.record_id in getattr(page.space, listed) for each in page.positions)
        assert len(page.positions) <= PAGE
        found += page.positions
        after = page.next_after
        if after is None:
            return found


TestSettledRecords = pytest.mark.usefixtures("digests_in_module")(
    pytest.mark.req("SS01-SCALE-01")(ForgetfulMachine.TestCase)
)
TestSettledRecords.settings = settings(stateful_step_count=30)
