"""The fewest events that explain what is left: which of them would have been enough.

Eliminations are unions, so this is set cover: exact by branch and bound where the steps suffice, else greedy, and the
answer says which.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from cmbs.analysis.optimum import OutOfSteps, Steps
from cmbs.analysis.table import bits_of, mask_from

# Larger covers are not searched for: the search would call itself that many times.
MAX_DEPTH = 400
_ELEMENTS_PER_STEP = 8

T = TypeVar("T", bound=Hashable)


class Cover(NamedTuple):
    """Positions of sets that together hold everything, ascending; `exact` where no fewer would do.

    `at_least` is a number of sets that no cover can do with less than; that of the cover itself where it is exact.
    """

    chosen: tuple[int, ...]
    exact: bool
    at_least: int


def fewest(sets: Sequence[Iterable[T]], steps: int) -> Cover:
    """The fewest of the sets whose union is that of all. Among covers of one size, any."""
    masks = _collapse(sets)
    forced, wanted = _find_forced(masks)
    allowed = Steps(steps)
    try:
        useful = _drop_dominated(masks, wanted, allowed)
    except OutOfSteps:
        useful = {position: left for position, mask in enumerate(masks) if (left := mask & wanted)}
    found = _greedy(useful, wanted)
    least = _least(useful.values(), wanted)
    exact = least == len(found)
    if not exact and len(found) <= MAX_DEPTH:
        search = _Search(useful, allowed, found)
        exact = search.search(wanted)
        found = search.found
    chosen = tuple(sorted([*forced, *found]))
    return Cover(chosen, exact, len(chosen) if exact else len(forced) + least)


def _collapse(sets: Sequence[Iterable[T]]) -> list[int]:
    """The sets as masks over groups of elements: elements that are in the same sets stand and fall together."""
    holders: dict[T, list[int]] = {}
    for position, elements in enumerate(sets):
        for element in frozenset(elements):
            holders.setdefault(element, []).append(position)
    groups: dict[tuple[int, ...], int] = {}
    for positions in holders.values():
        groups.setdefault(tuple(positions), len(groups))
    bits: list[list[int]] = [[] for _ in sets]
    for holding, group in groups.items():
        for position in holding:
            bits[position].append(group)
    return list(map(mask_from, bits))


def _find_forced(masks: Sequence[int]) -> tuple[list[int], int]:
    """The sets that alone hold some element, which are in every cover; and what they leave to be covered."""
    once = twice = 0
    for mask in masks:
        twice |= once & mask
        once |= mask
    alone = once & ~twice
    forced = [position for position, mask in enumerate(masks) if mask & alone]
    wanted = once
    for position in forced:
        wanted &= ~masks[position]
    return forced, wanted


def _drop_dominated(masks: Sequence[int], wanted: int, steps: Steps) -> dict[int, int]:
    """Position → what a set has of the wanted, without those that another set has whole. The first of equals stays."""
    kept: dict[int, int] = {}
    for position in sorted(range(len(masks)), key=lambda each: -(masks[each] & wanted).bit_count()):
        left = masks[position] & wanted
        if not left:
            break
        steps.take(len(kept))
        if not any(left & other == left for other in kept.values()):
            kept[position] = left
    return kept


def _greedy(useful: dict[int, int], wanted: int) -> list[int]:
    """Always the set that has the most of what is still wanted, the first of equals."""
    # What a set has of it only becomes less, so an old count that is still the largest need not be compared with all.
    heap = [(-mask.bit_count(), position) for position, mask in useful.items()]
    heapq.heapify(heap)
    chosen: list[int] = []
    while wanted:
        _, position = heap[0]
        fresh = (-(useful[position] & wanted).bit_count(), position)
        if fresh == heap[0]:
            chosen.append(position)
            wanted &= ~useful[position]
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, fresh)
    return chosen


def _least(masks: Iterable[int], wanted: int) -> int:
    """A number of sets that no cover can do with less than: the largest ones, as if they had nothing in common."""
    left = wanted.bit_count()
    sizes = sorted((-(mask & wanted).bit_count() for mask in masks), reverse=True)
    count = 0
    while left > 0:
        left += sizes.pop()
        count += 1
    return count


class _Search:
    """Depth first over the element that the fewest sets hold; what is found only ever becomes smaller."""

    def __init__(self, useful: dict[int, int], steps: Steps, found: list[int]) -> None:
        self._useful = useful
        self._steps = steps
        self.found = found

    def search(self, wanted: int) -> bool:
        """Look for a smaller cover; False where the steps ran out and `found` is only the smallest so far."""
        try:
            self._extend(wanted, [])
        except OutOfSteps:
            return False
        return True

    def _extend(self, wanted: int, chosen: list[int]) -> None:
        if not wanted:
            self.found = chosen  # no larger than the last one, or the bound would have cut it off
            return
        elements = sum((mask & wanted).bit_count() for mask in self._useful.values())
        self._steps.take(len(self._useful) + elements // _ELEMENTS_PER_STEP)
        for position in self._holders(wanted):
            if len(chosen) + _least(self._useful.values(), wanted) >= len(self.found):
                return
            self._extend(wanted & ~self._useful[position], [*chosen, position])

    def _holders(self, wanted: int) -> list[int]:
        """The sets that hold the scarcest element that is still wanted, the largest first."""
        counts = dict.fromkeys(bits_of(wanted), 0)
        for mask in self._useful.values():
            for bit in bits_of(mask & wanted):
                counts[bit] += 1
        scarcest = min(counts, key=lambda bit: counts[bit])
        holders = [position for position, mask in self._useful.items() if mask >> scarcest & 1]
        return sorted(holders, key=lambda position: -(self._useful[position] & wanted).bit_count())
