"""RFC 6962 Merkle hashing: leaves and inner nodes are told apart by a prefix, so no leaf can pose as a node."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

_LEAF = b"\x00"
_NODE = b"\x01"

EMPTY_ROOT = sha256(b"").digest()
# Hashes that have seen a prefix: to copy one is an eighth faster than to begin a new one.
AFTER_LEAF, _AFTER_NODE = sha256(_LEAF), sha256(_NODE)


def leaf_hash(data: bytes | bytearray) -> bytes:
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
        size, digest = 1, sha256(_LEAF + data).digest()
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


class Tree:
    """A tree that is kept, because its leaves change."""

    __slots__ = ("_steps", "leaves", "root")

    def __init__(self, leaf_hashes: list[bytes]) -> None:
        # Hashes of the leaves; whoever replaces some says so to `rehash`.
        self.leaves = leaf_hashes
        # Each level, the one above it, and the place of a last node without a sibling, which is promoted as it is.
        self._steps: list[tuple[list[bytes], list[bytes], int]] = []
        below = leaf_hashes
        while len(below) > 1:
            above = [node_hash(below[i], below[i + 1]) for i in range(0, len(below) - 1, 2)]
            if len(below) % 2:
                above.append(below[-1])
            self._steps.append((below, above, len(below) - 1 if len(below) % 2 else -1))
            below = above
        self.root = below[0] if below else EMPTY_ROOT

    def rehash(self, touched: list[int]) -> None:
        """Bring the paths to the root up to date for leaves that were replaced; `touched` are their places, ascending.

        O(touched x depth) hashes, and the inner loop of every elimination from a large universe: so `node_hash` is
        written out. Level by level, not path by path: hashes that do not wait for each other overlap.
        """
        after_node, above = _AFTER_NODE, self.leaves
        for below, above, alone in self._steps:
            parents: list[int] = []
            last = -1
            for position in touched:
                parent = position >> 1
                if parent != last:
                    last = parent
                    parents.append(parent)
                    left = parent + parent
                    if left == alone:
                        above[parent] = below[left]
                    else:
                        node = after_node.copy()
                        node.update(below[left])
                        node.update(below[left + 1])
                        above[parent] = node.digest()
            touched = parents
        self.root = above[0]
