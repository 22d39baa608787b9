"""The rows of an SQLite file: as the store writes them, and as they are."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

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
    show,
)
from cmbs.stores._sqlite_journal import SQLiteJournal, find_journal_faults
from cmbs.stores._sqlite_schema import DELETE_TERM, INSERT_LISTING, INSERT_TERM, find_schema_faults
from cmbs.stores.session_search import listing_row, newest_listings, sort_terms

EVENT_COLUMNS = (
    "stream_id",
    "seq",
    "event_id",
    "prev_event_hash",
    "event_hash",
    "ts",
    "source_id",
    "observation_id",
    "universe_size",
    "n_survivors",
    "terminated",
    "entry",
)
# The column of each table that says which stream or session a row is of.
NAME_COLUMNS = {
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
_UPDATE_LISTING = "UPDATE listings SET summary = ? WHERE session_id = ? AND state = ? AND search = ?"
_BESIDE = (SESSIONS, UNIVERSES, SEALS, CHECKPOINTS, INTENTS, LISTINGS)


@contextmanager
def reading_as_stored(connection: sqlite3.Connection) -> Iterator[None]:
    """One moment of the file, and text in it that is not UTF-8 is no reason to stop."""
    usual = connection.text_factory
    connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.text_factory = usual


def event_row(item: Append) -> tuple[Any, ...]:
    """The row of an event: what is inserted, and what is expected to be there."""
    session = item.session or SessionState(0, terminated=False)
    return (
        item.stream_id,
        item.seq,
        item.event_id,
        item.prev_event_hash,
        item.entry.event_hash,
        item.ts,
        *(item.unique_key or (None, None)),
        len(session.universe),
        session.n_survivors,
        int(session.terminated),
        item.entry.raw,
    )


def lookup_rows(item: Append) -> list[tuple[str, int, int]]:
    """The rows by which an entry is found again: what is inserted, and what is expected to be there."""
    return [(item.stream_id, key, item.seq) for key in keys_of_append(item)]


def write_listings(connection: sqlite3.Connection, appends: Sequence[Append]) -> None:
    """Bring the lists of sessions up to these entries, in the transaction that writes them."""
    for row in newest_listings(appends):
        # Mostly the state and the title are the same, and then no index is touched.
        if connection.execute(_UPDATE_LISTING, (row.summary, row.session_id, row.state, row.search)).rowcount == 0:
            connection.execute(INSERT_LISTING, row)
    found, lost = sort_terms(appends)
    connection.executemany(DELETE_TERM, lost)
    connection.executemany(INSERT_TERM, found)


class SQLiteRows(SQLiteJournal, ABC):
    """What a file really holds: `StoredRows`."""

    # Since an entry is all that says what it eliminated.
    logs_have_tombstones = False

    @abstractmethod
    def _reading_as_stored(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection that gives values as they are stored."""

    def check_schema(self) -> list[Finding]:
        """What differs in the schema and the pages of the file."""
        with self._reading_as_stored() as connection:
            findings = find_schema_faults(connection)
            checked = connection.execute("PRAGMA integrity_check").fetchall()
        return findings + [Finding(what, "integrity_check") for (what,) in checked if what != "ok"]

    def find_nameless_rows(self) -> list[Finding]:
        """Rows that no name of a stream finds."""
        with self._reading_as_stored() as connection:
            return _find_nameless_rows(connection)

    def check_journal(self) -> list[Finding]:
        """Entries that are told before the one that they follow."""
        with self._reading_as_stored() as connection:
            return find_journal_faults(connection)

    def row_names(self, after: str | None, limit: int) -> list[str]:
        """The names that any row has."""
        with self._reading_as_stored() as connection:
            return _read_names(connection, after, limit)

    def rows(self, stream_id: str, after: object, limit: int, max_bytes: int | None = None) -> RowPage:
        """Rows of events, and with the last of them those beside."""
        with self._reading_as_stored() as connection:
            return _read_page(connection, stream_id, after, limit, max_bytes)

    def lookup_rows(self, stream_id: str, after: Row | None, limit: int) -> list[Row]:
        """Rows of keys."""
        with self._reading_as_stored() as connection:
            if LOOKUPS not in _present_tables(connection):
                return []
            beyond, place = "", tuple[object, ...]()
            if after is not None:
                (key, first), (seq, second) = _bind("?3", after["key"]), _bind("?4", after["seq"])
                beyond, place = f" AND (key, seq) > ({key}, {seq})", (first, second)
            return _select(
                connection,
                f"SELECT * FROM lookup_keys WHERE stream_id = CAST(?1 AS TEXT){beyond} ORDER BY key, seq LIMIT ?2",  # noqa: S608
                (_encode(stream_id), limit, *place),
            )

    def row_following(self, stream_id: str, event_hash: bytes) -> Row | None:
        """The row of the event that follows the one with this hash."""
        with self._reading_as_stored() as connection:
            return _read_following(connection, stream_id, event_hash)

    def expect_event(self, item: Append) -> Row:
        """The row of an event."""
        return dict(zip(EVENT_COLUMNS, event_row(item), strict=True))

    def expect_lookups(self, item: Append) -> list[Row]:
        """The rows of keys."""
        return [dict(zip(("stream_id", "key", "seq"), row, strict=True)) for row in lookup_rows(item)]

    def expect_listing(self, item: Append) -> Row | None:
        """The row in the list of sessions."""
        row = listing_row(item)
        return None if row is None else row._asdict()

    def expect_terms(self, item: Append) -> list[Row]:
        """The rows by which a session is found."""
        return [row._asdict() for row in sort_terms([item]).found]

    def expect_session(self, first: Append, newest: Append) -> Row:
        """The row that the triggers write."""
        opened, latest = self.expect_event(first), self.expect_event(newest)
        return {
            "session_id": latest["stream_id"],
            "created_ts": opened["ts"],
            "universe_size": opened["universe_size"],
            "n_survivors": latest["n_survivors"],
            "terminated": latest["terminated"],
            "head_seq": latest["seq"],
            "head_event_id": latest["event_id"],
            "head_hash": latest["event_hash"],
        }

    def expect_tombstone(self, session_id: str, hypothesis_id: str) -> Row:
        """The row of a tombstone."""
        return {"session_id": session_id, "hypothesis_id": hypothesis_id}

    def expect_intent(self, item: Append) -> Row:
        """The row of an intent."""
        return {
            "stream_id": item.stream_id,
            "seq": item.seq,
            "event_hash": item.entry.event_hash,
            "entry": item.entry.raw,
        }


def _find_nameless_rows(connection: sqlite3.Connection) -> list[Finding]:
    """Rows whose name is no text, or text that no caller can ask for."""
    findings = []
    for table, column in _present_tables(connection).items():
        rows = connection.execute(f"SELECT {column} FROM {table} WHERE typeof({column}) <> 'text'")  # noqa: S608
        findings += [
            Finding(f"the name is no text but {show(name)}", table, column=column, stored=name) for (name,) in rows
        ]
    return findings


def _read_names(connection: sqlite3.Connection, after: str | None, limit: int) -> list[str]:
    """The names that any table has."""
    parts = " UNION ".join(
        f"SELECT {column} AS name FROM {table} WHERE typeof({column}) = 'text'"  # noqa: S608
        f" AND (?1 IS NULL OR {column} > CAST(?1 AS TEXT))"
        for table, column in _present_tables(connection).items()
    )
    if not parts:
        return []
    rows = connection.execute(f"{parts} ORDER BY name LIMIT ?2", (None if after is None else _encode(after), limit))
    return [row[0] for row in rows]


def _read_page(
    connection: sqlite3.Connection, stream_id: str, after: object, limit: int, max_bytes: int | None
) -> RowPage:
    """Events beyond a `seq`, which may be of any type; with the last of them, what stands beside."""
    tables = _present_tables(connection)
    name = _encode(stream_id)
    events: list[Row] = []
    if EVENTS in tables:
        beyond, place = "", tuple[object, ...]()
        if after is not None:
            mark, value = _bind("?3", after)
            beyond, place = f" AND seq > {mark}", (value,)
        cursor = connection.execute(
            f"SELECT * FROM audit_events WHERE stream_id = CAST(?1 AS TEXT){beyond} ORDER BY seq LIMIT ?2",  # noqa: S608
            (name, limit, *place),
        )
        columns = [each[0] for each in cursor.description]
        held = 0
        for values in cursor:
            row = dict(zip(columns, values, strict=True))
            entry = row.get("entry")
            held += len(entry) if isinstance(entry, (bytes, str)) else 0
            events.append(row)
            if max_bytes is not None and held >= max_bytes:
                return RowPage(events, None)
    if len(events) == limit:
        return RowPage(events, None)
    session, universe, seal, checkpoint, intent, listing = (
        _select_one(connection, table, name) if table in tables else None for table in _BESIDE
    )
    tombstones, terms = (
        _select(connection, f"SELECT * FROM {table} WHERE session_id = CAST(? AS TEXT) ORDER BY 2", (name,))  # noqa: S608
        if table in tables
        else []
        for table in (TOMBSTONES, TERMS)
    )
    return RowPage(events, RowsBeside(session, tombstones, universe, seal, checkpoint, intent, listing, terms))


def _read_following(connection: sqlite3.Connection, stream_id: str, event_hash: bytes) -> Row | None:
    """The event that follows the one with this hash."""
    statement = "SELECT * FROM audit_events WHERE stream_id = CAST(? AS TEXT) AND prev_event_hash = ?"
    found = _select(connection, statement, (_encode(stream_id), event_hash))
    return found[0] if found else None


def _select_one(connection: sqlite3.Connection, table: str, name: bytes) -> Row | None:
    statement = f"SELECT * FROM {table} WHERE {NAME_COLUMNS[table]} = CAST(? AS TEXT)"  # noqa: S608
    found = _select(connection, statement, (name,))
    return found[0] if found else None


def _select(connection: sqlite3.Connection, statement: str, parameters: tuple[object, ...]) -> list[Row]:
    cursor = connection.execute(statement, parameters)
    columns = [each[0] for each in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor]


def _present_tables(connection: sqlite3.Connection) -> dict[str, str]:
    """Those of our tables that are there: the check of the schema says which ones are not."""
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    there = {name for (name,) in rows}
    return {table: column for table, column in NAME_COLUMNS.items() if table in there}


def _encode(name: str) -> bytes:
    """A name as the bytes that it has in the file."""
    return name.encode(errors="surrogateescape")


def _bind(mark: str, value: object) -> tuple[str, object]:
    """A value that was read as it is stored, to be compared with: how the statement has it, and the parameter."""
    return (f"CAST({mark} AS TEXT)", _encode(value)) if isinstance(value, str) else (mark, value)
