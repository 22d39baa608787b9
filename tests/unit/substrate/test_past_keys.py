"""Rows by which entries of a space are found again decide nothing: whatever becomes of them, no answer is another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.errors import CmbsError, LedgerCorrupt
from cmbs.ledger.lookup_keys import Lookup, lookup_key, lookup_keys
from cmbs.spi import Append
from cmbs.stores import Store, open_store
from cmbs.substrate.kernel.events import Approve, OutcomeStatus, Propose, RecordOutcome, Withdraw
from cmbs.substrate.kernel.kind import SpaceAnswer, SpaceFolding
from cmbs.substrate.kernel.model import ReasonCode
from cmbs.substrate.kernel.replay import verify_space
from cmbs.testing import ManualClock
from tests.support.digest_points import digest_points_at
from tests.support.epochs import epochs_of
from tests.support.mutations import SQLiteDatabase
from tests.support.spaces import AGENT, SPACE, STREAM, BlockingStore, World, call, caller_tool, delta, raw
from tests.support.subtests import for_each

EXECUTION = "x-00000007-0000-4000-8000-000000000004-0"
CALL = lookup_key(Lookup.CALL, "t", "k1")
WIPE = "DELETE FROM cmbs.lookup_keys WHERE key = %s"
POINTS = [12, 5_000]
PASSING = 5_100


def populate(store: Store, passing: int = 8) -> None:
    """A call that has run, and has left the state."""
    world = World(store, clock=ManualClock(), space=7)
    world.open(caller_tool("t"))
    assert world.start(call("t"), proposal_id="p") == EXECUTION
    world.report(EXECUTION, result=1)
    world.report(world.start(call("t", key="other"), proposal_id="o"), result=2)
    world.say(Propose(world.proposal(delta(a="1"), proposal_id="q")), AGENT, idempotency_key="r")
    for number in range(passing):
        world.clock.advance(timedelta(milliseconds=1))
        world.propose(delta(passing=str(number)))
    world.close()


@pytest.fixture(autouse=True, scope="module")
def short_epochs() -> Iterator[None]:
    with epochs_of(4), digest_points_at(POINTS):
        yield


@pytest.fixture
def database(tmp_path: Path) -> SQLiteDatabase:
    return SQLiteDatabase(tmp_path, populate)


@pytest.fixture
def world(database: SQLiteDatabase) -> Iterator[World]:
    with closing(open_store(database.url)) as store:
        world = World(store, clock=ManualClock(), space=9)
        yield world
        world.close()


def call_again(world: World, key: str = "k1") -> tuple[int, str | None]:
    """How many calls a proposal begins, and which one answers it."""
    result = world.propose(call("t", key=key)).event.result
    return len(result.intents), result.answered_by.get("0")


# --- on a disk --------------------------------------------------------------------------------------------------------


@pytest.mark.req("NOTHING-DERIVED-01")
def test_a_call_whose_row_was_deleted_does_not_run_again(
    database: SQLiteDatabase, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert call_again(world, "other")[0] == 0
    assert database.change(WIPE, (CALL,))
    head = world.space.head
    with caplog.at_level(logging.ERROR, "cmbs.substrate"):
        for _ in range(2):
            with pytest.raises(LedgerCorrupt, match="lookup_keys"):
                call_again(world)
    assert caplog.text.count("lookup_keys") == 1
    assert world.space.head == head
    assert world.server.find_behind() == [STREAM]


@pytest.mark.req("NOTHING-DERIVED-01")
def test_nor_does_it_after_a_restart(database: SQLiteDatabase) -> None:
    """The first command of a new process, which begins from a checkpoint."""
    assert database.change(WIPE, (CALL,))
    with closing(open_store(database.url)) as store:
        assert store.checkpoint(STREAM) is not None
        world = World(store, clock=ManualClock(), space=9)
        with pytest.raises(LedgerCorrupt, match="lookup_keys"):
            call_again(world)
        world.close()


@pytest.mark.req("NOTHING-DERIVED-01")
@pytest.mark.parametrize("lookup", [Lookup.PROPOSAL, Lookup.EXECUTION])
@pytest.mark.parametrize("seq", [0, -1, "x", 10**6])
def test_a_record_whose_row_was_moved_is_not_shown_otherwise(
    database: SQLiteDatabase, world: World, lookup: Lookup, seq: object
) -> None:
    key = lookup_key(lookup, "p" if lookup is Lookup.PROPOSAL else EXECUTION)
    newest = "SELECT max(seq) FROM cmbs.lookup_keys WHERE key = %s"
    moved = f"UPDATE cmbs.lookup_keys SET seq = %s WHERE key = %s AND seq = ({newest})"
    assert database.change(moved, (seq, key, key))
    with pytest.raises(LedgerCorrupt, match="lookup_keys"):
        world.server.settled.with_proposal(world.space, "p")


@pytest.mark.req("NOTHING-DERIVED-01")
@pytest.mark.parametrize("seq", [2, -3, "x"])
def test_a_row_that_was_added_is_refused(database: SQLiteDatabase, world: World, seq: object) -> None:
    assert database.change("INSERT INTO cmbs.lookup_keys VALUES (%s, %s, %s)", (STREAM, CALL, seq))
    with pytest.raises(LedgerCorrupt, match="lookup_keys"):
        call_again(world)


@pytest.mark.req("NOTHING-DERIVED-01")
def test_rows_beyond_the_state_are_passed_over(database: SQLiteDatabase, world: World) -> None:
    """They may be those of another process, which has written since."""
    assert database.change("INSERT INTO cmbs.lookup_keys VALUES (%s, %s, %s)", (STREAM, CALL, 10**6))
    assert call_again(world) == (0, EXECUTION)


@pytest.mark.req("NOTHING-DERIVED-01")
@pytest.mark.parametrize("changed", [("prev_event_hash", bytes(31) + b"x"), ("prev_event_hash", "x"), ("seq", 10**6)])
def test_a_snapshot_whose_hash_was_changed_is_not_unknown(
    database: SQLiteDatabase, world: World, changed: tuple[str, object]
) -> None:
    """A denial for an unknown snapshot would be on record, and no replay would lead to it."""
    head, (column, value) = world.space.head, changed
    snapshot_id = world.server.stored_entries(SPACE, limit=1)[0].event_hash.hex()
    assert database.change(f"UPDATE cmbs.audit_events SET {column} = %s WHERE seq = 1", (value,))
    with pytest.raises(LedgerCorrupt, match="prev_event_hash"):
        world.propose(delta(b="1"), snapshot_id=snapshot_id)
    assert world.space.head == head
    assert world.server.find_behind() == [STREAM]


@pytest.mark.req("NOTHING-DERIVED-01")
@pytest.mark.parametrize("kept", [8, 31])
def test_nor_is_it_where_it_still_begins_alike_and_one_that_never_was_is_not_known(
    database: SQLiteDatabase, world: World, kept: int
) -> None:
    first = world.server.stored_entries(SPACE, limit=1)[0].event_hash
    never = first[:kept] + bytes(32 - kept)
    assert database.change("UPDATE cmbs.audit_events SET prev_event_hash = %s WHERE seq = 1", (never,))
    assert world.decide(delta(b="1"), snapshot_id=never.hex()).reason_code is ReasonCode.UNKNOWN_SNAPSHOT
    assert world.decide(delta(b="1"), snapshot_id=first.hex()).reason_code is ReasonCode.ALLOWED
    verify_space(SPACE, world.log.read(STREAM))


# --- any change of any rows -------------------------------------------------------------------------------------------


class Tampering(NamedTuple):
    """Rows and hashes, by their numbers, that are deleted, and rows that are added."""

    deleted: frozenset[int]
    added: frozenset[tuple[int, int]]
    hashes: frozenset[int]

    def of(self, store: BlockingStore) -> None:
        """Do it."""
        rows = store._streams[STREAM].lookups
        known = sorted(row for shelf in rows.values() for row in shelf)
        kept = {row for number, row in enumerate(known) if number not in self.deleted} | self.added
        rows.clear()
        for key, seq in kept:
            rows.setdefault(key >> 48, []).append((key, seq))
        seqs = store._streams[STREAM].seqs
        for number in self.hashes:
            del seqs[list(seqs)[number % len(seqs)]]


def first_hash(world: World) -> bytes:
    """The first snapshot of the space."""
    return world.log.read(STREAM, limit=1)[0].event_hash


QUESTIONS: dict[str, Callable[[World], Any]] = {
    "the call": call_again,
    "another call": lambda world: call_again(world, "other"),
    "a new call": lambda world: call_again(world, "new"),
    "the proposal": lambda world: world.propose(call("t"), proposal_id="p"),
    "the request": lambda world: world.say(
        Propose(world.proposal(delta(a="1"), proposal_id="q2")), AGENT, idempotency_key="r"
    ),
    "the outcome": lambda world: world.say(RecordOutcome(EXECUTION, OutcomeStatus.FAILED, raw(2)), AGENT),
    "an approval": lambda world: world.say(Approve("a-00000007-0000-4000-8000-000000000004-0")),
    "a snapshot": lambda world: world.propose(delta(b="1"), snapshot_id=first_hash(world).hex()),
    "another snapshot": lambda world: world.propose(delta(b="1"), snapshot_id="ab" * 32),
    "withdrawal": lambda world: world.say(Withdraw("o"), AGENT),
    "a read": lambda world: world.server.settled.with_proposal(world.space, "p").proposals["p"],
    "a place": lambda world: world.server.settled.find_seq(world.space, "00000007-0000-4000-8000-000000000004"),
}


def answer_to(name: str, world: World) -> object:
    """What a question comes to, refusals included."""
    try:
        answer = QUESTIONS[name](world)
    except LedgerCorrupt:
        raise
    except CmbsError as exc:
        return repr(exc)
    return answer.event.stored if isinstance(answer, SpaceAnswer) else answer


class Past:
    """A log, and what is answered over it while it is as it was written."""

    def __init__(self) -> None:
        store = BlockingStore()
        populate(store)
        self._appends: list[Append] = []
        state = None
        for stored in store.read(STREAM):
            state, append = SpaceFolding().fold(state, stored)
            self._appends.append(append)
        self._checkpoint = store.checkpoint(STREAM)
        assert self._checkpoint is not None
        self.rows = [(key, item.seq) for item in self._appends for key in lookup_keys(item.entry.raw)]
        self.answers = {}
        for name in QUESTIONS:
            world = World(self.store(resumes=False), clock=ManualClock(), space=9)
            self.answers[name] = answer_to(name, world)
            world.close()

    def store(self, *, resumes: bool) -> BlockingStore:
        store = BlockingStore()
        store.append(self._appends)
        if resumes and self._checkpoint is not None:
            store.put_checkpoint(STREAM, *self._checkpoint)
        return store


@pytest.fixture(scope="module")
def past(short_epochs: None) -> Past:
    return Past()


KEYS = st.sampled_from([CALL, lookup_key(Lookup.PROPOSAL, "p"), lookup_key(Lookup.CALL, "t", "new")])
TAMPERINGS = st.builds(
    Tampering,
    st.frozensets(st.integers(0, 60), max_size=60),
    st.frozensets(st.tuples(KEYS | st.integers(-(2**63), 2**63 - 1), st.integers(-2, 20)), max_size=3),
    st.frozensets(st.integers(0, 20), max_size=8),
)


@pytest.mark.req("NOTHING-DERIVED-01")
@given(TAMPERINGS, st.sampled_from(sorted(QUESTIONS)), st.booleans(), st.booleans())
def test_whatever_becomes_of_rows_an_answer_is_the_same_or_refused(
    past: Past, tampering: Tampering, name: str, is_restarted: bool, resumes: bool
) -> None:
    store = past.store(resumes=resumes)
    world = World(store, clock=ManualClock(), space=9)
    if not is_restarted:
        assert world.space.head == store.head(STREAM)
    tampering.of(store)
    head = store.head(STREAM)
    try:
        assert answer_to(name, world) == past.answers[name]
    except LedgerCorrupt:
        assert store.head(STREAM) == head
    world.close()


@pytest.mark.req("NOTHING-DERIVED-01")
@for_each("name", sorted(QUESTIONS))
@for_each("resumes", [True, False])
def test_untouched_rows_are_enough(past: Past, name: str, resumes: bool) -> None:
    world = World(past.store(resumes=resumes), clock=ManualClock(), space=9)
    assert answer_to(name, world) == past.answers[name]
    world.close()


@pytest.mark.deep
@pytest.mark.req("NOTHING-DERIVED-01")
def test_the_length_of_the_past_is_no_matter() -> None:
    """A settled call more than five thousand entries ago, right after a start; then its row is gone."""
    store = BlockingStore()
    populate(store, PASSING)
    world = World(store, clock=ManualClock(), space=9)
    assert call_again(world, "other")[0] == 0
    world.close()
    del store._streams[STREAM].lookups[CALL >> 48]
    again = World(store, clock=ManualClock(), space=10)
    with pytest.raises(LedgerCorrupt, match="lookup_keys"):
        call_again(again)
    again.close()
