"""How many probes are still to be expected at a place of a session, by one method throughout."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple, Protocol, assert_never

from cmbs.analysis.gain import Belief, Odds, after_answer, prior_belief
from cmbs.analysis.open_world import OpenBound, OpenGreedy, OpenOptimum
from cmbs.analysis.optimum import (
    Classes,
    Greedy,
    HuffmanBound,
    Method,
    OneByOne,
    Optimum,
    Steps,
    classes_of,
    optimum_of,
)
from cmbs.analysis.table import Probe, Table, bits_of

_HYPOTHESES_PER_STEP = 64
# Trees of what events from outside left; a session may have as many of those as it has events.
_MAX_TREES = 16

Solver = Optimum | OneByOne | Greedy | HuffmanBound


class Place(NamedTuple):
    """What is believed, and where trees over sets begin.

    Events from outside the kit may take part of a class. From then on the class weighs less, so that trees are of what
    such an event left: `base`.
    """

    base: int
    belief: Belief


class Prospects(Protocol):
    """What is expected from a place on. May raise OutOfSteps where finding out takes too long."""

    def allow(self, steps: int) -> Prospects:
        """The same, with so many steps for what is not known yet."""
        ...

    def probes_left(self, place: Place) -> Fraction:
        """The probes that are still to be expected."""
        ...


class SetProspects:
    """From trees over sets: for tables where each hypothesis determines every answer."""

    def __init__(self, table: Table, method: Method) -> None:
        self._table = table
        self._method = method
        self._steps = Steps(0)
        self._trees: dict[int, tuple[Classes, Solver]] = {}

    def allow(self, steps: int) -> Prospects:
        """The same, with so many steps for what is not known yet."""
        self._steps.left = steps
        return self

    def probes_left(self, place: Place) -> Fraction:
        """The probes that resolving what is left takes on average."""
        if not place.belief.alive:
            return Fraction(0)
        classes, tree = self._tree(place.base)
        atoms = classes.of(place.belief.alive)
        return Fraction(tree.cost(atoms), classes.mass(atoms))

    def _tree(self, base: int) -> tuple[Classes, Solver]:
        found = self._trees.get(base)
        if found is None:
            bound_only = self._method is Method.HUFFMAN
            if self._trees and not bound_only:
                self._steps.take(len(self._table.probes) * (1 + base.bit_count() // _HYPOTHESES_PER_STEP))
            if len(self._trees) >= _MAX_TREES:
                # Never the first, which is that of the whole table.
                del self._trees[list(self._trees)[1]]
            classes = classes_of(self._table, base, splits=not bound_only)
            found = self._trees[base] = (classes, self._solver(classes))
        return found

    def _solver(self, classes: Classes) -> Solver:
        match self._method:
            case Method.EXACT:
                return optimum_of(classes, self._steps)
            case Method.GREEDY:
                return Greedy(classes, self._steps)
            case Method.HUFFMAN:
                return HuffmanBound(classes)
            case _:
                assert_never(self._method)


class OpenProspects:
    """From trees over beliefs: for tables where a hypothesis may leave an answer open."""

    def __init__(self, tree: type[OpenGreedy], table: Table) -> None:
        self._steps = Steps(0)
        self._tree = tree(table, self._steps)

    def allow(self, steps: int) -> Prospects:
        """The same, with so many steps for what is not known yet."""
        self._steps.left = steps
        return self

    def probes_left(self, place: Place) -> Fraction:
        """The probes until nothing that could be asked would rule anything out."""
        return self._tree.branch(place.belief).probes


class OpenBoundProspects:
    """The bound from below for such tables. It takes no steps."""

    def __init__(self, table: Table) -> None:
        self._bound = OpenBound(table)

    def allow(self, steps: int) -> Prospects:  # noqa: ARG002 - it needs none
        """The same."""
        return self

    def probes_left(self, place: Place) -> Fraction:
        """The probes that are to be expected at least."""
        return self._bound.probes(place.belief)


def prospects_of(table: Table) -> dict[Method, Prospects]:
    """What can be expected on a table, by every method, the strongest first."""
    if table.deterministic:
        return {method: SetProspects(table, method) for method in Method}
    return {
        Method.EXACT: OpenProspects(OpenOptimum, table),
        Method.GREEDY: OpenProspects(OpenGreedy, table),
        Method.HUFFMAN: OpenBoundProspects(table),
    }


def start_of(table: Table) -> Place:
    """Where a session begins."""
    return Place(table.everything, prior_belief(table))


def after_asking(table: Table, prospects: Prospects, place: Place, probe: Probe, odds: Odds) -> Fraction:
    """The probes that are still to be expected once a probe was asked, before its answer is known."""
    expected = Fraction(0)
    for weight, part in odds.outcomes:
        answered = place._replace(belief=after_answer(table, place.belief, probe, part))
        expected += Fraction(weight, odds.total) * prospects.probes_left(answered)
    return expected


def after_outside(table: Table, place: Place, after: int) -> Place:
    """Where a session is once something from outside the kit left `after`."""
    before = place.belief.alive
    belief = Belief(after, place.belief.weights, place.belief.answered)
    touched = {table.class_of[bit] for bit in bits_of(before & ~after)}
    cut = any(after >> bit & 1 for number in touched for bit in table.classes[number])
    return Place(after if cut else place.base, belief)
