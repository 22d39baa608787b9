"""Holding kept checkpoints against each other, and against what a server answers now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Protocol

from cmbs.audit.proof_check import verify_proof
from cmbs.errors import InvalidProof
from cmbs.offline_verifier import Known, Question, Tree
from cmbs.spi import is_reserved
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.transparency.kernel.checkpoint import Checkpoint, check_signature, compare_checkpoints
from cmbs.transparency.kernel.documents import verify_record
from cmbs.transparency.kernel.faults import Fault, FaultKind
from cmbs.transparency.kernel.notes import Note, VerifierKey
from cmbs.transparency.kernel.published import LogKey, RecordProof
from cmbs.transparency.kernel.records import HeadRecord
from cmbs.transparency.stream_trees import describe_fork


class CheckpointSource(Protocol):
    """What a server says of its checkpoints. Nothing of it is believed before it was checked."""

    def checkpoint(self) -> Note | Fault:
        """The last checkpoint, or why there is none."""

    def consistency(self, size: int) -> tuple[Note, list[bytes]] | Fault:
        """The last checkpoint, and the path to it from a size; or why the server proves nothing."""

    def growth(self, record: HeadRecord) -> bytes | Fault:
        """What is to prove that a session or a space still begins with what was recorded of it."""


def check_notes(notes: Sequence[Note], keys: Sequence[LogKey], witnesses: Iterable[str] = ()) -> list[Fault]:
    """What is wrong with signatures of checkpoints, and between those of one size; all witnesses must have cosigned.

    Checkpoints of different sizes are compared with `check_against_server`, or with the store.
    """
    faults = [fault for note in notes if (fault := check_signature(note, keys)) is not None]
    for vkey in witnesses:
        witness = VerifierKey.parse(vkey)
        for note in notes:
            if not any(witness.verifies(note.text, each) for each in note.signatures):
                size = Checkpoint.parse(note.text).size
                faults.append(Fault(FaultKind.NOT_COSIGNED, f"size {size} has no valid cosignature of `{vkey}`"))
    if faults:
        return faults
    for left, right in combinations((Checkpoint.parse(note.text) for note in notes), 2):
        fault = compare_checkpoints(left, right, None)
        if fault is not None and fault.kind is not FaultKind.UNPROVED:
            faults.append(fault)
    return faults


def check_records(proofs: Iterable[RecordProof]) -> tuple[list[HeadRecord], list[Fault]]:
    """The records that kept proofs are of, by the roots in their notes; a Fault for each that is forged."""
    found = [verify_record(proof) for proof in proofs]
    return [each for each in found if not isinstance(each, Fault)], [each for each in found if isinstance(each, Fault)]


def is_proven_over_http(record: HeadRecord) -> bool:
    """Whether a server gives proofs of a stream: of sessions and spaces it does."""
    return record.stream_id.startswith(STREAM_PREFIX) or not is_reserved(record.stream_id)


def check_streams(records: Iterable[HeadRecord], server: CheckpointSource) -> list[Fault]:
    """Whether the sessions and spaces of a server still begin with what was recorded of them."""
    found = [_check_growth(each, server) for each in records if is_proven_over_http(each)]
    return [each for each in found if each is not None]


def _check_growth(record: HeadRecord, server: CheckpointSource) -> Fault | None:
    answer = server.growth(record)
    if isinstance(answer, Fault):
        return answer
    try:
        verify_proof(answer, asked=Question("consistency", record.stream_id, record.size - 1))
    except InvalidProof as exc:
        return Fault(FaultKind.UNPROVED, str(exc), record.stream_id)
    recorded = Tree(record.size, bytes.fromhex(record.root))
    try:
        verify_proof(answer, Known(trees={record.stream_id: [recorded]}))
    except InvalidProof:
        return describe_fork(record)
    return None


def check_against_server(kept: Sequence[Note], server: CheckpointSource, keys: Sequence[LogKey]) -> list[Fault]:
    """Whether what a server signs now continues every kept checkpoint."""
    current = server.checkpoint()
    if isinstance(current, Fault):
        return [current]
    fault = check_signature(current, keys)
    if fault is not None:
        return [fault]
    faults = [_check_continues(Checkpoint.parse(note.text), current, server, keys) for note in kept]
    # A server over a database that was put back says the same of each.
    return list(dict.fromkeys(fault for fault in faults if fault is not None))


def _check_continues(kept: Checkpoint, current: Note, server: CheckpointSource, keys: Sequence[LogKey]) -> Fault | None:
    fault = _check_went_back(kept, Checkpoint.parse(current.text))
    if fault is not None:
        return fault
    answer = server.consistency(kept.size)
    if isinstance(answer, Fault):
        return answer
    newer, path = answer
    fault = check_signature(newer, keys)
    fault = fault or _check_went_back(kept, Checkpoint.parse(newer.text))
    return fault or compare_checkpoints(kept, Checkpoint.parse(newer.text), path)


def _check_went_back(kept: Checkpoint, current: Checkpoint) -> Fault | None:
    if kept.origin != current.origin or current.size >= kept.size:
        return compare_checkpoints(kept, current, None) if kept.origin != current.origin else None
    kind = FaultKind.PUT_BACK if current.size else FaultKind.EMPTIED
    return Fault(kind, f"the server signs size {current.size} now, and it had signed size {kept.size}: it went back")
