"""Reading entries out of a log: nothing is handed out that the verified state of its stream does not commit to."""

from __future__ import annotations

from collections.abc import Iterator

from cmbs.errors import LedgerCorrupt
from cmbs.ledger import Head, StoredEntry, hash_entry
from cmbs.ledger.entry import check_link, read_link
from cmbs.ledger.event_tree import BLOCK_EVENTS, EventTree, split_hashes
from cmbs.spi.audit_log import PAGE_BYTES, AuditLog, EntryLog

_EVENTS_READ_AT_ONCE = 16 * BLOCK_EVENTS


def read_pages(log: EntryLog, stream_id: str, after: int = -1, limit: int | None = None) -> Iterator[list[StoredEntry]]:
    """The entries beyond `after`, at most `limit`, as the log has them: nothing is verified. One page is in memory."""
    while limit is None or limit > 0:
        wanted = _EVENTS_READ_AT_ONCE if limit is None else min(limit, _EVENTS_READ_AT_ONCE)
        page = log.read(stream_id, after, wanted, PAGE_BYTES)
        if not page:
            return
        yield page
        after += len(page)
        if len(page) < wanted and sum(len(stored.raw) for stored in page) < PAGE_BYTES:
            # Neither of the two ended the page: there are no more.
            return
        limit = None if limit is None else limit - len(page)


def read_entries(
    log: AuditLog, stream_id: str, tree: EventTree, after: int = -1, limit: int | None = None
) -> Iterator[StoredEntry]:
    """The entries beyond `after`, at most `limit`, of a stream whose verified state has this tree; none is beyond it.

    Each has the hash that the tree commits to at its place. LedgerCorrupt names the first seq that is missing or does
    not fit, or the first one of a block that is another as a whole.
    """
    end = tree.size - 1 if limit is None else min(tree.size - 1, after + limit)
    seq = after
    while seq < end:
        first = seq + 1 - (seq + 1) % BLOCK_EVENTS
        stop = min(end, first + _EVENTS_READ_AT_ONCE - 1)
        hashes = _read_hashes(log, stream_id, tree, first, stop)
        for page in read_pages(log, stream_id, seq, stop - seq):
            for stored in page:
                seq += 1
                _check_hash(stream_id, seq, stored, hashes[seq - first])
                yield stored
        if seq < stop:
            raise _missing(stream_id, seq + 1, tree.size - 1)


def read_entry(log: AuditLog, stream_id: str, tree: EventTree, seq: int) -> StoredEntry:
    """One entry of a verified stream."""
    (stored,) = read_entries(log, stream_id, tree, seq - 1, 1)
    return stored


def read_block(log: AuditLog, stream_id: str, tree: EventTree, number: int) -> list[bytes]:
    """The event hashes of a block of a verified stream; LedgerCorrupt where the log has others."""
    first = number * BLOCK_EVENTS
    return _read_hashes(log, stream_id, tree, first, first + BLOCK_EVENTS - 1)


def read_chain(log: EntryLog, stream_id: str, head: Head) -> Iterator[StoredEntry]:
    """All entries of a stream of which nothing but its head is known, from the first to that head.

    LedgerCorrupt names the first that is missing or does not link to the one before. Only at the end is it known
    that the head commits to all of them.
    """
    last: Head | None = None
    for page in read_pages(log, stream_id, -1, head.seq + 1):
        for stored in page:
            last = Head(check_link(stream_id, last, stored).seq, stored.event_hash)
            if last.seq == head.seq and last != head:
                raise LedgerCorrupt(stream_id, last.seq, f"it is not the recorded head `{head.event_hash.hex()}`")
            yield stored
    if last is None or last.seq < head.seq:
        raise _missing(stream_id, 0 if last is None else last.seq + 1, head.seq)


def _read_hashes(log: AuditLog, stream_id: str, tree: EventTree, first: int, last: int) -> list[bytes]:
    """The event hashes from `first`, where a block begins, up to `last` at least, as the tree commits to them."""
    in_blocks = tree.size_in_blocks
    stop = min(last + BLOCK_EVENTS - last % BLOCK_EVENTS, in_blocks)
    hashes = log.hashes(stream_id, first - 1, stop - first) if first < stop else []
    for start in range(first, stop, BLOCK_EVENTS):
        if not tree.holds_block(start // BLOCK_EVENTS, hashes[start - first : start - first + BLOCK_EVENTS]):
            raise _find_damage(log, stream_id, start)
    return hashes + split_hashes(tree.tail) if last >= in_blocks else hashes


def _check_hash(stream_id: str, seq: int, stored: StoredEntry, expected: bytes) -> None:
    actual = hash_entry(stored.raw)
    if actual != expected:
        raise LedgerCorrupt(stream_id, seq, f"its hash is `{actual.hex()}`, and `{expected.hex()}` was verified")
    if stored.event_hash != expected:
        raise LedgerCorrupt(stream_id, seq, f"its stored hash is `{stored.event_hash.hex()}`, not `{expected.hex()}`")


def _find_damage(log: AuditLog, stream_id: str, first: int) -> LedgerCorrupt:
    """What is wrong with a block that begins at `first`. Where it is a good chain, all of it."""
    last = first + BLOCK_EVENTS - 1
    entries = log.read(stream_id, first - 1, BLOCK_EVENTS)
    try:
        voucher = None if first == 0 or not entries else _read_claimed_predecessor(stream_id, first - 1, entries[0])
        for stored in entries:
            voucher = Head(check_link(stream_id, voucher, stored).seq, stored.event_hash)
    except LedgerCorrupt as exc:
        return exc
    if len(entries) < BLOCK_EVENTS:
        return _missing(stream_id, first + len(entries), last)
    return LedgerCorrupt(stream_id, first, f"the events from here to seq {last} are not those that were verified")


def _missing(stream_id: str, seq: int, last: int) -> LedgerCorrupt:
    return LedgerCorrupt(stream_id, seq, f"it is not there, and the log had reached seq {last}")


def _read_claimed_predecessor(stream_id: str, seq: int, stored: StoredEntry) -> Head:
    """What an entry says that it follows."""
    try:
        return Head(seq, bytes.fromhex(read_link(stored.raw).prev_event_hash))
    except ValueError as exc:
        raise LedgerCorrupt(stream_id, seq + 1, str(exc)) from exc
