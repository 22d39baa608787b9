"""The SQLite driver: what the database itself guarantees, and what becomes of files that are not ours to use."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from msgspec import structs

from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest, StoreUnavailable
from cmbs.spi import AuditLog, EliminationProvenance, EliminationStore, StaleHead
from cmbs.stores import InMemoryStore, SQLiteStore, open_store
from cmbs.testing.streams import stream
from tests.support.store_fixture import declared, tampering

TABLES = (
    *("audit_events", "checkpoints", "format", "intents", "listing_terms", "listings"),
    *("lookup_keys", "seals", "sessions", "tombstones", "universes"),
)
GUARDS = ("audit_events_declare", "audit_events_continue", "audit_events_no_replace")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cmbs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path)
    yield store
    store.close()


@pytest.fixture
def outsider(store: SQLiteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """Another client's connection to the same file."""
    connection = sqlite3.connect(path, timeout=0)
    yield connection
    connection.close()


def rows(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}


def occupied(store: SQLiteStore) -> str:
    """A file with a row in every table."""
    first, *_ = appends = stream()
    store.append(appends)
    store.create_session("apart", frozenset("ab"))
    store.eliminate("apart", {"a"}, EliminationProvenance("source", "observation"))
    return first.stream_id


# --- the schema ---


@pytest.mark.req("BS-5.1-STORE-02", "BS-5.1-STORE-04")
def test_a_new_file_gets_the_schema_and_runs_in_wal_mode_with_full_synchronisation(
    store: SQLiteStore, outsider: sqlite3.Connection
) -> None:
    tables = outsider.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    assert [name for (name,) in tables] == sorted(TABLES)
    assert outsider.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    with store._reader() as reader:
        assert reader.execute("PRAGMA synchronous").fetchone() == (2,)


@pytest.mark.req("BS-5.1-STORE-03")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_events SET entry = x'00'",
        "UPDATE audit_events SET ts = ts",
        "DELETE FROM audit_events",
        "DELETE FROM audit_events WHERE seq = 2",
        "UPDATE OR REPLACE audit_events SET seq = 0",
        "REPLACE INTO audit_events SELECT * FROM audit_events WHERE seq = 0",
        "REPLACE INTO audit_events SELECT * FROM audit_events WHERE seq = 2",
        "INSERT OR REPLACE INTO audit_events SELECT * FROM audit_events",
        "UPDATE tombstones SET hypothesis_id = 'c'",
        "DELETE FROM tombstones",
        "REPLACE INTO tombstones SELECT * FROM tombstones",
        "UPDATE universes SET hypothesis_ids = '[]'",
        "DELETE FROM universes",
        "REPLACE INTO universes SELECT session_id, '[]' FROM universes",
        "DELETE FROM sessions",
        "REPLACE INTO sessions SELECT * FROM sessions",
        "UPDATE sessions SET head_seq = head_seq",
        "UPDATE sessions SET head_seq = head_seq - 1",
        "UPDATE sessions SET head_seq = head_seq + 2",
        "UPDATE sessions SET session_id = 'x', head_seq = head_seq + 1",
        "UPDATE sessions SET created_ts = 'x', head_seq = head_seq + 1",
        "UPDATE sessions SET n_survivors = n_survivors + 1, head_seq = head_seq + 1",
        "UPDATE sessions SET universe_size = 9, head_seq = head_seq + 1",
    ],
)
def test_the_database_refuses_to_change_or_delete_what_is_there(
    store: SQLiteStore, outsider: sqlite3.Connection, statement: str
) -> None:
    occupied(store)
    before = rows(outsider)
    with pytest.raises(sqlite3.IntegrityError):
        outsider.execute(statement)
    outsider.rollback()
    assert rows(outsider) == before


@pytest.mark.req("BS-5.1-STORE-03", "ARCH-4-02")
@pytest.mark.parametrize("word", ["INSERT", "INSERT OR REPLACE"])
def test_the_database_refuses_a_continuation_that_repeats_an_observation(
    store: SQLiteStore, outsider: sqlite3.Connection, word: str
) -> None:
    occupied(store)
    before = rows(outsider)
    with pytest.raises(sqlite3.IntegrityError):
        outsider.execute(
            f"{word} INTO audit_events SELECT stream_id, 3, 'new', (SELECT head_hash FROM sessions), x'01', ts,"
            " source_id, observation_id, 0, 2, 0, entry FROM audit_events WHERE seq = 1"
        )
    outsider.rollback()
    assert rows(outsider) == before


@pytest.mark.req("ARCH-4-02")
@pytest.mark.parametrize("column", ["seq", "prev_event_hash", "observation_id"])
def test_unique_keys_hold_by_themselves_without_any_trigger(
    store: SQLiteStore, outsider: sqlite3.Connection, column: str
) -> None:
    occupied(store)
    for trigger in GUARDS:
        outsider.execute(f"DROP TRIGGER {trigger}")
    fresh = {"seq": "7", "prev_event_hash": "x'07'", "observation_id": "'new'"}
    insert = "INSERT INTO audit_events SELECT stream_id, {seq}, 'new', {prev_event_hash}, x'01', ts, source_id,"
    insert += " {observation_id}, 0, 0, 0, entry FROM audit_events WHERE seq = 1"
    with pytest.raises(sqlite3.IntegrityError, match=f"UNIQUE.*{column}"):
        outsider.execute(insert.format(**(fresh | {column: column})))
    outsider.execute(insert.format(**fresh))
    outsider.rollback()


@pytest.mark.req("BS-5.1-STORE-05")
def test_an_append_writes_entry_tombstones_and_session_row_or_none_of_them(
    store: SQLiteStore, outsider: sqlite3.Connection
) -> None:
    declaration, elimination, nothing = stream(hypotheses="abcd")
    store.append([declaration])
    before = rows(outsider)
    wrong = structs.replace(nothing, seq=9)
    for bad_group in ([elimination, wrong], [elimination, elimination], [nothing], [declaration]):
        with pytest.raises(StaleHead):
            store.append(bad_group)
        assert rows(outsider) == before
    store.append([elimination, nothing])
    after = rows(outsider)
    assert [row[1] for row in after["audit_events"]] == [0, 1, 2]
    gone = outsider.execute("SELECT hypothesis_id, seq FROM eliminations ORDER BY seq").fetchall()
    assert gone == [("a", 1), ("b", 2)]
    assert store.get_eliminated(declaration.stream_id) == {"a", "b"}
    assert after["sessions"][0][2:6] == (4, 2, 0, 2)
    assert store.read(declaration.stream_id) == [each.entry for each in (declaration, elimination, nothing)]


@pytest.mark.req("BS-5.1-STORE-05")
def test_a_group_that_fails_in_a_later_statement_is_not_written_at_all(
    store: SQLiteStore, outsider: sqlite3.Connection
) -> None:
    appends = [item for space in range(40) for item in stream(space)]
    empty = rows(outsider)
    # What cannot be written at all fails in the middle of the group, and not as a stale head.
    torn = structs.replace(appends[100], ts=object())
    with pytest.raises(StoreUnavailable):
        store.append([*appends[:100], torn])
    with pytest.raises(StoreUnavailable), store.exclusive(["any"]):
        store.append([*appends[:100], torn])
    assert rows(outsider) == empty


# --- several who write ---


@pytest.mark.req("BS-5.2-CONC-03")
def test_inside_exclusive_others_wait_and_the_holder_sees_its_own_writes(
    store: SQLiteStore, outsider: sqlite3.Connection
) -> None:
    declaration, elimination, _ = stream()
    with store.exclusive([declaration.stream_id]):
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            outsider.execute("BEGIN IMMEDIATE")
        assert store.head(declaration.stream_id) is None
        store.append([declaration])
        head = store.head(declaration.stream_id)
        assert head is not None
        assert head.seq == 0
        assert outsider.execute("SELECT count(*) FROM audit_events").fetchone() == (0,)
    assert outsider.execute("SELECT count(*) FROM audit_events").fetchone() == (1,)
    with suppress(KeyError), store.exclusive([declaration.stream_id]):
        store.append([elimination])
        raise KeyError("the holder gives up")
    assert store.head(declaration.stream_id) == head


@pytest.mark.req("BS-5.2-CONC-03")
def test_exclusive_in_one_thread_holds_off_the_writers_of_the_others(store: SQLiteStore) -> None:
    first, second = stream(1)[0], stream(2)[0]
    order: list[str] = []

    def write() -> None:
        store.append([second])
        order.append("other")

    with store.exclusive([first.stream_id]):
        other = threading.Thread(target=write)
        other.start()
        assert store.head(second.stream_id) is None
        store.append([first])
        order.append("holder")
    other.join()
    assert order == ["holder", "other"]
    assert store.head(second.stream_id) is not None


def test_exclusive_does_not_nest(store: SQLiteStore) -> None:
    declaration = stream()[0]
    with store.exclusive(["a"]):
        with pytest.raises(StoreUnavailable), store.exclusive(["b"]):
            pass
        store.append([declaration])
    assert store.head(declaration.stream_id) is not None


def open_and_declare(path: Path, begin: threading.Barrier) -> None:
    begin.wait()
    server = BeliefServer(store=SQLiteStore(path))
    declared(server)
    server.close()


@pytest.mark.slow
@pytest.mark.req("BS-5.1-STORE-01", "CLI-SERVE-03")
def test_several_processes_may_open_a_new_file_at_the_same_moment(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    begin = spawn.Barrier(4)
    processes = [spawn.Process(target=open_and_declare, args=(path, begin)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    server = BeliefServer(store=SQLiteStore(path))
    assert len(server.list_sessions()) == 4
    server.close()


class Watched(SQLiteStore):
    """A store that says each statement before it runs."""

    def __init__(self, path: Path, told: Callable[[str], None]) -> None:
        self._told = told
        super().__init__(path)

    def _connect(self, mode: str = "rwc") -> sqlite3.Connection:
        connection = super()._connect(mode)
        connection.set_trace_callback(self._told)
        return connection


def test_a_file_that_another_process_is_writing_is_opened_once_it_is_done(path: Path) -> None:
    SQLiteStore(path).close()
    statements: list[str] = []
    with tampering(path) as writer:
        writer.execute("PRAGMA journal_mode = DELETE")
        writer.execute("BEGIN IMMEDIATE")

        def told(statement: str) -> None:
            statements.append(statement)
            if statement == "BEGIN IMMEDIATE":
                writer.rollback()

        store = Watched(path, told)
        assert statements.count("PRAGMA journal_mode = WAL") == 2
        assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_readers_that_come_and_go_do_not_use_up_file_descriptors(store: SQLiteStore) -> None:
    process = psutil.Process()
    counts: list[int] = []
    for _ in range(3):
        for _ in range(20):
            reader = threading.Thread(target=store.head, args=("unknown",))
            reader.start()
            reader.join()
        counts.append(process.num_fds())
    assert counts[0] == counts[1] == counts[2]


# --- files that cannot be used ---


@pytest.mark.req("BS-5.1-STORE-07")
def test_open_store_picks_the_driver_from_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_store("memory:"), InMemoryStore)
    for url, name in {
        "sqlite:///relative.db": "relative.db",
        f"sqlite:///{tmp_path}/absolute.db": "absolute.db",
        "sqlite:///with%20space%3F.db": "with space?.db",
    }.items():
        store = open_store(url)
        assert isinstance(store, SQLiteStore)
        assert isinstance(store, AuditLog)
        assert isinstance(store, EliminationStore)
        store.close()
        assert (tmp_path / name).exists()


@pytest.mark.req("BS-5.1-STORE-07")
@pytest.mark.parametrize(
    "url",
    [
        *("", "memory", "memory:x", "memory://", "sqlite", "sqlite:", "sqlite:x.db", "sqlite://x.db", "sqlite:///"),
        *(
            "SQLITE:///x.db",
            "postgres:/host/db",
            "postgresql://[host/db",
            "x:///y",
            "/path.db",
            "sqlite:///:memory:",
            "sqlite:///a%00b.db",
        ),
    ],
)
def test_open_store_refuses_what_it_does_not_know(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest):
        open_store(url)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_opened_is_unavailable_and_is_named(tmp_path: Path) -> None:
    for impossible in (tmp_path, tmp_path / "missing" / "cmbs.db"):
        with pytest.raises(StoreUnavailable, match=str(impossible)):
            SQLiteStore(impossible)


def test_a_file_that_is_no_database_is_unavailable_and_left_as_it_was(path: Path) -> None:
    letter = b"this is a letter, not a database\n" * 100
    path.write_bytes(letter)
    with pytest.raises(StoreUnavailable, match="not a database"):
        SQLiteStore(path)
    assert path.read_bytes() == letter


def test_a_closed_store_is_unavailable_and_closing_twice_is_harmless(path: Path) -> None:
    store = SQLiteStore(path)
    session_id = occupied(store)
    store.close()
    store.close()
    for use in (
        lambda: store.read(session_id),
        lambda: store.head(session_id),
        lambda: store.sessions(None, 1),
        lambda: store.append(stream(1)),
        lambda: store.recover(session_id),
        lambda: store.create_session("x", frozenset("a")),
    ):
        with pytest.raises(StoreUnavailable):
            use()
    with pytest.raises(StoreUnavailable), store.exclusive([session_id]):
        pass


def test_a_table_that_is_gone_is_unavailable_not_an_unknown_session(path: Path) -> None:
    store = SQLiteStore(path)
    session_id = occupied(store)
    with tampering(path) as database:
        database.execute("DROP TABLE sessions")
    with pytest.raises(StoreUnavailable):
        BeliefServer(store=store).query_belief(session_id)
    store.close()
