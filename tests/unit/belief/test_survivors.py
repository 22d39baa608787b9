"""Survivor sets against plain Python sets, and their commitment against one computed here from its definition."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmbs.belief.kernel.survivors import Survivors, Universe, commitment
from cmbs.ledger import GENESIS, merkle
from cmbs.ledger.proofs import root_from
from cmbs.testing.strategies import belief as strategies
from tests.support.subtests import for_each

# Around a byte, a block, and an odd and an even number of blocks.
SIZES = [1, 8, 9, 1023, 1024, 1025, 5000, 32768, 70000]
# A size is a test of its own, so each gets a share of the examples.
FEWER = settings(max_examples=settings().max_examples // 2)
HASHES = st.binary(min_size=32, max_size=32)


def tree_hash(leaves: Sequence[bytes]) -> bytes:
    """MTH of RFC 6962, §2.1."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return sha256(b"\x01" + tree_hash(leaves[:split]) + tree_hash(leaves[split:])).digest()


def root_of(size: int, gone: frozenset[int]) -> bytes:
    """The survivor root by its definition: bit i is id i, least significant first, in blocks of 1024."""
    bits = (1 << size) - 1
    for position in gone:
        bits &= ~(1 << position)
    bitmap = bits.to_bytes(-(-size // 1024) * 128, "little")
    return tree_hash([bitmap[start : start + 128] for start in range(0, len(bitmap), 128)])


@cache
def universe_of(size: int) -> Universe:
    return Universe.of(f"h{number:06d}" for number in range(size))


class Version(NamedTuple):
    survivors: Survivors
    gone: frozenset[int]

    def eliminate(self, positions: frozenset[int]) -> Version:
        """The next version: what is gone already is left out, as `eliminate` demands."""
        ids = self.survivors.universe.ids
        fewer = self.survivors.eliminate([ids[position] for position in positions - self.gone])
        return Version(fewer, self.gone | positions)


def whole(size: int) -> Version:
    return Version(Survivors.all_of(universe_of(size)), frozenset())


def assert_same(version: Version) -> None:
    survivors, gone = version
    size = len(survivors.universe)
    ids = [hypothesis_id for position, hypothesis_id in enumerate(survivors.universe.ids) if position not in gone]
    assert len(survivors) == len(ids)
    assert list(survivors) == ids
    assert survivors.root == root_of(size, gone)
    assert all(hypothesis_id in survivors for hypothesis_id in ids[:50] + ids[-50:])
    assert not any(survivors.universe.ids[position] in survivors for position in gone)
    back = Survivors.from_bitmap(survivors.universe, survivors.bitmap())
    assert (len(back), back.bitmap(), back.root) == (len(ids), survivors.bitmap(), survivors.root)


@st.composite
def eliminations(draw: st.DrawFn, size: int) -> frozenset[int]:
    """Some positions: single ones, mostly near the edges of bytes and blocks, and sometimes a whole stretch."""
    edge = st.sampled_from([0, 7, 8, 1023, 1024, 1025, 32767, 32768, 65536, size - 1])
    single = draw(st.frozensets(edge | st.integers(0, size - 1), max_size=6))
    if draw(st.integers(0, 3)):
        stretch: frozenset[int] = frozenset()
    else:
        start = draw(st.integers(0, size - 1))
        stretch = frozenset(range(start, start + draw(st.integers(0, size)), draw(st.integers(1, 600))))
    return frozenset(position for position in single | stretch if position < size)


@pytest.mark.req("LED-3-SURV-03", "LED-3-SURV-04", "LED-3-SURV-06", "ARCH-2-01")
@FEWER
@pytest.mark.parametrize("size", SIZES)
@given(data=st.data())
def test_survivors_are_the_set_that_a_plain_set_says(size: int, data: st.DataObject) -> None:
    versions = [whole(size)]
    for _ in range(data.draw(st.integers(0, 4), "steps")):
        # Mostly the newest version goes on; at times an older one does, as after a write that failed.
        before = versions[-data.draw(st.integers(1, len(versions)), "version")]
        versions.append(before.eliminate(data.draw(eliminations(size), "positions")))
    for version in versions:
        assert_same(version)


@FEWER
@pytest.mark.parametrize("size", [9, 1025, 32769])
@given(data=st.data())
def test_restoring_what_was_eliminated_gives_the_set_before(size: int, data: st.DataObject) -> None:
    before = whole(size).eliminate(data.draw(eliminations(size)))
    gone = data.draw(eliminations(size)) - before.gone
    ids = [universe_of(size).ids[position] for position in gone]
    assert_same(Version(before.eliminate(gone).survivors.restore(ids), before.gone))


@FEWER
@pytest.mark.parametrize("size", [9, 1025, 70000])
@given(data=st.data())
def test_pages_are_slices_of_the_sorted_survivors(size: int, data: st.DataObject) -> None:
    universe = universe_of(size)
    survivors = whole(size).eliminate(data.draw(eliminations(size))).survivors
    after = data.draw(
        st.none() | st.sampled_from(["", "h", "z", universe.ids[0], universe.ids[-1]]) | st.sampled_from(universe.ids)
    )
    limit = data.draw(st.sampled_from([0, 1, 2, 100, size, size + 1]))
    wanted = [survivor for survivor in survivors if after is None or survivor > after]
    assert survivors.page(after, limit) == wanted[:limit]


@pytest.mark.parametrize("size", [1, 1024, 1025])
def test_everything_or_nothing_can_be_eliminated_at_once(size: int) -> None:
    nothing = whole(size).eliminate(frozenset(range(size)))
    assert_same(nothing)
    assert nothing.survivors.page(None, 10) == []
    assert_same(whole(size).eliminate(frozenset()))


@given(strategies.hypotheses(max_size=20), strategies.ids())
def test_membership_is_of_the_survivors_alone(ids: list[str], other: str) -> None:
    universe = Universe.of(ids)
    survivors = Survivors.all_of(universe).eliminate(universe.ids[:1])
    for each in [*ids, other]:
        assert (each in universe, each in survivors) == (each in ids, each in universe.ids[1:])
    assert not any(map(survivors.__contains__, (None, 0, b"a", ("a",))))


@pytest.mark.req("LED-3-SURV-03", "LED-3-SURV-05")
def test_roots_and_commitments_are_those_that_earlier_releases_wrote() -> None:
    survivors = whole(70_000).survivors
    assert survivors.universe.compute_root().hex() == "26ba9b16c889378c2c02d8fec57b4e56d9655b4791090554a96e64bdd2ebabbc"
    assert survivors.root.hex() == "95cce3ab51d0883ccf1c430090d14224ef9d10ff14b604d2889ff7f6d201c9d1"
    fewer = survivors.eliminate(survivors.universe.ids[::7])
    assert fewer.root.hex() == "99e2b85ff76bd431d721f97c54c7a29140f5b88afc326bfc53faab6861f77dd7"
    wanted = "5dcaac3428e15b8b6a871ad8da9fd2b3b10d1270cbe195680bc582c15e227fc2"
    assert commitment("session", GENESIS, fewer.root) == wanted


# --- the universe and the bitmap --------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-SURV-05", "BS-4.2-SORT-01")
@given(st.lists(strategies.ids(), max_size=20))
def test_a_universe_is_the_ids_sorted_by_code_point_each_once(ids: list[str]) -> None:
    universe = Universe.of(ids)
    assert universe.ids == tuple(sorted(set(ids)))
    assert len(universe) == len(set(ids))
    assert universe.compute_root() == tree_hash([each.encode() for each in universe.ids])
    assert [universe.position(each) for each in universe.ids] == list(range(len(universe)))


def test_an_id_outside_the_universe_has_no_position() -> None:
    with pytest.raises(KeyError):
        Universe.of(["a"]).position("b")


def test_an_empty_universe_has_the_empty_root() -> None:
    nothing = Survivors.all_of(Universe.of([]))
    assert (list(nothing), len(nothing), nothing.bitmap(), nothing.page(None, 5)) == ([], 0, b"", [])
    assert nothing.root == sha256(b"").digest()


@pytest.mark.req("LED-3-SURV-06")
def test_the_first_id_is_the_least_significant_bit_of_the_first_byte() -> None:
    bitmaps = [whole(9).eliminate(frozenset(gone)).survivors.bitmap() for gone in ([], [0], [7], [8])]
    assert bitmaps == [b"\xff\x01", b"\xfe\x01", b"\x7f\x01", b"\xff\x00"]


@for_each(
    ("size", "bitmap", "reason"),
    [
        *[(9, bitmap, "has 2 bytes") for bitmap in (b"", b"\xff", b"\xff\x01\x00")],
        *[(9, bitmap, "beyond the universe") for bitmap in (b"\xff\x02", b"\xff\x81")],
        *[(1, b"\x02", "beyond the universe"), (7, b"\x80", "beyond the universe")],
    ],
)
def test_a_bitmap_that_does_not_fit_the_universe_is_refused(size: int, bitmap: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Survivors.from_bitmap(universe_of(size), bitmap)


# --- the commitment ---------------------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-SURV-01", "LED-3-SURV-02")
@given(strategies.ids(), HASHES, HASHES)
def test_the_commitment_is_the_hash_of_its_framed_parts(session_id: str, previous: bytes, root: bytes) -> None:
    parts = (b"cmbs/survivors/v1", session_id.encode(), previous, root)
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    assert commitment(session_id, previous, root) == sha256(framed).hexdigest()


@pytest.mark.req("LED-3-SURV-01", "LED-3-SURV-02")
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "ab", "a\x00", "b"]), st.sampled_from([GENESIS, b"a" * 32]), HASHES),
        unique=True,
    )
)
def test_other_parts_give_another_commitment(parts: list[tuple[str, bytes, bytes]]) -> None:
    assert len({commitment(*each) for each in parts}) == len(parts)


@pytest.mark.req("LED-3-PROOF-01")
@pytest.mark.parametrize("size", SIZES)
@FEWER
@given(st.data())
def test_paths_prove_which_ids_and_which_blocks_are_under_the_roots(size: int, data: st.DataObject) -> None:
    universe = universe_of(size)
    positions = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=4))
    ids = {position: merkle.leaf_hash(universe.ids[position].encode()) for position in positions}
    assert root_from(ids, size, universe.path(positions)) == universe.compute_root()
    survivors = Survivors.all_of(universe).eliminate([universe.ids[position] for position in positions])
    numbers = sorted({position // 1024 for position in positions})
    joined = survivors.blocks(numbers)
    blocks = [merkle.leaf_hash(joined[start : start + 128]) for start in range(0, len(joined), 128)]
    count = -(-size // 1024)
    found = root_from(dict(zip(numbers, blocks, strict=True)), count, survivors.path(numbers))
    assert found == survivors.root == root_of(size, frozenset(positions))


@for_each("size", SIZES)
def test_the_universe_root_is_that_of_rfc_6962_over_the_sorted_ids(size: int) -> None:
    universe = Universe(universe_of(size).ids)
    assert universe.compute_root() == tree_hash([hypothesis_id.encode() for hypothesis_id in universe.ids])
