"""What this process has seen of a log: where each stream ended. A log that has gone back behind that is refused.

An older file that is put back, a log whose tail is cut off and a standby that lags behind are all valid logs, only
older. What this process has read or written itself tells them apart from the log that it served before.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from itertools import islice
from threading import Lock

from cmbs.errors import LedgerCorrupt
from cmbs.ledger import Head, check_head
from cmbs.ledger.entry import check_link, hash_entry
from cmbs.spi.audit_log import PAGE_BYTES, AuditLog

_log = logging.getLogger("cmbs.streams")
# About 25 MB. A stream that was not used for so many others may come back older without being noticed here.
MAX_STREAMS = 65_536
# How many streams a readiness check compares with the log, and how many it names.
_MAX_CHECKED = 8
_LINKS_AT_ONCE = 1_000


class SeenHeads:
    """The furthest head of each stream that was seen, beyond the cache of states; the least recently noted go first.

    Ask `find` before the log is asked: what was seen then is durable, so the answer of the log may not be behind it.
    """

    def __init__(self, log: AuditLog, capacity: int = MAX_STREAMS) -> None:
        self._log = log
        self._capacity = capacity
        self._heads: OrderedDict[str, Head] = OrderedDict()
        # Streams that were refused and have not been found whole since.
        self._behind: dict[str, Head] = {}
        self._lock = Lock()

    def find(self, stream_id: str) -> Head | None:
        """The furthest head that was seen of a stream."""
        with self._lock:
            return self._behind.get(stream_id) or self._heads.get(stream_id)

    def note(self, stream_id: str, head: Head) -> None:
        """Record a head of a log that was verified to contain what was seen before."""
        with self._lock:
            seen = self._heads.get(stream_id)
            if seen is None or seen.seq < head.seq:
                self._heads[stream_id] = head
            self._heads.move_to_end(stream_id)
            if len(self._heads) > self._capacity:
                self._heads.popitem(last=False)
            caught_up = self._behind.pop(stream_id, None) is not None
        if caught_up:
            _log.warning("the log of `%s` is no longer behind: it contains what was seen of it", stream_id)

    def expect(self, stream_id: str, head: Head) -> None:
        """Refuse a stream until the log contains this head, which was recorded of it: the log is known to lack it."""
        with self._lock:
            known = self._behind.get(stream_id)
            if (known is not None and known.seq >= head.seq) or len(self._behind) >= self._capacity:
                return
            self._behind[stream_id] = head
        recorded = f"seq {head.seq} ({head.event_hash.hex()})"
        _log.error(
            "`%s` does not contain %s, which was recorded of it; it is refused until it does", stream_id, recorded
        )

    def check(self, stream_id: str, seen: Head, head: Head | None) -> None:
        """LedgerCorrupt where a log that ends in `head` cannot contain what was seen."""
        if head is None or head.seq < seen.seq or (head.seq == seen.seq and head != seen):
            raise self.refuse(stream_id, seen, head)

    def check_links(self, stream_id: str, seen: Head, head: Head) -> None:
        """LedgerCorrupt where the entries from the one that was seen on do not lead to `head`, link by link."""
        if not self.is_stored(stream_id, seen):
            raise self.refuse(stream_id, seen, head)
        last = seen
        while last.seq < head.seq:
            entries = self._log.read(stream_id, last.seq, min(_LINKS_AT_ONCE, head.seq - last.seq), PAGE_BYTES)
            if not entries:
                break
            for stored in entries:
                last = Head(check_link(stream_id, last, stored).seq, stored.event_hash)
        check_head(stream_id, last, head)

    def refuse(self, stream_id: str, seen: Head, head: Head | None) -> LedgerCorrupt:
        """The error of a log that is behind what was seen of it; written to the log of the process once a stream."""
        ends = "there is no such stream" if head is None else f"it ends at seq {head.seq} ({head.event_hash.hex()})"
        seq = seen.seq if head is None else min(seen.seq, head.seq + 1)
        known = f"seq {seen.seq} ({seen.event_hash.hex()})"
        error = LedgerCorrupt(
            stream_id, seq, f"the log is behind what this process has seen of it: {ends}, and does not contain {known}"
        )
        with self._lock:
            first = stream_id not in self._behind
            if first and len(self._behind) < self._capacity:
                self._behind[stream_id] = seen
        if first:
            _log.error("%s; it is refused until the store is whole again", error)
        return error

    def find_behind(self) -> list[str]:
        """The first few streams of which the log lacks what was seen: of those refused, and of those noted last."""
        with self._lock:
            refused = list(self._behind.items())
            recent = list(islice(reversed(self._heads.items()), _MAX_CHECKED))
        behind: list[str] = []
        for stream_id, seen in (*refused, *recent):
            if len(behind) == _MAX_CHECKED:
                break
            if stream_id in behind:
                continue
            if self.is_stored(stream_id, seen):
                self.note(stream_id, seen)
            else:
                self.refuse(stream_id, seen, self._log.head(stream_id))
                behind.append(stream_id)
        return behind

    def is_stored(self, stream_id: str, seen: Head) -> bool:
        """Whether the log holds the entry that was seen, at its place."""
        head = self._log.head(stream_id)
        if head is None or head.seq <= seen.seq:
            return head == seen
        entries = self._log.read(stream_id, seen.seq - 1, 1)
        return bool(entries) and hash_entry(entries[0].raw) == seen.event_hash
