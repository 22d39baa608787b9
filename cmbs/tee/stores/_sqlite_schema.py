"""The SQLite schema of a graph store.

The graph is a log of changes: each row holds, encoded, the nodes and edges that one version created, and of those that
it changed what was new (a thing that is proposed again and again would otherwise be written whole each time). An
incident's tombstones are a log too. Nothing is ever updated or deleted.
"""

from __future__ import annotations

from cmbs.spi.stored_format import graph_marks
from cmbs.sqlite_files import EARLIER_GRAPH_ID, GRAPH_ID, FileKind

_SCHEMA = """
-- One row.
CREATE TABLE format (
    format      TEXT NOT NULL,
    fingerprint TEXT NOT NULL
);

-- The first row is which Tee this is, the others are Tees that were lost and that it stands in for.
CREATE TABLE identities (
    place  INTEGER PRIMARY KEY,
    tee_id TEXT NOT NULL UNIQUE
);
INSERT INTO identities VALUES (1, lower(hex(randomblob(16))));

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

-- What an incident was created with; those without a universe have no row.
CREATE TABLE universes (
    incident_id TEXT PRIMARY KEY REFERENCES incidents (incident_id),
    -- a tee.Universe message
    universe    BLOB NOT NULL
) WITHOUT ROWID;

-- Nothing is changed or removed.
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
CREATE TRIGGER universes_no_update BEFORE UPDATE ON universes
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER universes_no_delete BEFORE DELETE ON universes
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER identities_no_update BEFORE UPDATE ON identities
BEGIN SELECT RAISE(ABORT, 'identities is append-only'); END;
CREATE TRIGGER identities_no_delete BEFORE DELETE ON identities
BEGIN SELECT RAISE(ABORT, 'identities is append-only'); END;

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
CREATE TRIGGER universes_no_replace BEFORE INSERT ON universes
WHEN EXISTS (SELECT 1 FROM universes WHERE incident_id = NEW.incident_id)
BEGIN SELECT RAISE(ABORT, 'universes is append-only'); END;
CREATE TRIGGER identities_no_replace BEFORE INSERT ON identities
WHEN EXISTS (SELECT 1 FROM identities WHERE place = NEW.place OR tee_id = NEW.tee_id)
BEGIN SELECT RAISE(ABORT, 'identities is append-only'); END;
"""

GRAPH_FILE = FileKind(GRAPH_ID, EARLIER_GRAPH_ID, _SCHEMA, graph_marks)
