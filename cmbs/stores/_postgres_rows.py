"""The rows of a PostgreSQL database: as the store writes them, and as they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate
from typing import Any

import psycopg
from psycopg.rows import dict_row

from cmbs.spi.audit_log import Append, SessionState, keys_of_append
from cmbs.spi.stored_rows import (
    CHECKPOINTS,
    EVENTS,
    INTENTS,
    LISTINGS,
    LOOKUPS,
    SEALS,
    SESSIONS,
    TERMS,
    TOMBSTONES,
    UNIVERSES,
    Finding,
    Row,
    RowPage,
    RowsBeside,
)
from cmbs.stores._postgres_catalog import find_schema_faults
from cmbs.stores._postgres_journal import PostgresJournal, find_journal_faults
from cmbs.stores.session_search import ListingRow, TermRow, listing_row, newest_listings, sort_terms

# The column of each table that says which stream or session a row is of.
_NAME_COLUMNS = {
    EVENTS: "stream_id",
    SESSIONS: "session_id",
    TOMBSTONES: "session_id",
    UNIVERSES: "session_id",
    SEALS: "session_id",
    CHECKPOINTS: "session_id",
    INTENTS: "stream_id",
    LOOKUPS: "stream_id",
    LISTINGS: "session_id",
    TERMS: "session_id",
}
_BESIDE = (SESSIONS, UNIVERSES, SEALS, CHECKPOINTS, INTENTS, LISTINGS)
_NAMES = " UNION ".join(
    f"SELECT {column} AS name FROM cmbs.{table} WHERE %(after)s::text IS NULL OR {column} > %(after)s"  # noqa: S608 - no input in it
    for table, column in _NAME_COLUMNS.items()
)


def event_row(item: Append) -> dict[str, Any]:
    """The row of an event: what is inserted, and what is expected to be there."""
    source_id, observation_id = item.unique_key or (None, None)
    return {
        "stream_id": item.stream_id,
        "seq": item.seq,
        "event_id": item.event_id,
        "prev_event_hash": item.prev_event_hash,
        "event_hash": item.entry.event_hash,
        "ts": item.ts,
        "source_id": None if source_id is None else source_id.encode(),
        "observation_id": None if observation_id is None else observation_id.encode(),
        "entry": item.entry.raw,
    }


def append_columns(appends: Sequence[Append]) -> tuple[Any, ...]:
    """The arguments of `append_entries`: one array for each column, of entries, of keys by the entry's place, of
    listings and of terms.
    """
    keys = [(place, key) for place, item in enumerate(appends, 1) for key in keys_of_append(item)]
    rows = [event_row(item) for item in appends]
    found, lost = sort_terms(appends)
    sessions = [item.session or SessionState(0, terminated=False) for item in appends]
    return (
        *([row[column] for row in rows] for column in list(rows[0])[:-1]),
        [len(session.universe) for session in sessions],
        [session.n_survivors for session in sessions],
        [session.terminated for session in sessions],
        [row["entry"] for row in rows],
        [place for place, _ in keys],
        [key for _, key in keys],
        *_columns(newest_listings(appends), len(ListingRow._fields)),
        *_columns(found, len(TermRow._fields)),
        *_columns(lost, len(TermRow._fields))[:-1],
    )


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[number] for row in rows] for number in range(width)]


class PostgresRows(PostgresJournal, ABC):
    """What a database really holds: `StoredRows`."""

    # Since an entry is all that says what it eliminated.
    logs_have_tombstones = False

    @abstractmethod
    def _connecting_to_read(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A connection that gives values as they are stored."""

    def check_schema(self) -> list[Finding]:
        """What differs between the catalogs and the schema that is made in the same database."""
        with self._connecting_to_read() as connection:
            return find_schema_faults(connection)

    def find_nameless_rows(self) -> list[Finding]:
        """Rows without a name, where the constraint that forbids them is gone."""
        findings = []
        with self._reading_one_moment() as cursor:
            for table, column in _NAME_COLUMNS.items():
                cursor.execute(f"SELECT count(*) AS rows FROM cmbs.{table} WHERE {column} IS NULL".encode())  # noqa: S608
                row = cursor.fetchone()
                if row is not None and row["rows"]:
                    findings.append(Finding(f"{row['rows']} rows have no name", table, column=column))
        return findings

    def check_journal(self) -> list[Finding]:
        """Entries that the journal lacks, has twice, or has before the one that they follow."""
        with self._reading_one_moment() as cursor:
            return find_journal_faults(cursor)

    def row_names(self, after: str | None, limit: int) -> list[str]:
        """The names that any row has."""
        with self._reading_one_moment() as cursor:
            cursor.execute(f"{_NAMES} ORDER BY name LIMIT %(limit)s".encode(), {"after": after, "limit": limit})
            return [row["name"] for row in cursor]

    def rows(self, stream_id: str, after: object, limit: int, max_bytes: int | None = None) -> RowPage:
        """Rows of events, and with the last of them those beside."""
        with self._reading_one_moment() as cursor:
            beyond = b"" if after is None else b" AND seq > %(after)s"
            given = {"stream_id": stream_id, "after": after, "limit": limit}
            of_stream = b" FROM cmbs.audit_events WHERE stream_id = %(stream_id)s" + beyond + b" ORDER BY seq"
            there, wanted = 0, limit
            if max_bytes is not None:
                # The sizes first: no entry is read for them.
                cursor.execute(b"SELECT octet_length(entry) AS size" + of_stream + b" LIMIT %(limit)s", given)
                sizes = [row["size"] for row in cursor]
                there, wanted = len(sizes), 1 + sum(total < max_bytes for total in accumulate(sizes))
            cursor.execute(b"SELECT *" + of_stream + b" LIMIT %(limit)s", {**given, "limit": min(limit, wanted)})
            events = cursor.fetchall()
            if len(events) == limit or len(events) < there or (max_bytes is not None and wanted <= there):
                return RowPage(events, None)
            session, universe, seal, checkpoint, intent, listing = (
                _select_one(cursor, table, stream_id) for table in _BESIDE
            )
            cursor.execute("SELECT * FROM cmbs.tombstones WHERE session_id = %s ORDER BY hypothesis_id", (stream_id,))
            tombstones = cursor.fetchall()
            cursor.execute("SELECT * FROM cmbs.listing_terms WHERE session_id = %s ORDER BY term", (stream_id,))
            terms = cursor.fetchall()
        return RowPage(events, RowsBeside(session, tombstones, universe, seal, checkpoint, intent, listing, terms))

    def lookup_rows(self, stream_id: str, after: Row | None, limit: int) -> Sequence[Row]:
        """Rows of keys."""
        with self._reading_one_moment() as cursor:
            beyond = b"" if after is None else b" AND (key, seq) > (%(key)s, %(seq)s)"
            cursor.execute(
                b"SELECT * FROM cmbs.lookup_keys WHERE stream_id = %(stream_id)s" + beyond + b" ORDER BY key, seq"
                b" LIMIT %(limit)s",
                {**(after or {}), "stream_id": stream_id, "limit": limit},
            )
            return cursor.fetchall()

    def row_following(self, stream_id: str, event_hash: bytes) -> Row | None:
        """The row of the event that follows the one with this hash."""
        with self._reading_one_moment() as cursor:
            cursor.execute(
                "SELECT * FROM cmbs.audit_events WHERE stream_id = %s AND prev_event_hash = %s", (stream_id, event_hash)
            )
            return cursor.fetchone()

    def expect_event(self, item: Append) -> Row:
        """The row of an event."""
        return event_row(item)

    def expect_lookups(self, item: Append) -> list[Row]:
        """The rows of keys."""
        return [{"stream_id": item.stream_id, "key": key, "seq": item.seq} for key in keys_of_append(item)]

    def expect_listing(self, item: Append) -> Row | None:
        """The row in the list of sessions."""
        row = listing_row(item)
        return None if row is None else row._asdict()

    def expect_terms(self, item: Append) -> list[Row]:
        """The rows by which a session is found."""
        return [row._asdict() for row in sort_terms([item]).found]

    def expect_session(self, first: Append, newest: Append) -> Row:
        """The row that the function in the database writes."""
        opened, latest = (item.session or SessionState(0, terminated=False) for item in (first, newest))
        return {
            "session_id": newest.stream_id,
            "created_ts": first.ts,
            "universe_size": len(opened.universe),
            "n_survivors": latest.n_survivors,
            "terminated": latest.terminated,
            "head_seq": newest.seq,
            "head_event_id": newest.event_id,
            "head_hash": newest.entry.event_hash,
        }

    def expect_tombstone(self, session_id: str, hypothesis_id: str) -> Row:
        """The row of a tombstone."""
        return {"session_id": session_id, "hypothesis_id": hypothesis_id.encode()}

    def expect_intent(self, item: Append) -> Row:
        """The row of an intent."""
        return {
            "stream_id": item.stream_id,
            "seq": item.seq,
            "event_hash": item.entry.event_hash,
            "entry": item.entry.raw,
        }

    @contextmanager
    def _reading_one_moment(self) -> Iterator[psycopg.Cursor[dict[str, Any]]]:
        with self._connecting_to_read() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            with connection.cursor(row_factory=dict_row, binary=True) as cursor:
                yield cursor


def _select_one(cursor: psycopg.Cursor[dict[str, Any]], table: str, name: str) -> Row | None:
    cursor.execute(f"SELECT * FROM cmbs.{table} WHERE {_NAME_COLUMNS[table]} = %s".encode(), (name,))  # noqa: S608
    return cursor.fetchone()
