"""RFC 6962 Merkle hashing: leaves and inner nodes are told apart by a prefix, so no leaf can pose as a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Root over a stream of leaves, in memory that grows with the logarithm of their number."""
    # One perfect subtree per set bit of the count so far, the largest first: what RFC 6962's split gives.
    peaks: list[tuple[int, bytes]] = []
    for data in leaves:
        size, digest = 1, leaf_hash(data)
        while peaks and peaks[-1][0] == size:
            digest = node_hash(peaks.pop()[1], digest)
            size *= 2
        peaks.append((size, digest))
    if not peaks:
        return EMPTY_ROOT
    digest = peaks.pop()[1]
    while peaks:
        digest = node_hash(peaks.pop()[1], digest)
    return digest


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


def _parent(below: Sequence[bytes], position: int) -> bytes:
    """The node above a pair; a last node without a sibling is promoted as it is."""
    left = 2 * position
    return below[left] if left + 1 == len(below) else node_hash(below[left], below[left + 1])
