"""A space as it was: from the newest checkpoint that is old enough, and a part of the log at a time."""

from __future__ import annotations

from cmbs.ledger import StoredEntry
from cmbs.spi import AuditLog
from cmbs.streams.kinds import Folding
from cmbs.substrate.kernel.replay import fold_space
from cmbs.substrate.kernel.state import Space

_READ_AT_ONCE = 1_000


def space_at(log: AuditLog, kind: Folding[Space], stream_id: str, seq: int) -> Space | None:
    """The space right after the entry `seq` of a log that was verified before; None where the log is shorter."""
    space = _read_checkpoint(log, kind, stream_id, seq)
    at = -1 if space is None else space.head.seq
    while at < seq:
        entries = log.read(stream_id, at, min(seq - at, _READ_AT_ONCE))
        if not entries:
            return None
        space = fold_space(space, entries)
        at += len(entries)
    return space


def entry_at(log: AuditLog, stream_id: str, seq: int) -> StoredEntry | None:
    """One entry of a stream."""
    entries = log.read(stream_id, seq - 1, 1)
    return entries[0] if entries else None


def _read_checkpoint(log: AuditLog, kind: Folding[Space], stream_id: str, seq: int) -> Space | None:
    kept = log.checkpoint(stream_id)
    if kept is None or kept[0] > seq:
        return None
    first, at = entry_at(log, stream_id, 0), entry_at(log, stream_id, kept[0])
    return None if first is None or at is None else kind.thaw(stream_id, kept[1], first, at)
