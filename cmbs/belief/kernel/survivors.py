"""The survivor set as a bitmap over a fixed, sorted universe, and its commitment.

The universe is fixed when a session is declared, so a survivor set is one bit per hypothesis. The *survivor root* is a
Merkle tree over blocks of 1024 of those bits: eliminating k of n ids costs O(k log n) hashes, however large n is.

Both types are immutable to their holders. Inside, sets that come of one another share one bitmap and one tree, which
stand as the newest has them; an older one finds what was eliminated since, and makes a bitmap of its own when it is
read. So an elimination touches the bits that it clears and no others. Threads may read while one of them eliminates:
who eliminates says so first and then clears the bits, and who reads looks at the bits first and then at what was said.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import chain, compress
from typing import TypeAlias

from cmbs.ledger import merkle
from cmbs.messages import SortedIds

BLOCK_BITS = 1024
BLOCK_BYTES = BLOCK_BITS // 8
# Where more than one block in so many changes, building the tree anew is cheaper than walking each path to the root.
_REBUILD_SHARE = 4

# How many bytes are unpacked at a time: what a page or an iteration does not come to stays as it is.
_STRETCH = 1024
# Up to this many ids, a set keeps its sorted list once it was asked for it.
_SMALL = 4096
# Up to this many fewer, its successor's list is made from its own.
_FEW = 16
_KEEP = tuple(~(1 << bit) & 0xFF for bit in range(8))
_ASCII_BITS = bytes.maketrans(b"01", b"\x00\x01")
_DOMAIN = b"cmbs/survivors/v1"
_PREFIX = len(_DOMAIN).to_bytes(4, "big") + _DOMAIN
_HASH_LENGTH = (32).to_bytes(4, "big")


class Universe:
    """The hypotheses of a session: sorted by code point, without repeats, fixed for good."""

    __slots__ = ("_position", "_root", "ids", "position")

    def __init__(self, sorted_ids: Sequence[str]) -> None:
        """`sorted_ids` must be sorted and single; `Universe.of` takes them as they come."""
        self.ids: tuple[str, ...] = tuple(sorted_ids)
        self._position = dict(zip(self.ids, range(len(self.ids)), strict=True))
        # Which bit stands for an id; None where the universe does not hold it.
        self.position: Callable[[str], int | None] = self._position.get
        self._root: bytes | None = None

    @property
    def root(self) -> bytes:
        """The universe root. Made when it is asked for: a session that is only continued never asks."""
        if self._root is None:
            self._root = merkle.root_of(hypothesis_id.encode() for hypothesis_id in self.ids)
        return self._root

    @classmethod
    def of(cls, hypothesis_ids: Iterable[str]) -> Universe:
        """A universe of ids in any order."""
        return cls(sorted(set(hypothesis_ids)))

    def __len__(self) -> int:
        return len(self.ids)

    def positions(self, hypothesis_ids: Iterable[str]) -> tuple[int, ...]:
        """The bits of ids that are all in the universe; KeyError otherwise."""
        position = self._position
        return tuple([position[hypothesis_id] for hypothesis_id in hypothesis_ids])


# What happened to a set since it was made: nothing, or one elimination and what happened to the set that came of it.
# Not that set itself: whoever holds an old one holds no later ones.
_Since: TypeAlias = "list[tuple[tuple[int, ...], _Since]]"
_LONG_SINCE: _Since = [((), [])]


class Survivors(SortedIds):
    """An immutable set of survivors; iterates in sorted order."""

    __slots__ = ("_bits", "_count", "_ids", "_own", "_root", "_since", "_tree", "universe")

    def __init__(self, universe: Universe, bits: bytearray, count: int) -> None:
        """`bits`, in whole blocks, belong to the set and those that will come of it."""
        self.universe = universe
        self._bits = bits
        self._count = count
        # While nothing happened since, the bits stand as this set has them; afterwards it makes its own, when it must.
        self._since: _Since = []
        self._own: bytes | None = None
        # The tree over the bits is the newest set's alone; the others keep only their root.
        self._tree: merkle.Tree | None = None
        self._root: bytes | None = None
        self._ids: tuple[str, ...] | None = None

    @classmethod
    def all_of(cls, universe: Universe) -> Survivors:
        """Everything survives."""
        whole, rest = divmod(len(universe), 8)
        bitmap = b"\xff" * whole + (bytes([(1 << rest) - 1]) if rest else b"")
        return cls(universe, _in_blocks(bitmap), len(universe))

    @classmethod
    def from_bitmap(cls, universe: Universe, bitmap: bytes) -> Survivors:
        """The inverse of `bitmap`."""
        expected = -(-len(universe) // 8)
        if len(bitmap) != expected:
            raise ValueError(f"a bitmap of {len(universe)} hypotheses has {expected} bytes, got {len(bitmap)}")
        if bitmap and bitmap[-1] >> ((len(universe) - 1) % 8 + 1):
            raise ValueError("bits beyond the universe are set")
        return cls(universe, _in_blocks(bitmap), int.from_bytes(bitmap, "little").bit_count())

    def bitmap(self) -> bytes:
        """One bit per hypothesis in sorted order, least significant first, padded to a whole byte."""
        return self._kept()[: -(-len(self.universe) // 8)]

    @property
    def root(self) -> bytes:
        """The survivor root."""
        if self._root is None:
            if 0 < len(self.universe.ids) <= BLOCK_BITS:  # a tree of one leaf is its hash
                root = merkle.leaf_hash(self._bits)
                self._root = merkle.leaf_hash(self._kept()) if self._since else root
            else:
                self._root = self._grown().root
        return self._root

    def __len__(self) -> int:
        return self._count

    def __contains__(self, hypothesis_id: object) -> bool:
        position = self.universe.position(hypothesis_id) if isinstance(hypothesis_id, str) else None
        return position is not None and self.holds(position)

    def holds(self, position: int) -> bool:
        """Whether the hypothesis at this position survives."""
        byte = self._bits[position >> 3]
        if self._since:
            byte = self._kept()[position >> 3]
        return byte >> (position & 7) & 1 == 1

    def among(self, hypothesis_ids: Sequence[str]) -> tuple[list[str], list[int], list[str]]:
        """Of these ids, the ones that survive and their positions, and the ones that the universe does not hold."""
        bits: bytes | bytearray = self._kept() if self._since else self._bits
        alive: list[str] = []
        positions: list[int] = []
        unknown: list[str] = []
        # All look-ups in one go: in a large universe each waits for memory, and they wait side by side.
        found = list(map(self.universe.position, hypothesis_ids))
        for hypothesis_id, position in zip(hypothesis_ids, found):  # noqa: B905 - as many, and this is an inner loop
            if position is None:
                unknown.append(hypothesis_id)
            elif bits[position >> 3] >> (position & 7) & 1:
                alive.append(hypothesis_id)
                positions.append(position)
        if self._since and bits is self._bits:  # somebody eliminated while we looked
            return self.among(hypothesis_ids)
        return alive, positions, unknown

    def __iter__(self) -> Iterator[str]:
        ids = self.universe.ids
        return chain.from_iterable(
            compress(ids[start << 3 : (start + _STRETCH) << 3], _unpacked(self._part(start)))
            for start in range(0, len(self._bits), _STRETCH)
        )

    def in_order(self) -> tuple[str, ...]:
        """The ids, sorted; a small set remembers them, since events that change nothing are told the same again."""
        if self._ids is not None:
            return self._ids
        ids = tuple(iter(self))
        if len(ids) <= _SMALL:
            self._ids = ids
        return ids

    def page(self, after: str | None, limit: int) -> list[str]:
        """At most `limit` survivors that sort after `after`, without touching the others."""
        ids = self.universe.ids
        first = 0 if after is None else bisect_right(ids, after)
        found: list[str] = []
        for start in range(first >> 3, len(self._bits), _STRETCH):
            skipped = max(0, first - (start << 3))
            bits = _unpacked(self._part(start))[skipped:]
            found.extend(compress(ids[(start << 3) + skipped : (start + _STRETCH) << 3], bits))
            if len(found) >= limit:
                break
        return found[:limit]

    def without(self, positions: Sequence[int]) -> Survivors:
        """The set less these positions, all of which it holds. One thread at a time may ask; others may read."""
        universe, gone = self.universe, tuple(positions)
        count = self._count - len(gone)
        tree: merkle.Tree | None = None
        if self._since:  # a decision on this set came to nothing: another line begins
            bits = bytearray(self._kept())
            fewer: Survivors = Survivors(universe, bits, count)
        else:
            bits = self._bits
            fewer = Survivors(universe, bits, count)
            if len(universe.ids) > BLOCK_BITS:
                self._root, tree, self._tree = self.root, self._grown(), None
            self._since.append((gone, fewer._since))
        last, touched = -1, []
        for position in gone:
            bits[position >> 3] &= _KEEP[position & 7]
            number = position >> 10
            if number != last:
                last = number
                touched.append(number)
        if tree is not None and len(touched) * _REBUILD_SHARE <= len(tree.leaves) + _REBUILD_SHARE:
            leaves, after_leaf = tree.leaves, merkle.AFTER_LEAF
            for number in touched:
                start = number * BLOCK_BYTES
                leaf = after_leaf.copy()  # `leaf_hash`, written out: this is an inner loop
                leaf.update(bits[start : start + BLOCK_BYTES])
                leaves[number] = leaf.digest()
            tree.rehash(touched)
            fewer._tree = tree
        if self._ids is not None and len(gone) <= _FEW:
            left = list(self._ids)
            for position in gone:
                del left[bisect_left(left, universe.ids[position])]
            fewer._ids = tuple(left)
        return fewer

    def restored(self, positions: Iterable[int]) -> Survivors:
        """The set with these positions alive again: how it was before they were eliminated."""
        bits, alive = bytearray(self._kept()), tuple(positions)
        _revive(bits, alive)
        return Survivors(self.universe, bits, self._count + len(alive))

    def _part(self, start: int) -> bytes | bytearray:
        """A stretch of the bits, beginning at this byte."""
        part = self._bits[start : start + _STRETCH]
        return self._kept()[start : start + _STRETCH] if self._since else part

    def _kept(self) -> bytes:
        """All bits, as nobody will change them."""
        since = self._since  # before `_own`, which is there whenever the real history is not
        if self._own is not None:
            return self._own
        bits = bytes(self._bits)
        if not since:
            return bits
        restored = bytearray(bits)
        while since:
            gone, since = since[0]
            _revive(restored, gone)
        self._own = bytes(restored)
        self._since = _LONG_SINCE
        return self._own

    def _grown(self) -> merkle.Tree:
        if self._tree is None:
            bits = self._kept()
            self._tree = merkle.Tree(
                [merkle.leaf_hash(bits[start : start + BLOCK_BYTES]) for start in range(0, len(bits), BLOCK_BYTES)]
            )
        return self._tree


def commitment(session_id: str, prev_event_hash: bytes, root: bytes) -> str:
    """What `survivors_before_hash` and `survivors_after_hash` hold: the set, the session and the place in its log.

    Each part is framed by its length; joined without frames, different parts can give the same bytes.
    """
    return sha256(_framed(session_id) + prev_event_hash + _HASH_LENGTH + root).hexdigest()


@lru_cache(maxsize=1024)
def _framed(session_id: str) -> bytes:
    """All that comes before the previous hash: the same for every event of a session."""
    session = session_id.encode()
    return _PREFIX + len(session).to_bytes(4, "big") + session + _HASH_LENGTH


def _revive(bits: bytearray, positions: tuple[int, ...]) -> None:
    for position in positions:
        bits[position >> 3] |= 1 << (position & 7)


def _in_blocks(bitmap: bytes) -> bytearray:
    return bytearray(bitmap).ljust(-(-len(bitmap) // BLOCK_BYTES) * BLOCK_BYTES, b"\0")


def _unpacked(bits: bytes | bytearray) -> bytes:
    """One byte for each bit, least significant first."""
    return format(int.from_bytes(bits, "little"), f"0{len(bits) * 8}b").encode()[::-1].translate(_ASCII_BITS)
