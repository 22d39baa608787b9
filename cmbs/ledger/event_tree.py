"""The tree over the event hashes of a stream, as the state of the stream keeps it.

A state is covered by the digests in its chain, and so is this tree: any part of the stream can be held against it,
without the rest of the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cmbs.ledger.entry import Head
from cmbs.ledger.merkle import root_of_hashes

# To check one event, the hashes of so many are read. Of each such block, a state keeps one hash.
BLOCK_LEVELS = 6
BLOCK_EVENTS = 1 << BLOCK_LEVELS
_HASH_BYTES = 32
_BLOCK_BYTES = BLOCK_EVENTS * _HASH_BYTES


class EventTree(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """The events of a stream as hashes, joined: `blocks` has the root of each whole block, `tail` the events after it.

    A block is a perfect subtree of the RFC 6962 tree over the event hashes.
    """

    blocks: bytes = b""
    tail: bytes = b""

    @property
    def size(self) -> int:
        """How many events there are."""
        return self.size_in_blocks + len(self.tail) // _HASH_BYTES

    @property
    def size_in_blocks(self) -> int:
        """How many of them are in whole blocks."""
        return len(self.blocks) // _HASH_BYTES * BLOCK_EVENTS

    def append(self, event_hash: bytes) -> EventTree:
        """The tree with one event more."""
        tail = self.tail + event_hash
        if len(tail) < _BLOCK_BYTES:
            return EventTree(self.blocks, tail)
        return EventTree(self.blocks + root_of_hashes(split_hashes(tail)))

    def extend(self, event_hashes: Iterable[bytes]) -> EventTree:
        """The tree with more events."""
        tree = self
        for event_hash in event_hashes:
            tree = tree.append(event_hash)
        return tree

    def holds_block(self, number: int, event_hashes: Sequence[bytes]) -> bool:
        """Whether these are the hashes of the events of a whole block."""
        root = self.blocks[number * _HASH_BYTES : (number + 1) * _HASH_BYTES]
        is_whole = [len(each) for each in event_hashes] == [_HASH_BYTES] * BLOCK_EVENTS
        return is_whole and root_of_hashes(event_hashes) == root

    def is_of(self, head: Head) -> bool:
        """Whether a stream that ends in `head` can have this tree."""
        is_regular = len(self.blocks) % _HASH_BYTES == len(self.tail) % _HASH_BYTES == 0
        return is_regular and len(self.tail) < _BLOCK_BYTES and self.size == head.seq + 1


def split_hashes(joined: bytes) -> list[bytes]:
    """The single hashes."""
    return [joined[start : start + _HASH_BYTES] for start in range(0, len(joined), _HASH_BYTES)]
