"""The journal of an SQLite file: the order of its rows.

A file has one writer at a time, and no entry is ever removed. So each new row has the number after the last, and what
is committed later has a higher one.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from typing import Any

from cmbs.spi.journal import JOURNAL_BEGINNING, JournalPlace
from cmbs.spi.stored_rows import EVENTS, Finding

_PAGE = "SELECT rowid, stream_id, seq FROM audit_events WHERE rowid > ? ORDER BY rowid LIMIT ?"
_MAX_FINDINGS = 20
# An entry whose row comes before that of the entry which it follows.
_OUT_OF_ORDER = """
SELECT later.stream_id, later.seq, later.rowid, earlier.rowid FROM audit_events AS later
JOIN audit_events AS earlier ON earlier.stream_id = later.stream_id AND earlier.seq = later.seq - 1
WHERE later.rowid <= earlier.rowid LIMIT ?
"""
_END = "SELECT rowid, stream_id, seq FROM audit_events ORDER BY rowid DESC LIMIT ?"
_TYPES = (int, str, int)


def find_journal_faults(connection: sqlite3.Connection) -> list[Finding]:
    """Entries that are told before the one that they follow."""
    return [
        Finding(
            f"row {row} of an entry is before row {before} of the entry that it follows",
            EVENTS,
            stream_id,
            seq,
            "rowid",
        )
        for stream_id, seq, row, before in connection.execute(_OUT_OF_ORDER, (_MAX_FINDINGS,))
    ]


class SQLiteJournal(ABC):
    """A `JournalLog`."""

    @abstractmethod
    def _query_page(self, statement: str, parameters: tuple[Any, ...], types: tuple[type[object], ...]) -> list[Any]:
        """The rows of a statement whose last parameter is its limit, whose first columns are of these types."""

    def journal(self, after: JournalPlace, limit: int) -> list[JournalPlace]:
        """Entries of all streams, in the order of their commits."""
        return [JournalPlace(*row) for row in self._query_page(_PAGE, (after.position, limit), _TYPES)]

    def journal_end(self) -> JournalPlace:
        """The last of them."""
        rows = self._query_page(_END, (1,), _TYPES)
        return JournalPlace(*rows[0]) if rows else JOURNAL_BEGINNING
