"""The PostgreSQL schema and its migrations. Several processes may migrate at once: a lock lets one go first."""

from __future__ import annotations

from typing import Any

import psycopg

from cmbs.ledger.lookup_keys import lookup_keys
from cmbs.spi.audit_log import SPACE_PREFIX, beyond
from cmbs.stores import _postgres_journal
from cmbs.stores.session_search import NO_OTHER_KIND, index_streams
from cmbs.stores.tombstones import read_universe, seal_session

STALE_HEAD = "CM001"
APPEND_ONLY = "CM002"

# Ids of callers are bytea: they may hold any character, and PostgreSQL's text cannot hold a NUL.
_V1 = r"""
CREATE TABLE cmbs.sessions (
    session_id    text COLLATE "C" PRIMARY KEY,
    created_ts    text COLLATE "C" NOT NULL,
    universe_size bigint NOT NULL,
    n_survivors   bigint NOT NULL,
    terminated    boolean NOT NULL,
    head_seq      bigint NOT NULL,
    head_event_id text NOT NULL,
    head_hash     bytea NOT NULL
);
CREATE INDEX sessions_by_age ON cmbs.sessions (created_ts, session_id);

CREATE TABLE cmbs.audit_events (
    stream_id       text COLLATE "C" NOT NULL,
    seq             bigint NOT NULL,
    event_id        text NOT NULL,
    prev_event_hash bytea NOT NULL,
    event_hash      bytea NOT NULL,
    ts              text NOT NULL,
    source_id       bytea,
    observation_id  bytea,
    entry           bytea NOT NULL,
    PRIMARY KEY (stream_id, seq),
    UNIQUE (stream_id, prev_event_hash),
    UNIQUE (stream_id, source_id, observation_id)
);

CREATE TABLE cmbs.tombstones (
    session_id    text COLLATE "C" NOT NULL,
    hypothesis_id bytea NOT NULL,
    seq           bigint,
    PRIMARY KEY (session_id, hypothesis_id)
);

CREATE TABLE cmbs.universes (
    session_id     text COLLATE "C" PRIMARY KEY,
    hypothesis_ids bytea NOT NULL
);

-- Derived data, that only saves time: may be deleted at any moment.
CREATE TABLE cmbs.checkpoints (
    session_id text COLLATE "C" PRIMARY KEY,
    seq        bigint NOT NULL,
    data       bytea NOT NULL
);

-- Entries that are being carried out elsewhere: no other entry may be appended before them.
CREATE TABLE cmbs.intents (
    stream_id  text COLLATE "C" PRIMARY KEY,
    seq        bigint NOT NULL,
    event_hash bytea NOT NULL,
    entry      bytea NOT NULL
);

CREATE FUNCTION cmbs.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'CM002';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cmbs.audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION cmbs.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cmbs.tombstones
    FOR EACH STATEMENT EXECUTE FUNCTION cmbs.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cmbs.universes
    FOR EACH STATEMENT EXECUTE FUNCTION cmbs.refuse_change();
CREATE TRIGGER no_delete BEFORE DELETE OR TRUNCATE ON cmbs.sessions
    FOR EACH STATEMENT EXECUTE FUNCTION cmbs.refuse_change();

CREATE FUNCTION cmbs.only_forward() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.head_seq <= OLD.head_seq OR NEW.session_id <> OLD.session_id OR NEW.created_ts <> OLD.created_ts
        OR NEW.universe_size <> OLD.universe_size OR NEW.n_survivors > OLD.n_survivors
        OR (OLD.terminated AND NOT NEW.terminated) THEN
        RAISE EXCEPTION 'a session only moves forward' USING ERRCODE = 'CM002';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER only_forward BEFORE UPDATE ON cmbs.sessions FOR EACH ROW EXECUTE FUNCTION cmbs.only_forward();

-- One call, one round trip, one commit for a whole group. The rows of the heads are locked in one order, so that groups
-- of several processes wait for each other in a line and never in a circle.
CREATE FUNCTION cmbs.append_events(
    stream_ids text[], seqs bigint[], event_ids text[], prev_hashes bytea[], hashes bytea[], tss text[],
    source_ids bytea[], observation_ids bytea[], universe_sizes bigint[], survivor_counts bigint[],
    terminations boolean[], entries bytea[], tombstone_rows int[], tombstone_ids bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM cmbs.sessions WHERE session_id = ANY (stream_ids) ORDER BY session_id FOR UPDATE;
    IF EXISTS (
        SELECT 1
        FROM (
            SELECT n.stream_id, n.seq, n.prev_hash,
                   lag(n.seq) OVER w AS before_seq, lag(n.hash) OVER w AS before_hash
            FROM unnest(stream_ids, seqs, prev_hashes, hashes) AS n (stream_id, seq, prev_hash, hash)
            WINDOW w AS (PARTITION BY n.stream_id ORDER BY n.seq)
        ) AS new
        LEFT JOIN cmbs.sessions AS s ON s.session_id = new.stream_id
        WHERE new.seq <> coalesce(new.before_seq, s.head_seq, -1) + 1
           OR new.prev_hash <> coalesce(new.before_hash, s.head_hash, decode(repeat('00', 32), 'hex'))
    ) THEN
        RAISE EXCEPTION 'stale head' USING ERRCODE = 'CM001';
    END IF;
    IF EXISTS (
        SELECT 1 FROM cmbs.intents WHERE stream_id = ANY (stream_ids) AND NOT event_hash = ANY (hashes)
    ) THEN
        RAISE EXCEPTION 'stale head: an intent is open' USING ERRCODE = 'CM001';
    END IF;
    DELETE FROM cmbs.intents WHERE stream_id = ANY (stream_ids);
    INSERT INTO cmbs.audit_events
    SELECT * FROM unnest(
        stream_ids, seqs, event_ids, prev_hashes, hashes, tss, source_ids, observation_ids, entries);
    INSERT INTO cmbs.sessions AS s
    SELECT n.stream_id,
        (array_agg(n.ts ORDER BY n.seq))[1], max(n.universe_size),
        (array_agg(n.n_survivors ORDER BY n.seq DESC))[1], (array_agg(n.terminated ORDER BY n.seq DESC))[1],
        max(n.seq), (array_agg(n.event_id ORDER BY n.seq DESC))[1], (array_agg(n.hash ORDER BY n.seq DESC))[1]
    FROM unnest(stream_ids, tss, universe_sizes, survivor_counts, terminations, seqs, event_ids, hashes)
        AS n (stream_id, ts, universe_size, n_survivors, terminated, seq, event_id, hash)
    GROUP BY n.stream_id
    ON CONFLICT (session_id) DO UPDATE SET
        head_seq = EXCLUDED.head_seq, head_event_id = EXCLUDED.head_event_id, head_hash = EXCLUDED.head_hash,
        n_survivors = EXCLUDED.n_survivors, terminated = EXCLUDED.terminated;
    INSERT INTO cmbs.tombstones
    SELECT stream_ids[t.position], t.hypothesis_id, seqs[t.position]
    FROM unnest(tombstone_rows, tombstone_ids) AS t (position, hypothesis_id)
    ON CONFLICT DO NOTHING;
END $$;
"""

_V2 = """
-- Read whole or not at all, and mostly ids, which do not compress: packing and unpacking cost more than the bytes.
ALTER TABLE cmbs.checkpoints ALTER COLUMN data SET STORAGE EXTERNAL;
"""

# The last two arguments are not looked at: processes of version 2 go on calling with them.
_V3 = r"""
-- What an event eliminated stands in its entry; a row for each id cost more than the entry, and could only disagree.
-- The table keeps the tombstones of sessions that have no log here.
CREATE OR REPLACE FUNCTION cmbs.append_events(
    stream_ids text[], seqs bigint[], event_ids text[], prev_hashes bytea[], hashes bytea[], tss text[],
    source_ids bytea[], observation_ids bytea[], universe_sizes bigint[], survivor_counts bigint[],
    terminations boolean[], entries bytea[], tombstone_rows int[], tombstone_ids bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM cmbs.sessions WHERE session_id = ANY (stream_ids) ORDER BY session_id FOR UPDATE;
    IF EXISTS (
        SELECT 1
        FROM (
            SELECT n.stream_id, n.seq, n.prev_hash,
                   lag(n.seq) OVER w AS before_seq, lag(n.hash) OVER w AS before_hash
            FROM unnest(stream_ids, seqs, prev_hashes, hashes) AS n (stream_id, seq, prev_hash, hash)
            WINDOW w AS (PARTITION BY n.stream_id ORDER BY n.seq)
        ) AS new
        LEFT JOIN cmbs.sessions AS s ON s.session_id = new.stream_id
        WHERE new.seq <> coalesce(new.before_seq, s.head_seq, -1) + 1
           OR new.prev_hash <> coalesce(new.before_hash, s.head_hash, decode(repeat('00', 32), 'hex'))
    ) THEN
        RAISE EXCEPTION 'stale head' USING ERRCODE = 'CM001';
    END IF;
    IF EXISTS (
        SELECT 1 FROM cmbs.intents WHERE stream_id = ANY (stream_ids) AND NOT event_hash = ANY (hashes)
    ) THEN
        RAISE EXCEPTION 'stale head: an intent is open' USING ERRCODE = 'CM001';
    END IF;
    DELETE FROM cmbs.intents WHERE stream_id = ANY (stream_ids);
    INSERT INTO cmbs.audit_events
    SELECT * FROM unnest(
        stream_ids, seqs, event_ids, prev_hashes, hashes, tss, source_ids, observation_ids, entries);
    INSERT INTO cmbs.sessions AS s
    SELECT n.stream_id,
        (array_agg(n.ts ORDER BY n.seq))[1], max(n.universe_size),
        (array_agg(n.n_survivors ORDER BY n.seq DESC))[1], (array_agg(n.terminated ORDER BY n.seq DESC))[1],
        max(n.seq), (array_agg(n.event_id ORDER BY n.seq DESC))[1], (array_agg(n.hash ORDER BY n.seq DESC))[1]
    FROM unnest(stream_ids, tss, universe_sizes, survivor_counts, terminations, seqs, event_ids, hashes)
        AS n (stream_id, ts, universe_size, n_survivors, terminated, seq, event_id, hash)
    GROUP BY n.stream_id
    ON CONFLICT (session_id) DO UPDATE SET
        head_seq = EXCLUDED.head_seq, head_event_id = EXCLUDED.head_event_id, head_hash = EXCLUDED.head_hash,
        n_survivors = EXCLUDED.n_survivors, terminated = EXCLUDED.terminated;
END $$;

ALTER TABLE cmbs.tombstones DISABLE TRIGGER append_only;
CREATE TABLE cmbs.remaining_tombstones AS SELECT * FROM cmbs.tombstones AS t
    WHERE t.seq IS NULL OR NOT EXISTS (SELECT 1 FROM cmbs.sessions AS s WHERE s.session_id = t.session_id);
TRUNCATE cmbs.tombstones;
INSERT INTO cmbs.tombstones SELECT * FROM cmbs.remaining_tombstones;
DROP TABLE cmbs.remaining_tombstones;
ALTER TABLE cmbs.tombstones ENABLE TRIGGER append_only;

-- Derived data from before the chain could vouch for it: it is never believed, and would be found by every check.
DELETE FROM cmbs.checkpoints;

-- A session without a log has no chain of hashes that would show a change.
CREATE TABLE cmbs.seals (
    session_id        text COLLATE "C" PRIMARY KEY,
    universe_digest   bytea NOT NULL,
    tombstones_digest bytea NOT NULL,
    digest            bytea NOT NULL
);
"""

_V4 = r"""
-- Under which keys entries of spaces are found again; what an entry's keys are follows from its bytes alone.
CREATE TABLE cmbs.lookup_keys (
    stream_id text COLLATE "C" NOT NULL,
    key       bigint NOT NULL,
    seq       bigint NOT NULL,
    PRIMARY KEY (stream_id, key, seq)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cmbs.lookup_keys
    FOR EACH STATEMENT EXECUTE FUNCTION cmbs.refuse_change();

CREATE FUNCTION cmbs.append_entries(
    stream_ids text[], seqs bigint[], event_ids text[], prev_hashes bytea[], hashes bytea[], tss text[],
    source_ids bytea[], observation_ids bytea[], universe_sizes bigint[], survivor_counts bigint[],
    terminations boolean[], entries bytea[], lookup_positions int[], lookup_keys bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM cmbs.sessions WHERE session_id = ANY (stream_ids) ORDER BY session_id FOR UPDATE;
    IF EXISTS (
        SELECT 1
        FROM (
            SELECT n.stream_id, n.seq, n.prev_hash,
                   lag(n.seq) OVER w AS before_seq, lag(n.hash) OVER w AS before_hash
            FROM unnest(stream_ids, seqs, prev_hashes, hashes) AS n (stream_id, seq, prev_hash, hash)
            WINDOW w AS (PARTITION BY n.stream_id ORDER BY n.seq)
        ) AS new
        LEFT JOIN cmbs.sessions AS s ON s.session_id = new.stream_id
        WHERE new.seq <> coalesce(new.before_seq, s.head_seq, -1) + 1
           OR new.prev_hash <> coalesce(new.before_hash, s.head_hash, decode(repeat('00', 32), 'hex'))
    ) THEN
        RAISE EXCEPTION 'stale head' USING ERRCODE = 'CM001';
    END IF;
    IF EXISTS (
        SELECT 1 FROM cmbs.intents WHERE stream_id = ANY (stream_ids) AND NOT event_hash = ANY (hashes)
    ) THEN
        RAISE EXCEPTION 'stale head: an intent is open' USING ERRCODE = 'CM001';
    END IF;
    DELETE FROM cmbs.intents WHERE stream_id = ANY (stream_ids);
    INSERT INTO cmbs.audit_events
    SELECT * FROM unnest(
        stream_ids, seqs, event_ids, prev_hashes, hashes, tss, source_ids, observation_ids, entries);
    INSERT INTO cmbs.sessions AS s
    SELECT n.stream_id,
        (array_agg(n.ts ORDER BY n.seq))[1], max(n.universe_size),
        (array_agg(n.n_survivors ORDER BY n.seq DESC))[1], (array_agg(n.terminated ORDER BY n.seq DESC))[1],
        max(n.seq), (array_agg(n.event_id ORDER BY n.seq DESC))[1], (array_agg(n.hash ORDER BY n.seq DESC))[1]
    FROM unnest(stream_ids, tss, universe_sizes, survivor_counts, terminations, seqs, event_ids, hashes)
        AS n (stream_id, ts, universe_size, n_survivors, terminated, seq, event_id, hash)
    GROUP BY n.stream_id
    ON CONFLICT (session_id) DO UPDATE SET
        head_seq = EXCLUDED.head_seq, head_event_id = EXCLUDED.head_event_id, head_hash = EXCLUDED.head_hash,
        n_survivors = EXCLUDED.n_survivors, terminated = EXCLUDED.terminated;
    INSERT INTO cmbs.lookup_keys
    SELECT stream_ids[l.position], l.key, seqs[l.position]
    FROM unnest(lookup_positions, lookup_keys) AS l (position, key);
END $$;

-- Processes of an older version would write entries without their keys: what is not found would count as new.
CREATE OR REPLACE FUNCTION cmbs.append_events(
    stream_ids text[], seqs bigint[], event_ids text[], prev_hashes bytea[], hashes bytea[], tss text[],
    source_ids bytea[], observation_ids bytea[], universe_sizes bigint[], survivor_counts bigint[],
    terminations boolean[], entries bytea[], tombstone_rows int[], tombstone_ids bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the database was migrated to a newer schema: restart with the version of cmbs that did it'
        USING ERRCODE = 'CM003';
END $$;
"""

_V5 = r"""
-- What a list says of a session, and by what it is found: derived from its entries alone, and written with them.
CREATE TABLE cmbs.listings (
    session_id text COLLATE "C" PRIMARY KEY,
    created_ts text COLLATE "C" NOT NULL,
    state      text COLLATE "C" NOT NULL,
    search     text COLLATE "C" NOT NULL,
    summary    bytea NOT NULL
);
CREATE INDEX listings_by_age ON cmbs.listings (created_ts, session_id);
CREATE INDEX listings_by_state ON cmbs.listings (state, created_ts, session_id);
CREATE TABLE cmbs.listing_terms (
    session_id text COLLATE "C" NOT NULL,
    term       bytea NOT NULL,
    created_ts text COLLATE "C" NOT NULL,
    PRIMARY KEY (session_id, term)
);
CREATE INDEX listing_terms_by_age ON cmbs.listing_terms (term, created_ts, session_id);

CREATE FUNCTION cmbs.append_indexed(
    stream_ids text[], seqs bigint[], event_ids text[], prev_hashes bytea[], hashes bytea[], tss text[],
    source_ids bytea[], observation_ids bytea[], universe_sizes bigint[], survivor_counts bigint[],
    terminations boolean[], entries bytea[], lookup_positions int[], lookup_keys bigint[],
    listed_ids text[], listed_tss text[], states text[], searches text[], summaries bytea[],
    found_ids text[], terms bytea[], found_tss text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM cmbs.sessions WHERE session_id = ANY (stream_ids) ORDER BY session_id FOR UPDATE;
    IF EXISTS (
        SELECT 1
        FROM (
            SELECT n.stream_id, n.seq, n.prev_hash,
                   lag(n.seq) OVER w AS before_seq, lag(n.hash) OVER w AS before_hash
            FROM unnest(stream_ids, seqs, prev_hashes, hashes) AS n (stream_id, seq, prev_hash, hash)
            WINDOW w AS (PARTITION BY n.stream_id ORDER BY n.seq)
        ) AS new
        LEFT JOIN cmbs.sessions AS s ON s.session_id = new.stream_id
        WHERE new.seq <> coalesce(new.before_seq, s.head_seq, -1) + 1
           OR new.prev_hash <> coalesce(new.before_hash, s.head_hash, decode(repeat('00', 32), 'hex'))
    ) THEN
        RAISE EXCEPTION 'stale head' USING ERRCODE = 'CM001';
    END IF;
    IF EXISTS (
        SELECT 1 FROM cmbs.intents WHERE stream_id = ANY (stream_ids) AND NOT event_hash = ANY (hashes)
    ) THEN
        RAISE EXCEPTION 'stale head: an intent is open' USING ERRCODE = 'CM001';
    END IF;
    DELETE FROM cmbs.intents WHERE stream_id = ANY (stream_ids);
    INSERT INTO cmbs.audit_events
    SELECT * FROM unnest(
        stream_ids, seqs, event_ids, prev_hashes, hashes, tss, source_ids, observation_ids, entries);
    INSERT INTO cmbs.sessions AS s
    SELECT n.stream_id,
        (array_agg(n.ts ORDER BY n.seq))[1], max(n.universe_size),
        (array_agg(n.n_survivors ORDER BY n.seq DESC))[1], (array_agg(n.terminated ORDER BY n.seq DESC))[1],
        max(n.seq), (array_agg(n.event_id ORDER BY n.seq DESC))[1], (array_agg(n.hash ORDER BY n.seq DESC))[1]
    FROM unnest(stream_ids, tss, universe_sizes, survivor_counts, terminations, seqs, event_ids, hashes)
        AS n (stream_id, ts, universe_size, n_survivors, terminated, seq, event_id, hash)
    GROUP BY n.stream_id
    ON CONFLICT (session_id) DO UPDATE SET
        head_seq = EXCLUDED.head_seq, head_event_id = EXCLUDED.head_event_id, head_hash = EXCLUDED.head_hash,
        n_survivors = EXCLUDED.n_survivors, terminated = EXCLUDED.terminated;
    INSERT INTO cmbs.lookup_keys
    SELECT stream_ids[l.position], l.key, seqs[l.position]
    FROM unnest(lookup_positions, lookup_keys) AS l (position, key);
    INSERT INTO cmbs.listings AS kept SELECT * FROM unnest(listed_ids, listed_tss, states, searches, summaries)
    ON CONFLICT (session_id) DO UPDATE SET state = EXCLUDED.state, summary = EXCLUDED.summary;
    INSERT INTO cmbs.listing_terms SELECT * FROM unnest(found_ids, terms, found_tss) ON CONFLICT DO NOTHING;
END $$;

-- Processes of an older version would write entries that lists know nothing of.
CREATE OR REPLACE FUNCTION cmbs.append_entries(
    stream_ids text[], seqs bigint[], event_ids text[], prev_hashes bytea[], hashes bytea[], tss text[],
    source_ids bytea[], observation_ids bytea[], universe_sizes bigint[], survivor_counts bigint[],
    terminations boolean[], entries bytea[], lookup_positions int[], lookup_keys bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the database was migrated to a newer schema: restart with the version of cmbs that did it'
        USING ERRCODE = 'CM003';
END $$;
"""

# Entries of all streams in one order.
_V6 = _postgres_journal.SCHEMA

MIGRATIONS = (_V1, _V2, _V3, _V4, _V5, _V6)
# From this version on, sessions without a log are sealed.
SEALED_VERSION = 3
# From this version on, entries of spaces are found by their keys.
LOOKUPS_VERSION = 4
# From this version on, sessions are found without reading them.
LISTINGS_VERSION = 5
_LOCK = 0x636D6273


def migrate(connection: psycopg.Connection[Any], newest: int = len(MIGRATIONS)) -> None:
    """Bring the database to the newest schema."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute("CREATE SCHEMA IF NOT EXISTS cmbs")
        connection.execute("CREATE TABLE IF NOT EXISTS cmbs.migrations (version int PRIMARY KEY)")
        applied = read_version(connection)
        refuse_newer(applied)
        for version, migration in enumerate(MIGRATIONS[applied:newest], applied + 1):
            connection.execute(migration.encode())
            if version == SEALED_VERSION:
                _seal_sessions(connection)
            if version == LOOKUPS_VERSION:
                _write_lookups(connection)
            if version == LISTINGS_VERSION:
                _write_listings(connection)
            connection.execute("INSERT INTO cmbs.migrations (version) VALUES (%s)", (version,))
        if newest == len(MIGRATIONS):
            _postgres_journal.rebase_journal(connection)


def read_version(connection: psycopg.Connection[Any]) -> int:
    """The newest migration that was applied."""
    row = connection.execute("SELECT coalesce(max(version), 0) FROM cmbs.migrations").fetchone()
    return int(row[0]) if row else 0


def refuse_newer(applied: int) -> None:
    """DatabaseError for a version that this software does not know."""
    if applied > len(MIGRATIONS):
        raise psycopg.DatabaseError(
            f"the database has schema version {applied}, which is newer than this software, which knows"
            f" {len(MIGRATIONS)}: use the version of cmbs that wrote it, or a newer one; nothing was changed"
        )


def _seal_sessions(connection: psycopg.Connection[Any]) -> None:
    for session_id, universe in connection.execute("SELECT session_id, hypothesis_ids FROM cmbs.universes").fetchall():
        rows = connection.execute(
            "SELECT hypothesis_id FROM cmbs.tombstones WHERE session_id = %s AND seq IS NULL", (session_id,)
        )
        seal = seal_session(session_id, read_universe(universe), [row[0].decode() for row in rows])
        connection.execute("INSERT INTO cmbs.seals VALUES (%s, %s, %s, %s)", (session_id, *seal))


def _write_lookups(connection: psycopg.Connection[Any]) -> None:
    """Keys of entries that were written before entries had any."""
    with connection.cursor("cmbs_spaces", binary=True) as entries, connection.cursor() as writing:
        entries.execute(
            "SELECT stream_id, seq, entry FROM cmbs.audit_events WHERE stream_id >= %s AND stream_id < %s",
            (SPACE_PREFIX, beyond(SPACE_PREFIX)),
        )
        for stream_id, seq, entry in entries:
            writing.execute(
                "INSERT INTO cmbs.lookup_keys SELECT %s, unnest(%s::bigint[]), %s", (stream_id, lookup_keys(entry), seq)
            )


def _write_listings(connection: psycopg.Connection[Any]) -> None:
    """Rows of sessions that were written before there were any."""
    with connection.cursor("cmbs_sessions", binary=True) as entries, connection.cursor() as writing:
        entries.execute(
            b"SELECT stream_id, entry FROM cmbs.audit_events WHERE true"
            + NO_OTHER_KIND.format(column="stream_id").encode()
            + b" ORDER BY stream_id, seq"
        )
        for listing, terms in index_streams(entries):
            writing.execute("INSERT INTO cmbs.listings VALUES (%s, %s, %s, %s, %s)", listing)
            writing.executemany("INSERT INTO cmbs.listing_terms VALUES (%s, %s, %s)", terms)
