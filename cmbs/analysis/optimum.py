"""How many probes it takes to resolve, at best: exactly where that can be had, else by greedy choice or from below.

Costs are summed over hypotheses by weight, so they are whole numbers; divided by the weight they are expected probes.
Resolved means that one class is left. All of this is for deterministic tables, where the truth determines every answer;
elsewhere only the bound from below holds.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from cmbs.analysis.table import Scale, Table, bits_of, entropy_of, mask_from

# Deeper than this a tree is not searched: the search calls itself twice for each level.
MAX_CLASSES = 300
DEFAULT_STEPS = 500_000
_CLASSES_PER_STEP = 32
_FEW_WEIGHTS = 64


class Method(StrEnum):
    """What a number of probes was compared with, from the strongest to the weakest."""

    EXACT = "exact"
    GREEDY = "greedy"
    HUFFMAN = "huffman"

    @property
    def rank(self) -> int:
        """0 for the strongest, and higher for weaker ones."""
        return list(Method).index(self)


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

    atoms: Atoms
    weights: tuple[int, ...]
    splits: tuple[Split, ...]
    arity: int

    @property
    def everything(self) -> int:
        """All classes."""
        return (1 << len(self.weights)) - 1

    @cached_property
    def _scale(self) -> Scale:
        return Scale(self.weights)

    def mass(self, mask: int) -> int:
        """What a set of classes weighs."""
        return self._scale.mass(mask)

    def of(self, alive: int) -> int:
        """The classes that a set of hypotheses has a part in."""
        return self.atoms.of(alive)

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


def classes_of(table: Table, alive: int | None = None, *, splits: bool = True) -> Classes:
    """The classes of a table as atoms; of those hypotheses only that are alive. Without splits where none are asked."""
    everything = table.everything if alive is None else alive
    members = table.classes_in(everything)
    atoms = Atoms(members)
    found: dict[frozenset[int], Split] = {}
    arity = 2
    for number, probe in enumerate(table.probes):
        left = probe.parts(everything)
        arity = max(arity, len(left))
        if splits and len(left) > 1:
            parts = [atoms.of(part) for part in left]
            # Sorted, so that a probe whose outcomes are merely listed in another order is the same split.
            found.setdefault(frozenset(parts), Split(number, tuple(sorted(parts))))
    weights = tuple(sum(table.weights[bit] for bit in each) for each in members)
    return Classes(atoms, weights, tuple(found.values()), arity)


class Atoms:
    """From sets of hypotheses to sets of classes; `members` are the positions of the hypotheses of each class."""

    def __init__(self, members: Sequence[Sequence[int]]) -> None:
        self.members = members
        self._atom_of = {bit: number for number, bits in enumerate(members) for bit in bits}
        # Each hypothesis is its own class, and sets are what they are.
        self._same = all(bit == number for bit, number in self._atom_of.items())

    def of(self, mask: int) -> int:
        """The classes that a set of hypotheses has a part in."""
        if self._same:
            return mask
        return mask_from({self._atom_of[bit] for bit in bits_of(mask)})


def huffman_cost(counts: Mapping[int, int], arity: int) -> int:
    """The total cost of the best tree there could be if any set could be split in any way: never above the optimum.

    `counts` says how many classes there are of each weight. Those of one weight are merged at once, so that this takes
    as long as there are weights, and not classes.
    """
    remaining = sum(counts.values())
    if remaining <= 1:
        return 0
    # Empty leaves make the last step a full one; without them the bound would not be a bound.
    pile = _Pile({**counts, 0: -(remaining - 1) % (arity - 1)})
    cost = 0
    while pile.total > 1:
        merged, times = pile.lightest(arity)
        cost += merged * times
        pile.put(merged, times)
    return cost


class _Pile:
    """Weights, the lightest first; `total` is how many there are."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        self._counts = {weight: count for weight, count in counts.items() if count}
        self._heap = list(self._counts)
        heapq.heapify(self._heap)
        self.total = sum(self._counts.values())

    def lightest(self, number: int) -> tuple[int, int]:
        """Take the lightest `number` of them, as often as they weigh the same: what they weigh, and how often."""
        times = self._counts[self._heap[0]] // number
        if times:
            return self._take(times * number) // times, times
        return sum(self._take(1) for _ in range(number)), 1

    def put(self, weight: int, count: int) -> None:
        """Add some."""
        if weight not in self._counts:
            self._counts[weight] = 0
            heapq.heappush(self._heap, weight)
        self._counts[weight] += count
        self.total += count

    def _take(self, count: int) -> int:
        weight = self._heap[0]
        self._counts[weight] -= count
        self.total -= count
        if not self._counts[weight]:
            del self._counts[heapq.heappop(self._heap)]
        return weight * count


class HuffmanBound:
    """The Huffman bound of sets of classes, each worked out once."""

    def __init__(self, classes: Classes) -> None:
        self._arity = classes.arity
        self._weights = classes.weights
        by_weight: dict[int, list[int]] = {}
        for bit, weight in enumerate(classes.weights):
            by_weight.setdefault(weight, []).append(bit)
        # The bound depends on how many classes of each weight there are, and on nothing else. A set for each of many
        # weights would take the memory of the classes squared, though; there they are counted one by one.
        few = len(by_weight) <= _FEW_WEIGHTS
        self._of_weight = [(weight, mask_from(bits)) for weight, bits in by_weight.items()] if few else None
        self._known: dict[Hashable, int] = {}

    def cost(self, alive: int) -> int:
        """No tree that resolves `alive` costs less."""
        key: Hashable = alive
        if self._of_weight is not None:
            key = tuple([(mask & alive).bit_count() for _, mask in self._of_weight])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = huffman_cost(self._counts(alive), self._arity)
        return known

    def _counts(self, alive: int) -> dict[int, int]:
        if self._of_weight is None:
            return Counter(self._weights[bit] for bit in bits_of(alive))
        return {weight: (mask & alive).bit_count() for weight, mask in self._of_weight}


class Greedy:
    """Always the probe with the largest expected gain, the first of the table among equals. Iterative: any depth."""

    def __init__(self, classes: Classes, steps: Steps) -> None:
        self._classes = classes
        self._steps = steps
        self._choices: dict[int, Split] = {}
        self._costs: dict[int, int] = {}

    def choose(self, alive: int) -> Split | None:
        """The split that the greedy choice makes; None where one class is left."""
        if alive & (alive - 1) == 0:
            return None
        known = self._choices.get(alive)
        if known is None:
            self._steps.take(self._classes.effort(alive))
            mass = self._classes.mass
            # A strict comparison: among equals the first of the table wins.
            best = -1.0
            for split in self._classes.splits_of(alive):
                gain = entropy_of([mass(part) for part in split.parts])
                if gain > best:
                    best, known = gain, split
            if known is None:  # pragma: no cover - two classes are told apart by a probe, or they would be one
                raise AssertionError(alive)
            self._choices[alive] = known
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
        if alive & (alive - 1) == 0:
            return None
        if alive not in self._exact:
            # Only off the tree that was found: to follow that takes no steps, or they might run out on the way.
            self.cost(alive)
        return self._exact[alive][1]

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


class OneByOne:
    """The optimum in closed form, where every probe tells one class from all others.

    Then a strategy is an order of the classes, and the best one asks for the heaviest first. A class without a probe of
    its own, of which there is one at most, is what is left in the end.
    """

    def __init__(self, classes: Classes) -> None:
        self._weights = classes.weights
        self._probes: dict[int, int] = {}
        for split in classes.splits:
            for part in split.parts:
                if part.bit_count() == 1:
                    self._probes.setdefault(part.bit_length() - 1, split.probe)
        self._order = sorted(
            range(len(self._weights)), key=lambda each: (each not in self._probes, -self._weights[each])
        )

    def cost(self, alive: int) -> int:
        """The least total cost of resolving `alive`."""
        present = set(bits_of(alive))
        weights = [self._weights[each] for each in self._order if each in present]
        # The last two are told apart by one probe.
        return sum(asked * weight for asked, weight in enumerate(weights, 1)) - (weights[-1] if weights else 0)

    def choose(self, alive: int) -> Split | None:
        """The split to begin with; None where one class is left."""
        if alive & (alive - 1) == 0:
            return None
        first = next(each for each in self._order if alive >> each & 1)
        return Split(self._probes[first], tuple(sorted((1 << first, alive & ~(1 << first)))))


def optimum_of(classes: Classes, steps: Steps) -> Optimum | OneByOne:
    """The optimum of a table: in closed form where there is one, else by search."""
    alone = all(len(each.parts) == 2 and min(map(int.bit_count, each.parts)) == 1 for each in classes.splits)  # noqa: PLR2004
    return OneByOne(classes) if alone else Optimum(classes, steps)
