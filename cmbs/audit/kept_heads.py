"""Holding a store against heads and checkpoints that were kept elsewhere.

A log that has grown past a kept head is good. One that no longer holds it was cut, deleted, put back or rewritten,
which no check of the store alone can show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from cmbs.errors import InvalidRequest, LedgerCorrupt
from cmbs.ledger import canonical
from cmbs.ledger.format import is_earlier_document
from cmbs.ledger.merkle import CompactRange
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import HEADS_STREAM
from cmbs.transparency.kernel.checkpoint import Checkpoint, check_signature
from cmbs.transparency.kernel.documents import read_note, verify_record
from cmbs.transparency.kernel.faults import Fault, FaultKind
from cmbs.transparency.kernel.notes import Note
from cmbs.transparency.kernel.published import (
    CHECKPOINT_KIND,
    CONSISTENCY_KIND,
    FORMAT,
    RECORD_KIND,
    ConsistencyProof,
    LogKey,
    RecordProof,
    SignedCheckpoint,
)
from cmbs.transparency.kernel.records import HeadRecord, read_record, verify_heads
from cmbs.transparency.stream_trees import compare_head, describe_fork, grow_tree, list_streams

HEADS_FORMAT = "cmbs/1/heads"
_PAGE = 500
_HASH = re.compile("[0-9a-f]{64}")
_DOCUMENTS = {
    CHECKPOINT_KIND: SignedCheckpoint,
    CONSISTENCY_KIND: ConsistencyProof,
    RECORD_KIND: RecordProof,
}


class Kept(NamedTuple):
    """What a reader kept: heads of streams, signed checkpoints, and records with their proofs."""

    heads: list[HeadRecord]
    notes: list[Note]
    proofs: list[RecordProof]


def list_heads(log: AuditLog) -> Iterator[bytes]:
    """The lines of a file of all heads of a store, without line ends."""
    yield msgspec.json.encode({"format": HEADS_FORMAT})
    names = (name for page in list_streams(log, _PAGE) for name, _ in page)
    for stream_id in (*names, HEADS_STREAM):
        head = log.head(stream_id)
        if head is not None:
            yield canonical.encode({"stream_id": stream_id, "size": head.seq + 1, "head_hash": head.event_hash.hex()})


def read_kept(data: bytes) -> Kept:
    """What a file holds: a signed note, or JSON, a document or a head a line. InvalidRequest says what it does not."""
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise InvalidRequest("what was kept is text: a signed note, or JSON lines") from exc
    if not text.lstrip().startswith("{"):
        return Kept([], [Note.parse(text)], [])
    kept = Kept([], [], [])
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                _read_line(kept, msgspec.json.decode(line))
            except (msgspec.DecodeError, msgspec.ValidationError, InvalidRequest) as exc:
                raise InvalidRequest(f"line {number}: {exc}") from exc
    return kept


def _read_line(kept: Kept, content: Any) -> None:
    if content == {"format": HEADS_FORMAT}:
        return
    if not isinstance(content, dict):
        raise InvalidRequest("not a JSON object")
    if "format" not in content:
        head = msgspec.convert({"root": "", **content}, HeadRecord)
        if head.size < 1 or not _HASH.fullmatch(head.head_hash):
            raise InvalidRequest("a head has a size above 0 and a hash of 64 hexadecimal digits")
        kept.heads.append(head)
        return
    if is_earlier_document(content["format"]):
        raise InvalidRequest("a document of an earlier format, which this software does not read")
    kind = _DOCUMENTS.get(str(content.get("kind")))
    if content["format"] != FORMAT or kind is None:
        raise InvalidRequest(f"neither a head, nor a checkpoint or a proof of the format `{FORMAT}`")
    document = msgspec.convert(content, kind)
    if isinstance(document, RecordProof):
        kept.proofs.append(document)
    kept.notes.append(read_note(document))


def find_faults(log: AuditLog, kept: Kept, keys: Sequence[LogKey] = ()) -> list[Fault]:
    """What the store no longer holds of what was kept; `keys` are those whose signatures are believed."""
    if kept.notes and not keys:
        raise InvalidRequest("a signed checkpoint is believed by its key: name the key that you trust")
    faults = [fault for note in kept.notes if (fault := check_signature(note, keys)) is not None]
    if faults:
        return faults
    if not any(True for _ in list_streams(log, 1)) and log.head(HEADS_STREAM) is None:
        return [Fault(FaultKind.EMPTIED, "there is no stream at all in the store")]
    known: dict[str, list[HeadRecord]] = {}
    for proof in kept.proofs:
        record = verify_record(proof)
        if isinstance(record, Fault):
            faults.append(record)
        else:
            known.setdefault(record.stream_id, []).append(record)
    for head in kept.heads:
        known.setdefault(head.stream_id, []).append(head)
    checkpoints = {(each.size, each.root): each for each in (Checkpoint.parse(note.text) for note in kept.notes)}
    for checkpoint in checkpoints.values():
        found = find_records(log, checkpoint)
        if isinstance(found, Fault):
            faults.append(found)
            continue
        for record in found:
            known.setdefault(record.stream_id, []).append(record)
    faults += [fault for records in known.values() if (fault := _check_stream(log, records)) is not None]
    return _summarise(faults)


def find_records(log: AuditLog, checkpoint: Checkpoint) -> list[HeadRecord] | Fault:
    """The records that a checkpoint is over, from the store; a Fault where the store has others, or not all."""
    entries = log.read(HEADS_STREAM)
    try:
        heads = verify_heads(entries, log.head(HEADS_STREAM))
    except LedgerCorrupt as exc:
        return Fault(FaultKind.FORKED, str(exc), HEADS_STREAM)
    size = 0 if heads is None else heads.tree.size
    if size < checkpoint.size:
        return Fault(
            FaultKind.PUT_BACK,
            f"the store has {size} of the {checkpoint.size} records that were signed: it is an older copy, or was cut",
        )
    if heads is not None and heads.tree.root_at(checkpoint.size) != checkpoint.root:
        return Fault(
            FaultKind.SPLIT_VIEW,
            f"the first {checkpoint.size} records of the store have the root"
            f" {heads.tree.root_at(checkpoint.size).hex()}, and {checkpoint.root.hex()} was signed",
        )
    return [read_record(entry).body.payload for entry in entries[: checkpoint.size]]


def _check_stream(log: AuditLog, records: Iterable[HeadRecord]) -> Fault | None:
    """Whether a stream holds every one of its kept heads, by its hashes and links."""
    by_size = sorted(records, key=lambda each: each.size)
    newest = by_size[-1]
    head = log.head(newest.stream_id)
    fault = compare_head(newest, head)
    if fault is not None or head is None:
        return fault
    tree, last = CompactRange(), None
    try:
        for record in by_size:
            tree, last = grow_tree(log, record.stream_id, tree, last, record.size)
            if last != record.head or (record.root and tree.root.hex() != record.root):
                return describe_fork(record)
        _, last = grow_tree(log, newest.stream_id, tree, last, head.seq + 1)
    except LedgerCorrupt as exc:
        return Fault(FaultKind.FORKED, str(exc), newest.stream_id)
    return None if last == head else Fault(FaultKind.FORKED, "it does not end in its recorded head", newest.stream_id)


def _summarise(faults: list[Fault]) -> list[Fault]:
    """The faults, before them what they come to together: streams that are all behind are an older copy."""
    behind = [each for each in faults if each.kind in (FaultKind.TRUNCATED, FaultKind.DELETED)]
    is_named = any(each.kind is FaultKind.PUT_BACK for each in faults)
    if len(behind) < 2 or is_named or any(each.kind is FaultKind.FORKED for each in faults):  # noqa: PLR2004
        return faults
    if not any(each.stream_id == HEADS_STREAM for each in behind):
        return faults
    summary = f"{len(behind)} streams are behind what was kept, the log of heads among them: an older copy was put back"
    return [Fault(FaultKind.PUT_BACK, summary), *faults]
