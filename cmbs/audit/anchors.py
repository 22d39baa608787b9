"""Signed checkpoints as what proofs rest on: a proof that carries one needs nothing else but the log's public key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cmbs.audit.kernel.verify import Tree
from cmbs.audit.proofs import Anchored, AnchorSource
from cmbs.errors import BeliefServerError, InvalidProof, LedgerCorrupt, RecordNotFound, StoreUnavailable
from cmbs.transparency.kernel.checkpoint import check_signature
from cmbs.transparency.kernel.documents import verify_record
from cmbs.transparency.kernel.faults import Fault
from cmbs.transparency.kernel.notes import Note
from cmbs.transparency.kernel.published import LogKey, RecordProof
from cmbs.transparency.notary import Notary


def anchor_by(notary: Notary) -> AnchorSource:
    """Evidence from the signed log of stream heads; a checkpoint is signed where the last one is too old.

    None where the notary signs nothing at the moment: the proof then rests on the root of its stream.
    """

    def find(stream_id: str, least_size: int, size: int) -> Anchored | None:  # noqa: ARG001 - any size from the least on
        try:
            record = _read_record(notary, stream_id)
            if record is None or record.size < least_size:
                notary.publish()
                record = _read_record(notary, stream_id)
        except (LedgerCorrupt, StoreUnavailable):
            return None
        return None if record is None or record.size < least_size else record

    return find


def check_by(keys: Sequence[LogKey]) -> Callable[[str, Tree, Mapping[str, Any]], bool]:
    """Whether a checkpoint that one of these keys signed vouches for a stream; InvalidProof where it does not."""

    def check(stream_id: str, tree: Tree, anchor: Mapping[str, Any]) -> bool:
        try:
            proof = msgspec.convert(dict(anchor), RecordProof)
            found = check_signature(Note.parse(proof.note), keys) or verify_record(proof)
        except (msgspec.ValidationError, BeliefServerError) as exc:
            raise InvalidProof(f"the anchor of `{stream_id}` is no record of a signed log: {exc}") from exc
        if isinstance(found, Fault):
            raise InvalidProof(f"the anchor of `{stream_id}`: {found}")
        if (found.stream_id, found.size, found.root) != (stream_id, tree.size, tree.root.hex()):
            raise InvalidProof(f"the anchor of `{stream_id}` is of `{found.stream_id}` at size {found.size}")
        return True

    return check


def _read_record(notary: Notary, stream_id: str) -> Anchored | None:
    try:
        proof = notary.record_of(stream_id)
    except RecordNotFound:
        return None
    payload = proof.entry["payload"]
    return Anchored(payload["size"], bytes.fromhex(payload["root"]), msgspec.to_builtins(proof))
