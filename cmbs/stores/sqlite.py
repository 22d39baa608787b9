"""Sessions in an SQLite file: tombstones and audit in one transaction, durable when acknowledged.

One statement appends a whole group: the session's row follows by trigger, inside the database, so that nothing can
write one without the other. Because so much depends on the triggers, the schema is checked when a file is opened, and
inside every write after another connection has changed it. What an event eliminated stands in its entry, and so is
durable in the same moment.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from cmbs.errors import InvalidRequest, SessionNotFound, StoreUnavailable
from cmbs.ledger import Head, StoredEntry
from cmbs.spi.audit_log import AUTHENTICATED, SPACE_PREFIX, Append, SessionSummary, StaleHead, beyond, take_page
from cmbs.spi.elimination_store import EliminationProvenance, EliminationResult, RecoveredState
from cmbs.spi.session_search import ListedSession, SessionQuery
from cmbs.spi.stored_format import StoreRefused
from cmbs.sqlite_files import is_marked, locate_file, prepare_file, read_pragma, refuse_other_file, transaction
from cmbs.stores._sqlite_connection import enter_wal, wait_until
from cmbs.stores._sqlite_rows import (
    EVENT_COLUMNS,
    SQLiteRows,
    event_row,
    lookup_rows,
    reading_as_stored,
    write_listings,
)
from cmbs.stores._sqlite_schema import LOG_FILE, refuse_faulty_schema
from cmbs.stores.session_search import NO_OTHER_KIND, build_search, read_found
from cmbs.stores.tombstones import (
    read_declared_universe,
    read_eliminated,
    read_universe,
    recover_state,
    refuse_logged,
    refuse_other_universe,
    seal_session,
    write_universe,
)

_BUSY_SECONDS = 10.0
_IDLE_READERS = 8
# A wait for other threads that is shorter than this is not taken off the time to wait for other processes.
_NO_WAIT_SECONDS = 0.01
_ROW = f"({', '.join('?' * len(EVENT_COLUMNS))})"
_INSERT = f"INSERT INTO audit_events ({', '.join(EVENT_COLUMNS)}) VALUES "  # noqa: S608 - no input in it
# As they should be, whatever the columns hold: a row that was edited by hand must be judged, not trip us up.
_HEAD = "CAST(head_seq AS INTEGER), CAST(head_hash AS BLOB)"
# As bytes, whatever the columns hold, for the same reason.
_ENTRIES = (
    "SELECT CAST(entry AS BLOB), CAST(event_hash AS BLOB) FROM audit_events"
    " WHERE stream_id = ? AND seq > ? ORDER BY seq LIMIT ?"
)
_KEYED_ENTRY = """
SELECT e.stream_id, e.seq
FROM (SELECT session_id, head_seq FROM sessions ORDER BY created_ts DESC, session_id DESC LIMIT 1000) AS s
JOIN audit_events AS e ON e.stream_id = s.session_id
    AND e.seq IN (0, s.head_seq, s.head_seq - 1, s.head_seq - 2, s.head_seq - 3)
WHERE substr(e.entry, 1, ?) = ? AND json_valid(CAST(e.entry AS TEXT))
    AND json_extract(CAST(e.entry AS TEXT), '$.actor.key_id') IS NOT NULL LIMIT 1
"""
# So many rows go into one statement: a group is then one call into SQLite, or a few.
_MAX_ROWS = 64


class SQLiteStore(SQLiteRows):
    """An `EliminationStore` and an `AuditLog` in one file. Any number of processes may open it.

    Nothing waits longer than `timeout_seconds` for other writers.
    """

    blocking = True

    def __init__(self, path: str | Path, timeout_seconds: float = _BUSY_SECONDS) -> None:
        self._path = str(path)
        self._timeout_seconds = timeout_seconds
        if "\0" in self._path or self._path == ":memory:":
            raise InvalidRequest(f"`{self._path!r}` is not a file; for sessions in memory use `memory:`")
        directory = Path(self._path).parent
        if not os.access(directory, os.F_OK):
            raise StoreUnavailable(f"cannot open `{self._path}`: there is no directory `{directory}`; make it first")
        self._idle_readers: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        # Reentrant, because `append` inside `exclusive` is the same writer going on.
        self._writing = threading.RLock()
        self._exclusive_thread: int | None = None
        self._closed = False
        # The `schema_version` under which the schema was last found to be as it must be.
        self._checked_schema: int | None = None
        with self._translate_errors(f"cannot open `{self._path}`"):
            refuse_other_file(self._path, LOG_FILE, timeout_seconds)
            self._writer = self._connect()
            try:
                self._prepare()
                opened = Path(self._path).stat()
                self._file = (opened.st_dev, opened.st_ino)
            except BaseException:
                self._writer.close()
                raise

    def _prepare(self) -> None:
        """Make the schema in an empty file, and see that it is what writing relies on."""
        deadline = time.monotonic() + self._timeout_seconds
        with self._waiting_until(deadline):
            prepare_file(self._writer, LOG_FILE, lambda: wait_until(self._writer, deadline))
            # After the file is known to be ours: the mode is written into it.
            enter_wal(self._writer, deadline)
            wait_until(self._writer, deadline)
            with transaction(self._writer, "BEGIN"):
                self._check_schema()

    def _check_schema(self) -> None:
        """Refuse to write where the schema is not what writing relies on; inside a transaction, so it stays so."""
        version = read_pragma(self._writer, "schema_version")
        if version != self._checked_schema:
            refuse_faulty_schema(self._writer)
            self._checked_schema = version

    def _connect(self, mode: str = "rwc") -> sqlite3.Connection:
        connection = sqlite3.connect(
            locate_file(self._path, mode),
            timeout=self._timeout_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            uri=True,
        )
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A connection to read with; inside `exclusive`, the one that holds the lock."""
        if self._exclusive_thread == threading.get_ident():
            yield self._writer
            return
        self._check_file()
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

    def _check_file(self) -> None:
        """StoreUnavailable where another file has taken the place of ours, which only this process would still see."""
        try:
            found = Path(self._path).stat()
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
            state = "is gone" if found is None else "is another file than the one that was opened"
            raise StoreUnavailable(f"`{self._path}` {state}; put it back, or restart the server")

    def _is_closed(self) -> bool:
        return self._closed

    # --- audit log ---

    def append(self, appends: Sequence[Append]) -> None:
        """Write all entries or none, in one commit."""
        if not appends:
            return
        rows = [event_row(item) for item in appends]
        lookups = [row for item in appends if item.stream_id.startswith(SPACE_PREFIX) for row in lookup_rows(item)]
        with self._transaction("cannot append"):
            for start in range(0, len(rows), _MAX_ROWS):
                group = rows[start : start + _MAX_ROWS]
                values = [value for row in group for value in row]
                written = self._writer.execute(_INSERT + ", ".join([_ROW] * len(group)), values).rowcount
                if written != len(group):
                    raise sqlite3.DatabaseError(f"{written} of {len(group)} entries were taken; nothing was written")
            if lookups:
                self._writer.executemany("INSERT INTO lookup_keys VALUES (?, ?, ?)", lookups)
            write_listings(self._writer, appends)

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[None]:
        """Write in one commit, or in that of `exclusive` where this thread holds it."""
        if self._exclusive_thread == threading.get_ident():
            with self._translate_errors(doing):
                yield
            return
        with self._begin_writing(doing):
            yield

    @contextmanager
    def _begin_writing(self, doing: str) -> Iterator[None]:
        began = time.monotonic()
        deadline = began + self._timeout_seconds
        if not self._writing.acquire(timeout=self._timeout_seconds):
            raise StoreUnavailable(f"{doing}: {self._describe_lock('another thread')}")
        try:
            with self._translate_errors(doing), ExitStack() as waiting:
                if time.monotonic() - began > _NO_WAIT_SECONDS:
                    waiting.enter_context(self._waiting_until(deadline))
                self._check_file()
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    self._check_schema()
                    yield
                    self._writer.execute("COMMIT")
                except BaseException:
                    # SQLite rolls back by itself after some errors.
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
                    raise
                # What is written is in the file that others find.
                self._check_file()
        finally:
            self._writing.release()

    @contextmanager
    def exclusive(self, stream_ids: Iterable[str]) -> Iterator[None]:  # noqa: ARG002 - SQLite locks the whole file
        """Hold off other writers."""
        with self._begin_writing("cannot lock"):
            self._exclusive_thread = threading.get_ident()
            try:
                yield
            finally:
                self._exclusive_thread = None

    @contextmanager
    def _waiting_until(self, deadline: float) -> Iterator[None]:
        """Wait for locks no longer than this; afterwards as long as ever."""
        wait_until(self._writer, deadline)
        try:
            yield
        finally:
            wait_until(self._writer, time.monotonic() + self._timeout_seconds)

    def head(self, stream_id: str) -> Head | None:
        """Where the stream ends."""
        rows = self._query(f"SELECT {_HEAD} FROM sessions WHERE session_id = ?", (stream_id,))  # noqa: S608
        return Head(*rows[0]) if rows else None

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        """Entries beyond `after`."""
        parameters = (stream_id, after, -1 if limit is None else limit)
        if max_bytes is None:
            return [StoredEntry(raw, event_hash) for raw, event_hash in self._query(_ENTRIES, parameters)]
        with (
            self._translate_errors("cannot read"),
            self._reader() as connection,
            closing(connection.cursor()) as cursor,
        ):
            rows = cursor.execute(_ENTRIES, parameters)
            return take_page((StoredEntry(raw, event_hash) for raw, event_hash in rows), max_bytes)

    def hashes(self, stream_id: str, after: int = -1, limit: int | None = None) -> list[bytes]:
        """The hashes alone."""
        rows = self._query(
            "SELECT CAST(event_hash AS BLOB) FROM audit_events WHERE stream_id = ? AND seq > ? ORDER BY seq LIMIT ?",
            (stream_id, after, -1 if limit is None else limit),
        )
        return [event_hash for (event_hash,) in rows]

    def find_keys(self, stream_id: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The keys of entries of a space, and their places."""
        text = "SELECT key, seq FROM lookup_keys WHERE stream_id = ? AND key BETWEEN ? AND ? ORDER BY key, seq"
        return [row for bounds in sorted(ranges) for row in self._query(text, (stream_id, *bounds))]

    def find_hashes(self, stream_id: str, first: bytes, last: bytes) -> list[tuple[bytes, int]]:
        """The hashes of entries, each in the one that follows it; that of the newest is in the head."""
        head = self.head(stream_id)
        rows = self._query(
            "SELECT prev_event_hash, seq - 1 FROM audit_events"
            " WHERE stream_id = ? AND prev_event_hash BETWEEN ? AND ? AND seq > 0",
            (stream_id, first, last),
        )
        newest = [] if head is None or not first <= head.event_hash <= last else [(head.event_hash, head.seq)]
        # It is among the rows too where the stream has grown since.
        return sorted({*((event_hash, seq) for event_hash, seq in rows), *newest})

    def sessions(self, after: tuple[str, str] | None, limit: int) -> list[SessionSummary]:
        """Sessions in the order of their creation."""
        rows = self._query_page(
            "SELECT session_id, created_ts, universe_size, n_survivors, terminated, head_seq, head_event_id"  # noqa: S608 - no input in it
            " FROM sessions WHERE (created_ts, session_id) > (?, ?)"
            + NO_OTHER_KIND.format(column="session_id")
            + " ORDER BY created_ts, session_id LIMIT ?",
            (*(after or ("", "")), limit),
            (str, str, int, int, int, int, str),
        )
        return [SessionSummary(*row)._replace(terminated=bool(row[4])) for row in rows]

    def find_sessions(self, query: SessionQuery, after: tuple[str, str] | None, limit: int) -> list[ListedSession]:
        """Sessions that a query takes."""
        found = build_search(query, after, limit, mark="?", schema="", contains="instr(l.search, ?) > 0")
        # Numbers that are none are read from the log instead.
        types = (str, str, object, object, object, int, str)
        return read_found(self._query_page(found[0], tuple(found[1]), types), self.read)

    def streams(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Streams by name."""
        return [name for name, _ in self.stream_heads(prefix, after, limit)]

    def stream_heads(self, prefix: str, after: str | None, limit: int) -> list[tuple[str, Head]]:
        """Streams by name, and where each ends."""
        rows = self._query_page(
            f"SELECT session_id, {_HEAD} FROM sessions"  # noqa: S608
            " WHERE session_id >= ? AND session_id > ? AND session_id < ? ORDER BY session_id LIMIT ?",
            (prefix, after or "", beyond(prefix), limit),
            (str,),
        )
        return [(name, Head(seq, digest)) for name, seq, digest in rows]

    def find_keyed_entry(self) -> tuple[str, int] | None:
        """Some entry that was written with a key, of the streams that were begun last."""
        rows = self._query(_KEYED_ENTRY, (len(AUTHENTICATED), AUTHENTICATED))
        return (rows[0][0], rows[0][1]) if rows else None

    def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None:
        """Keep derived data."""
        with self._transaction("cannot keep a checkpoint"):
            self._writer.execute(
                "INSERT INTO checkpoints VALUES (?1, ?2, ?3) ON CONFLICT (session_id)"
                " DO UPDATE SET seq = ?2, data = ?3 WHERE seq <= ?2",
                (stream_id, seq, data),
            )

    def checkpoint(self, stream_id: str) -> tuple[int, bytes] | None:
        """The newest checkpoint."""
        # One of another kind of seq is none: it may be lost at any time.
        rows = self._query(
            "SELECT seq, CAST(data AS BLOB) FROM checkpoints WHERE session_id = ? AND typeof(seq) = 'integer'",
            (stream_id,),
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def put_intent(self, append: Append) -> None:
        """Record an entry that is about to be carried out elsewhere."""
        with self._transaction("cannot record an intent"):
            recorded = self._writer.execute(
                "INSERT INTO intents SELECT ?1, ?2, ?3, ?4 WHERE ?5 ="
                " coalesce((SELECT head_hash FROM sessions WHERE session_id = ?1), zeroblob(32))",
                (*self.expect_intent(append).values(), append.prev_event_hash),
            )
            if recorded.rowcount != 1:
                raise StaleHead(append.stream_id)

    def intent(self, stream_id: str) -> StoredEntry | None:
        """The open intent of a stream."""
        rows = self._query(
            "SELECT CAST(entry AS BLOB), CAST(event_hash AS BLOB) FROM intents WHERE stream_id = ?", (stream_id,)
        )
        return StoredEntry(*rows[0]) if rows else None

    def open_intents(self, limit: int) -> list[str]:
        """Streams that have an open intent."""
        rows = self._query_page("SELECT stream_id FROM intents ORDER BY stream_id LIMIT ?", (limit,), (str,))
        return [stream_id for (stream_id,) in rows]

    def drop_intent(self, stream_id: str, event_hash: bytes) -> None:
        """Close an intent that came to nothing."""
        with self._transaction("cannot drop an intent"):
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
                self._seal(session_id, known, ())
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
            state = self.recover(session_id)
            known = frozenset(eliminated) & state.hypothesis_ids
            applied = known - state.eliminated
            self._writer.executemany(
                "INSERT INTO tombstones (session_id, hypothesis_id) VALUES (:session_id, :hypothesis_id)",
                [self.expect_tombstone(session_id, hypothesis_id) for hypothesis_id in applied],
            )
            self._seal(session_id, state.hypothesis_ids, state.eliminated | applied)
        return EliminationResult(applied, known - applied)

    def _seal(self, session_id: str, universe: AbstractSet[str], eliminated: Iterable[str]) -> None:
        self._writer.execute(
            "INSERT INTO seals VALUES (?1, ?2, ?3, ?4) ON CONFLICT (session_id)"
            " DO UPDATE SET universe_digest = ?2, tombstones_digest = ?3, digest = ?4",
            (session_id, *seal_session(session_id, universe, eliminated)),
        )

    def get_survivors(self, session_id: str) -> frozenset[str]:
        """The universe less the tombstones."""
        return self.recover(session_id).survivors

    def get_eliminated(self, session_id: str) -> frozenset[str]:
        """The tombstones."""
        return self.recover(session_id).eliminated

    def recover(self, session_id: str) -> RecoveredState:
        """Universe, tombstones and survivors."""
        universe = self._universe(session_id)
        # As bytes, whatever the column holds: what is no id is in no universe.
        rows = self._query("SELECT CAST(hypothesis_id AS BLOB) FROM tombstones WHERE session_id = ?", (session_id,))
        gone = {row[0].decode(errors="surrogateescape") for row in rows}
        # Whatever the count says: a row that was edited by hand must be judged by its entry.
        for stored in self.read(session_id):
            gone.update(read_eliminated(stored))
        return recover_state(universe, gone)

    def _universe(self, session_id: str) -> frozenset[str]:
        declared = self.read(session_id, limit=1)
        if declared:
            return read_declared_universe(declared[0])
        rows = self._query("SELECT CAST(hypothesis_ids AS BLOB) FROM universes WHERE session_id = ?", (session_id,))
        if not rows:
            raise SessionNotFound(session_id)
        return read_universe(rows[0][0])

    def _query(self, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        with self._translate_errors("cannot read"), self._reader() as connection:
            return connection.execute(statement, parameters).fetchall()

    def _query_page(self, statement: str, parameters: tuple[Any, ...], types: tuple[type[object], ...]) -> list[Any]:
        """The rows of a statement whose last parameter is its limit, whose first columns are of these types.

        A row that was edited by hand hides no other: it is left out, and so are texts that are not UTF-8.
        """
        with self._translate_errors("cannot read"), self._reader() as connection:
            with suppress(sqlite3.OperationalError):  # said again below, where it is no text that is not UTF-8
                rows = connection.execute(statement, parameters).fetchall()
                if all(_has_types(row, types) for row in rows):
                    return rows
            usual, connection.text_factory = connection.text_factory, _decode_or_leave
            try:
                every = connection.execute(statement, (*parameters[:-1], -1))
                return list(islice((row for row in every if _has_types(row, types)), parameters[-1]))
            finally:
                connection.text_factory = usual

    @contextmanager
    def _reading_as_stored(self) -> Iterator[sqlite3.Connection]:
        with (
            self._translate_errors("cannot read"),
            self._reader() as connection,
            reading_as_stored(connection),
        ):
            yield connection

    @contextmanager
    def _translate_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as exc:
            # Raised by the trigger that compares heads, or by a uniqueness guard: either way another writer was first.
            raise StaleHead(str(exc)) from exc
        except StoreRefused as exc:
            raise StoreUnavailable(f"{doing}: {exc}") from exc
        except sqlite3.Error as exc:
            busy = getattr(exc, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            said = self._describe_lock("another process") if busy else str(exc)
            raise StoreUnavailable(f"{doing}: {said}") from exc

    def _describe_lock(self, holder: str) -> str:
        return (
            f"`{self._path}` is locked by {holder}, and was for the {self._timeout_seconds:g} seconds that are waited"
            " (`CMBS_STORE_TIMEOUT_SECONDS`); try again"
        )


def _has_types(row: Sequence[object], types: Sequence[type[object]]) -> bool:
    return all(map(isinstance, row, types))


def _decode_or_leave(raw: bytes) -> str | bytes:
    """Text, or what is no UTF-8 as the bytes that it is."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


class InspectedSQLiteStore(SQLiteStore):
    """A file of this format as it is, to be looked at and not changed: it may lack whatever it lacks."""

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        connection = super()._connect(mode)
        connection.execute("PRAGMA query_only = 1")
        return connection

    def _prepare(self) -> None:
        with transaction(self._writer, "BEGIN"):
            if not is_marked(self._writer, LOG_FILE):
                raise sqlite3.DatabaseError("there is no cmbs store in this file")
