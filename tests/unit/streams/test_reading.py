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
from cmbs.ledger.event_tree import BLOCK_EVENTS, EventTree
from cmbs.stores import InMemoryStore, SQLiteStore
from cmbs.streams.reading import read_chain, read_entries, read_entry
from cmbs.substrate.server import SubstrateServer
from cmbs.testing import ManualClock, SequentialIds
from tests.support.in_process import client_of
from tests.support.space_client import OPS
from tests.support.spaces import ANY, STREAM, World, delta
from tests.support.store_fixture import declared

EVENTS = 6
LAST = EVENTS - 1
Log = InMemoryStore | SQLiteStore
# What an intruder leaves of a stream, given a place; and how much further on its chain shows it.
Damage = tuple[Callable[[list[StoredEntry | None], int], None], int]


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
    "changed": (change, 0),
    # In the chain, an entry that was hashed again is found where the next one does not follow it.
    "rewritten": (rewrite, 1),
    "deleted": (delete, 0),
    "swapped": (swap, 0),
    "duplicated": (duplicate, 0),
    "garbled": (garble, 0),
}


def find_bad_seq(route: str, seq: int, how: str) -> int:
    """The seq that a reader names. An export knows of nothing but the chain, the others of what was verified."""
    first = min(seq, LAST - 1) if how == "swapped" else seq
    return min(first + DAMAGE[how][1], LAST) if route == "export" else first


def damage(log: Log, path: Path, stream_id: str, seq: int, how: str) -> None:
    """Damage one entry as an intruder in the process or in the file would."""
    spoil, _ = DAMAGE[how]
    entries: list[StoredEntry | None] = list(log.read(stream_id))
    spoil(entries, seq)
    if isinstance(log, InMemoryStore):
        log._streams[stream_id].entries[:] = [entry for entry in entries if entry is not None]
        return
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
    tree = server.current_session(session_id).tree
    for seq in range(EVENTS):
        read_entry(server.log, session_id, tree, seq)


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
    damage(log, tmp_path / "cmbs.db", session_id, seq, how)
    for name, read in SESSION_ROUTES.items():
        with pytest.raises(LedgerCorrupt) as caught:
            read(server, session_id)
        assert (name, caught.value.details["seq"]) == (name, find_bad_seq(name, seq, how))
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
    damage(log, tmp_path / "cmbs.db", STREAM, seq, how)
    commits = set(world.space.snapshots.values())
    for name, read in SPACE_ROUTES.items():
        first_bad = find_bad_seq(name, seq, how)
        # The past does not read what came later, and the list of commits reads nothing else.
        if (name in ("space", "HTTP state") and first_bad == LAST) or (
            name == "HTTP deltas" and first_bad not in commits
        ):
            continue
        with pytest.raises(LedgerCorrupt) as caught:
            read(world)
        assert (name, caught.value.details["seq"]) == (name, find_bad_seq(name, seq, how))
    world.close()


@pytest.mark.req("READ-01")
def test_a_stream_that_was_replaced_whole_is_not_the_one_that_was_verified(log: Log) -> None:
    server = BeliefServer(store=log)
    session_id = declared(server)
    session = server.current_session(session_id)
    head, tree = session.head, session.tree
    other = EventTree().append(bytes(32))
    for read, problem in (
        (read_chain(log, session_id, Head(head.seq, bytes(32))), "not the recorded head"),
        (read_chain(log, session_id, Head(head.seq + 1, head.event_hash)), "it is not there"),
        (read_entries(log, session_id, other), "and `0000"),
        (read_entries(log, session_id, tree.append(bytes(32))), "it is not there"),
    ):
        with pytest.raises(LedgerCorrupt, match=problem):
            list(read)
    assert list(read_entries(log, session_id, tree, head.seq)) == []
    server.close()


# --- long streams: whole blocks of events, of which a state keeps one hash ---

BLOCKS = 3
LONG = BLOCKS * BLOCK_EVENTS + 5


@pytest.fixture(scope="module")
def long_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SQLiteStore, Path, str, EventTree]]:
    path = tmp_path_factory.mktemp("long") / "cmbs.db"
    with closing(SQLiteStore(str(path))) as store:
        server = BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds())
        session_id = declared(server)
        for number in range(1, LONG):
            server.declare_conclusion(session_id, f"c{number}")
        yield store, path, session_id, server.current_session(session_id).tree


@pytest.mark.parametrize(
    "after", [-1, 0, 50, *(n * BLOCK_EVENTS + d for n in (1, 2, 3) for d in (-2, -1, 0)), LONG - 2, LONG - 1]
)
@pytest.mark.parametrize("limit", [None, 0, 1, 2, BLOCK_EVENTS, BLOCK_EVENTS + 1, 2000])
def test_any_part_of_a_long_stream_is_read_as_it_was_written(
    long_session: tuple[SQLiteStore, Path, str, EventTree], after: int, limit: int | None
) -> None:
    store, _, session_id, tree = long_session
    assert tree.size == LONG
    assert list(read_entries(store, session_id, tree, after, limit)) == store.read(session_id, after, limit)


PLACES = (0, 1, 30, *(n * BLOCK_EVENTS + d for n in (1, 2, 3) for d in (-2, -1, 0)))


@pytest.mark.req("READ-01")
@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("seq", PLACES)
def test_damage_in_a_long_stream_is_found_in_its_block_and_nowhere_else(
    long_session: tuple[SQLiteStore, Path, str, EventTree], tmp_path: Path, seq: int, how: str
) -> None:
    whole, good, session_id, tree = long_session
    path = tmp_path / "copy.db"
    with closing(sqlite3.connect(good)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
    with closing(SQLiteStore(str(path))) as store:
        damage(store, path, session_id, seq, how)
        block = seq // BLOCK_EVENTS
        for place in {*PLACES, seq}:
            if place // BLOCK_EVENTS not in (block, (seq + 1) // BLOCK_EVENTS, (seq - 1) // BLOCK_EVENTS):
                assert [read_entry(store, session_id, tree, place)] == whole.read(session_id, place - 1, 1)
        with pytest.raises(LedgerCorrupt) as caught:
            read_entry(store, session_id, tree, seq)
        assert block * BLOCK_EVENTS <= caught.value.details["seq"] <= seq + 1
        with pytest.raises(LedgerCorrupt):
            list(read_entries(store, session_id, tree))
