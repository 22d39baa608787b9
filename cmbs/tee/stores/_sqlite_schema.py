"""The SQLite schema of a graph store and its migrations; `PRAGMA user_version` counts the ones applied.

The graph is a log of changes: each row holds, encoded, the nodes and edges that one version created, and of those that
it changed what was new (a thing that is proposed again and again would otherwise be written whole each time). An
incident's tombstones are a log too. Nothing is ever updated or deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

_V1 = """
CREATE TABLE graph_changes (
    version INTEGER PRIMARY KEY,
    -- fields 1 and 2 of a tee.CausalGraph message
    nodes   BLOB NOT NULL,
    edges   BLOB NOT NULL
);

CREATE TABLE incidents (
    incident_id     TEXT PRIMARY KEY,
    created_seconds INTEGER NOT NULL,
    created_nanos   INTEGER NOT NULL,
    anchor          INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tombstone_merges (
    incident_id TEXT NOT NULL REFERENCES incidents (incident_id),
    seq         INTEGER NOT NULL,
    -- a tee.Provenance and a tee.TombstoneSet message
    provenance  BLOB NOT NULL,
    tombstones  BLOB NOT NULL,
    PRIMARY KEY (incident_id, seq)
);

-- REPLACE deletes without firing delete triggers, so what is there must be defended on the way in too.
CREATE TRIGGER graph_changes_grow BEFORE INSERT ON graph_changes
WHEN NEW.version <> coalesce((SELECT max(version) FROM graph_changes), 0) + 1
BEGIN SELECT RAISE(ABORT, 'graph_changes is append-only'); END;
CREATE TRIGGER incidents_no_replace BEFORE INSERT ON incidents
WHEN EXISTS (SELECT 1 FROM incidents WHERE incident_id = NEW.incident_id)
BEGIN SELECT RAISE(ABORT, 'incidents is append-only'); END;
CREATE TRIGGER tombstone_merges_grow BEFORE INSERT ON tombstone_merges
WHEN NEW.seq <> coalesce((SELECT max(seq) FROM tombstone_merges WHERE incident_id = NEW.incident_id), 0) + 1
BEGIN SELECT RAISE(ABORT, 'tombstone_merges is append-only'); END;

CREATE TRIGGER graph_changes_no_update BEFORE UPDATE ON graph_changes
BEGIN SELECT RAISE(ABORT, 'graph_changes is append-only'); END;
CREATE TRIGGER graph_changes_no_delete BEFORE DELETE ON graph_changes
BEGIN SELECT RAISE(ABORT, 'graph_changes is append-only'); END;
CREATE TRIGGER incidents_no_update BEFORE UPDATE ON incidents
BEGIN SELECT RAISE(ABORT, 'incidents is append-only'); END;
CREATE TRIGGER incidents_no_delete BEFORE DELETE ON incidents
BEGIN SELECT RAISE(ABORT, 'incidents is append-only'); END;
CREATE TRIGGER tombstone_merges_no_update BEFORE UPDATE ON tombstone_merges
BEGIN SELECT RAISE(ABORT, 'tombstone_merges is append-only'); END;
CREATE TRIGGER tombstone_merges_no_delete BEFORE DELETE ON tombstone_merges
BEGIN SELECT RAISE(ABORT, 'tombstone_merges is append-only'); END;
"""

_V2 = """
-- What an incident was created with; those without a universe have no row.
CREATE TABLE universes (
    incident_id TEXT PRIMARY KEY REFERENCES incidents (incident_id),
    -- a tee.Universe message
    universe    BLOB NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER universes_no_replace BEFORE INSERT ON universes
WHEN EXISTS (SELECT 1 FROM universes WHERE incident_id = NEW.incident_id)
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER universes_no_update BEFORE UPDATE ON universes
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER universes_no_delete BEFORE DELETE ON universes
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
"""

_V3 = """
-- The first row is which Tee this is, the others are Tees that were lost and that it stands in for.
CREATE TABLE identities (
    place  INTEGER PRIMARY KEY,
    tee_id TEXT NOT NULL UNIQUE
);
INSERT INTO identities VALUES (1, lower(hex(randomblob(16))));
CREATE TRIGGER identities_no_replace BEFORE INSERT ON identities
WHEN EXISTS (SELECT 1 FROM identities WHERE place = NEW.place OR tee_id = NEW.tee_id)
BEGIN SELECT RAISE(ABORT, 'identities is append-only'); END;
CREATE TRIGGER identities_no_update BEFORE UPDATE ON identities
BEGIN SELECT RAISE(ABORT, 'identities is append-only'); END;
CREATE TRIGGER identities_no_delete BEFORE DELETE ON identities
BEGIN SELECT RAISE(ABORT, 'identities is append-only'); END;
"""

MIGRATIONS = (_V1, _V2, _V3)
# Written into the header of the file: "ctee" in ASCII.
APPLICATION_ID = 0x63746565


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to the newest schema; safe while other processes do the same."""
    with transaction(connection, "BEGIN EXCLUSIVE"):
        applied = _pragma(connection, "user_version")
        used = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] > 0
        if used and _pragma(connection, "application_id") != APPLICATION_ID:
            raise sqlite3.DatabaseError("the file is a database of another application")
        if applied > len(MIGRATIONS):
            raise sqlite3.DatabaseError(f"schema version {applied} is newer than this software ({len(MIGRATIONS)})")
        for migration in MIGRATIONS[applied:]:
            for statement in _statements(migration):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """Commit what the block does, or roll it back where the block raises."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite rolls back by itself after some errors.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _statements(script: str) -> list[str]:
    """Single statements: `executescript` would commit our transaction first."""
    found, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found
