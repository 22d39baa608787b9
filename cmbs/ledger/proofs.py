"""Inclusion and consistency in RFC 6962 trees (RFC 9162, 2.1.3 and 2.1.4): paths, and their verification.

All work on hashes of leaves. In the tree of a stream these are the event hashes of its entries, in their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from cmbs.ledger.event_tree import BLOCK_LEVELS, EventTree, split_hashes
from cmbs.ledger.merkle import EMPTY_ROOT, node_hash

# No tree here has more leaves than a count that JSON holds exactly.
MAX_SIZE = 2**53 - 1
_HASH_BYTES = 32


class TreePaths(ABC):
    """Roots and paths of an RFC 6962 tree, from the hashes of its perfect subtrees."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many leaves there are."""

    @abstractmethod
    def node(self, level: int, position: int) -> bytes:
        """The hash of the perfect subtree of 2 ** `level` leaves at this position, counted from the left."""

    def root_at(self, size: int) -> bytes:
        """The root over the first `size` leaves; IndexError where there are not so many."""
        if not 0 <= size <= self.size:
            raise IndexError(f"the tree has {self.size} leaves, not {size}")
        return self._subtree(0, size) if size else EMPTY_ROOT

    def inclusion_path(self, index: int, size: int) -> list[bytes]:
        """What proves that a leaf is at `index` of the tree of `size` leaves (RFC 6962, 2.1.1)."""
        if not 0 <= index < size <= self.size:
            raise IndexError(f"no leaf {index} in a tree of {size} leaves, of {self.size} known")
        path: list[bytes] = []
        start, end = 0, size
        while end - start > 1:
            middle = start + _split(end - start)
            if index < middle:
                path.append(self._subtree(middle, end))
                end = middle
            else:
                path.append(self._subtree(start, middle))
                start = middle
        return path[::-1]

    def consistency_path(self, old_size: int, size: int) -> list[bytes]:
        """What proves that the tree of `size` leaves continues the one of `old_size` (RFC 6962, 2.1.2)."""
        if not 0 <= old_size <= size <= self.size:
            raise IndexError(f"no proof from {old_size} to {size} leaves, of {self.size} known")
        if old_size in (0, size):
            return []
        path: list[bytes] = []
        start, end = 0, size
        while end != old_size:
            middle = start + _split(end - start)
            if old_size <= middle:
                path.append(self._subtree(middle, end))
                end = middle
            else:
                path.append(self._subtree(start, middle))
                start = middle
        if start:
            path.append(self._subtree(start, end))
        return path[::-1]

    def _subtree(self, start: int, end: int) -> bytes:
        """The root over leaves that a split of RFC 6962 gives: `start` is a multiple of the largest power within."""
        peaks = []
        while start < end:
            level = (end - start).bit_length() - 1
            peaks.append(self.node(level, start >> level))
            start += 1 << level
        digest = peaks.pop()
        while peaks:
            digest = node_hash(peaks.pop(), digest)
        return digest


class LogTree(TreePaths):
    """An append-only tree in memory. It keeps the hash of every perfect subtree, 64 bytes a leaf."""

    def __init__(self, leaf_hashes: Iterable[bytes] = ()) -> None:
        # Of level k, the hashes of the perfect subtrees of 2 ** k leaves, from left to right.
        self._levels: list[bytearray] = [bytearray()]
        for leaf_hash in leaf_hashes:
            self.append(leaf_hash)

    @property
    def size(self) -> int:
        """How many leaves there are."""
        return len(self._levels[0]) // _HASH_BYTES

    def node(self, level: int, position: int) -> bytes:
        """The hash of a perfect subtree."""
        return bytes(self._levels[level][position * _HASH_BYTES : (position + 1) * _HASH_BYTES])

    def append(self, leaf_hash: bytes) -> None:
        """Add a leaf."""
        digest = leaf_hash
        for level, nodes in enumerate(self._levels):
            nodes.extend(digest)
            count = len(nodes) // _HASH_BYTES
            if count & 1:
                return
            digest = node_hash(self.node(level, count - 2), digest)
        self._levels.append(bytearray(digest))


class BlockTree(TreePaths):
    """The tree of a stream. Blocks that a path goes through are read: `read_block` gives their event hashes."""

    def __init__(self, events: EventTree, read_block: Callable[[int], Iterable[bytes]]) -> None:
        self._size = events.size
        self._read_block = read_block
        self._upper = LogTree(split_hashes(events.blocks))
        self._lower = {self._upper.size: LogTree(split_hashes(events.tail))}

    @property
    def size(self) -> int:
        """How many events there are."""
        return self._size

    def node(self, level: int, position: int) -> bytes:
        """The hash of a perfect subtree."""
        if level >= BLOCK_LEVELS:
            return self._upper.node(level - BLOCK_LEVELS, position)
        number, within = divmod(position, 1 << (BLOCK_LEVELS - level))
        if number not in self._lower:
            self._lower[number] = LogTree(self._read_block(number))
        return self._lower[number].node(level, within)


def _split(size: int) -> int:
    """The largest power of two below a size."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_path(leaf_hashes: Sequence[bytes], index: int) -> list[bytes]:
    """What proves that a leaf is at `index` of the tree; IndexError where it has none there."""
    return LogTree(leaf_hashes).inclusion_path(index, len(leaf_hashes))


def consistency_path(leaf_hashes: Sequence[bytes], old_size: int) -> list[bytes]:
    """What proves that the tree began with the tree of `old_size` leaves; IndexError where it is not so large."""
    return LogTree(leaf_hashes).consistency_path(old_size, len(leaf_hashes))


def verify_inclusion(leaf_hash: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether the path proves that the tree of this size and root has this leaf at `index`."""
    try:
        return root_from({index: leaf_hash}, size, path) == root
    except ValueError:
        return False


def verify_consistency(old_size: int, old_root: bytes, size: int, root: bytes, path: Sequence[bytes]) -> bool:
    """Whether the path proves that the tree of `size` leaves begins with all leaves of the older one, in place."""
    if not 0 <= old_size <= size <= MAX_SIZE:
        return False
    if old_size in (0, size):
        return not path and old_root == (EMPTY_ROOT if old_size == 0 else root)
    # Where the older tree is one perfect subtree, its root is the node that the path begins at.
    perfect = old_size & (old_size - 1) == 0
    nodes = [old_root, *path] if perfect else list(path)
    if not nodes:
        return False
    level = (old_size & -old_size).bit_length() - 1
    position, last = (old_size - 1) >> level, (size - 1) >> level
    older = newer = nodes[0]
    for beside in nodes[1:]:
        if last == 0:
            return False
        # A node that is the last of its level and has no sibling is promoted as it is.
        while position == last and not position & 1:
            position, last = position >> 1, last >> 1
        if position & 1:
            older, newer = node_hash(beside, older), node_hash(beside, newer)
        else:
            newer = node_hash(newer, beside)
        position, last = position >> 1, last >> 1
    return last == 0 and older == old_root and newer == root


def root_from(leaves: Mapping[int, bytes], size: int, path: Sequence[bytes]) -> bytes:
    """The root of a tree of `size` leaves that has these, by index, and the rest as the path says.

    The path has the missing siblings, level by level from the leaves up, in each from left to right; with one leaf it
    is the inclusion path of RFC 9162. ValueError where a path of this length is not of these leaves.
    """
    if not leaves or size > MAX_SIZE or not all(0 <= index < size for index in leaves):
        raise ValueError(f"a tree of {size} leaves has none at these places")
    rest = iter(path)
    nodes, width = dict(leaves), size
    try:
        while width > 1:
            above: dict[int, bytes] = {}
            for position in sorted(nodes):
                if position >> 1 in above:
                    continue
                digest, beside = nodes[position], position ^ 1
                if beside < width:
                    sibling = nodes[beside] if beside in nodes else next(rest)
                    digest = node_hash(sibling, digest) if position & 1 else node_hash(digest, sibling)
                above[position >> 1] = digest
            nodes, width = above, (width + 1) >> 1
    except StopIteration:
        raise ValueError("the path is too short") from None
    if next(rest, None) is not None:
        raise ValueError("the path is too long")
    return nodes[0]
