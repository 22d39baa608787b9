"""Sessions in PostgreSQL: any number of processes and machines over one database act as one server.

A group of appends is one call of a function in the database: one round trip, one commit. The row of each session is its
lock, and the uniqueness of (stream, seq) and (stream, prev_event_hash) makes a fork impossible.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from cmbs.errors import InvalidRequest, SessionNotFound, StoreUnavailable
from cmbs.ledger import Head, StoredEntry
from cmbs.spi.audit_log import (
    AUTHENTICATED,
    PAGE_BYTES,
    Append,
    Opening,
    SessionSummary,
    StaleHead,
    beyond,
)
from cmbs.spi.elimination_store import EliminationProvenance, EliminationResult, RecoveredState
from cmbs.spi.session_search import ListedSession, SessionQuery
from cmbs.spi.stored_format import StoreRefused
from cmbs.stores._postgres_catalog import refuse_faulty_schema, refuse_other_database
from cmbs.stores._postgres_connection import STATEMENT_WAITS, WAIT_SECONDS, Connection, note_unreplicated
from cmbs.stores._postgres_partitions import partition_tables
from cmbs.stores._postgres_rows import PostgresRows, append_columns
from cmbs.stores._postgres_schema import STALE_HEAD, create_schema
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

_CONNECTIONS = 16
_CONNECT_SECONDS = 5.0
# How long a lost connection is tried for again, before the next caller has to ask for it. Short, because the pauses
# between attempts double: after a long outage the next attempt would be a long time off.
_RECONNECT_SECONDS = 1.0
# How long a caller waits where the last attempts to connect failed: later callers must not queue up behind them.
_GONE_SECONDS = 0.1
_APPEND = "SELECT cmbs.append_entries(" + ", ".join(["%b"] * 24) + ")"
# Locks the session's row, as an append does: of an intent and an append, one comes first and the other is stale.
_INTEND = """
WITH head AS (SELECT head_seq, head_hash FROM cmbs.sessions WHERE session_id = %(stream_id)s FOR UPDATE)
INSERT INTO cmbs.intents SELECT %(stream_id)s, %(seq)s, %(event_hash)b, %(entry)b
WHERE (%(seq)s, %(prev_event_hash)b) = (
    coalesce((SELECT head_seq FROM head), -1) + 1,
    coalesce((SELECT head_hash FROM head), decode(repeat('00', 32), 'hex')))
"""

_HEAD = "SELECT head_seq, head_hash FROM cmbs.sessions WHERE session_id = %s"
_CHECKPOINT = "SELECT seq, data FROM cmbs.checkpoints WHERE session_id = %s"
# A session without a checkpoint is read whole afterwards: its declaration, which may be long, only then.
_DECLARATION = """
SELECT entry, event_hash FROM cmbs.audit_events WHERE stream_id = %s AND seq = 0
AND EXISTS (SELECT 1 FROM cmbs.checkpoints WHERE session_id = %s)
"""
# Up to the one with which they have so many bytes together. No entry is read to be measured.
_WITHIN = """
SELECT entry, event_hash FROM (
    SELECT seq, entry, event_hash,
        sum(octet_length(entry)) OVER (ORDER BY seq) - octet_length(entry) AS bytes_before
    FROM cmbs.audit_events WHERE stream_id = %s AND seq {beyond} ORDER BY seq {limit}
) AS listed
WHERE bytes_before = 0 OR bytes_before < %s ORDER BY seq
"""
_ENTRIES_WITHIN = _WITHIN.format(beyond="> %s", limit="LIMIT %s")
_SINCE_CHECKPOINT = _WITHIN.format(beyond=">= (SELECT seq FROM cmbs.checkpoints WHERE session_id = %s)", limit="")
_KEYED_ENTRY = """
SELECT e.stream_id, e.seq
FROM (SELECT session_id, head_seq FROM cmbs.sessions ORDER BY created_ts DESC, session_id DESC LIMIT 1000) AS s
JOIN cmbs.audit_events AS e ON e.stream_id = s.session_id
    AND e.seq IN (0, s.head_seq, s.head_seq - 1, s.head_seq - 2, s.head_seq - 3)
WHERE CASE WHEN substring(e.entry FROM 1 FOR %s) = %s
    THEN convert_from(e.entry, 'UTF8')::json -> 'actor' ->> 'key_id' IS NOT NULL END LIMIT 1
"""


class PostgresStore(PostgresRows):
    """An `EliminationStore` and an `AuditLog` in one database.

    Nothing waits longer than `timeout_seconds` for a connection or a lock, or six times that for a statement.
    """

    blocking = True

    def __init__(self, url: str, timeout_seconds: float = WAIT_SECONDS) -> None:
        try:
            conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # Without the cause, which quotes the URL: there may be a password in it.
            raise InvalidRequest("not a URL of the kind `postgresql://user@host/database`") from None
        options = _options(timeout_seconds)
        patience = STATEMENT_WAITS * timeout_seconds
        self._exclusive = threading.local()
        self._timeout_seconds = timeout_seconds
        self._gone = False

        def configure(connection: Connection) -> None:
            connection.patience = patience
            connection.add_notice_handler(partial(note_unreplicated, connection))

        def check(connection: Connection) -> None:
            # Whether it still answers: that takes no time, where a statement may.
            connection.patience = timeout_seconds
            ConnectionPool.check_connection(connection)
            connection.patience = patience

        def mark_gone(_: ConnectionPool[Connection]) -> None:
            self._gone = True

        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            connection_class=Connection,
            kwargs=options,
            configure=configure,
            min_size=1,
            max_size=_CONNECTIONS,
            reconnect_timeout=_RECONNECT_SECONDS,
            reconnect_failed=mark_gone,
            check=check,
            name="cmbs",
            open=False,
        )
        # Once without the pool, which would try again and again before it said why.
        with _translate_errors("cannot open the database"):
            with Connection.connect(url, **options) as connection:
                configure(connection)
                self._prepare(connection)
            self._pool.open()

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Make the schema in an empty database, and see that it has what writing relies on."""
        create_schema(connection)
        refuse_faulty_schema(connection)

    @contextmanager
    def _take_connection(self) -> Iterator[Connection]:
        """A connection of the pool. Where there was none to be had lately, one that is there by now, or none."""
        patience = min(_GONE_SECONDS, self._timeout_seconds) if self._gone else self._timeout_seconds
        with self._pool.connection(patience) as connection:
            self._gone = False
            connection.unreplicated = False
            yield connection
            if connection.unreplicated:
                raise StoreUnavailable("the commit was cut short before a standby had it; it may be lost, so try again")

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection; inside `exclusive`, the one that holds the locks."""
        held: psycopg.Connection[Any] | None = getattr(self._exclusive, "connection", None)
        if held is not None:
            yield held
            return
        with self._take_connection() as connection:
            yield connection

    # --- audit log ---

    def append(self, appends: Sequence[Append]) -> None:
        """Write all entries or none, in one commit."""
        if not appends:
            return
        with _translate_errors("cannot append"), self._connection() as connection:
            connection.execute(_APPEND, append_columns(appends), prepare=True)

    @contextmanager
    def exclusive(self, stream_ids: Iterable[str]) -> Iterator[None]:
        """Hold off other writers of these streams, by the locks of their rows."""
        wanted = sorted(set(stream_ids))
        # A pipeline: others wait for as long as the rows are locked, and append and commit are then one round trip.
        with (
            _translate_errors("cannot lock"),
            self._take_connection() as connection,
            connection.pipeline(),
            connection.transaction(),
        ):
            rows = connection.execute(
                "SELECT session_id, head_seq, head_hash FROM cmbs.sessions"
                " WHERE session_id = ANY (%s) ORDER BY session_id FOR UPDATE",
                (wanted,),
                prepare=True,
            ).fetchall()
            self._exclusive.connection = connection
            self._exclusive.heads = {session_id: Head(seq, digest) for session_id, seq, digest in rows}
            try:
                yield
            finally:
                self._exclusive.connection = None
                self._exclusive.heads = {}

    def head(self, stream_id: str) -> Head | None:
        """Where the stream ends."""
        held: dict[str, Head] = getattr(self._exclusive, "heads", {})
        if stream_id in held:
            return held[stream_id]
        rows = self._query(_HEAD, (stream_id,))
        return Head(*rows[0]) if rows else None

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        """Entries beyond `after`."""
        rows = self._query(
            "SELECT entry, event_hash FROM cmbs.audit_events WHERE stream_id = %s AND seq > %s ORDER BY seq LIMIT %s"
            if max_bytes is None
            else _ENTRIES_WITHIN,
            (stream_id, after, limit) if max_bytes is None else (stream_id, after, limit, max_bytes),
        )
        return [StoredEntry(raw, digest) for raw, digest in rows]

    def hashes(self, stream_id: str, after: int = -1, limit: int | None = None) -> list[bytes]:
        """The hashes alone."""
        rows = self._query(
            "SELECT event_hash FROM cmbs.audit_events WHERE stream_id = %s AND seq > %s ORDER BY seq LIMIT %s",
            (stream_id, after, limit),
        )
        return [event_hash for (event_hash,) in rows]

    def find_keys(self, stream_id: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The keys of entries of a space, and their places."""
        rows = self._query(
            "SELECT key, seq FROM unnest(%s::bigint[], %s::bigint[]) AS r (first, last)"
            " JOIN cmbs.lookup_keys ON stream_id = %s AND key BETWEEN r.first AND r.last ORDER BY key, seq",
            ([first for first, _ in ranges], [last for _, last in ranges], stream_id),
        )
        return [(key, seq) for key, seq in rows]

    def find_hashes(self, stream_id: str, first: bytes, last: bytes) -> list[tuple[bytes, int]]:
        """The hashes of entries, each in the one that follows it; that of the newest is in the head."""
        head = self.head(stream_id)
        rows = self._query(
            "SELECT prev_event_hash, seq - 1 FROM cmbs.audit_events"
            " WHERE stream_id = %s AND prev_event_hash BETWEEN %b AND %b AND seq > 0",
            (stream_id, first, last),
        )
        newest = [] if head is None or not first <= head.event_hash <= last else [(head.event_hash, head.seq)]
        # It is among the rows too where the stream has grown since.
        return sorted({*((event_hash, seq) for event_hash, seq in rows), *newest})

    def sessions(self, after: tuple[str, str] | None, limit: int) -> list[SessionSummary]:
        """Sessions in the order of their creation."""
        rows = self._query(
            "SELECT session_id, created_ts, universe_size, n_survivors, terminated, head_seq, head_event_id"  # noqa: S608 - no input in it
            " FROM cmbs.sessions WHERE (created_ts, session_id) > (%s, %s)"
            + NO_OTHER_KIND.format(column="session_id")
            + " ORDER BY created_ts, session_id LIMIT %s",
            (*(after or ("", "")), limit),
        )
        return [SessionSummary(*row) for row in rows]

    def find_sessions(self, query: SessionQuery, after: tuple[str, str] | None, limit: int) -> list[ListedSession]:
        """Sessions that a query takes."""
        found = build_search(query, after, limit, mark="%s", schema="cmbs.", contains="position(%s in l.search) > 0")
        return read_found(self._query(found[0], tuple(found[1])), self.read)

    def streams(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Streams by name."""
        return [name for name, _ in self.stream_heads(prefix, after, limit)]

    def stream_heads(self, prefix: str, after: str | None, limit: int) -> list[tuple[str, Head]]:
        """Streams by name, and where each ends."""
        rows = self._query(
            "SELECT session_id, head_seq, head_hash FROM cmbs.sessions"
            " WHERE session_id >= %s AND session_id > %s AND session_id < %s ORDER BY session_id LIMIT %s",
            (prefix, after or "", beyond(prefix), limit),
        )
        return [(name, Head(seq, digest)) for name, seq, digest in rows]

    def find_keyed_entry(self) -> tuple[str, int] | None:
        """Some entry that was written with a key, of the streams that were begun last."""
        rows = self._query(_KEYED_ENTRY, (len(AUTHENTICATED), AUTHENTICATED))
        return (rows[0][0], rows[0][1]) if rows else None

    def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None:
        """Keep derived data."""
        with _translate_errors("cannot keep a checkpoint"), self._connection() as connection:
            connection.execute(
                "INSERT INTO cmbs.checkpoints AS kept VALUES (%s, %s, %b) ON CONFLICT (session_id)"
                " DO UPDATE SET seq = EXCLUDED.seq, data = EXCLUDED.data WHERE kept.seq <= EXCLUDED.seq",
                (stream_id, seq, data),
            )

    def checkpoint(self, stream_id: str) -> tuple[int, bytes] | None:
        """The newest checkpoint."""
        rows = self._query(_CHECKPOINT, (stream_id,))
        return (rows[0][0], rows[0][1]) if rows else None

    def opening(self, stream_id: str) -> Opening:
        """What the first use of a stream reads, in one round trip.

        A checkpoint that is replaced meanwhile no longer fits its entries, which costs the reader time and no more.
        """
        one, two = (stream_id,), (stream_id, stream_id)
        heads, kept, declaration, entries = self._queries(
            (_HEAD, one), (_CHECKPOINT, one), (_DECLARATION, two), (_SINCE_CHECKPOINT, (*two, PAGE_BYTES))
        )
        return Opening(
            Head(*heads[0]) if heads else None,
            kept[0][1] if kept else None,
            [StoredEntry(raw, digest) for raw, digest in declaration],
            [StoredEntry(raw, digest) for raw, digest in entries],
        )

    def put_intent(self, append: Append) -> None:
        """Record an entry that is about to be carried out elsewhere."""
        with _translate_errors("cannot record an intent"), self._connection() as connection:
            recorded = connection.execute(
                _INTEND,
                {
                    **self.expect_intent(append),
                    "prev_event_hash": append.prev_event_hash,
                },
            )
            if recorded.rowcount != 1:
                raise StaleHead(append.stream_id)

    def intent(self, stream_id: str) -> StoredEntry | None:
        """The open intent of a stream."""
        rows = self._query("SELECT entry, event_hash FROM cmbs.intents WHERE stream_id = %s", (stream_id,))
        return StoredEntry(*rows[0]) if rows else None

    def open_intents(self, limit: int) -> list[str]:
        """Streams that have an open intent."""
        rows = self._query("SELECT stream_id FROM cmbs.intents ORDER BY stream_id LIMIT %s", (limit,))
        return [row[0] for row in rows]

    def drop_intent(self, stream_id: str, event_hash: bytes) -> None:
        """Close an intent that came to nothing."""
        with _translate_errors("cannot drop an intent"), self._connection() as connection:
            connection.execute(
                "DELETE FROM cmbs.intents WHERE stream_id = %s AND event_hash = %b", (stream_id, event_hash)
            )

    def partition(self, partitions: int) -> None:
        """Cut the tables of an empty database in so many partitions; StoreUnavailable where something is in it."""
        with _translate_errors("cannot partition"), self._connection() as connection:
            partition_tables(connection, partitions)

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    # --- elimination store ---

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """Register a session that has no log here."""
        universe = write_universe(hypothesis_ids)
        with _translate_errors("cannot create a session"), self._connection() as connection:
            connection.execute(
                "WITH created AS (INSERT INTO cmbs.universes SELECT %(session_id)s, %(universe)b"
                " WHERE NOT EXISTS (SELECT 1 FROM cmbs.sessions WHERE session_id = %(session_id)s)"
                " ON CONFLICT DO NOTHING RETURNING session_id)"
                " INSERT INTO cmbs.seals SELECT session_id, %(universe_digest)b, %(tombstones_digest)b, %(digest)b"
                " FROM created",
                {
                    "session_id": session_id,
                    "universe": universe,
                    **seal_session(session_id, hypothesis_ids, ())._asdict(),
                },
            )
        if self._universe(session_id) != hypothesis_ids:
            raise refuse_other_universe(session_id)

    def eliminate(
        self,
        session_id: str,
        eliminated: AbstractSet[str],
        provenance: EliminationProvenance,  # noqa: ARG002
    ) -> EliminationResult:
        """Add tombstones to a session that has no log here."""
        if self.head(session_id) is not None:
            raise refuse_logged(session_id)
        universe = self._universe(session_id)
        known = frozenset(eliminated) & universe
        with _translate_errors("cannot eliminate"), self._connection() as connection, connection.transaction():
            # One after the other: the seal is of all tombstones.
            connection.execute("SELECT 1 FROM cmbs.universes WHERE session_id = %s FOR UPDATE", (session_id,))
            rows = connection.execute(
                "INSERT INTO cmbs.tombstones SELECT %s, unnest(%b::bytea[])"
                " ON CONFLICT DO NOTHING RETURNING hypothesis_id",
                (session_id, [self.expect_tombstone(session_id, each)["hypothesis_id"] for each in sorted(known)]),
            ).fetchall()
            gone = connection.execute(
                "SELECT hypothesis_id FROM cmbs.tombstones WHERE session_id = %s", (session_id,)
            ).fetchall()
            connection.execute(
                "INSERT INTO cmbs.seals VALUES (%s, %s, %s, %s) ON CONFLICT (session_id) DO UPDATE SET"
                " universe_digest = EXCLUDED.universe_digest, tombstones_digest = EXCLUDED.tombstones_digest,"
                " digest = EXCLUDED.digest",
                (session_id, *seal_session(session_id, universe, (row[0].decode() for row in gone))),
            )
        applied = frozenset(row[0].decode() for row in rows)
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
        rows = self._query("SELECT hypothesis_id FROM cmbs.tombstones WHERE session_id = %s", (session_id,))
        gone = {row[0].decode() for row in rows}
        for stored in self.read(session_id):
            gone.update(read_eliminated(stored))
        return recover_state(universe, gone)

    def _universe(self, session_id: str) -> frozenset[str]:
        declared = self.read(session_id, limit=1)
        if declared:
            return read_declared_universe(declared[0])
        rows = self._query("SELECT hypothesis_ids FROM cmbs.universes WHERE session_id = %s", (session_id,))
        if not rows:
            raise SessionNotFound(session_id)
        return read_universe(rows[0][0])

    @contextmanager
    def _connecting_to_read(self) -> Iterator[psycopg.Connection[Any]]:
        with _translate_errors("cannot read"), self._connection() as connection:
            yield connection

    def _query(self, statement: str, parameters: tuple[Any, ...] | dict[str, Any]) -> list[Any]:
        if _unknown(parameters.values() if isinstance(parameters, dict) else parameters):
            return []
        with _translate_errors("cannot read"), self._connection() as connection:
            return connection.execute(statement, parameters, prepare=True, binary=True).fetchall()

    def _queries(self, *queries: tuple[str, tuple[Any, ...]]) -> list[list[Any]]:
        """The rows of several queries, which are carried out in this order and asked together."""
        if any(_unknown(parameters) for _, parameters in queries):
            return [[] for _ in queries]
        with _translate_errors("cannot read"), self._connection() as connection, connection.pipeline():
            cursors = [connection.execute(query, given, prepare=True, binary=True) for query, given in queries]
            return [cursor.fetchall() for cursor in cursors]


class InspectedPostgresStore(PostgresStore):
    """A database of this format as it is, to be looked at and not changed: it may lack whatever it lacks."""

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        refuse_other_database(connection)


def _unknown(parameters: Iterable[Any]) -> bool:
    """Whether nothing can be found under these: no text in the database can hold a NUL."""
    return any(isinstance(value, str) and "\0" in value for value in parameters)


def _options(timeout_seconds: float) -> dict[str, Any]:
    milliseconds = round(timeout_seconds * 1000)
    return {
        "autocommit": True,
        "connect_timeout": max(1, round(min(_CONNECT_SECONDS, timeout_seconds))),
        "application_name": "cmbs",
        "options": f"-c statement_timeout={STATEMENT_WAITS * milliseconds} -c lock_timeout={milliseconds}"
        " -c synchronous_commit=on",
    }


@contextmanager
def _translate_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except (errors.UniqueViolation, errors.DeadlockDetected, errors.SerializationFailure) as exc:
        raise StaleHead(str(exc)) from exc
    except StoreRefused as exc:
        raise StoreUnavailable(f"{doing}: {exc}") from exc
    except psycopg.DataError as exc:
        raise InvalidRequest(f"{doing}: PostgreSQL cannot hold this: {exc}") from exc
    except psycopg.Error as exc:
        if exc.sqlstate == STALE_HEAD:
            raise StaleHead("the stored head is another") from exc
        # The first line says what happened; the others are advice, in sentences.
        said = str(exc).strip().partition("\n")[0]
        raise StoreUnavailable(f"{doing}: {said or type(exc).__name__}") from exc
