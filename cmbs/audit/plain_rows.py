"""Any log as a store that shows its rows: what the SPI gives of it, in the columns that a database would have."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cmbs.errors import SessionNotFound
from cmbs.ledger import StoredEntry
from cmbs.spi import RESERVED_PREFIXES, Append, AuditLog, EliminationStore, SessionState, SessionSummary, is_reserved
from cmbs.spi.stored_rows import Finding, Row, RowPage, RowsBeside, StoredRows
from cmbs.stores.tombstones import write_universe

_PAGE = 500
_ALL = 2**31 - 1
# Sessions that were declared in the same microsecond are few.
_NEIGHBOURS = 10


class _Dated(msgspec.Struct):
    ts: str


def rows_of(log: AuditLog) -> StoredRows:
    """The rows of a log: its own where it shows them."""
    return log if isinstance(log, StoredRows) else PlainRows(log)


def all_sessions(log: AuditLog) -> Iterator[SessionSummary]:
    """Every session of a log, the oldest first."""
    after: tuple[str, str] | None = None
    while page := log.sessions(after, _PAGE):
        yield from page
        after = (page[-1].created_ts, page[-1].session_id)


def all_streams(log: AuditLog, prefix: str) -> Iterator[str]:
    """The name of every stream under a reserved prefix."""
    after: str | None = None
    while page := log.streams(prefix, after, _PAGE):
        yield from page
        after = page[-1]


class PlainRows:
    """`StoredRows` of a log that shows none."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self.logs_have_tombstones = isinstance(log, EliminationStore)

    def check_schema(self) -> list[Finding]:
        """There is none."""
        return []

    def find_nameless_rows(self) -> list[Finding]:
        """There are none."""
        return []

    def check_journal(self) -> list[Finding]:
        """There are no rows of one."""
        return []

    def row_names(self, after: str | None, limit: int) -> list[str]:
        """Every stream, and every open intent."""
        names = {summary.session_id for summary in all_sessions(self._log)}
        for prefix in RESERVED_PREFIXES:
            names.update(all_streams(self._log, prefix))
        names.update(self._log.open_intents(_ALL))
        return sorted(name for name in names if after is None or name > after)[:limit]

    def rows(self, stream_id: str, after: object, limit: int, max_bytes: int | None = None) -> RowPage:
        """Entries, and with the last of them what stands beside."""
        seq = after if isinstance(after, int) else -1
        while True:
            head = self._log.head(stream_id)
            page = self._read_page(stream_id, seq, limit, max_bytes)
            # Otherwise an entry was written between two of the reads, and they are not of the same moment.
            if page.beside is None or self._log.head(stream_id) == head:
                return page

    def _read_page(self, stream_id: str, seq: int, limit: int, max_bytes: int | None) -> RowPage:
        entries = self._log.read(stream_id, seq, limit, max_bytes)
        events: list[Row] = [
            {"seq": number, "event_hash": stored.event_hash, "entry": stored.raw}
            for number, stored in enumerate(entries, seq + 1)
        ]
        # A page that was ended by its size may not be the last.
        is_full = max_bytes is not None and sum(len(stored.raw) for stored in entries) >= max_bytes
        return RowPage(events, None if is_full or len(events) == limit else self._read_beside(stream_id))

    def _read_beside(self, stream_id: str) -> RowsBeside:
        log = self._log
        head, checkpoint, intent = log.head(stream_id), log.checkpoint(stream_id), log.intent(stream_id)
        universe: Row | None = None
        tombstones: list[Row] = []
        if head is not None and isinstance(log, EliminationStore) and not is_reserved(stream_id):
            try:
                kept = log.recover(stream_id)
            except SessionNotFound:
                pass
            else:
                universe = {"hypothesis_ids": write_universe(kept.hypothesis_ids)}
                tombstones = [{"hypothesis_id": each} for each in sorted(kept.eliminated)]
        session: Row | None = None
        if head is not None:
            session = {"head_seq": head.seq, "head_hash": head.event_hash, **self._find_listed(stream_id)}
        return RowsBeside(
            session,
            tombstones,
            universe,
            None,
            None if checkpoint is None else {"seq": checkpoint[0], "data": checkpoint[1]},
            None if intent is None else {"event_hash": intent.event_hash, "entry": intent.raw},
        )

    def _find_listed(self, stream_id: str) -> dict[str, object]:
        """What the list of sessions says, looked for where the declaration says that it is."""
        if is_reserved(stream_id):
            return {}
        declared = self._log.read(stream_id, -1, 1)
        after = (_read_ts(declared), "")
        while page := self._log.sessions(after, _NEIGHBOURS):
            for row in page:
                if row.session_id == stream_id:
                    return {"listed": True, **row._asdict()}
                if row.created_ts != after[0]:
                    return {"listed": False}
            after = (page[-1].created_ts, page[-1].session_id)
        return {"listed": False}

    def lookup_rows(self, stream_id: str, after: Row | None, limit: int) -> list[Row]:  # noqa: ARG002 - shows none
        """There are none to be seen."""
        return []

    def row_following(self, stream_id: str, event_hash: bytes) -> Row | None:  # noqa: ARG002 - read in order, or not
        """Not to be found out of order."""
        return None

    def expect_event(self, item: Append) -> Row:
        """Bytes and hash, at their place."""
        return {"seq": item.seq, "event_hash": item.entry.event_hash, "entry": item.entry.raw}

    def expect_lookups(self, item: Append) -> list[Row]:  # noqa: ARG002 - shows none
        """None can be seen."""
        return []

    def expect_listing(self, item: Append) -> Row | None:  # noqa: ARG002 - shows none
        """None can be seen."""
        return None

    def expect_terms(self, item: Append) -> list[Row]:  # noqa: ARG002 - shows none
        """None can be seen."""
        return []

    def expect_session(self, first: Append, newest: Append) -> Row:
        """The head, and the line in the list of sessions."""
        opened, latest = (item.session or SessionState(0, terminated=False) for item in (first, newest))
        summary = SessionSummary(
            newest.stream_id,
            first.ts,
            len(opened.universe),
            latest.n_survivors,
            latest.terminated,
            newest.seq,
            newest.event_id,
        )
        return {"listed": True, "head_hash": newest.entry.event_hash, **summary._asdict()}

    def expect_tombstone(self, session_id: str, hypothesis_id: str) -> Row:  # noqa: ARG002 - there is one column
        """The id."""
        return {"hypothesis_id": hypothesis_id}

    def expect_intent(self, item: Append) -> Row:
        """Bytes and hash."""
        return {"event_hash": item.entry.event_hash, "entry": item.entry.raw}


def _read_ts(declared: list[StoredEntry]) -> str:
    try:
        return msgspec.json.decode(declared[0].raw, type=_Dated).ts
    except (IndexError, msgspec.DecodeError, UnicodeDecodeError):
        return ""
