"""Lookups in the past of a space, held against its entries: rows that a store keeps beside them decide nothing.

The keys of every entry that may have left the state are derived again from verified bytes, and kept in memory: some 12
bytes a key. A store whose rows lack one of them is refused. Where much of a past is still unread, as after a start, it
is read in the background; until then the rows are believed, and what they said is judged when the past is known.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock, Thread

from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.ledger import StoredEntry
from cmbs.ledger.lookup_keys import lookup_keys
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import LookupLog, find_entries
from cmbs.streams.reading import read_entries
from cmbs.substrate.kernel import retention
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.kernel.state import Space

_log = logging.getLogger("cmbs.substrate")
# So many entries are read while a caller waits; a longer past is read in the background.
MAX_ENTRIES_AT_ONCE = 5_000
_PAGE = 500
# After each page the thread rests so many times as long as it took.
_REST = 3
# Keys of all spaces together, about 100 MB; the past of the space that was used least recently is forgotten first.
MAX_KEYS = 8_000_000
# Rows that were believed before the past of a space was read, of which so many are judged afterwards.
_MAX_BELIEVED = 100_000

_BUCKETS = 4_096
_KEY_BYTES, _SEQ_BYTES = 8, 5
_ROW_BYTES = _KEY_BYTES + _SEQ_BYTES

Rows = list[tuple[int, int]]


class KeyIndex:
    """The keys of all entries of a stream up to `covered`, each with the seq of its entry."""

    def __init__(self) -> None:
        self.covered = -1
        self.size = 0
        self._buckets: dict[int, bytearray] = {}

    def extend(self, entries: Iterable[StoredEntry]) -> None:
        """Add the entries that follow."""
        for stored in entries:
            self.covered += 1
            for key in lookup_keys(stored.raw):
                bucket = self._buckets.setdefault(key % _BUCKETS, bytearray())
                bucket += _encode_key(key) + self.covered.to_bytes(_SEQ_BYTES, "big")
                self.size += 1

    def find(self, keys: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Each of these keys with the seq of an entry that has it."""
        for key in keys:
            wanted, bucket = _encode_key(key), self._buckets.get(key % _BUCKETS, b"")
            at = bucket.find(wanted)
            while at >= 0:
                if at % _ROW_BYTES == 0:
                    yield key, int.from_bytes(bucket[at + _KEY_BYTES : at + _ROW_BYTES], "big")
                at = bucket.find(wanted, at + 1)


def _encode_key(key: int) -> bytes:
    return key.to_bytes(_KEY_BYTES, "big", signed=True)


class _Past:
    """What is known of the past of one space."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.index = KeyIndex()
        self.is_waiting = False
        # What the store said before the past was read.
        self.believed: dict[int, frozenset[int]] = {}


class PastKeys:
    """Finds entries of spaces by their keys. Methods may be called from several threads at once."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        # Asked once: to look at what a log can do takes longer than a lookup.
        self._find_rows = log.find_entries if isinstance(log, LookupLog) else partial(find_entries, log)
        self._pasts: OrderedDict[str, _Past] = OrderedDict()
        self._n_keys = 0
        self._damaged: dict[str, None] = {}
        # Spaces in which something may have been decided by rows that turned out to be wrong.
        self._misled: dict[str, LedgerCorrupt] = {}
        self._lock = Lock()
        self._waiting: SimpleQueue[Space | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._stop = Event()

    def find(self, space: Space, keys: Sequence[int]) -> Rows:
        """Each of these keys with the seq of an entry that has it; of entries that are in the state, as the store says.

        LedgerCorrupt where the store lacks the row of an entry that may have left the state, or did before.
        """
        stream_id = STREAM_PREFIX + space.space_id
        misled = self._misled.get(stream_id)
        if misled is not None:
            raise misled
        # A row that was edited by hand may hold anything.
        found: Sequence[tuple[int, object]] = self._find_rows(stream_id, keys)
        rows = [(key, seq) for key, seq in found if isinstance(seq, int) and seq >= 0]
        last = retention.last_dropped(space.head.seq)
        if last < 0 or not keys:
            return rows
        past = self._past(stream_id)
        with past.lock:
            if last - past.index.covered > MAX_ENTRIES_AT_ONCE:
                self._believe(past, space, keys, rows)
                return rows
            self._extend(past.index, self._read(space, past.index.covered, last))
            missing = set(past.index.find(keys)).difference(rows)
        if missing:
            raise self._refuse(stream_id, *min(missing, key=lambda row: row[1]))
        return rows

    def find_damaged(self) -> list[str]:
        """Streams of spaces whose rows were found to lack keys of their entries since this process began."""
        with self._lock:
            return list(self._damaged)

    def close(self) -> None:
        """Stop reading; what waits is left unread."""
        self._stop.set()
        self._waiting.put(None)
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _past(self, stream_id: str) -> _Past:
        with self._lock:
            past = self._pasts.setdefault(stream_id, _Past())
            self._pasts.move_to_end(stream_id)
            while len(self._pasts) > 1 and self._n_keys > MAX_KEYS:
                self._n_keys -= self._pasts.popitem(last=False)[1].index.size
            return past

    def _extend(self, index: KeyIndex, entries: Iterable[StoredEntry]) -> None:
        before = index.size
        try:
            index.extend(entries)
        finally:
            with self._lock:
                self._n_keys += index.size - before

    def _read(self, space: Space, after: int, last: int) -> Iterator[StoredEntry]:
        if last <= after:
            return iter(())
        return read_entries(self._log, STREAM_PREFIX + space.space_id, space.tree, after, last - after)

    def _refuse(self, stream_id: str, key: int, seq: int) -> LedgerCorrupt:
        error = LedgerCorrupt(stream_id, seq, f"the store lacks the row by which it is found, `lookup_keys` {key}")
        with self._lock:
            first = stream_id not in self._damaged
            self._damaged[stream_id] = None
        if first:
            _log.error("%s; what depends on it is refused", error)
        return error

    # --- a long past ---

    def _believe(self, past: _Past, space: Space, keys: Sequence[int], rows: Rows) -> None:
        """Note what the store said, to be judged once the past is known; have it read, unless it is already."""
        for key in keys:
            if key not in past.believed and len(past.believed) < _MAX_BELIEVED:
                past.believed[key] = frozenset(seq for found, seq in rows if found == key)
        if past.is_waiting:
            return
        past.is_waiting = True
        self._waiting.put(space)
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = Thread(target=self._work, name="cmbs-past-keys", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while (space := self._waiting.get()) is not None and not self._stop.is_set():
            stream_id = STREAM_PREFIX + space.space_id
            past = self._past(stream_id)
            try:
                self._read_past(past, space)
            except (LedgerCorrupt, StoreUnavailable) as exc:
                _log.warning("the past of `%s` was not read for its keys: %s", stream_id, exc)
            with past.lock:
                past.is_waiting = False

    def _read_past(self, past: _Past, space: Space) -> None:
        last = retention.last_dropped(space.head.seq)
        while past.index.covered < last and not self._stop.is_set():
            began = time.monotonic()
            after = past.index.covered
            entries = list(self._read(space, after, min(last, after + _PAGE)))
            with past.lock:
                # A caller may have gone ahead meanwhile.
                self._extend(past.index, entries[past.index.covered - after :])
            self._stop.wait(_REST * (time.monotonic() - began))
        if self._stop.is_set():
            return
        with past.lock:
            believed, past.believed = past.believed, {}
            rows = list(past.index.find(believed))
        missing = [(key, seq) for key, seq in rows if seq not in believed[key]]
        if missing:
            stream_id = STREAM_PREFIX + space.space_id
            self._misled[stream_id] = self._refuse(stream_id, *min(missing, key=lambda row: row[1]))


__all__ = ["MAX_ENTRIES_AT_ONCE", "MAX_KEYS", "KeyIndex", "PastKeys"]
