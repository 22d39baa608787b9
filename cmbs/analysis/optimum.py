"""How many probes it takes to resolve, at best: exactly where that can be had, else by greedy choice or from below.

Costs are summed over hypotheses by weight, so they are whole numbers; divided by the weight they are expected probes.
Resolved means that one class is left. All of this is for deterministic tables, where the truth says every answer;
elsewhere only the bound from below holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from cmbs.analysis.table import Scale, Table, mask_from, spread

# Deeper than this a tree is not searched: the search would call itself that many times.
MAX_CLASSES = 400
DEFAULT_STEPS = 500_000
_CLASSES_PER_STEP = 32


class Method(StrEnum):
    """What a number of probes was compared with, from the strongest to the weakest."""

    EXACT = "exact"
    GREEDY = "greedy"
    HUFFMAN = "huffman"


class OutOfSteps(Exception):
    """The work would take more steps than were given: the caller goes on with a weaker answer."""


class Steps:
    """How much work may still be done. Counted, not timed: the same question always gets the same answer."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def take(self, steps: int) -> None:
        """Use some up; OutOfSteps where there are none left."""
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps


class Split(NamedTuple):
    """What a probe makes of a set of classes: one part for each answer."""

    probe: int
    parts: tuple[int, ...]


class _Plan(NamedTuple):
    """A split, and what it costs at least."""

    bound: int
    split: Split
    bounds: tuple[int, ...]


@dataclass(frozen=True)
class Classes:
    """A deterministic table with each class as one atom, and only the probes that tell classes apart, each kind once.

    Sets here are sets of classes. `splits` are in the order of the table's probes; of probes that split alike the first
    is kept, so that a choice by order is the choice that the table's order asks for.
    """

    members: tuple[int, ...]
    weights: tuple[int, ...]
    splits: tuple[Split, ...]
    arity: int

    @property
    def everything(self) -> int:
        """All classes."""
        return (1 << len(self.members)) - 1

    @cached_property
    def _scale(self) -> Scale:
        return Scale(self.weights)

    def mass(self, mask: int) -> int:
        """What a set of classes weighs."""
        return self._scale.mass(mask)

    def of(self, alive: int) -> int:
        """The classes that a set of hypotheses has a part in."""
        return self._atoms.of(alive)

    @cached_property
    def _atoms(self) -> _Atoms:
        return _Atoms(self.members)

    def effort(self, alive: int) -> int:
        """The steps that looking at every split of a set takes: longer sets are more work."""
        return len(self.splits) * (1 + alive.bit_count() // _CLASSES_PER_STEP)

    def splits_of(self, alive: int) -> list[Split]:
        """Every way in which a probe can split a set of classes, each once, in the order of the probes."""
        found: dict[tuple[int, ...], Split] = {}
        for probe, parts in self.splits:
            left = tuple([rest for part in parts if (rest := part & alive)])
            if len(left) > 1:
                found.setdefault(left, Split(probe, left))
        return list(found.values())


def classes_of(table: Table, alive: int | None = None) -> Classes:
    """The classes of a table as atoms; of those hypotheses only that are alive."""
    everything = table.everything if alive is None else alive
    members = tuple(table.classes_in(everything))
    atoms = _Atoms(members)
    found: dict[frozenset[int], Split] = {}
    arity = 2
    for number, probe in enumerate(table.probes):
        parts = [atoms.of(part) for part in probe.parts(everything)]
        arity = max(arity, len(parts))
        if len(parts) > 1:
            # Sorted, so that a probe whose outcomes are merely listed in another order is the same split.
            found.setdefault(frozenset(parts), Split(number, tuple(sorted(parts))))
    return Classes(members, tuple(table.mass(each) for each in members), tuple(found.values()), arity)


class _Atoms:
    """From sets of hypotheses to sets of classes."""

    def __init__(self, members: Sequence[int]) -> None:
        self._members = members
        # As many classes as there are places for hypotheses: each is its own class, and sets are what they are.
        self._same = max(members, default=0).bit_length() == len(members)

    def of(self, mask: int) -> int:
        """The classes that a set of hypotheses has a part in."""
        if self._same:
            return mask
        return mask_from(index for index, each in enumerate(self._members) if each & mask)


def huffman_cost(weights: Sequence[int], arity: int) -> int:
    """The total cost of the best tree there could be if any set could be split in any way: never above the optimum."""
    if len(weights) <= 1:
        return 0
    # Empty leaves make the last step a full one; without them the bound would not be a bound.
    heap = [*weights, *[0] * (-(len(weights) - 1) % (arity - 1))]
    heapq.heapify(heap)
    cost = 0
    while len(heap) > 1:
        merged = sum(heapq.heappop(heap) for _ in range(arity))
        cost += merged
        heapq.heappush(heap, merged)
    return cost


class HuffmanBound:
    """The Huffman bound of sets of classes, each worked out once."""

    def __init__(self, classes: Classes) -> None:
        self._arity = classes.arity
        by_weight: dict[int, list[int]] = {}
        for bit, weight in enumerate(classes.weights):
            by_weight.setdefault(weight, []).append(bit)
        # The bound depends on how many classes of each weight there are, and on nothing else.
        self._of_weight = [(weight, mask_from(bits)) for weight, bits in by_weight.items()]
        self._known: dict[tuple[int, ...], int] = {}

    def cost(self, alive: int) -> int:
        """No tree that resolves `alive` costs less."""
        counts = tuple([(mask & alive).bit_count() for _, mask in self._of_weight])
        known = self._known.get(counts)
        if known is None:
            weights = [weight for (weight, _), count in zip(self._of_weight, counts, strict=True) for _ in range(count)]
            known = self._known[counts] = huffman_cost(weights, self._arity)
        return known


class Greedy:
    """Always the probe with the largest expected gain, the first of the table among equals. Iterative: any depth."""

    def __init__(self, classes: Classes, steps: Steps) -> None:
        self._classes = classes
        self._steps = steps
        self._chosen: dict[int, Split] = {}
        self._costs: dict[int, int] = {}

    def choose(self, alive: int) -> Split | None:
        """The split that the greedy choice makes; None where one class is left."""
        if alive & (alive - 1) == 0:
            return None
        known = self._chosen.get(alive)
        if known is None:
            self._steps.take(self._classes.effort(alive))
            mass = self._classes.mass
            # A strict comparison: among equals the first of the table wins.
            best = -1.0
            for split in self._classes.splits_of(alive):
                gain = spread([mass(part) for part in split.parts])
                if gain > best:
                    best, known = gain, split
            if known is None:  # pragma: no cover - two classes are told apart by a probe, or they would be one
                raise AssertionError(alive)
            self._chosen[alive] = known
        return known

    def cost(self, alive: int) -> int:
        """What resolving `alive` costs in total if every choice is the greedy one."""
        if alive in self._costs:
            return self._costs[alive]
        total = 0
        waiting = [alive]
        while waiting:
            each = waiting.pop()
            split = self.choose(each)
            if split is not None:
                total += self._classes.mass(each)
                waiting.extend(split.parts)
        self._costs[alive] = total
        return total

    def worst(self, alive: int) -> int:
        """The most probes that the greedy choice needs for any truth."""
        return _depth(alive, self.choose)


class Optimum:
    """The optimal decision tree by dynamic programming over sets of classes, cut short by the Huffman bound."""

    def __init__(self, classes: Classes, steps: Steps) -> None:
        self._classes = classes
        self._steps = steps
        self._bound = HuffmanBound(classes)
        # The greedy tree is a tree, so the best one costs no more.
        self._greedy = Greedy(classes, steps)
        # What is known of a set: its exact cost and the split to begin with, or only that it costs no less than this.
        self._exact: dict[int, tuple[int, Split | None]] = {}
        self._at_least: dict[int, int] = {}

    def cost(self, alive: int) -> int:
        """The least total cost of resolving `alive`; OutOfSteps where finding it takes too long."""
        if alive.bit_count() > MAX_CLASSES:
            raise OutOfSteps
        return self._solve(alive, self._greedy.cost(alive))

    def choose(self, alive: int) -> Split | None:
        """The split to begin with; None where one class is left."""
        self.cost(alive)
        return self._exact[alive][1] if alive in self._exact else None

    def worst(self, alive: int) -> int:
        """The most probes that the tree found needs for any truth."""
        return _depth(alive, self.choose)

    def _solve(self, alive: int, limit: int) -> int:
        """The exact cost where it is at most `limit`, else some number above `limit` that the cost is not below."""
        if alive & (alive - 1) == 0:
            return 0
        known = self._exact.get(alive)
        if known is not None:
            return known[0]
        least = self._at_least.get(alive, 0)
        if least > limit:
            return least
        best, first, lowest = limit + 1, None, None
        for plan in self._plans(alive):
            if plan.bound >= best:
                # They are sorted by what they cost at least: none that follows can be better.
                lowest = plan.bound if lowest is None else min(lowest, plan.bound)
                break
            cost = self._cost_of(plan, best - 1)
            if cost < best:
                best, first = cost, plan.split
            else:
                lowest = cost if lowest is None else min(lowest, cost)
        if first is not None:
            self._exact[alive] = (best, first)
            return best
        self._at_least[alive] = best if lowest is None else lowest
        return self._at_least[alive]

    def _plans(self, alive: int) -> list[_Plan]:
        splits = self._classes.splits_of(alive)
        self._steps.take(self._classes.effort(alive))
        mass = self._classes.mass(alive)
        plans = []
        for split in splits:
            bounds = tuple(map(self._least, split.parts))
            plans.append(_Plan(mass + sum(bounds), split, bounds))
        plans.sort(key=lambda plan: plan.bound)
        return plans

    def _least(self, alive: int) -> int:
        known = self._exact.get(alive)
        if known is not None:
            return known[0]
        least = self._at_least.get(alive)
        return self._bound.cost(alive) if least is None else least

    def _cost_of(self, plan: _Plan, limit: int) -> int:
        """The exact cost of a plan where it is at most `limit`, else some number above `limit` that it is not below."""
        total = plan.bound
        for part, bound in zip(plan.split.parts, plan.bounds, strict=True):
            total += self._solve(part, limit - total + bound) - bound
            if total > limit:
                break
        return total


def _depth(alive: int, choose: Callable[[int], Split | None]) -> int:
    deepest = 0
    waiting = [(alive, 0)]
    while waiting:
        each, depth = waiting.pop()
        split = choose(each)
        if split is None:
            deepest = max(deepest, depth)
        else:
            waiting.extend((part, depth + 1) for part in split.parts)
    return deepest
