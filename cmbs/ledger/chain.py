"""Verification of a hash chain: every byte is read again, and the first bad entry is named."""

from __future__ import annotations

from collections.abc import Iterable

from cmbs.errors import LedgerCorrupt
from cmbs.ledger.entry import Head, StoredEntry, check_link


def verify_chain(stream_id: str, entries: Iterable[StoredEntry], head: Head | None = None) -> Head:
    """Check that `entries` are the whole stream, from its first entry on; the head that they end in.

    A chain cannot tell that its tail was cut off: pass the `head` that you recorded elsewhere to notice that too.
    Raises LedgerCorrupt, which names the first bad entry and why.
    """
    last: Head | None = None
    for stored in entries:
        last = Head(check_link(stream_id, last, stored).seq, stored.event_hash)
    if last is None:
        raise LedgerCorrupt(stream_id, 0, "the stream is empty")
    check_head(stream_id, last, head)
    return last


def check_head(stream_id: str, last: Head, recorded: Head | None) -> None:
    """Raise LedgerCorrupt where a verified chain does not end in the recorded head."""
    if recorded is not None and recorded != last:
        raise LedgerCorrupt(
            stream_id,
            last.seq,
            f"the log ends at seq {last.seq} ({last.event_hash.hex()}), the recorded head is "
            f"seq {recorded.seq} ({recorded.event_hash.hex()})",
        )
