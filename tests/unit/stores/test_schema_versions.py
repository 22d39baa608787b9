"""Stores that other versions wrote: older ones are migrated with all that is in them, newer ones are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cmbs.errors import StoreUnavailable
from cmbs.ledger.listing import Attribute, find_term
from cmbs.ledger.lookup_keys import lookup_keys
from cmbs.spi import Append, EliminationProvenance, RecoveredState, SessionState
from cmbs.spi.audit_log import find_keys
from cmbs.spi.session_search import SessionQuery, find_sessions
from cmbs.stores import SQLiteStore, Store, inspect_store, open_store
from cmbs.stores import _postgres_schema as postgres_schema
from cmbs.stores import _sqlite_schema as sqlite_schema
from cmbs.stores._postgres_rows import append_columns
from cmbs.stores.tombstones import seal_session, write_universe
from cmbs.testing.streams import space_stream, stream
from tests.support.mutations import check_everything
from tests.support.postgres import empty_database

ITEMS = stream(events=5)
SESSION = ITEMS[0].stream_id
SPACE_ITEMS = space_stream()
SPACE_STREAM = SPACE_ITEMS[0].stream_id
SEEN = EliminationProvenance("source", "observation")
# The versions before what an entry eliminates was kept in the entry alone.
SQLITE_WITH_TOMBSTONES = (1, 2)


def write_sqlite(path: Path, version: int, appends: Sequence[Append]) -> None:
    """A file as software of that version wrote it: the triggers of the version do the rest."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        sqlite_schema.apply_migrations(connection, 0, version)
        for item in appends:
            session = item.session or SessionState(0, terminated=False)
            ids = item.tombstones.ids if item.tombstones else ()
            row: list[Any] = [item.stream_id, item.seq, item.event_id, item.prev_event_hash, item.entry.event_hash]
            row += [item.ts, *(item.unique_key or (None, None)), len(ids), len(session.universe)]
            row += [session.n_survivors, session.terminated, item.entry.raw]
            connection.execute(f"INSERT INTO audit_events VALUES ({', '.join('?' * len(row))})", row)
            if version >= sqlite_schema.LOOKUPS_VERSION and item.stream_id == SPACE_STREAM:
                keys = [(item.stream_id, key, item.seq) for key in lookup_keys(item.entry.raw)]
                connection.executemany("INSERT INTO lookup_keys VALUES (?, ?, ?)", keys)
        connection.execute("INSERT INTO universes VALUES ('apart', ?)", (write_universe(frozenset("abc")),))
        connection.execute("INSERT INTO tombstones VALUES ('apart', 'a', NULL)")
        if version >= sqlite_schema.SEALED_VERSION:
            connection.execute(
                "INSERT INTO seals VALUES ('apart', ?, ?, ?)", seal_session("apart", frozenset("abc"), "a")
            )
        connection.execute("COMMIT")


def write_postgres(url: str, version: int, appends: Sequence[Append]) -> None:
    """A database as software of that version wrote it: the function of the version does the rest."""
    with psycopg.connect(url, autocommit=True) as connection:
        postgres_schema.migrate(connection, version)
        for item in appends:
            if version >= postgres_schema.LISTINGS_VERSION:
                connection.execute(f"SELECT cmbs.append_indexed({', '.join(['%b'] * 22)})", append_columns([item]))
                continue
            session = item.session or SessionState(0, terminated=False)
            ids = item.tombstones.ids if item.tombstones else ()
            source, observation = item.unique_key or (None, None)
            arguments: list[Any] = [item.stream_id, item.seq, item.event_id, item.prev_event_hash]
            arguments += [
                item.entry.event_hash,
                item.ts,
                source and source.encode(),
                observation and observation.encode(),
            ]
            arguments += [len(session.universe), session.n_survivors, session.terminated, item.entry.raw]
            has_lookups = version >= postgres_schema.LOOKUPS_VERSION
            function = "append_entries" if has_lookups else "append_events"
            call = f"SELECT cmbs.{function}({', '.join(['%b'] * 14)})".encode()
            keys = lookup_keys(item.entry.raw) if item.stream_id == SPACE_STREAM else []
            rows: tuple[list[Any], list[Any]] = [1] * len(ids), [each.encode() for each in ids]
            if has_lookups:
                rows = [1] * len(keys), keys
            connection.execute(call, [*([each] for each in arguments), *rows])
        universe = write_universe(frozenset("abc"))
        connection.execute("INSERT INTO cmbs.universes VALUES ('apart', %s)", (universe,))
        connection.execute("INSERT INTO cmbs.tombstones VALUES ('apart', 'a', NULL)")
        if version >= postgres_schema.SEALED_VERSION:
            seal = seal_session("apart", frozenset("abc"), "a")
            connection.execute("INSERT INTO cmbs.seals VALUES ('apart', %s, %s, %s)", seal)


def check_migrated(store: Store, url: str) -> None:
    """All is there, nothing is wrong, and writing goes on."""
    assert store.read(SESSION) == [item.entry for item in ITEMS[:4]]
    places = [(key, item.seq) for item in SPACE_ITEMS[:4] for key in lookup_keys(item.entry.raw)]
    assert [tuple(each) for each in find_keys(store, SPACE_STREAM, [(-(2**63), 2**63 - 1)])] == sorted(places)
    assert store.recover(SESSION) == RecoveredState(frozenset("abcd"), frozenset("abc"), frozenset("d"))
    assert store.recover("apart") == RecoveredState(frozenset("abc"), frozenset("a"), frozenset("bc"))
    assert check_everything(url) == []
    query = SessionQuery(terms=(find_term(Attribute.SOURCE, "source"),))
    assert [each.summary.session_id for each in find_sessions(store, query, None, 9)] == [SESSION]
    store.append([*ITEMS[4:], *SPACE_ITEMS[4:]])
    store.eliminate("apart", {"b"}, SEEN)
    assert store.get_survivors(SESSION) == frozenset()
    assert check_everything(url) == []


@pytest.mark.req("STORE-MIGRATE-01")
@pytest.mark.parametrize("version", range(1, len(sqlite_schema.MIGRATIONS)))
def test_a_file_of_every_older_version_is_migrated_with_all_that_is_in_it(tmp_path: Path, version: int) -> None:
    path = tmp_path / "cmbs.db"
    write_sqlite(path, version, [*ITEMS[:4], *SPACE_ITEMS[:4]])
    with closing(sqlite3.connect(path)) as connection:
        (tombstones,) = connection.execute("SELECT count(*) FROM tombstones WHERE seq IS NOT NULL").fetchone()
    assert tombstones == (3 if version in SQLITE_WITH_TOMBSTONES else 0)
    with closing(SQLiteStore(path)) as store:
        check_migrated(store, f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(sqlite_schema.MIGRATIONS),)


@pytest.mark.postgres
@pytest.mark.req("STORE-MIGRATE-01")
@pytest.mark.parametrize("version", range(1, len(postgres_schema.MIGRATIONS)))
def test_a_database_of_every_older_version_is_migrated_with_all_that_is_in_it(version: int) -> None:
    with empty_database() as url:
        write_postgres(url, version, [*ITEMS[:4], *SPACE_ITEMS[:4]])
        with closing(open_store(url)) as store:
            check_migrated(store, url)
        with psycopg.connect(url) as connection:
            versions = connection.execute("SELECT version FROM cmbs.migrations ORDER BY 1").fetchall()
        assert versions == [(number,) for number in range(1, len(postgres_schema.MIGRATIONS) + 1)]


@pytest.mark.postgres
@pytest.mark.req("STORE-MIGRATE-01")
@pytest.mark.parametrize("function", ["append_events", "append_entries"])
def test_a_process_of_an_older_version_cannot_write_entries_without_what_they_are_found_by(function: str) -> None:
    with empty_database() as url:
        open_store(url).close()
        with psycopg.connect(url, autocommit=True) as connection:
            call = f"SELECT cmbs.{function}({', '.join(['%b'] * 14)})".encode()
            with pytest.raises(psycopg.DatabaseError, match="migrated to a newer schema"):
                connection.execute(call, [[]] * 14)


@pytest.mark.req("STORE-MIGRATE-01", "FSCK-03")
@pytest.mark.parametrize("version", range(1, len(sqlite_schema.MIGRATIONS)))
def test_a_check_says_that_a_file_is_older_and_leaves_it_so(tmp_path: Path, version: int) -> None:
    path = tmp_path / "cmbs.db"
    write_sqlite(path, version, [*ITEMS[:4], *SPACE_ITEMS[:4]])
    before = path.read_bytes()
    findings = check_everything(f"sqlite:///{path}")
    assert {finding.table for finding in findings} == {"header", "sqlite_schema"}
    assert f"it is {version}, expected {len(sqlite_schema.MIGRATIONS)}: where an older version" in str(findings[0])
    assert path.read_bytes() == before


def check_refused(url: str, found: int, known: int) -> None:
    for opened in (open_store, inspect_store):
        with pytest.raises(StoreUnavailable) as refused:
            opened(url)
        said = str(refused.value)
        assert f"schema version {found}, which is newer than this software, which knows {known}" in said
        assert "use the version of cmbs that wrote it, or a newer one; nothing was changed" in said


@pytest.mark.req("STORE-MIGRATE-02")
def test_a_file_of_a_newer_version_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path, known = tmp_path / "cmbs.db", len(sqlite_schema.MIGRATIONS)
    SQLiteStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {known + 3}")
        connection.execute("CREATE TABLE later (one TEXT)")
    before = path.read_bytes()
    check_refused(f"sqlite:///{path}", known + 3, known)
    assert path.read_bytes() == before


@pytest.mark.postgres
@pytest.mark.req("STORE-MIGRATE-02")
def test_a_database_of_a_newer_version_is_refused_and_left_as_it_was() -> None:
    known = len(postgres_schema.MIGRATIONS)
    with empty_database() as url:
        open_store(url).close()
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO cmbs.migrations VALUES (%s)", (known + 3,))
            connection.execute("DROP TABLE cmbs.seals")
        catalog = "SELECT oid, relname FROM pg_class WHERE relnamespace = 'cmbs'::regnamespace ORDER BY 1"
        with psycopg.connect(url) as connection:
            before = connection.execute(catalog).fetchall()
        check_refused(url, known + 3, known)
        with psycopg.connect(url) as connection:
            assert connection.execute(catalog).fetchall() == before
