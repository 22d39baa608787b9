"""Holding kept checkpoints against each other, and against what a server answers now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import httpx
import msgspec

from cmbs.errors import InvalidRequest, StoreUnavailable
from cmbs.transparency.kernel.checkpoint import Checkpoint, LogKey, LogKeys, check_signature, compare_checkpoints
from cmbs.transparency.kernel.documents import ConsistencyProof, parse_path
from cmbs.transparency.kernel.faults import Fault, FaultKind
from cmbs.transparency.kernel.notes import Note, VerifierKey

_TIMEOUT_SECONDS = 30.0


class CheckpointClient:
    """What a server says of its checkpoints. Nothing of it is believed before it was checked."""

    def __init__(self, url: str, api_key: str = "", transport: httpx.BaseTransport | None = None) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_SECONDS, transport=transport)

    def checkpoint(self) -> Note:
        """The last checkpoint."""
        return Note.parse(self._get("/v1/checkpoint", accept="text/plain").text)

    def keys(self) -> LogKeys:
        """The public keys."""
        return LogKeys.parse(self._get("/v1/checkpoint/keys").content)

    def consistency(self, size: int) -> tuple[Note, list[bytes]]:
        """The last checkpoint, and the path to it from a size."""
        answer = self._get(f"/v1/checkpoint/consistency?from={size}")
        try:
            proof = msgspec.json.decode(answer.content, type=ConsistencyProof)
        except msgspec.DecodeError as exc:
            raise InvalidRequest(f"the server answered no consistency proof: {exc}") from exc
        return Note.parse(proof.note), parse_path(proof.path)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _get(self, path: str, accept: str = "application/json") -> httpx.Response:
        try:
            answer = self._client.get(path, headers={"accept": accept})
        except httpx.HTTPError as exc:
            raise StoreUnavailable(f"the server cannot be asked: {exc}") from exc
        if answer.status_code != httpx.codes.OK:
            raise StoreUnavailable(f"the server answered {answer.status_code}: {answer.text[:200]}")
        return answer


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
