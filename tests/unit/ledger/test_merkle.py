"""The Merkle tree against RFC 6962, written down here a second time as the RFC words it, and against known vectors."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.ledger import merkle
from tests.support.subtests import for_each

# With these leaves and roots implementations of Certificate Transparency test themselves: root n is over the first n.
LEAVES = [
    bytes.fromhex(leaf)
    for leaf in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def tree_hash(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, §2.1."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return sha256(b"\x01" + tree_hash(leaves[:split]) + tree_hash(leaves[split:])).digest()


def tree_over(leaves: list[bytes]) -> merkle.Tree:
    return merkle.Tree.over(map(merkle.leaf_hash, leaves))


@pytest.mark.req("LED-3-TREE-01")
@for_each("size", range(len(ROOTS)))
def test_the_known_roots_come_out(size: int) -> None:
    assert merkle.root_of(LEAVES[:size]).hex() == ROOTS[size]
    assert tree_over(LEAVES[:size]).root.hex() == ROOTS[size]


@pytest.mark.req("LED-3-TREE-01")
@given(st.lists(st.binary(max_size=40), max_size=70))
def test_streamed_and_levelled_roots_are_the_recursive_one(leaves: list[bytes]) -> None:
    wanted = tree_hash(leaves)
    assert merkle.root_of(iter(leaves)) == wanted
    assert tree_over(leaves).root == wanted


@for_each("size", [*range(1, 18), 31, 32, 33, 63, 64, 65, 127, 128, 129])
def test_every_shape_of_tree_has_the_recursive_root(size: int) -> None:
    leaves = [bytes([number]) for number in range(size)]
    assert merkle.root_of(leaves) == tree_over(leaves).root == tree_hash(leaves)


@pytest.mark.req("LED-3-SURV-03")
@given(
    st.lists(st.binary(max_size=4), min_size=1, max_size=70),
    st.lists(st.dictionaries(st.integers(0, 69), st.binary(max_size=4), max_size=8), max_size=4),
)
def test_replacing_leaves_is_building_anew_and_leaves_the_tree_as_it_was(
    leaves: list[bytes], rounds: list[dict[int, bytes]]
) -> None:
    tree = tree_over(leaves)
    for changes in rounds:
        changed = {position % len(leaves): leaf for position, leaf in changes.items()}
        before, tree = tree, tree.replace({position: merkle.leaf_hash(leaf) for position, leaf in changed.items()})
        assert before == tree_over(leaves)
        leaves = [changed.get(position, leaf) for position, leaf in enumerate(leaves)]
        assert tree == tree_over(leaves)


@given(st.binary(max_size=64), st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_a_leaf_cannot_pose_as_a_node(data: bytes, left: bytes, right: bytes) -> None:
    assert merkle.leaf_hash(data) == sha256(b"\x00" + data).digest()
    assert merkle.node_hash(left, right) == sha256(b"\x01" + left + right).digest()
    assert merkle.leaf_hash(left + right) != merkle.node_hash(left, right)
