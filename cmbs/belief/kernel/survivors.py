"""The survivor set as a bitmap over a fixed, sorted universe, and its commitment.

The universe is fixed when a session is declared, so a survivor set is one bit per hypothesis. The *survivor root* is a
Merkle tree over blocks of 1024 of those bits: eliminating k of n ids costs O(k log n) hashes, however large n is.
Both types are immutable: an elimination makes a new set, which shares the blocks that did not change with the old one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain, compress, islice

from cmbs.ledger import merkle
from cmbs.messages import SortedIds

BLOCK_BITS = 1024
BLOCK_BYTES = BLOCK_BITS // 8

_SUBTREE_LEVEL = 10
_ASCII_BITS = bytes.maketrans(b"01", b"\x00\x01")
_DOMAIN = b"cmbs/survivors/v1"
_FRAMED_DOMAIN = len(_DOMAIN).to_bytes(4, "big") + _DOMAIN
_HASH_LENGTH = (32).to_bytes(4, "big")


class Universe:
    """The hypotheses of a session: sorted by code point, without repeats, fixed for good."""

    __slots__ = ("_positions", "_subtrees", "ids", "text_bytes")

    def __init__(self, sorted_ids: Sequence[str]) -> None:
        """`sorted_ids` must be sorted and single; `Universe.of` takes them as they come."""
        self.ids: tuple[str, ...] = tuple(sorted_ids)
        self._positions = dict(zip(self.ids, range(len(self.ids)), strict=True))
        # The universe tree from the level of 1024 ids on, once it is asked for: the ids of a million take a second.
        self._subtrees: merkle.Tree | None = None
        text = "".join(self.ids)
        # About what the characters of all ids take in memory.
        self.text_bytes = len(text) if text.isascii() else 2 * len(text)

    @classmethod
    def of(cls, hypothesis_ids: Iterable[str]) -> Universe:
        """A universe of ids in any order."""
        return cls(sorted(set(hypothesis_ids)))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, hypothesis_id: object) -> bool:
        return hypothesis_id in self._positions

    def position(self, hypothesis_id: str) -> int:
        """Which bit stands for an id; KeyError where the universe does not hold it."""
        return self._positions[hypothesis_id]

    def compute_root(self) -> bytes:
        """The universe root. It hashes every id, which at a million takes about a second."""
        return self._upper_tree().root

    def path(self, positions: Iterable[int]) -> list[bytes]:
        """What proves which ids are at these places under the universe root. The first one costs `compute_root`."""
        return merkle.path_of(len(self.ids), self._node_at, positions)

    def _node_at(self, level: int, position: int) -> bytes:
        if level >= _SUBTREE_LEVEL:
            return self._upper_tree().levels[level - _SUBTREE_LEVEL][position]
        return self._hash_ids(position << level, (position + 1) << level)

    def _upper_tree(self) -> merkle.Tree:
        if self._subtrees is None:
            step = 1 << _SUBTREE_LEVEL
            starts = range(0, len(self.ids), step)
            self._subtrees = merkle.Tree.over(self._hash_ids(start, start + step) for start in starts)
        return self._subtrees

    def _hash_ids(self, first: int, end: int) -> bytes:
        return merkle.root_of(map(str.encode, self.ids[first:end]))


class Survivors(SortedIds):
    """An immutable set of survivors; iterates in sorted order."""

    __slots__ = ("_blocks", "_count", "_tree", "universe")

    def __init__(self, universe: Universe, blocks: tuple[bytes, ...], tree: merkle.Tree, count: int) -> None:
        """`tree` is over `blocks`, which have `count` bits set; `all_of` and `from_bitmap` see to that."""
        self.universe = universe
        self._blocks = blocks
        self._tree = tree
        self._count = count

    @classmethod
    def all_of(cls, universe: Universe) -> Survivors:
        """Everything survives."""
        whole, rest = divmod(len(universe), 8)
        return cls.from_bitmap(universe, b"\xff" * whole + (bytes([(1 << rest) - 1]) if rest else b""))

    @classmethod
    def from_bitmap(cls, universe: Universe, bitmap: bytes) -> Survivors:
        """The inverse of `bitmap`."""
        expected = -(-len(universe) // 8)
        if len(bitmap) != expected:
            raise ValueError(f"a bitmap of {len(universe)} hypotheses has {expected} bytes, got {len(bitmap)}")
        if bitmap and bitmap[-1] >> ((len(universe) - 1) % 8 + 1):
            raise ValueError("bits beyond the universe are set")
        blocks = tuple(
            [
                bitmap[start : start + BLOCK_BYTES].ljust(BLOCK_BYTES, b"\0")
                for start in range(0, len(bitmap), BLOCK_BYTES)
            ]
        )
        count = int.from_bytes(bitmap, "little").bit_count()
        return cls(universe, blocks, merkle.Tree.over(map(merkle.leaf_hash, blocks)), count)

    def bitmap(self) -> bytes:
        """One bit per hypothesis in sorted order, least significant first, padded to a whole byte."""
        return b"".join(self._blocks)[: -(-len(self.universe) // 8)]

    @property
    def root(self) -> bytes:
        """The survivor root."""
        return self._tree.root

    def blocks(self, numbers: Iterable[int]) -> bytes:
        """The blocks of 1024 bits with these numbers, joined."""
        return b"".join(self._blocks[number] for number in numbers)

    def path(self, numbers: Iterable[int]) -> list[bytes]:
        """What proves that these blocks are under the survivor root."""
        return self._tree.path(numbers)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, hypothesis_id: object) -> bool:
        if not isinstance(hypothesis_id, str) or hypothesis_id not in self.universe:
            return False
        number, bit = divmod(self.universe.position(hypothesis_id), BLOCK_BITS)
        return self._blocks[number][bit >> 3] >> (bit & 7) & 1 == 1

    def __iter__(self) -> Iterator[str]:
        return self._iterate_from(0)

    def page(self, after: str | None, limit: int) -> list[str]:
        """At most `limit` survivors that sort after `after`, without touching the others."""
        return list(islice(self.iterate_after(after), limit))

    def iterate_after(self, after: str | None) -> Iterator[str]:
        """The survivors that sort after `after`, or all."""
        return self._iterate_from(0 if after is None else bisect_right(self.universe.ids, after))

    def eliminate(self, hypothesis_ids: Collection[str]) -> Survivors:
        """The set less these ids, each given once, all of which it holds."""
        return self._flip(hypothesis_ids, self._count - len(hypothesis_ids))

    def restore(self, hypothesis_ids: Collection[str]) -> Survivors:
        """The set and these ids, each given once, none of which it holds: how it was before they were eliminated."""
        return self._flip(hypothesis_ids, self._count + len(hypothesis_ids))

    def _flip(self, hypothesis_ids: Iterable[str], count: int) -> Survivors:
        changed: dict[int, bytearray] = {}
        for hypothesis_id in hypothesis_ids:
            number, bit = divmod(self.universe.position(hypothesis_id), BLOCK_BITS)
            if number not in changed:
                changed[number] = bytearray(self._blocks[number])
            changed[number][bit >> 3] ^= 1 << (bit & 7)
        blocks = list(self._blocks)
        for number, block in changed.items():
            blocks[number] = bytes(block)
        tree = self._tree.replace({number: merkle.leaf_hash(blocks[number]) for number in changed})
        return Survivors(self.universe, tuple(blocks), tree, count)

    def _iterate_from(self, first: int) -> Iterator[str]:
        """The survivors from this position on, block by block: a block is unpacked when the reader comes to it."""

        def blocks() -> Iterator[Iterator[str]]:
            for number in range(first // BLOCK_BITS, len(self._blocks)):
                # One byte for each bit, least significant first.
                bits = format(int.from_bytes(self._blocks[number], "little"), f"0{BLOCK_BITS}b").encode()[::-1]
                start = max(first, number * BLOCK_BITS)
                ids = self.universe.ids[start : (number + 1) * BLOCK_BITS]
                yield compress(ids, bits.translate(_ASCII_BITS)[start - number * BLOCK_BITS :])

        return chain.from_iterable(blocks())


def commitment(session_id: str, prev_event_hash: bytes, root: bytes) -> str:
    """What `survivors_before_hash` and `survivors_after_hash` hold: the set, the session and the place in its log.

    Each part is framed by its length; joined without frames, different parts can give the same bytes.
    """
    session = session_id.encode()
    framed_session = len(session).to_bytes(4, "big") + session
    return sha256(_FRAMED_DOMAIN + framed_session + _HASH_LENGTH + prev_event_hash + _HASH_LENGTH + root).hexdigest()
