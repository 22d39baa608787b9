"""Streams, compared with the records of their heads that a server keeps for its checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from cmbs.audit.fsck import Report
from cmbs.audit.plain_rows import rows_of
from cmbs.audit.stream_check import entries_of
from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.ledger import Head
from cmbs.ledger.entry import check_link
from cmbs.ledger.merkle import CompactRange
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import HEADS_STREAM
from cmbs.spi.stored_rows import EVENTS, Finding, StoredRows
from cmbs.transparency.kernel.faults import Fault
from cmbs.transparency.kernel.records import HeadRecord, HeadsFolding
from cmbs.transparency.stream_trees import compare_head, describe_fork


def check_recorded_heads(log: AuditLog, stream_ids: Collection[str] = ()) -> Iterator[Report]:
    """Compare streams with what was recorded of them last; a report for each that does not hold it.

    All streams of which there is a record, or those that are named. What the check of a stream by itself finds is not
    repeated. Where the records cannot be read or do not verify, that is the report.
    """
    rows = rows_of(log)
    try:
        heads = HeadsFolding().catch_up(HEADS_STREAM, None, entries_of(rows, HEADS_STREAM))
        records = [] if heads is None else heads.records.values()
        for record in records:
            if stream_ids and record.stream_id not in stream_ids:
                continue
            fault = _compare_with_record(rows, record)
            if fault is not None:
                what = f"{fault.kind}: {fault.message}, as `{HEADS_STREAM}` records"
                yield Report(record.stream_id, 0, [Finding(what, EVENTS, record.stream_id)])
    except (LedgerCorrupt, StoreUnavailable) as exc:
        what = f"streams cannot be compared with what was recorded of them: {exc}"
        yield Report(HEADS_STREAM, 0, [Finding(what, "", HEADS_STREAM)])


def _compare_with_record(rows: StoredRows, record: HeadRecord) -> Fault | None:
    last: Head | None = None
    hashes: list[bytes] = []
    try:
        for stored in islice(entries_of(rows, record.stream_id), record.size):
            last = Head(check_link(record.stream_id, last, stored).seq, stored.event_hash)
            hashes.append(stored.event_hash)
    except LedgerCorrupt:
        return None
    fault = compare_head(record, last)
    if fault is None and (last != record.head or CompactRange().extend(hashes).root.hex() != record.root):
        return describe_fork(record)
    return fault
