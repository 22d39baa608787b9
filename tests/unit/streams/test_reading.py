"""What is read is checked: damage anywhere in what is handed out is an error that names the place, by every route."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cmbs.audit.transfer import export_lines
from cmbs.belief.server import BeliefServer
from cmbs.errors import LedgerCorrupt
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.ledger import Head, StoredEntry, hash_entry
from cmbs.ledger.event_tree import BLOCK_EVENTS, EventTree
from cmbs.stores import InMemoryStore, SQLiteStore
from cmbs.streams.reading import read_chain, read_entries, read_entry
from cmbs.testing import ManualClock, SequentialIds
from tests.support.in_process import Client, client_of
from tests.support.space_client import OPS
from tests.support.spaces import ANY, STREAM, World, delta
from tests.support.store_fixture import declared, tampering
from tests.support.subtests import for_each

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


OF_PLACE = "FROM audit_events WHERE (stream_id, seq) = (?, ?)"


@contextmanager
def unguarded(path: Path) -> Iterator[sqlite3.Connection]:
    """The file of a store without the triggers on its entries."""
    with closing(sqlite3.connect(path)) as database:
        guards = database.execute("SELECT name FROM sqlite_schema WHERE (type, tbl_name) = ('trigger', 'audit_events')")
        names = [name for (name,) in guards]
    with tampering(path, *names) as database:
        yield database


def damage(log: Log, path: Path, stream_id: str, seq: int, how: str) -> Callable[[], None]:
    """Damage one entry as an intruder in the process or in the file would; what undoes it."""
    spoil, _ = DAMAGE[how]
    good = list(log.read(stream_id))
    entries: list[StoredEntry | None] = [*good]
    spoil(entries, seq)
    if isinstance(log, InMemoryStore):
        kept = log._streams[stream_id].entries
        kept[:] = [entry for entry in entries if entry is not None]
        return partial(kept.__setitem__, slice(None), good)
    changed = [place for place, stored in enumerate(entries) if stored != good[place]]
    rows = []
    with unguarded(path) as database:
        for place in changed:
            rows += database.execute(f"SELECT * {OF_PLACE}", (stream_id, place)).fetchall()
            stored = entries[place]
            if stored is None:
                database.execute(f"DELETE {OF_PLACE}", (stream_id, place))
            else:
                database.execute(
                    "UPDATE audit_events SET entry = ?, event_hash = ? WHERE (stream_id, seq) = (?, ?)",
                    (stored.raw, stored.event_hash, stream_id, place),
                )

    def undo() -> None:
        with unguarded(path) as database:
            database.executemany(f"DELETE {OF_PLACE}", [(stream_id, place) for place in changed])
            database.executemany(f"INSERT INTO audit_events VALUES ({', '.join('?' * len(rows[0]))})", rows)

    return undo


@pytest.fixture(params=["memory", "sqlite"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    store = InMemoryStore() if request.param == "memory" else SQLiteStore(str(tmp_path / "cmbs.db"))
    yield store
    store.close()


def http_pages(client: Client, path: str, **query: Any) -> None:
    """Read a list over HTTP, two items at a time; LedgerCorrupt as the answer told it."""
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


class Session(NamedTuple):
    """A session, and both ways to its server."""

    server: BeliefServer
    client: Client
    session_id: str


SESSION_ROUTES: dict[str, Callable[[Session], object]] = {
    "audit_trace": lambda session: session.server.audit_trace(session.session_id),
    "pages": lambda session: in_pages(session.server, session.session_id),
    "entries": lambda session: one_by_one(session.server, session.session_id),
    "fork": lambda session: session.server.fork_session(session.session_id),
    "export": lambda session: list(export_lines(session.server.log, [session.session_id])),
    "HTTP": lambda session: http_pages(session.client, f"/v1/sessions/{session.session_id}/audit"),
}


@pytest.mark.req("READ-01")
def test_a_damaged_session_is_never_handed_out(log: Log, tmp_path: Path, subtests: pytest.Subtests) -> None:
    server = BeliefServer(store=log, clock=ManualClock(), ids=SequentialIds())
    session_id = declared(server)
    for number in range(1, EVENTS):
        server.declare_conclusion(session_id, f"c{number}")
    with client_of(BeliefApp(server)) as client:
        session = Session(server, client, session_id)
        for seq, how in product(range(EVENTS), DAMAGE):
            with subtests.test(seq=seq, how=how):
                for read in SESSION_ROUTES.values():
                    read(session)
                undo = damage(log, tmp_path / "cmbs.db", session_id, seq, how)
                for name, read in SESSION_ROUTES.items():
                    with pytest.raises(LedgerCorrupt) as caught:
                        read(session)
                    assert (name, caught.value.details["seq"]) == (name, find_bad_seq(name, seq, how))
            undo()
    server.close()


class Space(NamedTuple):
    """A space, and both ways to its server."""

    world: World
    client: Client


SPACE_ROUTES: dict[str, Callable[[Space], object]] = {
    "entries": lambda space: space.world.server.stored_entries("s"),
    "space": lambda space: space.world.server.at("s", LAST - 1),
    "state": lambda space: space.world.server.state_at("s", LAST),
    "diff": lambda space: space.world.server.diff("s", 0),
    "export": lambda space: list(export_lines(space.world.log, [STREAM])),
    "HTTP audit": lambda space: http_pages(space.client, "/v1/spaces/s/audit"),
    "HTTP decisions": lambda space: http_pages(space.client, "/v1/spaces/s/decisions"),
    "HTTP state": lambda space: http_pages(space.client, "/v1/spaces/s/state", at=LAST - 1),
    "HTTP deltas": lambda space: http_pages(space.client, "/v1/spaces/s/deltas"),
}


@pytest.mark.req("READ-01")
def test_a_damaged_space_is_never_handed_out(log: Log, tmp_path: Path, subtests: pytest.Subtests) -> None:
    world = World(log)
    world.open(policy={"constraint.any": ANY})
    numbers = count()
    while world.space.head.seq < LAST:
        world.propose(delta(goal=str(next(numbers))))
    assert world.space.head.seq == LAST
    commits = set(world.space.snapshots.values())
    with client_of(BeliefApp(Service(BeliefServer(store=log), spaces=world.server))) as client:
        space = Space(world, client)
        for seq, how in product(range(EVENTS), DAMAGE):
            with subtests.test(seq=seq, how=how):
                for read in SPACE_ROUTES.values():
                    read(space)
                undo = damage(log, tmp_path / "cmbs.db", STREAM, seq, how)
                for name, read in SPACE_ROUTES.items():
                    first_bad = find_bad_seq(name, seq, how)
                    # The past does not read what came later, and the list of commits reads nothing else.
                    if (name in ("space", "HTTP state") and first_bad == LAST) or (
                        name == "HTTP deltas" and first_bad not in commits
                    ):
                        continue
                    with pytest.raises(LedgerCorrupt) as caught:
                        read(space)
                    assert (name, caught.value.details["seq"]) == (name, first_bad)
            undo()
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


@for_each("after", [-1, 0, 50, *(n * BLOCK_EVENTS + d for n in (1, 2, 3) for d in (-2, -1, 0)), LONG - 2, LONG - 1])
@for_each("limit", [None, 0, 1, 2, BLOCK_EVENTS, BLOCK_EVENTS + 1, 2000])
def test_any_part_of_a_long_stream_is_read_as_it_was_written(
    long_session: tuple[SQLiteStore, Path, str, EventTree], after: int, limit: int | None
) -> None:
    store, _, session_id, tree = long_session
    assert tree.size == LONG
    assert list(read_entries(store, session_id, tree, after, limit)) == store.read(session_id, after, limit)


PLACES = (0, 1, 30, *(n * BLOCK_EVENTS + d for n in (1, 2, 3) for d in (-2, -1, 0)))


@pytest.mark.req("READ-01")
def test_damage_in_a_long_stream_is_found_in_its_block_and_nowhere_else(
    long_session: tuple[SQLiteStore, Path, str, EventTree], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    whole, good, session_id, tree = long_session
    path = tmp_path / "copy.db"
    with closing(sqlite3.connect(good)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
    with closing(SQLiteStore(str(path))) as store:
        for seq, how in product(PLACES, DAMAGE):
            undo = damage(store, path, session_id, seq, how)
            with subtests.test(seq=seq, how=how):
                block = seq // BLOCK_EVENTS
                for place in {*PLACES, seq}:
                    if place // BLOCK_EVENTS not in (block, (seq + 1) // BLOCK_EVENTS, (seq - 1) // BLOCK_EVENTS):
                        assert [read_entry(store, session_id, tree, place)] == whole.read(session_id, place - 1, 1)
                with pytest.raises(LedgerCorrupt) as caught:
                    read_entry(store, session_id, tree, seq)
                assert block * BLOCK_EVENTS <= caught.value.details["seq"] <= seq + 1
                with pytest.raises(LedgerCorrupt):
                    list(read_entries(store, session_id, tree))
            undo()
