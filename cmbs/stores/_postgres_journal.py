"""The journal of a PostgreSQL database: an order of entries in which none appears before one that was read.

Numbers that are drawn in one order are committed in another, so a sequence would have readers skip entries. The
position of an entry is the id of the transaction that wrote it, and readers stop below the oldest transaction that
still runs: all below are finished, and all that begin later are above. Ids are those of the whole server, but a
transaction in another database of it writes nothing here and is not waited for. A transaction may have got its id
before it waited for a stream that a younger one was writing; so an entry is never before the one that it follows in
its stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import psycopg

from cmbs.spi.journal import JournalPlace
from cmbs.spi.stored_rows import JOURNAL, Finding, find_value

# Below this all are finished. Only what is seen to run in another database is left out: locks and activity are read
# after the snapshot, and a transaction that ended between the two counts as one that runs.
_HORIZON = """(
    SELECT base + coalesce(
        (
            SELECT min(running::text::bigint) FROM pg_snapshot_xip(snapshot) AS running
            WHERE NOT EXISTS (
                SELECT 1 FROM pg_locks AS held JOIN pg_stat_activity AS its USING (pid)
                WHERE held.locktype = 'transactionid' AND held.mode = 'ExclusiveLock' AND held.granted
                    AND held.transactionid = running::xid AND its.datname <> current_database()
            )
        ),
        pg_snapshot_xmax(snapshot)::text::bigint
    )
    FROM cmbs.journal_base, pg_current_snapshot() AS snapshot
)"""
# Of a run of entries no more than a page is spelled out, from where the reader is.
_PAGE = f"""
SELECT j.position, j.stream_id, each.seq FROM cmbs.journal AS j
CROSS JOIN LATERAL (
    SELECT CASE WHEN (j.position, j.stream_id) = (%(position)s, %(stream_id)s)
        THEN greatest(j.seq, %(seq)s + 1) ELSE j.seq END AS seq
) AS start
CROSS JOIN LATERAL generate_series(start.seq, least(j.last_seq, start.seq + %(limit)s - 1)) AS each (seq)
WHERE (j.position, j.stream_id) >= (%(position)s, %(stream_id)s) AND j.position < {_HORIZON}
ORDER BY j.position, j.stream_id, each.seq LIMIT %(limit)s
"""  # noqa: S608 - no input in it
_END = f"SELECT {_HORIZON}"
_REBASE = """
UPDATE cmbs.journal_base SET base = newest.position + 1
FROM (SELECT coalesce(max(position), 0) AS position FROM cmbs.journal) AS newest
WHERE newest.position >= base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""
# Runs that do not go on where the run before them ends, and positions that no transaction can have had there.
_BAD_RUNS = """
SELECT stream_id, seq, last_seq, position, expected, before, next FROM (
    SELECT j.*, coalesce(lag(last_seq) OVER run + 1, 0) AS expected, coalesce(lag(position) OVER run, 0) AS before,
        b.base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next
    FROM cmbs.journal AS j CROSS JOIN cmbs.journal_base AS b
    WINDOW run AS (PARTITION BY j.stream_id ORDER BY j.seq)
) AS runs
WHERE seq IS DISTINCT FROM expected OR last_seq < seq OR position < before OR position >= next
ORDER BY stream_id, seq LIMIT %s
"""
_BAD_ENDS = """
SELECT stream_id, events.seq AS seq, runs.last_seq AS last_seq
FROM (SELECT stream_id, max(seq) AS seq FROM cmbs.audit_events GROUP BY stream_id) AS events
FULL JOIN (SELECT stream_id, max(last_seq) AS last_seq FROM cmbs.journal GROUP BY stream_id) AS runs USING (stream_id)
WHERE events.seq IS DISTINCT FROM runs.last_seq ORDER BY stream_id LIMIT %s
"""
# A base is only ever put right above the newest position, and no position is ever removed.
_BASES = """
SELECT base, base = 0 OR (base > 1 AND EXISTS (SELECT 1 FROM cmbs.journal WHERE position = base - 1)) AS fits
FROM cmbs.journal_base
"""
_MAX_FINDINGS = 20


def find_journal_faults(cursor: psycopg.Cursor[dict[str, Any]]) -> list[Finding]:
    """What of the journal does not fit the entries, as of one moment."""
    bases = cursor.execute(_BASES).fetchall()
    if len(bases) != 1:
        return [Finding(f"there are {len(bases)} rows, and there must be 1", "journal_base")]
    if not bases[0]["fits"]:
        what = f"it is {bases[0]['base']}, which is neither 0 nor right above a position of the journal"
        return [Finding(what, "journal_base", column="base", stored=bases[0]["base"])]
    runs = [_describe_run(run) for run in cursor.execute(_BAD_RUNS, (_MAX_FINDINGS,)).fetchall()]
    ends = cursor.execute(_BAD_ENDS, (_MAX_FINDINGS,)).fetchall()
    return runs + [
        find_value(JOURNAL, end["stream_id"], end["seq"], "last_seq", (end["last_seq"], end["seq"])) for end in ends
    ]


def _describe_run(run: dict[str, Any]) -> Finding:
    stream_id, seq = run["stream_id"], run["seq"]
    if seq != run["expected"]:
        return find_value(JOURNAL, stream_id, seq, "seq", (seq, run["expected"]))
    if run["last_seq"] < seq:
        return Finding(f"a run ends at {run['last_seq']}, before it begins", JOURNAL, stream_id, seq, "last_seq")
    bounds = f"must be from {run['before']} to below {run['next']}"
    return Finding(f"position {run['position']} {bounds}", JOURNAL, stream_id, seq, "position")


def rebase_journal(connection: psycopg.Connection[Any]) -> None:
    """See that new positions are beyond all that there are, also where the database came from another server."""
    connection.execute(_REBASE)


class PostgresJournal(ABC):
    """A `JournalLog`."""

    @abstractmethod
    def _query(self, statement: str, parameters: tuple[Any, ...] | dict[str, Any]) -> list[Any]:
        """The rows of a query."""

    def journal(self, after: JournalPlace, limit: int) -> list[JournalPlace]:
        """Entries of all streams, below the oldest transaction that still runs in this database."""
        return [JournalPlace(*row) for row in self._query(_PAGE, {**after._asdict(), "limit": limit})]

    def journal_end(self) -> JournalPlace:
        """Where the oldest transaction that still runs in this database may write."""
        return JournalPlace(int(self._query(_END, ())[0][0]))
