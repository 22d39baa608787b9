"""RFC 6962 Merkle hashing: leaves and inner nodes are told apart by a prefix, so no leaf can pose as a node."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

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


def levels_of(leaf_hashes: list[bytes]) -> list[list[bytes]]:
    """Every level of the tree over `leaf_hashes`, leaves first. A last node without a sibling is promoted as it is."""
    levels = [leaf_hashes]
    while len(levels[-1]) > 1:
        below = levels[-1]
        paired = [node_hash(below[i], below[i + 1]) for i in range(0, len(below) - 1, 2)]
        if len(below) % 2:
            paired.append(below[-1])
        levels.append(paired)
    return levels


def replace_leaves(levels: list[list[bytes]], changed: dict[int, bytes]) -> None:
    """Replace some leaf hashes and bring the path from each to the root up to date: O(changed x depth) hashes."""
    below, digest_of = levels[0], sha256
    for position, digest in changed.items():
        below[position] = digest
    touched = set(changed)
    for above in levels[1:]:
        touched = {position >> 1 for position in touched}
        if len(below) & 1 and len(above) - 1 in touched:  # the last node has no sibling: it is promoted as it is
            touched.discard(len(above) - 1)
            above[-1] = below[-1]
            lonely = True
        else:
            lonely = False
        for position in touched:
            left = position + position
            above[position] = digest_of(b"\x01" + below[left] + below[left + 1]).digest()
        if lonely:
            touched.add(len(above) - 1)
        below = above
