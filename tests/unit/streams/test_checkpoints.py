"""Checkpoints are derived data: checked against the ledger when used, ignored and replaced where they do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel.checkpoint import freeze, thaw
from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.replay import catch_up, verify_session
from cmbs.belief.kernel.session import Session
from cmbs.belief.kernel.views import obligations, snapshot
from cmbs.belief.server import BeliefServer
from cmbs.ledger import StoredEntry
from cmbs.spi import AuditLog, opening_of
from cmbs.stores import SQLiteStore
from cmbs.stores.memory import InMemoryStore
from cmbs.streams import checkpoints
from cmbs.streams.checkpoints import Checkpointer, resume
from cmbs.testing import FailingLog, FailingStore, History, ManualClock, SequentialIds, play
from cmbs.testing.strategies import belief as strategies
from tests.support.store_fixture import StoreFixture, declared


def forged(data: bytes, position: int, value: Any) -> bytes:
    """A checkpoint with one part changed and a checksum that fits."""
    parts = msgspec.msgpack.decode(data[32:])
    parts[position] = value
    content = msgspec.msgpack.encode(parts)
    return sha256(content).digest() + content


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
@given(history=strategies.histories(), at=st.integers(0, 16))
def test_a_session_thaws_as_it_was_frozen_and_goes_on_as_if_nothing_had_been(history: History, at: int) -> None:
    store = InMemoryStore()
    session_id, _ = play(BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds()), history)
    entries = store.read(session_id)
    seq = min(at, len(entries) - 1)
    live = verify_session(session_id, entries[: seq + 1])
    thawed = thaw(freeze(live), entries[0], entries[seq])
    assert thawed is not None
    assert freeze(thawed) == freeze(live)
    assert (snapshot(thawed), obligations(thawed)) == (snapshot(live), obligations(live))
    assert (thawed.ontology, thawed.policy, thawed.provider) == (live.ontology, live.policy, live.provider)
    # Every decision that followed is taken again on the thawed state, and must give the recorded bytes.
    after = catch_up(session_id, thawed, entries[seq + 1 :])
    assert after is not None
    assert freeze(after) == freeze(verify_session(session_id, entries))


def forgeries(data: bytes, session: Session) -> dict[str, bytes]:
    """Each is wrong in one way."""
    event_ids, verdicts = session.events.columns()
    return {
        "nothing": b"",
        "half of it": data[: len(data) // 2],
        "another checksum": bytes(32) + data[32:],
        "no message": sha256(b"\xc1").digest() + b"\xc1",
        "another version": forged(data, 0, 1),
        "another session": forged(data, 1, "another"),
        "another seq": forged(data, 2, [session.head.seq - 1, session.head.event_hash]),
        "another hash": forged(data, 2, [session.head.seq, bytes(32)]),
        "other survivors": forged(data, 3, b"\xff\x03"),
        "bits beyond the universe": forged(data, 3, b"\xff\xff"),
        "a bitmap of another length": forged(data, 3, b"\xff"),
        "an event too few": forged(data, 4, [event_ids[:-1], verdicts[:-1]]),
        "another last event": forged(data, 4, [[*event_ids[:-1], "x"], verdicts]),
        "an event twice": forged(data, 4, [[event_ids[1], *event_ids[1:]], verdicts]),
        "an event without a verdict of its own": forged(data, 4, [event_ids, verdicts[:-1]]),
        "no list of observations": forged(data, 5, 7),
    }


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
def test_what_does_not_fit_the_ledger_does_not_thaw(store: InMemoryStore, entries: list[StoredEntry]) -> None:
    session = verify_session(the_id(store), entries)
    data = freeze(session)
    assert thaw(data, entries[0], entries[-1]) is not None
    for case, wrong in forgeries(data, session).items():
        assert thaw(wrong, entries[0], entries[-1]) is None, case


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
def test_a_checkpoint_does_not_thaw_beside_entries_that_are_not_its_own(
    store: InMemoryStore, entries: list[StoredEntry]
) -> None:
    data = freeze(verify_session(the_id(store), entries))
    beginning, end = entries[0], entries[-1]
    other = BeliefServer(clock=ManualClock(), ids=SequentialIds(7))
    foreign = other.log.read(declared(other, "abcdefghij"))[0]
    assert thaw(data, entries[1], end) is None
    assert thaw(data, beginning, entries[-2]) is None
    assert thaw(data, StoredEntry(beginning.raw, bytes(32)), end) is None
    assert thaw(data, StoredEntry(b"{}", beginning.event_hash), end) is None
    assert thaw(data, beginning, StoredEntry(b"{}", end.event_hash)) is None
    assert thaw(data, beginning, StoredEntry(end.raw, bytes(32))) is None
    assert thaw(data, beginning, foreign) is None


# --- loading ---


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        yield fixture


def grown(fixture: StoreFixture, events: int = 6) -> str:
    """A session of so many events after its declaration."""
    server = fixture.open()
    session_id = declared(server, "abcdefghij")
    for number in range(events):
        server.eliminate(session_id, "s", str(number), ["abcdefghij"[number % 10]])
    return session_id


def load(log: AuditLog, session_id: str) -> tuple[Session, list[StoredEntry]] | None:
    return resume(BeliefFolding(), session_id, opening_of(log, session_id))


def keep(store: SQLiteStore, session_id: str, seq: int) -> None:
    entries = store.read(session_id)
    store.put_checkpoint(session_id, seq, freeze(verify_session(session_id, entries[: seq + 1])))


@pytest.mark.req("ARCH-4-CHECKPOINT-01")
@pytest.mark.parametrize("seq", [0, 3, 6])
def test_a_session_is_loaded_from_its_checkpoint_and_what_followed_it(fixture: StoreFixture, seq: int) -> None:
    session_id = grown(fixture)
    store = fixture.store()
    assert isinstance(store, SQLiteStore)
    keep(store, session_id, seq)
    log = FailingLog(store)
    # The declaration, then the entry that the checkpoint stands at and the tail; a third one would be the whole log.
    log.fail("read", call=3)
    server = fixture.open(audit_log=log)
    assert server.query_belief(session_id) == fixture.open().query_belief(session_id)
    assert log.calls.count("read") == 2
    log.heal()
    assert server.eliminate(session_id, "s", "more", ["j"]).applied_eliminated == ["j"]
    assert server.eliminate(session_id, "s", "0", ["a"]).snapshot.n_survivors == 9


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
@pytest.mark.parametrize("data", [b"", b"nonsense", bytes(100)])
@pytest.mark.parametrize("seq", [0, 3, 6, 700])
def test_a_bad_checkpoint_is_ignored(fixture: StoreFixture, seq: int, data: bytes) -> None:
    session_id = grown(fixture)
    fixture.store().put_checkpoint(session_id, seq, data)
    assert fixture.open().query_belief(session_id).n_survivors == 4


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
def test_a_checkpoint_of_another_session_is_ignored(fixture: StoreFixture) -> None:
    session_id, other = grown(fixture), grown(fixture, 3)
    store = fixture.store()
    entries = store.read(other)
    store.put_checkpoint(session_id, 3, freeze(verify_session(other, entries)))
    assert load(store, session_id) is None
    assert fixture.open().query_belief(session_id).n_survivors == 4


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
def test_a_checkpoint_that_was_replaced_while_its_entries_were_read_is_ignored(fixture: StoreFixture) -> None:
    session_id = grown(fixture)
    store = fixture.store()
    assert isinstance(store, SQLiteStore)
    keep(store, session_id, 3)
    before = opening_of(store, session_id)
    keep(store, session_id, 5)
    after = opening_of(store, session_id)
    assert resume(BeliefFolding(), session_id, before) is not None
    assert resume(BeliefFolding(), session_id, after) is not None
    for data, entries in ((before.checkpoint, after.entries), (after.checkpoint, before.entries)):
        assert resume(BeliefFolding(), session_id, before._replace(checkpoint=data, entries=entries)) is None


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
def test_a_checkpoint_that_the_tail_does_not_continue_gives_way_to_the_whole_log(fixture: StoreFixture) -> None:
    session_id = grown(fixture)
    store = fixture.store()
    entries = store.read(session_id)
    ended = forged(freeze(verify_session(session_id, entries[:4])), 10, 3)
    # An entry commits to the survivors alone: that the session was not over only shows in what follows.
    assert thaw(ended, entries[0], entries[3]) is not None
    store.put_checkpoint(session_id, 3, ended)
    snapshot = fixture.open().query_belief(session_id)
    assert (snapshot.n_survivors, snapshot.terminated) == (4, False)


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
def test_a_bad_checkpoint_is_replaced_once_one_is_due(fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_FEWEST_EVENTS", 3)
    session_id = grown(fixture)
    fixture.close()
    fixture.store().put_checkpoint(session_id, 6, b"nonsense")
    server = fixture.open()
    server.query_belief(session_id)
    server.close()
    kept = load(fixture.store(), session_id)
    assert kept is not None
    assert kept[0].head.seq == 6


# --- keeping ---


@pytest.mark.req("ARCH-4-CHECKPOINT-01")
def test_a_checkpoint_is_due_after_enough_events_in_proportion_to_the_length() -> None:
    due = Checkpointer.is_due
    assert [due(999, 0), due(1000, 0), due(1999, 1000), due(2000, 1000)] == [False, True, False, True]
    assert [due(101_000, 100_000), due(124_999, 100_000), due(125_000, 100_000)] == [False, False, True]


@pytest.mark.req("ARCH-4-CHECKPOINT-01")
def test_a_session_that_grows_gets_checkpoints_on_the_way(
    fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_FEWEST_EVENTS", 4)
    session_id = grown(fixture, 9)
    fixture.close()
    kept = load(fixture.store(), session_id)
    assert kept is not None
    assert kept[0].head.seq == 8


def test_a_checkpoint_that_cannot_be_written_does_no_harm(
    fixture: StoreFixture, caplog: pytest.LogCaptureFixture
) -> None:
    session_id = grown(fixture)
    log = FailingStore(fixture.store())
    session = verify_session(session_id, log.read(session_id))
    log.fail("put_checkpoint")
    checkpointer = Checkpointer(log, BeliefFolding())
    checkpointer.put(session.session_id, session)
    checkpointer.put(session.session_id, session)
    checkpointer.close()
    assert "no checkpoint of" in caplog.text
    kept = load(log, session_id)
    assert kept is not None
    assert freeze(kept[0]) == freeze(session)


def test_closing_writes_what_waits_and_what_comes_later_is_left(
    store: InMemoryStore, entries: list[StoredEntry]
) -> None:
    session_id = the_id(store)
    session = verify_session(session_id, entries)
    idle = Checkpointer(store, BeliefFolding())
    idle.close()
    idle.put(session.session_id, session)
    assert store.checkpoint(session_id) is None
    begun = Event()

    class Slow(InMemoryStore):
        def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None:
            begun.wait(10)
            store.put_checkpoint(stream_id, seq, data)

    busy = Checkpointer(Slow(), BeliefFolding())
    busy.put(session.session_id, session)
    assert store.checkpoint(session_id) is None
    begun.set()
    busy.close()
    busy.close()
    assert store.checkpoint(session_id) == (session.head.seq, freeze(session))
