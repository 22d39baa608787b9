"""The optimum where a hypothesis may leave open how a probe is answered.

What was asked then counts, not only what is left: an answer that rules out nothing still moves the odds, and asking
again brings nothing new. So these trees are over beliefs, and much larger than those over sets. They end once nothing
that could be asked would rule anything out, whether or not one class is left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, TypeAlias

from cmbs.analysis.gain import Belief, after_answer, compute_expected_gain, odds_of
from cmbs.analysis.optimum import OutOfSteps, Steps, huffman_cost
from cmbs.analysis.table import Outcome, Probe, Table, bits_of

# More probes than this are not followed one after the other: the search calls itself four times for each.
MAX_PROBES = 150
# What a look at a probe takes, set against the steps of a search over sets: odds are sums over hypotheses.
_STEPS_PER_PROBE = 4
_HYPOTHESES_PER_STEP = 2

# What tells beliefs apart: what is left, in which proportions, and what can still be asked.
_Key: TypeAlias = tuple[int, tuple[int, ...], tuple[str, ...]]


class Branch(NamedTuple):
    """What the expected number of probes is, and the probe to begin with; None where there is nothing to ask."""

    probes: Fraction
    first: Probe | None


_OVER = Branch(Fraction(0), None)


class OpenGreedy:
    """Always the probe with the largest expected gain, the first of the table among equals."""

    def __init__(self, table: Table, steps: Steps) -> None:
        self._table = table
        self._steps = steps
        self._known: dict[_Key, Branch] = {}
        self._mattering: dict[int, list[Probe]] = {}

    def useful(self, belief: Belief) -> list[Probe]:
        """The probes that were not answered and can still rule something out."""
        mattering = self._mattering.get(belief.alive)
        if mattering is None:
            self._steps.take(1 + len(self._table.probes) // _STEPS_PER_PROBE)
            mattering = [probe for probe in self._table.probes if probe.matters(belief.alive)]
            self._mattering[belief.alive] = mattering
        return [probe for probe in mattering if probe.probe_id not in belief.answered]

    def branch(self, belief: Belief) -> Branch:
        """How a belief is resolved as far as it can be; OutOfSteps where finding out takes too long."""
        self._steps.take(1)
        useful = self.useful(belief)
        if not useful:
            return _OVER
        if len(useful) > MAX_PROBES:
            raise OutOfSteps
        key = _key(belief, useful)
        known = self._known.get(key)
        if known is None:
            self._steps.take(len(useful) * (_STEPS_PER_PROBE + belief.alive.bit_count() // _HYPOTHESES_PER_STEP))
            known = self._known[key] = self._choose(belief, useful)
        return known

    def _choose(self, belief: Belief, useful: Sequence[Probe]) -> Branch:
        expected = [compute_expected_gain(self._table, belief, probe) for probe in useful]
        probe = useful[expected.index(max(expected))]
        return Branch(1 + self._after(belief, probe), probe)

    def _after(self, belief: Belief, probe: Probe) -> Fraction:
        total, outcomes = odds_of(self._table, belief, probe)
        parts = ((Fraction(weight, total), after_answer(self._table, belief, probe, part)) for weight, part in outcomes)
        return sum((chance * self.branch(left).probes for chance, left in parts), Fraction(0))


class OpenOptimum(OpenGreedy):
    """The best probe at every place: all are tried, in the order of their expected gain."""

    def _choose(self, belief: Belief, useful: Sequence[Probe]) -> Branch:
        ranked = sorted(useful, key=lambda probe: -compute_expected_gain(self._table, belief, probe))
        best = Branch(1 + self._after(belief, ranked[0]), ranked[0])
        for probe in ranked[1:]:
            if 1 + self._at_least(belief, probe) < best.probes:
                probes = 1 + self._after(belief, probe)
                best = Branch(probes, probe) if probes < best.probes else best
        return best

    def _at_least(self, belief: Belief, probe: Probe) -> Fraction:
        """One more probe wherever an answer leaves something to ask."""
        total, outcomes = odds_of(self._table, belief, probe)
        self._steps.take(_STEPS_PER_PROBE)
        answered = belief.answered | {probe.probe_id}
        unfinished = sum(weight for weight, part in outcomes if self.useful(Belief(part, belief.weights, answered)))
        return Fraction(unfinished, total)


class OpenBound:
    """What no strategy can beat where answers are open.

    Such a game may end with several classes left, so a tree that parts all classes is no bound. It cannot end with two
    hypotheses that some probe always answers differently: the Huffman bound of sets that are apart in this way is one.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._arity = max([2, *(len(probe.outcomes) for probe in table.probes)])

    @cached_property
    def _apart(self) -> tuple[int, ...]:
        """The number of the set that each hypothesis is in."""
        table = self._table
        return Table(table.hypotheses, table.weights, tuple(map(_without_overlap, table.probes))).class_of

    def probes(self, belief: Belief) -> Fraction:
        """No strategy needs fewer on average, until nothing that could be asked would rule anything out."""
        unanswered = (probe for probe in self._table.probes if probe.probe_id not in belief.answered)
        if not any(probe.matters(belief.alive) for probe in unanswered):
            return Fraction(0)
        masses: Counter[int] = Counter()
        for bit in bits_of(belief.alive):
            masses[self._apart[bit]] += belief.weights[bit]
        cost = huffman_cost(Counter(masses.values()), self._arity)
        return max(Fraction(1), Fraction(cost, masses.total()))


def _without_overlap(probe: Probe) -> Probe:
    """A probe with one outcome for those that some hypothesis leaves open, directly or through others."""
    merged: list[int] = []
    for outcome in probe.outcomes:
        mask = outcome.consistent
        apart = []
        for each in merged:
            if each & mask:
                mask |= each
            else:
                apart.append(each)
        merged = [*apart, mask]
    return Probe(probe.probe_id, tuple(Outcome(str(number), mask) for number, mask in enumerate(merged)))


def _key(belief: Belief, useful: Sequence[Probe]) -> _Key:
    weights = [belief.weights[bit] for bit in bits_of(belief.alive)]
    shared = math.gcd(*weights)
    return belief.alive, tuple(weight // shared for weight in weights), tuple(probe.probe_id for probe in useful)
