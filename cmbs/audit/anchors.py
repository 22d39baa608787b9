"""Signed checkpoints as what proofs rest on: a proof that carries one needs nothing else but the log's public key."""

from __future__ import annotations

import msgspec

from cmbs.audit.proofs import Anchored, AnchorSource
from cmbs.errors import LedgerCorrupt, RecordNotFound, StoreUnavailable
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


def _read_record(notary: Notary, stream_id: str) -> Anchored | None:
    try:
        proof = notary.record_of(stream_id)
    except RecordNotFound:
        return None
    payload = proof.entry["payload"]
    return Anchored(payload["size"], bytes.fromhex(payload["root"]), msgspec.to_builtins(proof))
