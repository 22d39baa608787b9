"""The stream in which stream heads are recorded: hash-chained like every other, its entries the leaves of the log.

One verb. A record says how long a stream was and what it came to; of each stream a later one is of a longer stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import msgspec
from immutables import Map

from cmbs.errors import InvalidRequest, LedgerCorrupt
from cmbs.ledger import GENESIS, Head, StoredEntry, replay, seal
from cmbs.ledger.format import FORMAT
from cmbs.ledger.proofs import LogTree
from cmbs.spi.audit_log import HEADS_PREFIX, HEADS_STREAM, Append

_HASH = re.compile(r"[0-9a-f]{64}")


class HeadsVerb(StrEnum):
    """What is done to the log of heads."""

    RECORD_HEAD = "RECORD_HEAD"


class HeadRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many entries a stream had, the root of the tree over them, and the hash of the last one."""

    head_hash: str
    root: str
    size: int
    stream_id: str

    @property
    def head(self) -> Head:
        """The head of the stream at that time."""
        return Head(self.size - 1, bytes.fromhex(self.head_hash))


class RecordEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=FORMAT):
    """The content of an entry."""

    event_id: str
    outcome: None
    payload: HeadRecord
    prev_event_hash: str
    seq: int
    stream_id: str
    ts: str
    verb: HeadsVerb


class Stamp(NamedTuple):
    """What the outside world adds to a record."""

    event_id: str
    ts: str


class RecordEvent(NamedTuple):
    """A record, ready to be written: the content of its entry, and the exact bytes."""

    body: RecordEntry
    stored: StoredEntry

    @property
    def head(self) -> Head:
        """Where the stream of records ends with it."""
        return Head(self.body.seq, self.stored.event_hash)

    @property
    def append(self) -> Append:
        """What a log is given to write."""
        body = self.body
        previous = bytes.fromhex(body.prev_event_hash)
        return Append(body.stream_id, body.seq, body.event_id, previous, self.stored, body.ts)


class HeadsLog:
    """The records of a log: the newest of each stream, and the tree over all of them. It grows in place."""

    def __init__(self, event: RecordEvent) -> None:
        self.records: dict[str, HeadRecord] = {}
        # The index of the newest record of each stream among the leaves.
        self.indexes: dict[str, int] = {}
        self.tree = LogTree()
        self.head = event.head
        self.fold(event)

    def fold(self, event: RecordEvent) -> None:
        """Take in a record that is in the log."""
        record = event.body.payload
        self.records[record.stream_id] = record
        self.indexes[record.stream_id] = event.body.seq
        self.tree.append(event.stored.event_hash)
        self.head = event.head


class RecordedHeads(msgspec.Struct, frozen=True):
    """The newest record of each stream, as a value: what a check of the log folds its entries into."""

    records: Map[str, HeadRecord]
    head: Head


class HeadsFolding:
    """How the newest records follow from the entries of the log."""

    def owns(self, stream_id: str) -> bool:
        """The one."""
        return stream_id == HEADS_STREAM

    def not_found(self, stream_id: str) -> InvalidRequest:
        """Nothing was recorded."""
        return InvalidRequest(f"there is no stream `{stream_id}`", {"stream_id": stream_id})  # pragma: no cover

    def catch_up(
        self, stream_id: str, state: RecordedHeads | None, entries: Iterable[StoredEntry]
    ) -> RecordedHeads | None:
        """Every record is decided again."""
        return replay.catch_up(_FOLDING_RULES, stream_id, state, entries)

    def fold(self, state: RecordedHeads | None, stored: StoredEntry) -> tuple[RecordedHeads, Append]:
        """The newest records after one entry more."""
        event = read_record(stored)
        return _extend(state, event), event.append


def decide(head: Head | None, known: HeadRecord | None, record: HeadRecord, stamp: Stamp) -> RecordEvent:
    """The entry of a record after `head`; InvalidRequest where it cannot follow the `known` one of its stream."""
    if not (_HASH.fullmatch(record.root) and _HASH.fullmatch(record.head_hash)):
        raise InvalidRequest("a record has a root and a head of 64 hexadecimal digits")
    if record.stream_id.startswith(HEADS_PREFIX):
        raise InvalidRequest(f"`{record.stream_id}` is a log of heads, and is not recorded in one")
    if record.size <= (0 if known is None else known.size):
        raise InvalidRequest(f"size {record.size} of `{record.stream_id}` is not beyond what is recorded")
    seq, previous = (0, GENESIS) if head is None else (head.seq + 1, head.event_hash)
    body = RecordEntry(
        stamp.event_id,
        None,
        record,
        previous.hex(),
        seq,
        HEADS_STREAM,
        stamp.ts,
        HeadsVerb.RECORD_HEAD,
    )
    return RecordEvent(body, seal(body))


# Made here, by one thread: msgspec crashes where several meet a type for the first time.
_ENTRIES = msgspec.json.Decoder(RecordEntry)


def read_record(stored: StoredEntry) -> RecordEvent:
    """The record that stored bytes hold; ValueError where they hold none."""
    return RecordEvent(_ENTRIES.decode(stored.raw), stored)


def _decide_again(stream_id: str, log: HeadsLog | RecordedHeads | None, recorded: RecordEvent) -> RecordEvent:  # noqa: ARG001
    body = recorded.body
    known = None if log is None else log.records.get(body.payload.stream_id)
    return decide(None if log is None else log.head, known, body.payload, Stamp(body.event_id, body.ts))


def _evolve(log: HeadsLog | None, event: RecordEvent) -> HeadsLog:
    if log is None:
        return HeadsLog(event)
    log.fold(event)
    return log


def _extend(state: RecordedHeads | None, event: RecordEvent) -> RecordedHeads:
    records = Map[str, HeadRecord]() if state is None else state.records
    return RecordedHeads(records.set(event.body.payload.stream_id, event.body.payload), event.head)


_RULES = replay.ReplayRules(read_record, _decide_again, _evolve)
_FOLDING_RULES = replay.ReplayRules(read_record, _decide_again, _extend)


def catch_up(log: HeadsLog | None, entries: Iterable[StoredEntry]) -> HeadsLog | None:
    """Verify entries as what follows, and fold them in, in place. LedgerCorrupt names the first bad one."""
    return replay.catch_up(_RULES, HEADS_STREAM, log, entries)


def verify_heads(entries: Iterable[StoredEntry], head: Head | None) -> HeadsLog | None:
    """The records of a whole stream that ends in `head`; LedgerCorrupt where it does not. None are none."""
    log = catch_up(None, entries)
    last = None if log is None else log.head
    if last != head:
        seq = -1 if last is None else last.seq
        raise LedgerCorrupt(HEADS_STREAM, seq + 1, f"the stream ends after seq {seq}, and not in the recorded head")
    return log
