"""The survivor set as a bitmap over a fixed, sorted universe, and its commitment.

The universe is fixed when a session is declared, so a survivor set is one bit per hypothesis. The *survivor root* is a
Merkle tree over blocks of 1024 of those bits: eliminating k of n ids costs O(k log n) hashes, however large n is.
Both types are immutable to their holders; sets share the pages of bits that they have in common.
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
# A page is what one elimination copies: small enough to be cheap, large enough that a million bits are few pages.
_PAGE_BLOCKS = 8
_PAGE_BITS = _PAGE_BLOCKS * BLOCK_BITS
_PAGE_BYTES = _PAGE_BLOCKS * BLOCK_BYTES
# Nobody changes a page that a set holds; one that was copied to clear a bit of it is not copied again to say so.
_Page: TypeAlias = bytes | bytearray
# Where more than one block in so many changes, building the tree anew is cheaper than walking each path to the root.
_REBUILD_SHARE = 4

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


class Survivors(SortedIds):
    """An immutable set of survivors; iterates in sorted order."""

    __slots__ = ("_count", "_ids", "_levels", "_pages", "_root", "universe")

    def __init__(self, universe: Universe, pages: list[_Page], count: int) -> None:
        self.universe = universe
        self._pages = pages
        self._count = count
        # The tree is scratch space that the newest set of a line owns; the others keep only their root.
        self._levels: list[list[bytes]] | None = None
        self._root: bytes | None = None
        self._ids: tuple[str, ...] | None = None

    @classmethod
    def all_of(cls, universe: Universe) -> Survivors:
        """Everything survives."""
        whole, rest = divmod(len(universe), 8)
        bitmap = b"\xff" * whole + (bytes([(1 << rest) - 1]) if rest else b"")
        return cls(universe, _paged(bitmap), len(universe))

    @classmethod
    def from_bitmap(cls, universe: Universe, bitmap: bytes) -> Survivors:
        """The inverse of `bitmap`."""
        expected = -(-len(universe) // 8)
        if len(bitmap) != expected:
            raise ValueError(f"a bitmap of {len(universe)} hypotheses has {expected} bytes, got {len(bitmap)}")
        if bitmap and bitmap[-1] >> ((len(universe) - 1) % 8 + 1):
            raise ValueError("bits beyond the universe are set")
        return cls(universe, _paged(bitmap), int.from_bytes(bitmap, "little").bit_count())

    def bitmap(self) -> bytes:
        """One bit per hypothesis in sorted order, least significant first, padded to a whole byte."""
        return b"".join(self._pages)[: -(-len(self.universe) // 8)]

    @property
    def root(self) -> bytes:
        """The survivor root."""
        if self._root is None:
            if 0 < len(self.universe.ids) <= BLOCK_BITS:  # a tree of one leaf is its hash
                self._root = merkle.leaf_hash(self._pages[0])
            else:
                levels = self._tree()
                self._root = levels[-1][0] if levels[0] else merkle.EMPTY_ROOT
        return self._root

    def __len__(self) -> int:
        return self._count

    def __contains__(self, hypothesis_id: object) -> bool:
        position = self.universe.position(hypothesis_id) if isinstance(hypothesis_id, str) else None
        return position is not None and self.holds(position)

    def holds(self, position: int) -> bool:
        """Whether the hypothesis at this position survives."""
        return self._pages[position >> 13][position >> 3 & 0x3FF] >> (position & 7) & 1 == 1

    def among(self, hypothesis_ids: Sequence[str]) -> tuple[list[str], list[int], list[str]]:
        """Of these ids, the ones that survive and their positions, and the ones that the universe does not hold."""
        pages = self._pages
        alive: list[str] = []
        positions: list[int] = []
        unknown: list[str] = []
        # All look-ups in one go: in a large universe each waits for memory, and they wait side by side.
        found = list(map(self.universe.position, hypothesis_ids))
        for hypothesis_id, position in zip(hypothesis_ids, found):  # noqa: B905 - as many, and this is an inner loop
            if position is None:
                unknown.append(hypothesis_id)
            elif pages[position >> 13][position >> 3 & 0x3FF] >> (position & 7) & 1:  # `holds`, written out
                alive.append(hypothesis_id)
                positions.append(position)
        return alive, positions, unknown

    def __iter__(self) -> Iterator[str]:
        ids = self.universe.ids
        if len(self._pages) == 1:
            return compress(ids, _bits(self._pages[0][: -(-len(ids) // 8)]))
        return chain.from_iterable(
            compress(ids[number << 13 : (number + 1) << 13], _bits(page)) for number, page in enumerate(self._pages)
        )

    def in_order(self) -> tuple[str, ...]:
        """The ids, sorted; a small set remembers them, since events that change nothing are told the same again."""
        if self._ids is not None:
            return self._ids
        ids = tuple(self)
        if len(ids) <= _SMALL:
            self._ids = ids
        return ids

    def page(self, after: str | None, limit: int) -> list[str]:
        """At most `limit` survivors that sort after `after`, without touching the others."""
        ids = self.universe.ids
        start = 0 if after is None else bisect_right(ids, after)
        found: list[str] = []
        for number in range(start >> 13, len(self._pages)):
            first = max(start, number << 13)
            bits = _bits(self._pages[number])[first - (number << 13) :]
            found.extend(compress(ids[first : (number + 1) << 13], bits))
            if len(found) >= limit:
                break
        return found[:limit]

    def without(self, positions: Sequence[int]) -> Survivors:
        """The set less these positions, all of which it holds."""
        universe = self.universe
        fewer: Survivors = Survivors(universe, self._cleared(positions), self._count - len(positions))
        if len(universe.ids) > BLOCK_BITS:
            self._hand_over_tree(fewer, sorted({position >> 10 for position in positions}))
        if self._ids is not None and len(positions) <= _FEW:
            left = list(self._ids)
            for position in positions:
                del left[bisect_left(left, universe.ids[position])]
            fewer._ids = tuple(left)
        return fewer

    def _cleared(self, positions: Sequence[int]) -> list[_Page]:
        pages = self._pages.copy()
        page, last = bytearray(), -1
        for position in positions:
            number = position >> 13
            if number != last:
                last = number
                page = pages[number] = bytearray(pages[number])
            page[position >> 3 & 0x3FF] &= _KEEP[position & 7]
        return pages

    def restored(self, positions: Iterable[int]) -> Survivors:
        """The set with these positions alive again: how it was before they were eliminated."""
        bitmap, count = bytearray(b"".join(self._pages)), self._count
        for position in positions:
            bitmap[position >> 3] |= 1 << (position & 7)
            count += 1
        return Survivors(self.universe, _paged(bytes(bitmap)), count)

    def _hand_over_tree(self, fewer: Survivors, touched: list[int]) -> None:
        """Bring the tree up to date for `fewer` and give it away, unless building it anew is cheaper."""
        root, levels = self.root, self._tree()
        if len(touched) * _REBUILD_SHARE > len(levels[0]) + _REBUILD_SHARE:
            return
        # From here on the tree is no longer ours: whoever asks us for it again, after a failed write, gets a new one.
        self._root, self._levels = root, None
        pages = fewer._pages
        leaves, fresh = levels[0], merkle.AFTER_LEAF.copy
        for number in touched:
            # `leaf_hash` of `_block`, written out: this is an inner loop too.
            start = (number & 7) << 7
            leaf = fresh()
            leaf.update(pages[number >> 3][start : start + BLOCK_BYTES])
            leaves[number] = leaf.digest()
        merkle.rehash(levels, touched)
        fewer._levels = levels

    def _tree(self) -> list[list[bytes]]:
        if self._levels is None:
            blocks = -(-len(self.universe) // BLOCK_BITS)
            self._levels = merkle.levels_of([merkle.leaf_hash(_block(self._pages, number)) for number in range(blocks)])
        return self._levels


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


def _paged(bitmap: bytes) -> list[_Page]:
    padded = bitmap + bytes(-len(bitmap) % BLOCK_BYTES)
    return [padded[start : start + _PAGE_BYTES] for start in range(0, len(padded), _PAGE_BYTES)]


def _block(pages: list[_Page], number: int) -> _Page:
    start = (number % _PAGE_BLOCKS) * BLOCK_BYTES
    return pages[number // _PAGE_BLOCKS][start : start + BLOCK_BYTES]


def _bits(page: _Page) -> bytes:
    """The bits of a page, least significant first, one byte each."""
    return format(int.from_bytes(page, "little"), f"0{len(page) * 8}b").encode()[::-1].translate(_ASCII_BITS)
