"""The trees over the entries of streams, as far as a notary needs them: roots, grown from one record to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from cmbs.errors import LedgerCorrupt
from cmbs.ledger import Head
from cmbs.ledger.entry import check_link
from cmbs.ledger.merkle import CompactRange
from cmbs.spi import AuditLog, stream_heads_of
from cmbs.spi.audit_log import HEADS_PREFIX, PAGE_BYTES, RESERVED_PREFIXES
from cmbs.transparency.kernel.faults import Fault, FaultKind
from cmbs.transparency.kernel.records import HeadRecord

_MAX_CACHED_TREES = 10_000
_ENTRIES_AT_ONCE = 1000


class StreamTrees:
    """Measures streams: size, root and head. Of the streams measured last it reads only what is new."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._cached: OrderedDict[str, tuple[CompactRange, Head | None]] = OrderedDict()
        # Where streams ended that this process wrote, until the log is found to reach there.
        self._written: dict[str, Head] = {}

    def extend(self, stream_id: str, seq: int, hashes: Sequence[bytes]) -> None:
        """Take in entries that this process has written from `seq` on, so that they need not be read again.

        Where they do not follow what was measured last, they are left to be read.
        """
        if hashes:
            self._written[stream_id] = Head(seq + len(hashes) - 1, hashes[-1])
        tree, last = self._cached.get(stream_id, (CompactRange(), None))
        # Some of them may have been measured in the log since, because another process had recorded them.
        new = tree.size - seq
        if 0 <= new < len(hashes) and (new == 0 or (last is not None and hashes[new - 1] == last.event_hash)):
            self._keep(stream_id, tree.extend(hashes[new:]), Head(seq + len(hashes) - 1, hashes[-1]))

    def check(self, record: HeadRecord) -> Fault | None:
        """What the log holds against a record: None where the stream had this size, root and head."""
        stream_id = record.stream_id
        tree, last = self._cached.get(stream_id, (CompactRange(), None))
        is_past = tree.size > record.size
        if is_past:
            tree, last = CompactRange(), None
        fault = compare_head(record, self._log.head(stream_id))
        if fault is not None:
            return fault
        try:
            tree, last = grow_tree(self._log, stream_id, tree, last, record.size)
        except LedgerCorrupt as exc:
            self._cached.pop(stream_id, None)
            return Fault(FaultKind.FORKED, str(exc), stream_id)
        if not is_past:
            self._keep(stream_id, tree, last)
        return None if (tree.root.hex(), last) == (record.root, record.head) else describe_fork(record)

    def measure(self, stream_id: str, known: HeadRecord | None) -> HeadRecord | Fault | None:
        """What to record of a stream now; None where that is recorded. A Fault where it does not continue `known`."""
        head = self._log.head(stream_id)
        written = self._written.get(stream_id)
        if written is not None:
            lost = compare_head(HeadRecord(written.event_hash.hex(), "", written.seq + 1, stream_id), head)
            if lost is not None:
                return lost
            del self._written[stream_id]
        tree, last = self._cached.get(stream_id, (CompactRange(), None))
        seen = known
        if last is not None and (known is None or tree.size > known.size):
            # This process has written more than is recorded.
            seen = HeadRecord(last.event_hash.hex(), tree.root.hex(), tree.size, stream_id)
        fault = None if seen is None else compare_head(seen, head)
        if fault is not None or head is None:
            return fault
        if known is not None and head == known.head:
            return None
        if seen is not None and head.seq == seen.head.seq and head != seen.head:
            return describe_fork(seen)
        # What others have written since comes with the next record.
        return seen if seen is not known else self._read(stream_id, tree, last, known, head)

    def _read(
        self, stream_id: str, tree: CompactRange, last: Head | None, known: HeadRecord | None, head: Head
    ) -> HeadRecord | Fault:
        """The record of a stream up to `head`, from the tree that is known and the log."""
        try:
            if known is not None and tree.size < known.size:
                tree, last = grow_tree(self._log, stream_id, tree, last, known.size)
                if tree.root.hex() != known.root:
                    return describe_fork(known)
            tree, last = grow_tree(self._log, stream_id, tree, last, head.seq + 1)
            if last != head:
                raise LedgerCorrupt(stream_id, head.seq, f"its hash is not the recorded head {head.event_hash.hex()}")
        except LedgerCorrupt as exc:
            self._cached.pop(stream_id, None)
            return Fault(FaultKind.FORKED, str(exc), stream_id)
        self._keep(stream_id, tree, last)
        return HeadRecord(head.event_hash.hex(), tree.root.hex(), tree.size, stream_id)

    def _keep(self, stream_id: str, tree: CompactRange, last: Head | None) -> None:
        self._cached[stream_id] = tree, last
        self._cached.move_to_end(stream_id)
        if len(self._cached) > _MAX_CACHED_TREES:
            self._cached.popitem(last=False)


def grow_tree(
    log: AuditLog, stream_id: str, tree: CompactRange, last: Head | None, size: int
) -> tuple[CompactRange, Head | None]:
    """The tree with the entries up to `size`, whose hashes and links are checked on the way; LedgerCorrupt if bad."""
    while tree.size < size:
        entries = log.read(stream_id, tree.size - 1, min(_ENTRIES_AT_ONCE, size - tree.size), PAGE_BYTES)
        if not entries:
            raise LedgerCorrupt(stream_id, tree.size, f"it is not there, and the head is at seq {size - 1}")
        for entry in entries:
            last = Head(check_link(stream_id, last, entry).seq, entry.event_hash)
        tree = tree.extend(entry.event_hash for entry in entries)
    return tree, last


def compare_head(known: HeadRecord, head: Head | None) -> Fault | None:
    """Whether a stream that ends in `head` can hold what is known of it: not where it is gone, or shorter."""
    if head is None:
        return Fault(FaultKind.DELETED, f"it is gone, and it had {known.size} entries", known.stream_id)
    if head.seq < known.head.seq:
        return Fault(
            FaultKind.TRUNCATED,
            f"it ends at seq {head.seq}, and it had reached seq {known.head.seq} ({known.head_hash})",
            known.stream_id,
        )
    return None


def describe_fork(known: HeadRecord) -> Fault:
    """The fault of a stream that has another past than the known one."""
    return Fault(
        FaultKind.FORKED,
        f"it is another log up to seq {known.head.seq}: the kept head is {known.head_hash}",
        known.stream_id,
    )


def list_streams(log: AuditLog, page_size: int) -> Iterator[list[tuple[str, int]]]:
    """All streams of a log but the logs of heads, page by page, each with how many entries it has."""
    after: tuple[str, str] | None = None
    while sessions := log.sessions(after, page_size):
        yield [(each.session_id, each.head_seq + 1) for each in sessions]
        after = (sessions[-1].created_ts, sessions[-1].session_id)
    for prefix in RESERVED_PREFIXES:
        last: str | None = None
        while prefix != HEADS_PREFIX and (page := stream_heads_of(log, prefix, last, page_size)):
            yield [(name, head.seq + 1) for name, head in page]
            last = page[-1][0]
