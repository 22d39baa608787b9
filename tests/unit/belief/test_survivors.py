"""Survivor sets against plain Python sets, and their commitment against one computed here from its definition."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmbs.belief.kernel.survivors import Survivors, Universe, commitment
from cmbs.ledger import GENESIS
from cmbs.testing.strategies import belief as strategies

# Around a byte, a block, a page of blocks, and two pages.
SIZES = [1, 2, 7, 8, 9, 1023, 1024, 1025, 2048, 5000, 32767, 32768, 32769, 70000]
# A size is a test of its own, so each gets a share of the examples.
FEWER = settings(max_examples=settings().max_examples // 2)


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
    blocks = -(-size // 1024)
    bitmap = bits.to_bytes(blocks * 128, "little")
    return tree_hash([bitmap[start : start + 128] for start in range(0, len(bitmap), 128)])


@cache
def universe_of(size: int) -> Universe:
    return Universe.of(f"h{number:06d}" for number in range(size))


class Version(NamedTuple):
    survivors: Survivors
    gone: frozenset[int]


def assert_same(version: Version) -> None:
    survivors, gone = version
    size = len(survivors.universe)
    alive = [position for position in range(size) if position not in gone]
    ids = [survivors.universe.ids[position] for position in alive]
    assert len(survivors) == len(alive)
    assert list(survivors) == ids
    assert survivors.root == root_of(size, gone)
    assert all(map(survivors.holds, alive[:50] + alive[-50:]))
    assert not any(map(survivors.holds, gone))
    back = Survivors.from_bitmap(survivors.universe, survivors.bitmap())
    assert (len(back), back.bitmap(), back.root) == (len(alive), survivors.bitmap(), survivors.root)


@st.composite
def eliminations(draw: st.DrawFn, size: int) -> frozenset[int]:
    """Some positions: single ones, mostly near the edges of bytes, blocks and pages, and sometimes a whole stretch."""
    edge = st.sampled_from([0, 7, 8, 1023, 1024, 1025, 32767, 32768, 32769, 65536, size - 1])
    single = draw(st.frozensets(edge | st.integers(0, size - 1), max_size=6))
    if draw(st.integers(0, 3)):
        stretch: frozenset[int] = frozenset()
    else:
        start = draw(st.integers(0, size - 1))
        stretch = frozenset(range(start, start + draw(st.integers(0, size)), draw(st.integers(1, 600))))
    return frozenset(position for position in single | stretch if position < size)


@pytest.mark.req("LED-3-SURV-03", "LED-3-SURV-04", "LED-3-SURV-06")
@FEWER
@pytest.mark.parametrize("size", SIZES)
@given(data=st.data())
def test_survivors_are_the_set_that_a_plain_set_says(size: int, data: st.DataObject) -> None:
    versions = [Version(Survivors.all_of(universe_of(size)), frozenset())]
    for _ in range(data.draw(st.integers(0, 5), "steps")):
        # Mostly the newest version goes on; at times an older one does, as after a write that failed.
        back = data.draw(st.sampled_from([0, 0, 0, 1, 2]), "version")
        survivors, gone = versions[max(0, len(versions) - 1 - back)]
        positions = tuple(sorted(data.draw(eliminations(size), "positions") - gone))
        if data.draw(st.booleans(), "root is read before"):
            assert survivors.root == root_of(size, gone)
        for _ in range(data.draw(st.integers(0, 2), "decisions that came to nothing")):
            survivors.without(positions)
        versions.append(Version(survivors.without(positions), gone | set(positions)))
        if data.draw(st.booleans(), "root is read after"):
            assert versions[-1].survivors.root == root_of(size, versions[-1].gone)
    for version in versions:
        assert_same(version)


@FEWER
@pytest.mark.parametrize("size", [1, 9, 1025, 32769])
@given(data=st.data())
def test_restoring_what_was_eliminated_gives_the_set_before(size: int, data: st.DataObject) -> None:
    whole = Survivors.all_of(universe_of(size))
    first = data.draw(eliminations(size))
    second = data.draw(eliminations(size)) - first
    before = whole.without(sorted(first))
    after = before.without(sorted(second))
    assert_same(Version(after.restored(second), first))
    assert_same(Version(after.restored([*first, *second]), frozenset()))
    assert_same(Version(after, first | second))


@FEWER
@pytest.mark.parametrize("size", [1, 9, 1025, 32769, 70000])
@given(data=st.data())
def test_pages_are_slices_of_the_sorted_survivors(size: int, data: st.DataObject) -> None:
    universe = universe_of(size)
    survivors = Survivors.all_of(universe).without(sorted(data.draw(eliminations(size))))
    after = data.draw(
        st.none() | st.sampled_from(["", "h", "z", universe.ids[0], universe.ids[-1]]) | st.sampled_from(universe.ids)
    )
    limit = data.draw(st.sampled_from([0, 1, 2, 100, size, size + 1]))
    wanted = [survivor for survivor in survivors if after is None or survivor > after]
    assert survivors.page(after, limit) == wanted[:limit]


def test_walking_through_the_pages_meets_every_survivor_once() -> None:
    survivors = Survivors.all_of(universe_of(5000)).without(range(100, 4900, 7))
    met: list[str] = []
    while page := survivors.page(met[-1] if met else None, 999):
        met += page
    assert met == list(survivors)


@pytest.mark.req("LED-3-SURV-03")
@pytest.mark.parametrize("size", [1024, 5000, 70000])
def test_the_tree_survives_decisions_that_were_not_carried_out(size: int) -> None:
    whole = Survivors.all_of(universe_of(size))
    refused = whole.without([0])
    assert refused.root == root_of(size, frozenset({0}))
    # The write failed; another message is decided on the same state, then the first one again.
    other = whole.without([size - 1])
    again = whole.without([0])
    assert again is not refused
    assert again.without([1]).root == root_of(size, frozenset({0, 1}))
    assert other.root == root_of(size, frozenset({size - 1}))
    assert refused.without([2]).root == root_of(size, frozenset({0, 2}))
    assert whole.root == root_of(size, frozenset())


@pytest.mark.parametrize("size", [100, 5000])
def test_what_others_hold_stays_as_it_was_while_one_thread_eliminates(size: int) -> None:
    universe = universe_of(size)
    newest = [Survivors.all_of(universe)]
    wrong: set[str] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            held = newest[0]
            count = size - len(held)  # the first so many are gone
            wanted = universe.ids[count:]
            right = {
                "order": held.in_order() == wanted,
                "page": held.page(None, 2) == list(wanted[:2]),
                "among": held.among(universe.ids)[1] == list(range(count, size)),
                "holds": all(map(held.holds, range(count, size))),
                "bitmap": int.from_bytes(held.bitmap(), "little") == (1 << size) - (1 << count),
                "root": held.root == Survivors.from_bitmap(universe, held.bitmap()).root,
            }
            wrong.update(name for name, is_right in right.items() if not is_right)

    readers = [threading.Thread(target=read) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for reader in readers:
            reader.start()
        for position in range(size - 1):
            assert newest[0].root
            newest[0] = newest[0].without([position])
    finally:
        done.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(interval)
    assert not wrong


def test_whoever_holds_an_old_set_holds_no_later_ones() -> None:
    first = newest = Survivors.all_of(universe_of(70_000))
    for position in range(20_000):
        newest = newest.without([position])
    gc.collect()
    assert sum(isinstance(each, Survivors) and each.universe is first.universe for each in gc.get_objects()) == 2
    assert (len(first.in_order()), len(newest.in_order())) == (70_000, 50_000)
    again = first.without([1])
    assert (0 in map(again.universe.position, again.page(None, 1)), len(again)) == (True, 69_999)
    del first  # and with it a history of twenty thousand links


def test_a_small_set_remembers_its_order_and_a_large_one_does_not() -> None:
    for size in (9, 4096, 4097, 4098, 40_000):
        survivors = Survivors.all_of(universe_of(size)).without([0])
        first = survivors.in_order()
        assert first == tuple(survivors) == survivors.universe.ids[1:]
        assert survivors.in_order() == first
        assert (survivors.in_order() is first) == (size - 1 <= 4096)


def test_eliminating_nothing_leaves_an_equal_set() -> None:
    whole = Survivors.all_of(universe_of(1025))
    same = whole.without([])
    assert (list(same), same.root) == (list(whole), whole.root)


@pytest.mark.parametrize("size", [1, 1024, 1025, 32769])
def test_everything_can_be_eliminated_at_once(size: int) -> None:
    nothing = Survivors.all_of(universe_of(size)).without(range(size))
    assert_same(Version(nothing, frozenset(range(size))))
    assert nothing.page(None, 10) == []


@given(strategies.hypotheses(max_size=20), strategies.ids())
def test_membership_is_of_the_survivors_alone(ids: list[str], stranger: str) -> None:
    universe = Universe.of(ids)
    survivors = Survivors.all_of(universe).without([0])
    assert [each for each in [*ids, stranger] if each in survivors] == [
        each for each in [*ids, stranger] if each in set(universe.ids[1:])
    ]
    odd_ones: list[Any] = [None, 0, b"a", ("a",)]
    assert not any(odd in survivors for odd in odd_ones)


# --- the universe -----------------------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-SURV-05", "BS-4.2-SORT-01")
@given(st.lists(strategies.ids(), max_size=20))
def test_a_universe_is_the_ids_sorted_by_code_point_each_once(ids: list[str]) -> None:
    universe = Universe.of(ids)
    assert universe.ids == tuple(sorted(set(ids)))
    assert len(universe) == len(set(ids))
    assert universe.root == tree_hash([each.encode() for each in universe.ids])
    assert universe.positions(universe.ids) == tuple(range(len(universe)))
    assert [universe.position(each) for each in universe.ids] == list(range(len(universe)))


def test_an_id_outside_the_universe_has_no_position() -> None:
    universe = Universe.of(["a"])
    assert universe.position("b") is None
    with pytest.raises(KeyError):
        universe.positions(["a", "b"])


def test_an_empty_universe_has_the_empty_root() -> None:
    nothing = Survivors.all_of(Universe.of([]))
    assert (list(nothing), len(nothing), nothing.bitmap(), nothing.page(None, 5)) == ([], 0, b"", [])
    assert nothing.root == sha256(b"").digest()
    assert Survivors.from_bitmap(nothing.universe, b"").root == nothing.root


# --- the bitmap -------------------------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-SURV-06")
def test_the_first_id_is_the_least_significant_bit_of_the_first_byte() -> None:
    whole = Survivors.all_of(universe_of(9))
    assert whole.bitmap() == b"\xff\x01"
    assert whole.without([0]).bitmap() == b"\xfe\x01"
    assert whole.without([7]).bitmap() == b"\x7f\x01"
    assert whole.without([8]).bitmap() == b"\xff\x00"


@pytest.mark.parametrize("bitmap", [b"", b"\xff", b"\xff\x01\x00"])
def test_a_bitmap_of_another_length_is_refused(bitmap: bytes) -> None:
    with pytest.raises(ValueError, match="has 2 bytes"):
        Survivors.from_bitmap(universe_of(9), bitmap)


@pytest.mark.parametrize(("size", "bitmap"), [(9, b"\xff\x02"), (9, b"\xff\x81"), (1, b"\x02"), (7, b"\x80")])
def test_bits_beyond_the_universe_are_refused(size: int, bitmap: bytes) -> None:
    with pytest.raises(ValueError, match="beyond the universe"):
        Survivors.from_bitmap(universe_of(size), bitmap)


def test_a_full_last_byte_has_no_bits_beyond() -> None:
    assert len(Survivors.from_bitmap(universe_of(8), b"\xff")) == 8


# --- the commitment ---------------------------------------------------------------------------------------------------


def framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


HASHES = st.binary(min_size=32, max_size=32)


@pytest.mark.req("LED-3-SURV-01", "LED-3-SURV-02")
@given(strategies.ids(), HASHES, HASHES)
def test_the_commitment_is_the_hash_of_its_framed_parts(session_id: str, previous: bytes, root: bytes) -> None:
    wanted = sha256(framed(b"cmbs/survivors/v1", session_id.encode(), previous, root)).hexdigest()
    assert commitment(session_id, previous, root) == wanted


@pytest.mark.req("LED-3-SURV-01", "LED-3-SURV-02")
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "ab", "a\x00", "b"]), st.sampled_from([GENESIS, b"a" * 32]), HASHES),
        unique=True,
    )
)
def test_other_parts_give_another_commitment(parts: list[tuple[str, bytes, bytes]]) -> None:
    assert len({commitment(*each) for each in parts}) == len(parts)


@pytest.mark.req("LED-3-SURV-02")
def test_moving_the_boundary_between_two_ids_changes_what_is_committed_to() -> None:
    assert Universe.of(["ab", "c"]).root != Universe.of(["a", "bc"]).root
    assert Universe.of(["a", "b"]).root != Universe.of(["ab"]).root
    assert Universe.of(["", "ab"]).root != Universe.of(["ab"]).root
    assert Universe.of(["a\nb"]).root != Universe.of(["a", "b"]).root


def test_the_root_of_a_universe_is_the_same_however_often_it_is_asked_for() -> None:
    universe = Universe.of("cab")
    assert universe.root == universe.root == Universe(["a", "b", "c"]).root
