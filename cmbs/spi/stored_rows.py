"""Stores that show what they really hold, row by row: what `cmbs fsck` and `cmbs verify` compare with the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from cmbs.spi.audit_log import Append

# Column to value, as the database has it: a value of another type than it should have is of that type here.
Row: TypeAlias = Mapping[str, object]

# The tables by what they are for. A store that names them otherwise says so in its findings.
EVENTS = "audit_events"
SESSIONS = "sessions"
TOMBSTONES = "tombstones"
UNIVERSES = "universes"
SEALS = "seals"
CHECKPOINTS = "checkpoints"
INTENTS = "intents"
LOOKUPS = "lookup_keys"
LISTINGS = "listings"
TERMS = "listing_terms"
JOURNAL = "journal"
_SHOWN_CHARACTERS = 120


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong, and where.

    `table` is empty where it is about the log as such. `stored` and `expected` are of one column, or of one object of
    the schema; None stands for NULL, or for an object that is not there.
    """

    what: str
    table: str = ""
    stream_id: str = ""
    seq: int | None = None
    column: str = ""
    stored: object = None
    expected: object = None
    # Worth a look, and nothing that makes a store bad.
    is_note: bool = False

    def __str__(self) -> str:
        place = ".".join(part for part in (self.table, self.column) if part)
        at = "" if self.seq is None else f" seq {self.seq}"
        return f"{place}{at}: {self.what}" if place else self.what


def find_value(table: str, stream_id: str, seq: int | None, column: str, values: tuple[object, object]) -> Finding:
    """The finding that a column holds the first of two values instead of the second."""
    stored, expected = values
    return Finding(
        f"stored is {show(stored)}, and the log leads to {show(expected)}",
        table,
        stream_id,
        seq,
        column,
        stored,
        expected,
    )


def show(value: object) -> str:
    """A value as a finding shows it: bytes in hexadecimal, and not more than fits a line."""
    text = f"x'{value.hex()}'" if isinstance(value, bytes) else "NULL" if value is None else f"`{value}`"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"


def differ(stored: object, expected: object) -> bool:
    """Whether two values are not the same, or not of the same type: SQLite keeps text in a column of numbers."""
    return type(stored) is not type(expected) or stored != expected


class RowsBeside(NamedTuple):
    """What the tables beside the events hold under one name."""

    session: Row | None = None
    tombstones: Sequence[Row] = ()
    universe: Row | None = None
    seal: Row | None = None
    checkpoint: Row | None = None
    intent: Row | None = None
    listing: Row | None = None
    terms: Sequence[Row] = ()


class RowPage(NamedTuple):
    """Rows of events in the order of their `seq`; with the last of them comes what stands beside, of the same moment.

    `beside` is None where there may be more.
    """

    events: Sequence[Row]
    beside: RowsBeside | None


@runtime_checkable
class StoredRows(Protocol):
    """A store that shows its rows, and says which ones it would write.

    What MUST hold: rows are as the database has them, damaged ones too; the rows that an `expect_…` gives are made by
    the function that writes them; nothing is changed. `cmbs.testing.contracts.stored_rows` is this contract as tests.
    """

    @property
    def logs_have_tombstones(self) -> bool:
        """Whether what an entry eliminates has rows in `tombstones` too; where not, those of a session are sealed."""
        ...

    def check_schema(self) -> list[Finding]:
        """What differs between the schema of the database and the one that this software would make."""
        ...

    def find_nameless_rows(self) -> list[Finding]:
        """Rows that no name of a stream finds, because what they have in its place is no text."""
        ...

    def check_journal(self) -> list[Finding]:
        """Where the order of all entries does not have each entry once, after the one before it in its stream.

        Positions themselves are of no entry: within these bounds they are what the database gave.
        """
        ...

    def row_names(self, after: str | None, limit: int) -> list[str]:
        """The names of streams and sessions that any row of any table has, in order, from beyond `after` on."""
        ...

    def rows(self, stream_id: str, after: object, limit: int, max_bytes: int | None = None) -> RowPage:
        """The rows of a stream whose `seq` is beyond `after`, a value of a row before; None for the first.

        At most `limit`; the one with whose entry they have `max_bytes` together is the last.
        """
        ...

    def lookup_rows(self, stream_id: str, after: Row | None, limit: int) -> Sequence[Row]:
        """The rows of a stream in `lookup_keys`, ordered by `key` and `seq`, from beyond a row on."""
        ...

    def row_following(self, stream_id: str, event_hash: bytes) -> Row | None:
        """The row of the event that says it follows the one with this hash, wherever it stands."""
        ...

    def expect_event(self, item: Append) -> Row:
        """The row of an event."""
        ...

    def expect_lookups(self, item: Append) -> Sequence[Row]:
        """The rows by which an entry is found again."""
        ...

    def expect_listing(self, item: Append) -> Row | None:
        """The row of a session in `listings` after its newest entry; None for a stream of another kind."""
        ...

    def expect_terms(self, item: Append) -> Sequence[Row]:
        """The rows in `listing_terms` by which a session is found since an entry."""
        ...

    def expect_session(self, first: Append, newest: Append) -> Row:
        """The row of a stream that begins and ends with these."""
        ...

    def expect_tombstone(self, session_id: str, hypothesis_id: str) -> Row:
        """The row of an id that is eliminated in a session without a log."""
        ...

    def expect_intent(self, item: Append) -> Row:
        """The row of an entry that is about to be carried out elsewhere."""
        ...
