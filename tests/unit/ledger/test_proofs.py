"""Inclusion and consistency against RFC 9162, written down here a second time as the RFC words it, and vectors."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.ledger import merkle, proofs
from tests.support.effort import EFFORT
from tests.support.subtests import for_each
from tests.unit.ledger.test_merkle import LEAVES, ROOTS, tree_hash

HASHES = [merkle.leaf_hash(leaf) for leaf in LEAVES]

# Those with which implementations of Certificate Transparency test themselves: (leaf, size) and (old size, size).
INCLUSION = {
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (1, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
CONSISTENCY = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}


def rfc_path(index: int, leaves: list[bytes]) -> list[bytes]:
    """PATH of RFC 9162, 2.1.3.1."""
    if len(leaves) == 1:
        return []
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if index < split:
        return [*rfc_path(index, leaves[:split]), tree_hash(leaves[split:])]
    return [*rfc_path(index - split, leaves[split:]), tree_hash(leaves[:split])]


def rfc_subproof(old_size: int, leaves: list[bytes], *, whole: bool = True) -> list[bytes]:
    """SUBPROOF of RFC 9162, 2.1.4.1."""
    if old_size == len(leaves):
        return [] if whole else [tree_hash(leaves)]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if old_size <= split:
        return [*rfc_subproof(old_size, leaves[:split], whole=whole), tree_hash(leaves[split:])]
    return [*rfc_subproof(old_size - split, leaves[split:], whole=False), tree_hash(leaves[:split])]


def some_leaves(size: int) -> list[bytes]:
    return [sha256(str(number).encode()).digest() for number in range(size)]


@pytest.mark.req("LED-3-PROOF-01")
@for_each(("index", "size"), INCLUSION)
def test_the_known_inclusion_paths_come_out(index: int, size: int) -> None:
    path = proofs.inclusion_path(HASHES[:size], index)
    assert [node.hex() for node in path] == INCLUSION[index, size]
    assert proofs.verify_inclusion(HASHES[index], index, size, path, bytes.fromhex(ROOTS[size]))


@pytest.mark.req("LED-3-PROOF-01")
@for_each(("old_size", "size"), CONSISTENCY)
def test_the_known_consistency_paths_come_out(old_size: int, size: int) -> None:
    path = proofs.consistency_path(HASHES[:size], old_size)
    assert [node.hex() for node in path] == CONSISTENCY[old_size, size]
    assert proofs.verify_consistency(old_size, bytes.fromhex(ROOTS[old_size]), size, bytes.fromhex(ROOTS[size]), path)


# All that is tried grows with the cube of the size, so `fast` takes the sizes around powers of two.
@for_each("size", range(1, 35) if EFFORT.everything else (*range(1, 10), 15, 16, 17, 33))
def test_every_path_of_a_small_tree_is_that_of_the_rfc_and_proves_nothing_else(size: int) -> None:
    leaves = some_leaves(size)
    hashes = [merkle.leaf_hash(leaf) for leaf in leaves]
    root = merkle.root_of_hashes(hashes)
    assert root == tree_hash(leaves)
    for index in range(size):
        path = proofs.inclusion_path(hashes, index)
        assert path == rfc_path(index, leaves) == merkle.Tree.over(hashes).path([index])
        proven = [
            (at, of)
            for of in range(size + 3)
            for at in range(of + 1)
            if proofs.verify_inclusion(hashes[index], at, of, path, root)
        ]
        # In a tree of another size the same path may stand for the same way up: the leaf is then the same one of it.
        assert (index, size) in proven
        assert all(at == index for at, of in proven if of == size)
    roots = [tree_hash(leaves[:claimed]) for claimed in range(size + 1)]
    for old_size in range(1, size + 1):
        path = proofs.consistency_path(hashes, old_size)
        assert path == rfc_subproof(old_size, leaves)
        for claimed in range(1, size + 1):
            assert proofs.verify_consistency(claimed, roots[claimed], size, root, path) == (claimed == old_size)


@given(st.integers(0, 70), st.data())
def test_a_tree_that_grew_gives_the_roots_and_paths_of_its_past(size: int, data: st.DataObject) -> None:
    hashes = [merkle.leaf_hash(leaf) for leaf in some_leaves(size)]
    cut = data.draw(st.integers(0, size))
    first, tree = merkle.CompactRange().extend(hashes[:cut]), proofs.LogTree(hashes)
    assert first.root == tree.root_at(cut) == merkle.root_of_hashes(hashes[:cut])
    assert first.extend(hashes[cut:]).root == tree.root_at(size)
    for index in range(cut):
        assert tree.inclusion_path(index, cut) == rfc_path(index, some_leaves(size)[:cut])
    for index in range(1, cut):
        assert tree.consistency_path(index, cut) == rfc_subproof(index, some_leaves(size)[:cut])
    for beyond in (-1, size + 1):
        with pytest.raises(IndexError):
            tree.root_at(beyond)
    for index, of in ((-1, size), (size, size), (0, size + 1)):
        with pytest.raises(IndexError):
            tree.inclusion_path(index, of)
    for older, of in ((-1, size), (size + 1, size), (0, size + 1)):
        with pytest.raises(IndexError):
            tree.consistency_path(older, of)


@given(st.integers(1, 40), st.data())
def test_several_leaves_and_their_path_give_the_root_and_a_changed_one_does_not(size: int, data: st.DataObject) -> None:
    hashes = some_leaves(size)
    tree = merkle.Tree.over(hashes)
    positions = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    leaves = {position: hashes[position] for position in positions}
    path = tree.path(positions)
    assert path == merkle.path_of(size, lambda level, position: tree.levels[level][position], positions)
    assert proofs.root_from(leaves, size, path) == tree.root
    other = {**leaves, min(positions): bytes(32)}
    assert proofs.root_from(other, size, path) != tree.root
    for wrong in ([*path, bytes(32)], path[:-1] if path else [bytes(32)]):
        with pytest.raises(ValueError, match="the path is too"):
            proofs.root_from(leaves, size, wrong)


@given(st.integers(2, 40), st.data())
def test_a_changed_consistency_path_proves_nothing(size: int, data: st.DataObject) -> None:
    leaves = some_leaves(size)
    hashes = [merkle.leaf_hash(leaf) for leaf in leaves]
    old_size = data.draw(st.integers(1, size - 1))
    older, root = tree_hash(leaves[:old_size]), tree_hash(leaves)
    path = proofs.consistency_path(hashes, old_size)
    assert proofs.verify_consistency(old_size, older, size, root, path)
    place = data.draw(st.integers(0, len(path) - 1))
    changed = [*path[:place], bytes(32), *path[place + 1 :]]
    for wrong in (changed, path[:place] + path[place + 1 :], [*path, bytes(32)], [path[0], *path]):
        assert not proofs.verify_consistency(old_size, older, size, root, wrong)
    assert not proofs.verify_consistency(old_size, bytes(32), size, root, path)
    assert not proofs.verify_consistency(old_size, older, size, bytes(32), path)


def test_the_empty_tree_is_the_beginning_of_every_tree() -> None:
    assert proofs.consistency_path(HASHES, 0) == []
    root = bytes.fromhex(ROOTS[8])
    assert proofs.verify_consistency(0, merkle.EMPTY_ROOT, 8, root, [])
    assert not proofs.verify_consistency(0, root, 8, root, [])
    assert not proofs.verify_consistency(0, merkle.EMPTY_ROOT, 8, root, [root])
    assert not proofs.verify_consistency(9, root, 8, root, [])
    assert not proofs.verify_consistency(-1, root, 8, root, [])
    assert not proofs.verify_consistency(3, root, 8, root, [])


def test_places_outside_a_tree_are_refused() -> None:
    for index, size in ((-1, 8), (8, 8), (0, 0), (0, 2**53)):
        assert not proofs.verify_inclusion(HASHES[0], index, size, [], HASHES[0])
    with pytest.raises(ValueError, match="none at these places"):
        proofs.root_from({}, 8, [])
