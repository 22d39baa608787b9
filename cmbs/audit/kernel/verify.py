"""Verification of proof documents. Every check is on the document alone; what it rests on is said, never assumed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, assert_never

import msgspec

from cmbs.audit.kernel.documents import (
    BlockAt,
    Consistency,
    Decision,
    Elimination,
    Flip,
    Included,
    Inclusion,
    Membership,
    Proof,
    ReadingEvidence,
    Refusal,
    StreamHead,
    Transition,
    TreeHead,
    UniverseRoot,
    read_proof,
)
from cmbs.belief.kernel.survivors import BLOCK_BITS, BLOCK_BYTES, commitment
from cmbs.errors import BeliefServerError, InvalidProof
from cmbs.ledger import Head, canonical, hash_entry
from cmbs.ledger.merkle import leaf_hash, root_of_hashes
from cmbs.ledger.proofs import MAX_SIZE, root_from, verify_consistency, verify_inclusion

_HASH_BYTES = 32
_SPACE = "space:"
_DENIABLE = {"REQUEST_EXIT": "approved", "REQUEST_TERMINATION": "approved", "DECLARE_CONCLUSION": "accepted"}
# What a caller sends may be as deep as `canonical.MAX_DEPTH`, and is a few levels down in an entry.
_MAX_ENTRY_DEPTH = canonical.MAX_DEPTH + 16
# A universe has at most so many ids in a proof that carries its whole bitmap.
_MAX_BITMAP_BITS = 2**30


class Tree(NamedTuple):
    """A tree that the reader has kept, or learnt from one that it trusts."""

    size: int
    root: bytes


class Anchors(NamedTuple):
    """What the reader of a proof knows by itself.

    `streams`: trees of streams, by id. `universes`: the size and root of the universes of sessions, by id.
    `heads`: heads of streams, by id; an entry that was one is believed, whatever the root.
    `check_anchor` says whether the evidence in a stream's `anchor` vouches for the stream (id, size, root); it raises
    InvalidProof where the evidence is bad.
    """

    streams: Mapping[str, Sequence[Tree]] = {}
    universes: Mapping[str, Tree] = {}
    check_anchor: Callable[[str, Tree, Mapping[str, Any]], bool] | None = None
    heads: Mapping[str, Sequence[Head]] = {}


class Verified(NamedTuple):
    """What a proof proves, if what it rests on is so. Nothing to rest on: it is proven."""

    kind: str
    statement: str
    rests_on: tuple[str, ...]


def verify_proof(document: bytes | Proof, anchors: Anchors | None = None) -> Verified:
    """Check a proof; InvalidProof says what does not fit, or contradicts an anchor."""
    proof = read_proof(document) if isinstance(document, bytes) else document
    checking = _Checking(anchors or Anchors())
    statement = checking.check(proof)
    return Verified(type(proof).__name__.lower(), statement, tuple(dict.fromkeys(checking.rests_on)))


class Entry(msgspec.Struct, frozen=True):
    """What proofs look at in an entry of any kind and version."""

    stream_id: str
    seq: int
    event_id: str
    prev_event_hash: str
    ts: str
    verb: str
    outcome: Any = None
    payload: Any = None
    delta: dict[str, Any] = {}
    survivors_before_hash: str = ""
    survivors_after_hash: str = ""


def read_entry(text: str) -> Entry:
    """The entry that these bytes hold; InvalidProof where they hold none, or one that could be read in two ways."""
    try:
        return msgspec.convert(canonical.decode(text, _MAX_ENTRY_DEPTH), Entry)
    except (BeliefServerError, msgspec.ValidationError) as exc:
        raise InvalidProof(f"not an entry: {getattr(exc, 'message', exc)}") from exc


def is_refusal(entry: Entry) -> bool:
    """Whether an entry records that something was denied, in a session or in a space."""
    outcome = entry.outcome if isinstance(entry.outcome, dict) else {}
    if not entry.stream_id.startswith(_SPACE):
        return entry.verb in _DENIABLE and outcome.get(_DENIABLE[entry.verb]) is False
    decision = outcome.get("decision")
    denied = isinstance(decision, dict) and decision.get("verdict") == "deny" and decision.get("observed") is not True
    return denied or outcome.get("granted") is False


def is_permission(entry: Entry) -> bool:
    """Whether an entry of a space records that a proposal was allowed."""
    decision = entry.outcome.get("decision") if isinstance(entry.outcome, dict) else None
    return entry.stream_id.startswith(_SPACE) and isinstance(decision, dict) and decision.get("verdict") == "allow"


def readings_of(entry: Entry) -> list[dict[str, Any]]:
    """What the belief plane said, as an entry of a space records it."""
    readings = entry.payload.get("belief", []) if isinstance(entry.payload, dict) else []
    if not isinstance(readings, list) or not all(isinstance(each, dict) for each in readings):
        raise InvalidProof("the belief readings of the entry are malformed")
    return readings


def _require(condition: object, problem: str) -> None:
    if not condition:
        raise InvalidProof(problem)


def _split(path: bytes) -> list[bytes]:
    _require(len(path) % _HASH_BYTES == 0, "a path is not made of hashes of 32 bytes")
    return [path[start : start + _HASH_BYTES] for start in range(0, len(path), _HASH_BYTES)]


def _root_from(leaves: Mapping[int, bytes], size: int, path: bytes) -> bytes:
    try:
        return root_from(leaves, size, _split(path))
    except ValueError as exc:
        raise InvalidProof(str(exc)) from exc


def _is_cleared(block: bytes, position: int) -> bool:
    bit = position % BLOCK_BITS
    return block[bit >> 3] >> (bit & 7) & 1 == 0


def _count_blocks(universe_size: int) -> int:
    _require(0 < universe_size <= MAX_SIZE, "a universe has at least one id")
    return -(-universe_size // BLOCK_BITS)


class _Checking:
    """The checks of one document, and what it turns out to rest on."""

    def __init__(self, anchors: Anchors) -> None:
        self._anchors = anchors
        self._trusted: set[tuple[str, Tree]] = set()
        self.rests_on: list[str] = []

    def check(self, proof: Proof) -> str:
        match proof:
            case Inclusion():
                entry = self._check_event(self._check_stream(proof.stream), proof.event)
                return f"{_name(entry)} ({entry.verb}, {entry.ts}) is in the log"
            case Consistency():
                return self._check_consistency(proof)
            case Membership():
                return self._check_membership(proof)
            case Elimination():
                return self._check_elimination(proof)
            case Transition():
                return self._check_transition(proof)
            case Refusal():
                entry = self._check_event(self._check_stream(proof.stream), proof.event)
                _require(is_refusal(entry), f"{_name(entry)} ({entry.verb}) is no refusal")
                return f"{_name(entry)} ({entry.verb}, {entry.ts}) was denied"
            case Decision():
                return self._check_decision(proof)
            case _:
                assert_never(proof)

    # --- parts ---

    def _check_tree(self, stream_id: str, tree: TreeHead | StreamHead) -> None:
        _require(tree.size > 0, "a stream has at least one entry")
        _require(len(tree.root) == len(tree.head) == _HASH_BYTES, "a hash has 32 bytes")
        _require(
            verify_inclusion(tree.head, tree.size - 1, tree.size, _split(tree.head_path), tree.root),
            f"the head of `{stream_id}` is not the last entry under its root",
        )
        self._is_kept_head(stream_id, Head(tree.size - 1, tree.head))

    def _check_stream(self, stream: StreamHead) -> StreamHead:
        self._check_tree(stream.id, stream)
        tree, check = Tree(stream.size, stream.root), self._anchors.check_anchor
        is_kept = self._is_kept(stream.id, tree)
        if is_kept or (stream.anchor is not None and check is not None and check(stream.id, tree, stream.anchor)):
            self._trusted.add((stream.id, tree))
        return stream

    def _rest_on_root(self, stream: StreamHead) -> None:
        if (stream.id, Tree(stream.size, stream.root)) not in self._trusted:
            self.rests_on.append(f"the stream `{stream.id}` has the root {stream.root.hex()} at size {stream.size}")

    def _is_kept_head(self, stream_id: str, head: Head) -> bool:
        kept = [each for each in self._anchors.heads.get(stream_id, ()) if each.seq == head.seq]
        _require(all(each == head for each in kept), f"event {head.seq} of `{stream_id}` is not the head that was kept")
        return bool(kept)

    def _is_kept(self, stream_id: str, tree: Tree) -> bool:
        kept = [each for each in self._anchors.streams.get(stream_id, ()) if each.size == tree.size]
        _require(
            all(each.root == tree.root for each in kept),
            f"`{stream_id}` at size {tree.size} does not have the root that was kept",
        )
        return bool(kept)

    def _check_event(self, stream: StreamHead, event: Included) -> Entry:
        entry, event_hash = read_entry(event.entry), hash_entry(event.entry.encode())
        _require(entry.stream_id == stream.id, f"an entry is of `{entry.stream_id}`, not of `{stream.id}`")
        _require(
            verify_inclusion(event_hash, entry.seq, stream.size, _split(event.path), stream.root),
            f"{_name(entry)} is not under the root",
        )
        # An entry that was once the head that the reader kept needs nothing else to vouch for it.
        if not self._is_kept_head(stream.id, Head(entry.seq, event_hash)):
            self._rest_on_root(stream)
        return entry

    def _check_commitment(self, entry: Entry, survivor_root: bytes) -> None:
        _require(
            commitment(entry.stream_id, _previous(entry), survivor_root) == entry.survivors_after_hash,
            f"{_name(entry)} does not commit to these survivors",
        )

    def _check_universe(self, stream: StreamHead, universe: UniverseRoot) -> None:
        """Hold the universe against its declaration, where the proof has it, or else against what the reader knows."""
        _require(len(universe.root) == _HASH_BYTES, "a hash has 32 bytes")
        known, stated = self._anchors.universes.get(stream.id), Tree(universe.size, universe.root)
        _require(known in (None, stated), f"`{stream.id}` has another universe than the one that was kept")
        if universe.declaration is not None:
            entry = self._check_event(stream, universe.declaration)
            _require(entry.seq == 0 and entry.verb == "DECLARE_SESSION", "the declaration is not the first entry")
            outcome = entry.outcome if isinstance(entry.outcome, dict) else {}
            _require(
                (outcome.get("universe_size"), outcome.get("universe_root")) == (stated.size, stated.root.hex()),
                "the declaration commits to another universe",
            )
        elif known is None:
            self.rests_on.append(
                f"the universe of `{stream.id}` has {stated.size} ids and the root {stated.root.hex()}"
            )

    def _check_flip(self, flip: Flip, stream_id: str, previous: bytes) -> tuple[str, str]:
        """The commitments before and after, if the blocks held all of these bits before."""
        blocks = [flip.blocks[start : start + BLOCK_BYTES] for start in range(0, len(flip.blocks), BLOCK_BYTES)]
        _require(all(left < right for left, right in pairwise(flip.cleared)), "the bits are not sorted")
        _require(all(0 <= bit < flip.universe_size for bit in flip.cleared), "a bit is outside the universe")
        numbers = sorted({bit // BLOCK_BITS for bit in flip.cleared})
        _require(
            len(numbers) == len(blocks) and all(len(block) == BLOCK_BYTES for block in blocks),
            "the blocks are not those of the bits",
        )
        before = dict(zip(numbers, map(bytearray, blocks), strict=True))
        after = {number: bytearray(block) for number, block in before.items()}
        for bit in flip.cleared:
            block, place = after[bit // BLOCK_BITS], bit % BLOCK_BITS
            _require(not _is_cleared(bytes(block), bit), f"bit {bit} was clear before")
            block[place >> 3] ^= 1 << (place & 7)
        count = _count_blocks(flip.universe_size)
        roots = [
            _root_from({number: leaf_hash(bytes(block)) for number, block in side.items()}, count, flip.path)
            for side in (before, after)
        ]
        return commitment(stream_id, previous, roots[0]), commitment(stream_id, previous, roots[1])

    # --- kinds ---

    def _check_consistency(self, proof: Consistency) -> str:
        stream, old = proof.stream, proof.old
        self._check_tree(stream.id, old)
        self._check_stream(stream)
        # Nothing else is stated than that the newer tree goes on where the older one ended.
        if not self._is_kept(stream.id, Tree(old.size, old.root)):
            self._rest_on_root(stream)
        _require(
            verify_consistency(old.size, old.root, stream.size, stream.root, _split(proof.path)),
            f"`{stream.id}` at size {stream.size} did not grow from size {old.size}",
        )
        return (
            f"`{stream.id}` with the root {stream.root.hex()} at size {stream.size} begins with all {old.size} entries"
            f" under the root {old.root.hex()}"
        )

    def _check_membership(self, proof: Membership) -> str:
        stream, universe = self._check_stream(proof.stream), proof.universe
        entry = self._check_event(stream, proof.event)
        leaf = leaf_hash(proof.hypothesis_id.encode())
        _require(
            _root_from({proof.position: leaf}, universe.size, proof.universe_path) == universe.root,
            f"`{proof.hypothesis_id}` is not at {proof.position} of the universe",
        )
        self._check_universe(stream, universe)
        self._check_block(entry, proof.survivors, proof.position, universe.size)
        _require(not _is_cleared(proof.survivors.block, proof.position), f"`{proof.hypothesis_id}` is eliminated")
        return f"`{proof.hypothesis_id}` survived after {_name(entry)}"

    def _check_block(self, entry: Entry, survivors: BlockAt, position: int, universe_size: int) -> None:
        _require(len(survivors.block) == BLOCK_BYTES, "a block has 128 bytes")
        leaf = leaf_hash(survivors.block)
        count = _count_blocks(universe_size)
        self._check_commitment(entry, _root_from({position // BLOCK_BITS: leaf}, count, survivors.path))

    def _check_elimination(self, proof: Elimination) -> str:
        stream, universe = self._check_stream(proof.stream), proof.universe
        entry, cause = self._check_event(stream, proof.event), self._check_event(stream, proof.cause)
        _require(cause.seq <= entry.seq, "the event that eliminated it came later")
        self._check_universe(stream, universe)
        _require(proof.flip.universe_size == universe.size, "the bits are those of another universe")
        position = self._find_cleared(cause, proof.flip, proof.hypothesis_id)
        self._check_block(entry, proof.survivors, position, universe.size)
        _require(_is_cleared(proof.survivors.block, position), f"`{proof.hypothesis_id}` survives")
        return f"`{proof.hypothesis_id}` was gone after {_name(entry)}, eliminated by event {cause.seq} ({cause.ts})"

    def _find_cleared(self, cause: Entry, flip: Flip, hypothesis_id: str) -> int:
        """The bit of an id that an entry eliminated: ids and bits are in the same order, as the universe is sorted."""
        ids = self._check_delta(cause, flip)
        _require(hypothesis_id in ids, f"{_name(cause)} did not eliminate `{hypothesis_id}`")
        return flip.cleared[ids.index(hypothesis_id)]

    def _check_delta(self, entry: Entry, flip: Flip) -> list[str]:
        ids = entry.delta.get("eliminated")
        if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
            raise InvalidProof(f"{_name(entry)} has no list of eliminated ids")
        _require(ids == sorted(set(ids)), f"{_name(entry)} does not list its ids in order")
        _require(len(ids) == len(flip.cleared), f"{_name(entry)} eliminated {len(ids)} ids, not {len(flip.cleared)}")
        if ids:
            commitments = self._check_flip(flip, entry.stream_id, _previous(entry))
            _require(
                commitments == (entry.survivors_before_hash, entry.survivors_after_hash),
                f"{_name(entry)} does not commit to this change",
            )
        return ids

    def _check_transition(self, proof: Transition) -> str:
        _require(proof.seq >= 0, "a seq is not negative")
        hashes = (proof.prev_event_hash, proof.before, proof.after)
        _require(all(len(each) == _HASH_BYTES for each in hashes), "a hash has 32 bytes")
        if proof.flip.cleared:
            commitments = self._check_flip(proof.flip, proof.stream_id, proof.prev_event_hash)
        else:
            _count_blocks(proof.flip.universe_size)
            _require(not proof.flip.blocks and not proof.flip.path, "nothing changed, and there are blocks")
            commitments = (proof.before.hex(), proof.before.hex())
        _require(commitments == (proof.before.hex(), proof.after.hex()), "the commitments are not of this change")
        known = self._anchors.universes.get(proof.stream_id)
        size = proof.flip.universe_size
        _require(known is None or known.size == size, f"`{proof.stream_id}` has a universe of another size")
        if known is None:
            self.rests_on.append(f"the universe of `{proof.stream_id}` has {size} ids")
        bits = ", ".join(map(str, proof.flip.cleared)) or "none"
        statement = f"event {proof.seq} of `{proof.stream_id}` cleared exactly these bits: {bits}"
        if proof.recorded is None:
            self.rests_on.append(
                f"entry {proof.seq} of `{proof.stream_id}` follows {proof.prev_event_hash.hex()} and commits to"
                f" {proof.before.hex()} before and {proof.after.hex()} after"
            )
            return statement
        entry = self._check_event(self._check_stream(proof.recorded.stream), proof.recorded.event)
        place = (entry.stream_id, entry.seq, entry.prev_event_hash)
        _require(
            place == (proof.stream_id, proof.seq, proof.prev_event_hash.hex())
            and (entry.survivors_before_hash, entry.survivors_after_hash) == commitments,
            f"{_name(entry)} is not the one of this change",
        )
        ids = self._check_delta(entry, proof.flip)
        return f"{statement}, which are {', '.join(f'`{each}`' for each in ids) or 'none'}"

    def _check_decision(self, proof: Decision) -> str:
        entry = self._check_event(self._check_stream(proof.stream), proof.event)
        _require(is_permission(entry), f"{_name(entry)} ({entry.verb}) allows nothing")
        readings = readings_of(entry)
        _require(len(readings) == len(proof.readings), "the evidence is not that of the recorded readings")
        notes = [self._check_reading(reading, found) for reading, found in zip(readings, proof.readings, strict=True)]
        observed = " (observed, not enforced)" if entry.outcome["decision"].get("observed") is True else ""
        return "; ".join([f"{_name(entry)} ({entry.verb}, {entry.ts}) was allowed{observed}", *notes])

    def _check_reading(self, reading: Mapping[str, Any], evidence: ReadingEvidence | None) -> str:
        session_id = reading.get("session_id")
        if evidence is None:
            _require(reading.get("found") is False, f"there is no evidence of session `{session_id}`")
            self.rests_on.append(f"there was no session `{session_id}`, as the entry says")
            return f"session `{session_id}` was recorded as not found"
        stream = self._check_stream(evidence.stream)
        entry = self._check_event(stream, evidence.event)
        pinned = (reading.get("session_id"), reading.get("found"), reading.get("head_seq"))
        _require(pinned == (stream.id, True, entry.seq), f"the reading is not of {_name(entry)}")
        event_hash = hash_entry(evidence.event.entry.encode()).hex()
        _require(
            (reading.get("head_event_id"), reading.get("head_event_hash")) == (entry.event_id, event_hash),
            f"the reading pins another event than {_name(entry)}",
        )
        positions = self._check_bitmap(entry, evidence)
        _require(reading.get("n_survivors") == len(positions), "the reading counts other survivors than the log")
        self._check_universe(stream, evidence.universe)
        self._check_listed(reading.get("survivors"), evidence, positions)
        ended = entry.verb == "REQUEST_TERMINATION" and not is_refusal(entry)
        _require(reading.get("terminated") is ended, f"the reading is wrong about the end of `{stream.id}`")
        said = {name: reading.get(name) for name in ("active_obligation_id", "concluded")}
        # What follows from entries other than the pinned one, and is written only where it was asked for.
        said |= {name: reading[name] for name in ("survivor_attributes", "independent", "agents") if name in reading}
        self.rests_on.append(f"of `{stream.id}`, the reading says truly: {canonical.encode(said).decode()}")
        return f"on session `{stream.id}` after event {entry.seq}, with {len(positions)} survivors"

    def _check_bitmap(self, entry: Entry, evidence: ReadingEvidence) -> list[int]:
        """The places of all survivors that an entry commits to."""
        size = evidence.universe.size
        _require(0 < size <= _MAX_BITMAP_BITS, "the universe of a reading is too large")
        length = -(-size // 8)
        inflate = zlib.decompressobj()
        try:
            bitmap = inflate.decompress(evidence.bitmap, length + 1)
        except zlib.error as exc:
            raise InvalidProof(f"the bitmap cannot be decompressed: {exc}") from exc
        _require(len(bitmap) == length and inflate.eof and not inflate.unused_data, "the bitmap has another length")
        _require(not bitmap[-1] >> ((size - 1) % 8 + 1), "the bitmap has bits beyond the universe")
        blocks = (bitmap[start : start + BLOCK_BYTES] for start in range(0, length, BLOCK_BYTES))
        self._check_commitment(entry, root_of_hashes(leaf_hash(block.ljust(BLOCK_BYTES, b"\0")) for block in blocks))
        return [8 * place + bit for place, byte in enumerate(bitmap) if byte for bit in range(8) if byte >> bit & 1]

    def _check_listed(self, listed: Any, evidence: ReadingEvidence, positions: list[int]) -> None:
        """Hold the ids that a reading lists against the bits."""
        if not listed:
            _require(not evidence.universe_path, "there is a path of survivors that the reading does not list")
            return
        _require(isinstance(listed, list) and len(listed) == len(positions), "the reading lists other survivors")
        leaves = {place: leaf_hash(str(each).encode()) for place, each in zip(positions, listed, strict=True)}
        _require(
            _root_from(leaves, evidence.universe.size, evidence.universe_path) == evidence.universe.root,
            "the reading lists other survivors",
        )


def _previous(entry: Entry) -> bytes:
    try:
        return bytes.fromhex(entry.prev_event_hash)
    except ValueError as exc:
        raise InvalidProof(f"{_name(entry)} has no link") from exc


def _name(entry: Entry) -> str:
    return f"event {entry.seq} of `{entry.stream_id}`"
