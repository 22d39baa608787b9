"""Lookups in the past of a space, held against its state: rows that a store keeps beside its entries decide nothing.

The state has a digest of every bucket of keys (`kernel.key_digests`). A lookup reads all rows of the bucket that a key
is in. If they give the digest, they are those of the entries: what they have is there, and what they lack never was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from threading import Lock

from cmbs.errors import LedgerCorrupt
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import LookupLog, find_hashes, find_keys
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.kernel.key_digests import HASH_BUCKETS, LOOKUP_BUCKETS, Row, digest_rows, hash_key
from cmbs.substrate.kernel.state import Space

_log = logging.getLogger("cmbs.substrate")
_HASH_BYTES, _KEY_BYTES = 32, 8


class PastKeys:
    """Finds entries of spaces by their keys and hashes. Methods may be called from several threads at once."""

    def __init__(self, log: AuditLog) -> None:
        # Asked once: to look at what a log can do takes longer than a lookup.
        self._find_keys = log.find_keys if isinstance(log, LookupLog) else partial(find_keys, log)
        self._find_hashes = log.find_hashes if isinstance(log, LookupLog) else partial(find_hashes, log)
        self._damaged: dict[str, None] = {}
        self._lock = Lock()

    def find(self, space: Space, keys: Iterable[int]) -> list[int]:
        """The seqs of all entries of the space that have one of these keys, in order.

        LedgerCorrupt where the store's rows are not those of the entries.
        """
        wanted = frozenset(keys)
        # No entry has a key of another bucket, whatever the store says.
        buckets = {LOOKUP_BUCKETS.bucket_of(key) for key in wanted}
        known: dict[int, list[Row]] = {each: [] for each in sorted(buckets) if space.key_digests.find(each) is not None}
        if not known:
            return []
        ranges = [LOOKUP_BUCKETS.range_of(bucket) for bucket in known]
        # A row that was edited by hand may hold anything.
        found: Sequence[tuple[object, object]] = self._find_keys(STREAM_PREFIX + space.space_id, ranges)
        for key, seq in found:
            if not (isinstance(key, int) and isinstance(seq, int) and seq >= 0):
                raise self._refuse(space, "lookup_keys")
            if seq <= space.head.seq:
                known[LOOKUP_BUCKETS.bucket_of(key)].append((key, seq))
        for bucket, rows in known.items():
            if digest_rows(rows) != space.key_digests.find(bucket):
                raise self._refuse(space, "lookup_keys")
        return sorted({seq for rows in known.values() for key, seq in rows if key in wanted})

    def find_hash(self, space: Space, event_hash: bytes) -> list[int]:
        """The seqs of all entries of the space whose hashes begin as this one, in order: the rest is for them to tell.

        LedgerCorrupt where the store's hashes do not begin as those of the entries.
        """
        wanted = hash_key(event_hash)
        bucket = HASH_BUCKETS.bucket_of(wanted)
        digest = space.hash_digests.find(bucket)
        if digest is None:
            return []
        first, last = (key.to_bytes(_KEY_BYTES, "big", signed=True) for key in HASH_BUCKETS.range_of(bucket))
        rest = _HASH_BYTES - _KEY_BYTES
        found: Sequence[tuple[bytes, object]] = self._find_hashes(
            STREAM_PREFIX + space.space_id, first + bytes(rest), last + b"\xff" * rest
        )
        places = [(hash_key(each), seq) for each, seq in found if isinstance(seq, int) and seq >= 0]
        rows = [(key, seq) for key, seq in places if seq <= space.head.seq]
        if len(places) < len(found) or digest_rows(rows) != digest:
            raise self._refuse(space, "audit_events.prev_event_hash")
        return sorted(seq for key, seq in rows if key == wanted)

    def find_damaged(self) -> list[str]:
        """Streams of spaces whose rows were found not to be those of their entries since this process began."""
        with self._lock:
            return list(self._damaged)

    def _refuse(self, space: Space, name: str) -> LedgerCorrupt:
        stream_id = STREAM_PREFIX + space.space_id
        error = LedgerCorrupt(
            stream_id, space.head.seq, f"`{name}` of the store is not what the entries up to here have"
        )
        with self._lock:
            is_new = stream_id not in self._damaged
            self._damaged[stream_id] = None
        if is_new:
            _log.error("%s; what depends on it is refused, and `cmbs fsck` names the rows", error)
        return error
