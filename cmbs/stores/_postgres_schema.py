"""The PostgreSQL schema. Several processes may make it at once: a lock lets one go first."""

from __future__ import annotations

from typing import Any

import psycopg

from cmbs.spi.stored_format import log_marks, refuse_earlier, refuse_foreign, refuse_other_marks, refuse_unmarked
from cmbs.stores._postgres_journal import rebase_journal

STALE_HEAD = "CM001"
APPEND_ONLY = "CM002"
_LOCK = 0x636D6273

# Ids of callers are bytea: they may hold any character, and PostgreSQL's text cannot hold a NUL.
SCHEMA = r"""
-- What the entries in this database are written in; one row.
CREATE TABLE cmbs.format (
    format      text NOT NULL,
    fingerprint text NOT NULL
);

-- Where each stream ends.
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

-- The entry is the truth; the other columns are copies for the guards below.
CREATE TABLE cmbs.audit_events (
    stream_id       text COLLATE "C" NOT NULL,
    seq             bigint NOT NULL,
    event_id        text NOT NULL,
    prev_event_hash bytea NOT NULL,
    event_hash      bytea NOT NULL,
    ts              text NOT NULL,
    -- For the observation of a session, or whatever else may be in a stream only once.
    source_id       bytea,
    observation_id  bytea,
    entry           bytea NOT NULL,
    PRIMARY KEY (stream_id, seq),
    UNIQUE (stream_id, prev_event_hash),
    UNIQUE (stream_id, source_id, observation_id)
);

-- Entries of all streams in one order: those of one stream that were written at once, from `seq` to `last_seq`.
CREATE TABLE cmbs.journal (
    stream_id text COLLATE "C" NOT NULL,
    seq       bigint NOT NULL,
    last_seq  bigint NOT NULL,
    position  bigint NOT NULL,
    PRIMARY KEY (stream_id, seq)
);
CREATE INDEX journal_in_order ON cmbs.journal (position, stream_id, seq);
-- What is added to ids of transactions: a database that is restored elsewhere finds lower ones there.
CREATE TABLE cmbs.journal_base (base bigint NOT NULL);
INSERT INTO cmbs.journal_base VALUES (0);

-- Under which keys entries of spaces are found again; what an entry's keys are follows from its bytes alone.
CREATE TABLE cmbs.lookup_keys (
    stream_id text COLLATE "C" NOT NULL,
    key       bigint NOT NULL,
    seq       bigint NOT NULL,
    PRIMARY KEY (stream_id, key, seq)
);

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

-- Derived data, that only saves time: may be deleted at any moment.
CREATE TABLE cmbs.checkpoints (
    session_id text COLLATE "C" PRIMARY KEY,
    seq        bigint NOT NULL,
    data       bytea NOT NULL
);
-- Read whole or not at all, and mostly ids, which do not compress: packing and unpacking cost more than the bytes.
ALTER TABLE cmbs.checkpoints ALTER COLUMN data SET STORAGE EXTERNAL;

-- Entries that are being carried out elsewhere: no other entry may be appended before them.
CREATE TABLE cmbs.intents (
    stream_id  text COLLATE "C" PRIMARY KEY,
    seq        bigint NOT NULL,
    event_hash bytea NOT NULL,
    entry      bytea NOT NULL
);

-- Sessions that use this database as an elimination store alone. The others have their universe in the declaration,
-- and what an event eliminated in its entry: a row for each id would cost more than the entry, and could only disagree.
CREATE TABLE cmbs.universes (
    session_id     text COLLATE "C" PRIMARY KEY,
    hypothesis_ids bytea NOT NULL
);
CREATE TABLE cmbs.tombstones (
    session_id    text COLLATE "C" NOT NULL,
    hypothesis_id bytea NOT NULL,
    PRIMARY KEY (session_id, hypothesis_id)
);
-- Such a session has no chain of hashes that would show a change.
CREATE TABLE cmbs.seals (
    session_id        text COLLATE "C" PRIMARY KEY,
    universe_digest   bytea NOT NULL,
    tombstones_digest bytea NOT NULL,
    digest            bytea NOT NULL
);

-- What was written is neither changed nor removed.
CREATE FUNCTION cmbs.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'CM002';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cmbs.audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION cmbs.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cmbs.journal
    FOR EACH STATEMENT EXECUTE FUNCTION cmbs.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cmbs.lookup_keys
    FOR EACH STATEMENT EXECUTE FUNCTION cmbs.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cmbs.universes
    FOR EACH STATEMENT EXECUTE FUNCTION cmbs.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cmbs.tombstones
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

CREATE FUNCTION cmbs.write_journal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cmbs.journal
    SELECT n.stream_id, n.seq, n.last_seq,
        greatest(b.base + pg_current_xact_id()::text::bigint, coalesce(before.position, 0))
    FROM (SELECT stream_id, min(seq) AS seq, max(seq) AS last_seq FROM new_entries GROUP BY stream_id) AS n
    CROSS JOIN cmbs.journal_base AS b
    LEFT JOIN LATERAL (
        SELECT j.position FROM cmbs.journal AS j
        WHERE j.stream_id = n.stream_id AND j.seq < n.seq ORDER BY j.seq DESC LIMIT 1
    ) AS before ON true;
    RETURN NULL;
END $$;
CREATE TRIGGER journal AFTER INSERT ON cmbs.audit_events REFERENCING NEW TABLE AS new_entries
    FOR EACH STATEMENT EXECUTE FUNCTION cmbs.write_journal();

-- One call, one round trip, one commit for a whole group. The rows of the heads are locked in one order, so that groups
-- of several processes wait for each other in a line and never in a circle.
CREATE FUNCTION cmbs.append_entries(
    stream_ids text[], seqs bigint[], event_ids text[], prev_hashes bytea[], hashes bytea[], tss text[],
    source_ids bytea[], observation_ids bytea[], universe_sizes bigint[], survivor_counts bigint[],
    terminations boolean[], entries bytea[], lookup_positions int[], lookup_keys bigint[],
    listed_ids text[], listed_tss text[], states text[], searches text[], summaries bytea[],
    found_ids text[], terms bytea[], found_tss text[], lost_ids text[], lost_terms bytea[]
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
    ON CONFLICT (session_id) DO UPDATE SET
        state = EXCLUDED.state, search = EXCLUDED.search, summary = EXCLUDED.summary;
    DELETE FROM cmbs.listing_terms AS t USING unnest(lost_ids, lost_terms) AS lost (session_id, term)
    WHERE t.session_id = lost.session_id AND t.term = lost.term;
    INSERT INTO cmbs.listing_terms SELECT * FROM unnest(found_ids, terms, found_tss) ON CONFLICT DO NOTHING;
END $$;
"""


def create_schema(connection: psycopg.Connection[Any]) -> None:
    """Make the schema in a database without one; StoreRefused for one that has another."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not is_marked(connection):
            connection.execute("CREATE SCHEMA IF NOT EXISTS cmbs")
            connection.execute(SCHEMA.encode())
            connection.execute("INSERT INTO cmbs.format VALUES (%s, %s)", log_marks(SCHEMA))
        rebase_journal(connection)


def is_marked(connection: psycopg.Connection[Any]) -> bool:
    """Whether the database has a store of this format; False where it has none.

    StoreRefused for any other.
    """
    rows = connection.execute("SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('cmbs')").fetchall()
    there = {name for (name,) in rows}
    if "format" in there:
        marks = connection.execute("SELECT * FROM cmbs.format").fetchall()
        if len(marks) != 1:
            raise refuse_unmarked()
        refuse_other_marks(marks[0], log_marks(SCHEMA))
        return True
    if "migrations" in there:
        raise refuse_earlier()
    if there:
        raise refuse_unmarked() if "audit_events" in there else refuse_foreign()
    return False
