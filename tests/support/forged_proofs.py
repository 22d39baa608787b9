"""Proofs about a log whose writer lies: every hash, link and path fits, whatever the entries say."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

from cmbs.ledger import GENESIS, canonical, hash_entry
from cmbs.ledger.merkle import Tree, leaf_hash, root_of_hashes
from cmbs.ledger.proofs import inclusion_path
from cmbs.offline_verifier import BLOCK_BYTES, commitment

STREAM = "00000000-0000-4000-8000-00000000f00d"
TS = "2026-01-01T00:00:00.000000Z"

Document = dict[str, Any]


class ForgedLog:
    """A session of at most 1024 ids, with entries that list any ids, and bits that are cleared as the writer likes.

    The universe tree is over `leaves`, which need not be the ids that the declaration lists.
    """

    def __init__(
        self, hypotheses: Sequence[str], leaves: Sequence[str] | None = None, size: int | None = None, **members: Any
    ) -> None:
        self.leaves = list(hypotheses if leaves is None else leaves)
        self.size = len(self.leaves) if size is None else size
        self.entries: list[bytes] = []
        # The survivors after each entry, as the block to which it commits.
        self.blocks: list[bytes] = []
        outcome = {"universe_root": self.universe_root.hex(), "universe_size": self.size}
        declared = {"verb": "DECLARE_SESSION", "outcome": outcome, "payload": {"hypotheses": list(hypotheses)}}
        self.append(listed=[], cleared=[], **{**declared, **members})

    @property
    def universe_root(self) -> bytes:
        return root_of_hashes(map(_leaf, self.leaves))

    def append(self, verb: str, listed: list[str], cleared: Iterable[int], **members: Any) -> None:
        """An entry that says it eliminated these ids, and commits to survivors with these bits cleared."""
        before = int.from_bytes(self.blocks[-1], "little") if self.blocks else (1 << len(self.leaves)) - 1
        after = before
        for bit in cleared:
            after &= ~(1 << bit)
        previous = hash_entry(self.entries[-1]) if self.entries else GENESIS
        blocks = [each.to_bytes(BLOCK_BYTES, "little") for each in (before, after)]
        hashes = [commitment(STREAM, previous, leaf_hash(block)).hex() for block in blocks]
        entry = {
            "delta": {"eliminated": listed},
            "event_id": f"event-{len(self.entries)}",
            "format": "cmbs/1",
            "outcome": None,
            "payload": None,
            "prev_event_hash": previous.hex(),
            "seq": len(self.entries),
            "stream_id": STREAM,
            "survivors_before_hash": hashes[0],
            "survivors_after_hash": hashes[1],
            "ts": TS,
            "verb": verb,
            **members,
        }
        self.entries.append(canonical.encode(entry))
        self.blocks.append(blocks[1])

    def eliminate(self, listed: list[str], cleared: Iterable[int]) -> None:
        """Report an observation."""
        self.append("ELIMINATE", listed, cleared)

    # --- the parts of documents, and documents ---

    @property
    def hashes(self) -> list[bytes]:
        return [hash_entry(raw) for raw in self.entries]

    @property
    def root(self) -> bytes:
        return root_of_hashes(self.hashes)

    def stream(self, **members: Any) -> Document:
        size = len(self.entries)
        path = encode(*inclusion_path(self.hashes, size - 1))
        head = encode(self.hashes[-1])
        return {"id": STREAM, "size": size, "root": encode(self.root), "head": head, "head_path": path, **members}

    def include(self, seq: int) -> Document:
        return {"entry": self.entries[seq].decode(), "path": encode(*inclusion_path(self.hashes, seq))}

    def universe(self, *, declared: bool = True) -> Document:
        known = {"size": self.size, "root": encode(self.universe_root)}
        return {**known, "declaration": self.include(0)} if declared else known

    def place(self, positions: Iterable[int]) -> str:
        """The way of ids to the universe root, from these places."""
        return encode(*Tree.over(map(_leaf, self.leaves)).path(positions))

    def flip(self, seq: int, cleared: list[int]) -> Document:
        blocks = encode(self.blocks[seq - 1]) if cleared else ""
        return {"universe_size": self.size, "cleared": cleared, "blocks": blocks, "path": ""}

    def inclusion(self, seq: int, **members: Any) -> Document:
        return document("inclusion", stream=self.stream(**members), event=self.include(seq))

    def membership(self, hypothesis_id: str, position: int, seq: int, *, declared: bool = True) -> Document:
        return document(
            "membership",
            stream=self.stream(),
            hypothesis_id=hypothesis_id,
            event=self.include(seq),
            universe=self.universe(declared=declared),
            position=position,
            universe_path=self.place([position]),
            survivors={"block": encode(self.blocks[seq]), "path": ""},
        )

    def elimination(
        self, hypothesis_id: str, seq: int, cleared: list[int], position: int, *, declared: bool = True
    ) -> Document:
        return document(
            "elimination",
            stream=self.stream(),
            hypothesis_id=hypothesis_id,
            event=self.include(seq),
            universe=self.universe(declared=declared),
            universe_path=self.place([position]),
            survivors={"block": encode(self.blocks[seq]), "path": ""},
            cause=self.include(seq),
            flip=self.flip(seq, cleared),
        )

    def transition(self, seq: int, cleared: list[int], *, declared: bool = True) -> Document:
        entry = canonical.decode(self.entries[seq])
        names = {"prev_event_hash": "prev_event_hash", "before": "survivors_before_hash"}
        names |= {"after": "survivors_after_hash"}
        return document(
            "transition",
            stream_id=STREAM,
            seq=seq,
            **{name: encode(bytes.fromhex(entry[member])) for name, member in names.items()},
            flip=self.flip(seq, cleared),
            recorded={
                "stream": self.stream(),
                "event": self.include(seq),
                "universe": self.universe(declared=declared),
                "universe_path": self.place(cleared) if cleared else "",
            },
        )


def document(kind: str, **fields: Any) -> Document:
    return {"format": "cmbs/1/proof", "kind": kind, **fields}


def encode(*hashes: bytes) -> str:
    return base64.b64encode(b"".join(hashes)).decode()


def _leaf(name: str) -> bytes:
    return leaf_hash(name.encode())
