"""Reading entries out of a log: hashes and links are checked on the way, for every reader."""

from __future__ import annotations

from collections.abc import Iterator

from cmbs.errors import LedgerCorrupt
from cmbs.ledger import Head, StoredEntry
from cmbs.ledger.entry import check_link, read_link
from cmbs.spi.audit_log import AuditLog

_ENTRIES_READ_AT_ONCE = 1_000


def read_entries(
    log: AuditLog, stream_id: str, head: Head, after: int = -1, limit: int | None = None
) -> Iterator[StoredEntry]:
    """The entries beyond `after`, at most `limit`, of a stream that was verified up to `head`; none is beyond it.

    Each must link to the one before it. The first is vouched for by the entry `after`, which is read with it, and the
    last by the one that follows, or by `head`. LedgerCorrupt names the first seq that is missing or does not fit; an
    entry is yielded once its own hash and link were checked.
    """
    end = head.seq if limit is None else min(head.seq, after + limit)
    if after >= end:
        return
    voucher: Head | None = None
    seq, stop = max(after, 0) - 1, min(end + 1, head.seq)
    while seq < stop:
        entries = log.read(stream_id, seq, min(_ENTRIES_READ_AT_ONCE, stop - seq))
        if not entries:
            raise LedgerCorrupt(stream_id, seq + 1, f"it is not there, and the head is at seq {head.seq}")
        if voucher is None and seq >= 0:
            voucher = _read_claimed_predecessor(stream_id, seq, entries[0])
        for stored in entries:
            link = check_link(stream_id, voucher, stored)
            seq = link.seq
            voucher = Head(seq, stored.event_hash)
            if seq == head.seq and voucher != head:
                raise LedgerCorrupt(stream_id, seq, f"it is not the verified head `{head.event_hash.hex()}`")
            if after < seq <= end:
                yield stored


def read_entry(log: AuditLog, stream_id: str, head: Head, seq: int) -> StoredEntry:
    """One entry of a verified stream, with the links to both of its neighbours checked."""
    (stored,) = read_entries(log, stream_id, head, seq - 1, 1)
    return stored


def _read_claimed_predecessor(stream_id: str, seq: int, stored: StoredEntry) -> Head:
    """What an entry says that it follows: the entry that vouches for a page has its own hash checked, not its link."""
    try:
        return Head(seq, bytes.fromhex(read_link(stored.raw).prev_event_hash))
    except ValueError as exc:
        raise LedgerCorrupt(stream_id, seq + 1, str(exc)) from exc
