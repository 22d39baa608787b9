"""What the log of heads says of a stream, for planes that do not sign."""

from __future__ import annotations

import msgspec

from cmbs.errors import LedgerCorrupt
from cmbs.ledger import Head, hash_entry
from cmbs.spi.audit_log import HEADS_STREAM, AuditLog

MAX_RECORDS_SEARCHED = 20_000
_RECORDS_AT_ONCE = 1_000


class _Record(msgspec.Struct):
    head_hash: str
    size: int
    stream_id: str


class _Entry(msgspec.Struct):
    payload: _Record
    prev_event_hash: str


_DECODE = msgspec.json.Decoder(_Entry).decode


def find_recorded_head(log: AuditLog, stream_id: str) -> Head | None:
    """The head that was recorded last of a stream; None where there is none among the newest MAX_RECORDS_SEARCHED.

    Links are checked from the end backwards; LedgerCorrupt where they do not lead to what was found. Of a stream that
    was recorded before all of those, only a notary knows, which reads all records.
    """
    last = log.head(HEADS_STREAM)
    if last is None:
        return None
    seq, expected = last.seq, last.event_hash
    lowest = max(0, last.seq + 1 - MAX_RECORDS_SEARCHED)
    while seq >= lowest:
        start = max(lowest, seq + 1 - _RECORDS_AT_ONCE)
        entries = log.read(HEADS_STREAM, start - 1, seq + 1 - start)
        if not entries:
            raise LedgerCorrupt(HEADS_STREAM, seq, "it is not there")
        for stored in reversed(entries):
            if hash_entry(stored.raw) != expected:
                raise LedgerCorrupt(HEADS_STREAM, seq, f"its hash is not `{expected.hex()}`, which the chain has")
            try:
                entry = _DECODE(stored.raw)
                expected = bytes.fromhex(entry.prev_event_hash)
                if entry.payload.stream_id == stream_id:
                    return Head(entry.payload.size - 1, bytes.fromhex(entry.payload.head_hash))
            except ValueError as exc:
                raise LedgerCorrupt(HEADS_STREAM, seq, str(exc)) from exc
            seq -= 1
    return None
