"""Certificates: the fewest sets that cover, against trying every selection."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.analysis.certificate import MAX_DEPTH, fewest

SETS = st.lists(st.frozensets(st.integers(0, 11)), max_size=8)
PLENTY = 10**6


def union(sets: list[frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*sets)


def fewest_by_trying(sets: list[frozenset[int]]) -> int:
    sizes = range(len(sets) + 1)
    return next(size for size in sizes if any(union([*each]) == union(sets) for each in combinations(sets, size)))


@pytest.mark.req("AN-06")
@given(SETS)
def test_a_certificate_is_minimal(sets: list[frozenset[int]]) -> None:
    cover = fewest(sets, PLENTY)
    assert union([sets[position] for position in cover.chosen]) == union(sets)
    assert len(cover.chosen) == fewest_by_trying(sets) == cover.at_least
    assert cover.exact
    assert list(cover.chosen) == sorted(set(cover.chosen))


@pytest.mark.req("AN-06")
@given(SETS, st.integers(0, 30))
def test_with_few_steps_it_still_covers_and_claims_no_more_than_is_true(sets: list[frozenset[int]], steps: int) -> None:
    cover = fewest(sets, steps)
    least = fewest_by_trying(sets)
    assert union([sets[position] for position in cover.chosen]) == union(sets)
    assert cover.at_least <= least <= len(cover.chosen)
    assert len(cover.chosen) == least or not cover.exact


def test_where_greedy_takes_too_many_the_search_finds_fewer() -> None:
    halves = [frozenset(range(7)), frozenset(range(7, 14))]
    slices = [frozenset({*range(4), *range(7, 11)}), frozenset({4, 5, 11, 12}), frozenset({6, 13})]
    # Each element alone as well, so that no two of them stand and fall together.
    sets = [*slices, *halves, *(frozenset({element}) for element in range(14))]
    assert fewest(sets, 0) == ((0, 1, 2), False, 2)
    assert fewest(sets, PLENTY) == ((3, 4), True, 2)


def test_elements_of_any_kind_can_be_covered() -> None:
    assert fewest([["a", "b"], ["b"], ["c"], []], PLENTY).chosen == (0, 2)
    assert fewest([], PLENTY) == ((), True, 0)
    assert fewest([[], []], PLENTY) == ((), True, 0)


def test_a_cover_too_large_to_search_is_greedy_and_says_so() -> None:
    """Pairs of three sets, two of which are enough: many more at once than a search could go through."""
    sets = []
    for group in range(MAX_DEPTH):
        first, second, third = (frozenset({(group, number)}) for number in range(3))
        sets += [first | second, second | third, first | third]
    cover = fewest(sets, PLENTY)
    assert len(cover.chosen) == 2 * MAX_DEPTH
    assert not cover.exact
    assert cover.at_least <= 2 * MAX_DEPTH
