"""Checkpoints and their proofs as JSON documents, and the verification of them."""

from __future__ import annotations

from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.ledger import StoredEntry, canonical, hash_entry
from cmbs.ledger.proofs import verify_inclusion
from cmbs.transparency.kernel.checkpoint import Checkpoint
from cmbs.transparency.kernel.faults import Fault, FaultKind
from cmbs.transparency.kernel.notes import Note
from cmbs.transparency.kernel.published import ConsistencyProof, RecordProof, SignedCheckpoint
from cmbs.transparency.kernel.records import HeadRecord, read_record


def describe_checkpoint(note: Note) -> SignedCheckpoint:
    """A checkpoint as JSON."""
    checkpoint = Checkpoint.parse(note.text)
    return SignedCheckpoint(note.encoded, checkpoint.origin, checkpoint.size, checkpoint.root.hex())


def describe_consistency(note: Note, from_size: int, path: list[bytes]) -> ConsistencyProof:
    """A consistency proof as JSON."""
    size = Checkpoint.parse(note.text).size
    return ConsistencyProof(note.encoded, from_size, size, [each.hex() for each in path])


def describe_record(note: Note, leaf_index: int, entry: StoredEntry, path: list[bytes]) -> RecordProof:
    """An inclusion proof of a record as JSON."""
    size = Checkpoint.parse(note.text).size
    return RecordProof(note.encoded, leaf_index, size, canonical.decode(entry.raw), [each.hex() for each in path])


def read_note(document: SignedCheckpoint | ConsistencyProof | RecordProof) -> Note:
    """The note of a document; InvalidRequest where what the document repeats of it is something else."""
    note = Note.parse(document.note)
    said = Checkpoint.parse(note.text)
    rest = (said.origin, said.root.hex())
    repeated = (document.origin, document.root) if isinstance(document, SignedCheckpoint) else rest
    if document.size != said.size or repeated != rest:
        raise InvalidRequest("the document says another size, origin or root than its note")
    return note


def verify_record(proof: RecordProof) -> HeadRecord | Fault:
    """The record that a proof is of, by the root in its note, whose signature is checked elsewhere."""
    try:
        checkpoint = Checkpoint.parse(read_note(proof).text)
        raw = canonical.encode(proof.entry)
        record = read_record(StoredEntry(raw, hash_entry(raw))).body.payload
        path = parse_path(proof.path)
    except (BeliefServerError, ValueError) as exc:
        return Fault(FaultKind.FORGED_RECORD, f"it holds no record: {exc}")
    if verify_inclusion(hash_entry(raw), proof.leaf_index, checkpoint.size, path, checkpoint.root):
        return record
    return Fault(
        FaultKind.FORGED_RECORD,
        f"the checkpoint of size {checkpoint.size} does not hold this record at index {proof.leaf_index}",
        record.stream_id,
    )


def parse_path(hashes: list[str]) -> list[bytes]:
    """The hashes of a path; InvalidRequest where one is none."""
    try:
        return [bytes.fromhex(each) for each in hashes]
    except ValueError as exc:
        raise InvalidRequest(f"a hash of the path is not hexadecimal: {exc}") from exc
