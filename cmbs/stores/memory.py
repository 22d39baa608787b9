"""Sessions in memory: for tests, for play, and for sessions that need not outlive the process."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from itertools import islice
from threading import RLock

from cmbs.errors import SessionNotFound
from cmbs.ledger import GENESIS, Head, StoredEntry
from cmbs.ledger.listing import Indexed
from cmbs.spi.audit_log import Append, SessionState, SessionSummary, StaleHead, is_reserved, keys_of_append, take_page
from cmbs.spi.elimination_store import EliminationProvenance, EliminationResult, RecoveredState
from cmbs.spi.journal import JOURNAL_BEGINNING, JournalPlace
from cmbs.spi.session_search import ListedSession, SessionQuery
from cmbs.stores.tombstones import recover_state, refuse_logged, refuse_other_universe

_BEFORE_ALL = Head(-1, GENESIS)
# Lookup keys that differ in these last bits only are kept together.
_SHELF_BITS = 48


class _Stream:
    """One session: its universe, tombstones and entries."""

    __slots__ = (
        "checkpoint",
        "created_ts",
        "entries",
        "head",
        "lookups",
        "newest",
        "seqs",
        "terms",
        "tombstones",
        "unique_keys",
        "universe",
    )

    def __init__(self, universe: Sequence[str], created_ts: str) -> None:
        self.universe = universe
        self.created_ts = created_ts
        self.tombstones: set[str] = set()
        self.entries: list[StoredEntry] = []
        self.head: Head | None = None
        self.unique_keys: set[tuple[str, str]] = set()
        # Where the entries of a space are: lookup keys and seqs, by the first bits of the keys; and by their hashes.
        self.lookups: dict[int, list[tuple[int, int]]] = {}
        self.seqs: dict[bytes, int] = {}
        self.newest: Append | None = None
        # What a session is found by.
        self.terms: set[bytes] = set()
        self.checkpoint: tuple[int, bytes] | None = None


class InMemoryStore:
    """An `EliminationStore` and an `AuditLog` in one, in this process alone."""

    blocking = False

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        # Sessions by age, and the streams of other kinds by name.
        self._order: list[tuple[str, str]] = []
        self._names: list[str] = []
        self._intents: dict[str, StoredEntry] = {}
        self._journal: list[JournalPlace] = []
        self._lock = RLock()

    # --- elimination store ---

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """Register a session and its universe."""
        with self._lock:
            known = self._streams.get(session_id)
            if known is None:
                self._streams[session_id] = _Stream(tuple(hypothesis_ids), "")
            elif frozenset(known.universe) != hypothesis_ids:
                raise refuse_other_universe(session_id)

    def eliminate(
        self,
        session_id: str,
        eliminated: AbstractSet[str],
        provenance: EliminationProvenance,  # noqa: ARG002
    ) -> EliminationResult:
        """Add tombstones."""
        with self._lock:
            stream = self._stream(session_id)
            if stream.head is not None:
                raise refuse_logged(session_id)
            known = frozenset(eliminated).intersection(stream.universe)
            applied = known - stream.tombstones
            stream.tombstones |= applied
            return EliminationResult(applied, known - applied)

    def get_survivors(self, session_id: str) -> frozenset[str]:
        """The universe less the tombstones."""
        return self.recover(session_id).survivors

    def get_eliminated(self, session_id: str) -> frozenset[str]:
        """The tombstones."""
        with self._lock:
            return frozenset(self._stream(session_id).tombstones)

    def recover(self, session_id: str) -> RecoveredState:
        """Universe, tombstones and survivors."""
        with self._lock:
            stream = self._stream(session_id)
            return recover_state(frozenset(stream.universe), stream.tombstones)

    def _stream(self, session_id: str) -> _Stream:
        stream = self._streams.get(session_id)
        if stream is None:
            raise SessionNotFound(session_id)
        return stream

    # --- audit log ---

    def append(self, appends: Sequence[Append]) -> None:
        """Write all entries or none."""
        with self._lock:
            self._refuse_stale(appends)
            for item in appends:
                self._write(item)

    def _refuse_stale(self, appends: Sequence[Append]) -> None:
        heads: dict[str, Head] = {}
        keys: set[tuple[str, tuple[str, str]]] = set()
        for item in appends:
            stream_id = item.stream_id
            stream = self._streams.get(stream_id)
            head = heads.get(stream_id) or (stream.head if stream is not None else None) or _BEFORE_ALL
            if item.seq != head.seq + 1 or item.prev_event_hash != head.event_hash:
                raise StaleHead(stream_id)
            if item.unique_key is not None:
                key = (stream_id, item.unique_key)
                if key in keys or (stream is not None and item.unique_key in stream.unique_keys):
                    raise StaleHead(stream_id)
                keys.add(key)
            heads[stream_id] = Head(item.seq, item.entry.event_hash)
            if self._intents.get(stream_id, item.entry) != item.entry:
                raise StaleHead(stream_id)

    def _write(self, item: Append) -> None:
        stream = self._streams.get(item.stream_id)
        if stream is None or stream.newest is None:
            stream = self._streams[item.stream_id] = _Stream(item.session.universe if item.session else (), item.ts)
            if is_reserved(item.stream_id):
                insort(self._names, item.stream_id)
            else:
                self._order.append((item.ts, item.stream_id))
                if len(self._order) > 1 and self._order[-2] > self._order[-1]:
                    self._order.sort()
        self._intents.pop(item.stream_id, None)
        stream.entries.append(item.entry)
        stream.head = Head(item.seq, item.entry.event_hash)
        if item.tombstones is not None:
            stream.tombstones.update(item.tombstones.ids)
        if item.unique_key is not None:
            stream.unique_keys.add(item.unique_key)
        for key in keys_of_append(item):
            stream.lookups.setdefault(key >> _SHELF_BITS, []).append((key, item.seq))
            stream.seqs[item.entry.event_hash] = item.seq
        if item.session is not None:
            stream.terms.difference_update(item.session.lost_terms)
            stream.terms.update(item.session.terms)
        stream.newest = item
        self._journal.append(JournalPlace(len(self._journal) + 1, item.stream_id, item.seq))

    @contextmanager
    def exclusive(self, stream_ids: Iterable[str]) -> Iterator[None]:  # noqa: ARG002 - one lock for all streams
        """Hold off other writers."""
        with self._lock:
            yield

    def head(self, stream_id: str) -> Head | None:
        """Where the stream ends."""
        stream = self._streams.get(stream_id)
        return stream.head if stream else None

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        """Entries beyond `after`."""
        with self._lock:
            stream = self._streams.get(stream_id)
            first = after + 1
            found = [] if stream is None else stream.entries[first : None if limit is None else first + limit]
            return found if max_bytes is None else take_page(found, max_bytes)

    def hashes(self, stream_id: str, after: int = -1, limit: int | None = None) -> list[bytes]:
        """The hashes alone."""
        return [entry.event_hash for entry in self.read(stream_id, after, limit)]

    def find_keys(self, stream_id: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The keys of entries of a space, and their places."""
        with self._lock:
            stream = self._streams.get(stream_id)
            known = {} if stream is None else stream.lookups
            return sorted(
                row
                for first, last in ranges
                for shelf in range(first >> _SHELF_BITS, (last >> _SHELF_BITS) + 1)
                for row in known.get(shelf, ())
                if first <= row[0] <= last
            )

    def find_hashes(self, stream_id: str, first: bytes, last: bytes) -> list[tuple[bytes, int]]:
        """The hashes of entries, and their places."""
        with self._lock:
            stream = self._streams.get(stream_id)
            known = {} if stream is None else stream.seqs
            return sorted((each, seq) for each, seq in known.items() if first <= each <= last)

    def sessions(self, after: tuple[str, str] | None, limit: int) -> list[SessionSummary]:
        """Sessions in the order of their creation."""
        with self._lock:
            first = 0 if after is None else bisect_right(self._order, after)
            streams = [self._streams[session_id] for _, session_id in self._order[first : first + limit]]
            return [_summarise(stream, stream.newest) for stream in streams if stream.newest is not None]

    def find_sessions(self, query: SessionQuery, after: tuple[str, str] | None, limit: int) -> list[ListedSession]:
        """Sessions that a query takes."""
        with self._lock:
            if query.newest_first:
                last = len(self._order) if after is None else bisect_left(self._order, after)
                places: Iterable[tuple[str, str]] = reversed(self._order[:last])
            else:
                places = self._order[0 if after is None else bisect_right(self._order, after) :]
            found = (self._find_listed(session_id, query) for _, session_id in places)
            return list(islice((each for each in found if each is not None), limit))

    def _find_listed(self, session_id: str, query: SessionQuery) -> ListedSession | None:
        stream = self._streams[session_id]
        newest = stream.newest
        listing = None if newest is None or newest.session is None else newest.session.listing
        if newest is None or listing is None or not query.takes(session_id, Indexed(listing, stream.terms)):
            return None
        return ListedSession(_summarise(stream, newest), listing)

    def journal(self, after: JournalPlace, limit: int) -> list[JournalPlace]:
        """Entries of all streams, in the order in which they were appended."""
        return self._journal[after.position : after.position + limit]

    def journal_end(self) -> JournalPlace:
        """The last of them."""
        return self._journal[-1] if self._journal else JOURNAL_BEGINNING

    def streams(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Streams by name."""
        with self._lock:
            names = self._names
            first = max(bisect_left(names, prefix), 0 if after is None else bisect_right(names, after))
            return [name for name in names[first : first + limit] if name.startswith(prefix)]

    def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None:
        """Keep derived data."""
        with self._lock:
            stream = self._streams.get(stream_id)
            if stream is not None and (stream.checkpoint is None or stream.checkpoint[0] <= seq):
                stream.checkpoint = (seq, data)

    def checkpoint(self, stream_id: str) -> tuple[int, bytes] | None:
        """The newest checkpoint."""
        stream = self._streams.get(stream_id)
        return stream.checkpoint if stream else None

    def put_intent(self, append: Append) -> None:
        """Record an entry that is about to be carried out elsewhere."""
        with self._lock:
            self._refuse_stale([append])
            if append.stream_id in self._intents:
                raise StaleHead(append.stream_id)
            self._intents[append.stream_id] = append.entry

    def intent(self, stream_id: str) -> StoredEntry | None:
        """The open intent of a stream."""
        return self._intents.get(stream_id)

    def open_intents(self, limit: int) -> list[str]:
        """Streams that have an open intent."""
        with self._lock:
            return sorted(self._intents)[:limit]

    def drop_intent(self, stream_id: str, event_hash: bytes) -> None:
        """Close an intent that came to nothing."""
        with self._lock:
            intended = self._intents.get(stream_id)
            if intended is not None and intended.event_hash == event_hash:
                del self._intents[stream_id]

    def close(self) -> None:
        """Nothing to release."""


def _summarise(stream: _Stream, newest: Append) -> SessionSummary:
    session = newest.session or SessionState(0, terminated=False)
    return SessionSummary(
        newest.stream_id,
        stream.created_ts,
        len(stream.universe),
        session.n_survivors,
        session.terminated,
        newest.seq,
        newest.event_id,
    )
