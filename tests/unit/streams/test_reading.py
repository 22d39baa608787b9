"""What is read is checked: damage anywhere in what is handed out is an error that names the place, by every route."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cmbs.audit.transfer import export_lines
from cmbs.belief.server import BeliefServer
from cmbs.errors import LedgerCorrupt
from cmbs.http import BeliefApp
from cmbs.ledger import Head, StoredEntry, hash_entry
from cmbs.stores import InMemoryStore, SQLiteStore
from cmbs.streams.reading import read_entries, read_entry
from cmbs.substrate.server import SubstrateServer
from cmbs.testing import ManualClock, SequentialIds
from tests.support.in_process import client_of
from tests.support.space_client import OPS
from tests.support.spaces import ANY, STREAM, World, delta
from tests.support.store_fixture import declared

EVENTS = 6
LAST = EVENTS - 1
Log = InMemoryStore | SQLiteStore
# What an intruder leaves of a stream, given a place; and the first seq that is then bad.
Damage = tuple[Callable[[list[StoredEntry | None], int], None], Callable[[int], int]]


def change(entries: list[StoredEntry | None], seq: int) -> None:
    stored = entries[seq]
    assert stored is not None
    entries[seq] = StoredEntry(stored.raw.replace(b'"ts":"2', b'"ts":"3'), stored.event_hash)


def rewrite(entries: list[StoredEntry | None], seq: int) -> None:
    change(entries, seq)
    stored = entries[seq]
    assert stored is not None
    entries[seq] = StoredEntry(stored.raw, hash_entry(stored.raw))


def delete(entries: list[StoredEntry | None], seq: int) -> None:
    entries[seq] = None


def swap(entries: list[StoredEntry | None], seq: int) -> None:
    other = seq + 1 if seq < LAST else seq - 1
    entries[seq], entries[other] = entries[other], entries[seq]


def duplicate(entries: list[StoredEntry | None], seq: int) -> None:
    entries[seq] = entries[seq - 1 if seq else 1]


def garble(entries: list[StoredEntry | None], seq: int) -> None:
    entries[seq] = StoredEntry(b'{"seq":', hash_entry(b'{"seq":'))


DAMAGE: dict[str, Damage] = {
    "changed": (change, lambda seq: seq),
    # An entry that was hashed again is found where the next one does not follow it, or the head is another.
    "rewritten": (rewrite, lambda seq: min(seq + 1, LAST)),
    "deleted": (delete, lambda seq: seq),
    "swapped": (swap, lambda seq: min(seq, LAST - 1)),
    "duplicated": (duplicate, lambda seq: seq),
    "garbled": (garble, lambda seq: seq),
}


def damage(log: Log, path: Path, stream_id: str, seq: int, how: str) -> int:
    """Damage one entry as an intruder in the process or in the file would; the first seq that is bad then."""
    spoil, first_bad = DAMAGE[how]
    entries: list[StoredEntry | None] = list(log.read(stream_id))
    spoil(entries, seq)
    if isinstance(log, InMemoryStore):
        log._streams[stream_id].entries[:] = [entry for entry in entries if entry is not None]
        return first_bad(seq)
    with closing(sqlite3.connect(path)) as database:
        for guard in ("audit_events_no_update", "audit_events_no_delete"):
            database.execute(f"DROP TRIGGER {guard}")
        for place, stored in enumerate(entries):
            if stored is None:
                database.execute("DELETE FROM audit_events WHERE (stream_id, seq) = (?, ?)", (stream_id, place))
            else:
                database.execute(
                    "UPDATE audit_events SET entry = ?, event_hash = ? WHERE (stream_id, seq) = (?, ?)",
                    (stored.raw, stored.event_hash, stream_id, place),
                )
        database.commit()
    return first_bad(seq)


@pytest.fixture(params=["memory", "sqlite"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    store = InMemoryStore() if request.param == "memory" else SQLiteStore(str(tmp_path / "cmbs.db"))
    yield store
    store.close()


def http_pages(server: BeliefServer, path: str, spaces: SubstrateServer | None = None, **query: Any) -> None:
    """Read a list over HTTP, two items at a time; LedgerCorrupt as the answer told it."""
    with client_of(BeliefApp(server, spaces=spaces)) as client:
        cursor: dict[str, str] | None = {}
        while cursor is not None:
            answer = client.get(path, params={"limit": 2, **query, **cursor}, headers={"x-cmbs-actor": OPS})
            if answer.is_error:
                error: dict[str, Any] = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (500, "LEDGER_CORRUPT")
                raise LedgerCorrupt("", error["details"]["seq"], error["message"])
            more = answer.json()["next_cursor"]
            cursor = None if more is None else {"cursor": more}


def in_pages(server: BeliefServer, session_id: str) -> None:
    page = server.audit_page(session_id, limit=2)
    while page.next_event_id is not None:
        page = server.audit_page(session_id, page.next_event_id, 2)


def one_by_one(server: BeliefServer, session_id: str) -> None:
    head = server.current_session(session_id).head
    for seq in range(EVENTS):
        read_entry(server.log, session_id, head, seq)


SESSION_ROUTES: dict[str, Callable[[BeliefServer, str], object]] = {
    "audit_trace": lambda server, session_id: server.audit_trace(session_id),
    "pages": in_pages,
    "entries": one_by_one,
    "fork": lambda server, session_id: server.fork_session(session_id),
    "export": lambda server, session_id: list(export_lines(server.log, [session_id])),
    "HTTP": lambda server, session_id: http_pages(server, f"/v1/sessions/{session_id}/audit"),
}


@pytest.mark.req("READ-01")
@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("seq", range(EVENTS))
def test_a_damaged_session_is_never_handed_out(log: Log, tmp_path: Path, seq: int, how: str) -> None:
    server = BeliefServer(store=log, clock=ManualClock(), ids=SequentialIds())
    session_id = declared(server)
    for number in range(1, EVENTS):
        server.declare_conclusion(session_id, f"c{number}")
    for read in SESSION_ROUTES.values():
        read(server, session_id)
    bad = damage(log, tmp_path / "cmbs.db", session_id, seq, how)
    for name, read in SESSION_ROUTES.items():
        with pytest.raises(LedgerCorrupt) as caught:
            read(server, session_id)
        assert (name, caught.value.details["seq"]) == (name, bad)
    server.close()


SPACE_ROUTES: dict[str, Callable[[World], object]] = {
    "entries": lambda world: world.server.stored_entries("s"),
    "space": lambda world: world.server.at("s", LAST - 1),
    "state": lambda world: world.server.state_at("s", LAST),
    "diff": lambda world: world.server.diff("s", 0),
    "export": lambda world: list(export_lines(world.log, [STREAM])),
    "HTTP audit": lambda world: over_http(world, "/v1/spaces/s/audit"),
    "HTTP decisions": lambda world: over_http(world, "/v1/spaces/s/decisions"),
    "HTTP state": lambda world: over_http(world, "/v1/spaces/s/state", at=LAST - 1),
    "HTTP deltas": lambda world: over_http(world, "/v1/spaces/s/deltas"),
}


def over_http(world: World, path: str, **query: Any) -> None:
    belief = BeliefServer(store=world.log)  # type: ignore[arg-type]
    http_pages(belief, path, world.server, **query)


@pytest.mark.req("READ-01")
@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("seq", range(EVENTS))
def test_a_damaged_space_is_never_handed_out(log: Log, tmp_path: Path, seq: int, how: str) -> None:
    world = World(log)
    world.open(policy={"constraint.any": ANY})
    numbers = count()
    while world.space.head.seq < LAST:
        world.propose(delta(goal=str(next(numbers))))
    assert world.space.head.seq == LAST
    for read in SPACE_ROUTES.values():
        read(world)
    bad = damage(log, tmp_path / "cmbs.db", STREAM, seq, how)
    for name, read in SPACE_ROUTES.items():
        with pytest.raises(LedgerCorrupt) as caught:
            read(world)
        assert (name, caught.value.details["seq"]) == (name, bad)
    world.close()


@pytest.mark.req("READ-01")
def test_a_stream_that_was_replaced_whole_is_not_the_one_that_was_verified(log: Log) -> None:
    server = BeliefServer(store=log)
    session_id = declared(server)
    head = server.current_session(session_id).head
    with pytest.raises(LedgerCorrupt, match="not the verified head"):
        list(read_entries(log, session_id, Head(head.seq, bytes(32))))
    with pytest.raises(LedgerCorrupt, match="it is not there"):
        list(read_entries(log, session_id, Head(head.seq + 1, head.event_hash)))
    assert list(read_entries(log, session_id, head, head.seq)) == []
    server.close()
