"""Holding kept checkpoints against each other, and against what a server answers now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from urllib.parse import quote

import httpx2
import msgspec

from cmbs.audit.kernel.documents import Consistency, read_proof
from cmbs.audit.kernel.verify import verify_proof
from cmbs.errors import ErrorCode, InvalidProof, InvalidRequest, StoreUnavailable
from cmbs.spi import is_reserved
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.transparency.kernel.checkpoint import Checkpoint, check_signature, compare_checkpoints, parse_keys
from cmbs.transparency.kernel.documents import parse_path, verify_record
from cmbs.transparency.kernel.faults import Fault, FaultKind
from cmbs.transparency.kernel.notes import Note, VerifierKey
from cmbs.transparency.kernel.published import ConsistencyProof, LogKey, LogKeys, RecordProof
from cmbs.transparency.kernel.records import HeadRecord
from cmbs.transparency.stream_trees import describe_fork

_TIMEOUT_SECONDS = 30.0


class CheckpointClient:
    """What a server says of its checkpoints. Nothing of it is believed before it was checked."""

    def __init__(self, url: str, api_key: str = "", transport: httpx2.BaseTransport | None = None) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx2.Client(base_url=url, headers=headers, timeout=_TIMEOUT_SECONDS, transport=transport)

    def checkpoint(self) -> Note:
        """The last checkpoint."""
        return Note.parse(self._get("/v1/checkpoint", accept="text/plain").text)

    def keys(self) -> LogKeys:
        """The public keys."""
        return parse_keys(self._get("/v1/checkpoint/keys").content)

    def consistency(self, size: int) -> tuple[Note, list[bytes]]:
        """The last checkpoint, and the path to it from a size."""
        answer = self._get(f"/v1/checkpoint/consistency?from={size}")
        try:
            proof = msgspec.json.decode(answer.content, type=ConsistencyProof)
        except msgspec.DecodeError as exc:
            raise InvalidRequest(f"the server answered no consistency proof: {exc}") from exc
        return Note.parse(proof.note), parse_path(proof.path)

    def growth(self, record: HeadRecord) -> bytes | Fault:
        """What is to prove that a session or a space still begins with what was recorded of it."""
        is_space = record.stream_id.startswith(STREAM_PREFIX)
        kind, name = ("spaces" if is_space else "sessions"), record.stream_id.removeprefix(STREAM_PREFIX)
        answer = self._ask(f"/v1/{kind}/{quote(name, safe='')}/proofs/consistency?old_size={record.size}")
        if answer.status_code == httpx2.codes.OK:
            return answer.content
        code, message = _read_error(answer)
        match code:
            case ErrorCode.SESSION_NOT_FOUND | ErrorCode.SPACE_NOT_FOUND:
                return Fault(FaultKind.DELETED, f"it is gone, and it had {record.size} entries", record.stream_id)
            case ErrorCode.EVENT_NOT_FOUND:
                ends = f"it had reached seq {record.head.seq} ({record.head_hash}), and does not any more"
                return Fault(FaultKind.TRUNCATED, ends, record.stream_id)
            case ErrorCode.LEDGER_CORRUPT:
                return Fault(FaultKind.UNPROVED, f"the server says: {message}", record.stream_id)
            case _:
                raise _unusable(answer)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _get(self, path: str, accept: str = "application/json") -> httpx2.Response:
        answer = self._ask(path, accept)
        if answer.status_code != httpx2.codes.OK:
            raise _unusable(answer)
        return answer

    def _ask(self, path: str, accept: str = "application/json") -> httpx2.Response:
        try:
            return self._client.get(path, headers={"accept": accept})
        except httpx2.HTTPError as exc:
            raise StoreUnavailable(f"the server cannot be asked: {exc}") from exc


class _Error(msgspec.Struct):
    code: str
    message: str


class _ErrorBody(msgspec.Struct):
    error: _Error


def _read_error(answer: httpx2.Response) -> tuple[str, str]:
    """The code and the message of an error; empty where the answer is none of our error model."""
    try:
        error = msgspec.json.decode(answer.content, type=_ErrorBody).error
    except msgspec.DecodeError:
        return "", ""
    return error.code, error.message


def _unusable(answer: httpx2.Response) -> StoreUnavailable:
    return StoreUnavailable(f"the server answered {answer.status_code}: {answer.text[:200]}")


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


def check_streams(records: Iterable[HeadRecord], client: CheckpointClient) -> list[Fault]:
    """Whether the sessions and spaces of a server still begin with what was recorded of them."""
    found = [_check_growth(each, client) for each in records if is_proven_over_http(each)]
    return [each for each in found if each is not None]


def _check_growth(record: HeadRecord, client: CheckpointClient) -> Fault | None:
    answer = client.growth(record)
    if isinstance(answer, Fault):
        return answer
    try:
        proof = read_proof(answer)
        verify_proof(proof)
    except InvalidProof as exc:
        return Fault(FaultKind.UNPROVED, str(exc), record.stream_id)
    if not isinstance(proof, Consistency) or (proof.stream.id, proof.old.size) != (record.stream_id, record.size):
        return Fault(FaultKind.UNPROVED, "the server proves something else", record.stream_id)
    return None if proof.old.root.hex() == record.root else describe_fork(record)


def check_against_server(kept: Sequence[Note], client: CheckpointClient, keys: Sequence[LogKey]) -> list[Fault]:
    """Whether what a server signs now continues every kept checkpoint."""
    current = client.checkpoint()
    fault = check_signature(current, keys)
    if fault is not None:
        return [fault]
    faults: list[Fault] = []
    for note in kept:
        checkpoint = Checkpoint.parse(note.text)
        fault = _check_went_back(checkpoint, Checkpoint.parse(current.text))
        if fault is None:
            newer, path = client.consistency(checkpoint.size)
            fault = check_signature(newer, keys)
            fault = fault or _check_went_back(checkpoint, Checkpoint.parse(newer.text))
            fault = fault or compare_checkpoints(checkpoint, Checkpoint.parse(newer.text), path)
        if fault is not None:
            faults.append(fault)
    return faults


def _check_went_back(kept: Checkpoint, current: Checkpoint) -> Fault | None:
    if kept.origin != current.origin or current.size >= kept.size:
        return compare_checkpoints(kept, current, None) if kept.origin != current.origin else None
    kind = FaultKind.PUT_BACK if current.size else FaultKind.EMPTIED
    return Fault(kind, f"the server signs size {current.size} now, and it had signed size {kept.size}: it went back")
