"""Sessions in an SQLite file: tombstones and audit in one transaction, durable when acknowledged.

One statement appends a whole group: the session's row follows by trigger, inside the database, so that nothing can
write one without the other, and the interpreter lock is given up once a group, not once a row. What an event eliminated
stands in its entry, and so is durable in the same moment.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cmbs.errors import InvalidRequest, SessionNotFound, StoreUnavailable
from cmbs.ledger import Head, StoredEntry
from cmbs.spi.audit_log import RESERVED_PREFIXES, Append, SessionState, SessionSummary, StaleHead, beyond
from cmbs.spi.elimination_store import EliminationProvenance, EliminationResult, RecoveredState
from cmbs.stores._sqlite_schema import migrate
from cmbs.stores.tombstones import (
    read_declared_universe,
    read_eliminated,
    read_universe,
    recover_state,
    refuse_logged,
    refuse_other_universe,
    write_universe,
)

_BUSY_SECONDS = 10.0
_IDLE_READERS = 8
_WAL_ATTEMPTS = 100
_COLUMNS = (
    "stream_id",
    "seq",
    "event_id",
    "prev_event_hash",
    "event_hash",
    "ts",
    "source_id",
    "observation_id",
    "n_eliminated",
    "universe_size",
    "n_survivors",
    "terminated",
    "entry",
)
_NO_OTHER_KIND = "".join(
    f" AND NOT (session_id >= '{prefix}' AND session_id < '{beyond(prefix)}')" for prefix in RESERVED_PREFIXES
)
_ROW = f"({', '.join('?' * len(_COLUMNS))})"
_INSERT = f"INSERT INTO audit_events ({', '.join(_COLUMNS)}) VALUES "  # noqa: S608 - no input in it
# So many rows go into one statement: a group is then one call into SQLite, or a few.
_MAX_ROWS = 64


class SQLiteStore:
    """An `EliminationStore` and an `AuditLog` in one file. Any number of processes may open it.

    Nothing waits longer than `timeout_seconds` for other writers.
    """

    blocking = True

    def __init__(self, path: str | Path, timeout_seconds: float = _BUSY_SECONDS) -> None:
        self._path = str(path)
        self._timeout_seconds = timeout_seconds
        if "\0" in self._path or self._path == ":memory:":
            raise InvalidRequest(f"`{self._path!r}` is not a file; for sessions in memory use `memory:`")
        self._idle_readers: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        # Reentrant, because `append` inside `exclusive` is the same writer going on.
        self._writing = threading.RLock()
        self._exclusive_thread: int | None = None
        self._closed = False
        with _translate_errors(f"cannot open `{self._path}`"):
            self._writer = self._connect()
            try:
                migrate(self._writer)
                # After the file is known to be ours: the mode is written into it.
                _enter_wal(self._writer)
            except BaseException:
                self._writer.close()
                raise

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=self._timeout_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A connection to read with; inside `exclusive`, the one that holds the lock."""
        if self._exclusive_thread == threading.get_ident():
            yield self._writer
            return
        with self._guard:
            if self._is_closed():
                raise StoreUnavailable("the store is closed")
            idle = self._idle_readers.pop() if self._idle_readers else None
        connection = self._connect() if idle is None else idle
        try:
            yield connection
        finally:
            with self._guard:
                spare = len(self._idle_readers) >= _IDLE_READERS or self._is_closed()
                if not spare:
                    self._idle_readers.append(connection)
            if spare:
                connection.close()

    def _is_closed(self) -> bool:
        return self._closed

    # --- audit log ---

    def append(self, appends: Sequence[Append]) -> None:
        """Write all entries or none, in one commit."""
        rows = [_row(item) for item in appends]
        with self._writing, _translate_errors("cannot append"):
            # A single statement is a transaction of its own.
            if self._exclusive_thread is not None or len(rows) <= _MAX_ROWS:
                self._insert(rows)
            else:
                with self._transaction():
                    self._insert(rows)

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        for start in range(0, len(rows), _MAX_ROWS):
            group = rows[start : start + _MAX_ROWS]
            self._writer.execute(_INSERT + ", ".join([_ROW] * len(group)), [value for row in group for value in row])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        except BaseException:
            # SQLite rolls back by itself after some errors.
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    @contextmanager
    def exclusive(self, stream_ids: Iterable[str]) -> Iterator[None]:  # noqa: ARG002 - SQLite locks the whole file
        """Hold off other writers."""
        with self._writing, _translate_errors("cannot lock"), self._transaction():
            self._exclusive_thread = threading.get_ident()
            try:
                yield
            finally:
                self._exclusive_thread = None

    def head(self, stream_id: str) -> Head | None:
        """Where the stream ends."""
        rows = self._query("SELECT head_seq, head_hash FROM sessions WHERE session_id = ?", (stream_id,))
        return Head(*rows[0]) if rows else None

    def read(self, stream_id: str, after: int = -1, limit: int | None = None) -> list[StoredEntry]:
        """Entries beyond `after`."""
        rows = self._query(
            # As bytes, whatever the column holds: a row that was edited by hand must be judged, not trip us up.
            "SELECT CAST(entry AS BLOB), CAST(event_hash AS BLOB) FROM audit_events"
            " WHERE stream_id = ? AND seq > ? ORDER BY seq LIMIT ?",
            (stream_id, after, -1 if limit is None else limit),
        )
        return [StoredEntry(raw, event_hash) for raw, event_hash in rows]

    def sessions(self, after: tuple[str, str] | None, limit: int) -> list[SessionSummary]:
        """Sessions in the order of their creation."""
        rows = self._query(
            "SELECT session_id, created_ts, universe_size, n_survivors, terminated, head_seq, head_event_id"  # noqa: S608 - no input in it
            " FROM sessions WHERE (created_ts, session_id) > (?, ?)"
            + _NO_OTHER_KIND
            + " ORDER BY created_ts, session_id LIMIT ?",
            (*(after or ("", "")), limit),
        )
        return [SessionSummary(*row)._replace(terminated=bool(row[4])) for row in rows]

    def streams(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Streams by name."""
        return [name for name, _ in self.stream_heads(prefix, after, limit)]

    def stream_heads(self, prefix: str, after: str | None, limit: int) -> list[tuple[str, Head]]:
        """Streams by name, and where each ends."""
        rows = self._query(
            "SELECT session_id, head_seq, head_hash FROM sessions"
            " WHERE session_id >= ? AND session_id > ? AND session_id < ? ORDER BY session_id LIMIT ?",
            (prefix, after or "", beyond(prefix), limit),
        )
        return [(name, Head(seq, digest)) for name, seq, digest in rows]

    def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None:
        """Keep derived data."""
        with self._writing, _translate_errors("cannot keep a checkpoint"):
            self._writer.execute(
                "INSERT INTO checkpoints VALUES (?1, ?2, ?3) ON CONFLICT (session_id)"
                " DO UPDATE SET seq = ?2, data = ?3 WHERE seq <= ?2",
                (stream_id, seq, data),
            )

    def checkpoint(self, stream_id: str) -> tuple[int, bytes] | None:
        """The newest checkpoint."""
        rows = self._query("SELECT seq, CAST(data AS BLOB) FROM checkpoints WHERE session_id = ?", (stream_id,))
        return (rows[0][0], rows[0][1]) if rows else None

    def put_intent(self, append: Append) -> None:
        """Record an entry that is about to be carried out elsewhere."""
        with self._writing, _translate_errors("cannot record an intent"):
            recorded = self._writer.execute(
                "INSERT INTO intents SELECT ?1, ?2, ?3, ?4 WHERE ?5 ="
                " coalesce((SELECT head_hash FROM sessions WHERE session_id = ?1), zeroblob(32))",
                (append.stream_id, append.seq, append.entry.event_hash, append.entry.raw, append.prev_event_hash),
            )
            if recorded.rowcount != 1:
                raise StaleHead(append.stream_id)

    def intent(self, stream_id: str) -> StoredEntry | None:
        """The open intent of a stream."""
        rows = self._query("SELECT entry, event_hash FROM intents WHERE stream_id = ?", (stream_id,))
        return StoredEntry(*rows[0]) if rows else None

    def open_intents(self, limit: int) -> list[str]:
        """Streams that have an open intent."""
        return [row[0] for row in self._query("SELECT stream_id FROM intents ORDER BY stream_id LIMIT ?", (limit,))]

    def drop_intent(self, stream_id: str, event_hash: bytes) -> None:
        """Close an intent that came to nothing."""
        with self._writing, _translate_errors("cannot drop an intent"):
            self._writer.execute("DELETE FROM intents WHERE stream_id = ? AND event_hash = ?", (stream_id, event_hash))

    def close(self) -> None:
        """Close every connection."""
        with self._writing, self._guard:
            self._closed = True
            for connection in (self._writer, *self._idle_readers):
                connection.close()
            self._idle_readers.clear()

    # --- elimination store ---

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """Register a session that has no log here."""
        universe = write_universe(hypothesis_ids)
        with self.exclusive([session_id]):
            try:
                known = self._universe(session_id)
            except SessionNotFound:
                known = hypothesis_ids
                self._writer.execute("INSERT INTO universes VALUES (?, ?)", (session_id, universe))
            if known != hypothesis_ids:
                raise refuse_other_universe(session_id)

    def eliminate(
        self,
        session_id: str,
        eliminated: AbstractSet[str],
        provenance: EliminationProvenance,  # noqa: ARG002
    ) -> EliminationResult:
        """Add tombstones to a session that has no log here."""
        with self.exclusive([session_id]):
            if self.head(session_id) is not None:
                raise refuse_logged(session_id)
            known = frozenset(eliminated) & self._universe(session_id)
            applied = known - self.get_eliminated(session_id)
            self._writer.executemany(
                "INSERT INTO tombstones (session_id, hypothesis_id, seq) VALUES (?, ?, NULL)",
                [(session_id, hypothesis_id) for hypothesis_id in applied],
            )
        return EliminationResult(applied, known - applied)

    def get_survivors(self, session_id: str) -> frozenset[str]:
        """The universe less the tombstones."""
        return self.recover(session_id).survivors

    def get_eliminated(self, session_id: str) -> frozenset[str]:
        """The tombstones."""
        return self.recover(session_id).eliminated

    def recover(self, session_id: str) -> RecoveredState:
        """Universe, tombstones and survivors."""
        universe = self._universe(session_id)
        rows = self._query("SELECT hypothesis_id FROM tombstones WHERE session_id = ?", (session_id,))
        gone = {row[0] for row in rows}
        # Whatever the count says: a row that was edited by hand must be judged by its entry.
        for stored in self.read(session_id):
            gone.update(read_eliminated(stored))
        return recover_state(universe, gone)

    def _universe(self, session_id: str) -> frozenset[str]:
        declared = self.read(session_id, limit=1)
        if declared:
            return read_declared_universe(declared[0])
        rows = self._query("SELECT hypothesis_ids FROM universes WHERE session_id = ?", (session_id,))
        if not rows:
            raise SessionNotFound(session_id)
        return read_universe(rows[0][0])

    def _query(self, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        with _translate_errors("cannot read"), self._reader() as connection:
            return connection.execute(statement, parameters).fetchall()


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL. That needs the file alone, and SQLite does not wait for it as it waits for a lock.

    So where another connection is in the way, queue up as a writer, which does wait, and then try again.
    """
    for _ in range(_WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL")


def _row(item: Append) -> tuple[Any, ...]:
    session = item.session or SessionState(0, terminated=False)
    return (
        item.stream_id,
        item.seq,
        item.event_id,
        item.prev_event_hash,
        item.entry.event_hash,
        item.ts,
        # The columns are named for the observations of sessions. A rename would gain nothing but shut older processes
        # that have the file open out.
        *(item.unique_key or (None, None)),
        0 if item.tombstones is None else len(item.tombstones.ids),
        len(session.universe),
        session.n_survivors,
        session.terminated,
        item.entry.raw,
    )


@contextmanager
def _translate_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as exc:
        # Raised by the trigger that compares heads, or by a uniqueness guard: either way another writer was first.
        raise StaleHead(str(exc)) from exc
    except sqlite3.Error as exc:
        raise StoreUnavailable(f"{doing}: {exc}") from exc
