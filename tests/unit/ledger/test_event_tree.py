"""The tree over a stream's events, in blocks: the same roots and paths as the tree over single hashes."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.ledger import Head
from cmbs.ledger.event_tree import BLOCK_EVENTS, EventTree, split_hashes
from cmbs.ledger.merkle import EMPTY_ROOT, root_of_hashes
from cmbs.ledger.proofs import BlockTree, LogTree
from tests.support.subtests import for_each

HASHES = [sha256(str(number).encode()).digest() for number in range(4 * BLOCK_EVENTS + 7)]
BOUNDARIES = [*sorted({0, 1, *(BLOCK_EVENTS * n + d for n in (1, 2, 3, 4) for d in (-1, 0, 1))}), len(HASHES)]


def paths_of(size: int, asked: list[int]) -> BlockTree:
    def read_block(number: int) -> list[bytes]:
        asked.append(number)
        return HASHES[number * BLOCK_EVENTS : (number + 1) * BLOCK_EVENTS]

    return BlockTree(EventTree().extend(HASHES[:size]), read_block)


@pytest.mark.req("READ-02")
@for_each("size", BOUNDARIES)
def test_blocks_hold_the_hashes_that_they_were_made_of_and_no_others(size: int) -> None:
    tree = EventTree().extend(HASHES[:size])
    assert (tree.size, tree.size_in_blocks) == (size, size - size % BLOCK_EVENTS)
    assert split_hashes(tree.tail) == HASHES[tree.size_in_blocks : size]
    assert split_hashes(tree.blocks) == [
        root_of_hashes(HASHES[start : start + BLOCK_EVENTS]) for start in range(0, tree.size_in_blocks, BLOCK_EVENTS)
    ]
    for number in range(size // BLOCK_EVENTS):
        block = HASHES[number * BLOCK_EVENTS : (number + 1) * BLOCK_EVENTS]
        assert tree.holds_block(number, block)
        assert not tree.holds_block(number + 1, block)
        assert not tree.holds_block(number, block[:-1])
        assert not tree.holds_block(number, [*block[:-1], bytes(32)])
        assert not tree.holds_block(number, [block[1], block[0], *block[2:]])
        # The same bytes, cut elsewhere.
        assert not tree.holds_block(number, [block[0] + block[1][:1], block[1][1:], *block[2:]])


@given(size=st.sampled_from(BOUNDARIES) | st.integers(1, len(HASHES)), data=st.data())
def test_roots_and_paths_are_those_of_the_tree_over_single_hashes(size: int, data: st.DataObject) -> None:
    asked: list[int] = []
    tree, whole = paths_of(size, asked), LogTree(HASHES[:size])
    assert tree.size == size
    part = data.draw(st.integers(0, size))
    assert tree.root_at(part) == whole.root_at(part) == (root_of_hashes(HASHES[:part]) if part else EMPTY_ROOT)
    if part:
        index = data.draw(st.integers(0, part - 1))
        assert tree.inclusion_path(index, part) == whole.inclusion_path(index, part)
        assert tree.node(0, index) == HASHES[index]
        assert tree.consistency_path(index, part) == whole.consistency_path(index, part)
    # Of the whole blocks, those that a path begins or ends in are read, once each.
    assert len(asked) == len(set(asked)) <= 2


@for_each(
    ("tree", "seq"),
    [
        (EventTree(), 0),
        (EventTree(b"", bytes(32)), 1),
        (EventTree(bytes(32), b""), BLOCK_EVENTS - 2),
        (EventTree(bytes(33), bytes(32)), BLOCK_EVENTS),
        (EventTree(bytes(32), bytes(33)), BLOCK_EVENTS),
        (EventTree(b"", bytes(32 * BLOCK_EVENTS)), BLOCK_EVENTS - 1),
    ],
)
def test_a_tree_of_another_size_or_shape_is_not_that_of_a_stream(tree: EventTree, seq: int) -> None:
    assert not tree.is_of(Head(seq, bytes(32)))


@for_each("size", BOUNDARIES[1:])
def test_a_tree_that_grew_event_by_event_is_that_of_its_stream(size: int) -> None:
    assert EventTree().extend(HASHES[:size]).is_of(Head(size - 1, HASHES[size - 1]))
