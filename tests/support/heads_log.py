"""A signed log of stream heads, apart from the code that writes them."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cmbs.ledger.merkle import root_of_hashes
from cmbs.ledger.proofs import consistency_path, inclusion_path
from tests.support.exports import fit_stream

ORIGIN = "example.com/log"


class HeadsLog:
    """A log of stream heads that signs its root, and writes documents as a server does."""

    def __init__(self, heads: list[dict[str, Any]], seed: bytes | None = None) -> None:
        generated = Ed25519PrivateKey.generate()
        self.private = generated if seed is None else Ed25519PrivateKey.from_private_bytes(seed)
        public = b"\x01" + self.private.public_key().public_bytes_raw()
        self.key_id = hashlib.sha256(f"{ORIGIN}\n".encode() + public).digest()[:4]
        self.vkey = f"{ORIGIN}+{self.key_id.hex()}+{base64.b64encode(public).decode()}"
        entries = [self._record(seq, head) for seq, head in enumerate(heads)]
        self.entries = [json.loads(each.raw) for each in fit_stream(entries)]
        self.hashes = [each.event_hash for each in fit_stream(entries)]

    @staticmethod
    def _record(seq: int, head: dict[str, Any]) -> dict[str, Any]:
        fixed = {
            "format": "cmbs/1",
            "outcome": None,
            "stream_id": "heads:server",
            "verb": "RECORD_HEAD",
            "prev_event_hash": "",
        }
        return {**fixed, "event_id": f"e{seq}", "payload": head, "seq": seq, "ts": "2026-01-01T00:00:00.000000Z"}

    def note(self, size: int, root: bytes | None = None) -> str:
        root = root or root_of_hashes(self.hashes[:size])
        text = f"{ORIGIN}\n{size}\n{base64.b64encode(root).decode()}\n"
        signature = base64.b64encode(self.key_id + self.private.sign(text.encode())).decode()
        return f"{text}\n\u2014 {ORIGIN} {signature}\n"

    def document(self, kind: str, size: int, **fields: Any) -> dict[str, Any]:
        return {"format": "cmbs/1/proof", "kind": kind, "note": self.note(size), "size": size, **fields}

    def record(self, index: int, size: int) -> dict[str, Any]:
        path = [each.hex() for each in inclusion_path(self.hashes[:size], index)]
        entry = self.entries[index]
        return self.document("checkpoint-record", size, leaf_index=index, entry=entry, path=path)

    def consistency(self, old: int, size: int) -> dict[str, Any]:
        path = [each.hex() for each in consistency_path(self.hashes[:size], old)]
        return self.document("checkpoint-consistency", size, from_size=old, path=path)
