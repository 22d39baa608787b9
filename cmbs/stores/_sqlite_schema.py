"""The SQLite schema and its migrations; `PRAGMA user_version` counts the ones applied."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from cmbs.ledger.lookup_keys import lookup_keys
from cmbs.spi.audit_log import SPACE_PREFIX, beyond
from cmbs.spi.stored_rows import Finding, show
from cmbs.stores.session_search import NO_OTHER_KIND, index_streams
from cmbs.stores.tombstones import read_universe, seal_session

_V1 = """
CREATE TABLE sessions (
    session_id    TEXT PRIMARY KEY,
    created_ts    TEXT NOT NULL,
    universe_size INTEGER NOT NULL,
    n_survivors   INTEGER NOT NULL,
    terminated    INTEGER NOT NULL,
    head_seq      INTEGER NOT NULL,
    head_event_id TEXT NOT NULL,
    head_hash     BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_by_age ON sessions (created_ts, session_id);

-- The entry is the truth; the other columns are copies for the guards and triggers below.
CREATE TABLE audit_events (
    stream_id       TEXT NOT NULL,
    seq             INTEGER NOT NULL,
    event_id        TEXT NOT NULL,
    prev_event_hash BLOB NOT NULL,
    event_hash      BLOB NOT NULL,
    ts              TEXT NOT NULL,
    source_id       TEXT,
    observation_id  TEXT,
    n_eliminated    INTEGER NOT NULL,
    universe_size   INTEGER NOT NULL,
    n_survivors     INTEGER NOT NULL,
    terminated      INTEGER NOT NULL,
    entry           BLOB NOT NULL,
    PRIMARY KEY (stream_id, seq),
    UNIQUE (stream_id, prev_event_hash),
    UNIQUE (stream_id, source_id, observation_id)
);

CREATE TABLE tombstones (
    session_id    TEXT NOT NULL,
    hypothesis_id TEXT NOT NULL,
    seq           INTEGER,
    PRIMARY KEY (session_id, hypothesis_id)
) WITHOUT ROWID;

-- Universes of sessions that use this file as an elimination store alone; the others have theirs in the declaration.
CREATE TABLE universes (
    session_id     TEXT PRIMARY KEY,
    hypothesis_ids BLOB NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER audit_events_declare AFTER INSERT ON audit_events WHEN NEW.seq = 0
BEGIN
    SELECT RAISE(ABORT, 'stale head') WHERE NEW.prev_event_hash <> zeroblob(32);
    INSERT INTO sessions VALUES (
        NEW.stream_id, NEW.ts, NEW.universe_size, NEW.n_survivors, NEW.terminated, 0, NEW.event_id, NEW.event_hash);
END;

CREATE TRIGGER audit_events_continue AFTER INSERT ON audit_events WHEN NEW.seq <> 0
BEGIN
    SELECT RAISE(ABORT, 'stale head') WHERE NOT EXISTS (
        SELECT 1 FROM sessions
        WHERE session_id = NEW.stream_id AND head_seq = NEW.seq - 1 AND head_hash = NEW.prev_event_hash);
    UPDATE sessions
    SET head_seq = NEW.seq, head_event_id = NEW.event_id, head_hash = NEW.event_hash,
        n_survivors = NEW.n_survivors, terminated = NEW.terminated
    WHERE session_id = NEW.stream_id;
END;

-- json_each cuts text at a NUL; the writer says n_eliminated = 0 for such an entry and writes its tombstones itself.
CREATE TRIGGER audit_events_tombstones AFTER INSERT ON audit_events WHEN NEW.n_eliminated > 0
BEGIN
    -- Some may be there: the file may have been the elimination store of this session before it became its log.
    INSERT INTO tombstones (session_id, hypothesis_id, seq)
    SELECT NEW.stream_id, value, NEW.seq FROM json_each(CAST(NEW.entry AS TEXT), '$.delta.eliminated')
    WHERE NOT EXISTS (SELECT 1 FROM tombstones WHERE session_id = NEW.stream_id AND hypothesis_id = value);
END;

-- REPLACE deletes without firing delete triggers, so what is there must be defended on the way in too.
CREATE TRIGGER audit_events_no_replace BEFORE INSERT ON audit_events
WHEN EXISTS (SELECT 1 FROM audit_events WHERE stream_id = NEW.stream_id AND seq = NEW.seq)
    OR EXISTS (
        SELECT 1 FROM audit_events WHERE stream_id = NEW.stream_id AND prev_event_hash = NEW.prev_event_hash)
    OR EXISTS (
        SELECT 1 FROM audit_events
        WHERE stream_id = NEW.stream_id AND source_id = NEW.source_id AND observation_id = NEW.observation_id)
BEGIN SELECT RAISE(ABORT, 'stale head'); END;
CREATE TRIGGER tombstones_no_replace BEFORE INSERT ON tombstones
WHEN EXISTS (SELECT 1 FROM tombstones WHERE session_id = NEW.session_id AND hypothesis_id = NEW.hypothesis_id)
BEGIN SELECT RAISE(ABORT, 'tombstones is append-only'); END;
CREATE TRIGGER universes_no_replace BEFORE INSERT ON universes
WHEN EXISTS (SELECT 1 FROM universes WHERE session_id = NEW.session_id)
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER sessions_no_replace BEFORE INSERT ON sessions
WHEN EXISTS (SELECT 1 FROM sessions WHERE session_id = NEW.session_id)
BEGIN SELECT RAISE(ABORT, 'stale head'); END;

CREATE TRIGGER audit_events_no_update BEFORE UPDATE ON audit_events
BEGIN SELECT RAISE(ABORT, 'audit_events is append-only'); END;
CREATE TRIGGER audit_events_no_delete BEFORE DELETE ON audit_events
BEGIN SELECT RAISE(ABORT, 'audit_events is append-only'); END;
CREATE TRIGGER tombstones_no_update BEFORE UPDATE ON tombstones
BEGIN SELECT RAISE(ABORT, 'tombstones is append-only'); END;
CREATE TRIGGER tombstones_no_delete BEFORE DELETE ON tombstones
BEGIN SELECT RAISE(ABORT, 'tombstones is append-only'); END;
CREATE TRIGGER universes_no_update BEFORE UPDATE ON universes
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER universes_no_delete BEFORE DELETE ON universes
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER sessions_no_delete BEFORE DELETE ON sessions
BEGIN SELECT RAISE(ABORT, 'sessions is append-only'); END;
CREATE TRIGGER sessions_only_forward BEFORE UPDATE ON sessions
WHEN NEW.head_seq <> OLD.head_seq + 1 OR NEW.session_id <> OLD.session_id OR NEW.created_ts <> OLD.created_ts
    OR NEW.universe_size <> OLD.universe_size OR NEW.n_survivors > OLD.n_survivors OR NEW.terminated < OLD.terminated
BEGIN SELECT RAISE(ABORT, 'a session only moves forward'); END;
"""

_V2 = """
-- Derived data, that only saves time: may be deleted at any moment.
CREATE TABLE checkpoints (
    session_id TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    data       BLOB NOT NULL
) WITHOUT ROWID;

-- Entries that are being carried out elsewhere: no other entry may be appended before them.
CREATE TABLE intents (
    stream_id  TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    event_hash BLOB NOT NULL,
    entry      BLOB NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER audit_events_intended BEFORE INSERT ON audit_events
WHEN EXISTS (SELECT 1 FROM intents WHERE stream_id = NEW.stream_id)
BEGIN
    SELECT RAISE(ABORT, 'stale head') WHERE NOT EXISTS (
        SELECT 1 FROM intents WHERE stream_id = NEW.stream_id AND event_hash = NEW.event_hash);
    DELETE FROM intents WHERE stream_id = NEW.stream_id;
END;

CREATE TRIGGER intents_continue BEFORE INSERT ON intents
BEGIN
    SELECT RAISE(ABORT, 'stale head') WHERE EXISTS (SELECT 1 FROM intents WHERE stream_id = NEW.stream_id)
        OR NEW.seq <> coalesce((SELECT head_seq + 1 FROM sessions WHERE session_id = NEW.stream_id), 0);
END;
CREATE TRIGGER intents_no_update BEFORE UPDATE ON intents
BEGIN SELECT RAISE(ABORT, 'an intent is carried out or dropped, never changed'); END;
"""

_V3 = """
-- What an event eliminated stands in its entry. A second copy of it cost a third of an append and could only disagree;
-- the table keeps the tombstones of sessions that have no log here, and of logs that were written before this version.
DROP TRIGGER audit_events_tombstones;

-- For people. JSON functions cut text at a NUL, so an id with one in it is shown short here, and only here.
CREATE VIEW eliminations AS
    SELECT stream_id AS session_id, value AS hypothesis_id, seq
    FROM audit_events, json_each(CAST(entry AS TEXT), '$.delta.eliminated')
    UNION
    SELECT session_id, hypothesis_id, seq FROM tombstones;
"""

_V4 = """
-- Second copies of what entries eliminated, from before version 3. The others are of sessions without a log.
DROP TRIGGER tombstones_no_delete;
DELETE FROM tombstones WHERE seq IS NOT NULL AND session_id IN (SELECT session_id FROM sessions);
CREATE TRIGGER tombstones_no_delete BEFORE DELETE ON tombstones
BEGIN SELECT RAISE(ABORT, 'tombstones is append-only'); END;

-- Derived data from before the chain could vouch for it: it is never believed, and would be found by every check.
DELETE FROM checkpoints;

-- A session without a log has no chain of hashes that would show a change.
CREATE TABLE seals (
    session_id        TEXT PRIMARY KEY,
    universe_digest   BLOB NOT NULL,
    tombstones_digest BLOB NOT NULL,
    digest            BLOB NOT NULL
) WITHOUT ROWID;
"""

_V5 = """
-- Under which keys entries of spaces are found again; what an entry's keys are follows from its bytes alone.
CREATE TABLE lookup_keys (
    stream_id TEXT NOT NULL,
    key       INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    PRIMARY KEY (stream_id, key, seq)
) WITHOUT ROWID;
CREATE TRIGGER lookup_keys_no_replace BEFORE INSERT ON lookup_keys
WHEN EXISTS (SELECT 1 FROM lookup_keys WHERE stream_id = NEW.stream_id AND key = NEW.key AND seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'lookup_keys is append-only'); END;
CREATE TRIGGER lookup_keys_no_update BEFORE UPDATE ON lookup_keys
BEGIN SELECT RAISE(ABORT, 'lookup_keys is append-only'); END;
CREATE TRIGGER lookup_keys_no_delete BEFORE DELETE ON lookup_keys
BEGIN SELECT RAISE(ABORT, 'lookup_keys is append-only'); END;
"""

_V6 = """
-- What a list says of a session, and by what it is found: derived from its entries alone, and written with them.
CREATE TABLE listings (
    session_id TEXT PRIMARY KEY,
    created_ts TEXT NOT NULL,
    state      TEXT NOT NULL,
    search     TEXT NOT NULL,
    summary    BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX listings_by_age ON listings (created_ts, session_id, search);
CREATE INDEX listings_by_state ON listings (state, created_ts, session_id, search);
CREATE TABLE listing_terms (
    session_id TEXT NOT NULL,
    term       BLOB NOT NULL,
    created_ts TEXT NOT NULL,
    PRIMARY KEY (session_id, term)
) WITHOUT ROWID;
CREATE INDEX listing_terms_by_age ON listing_terms (term, created_ts, session_id);
"""

MIGRATIONS = (_V1, _V2, _V3, _V4, _V5, _V6)
# From this version on, sessions without a log are sealed.
SEALED_VERSION = 4
# From this version on, entries of spaces are found by their keys.
LOOKUPS_VERSION = 5
# From this version on, sessions are found without reading them.
LISTINGS_VERSION = 6
# Written into the header of the file: "cmbs" in ASCII.
APPLICATION_ID = 0x636D6273


INSERT_LISTING = (
    "INSERT INTO listings VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (session_id) DO UPDATE SET state = excluded.state, summary = excluded.summary"
)
INSERT_TERM = "INSERT INTO listing_terms VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


class SchemaObject(NamedTuple):
    """A table, index, trigger or view, as `sqlite_schema` has it."""

    type: str
    name: str
    table: str
    sql: str | None


def migrate(connection: sqlite3.Connection, wait_until_deadline: Callable[[], None] = lambda: None) -> None:
    """Bring the file to the newest schema; safe while other processes do the same.

    `wait_until_deadline` is called before a lock is waited for.
    """
    if (
        read_pragma(connection, "user_version") == len(MIGRATIONS)
        and read_pragma(connection, "application_id") == APPLICATION_ID
    ):
        return
    wait_until_deadline()
    connection.execute("BEGIN EXCLUSIVE")
    try:
        applied = read_pragma(connection, "user_version")
        _refuse_foreign(connection, applied)
        apply_migrations(connection, applied, len(MIGRATIONS))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def apply_migrations(connection: sqlite3.Connection, applied: int, version: int) -> None:
    """Run the migrations that lead from one version to another, inside the caller's transaction."""
    for migration in MIGRATIONS[applied:version]:
        for statement in _statements(migration):
            connection.execute(statement)
    if applied < SEALED_VERSION <= version:
        _seal_sessions(connection)
    if applied < LOOKUPS_VERSION <= version:
        _write_lookups(connection)
    if applied < LISTINGS_VERSION <= version:
        _write_listings(connection)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _seal_sessions(connection: sqlite3.Connection) -> None:
    for session_id, universe in connection.execute("SELECT session_id, hypothesis_ids FROM universes").fetchall():
        gone = connection.execute(
            "SELECT hypothesis_id FROM tombstones WHERE session_id = ? AND seq IS NULL", (session_id,)
        )
        seal = seal_session(session_id, read_universe(universe), (row[0] for row in gone))
        connection.execute("INSERT INTO seals VALUES (?, ?, ?, ?)", (session_id, *seal))


def _write_lookups(connection: sqlite3.Connection) -> None:
    """Keys of entries that were written before entries had any."""
    rows = connection.execute(
        "SELECT stream_id, seq, CAST(entry AS BLOB) FROM audit_events WHERE stream_id >= ? AND stream_id < ?",
        (SPACE_PREFIX, beyond(SPACE_PREFIX)),
    )
    connection.executemany(
        "INSERT INTO lookup_keys VALUES (?, ?, ?)",
        ((stream_id, key, seq) for stream_id, seq, entry in rows for key in lookup_keys(entry)),
    )


def _write_listings(connection: sqlite3.Connection) -> None:
    """Rows of sessions that were written before there were any."""
    entries = connection.execute(
        "SELECT stream_id, CAST(entry AS BLOB) FROM audit_events WHERE typeof(stream_id) = 'text'"  # noqa: S608
        + NO_OTHER_KIND.format(column="stream_id")
        + " ORDER BY stream_id, seq"
    )
    for listing, terms in index_streams(entries):
        connection.execute(INSERT_LISTING, listing)
        connection.executemany(INSERT_TERM, terms)


def _refuse_foreign(connection: sqlite3.Connection, applied: int) -> None:
    """Refuse a file that another application, or a newer version of this one, wrote."""
    used = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] > 0
    if used and read_pragma(connection, "application_id") != APPLICATION_ID:
        raise sqlite3.DatabaseError("the file is a database of another application")
    refuse_newer(applied)


def refuse_newer(applied: int) -> None:
    """DatabaseError for a version that this software does not know."""
    if applied > len(MIGRATIONS):
        raise sqlite3.DatabaseError(
            f"the file has schema version {applied}, which is newer than this software, which knows {len(MIGRATIONS)}:"
            " use the version of cmbs that wrote it, or a newer one; nothing was changed"
        )


def read_pragma(connection: sqlite3.Connection, name: str) -> int:
    """The number that a PRAGMA gives."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _read_schema(connection: sqlite3.Connection) -> dict[tuple[str, str], SchemaObject]:
    """Every object by type and name, but for the statistics that ANALYZE keeps."""
    rows = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema"
        " WHERE NOT (type = 'table' AND name IN ('sqlite_stat1', 'sqlite_stat4'))"
    )
    return {(row[0], row[1]): SchemaObject(*row) for row in rows}


@cache
def _expect_schema(version: int) -> dict[tuple[str, str], SchemaObject]:
    """What the migrations make of an empty file."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        apply_migrations(connection, 0, version)
        return _read_schema(connection)
    finally:
        connection.close()


def find_schema_faults(connection: sqlite3.Connection) -> list[Finding]:
    """What differs between the schema of the file and the one that the migrations make."""
    stored, expected = _read_schema(connection), _expect_schema(len(MIGRATIONS))
    differing = sorted(key for key in {*stored, *expected} if stored.get(key) != expected.get(key))
    return [_describe_fault(stored.get(key), expected.get(key)) for key in differing]


def _describe_fault(found: SchemaObject | None, wanted: SchemaObject | None) -> Finding:
    either = found or wanted or SchemaObject("", "", "", None)
    name = f"the {either.type} `{either.name}`"
    if found is None:
        what = f"{name} is missing"
    elif wanted is None:
        what = f"{name} on `{found.table}` does not belong here"
    else:
        what = f"{name} was changed: it is {show(found.sql)}, expected {show(wanted.sql)}"
    stored, expected = (None if each is None else each.sql for each in (found, wanted))
    return Finding(what, "sqlite_schema", column=either.name, stored=stored, expected=expected)


def refuse_faulty_schema(connection: sqlite3.Connection) -> None:
    """DatabaseError where something that writing relies on is missing or changed, or a trigger was added.

    Without a trigger, an append would be acknowledged and not found again.
    """
    stored, expected = _read_schema(connection), _expect_schema(len(MIGRATIONS))
    for key in sorted({*stored, *expected}):
        found, wanted = stored.get(key), expected.get(key)
        if found != wanted and (wanted is not None or key[0] == "trigger"):
            raise sqlite3.DatabaseError(
                f"{_describe_fault(found, wanted).what}; nothing was written. `cmbs fsck` says what else differs:"
                " put it back as it was, or restore a backup"
            )


def find_header_faults(connection: sqlite3.Connection) -> list[Finding]:
    """What differs in the header of the file."""
    expected = {"user_version": len(MIGRATIONS), "application_id": APPLICATION_ID}
    findings = []
    for name, wanted in expected.items():
        found = read_pragma(connection, name)
        if found != wanted:
            what = f"it is {found}, expected {wanted}"
            if name == "user_version" and 0 < found < wanted:
                what += ": where an older version wrote the file, this one migrates it when it next opens it to serve"
            findings.append(Finding(what, "header", column=name, stored=found, expected=wanted))
    return findings


def _statements(script: str) -> list[str]:
    """Single statements: `executescript` would commit our transaction first."""
    found, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found
