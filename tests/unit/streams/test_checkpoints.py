"""Checkpoints save time and decide nothing: one is believed only where the chain carries its digest."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cmbs.belief.kernel import kind
from cmbs.belief.kernel.checkpoint import freeze, thaw
from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.replay import catch_up, verify_session
from cmbs.belief.kernel.session import Session
from cmbs.belief.kernel.views import obligations, snapshot
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, LedgerCorrupt
from cmbs.ledger import StoredEntry, canonical, hash_entry
from cmbs.ledger.state_digest import digest_of
from cmbs.spi import AuditLog, opening_of
from cmbs.stores.memory import InMemoryStore
from cmbs.streams import checkpoints
from cmbs.streams.checkpoints import Checkpointer, resume
from cmbs.testing import FailingStore, History, ManualClock, SequentialIds, play
from cmbs.testing.strategies import belief as strategies
from tests.support.digest_points import digest_points_at
from tests.support.spaces import eventually
from tests.support.store_fixture import StoreFixture, declared

pytestmark = pytest.mark.usefixtures("digests_in_module")


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def entries(store: InMemoryStore) -> list[StoredEntry]:
    """A short life with something of everything in it."""
    server = BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds())
    session_id = declared(server, "abcdefghij")
    server.eliminate(session_id, "s", "1", ["a"], idempotency_key="k")
    server.enter_obligation(session_id, "o", 1)
    server.eliminate(session_id, "s", "2", ["b"])
    server.request_exit(session_id, "o")
    server.declare_conclusion(session_id, "c")
    return store.read(session_id)


def the_id(store: InMemoryStore) -> str:
    return store.sessions(None, 1)[0].session_id


# --- freeze and thaw ---


@pytest.mark.req("ARCH-4-CHECKPOINT-01")
@given(history=strategies.histories(), at=st.integers(1, 16))
def test_a_session_thaws_as_it_was_frozen_and_goes_on_as_if_nothing_had_been(history: History, at: int) -> None:
    store = InMemoryStore()
    session_id, _ = play(BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds()), history)
    entries = store.read(session_id)
    assume(len(entries) > 1)
    seq = min(at, len(entries) - 1)
    live = verify_session(session_id, entries[:seq])
    thawed = thaw(freeze(live), entries[0], entries[seq])
    assert thawed is not None
    assert freeze(thawed) == freeze(live)
    assert (snapshot(thawed), obligations(thawed)) == (snapshot(live), obligations(live))
    assert (thawed.ontology, thawed.policy, thawed.provider) == (live.ontology, live.policy, live.provider)
    # Every decision that followed is taken again on the thawed state, and must give the recorded bytes.
    after = catch_up(session_id, thawed, entries[seq:])
    assert after is not None
    assert freeze(after) == freeze(verify_session(session_id, entries))


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
def test_a_checkpoint_does_not_thaw_beside_entries_that_are_not_its_own(
    store: InMemoryStore, entries: list[StoredEntry]
) -> None:
    data = freeze(verify_session(the_id(store), entries[:-1]))
    beginning, at = entries[0], entries[-1]
    assert thaw(data, beginning, at) is not None
    other = BeliefServer(clock=ManualClock(), ids=SequentialIds(7))
    foreign = other.log.read(declared(other, "abcdefghij"))[0]
    # Another policy in the declaration would be another session: its hash is part of what the digest is over.
    relaxed = beginning.raw.replace(b'"allow_force":false', b'"allow_force":true')
    assert relaxed != beginning.raw
    assert thaw(data, StoredEntry(relaxed, hash_entry(relaxed)), at) is None
    assert thaw(data, StoredEntry(relaxed, beginning.event_hash), at) is None
    assert thaw(data, entries[1], at) is None
    assert thaw(data, foreign, at) is None
    assert thaw(data, StoredEntry(beginning.raw, bytes(32)), at) is None
    assert thaw(data, StoredEntry(b"{}", beginning.event_hash), at) is None
    assert thaw(data, beginning, entries[-2]) is None
    assert thaw(data, beginning, StoredEntry(b"{}", at.event_hash)) is None
    assert thaw(data, beginning, StoredEntry(b"\xff", at.event_hash)) is None
    assert thaw(data, beginning, StoredEntry(at.raw, bytes(32))) is None
    assert thaw(data[:-1], beginning, at) is None


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
@pytest.mark.parametrize(
    ("position", "value"), [(0, "another"), (1, [3, bytes(32)]), (3, bytes(32)), (4, b"\xff"), (5, 7)]
)
def test_even_a_state_that_an_entry_vouches_for_must_stand_right_before_it(
    store: InMemoryStore, entries: list[StoredEntry], position: int, value: Any
) -> None:
    """Software with a mistake could have written such a digest: then the log is replayed."""
    parts = msgspec.msgpack.decode(freeze(verify_session(the_id(store), entries[:-1])))
    parts[position] = value
    data = msgspec.msgpack.encode(parts)
    raw = canonical.encode({**json.loads(entries[-1].raw), "state": digest_of(data)})
    assert thaw(data, entries[0], StoredEntry(raw, hash_entry(raw))) is None


# --- loading ---


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        yield fixture


def grown(fixture: StoreFixture, events: int = 6) -> str:
    """A session of so many events after its declaration; the checkpoints on the way are written."""
    server = fixture.open()
    session_id = declared(server, "abcdefghij")
    for number in range(events):
        server.eliminate(session_id, "s", str(number), ["abcdefghij"[number % 10]])
    server.close()
    return session_id


def load(log: AuditLog, session_id: str) -> tuple[Session, list[StoredEntry]] | None:
    return resume(BeliefFolding(), session_id, opening_of(log, session_id))


def keep(fixture: StoreFixture, session_id: str, seq: int, data: bytes | None = None) -> None:
    """Make this the checkpoint, whatever was kept before; by default the true one of `seq`."""
    if data is None:
        data = freeze(verify_session(session_id, fixture.store().read(session_id)[:seq]))
    with closing(sqlite3.connect(fixture.path)) as connection, connection:
        connection.execute("UPDATE audit_events SET entry = replace(CAST(entry AS TEXT), '4', '5') WHERE seq = 5")
    with pytest.raises(LedgerCorrupt) as caught:
        fixture.open().query_belief(session_id)
    assert caught.value.seq == 5


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
def test_a_checkpoint_that_is_missing_or_was_not_believed_is_made_again(fixture: StoreFixture) -> None:
    session_id = grown(fixture)
    for spoil in ("UPDATE checkpoints SET data = 'nonsense'", "DELETE FROM checkpoints"):
        with closing(sqlite3.connect(fixture.path)) as connection, connection:
            connection.execute(spoil)
        assert load(fixture.store(), session_id) is None
        server = fixture.open()
        server.query_belief(session_id)
        server.close()
        kept = load(fixture.store(), session_id)
        assert kept is not None
        assert kept[0].head.seq == 5


# --- keeping ---


@pytest.mark.req("ARCH-4-CHECKPOINT-01")
def test_a_stream_that_grows_gets_checkpoints_at_digest_points(fixture: StoreFixture) -> None:
    with digest_points_at([4, 8]):
        session_id = grown(fixture, 9)
        kept = fixture.store().checkpoint(session_id)
        assert kept is not None
        assert kept[0] == 8
        state = load(fixture.store(), session_id)
        assert state is not None
        assert state[0].head.seq == 7


@pytest.mark.req("ARCH-4-CHECKPOINT-01")
def test_commands_that_share_a_write_leave_the_checkpoint_of_the_last_digest_point(fixture: StoreFixture) -> None:
    with digest_points_at([2, 4]):
        server = fixture.open()
        session_id = declared(server, "abcdefghij")
        requests = server.requests
        commands = [requests.command(session_id, requests.eliminate("s", str(number), [], None)) for number in range(6)]
        assert len(server._sessions.perform_all(commands)) == 6
        server.close()
        kept = fixture.store().checkpoint(session_id)
        assert kept is not None
        assert kept[0] == 4
        assert load(fixture.store(), session_id) is not None


def test_a_repeat_at_a_digest_point_costs_no_digest(fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    server = fixture.open()
    session_id = declared(server, "abcdefghij")
    first = server.eliminate(session_id, "s", "1", ["a"])
    monkeypatch.setattr(kind, "freeze", None)
    assert server.eliminate(session_id, "s", "1", ["a"]) == first
    with pytest.raises(Conflict):
        server.eliminate(session_id, "s", "1", ["b"])


def test_a_checkpoint_that_cannot_be_written_does_no_harm(
    fixture: StoreFixture, caplog: pytest.LogCaptureFixture
) -> None:
    session_id = grown(fixture)
    log = FailingStore(fixture.store())
    data = freeze(verify_session(session_id, log.read(session_id)[:6]))
    log.fail("put_checkpoint")
    for _ in range(2):
        checkpointer = Checkpointer(log, BeliefFolding())
        checkpointer.put(session_id, 6, data)
        checkpointer.close()
    assert "no checkpoint of" in caplog.text
    assert log.checkpoint(session_id) == (6, data)


class HeldStore(InMemoryStore):
    """A store that writes no checkpoint before it is let go, and records what it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = Event(), Event()
        self.written: list[tuple[str, int]] = []

    def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None:
        self.begun.set()
        assert self.released.wait(30)
        self.written.append((stream_id, seq))


def test_of_each_stream_the_newest_checkpoint_is_written() -> None:
    store = HeldStore()
    checkpointer = Checkpointer(store, BeliefFolding())
    checkpointer.put("a", 1, b"1")
    assert store.begun.wait(30)
    for stream_id, seq in (("a", 2), ("b", 1), ("a", 3)):
        checkpointer.put(stream_id, seq, b"1")
    store.released.set()
    checkpointer.close()
    assert store.written == [("a", 1), ("b", 1), ("a", 3)]


def test_what_waits_is_bounded_and_the_oldest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_MAX_BYTES_WAITING", 10)
    store = HeldStore()
    checkpointer = Checkpointer(store, BeliefFolding())
    checkpointer.put("a", 1, b"1")
    assert store.begun.wait(30)
    for stream_id, size in (("b", 4), ("c", 6), ("d", 4), ("e", 100)):
        checkpointer.put(stream_id, 1, bytes(size))
    store.released.set()
    checkpointer.close()
    assert store.written == [("a", 1), ("e", 1)]


def test_after_a_write_the_thread_rests_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_REST", 1e9)
    store = HeldStore()
    store.released.set()
    checkpointer = Checkpointer(store, BeliefFolding())
    checkpointer.put("a", 1, b"1")
    assert eventually(lambda: store.written == [("a", 1)])
    checkpointer.put("a", 2, b"1")
    checkpointer.put("a", 3, b"1")
    assert store.written == [("a", 1)]
    checkpointer.close()
    assert store.written == [("a", 1), ("a", 3)]


def test_closing_writes_what_waits_and_what_comes_later_is_left(
    store: InMemoryStore, entries: list[StoredEntry]
) -> None:
    session_id = the_id(store)
    assert entries
    idle = Checkpointer(store, BeliefFolding())
    idle.close()
    idle.put(session_id, 1, b"late")
    assert store.checkpoint(session_id) is None
    begun = Event()

    class Slow(InMemoryStore):
        def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None:
            begun.wait(10)
            store.put_checkpoint(stream_id, seq, data)

    busy = Checkpointer(Slow(), BeliefFolding())
    busy.put(session_id, 2, b"in time")
    assert store.checkpoint(session_id) is None
    begun.set()
    busy.close()
    busy.close()
    assert store.checkpoint(session_id) == (2, b"in time")
