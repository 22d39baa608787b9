"""Lookups in the past of a space, held against its state: rows that a store keeps beside its entries decide nothing.

The state has a digest of every bucket of keys (`kernel.key_digests`). A lookup reads all rows of the bucket that a key
is in. If they give the digest, they are those of the entries: what they have is there, and what they lack never was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from threading import Lock

from cmbs.errors import LedgerCorrupt
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import LookupLog, find_keys
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.kernel.key_digests import bucket_of, digest_rows, range_of
from cmbs.substrate.kernel.state import Space

_log = logging.getLogger("cmbs.substrate")


class PastKeys:
    """Finds entries of spaces by their keys. Methods may be called from several threads at once."""

    def __init__(self, log: AuditLog) -> None:
        # Asked once: to look at what a log can do takes longer than a lookup.
        self._find_rows = log.find_keys if isinstance(log, LookupLog) else partial(find_keys, log)
        self._damaged: dict[str, None] = {}
        self._lock = Lock()

    def find(self, space: Space, keys: Iterable[int]) -> list[int]:
        """The seqs of all entries of the space that have one of these keys, in order.

        LedgerCorrupt where the store's rows are not those of the entries.
        """
        wanted = frozenset(keys)
        # No entry has a key of another bucket, whatever the store says.
        buckets = sorted({bucket_of(key) for key in wanted}.intersection(space.key_digests))
        if not buckets:
            return []
        found: dict[int, list[tuple[int, int]]] = {bucket: [] for bucket in buckets}
        for key, seq in self._find_rows(STREAM_PREFIX + space.space_id, [range_of(bucket) for bucket in buckets]):
            # A row that was edited by hand may hold anything.
            if not isinstance(seq, int) or seq < 0:
                raise self._refuse(space, bucket_of(key))
            if seq <= space.head.seq:
                found[bucket_of(key)].append((key, seq))
        for bucket, rows in found.items():
            if digest_rows(rows) != space.key_digests[bucket]:
                raise self._refuse(space, bucket)
        return sorted({seq for rows in found.values() for key, seq in rows if key in wanted})

    def find_damaged(self) -> list[str]:
        """Streams of spaces whose rows were found not to be those of their entries since this process began."""
        with self._lock:
            return list(self._damaged)

    def _refuse(self, space: Space, bucket: int) -> LedgerCorrupt:
        stream_id = STREAM_PREFIX + space.space_id
        first, last = range_of(bucket)
        reason = f"up to here, its entries have other keys from {first} to {last} than `lookup_keys` of the store says"
        error = LedgerCorrupt(stream_id, space.head.seq, reason)
        with self._lock:
            is_new = stream_id not in self._damaged
            self._damaged[stream_id] = None
        if is_new:
            _log.error("%s; what depends on them is refused, and `cmbs fsck` names the rows", error)
        return error
