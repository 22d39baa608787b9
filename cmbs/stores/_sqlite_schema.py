"""The SQLite schema, and how the one of a file is compared with it."""

from __future__ import annotations

import sqlite3
from functools import cache
from typing import NamedTuple

from cmbs.spi.stored_format import log_marks
from cmbs.spi.stored_rows import Finding, show
from cmbs.sqlite_files import EARLIER_LOG_ID, LOG_ID, FileKind, fill_file

_SCHEMA = """
-- What the entries in this file are written in; one row.
CREATE TABLE format (
    format      TEXT NOT NULL,
    fingerprint TEXT NOT NULL
);

-- Where each stream ends. Written by the triggers on audit_events alone.
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

-- The entry is the truth; the other columns are copies for the guards and triggers below. The order of the rows is the
-- journal.
CREATE TABLE audit_events (
    stream_id       TEXT NOT NULL,
    seq             INTEGER NOT NULL,
    event_id        TEXT NOT NULL,
    prev_event_hash BLOB NOT NULL,
    event_hash      BLOB NOT NULL,
    ts              TEXT NOT NULL,
    -- For the observation of a session, or whatever else may be in a stream only once.
    source_id       TEXT,
    observation_id  TEXT,
    universe_size   INTEGER NOT NULL,
    n_survivors     INTEGER NOT NULL,
    terminated      INTEGER NOT NULL,
    entry           BLOB NOT NULL,
    PRIMARY KEY (stream_id, seq),
    UNIQUE (stream_id, prev_event_hash),
    UNIQUE (stream_id, source_id, observation_id)
);

-- Under which keys entries of spaces are found again; what an entry's keys are follows from its bytes alone.
CREATE TABLE lookup_keys (
    stream_id TEXT NOT NULL,
    key       INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    PRIMARY KEY (stream_id, key, seq)
) WITHOUT ROWID;

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

-- Sessions that use this file as an elimination store alone. The others have their universe in the declaration, and
-- what an event eliminated in its entry: a second copy of it would cost a third of an append, and could only disagree.
CREATE TABLE universes (
    session_id     TEXT PRIMARY KEY,
    hypothesis_ids BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE tombstones (
    session_id    TEXT NOT NULL,
    hypothesis_id TEXT NOT NULL,
    PRIMARY KEY (session_id, hypothesis_id)
) WITHOUT ROWID;
-- Such a session has no chain of hashes that would show a change.
CREATE TABLE seals (
    session_id        TEXT PRIMARY KEY,
    universe_digest   BLOB NOT NULL,
    tombstones_digest BLOB NOT NULL,
    digest            BLOB NOT NULL
) WITHOUT ROWID;

-- For people. JSON functions cut text at a NUL, so an id with one in it is shown short here, and only here.
CREATE VIEW eliminations AS
    SELECT stream_id AS session_id, value AS hypothesis_id, seq
    FROM audit_events, json_each(CAST(entry AS TEXT), '$.delta.eliminated')
    UNION
    SELECT session_id, hypothesis_id, NULL FROM tombstones;

-- An entry is appended to the head of its stream, and moves it.
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
CREATE TRIGGER sessions_only_forward BEFORE UPDATE ON sessions
WHEN NEW.head_seq <> OLD.head_seq + 1 OR NEW.session_id <> OLD.session_id OR NEW.created_ts <> OLD.created_ts
    OR NEW.universe_size <> OLD.universe_size OR NEW.n_survivors > OLD.n_survivors OR NEW.terminated < OLD.terminated
BEGIN SELECT RAISE(ABORT, 'a session only moves forward'); END;

-- An open intent comes first.
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

-- What was written is neither changed nor removed.
CREATE TRIGGER audit_events_no_update BEFORE UPDATE ON audit_events
BEGIN SELECT RAISE(ABORT, 'audit_events is append-only'); END;
CREATE TRIGGER audit_events_no_delete BEFORE DELETE ON audit_events
BEGIN SELECT RAISE(ABORT, 'audit_events is append-only'); END;
CREATE TRIGGER sessions_no_delete BEFORE DELETE ON sessions
BEGIN SELECT RAISE(ABORT, 'sessions is append-only'); END;
CREATE TRIGGER lookup_keys_no_update BEFORE UPDATE ON lookup_keys
BEGIN SELECT RAISE(ABORT, 'lookup_keys is append-only'); END;
CREATE TRIGGER lookup_keys_no_delete BEFORE DELETE ON lookup_keys
BEGIN SELECT RAISE(ABORT, 'lookup_keys is append-only'); END;
CREATE TRIGGER universes_no_update BEFORE UPDATE ON universes
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER universes_no_delete BEFORE DELETE ON universes
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER tombstones_no_update BEFORE UPDATE ON tombstones
BEGIN SELECT RAISE(ABORT, 'tombstones is append-only'); END;
CREATE TRIGGER tombstones_no_delete BEFORE DELETE ON tombstones
BEGIN SELECT RAISE(ABORT, 'tombstones is append-only'); END;

-- REPLACE deletes without firing delete triggers, so what is there must be defended on the way in too.
CREATE TRIGGER audit_events_no_replace BEFORE INSERT ON audit_events
WHEN EXISTS (SELECT 1 FROM audit_events WHERE stream_id = NEW.stream_id AND seq = NEW.seq)
    OR EXISTS (
        SELECT 1 FROM audit_events WHERE stream_id = NEW.stream_id AND prev_event_hash = NEW.prev_event_hash)
    OR EXISTS (
        SELECT 1 FROM audit_events
        WHERE stream_id = NEW.stream_id AND source_id = NEW.source_id AND observation_id = NEW.observation_id)
BEGIN SELECT RAISE(ABORT, 'stale head'); END;
CREATE TRIGGER sessions_no_replace BEFORE INSERT ON sessions
WHEN EXISTS (SELECT 1 FROM sessions WHERE session_id = NEW.session_id)
BEGIN SELECT RAISE(ABORT, 'stale head'); END;
CREATE TRIGGER lookup_keys_no_replace BEFORE INSERT ON lookup_keys
WHEN EXISTS (SELECT 1 FROM lookup_keys WHERE stream_id = NEW.stream_id AND key = NEW.key AND seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'lookup_keys is append-only'); END;
CREATE TRIGGER universes_no_replace BEFORE INSERT ON universes
WHEN EXISTS (SELECT 1 FROM universes WHERE session_id = NEW.session_id)
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER tombstones_no_replace BEFORE INSERT ON tombstones
WHEN EXISTS (SELECT 1 FROM tombstones WHERE session_id = NEW.session_id AND hypothesis_id = NEW.hypothesis_id)
BEGIN SELECT RAISE(ABORT, 'tombstones is append-only'); END;
"""

LOG_FILE = FileKind(LOG_ID, EARLIER_LOG_ID, _SCHEMA, log_marks)

INSERT_LISTING = (
    "INSERT INTO listings VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (session_id) DO UPDATE"
    " SET state = excluded.state, search = excluded.search, summary = excluded.summary"
)
INSERT_TERM = "INSERT INTO listing_terms VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
DELETE_TERM = "DELETE FROM listing_terms WHERE session_id = ? AND term = ? AND created_ts = ?"


class SchemaObject(NamedTuple):
    """A table, index, trigger or view, as `sqlite_schema` has it."""

    type: str
    name: str
    table: str
    sql: str | None


def _read_schema(connection: sqlite3.Connection) -> dict[tuple[str, str], SchemaObject]:
    """Every object by type and name, but for the statistics that ANALYZE keeps."""
    rows = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema"
        " WHERE NOT (type = 'table' AND name IN ('sqlite_stat1', 'sqlite_stat4'))"
    )
    return {(row[0], row[1]): SchemaObject(*row) for row in rows}


@cache
def expect_schema() -> dict[tuple[str, str], SchemaObject]:
    """What is made of an empty file."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        fill_file(connection, LOG_FILE)
        return _read_schema(connection)
    finally:
        connection.close()


def find_schema_faults(connection: sqlite3.Connection) -> list[Finding]:
    """What differs between the schema of the file and the one that is made of an empty file."""
    stored, expected = _read_schema(connection), expect_schema()
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
    stored, expected = _read_schema(connection), expect_schema()
    for key in sorted({*stored, *expected}):
        found, wanted = stored.get(key), expected.get(key)
        if found != wanted and (wanted is not None or key[0] == "trigger"):
            raise sqlite3.DatabaseError(
                f"{_describe_fault(found, wanted).what}; nothing was written. `cmbs fsck` says what else differs:"
                " put it back as it was, or restore a backup"
            )
