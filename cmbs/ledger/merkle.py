"""RFC 6962 Merkle hashing: leaves and inner nodes are told apart by a prefix, so no leaf can pose as a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

_LEAF = b"\x00"
_NODE = b"\x01"

EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """Hash of one leaf."""
    return sha256(_LEAF + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of an inner node."""
    return sha256(_NODE + left + right).digest()


class CompactRange(NamedTuple):
    """The first `size` leaves of a tree as the roots of its perfect subtrees, the largest first.

    All that is needed of these leaves for the root, and for every proof about what follows them.
    """

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def extend(self, leaf_hashes: Iterable[bytes]) -> CompactRange:
        """The range with more leaves on its right."""
        size, peaks = self.size, list(self.peaks)
        for digest in leaf_hashes:
            peaks.append(digest)
            size += 1
            # A perfect subtree is complete for each trailing zero bit of the count.
            for _ in range((size & -size).bit_length() - 1):
                right = peaks.pop()
                peaks[-1] = node_hash(peaks[-1], right)
        return CompactRange(size, tuple(peaks))

    @property
    def root(self) -> bytes:
        """The root over the leaves."""
        if not self.peaks:
            return EMPTY_ROOT
        *others, digest = self.peaks
        for peak in reversed(others):
            digest = node_hash(peak, digest)
        return digest


def root_of_hashes(leaf_hashes: Iterable[bytes]) -> bytes:
    """The root over these hashes of leaves, in memory that grows with the logarithm of their number."""
    return CompactRange().extend(leaf_hashes).root


def root_of(leaves: Iterable[bytes]) -> bytes:
    """The root over a stream of leaves, in memory that grows with the logarithm of their number."""
    return root_of_hashes(map(leaf_hash, leaves))


def path_of(size: int, node_at: Callable[[int, int], bytes], positions: Iterable[int]) -> list[bytes]:
    """The same as `Tree.path`, for a tree too large to hold: `node_at` gives the node at a level and a position in it.

    A level is one of `Tree.levels`: 0 has the leaves.
    """
    path: list[bytes] = []
    known, width, level = set(positions), size, 0
    while width > 1:
        besides = sorted({position ^ 1 for position in known} - known)
        path.extend(node_at(level, beside) for beside in besides if beside < width)
        known, width, level = {position >> 1 for position in known}, (width + 1) >> 1, level + 1
    return path


class Tree(NamedTuple):
    """All hashes of a tree: the leaves first, then level by level up to the root. Immutable."""

    levels: tuple[tuple[bytes, ...], ...]

    @classmethod
    def over(cls, leaf_hashes: Iterable[bytes]) -> Tree:
        """The tree over these hashes of leaves."""
        levels = [tuple(leaf_hashes)]
        while len(levels[-1]) > 1:
            below = levels[-1]
            levels.append(tuple([_parent(below, position) for position in range((len(below) + 1) // 2)]))
        return cls(tuple(levels))

    @property
    def root(self) -> bytes:
        """The root; that of no leaves is the hash of nothing."""
        return self.levels[-1][0] if self.levels[-1] else EMPTY_ROOT

    def replace(self, leaf_hashes: Mapping[int, bytes]) -> Tree:
        """The tree with other hashes at these positions; k of n leaves cost O(k log n) hashes."""
        levels, changes = [], leaf_hashes
        for level in self.levels:
            changed = list(level)
            for position, digest in changes.items():
                changed[position] = digest
            levels.append(tuple(changed))
            changes = {parent: _parent(changed, parent) for parent in {position >> 1 for position in changes}}
        return Tree(tuple(levels))

    def path(self, positions: Iterable[int]) -> list[bytes]:
        """What, together with the leaves at these positions, gives the root: as `proofs.root_from` reads it."""
        return path_of(len(self.levels[0]), lambda level, position: self.levels[level][position], positions)


def _parent(below: Sequence[bytes], position: int) -> bytes:
    """The node above a pair; a last node without a sibling is promoted as it is."""
    left = 2 * position
    return below[left] if left + 1 == len(below) else node_hash(below[left], below[left + 1])
