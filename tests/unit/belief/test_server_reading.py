"""What readers get: snapshots, earlier moments, pages, sessions back from the log, and never a log that is forged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.survivors import Survivors, Universe
from cmbs.belief.server import BeliefServer
from cmbs.errors import LedgerCorrupt, SessionNotFound, StoreUnavailable
from cmbs.messages import BeliefSnapshot
from cmbs.stores.memory import InMemoryStore
from cmbs.streams.cache import Streams
from cmbs.testing import FailingStore
from tests.support.store_fixture import ONTOLOGY, StoreFixture, declared, tampering

# --- snapshots ---


@pytest.mark.req("BS-2.2-SNAP-05")
def test_survivors_are_built_only_when_they_are_read() -> None:
    class Reluctant(Survivors):
        """Survivors that may be counted and not listed."""

        def __iter__(self) -> Iterator[str]:
            raise AssertionError("listed")

    universe = Universe([*"abc"])
    snapshot = BeliefSnapshot("session", ONTOLOGY, Reluctant.all_of(universe), False, None, "event")
    assert (snapshot.n_survivors, snapshot.to_dict(with_survivors=False)["n_survivors"]) == (3, 3)
    assert "n_survivors=3" in repr(snapshot)
    assert hash(snapshot) == hash(BeliefSnapshot("session", ONTOLOGY, universe.ids, False, None, "event"))
    with pytest.raises(AssertionError, match="listed"):
        assert snapshot.survivors


# --- earlier moments ---


# --- pages ---


@pytest.mark.req("BS-4.2-SORT-01")
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_pages_of_survivors_put_together_are_all_survivors(fixture: StoreFixture, size: int) -> None:
    server = fixture.open()
    session_id = declared(server, ["", "b", "a", "😀", "\uffff", "c"])
    server.eliminate(session_id, "s", "o", ["b"])
    expected = ["", "a", "c", "\uffff", "😀"]
    found: list[str] = []
    after: str | None = None
    while (page := server.survivors(session_id, after, size).survivors) and len(found) < len(expected):
        assert len(page) <= size
        found += page
        after = page[-1]
    assert (found, page) == (expected, [])
    assert server.survivors(session_id, "b").survivors == ["c", "\uffff", "😀"]
    assert server.survivors(session_id, "nowhere").survivors == ["\uffff", "😀"]


def test_pages_at_one_moment_agree_while_others_eliminate(fixture: StoreFixture) -> None:
    server = fixture.open()
    session_id = declared(server)
    first = server.survivors(session_id, limit=2)
    server.eliminate(session_id, "s", "o", ["a", "d"])
    then = first.snapshot.audit_head_event_id
    assert server.survivors(session_id, "b", 2, at=then).survivors == ["c", "d"]
    assert server.survivors(session_id, "b", 2).survivors == ["c"]


def test_pages_of_sessions_put_together_are_all_sessions_the_oldest_first(fixture: StoreFixture) -> None:
    server = fixture.open()
    expected = [declared(server, "abc") for _ in range(5)]
    fixture.clock.set("2001-01-01T00:00:00.000000Z")
    expected.insert(0, declared(server, "ab"))
    server.eliminate(expected[1], "s", "o", ["a"])
    forced = server.eliminate(expected[0], "s", "o", ["b"])
    server.request_termination(expected[0])
    found: list[str] = []
    after: tuple[str, str] | None = None
    while (page := server.list_sessions(after, 2)) and len(found) < len(expected):
        found += [summary.session_id for summary in page]
        after = (page[-1].created_ts, page[-1].session_id)
    assert (found, page) == (expected, [])
    first, second, *_ = server.list_sessions()
    assert first[2:6] == (2, 1, True, 2)
    assert first.head_event_id != forced.audit_event_id
    assert second[2:6] == (3, 2, False, 1)
    assert second.head_event_id == server.query_belief(expected[1]).audit_head_event_id


# --- the cache ---


@pytest.mark.req("ARCH-4-03")
def test_the_cache_is_bounded_and_loads_on_first_use() -> None:
    store = FailingStore(InMemoryStore())
    server = BeliefServer(store=store)
    session_ids = [declared(server) for _ in range(3)]
    sessions = Streams(store, BeliefFolding(), 2)
    reads = store.calls.count("read")
    assert [sessions.find(session_id) for session_id in session_ids] == [None] * 3
    for session_id in session_ids:
        assert sessions.current(session_id).session_id == session_id
    assert store.calls.count("read") == reads + 3
    assert [sessions.find(session_id) is not None for session_id in session_ids] == [False, True, True]
    sessions.current(session_ids[1])
    assert store.calls.count("read") == reads + 3
    sessions.current(session_ids[0])
    assert [sessions.find(session_id) is not None for session_id in session_ids] == [True, True, False]
    with pytest.raises(SessionNotFound):
        sessions.current("unknown")
    assert sessions.find("unknown") is None


@pytest.mark.req("ARCH-4-03")
def test_while_the_log_cannot_be_asked_what_is_cached_is_served_and_nothing_else() -> None:
    store = FailingStore(InMemoryStore())
    server = BeliefServer(store=store)
    session_id = declared(server)
    before = server.query_belief(session_id)
    store.fail("head")
    assert server.query_belief(session_id) == before
    for method in ("head", "read"):
        cold = BeliefServer(store=store)
        store.fail(method)
        with pytest.raises(StoreUnavailable):
            cold.query_belief(session_id)
        assert cold.query_belief(session_id) == before


@pytest.mark.req("BS-5.1-STORE-01")
def test_a_server_sees_what_another_one_wrote(fixture: StoreFixture) -> None:
    first, second = fixture.open(), fixture.open()
    session_id = declared(first)
    assert second.query_belief(session_id) == first.query_belief(session_id)
    for step, hypothesis_id in enumerate("abc"):
        writer, reader = (first, second) if step % 2 else (second, first)
        written = writer.eliminate(session_id, "s", str(step), [hypothesis_id])
        assert reader.query_belief(session_id) == written.snapshot
        assert reader.audit_trace(session_id) == writer.audit_trace(session_id)


# --- a log that does not verify ---

GUARDS = ("audit_events_no_update", "audit_events_no_delete", "sessions_only_forward", "sessions_no_delete")
Forge = Callable[[sqlite3.Connection], Any]
FORGERIES: dict[str, Forge] = {
    "a changed payload": lambda db: db.execute(
        "UPDATE audit_events SET entry = CAST(replace(entry, 'because', 'forsooth') AS BLOB) WHERE seq = 1"
    ),
    "a payload that became text": lambda db: db.execute(
        "UPDATE audit_events SET entry = CAST(entry AS TEXT) || ' ' WHERE seq = 1"
    ),
    "a changed universe": lambda db: db.execute(
        "UPDATE audit_events SET entry = CAST(replace(entry, '\"a\"', '\"A\"') AS BLOB) WHERE seq = 0"
    ),
    "a changed delta": lambda db: db.execute(
        """UPDATE audit_events SET entry = CAST(replace(entry, '"delta":{"eliminated":["a"]}',
        '"delta":{"eliminated":["b"]}') AS BLOB) WHERE seq = 1"""
    ),
    "a changed hash": lambda db: db.execute("UPDATE audit_events SET event_hash = zeroblob(32) WHERE seq = 1"),
    "a shortened hash": lambda db: db.execute(
        "UPDATE audit_events SET event_hash = substr(event_hash, 1, 31) WHERE seq = 1"
    ),
    "an entry that is no JSON": lambda db: db.execute("UPDATE audit_events SET entry = x'ff00' WHERE seq = 1"),
    "an empty entry": lambda db: db.execute("UPDATE audit_events SET entry = x'' WHERE seq = 2"),
    "a dropped entry": lambda db: db.execute("DELETE FROM audit_events WHERE seq = 1"),
    "a dropped declaration": lambda db: db.execute("DELETE FROM audit_events WHERE seq = 0"),
    "a dropped tail": lambda db: db.execute("DELETE FROM audit_events WHERE seq = 2"),
    "a dropped log": lambda db: db.execute("DELETE FROM audit_events"),
    "swapped entries": lambda db: db.executescript(
        "UPDATE audit_events SET seq = 9 WHERE seq = 1; UPDATE audit_events SET seq = 1 WHERE seq = 2;"
        "UPDATE audit_events SET seq = 2 WHERE seq = 9"
    ),
    "a head hash that is another": lambda db: db.execute("UPDATE sessions SET head_hash = zeroblob(32)"),
    "a head that is further on": lambda db: db.execute("UPDATE sessions SET head_seq = 7"),
}


def eventful(server: BeliefServer) -> str:
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["a"], {"why": "because"})
    server.eliminate(session_id, "s", "2", ["b"])
    return session_id


@pytest.mark.req("LED-3-VERIFY-02", "LED-3-VERIFY-03", "LED-3-VERIFY-05", "LED-3-VERIFY-07", "LED-3-VERIFY-10")
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_session_whose_stored_log_was_tampered_with_is_not_served(sqlite_fixture: StoreFixture, forgery: str) -> None:
    server = sqlite_fixture.open()
    session_id = eventful(server)
    sqlite_fixture.close()
    with tampering(sqlite_fixture.path, *GUARDS) as database:
        FORGERIES[forgery](database)
    server = sqlite_fixture.open()
    for verb in (
        lambda: server.query_belief(session_id),
        lambda: server.audit_trace(session_id),
        lambda: server.survivors(session_id),
        lambda: server.eliminate(session_id, "s", "3", ["c"]),
        lambda: server.query_belief(session_id),
    ):
        with pytest.raises(LedgerCorrupt) as corrupt:
            verb()
        assert corrupt.value.code == "LEDGER_CORRUPT"
        assert corrupt.value.details["stream_id"] == session_id
    healthy = declared(server)
    assert server.eliminate(healthy, "s", "o", ["a"]).applied_eliminated == ["a"]


@pytest.mark.req("LED-3-VERIFY-09")
def test_a_session_whose_log_is_that_of_another_is_not_served(sqlite_fixture: StoreFixture) -> None:
    server = sqlite_fixture.open()
    first, second = declared(server), declared(server)
    sqlite_fixture.close()
    with tampering(sqlite_fixture.path, *GUARDS) as database:
        database.execute("UPDATE audit_events SET stream_id = 'unknown' WHERE stream_id = ?", (first,))
        database.execute("UPDATE audit_events SET stream_id = ? WHERE stream_id = ?", (first, second))
    server = sqlite_fixture.open()
    with pytest.raises(LedgerCorrupt, match="stream_id"):
        server.query_belief(first)
