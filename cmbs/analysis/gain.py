"""What a probe is expected to eliminate before it is asked, and what its answer then eliminated.

A hypothesis that is consistent with several outcomes of a probe is taken to answer each of them equally often, and the
same one however often it is asked. So a belief here is more than the set of survivors: weights move where an answer is
likelier under one survivor than under another. Bits, though, are always those of elimination: how much smaller the
prior mass of what survives becomes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cmbs.analysis.table import Probe, Scale, Table, bits_of, log2_ratio


class Gain(NamedTuple):
    """The expected gain of a probe, in bits."""

    probe_id: str
    bits: float


@dataclass(frozen=True)
class Belief:
    """What may still be true, how likely each of it is, and what was asked and answered on the way.

    `weights` has one entry for each hypothesis of the table; those of what is not alive mean nothing.
    """

    alive: int
    weights: tuple[int, ...]
    answered: frozenset[str] = frozenset()

    @cached_property
    def scale(self) -> Scale:
        """Every probe of a belief is weighed on the same scale."""
        return Scale(self.weights)


def prior_belief(table: Table) -> Belief:
    """The belief that a session begins with."""
    return Belief(table.everything, table.weights)


def after_answer(table: Table, belief: Belief, probe: Probe, alive: int) -> Belief:
    """The belief once a probe was answered and `alive` is left."""
    if probe.probe_id in belief.answered:
        return Belief(alive, belief.weights, belief.answered)
    answered = belief.answered | {probe.probe_id}
    if table.deterministic:
        return Belief(alive, belief.weights, answered)
    weights = list(belief.weights)
    for share, members in _shares(table, probe, alive):
        for bit in bits_of(members):
            weights[bit] *= share
    # Only proportions count, and numbers that grow with every answer would not stay numbers that a machine is quick at.
    shared = math.gcd(*(weights[bit] for bit in bits_of(alive)))
    for bit in bits_of(alive):
        weights[bit] //= shared
    return Belief(alive, tuple(weights), answered)


def bits_between(table: Table, before: int, after: int) -> float | None:
    """The bits of an elimination, by prior mass; None where it left nothing, which no number of bits describes."""
    if before == after:
        return 0.0
    return log2_ratio(table.mass(before), table.mass(after)) if after else None


class Odds(NamedTuple):
    """How likely the outcomes of a probe are: (weight, what it would leave) of each that can occur, and their sum."""

    total: int
    outcomes: list[tuple[int, int]]


def odds_of(table: Table, belief: Belief, probe: Probe) -> Odds:
    """The outcomes that a probe can have, in its order."""
    alive = belief.alive
    if probe.probe_id in belief.answered:
        # Whatever it answered is in the survivors already, and it would answer that again.
        return Odds(1, [(1, alive)])
    parts = probe.parts(alive)
    if table.deterministic:
        found = [(table.mass(part), part) for part in parts]
        return Odds(sum(weight for weight, _ in found), found)
    weights = [(weight, part) for weight, _, part in _weigh(table, belief, probe)]
    return Odds(sum(weight for weight, _ in weights), weights)


def _weigh(table: Table, belief: Belief, probe: Probe, alive_mass: int | None = None) -> list[tuple[int, int, int]]:
    """Of each outcome that a probe can have: its weight, what the survivors weigh that it leaves, and which these are.

    Weighing is what takes long. Survivors that every outcome of a probe leaves are not weighed again for each, and of
    the sets that divide all survivors, the last follows from the others.
    """
    shares = _shares(table, probe, belief.alive)
    mass = table.mass if belief.weights is table.weights else belief.scale.mass
    found, known = [], dict[int, int]()

    def weigh_share(number: int) -> int:
        if number not in known:
            if number == len(shares) - 1:
                others = sum(map(weigh_share, range(number)))
                known[number] = (mass(belief.alive) if alive_mass is None else alive_mass) - others
            else:
                known[number] = mass(shares[number][1])
        return known[number]

    for part in probe.parts(belief.alive):
        weight = left = 0
        for number, (share, members) in enumerate(shares):
            both = part & members
            if both:
                each = weigh_share(number) if both == members else mass(both)
                weight += share * each
                left += each
        found.append((weight, left, part))
    return found


def compute_expected_gain(table: Table, belief: Belief, probe: Probe, alive_mass: int | None = None) -> float:
    """The bits that asking a probe is expected to eliminate; 0 where it cannot rule anything out.

    `alive_mass` is the prior mass of what is alive, where it is known: weighing it again would take as long as a probe.
    """
    if table.deterministic or probe.probe_id in belief.answered:
        total, outcomes = odds_of(table, belief, probe)
        # The weight of an outcome is the prior mass that it leaves.
        terms = [weight / total * log2_ratio(total, weight) for weight, _ in outcomes]
    else:
        before = table.mass(belief.alive) if alive_mass is None else alive_mass
        own = belief.weights is table.weights
        weighed = _weigh(table, belief, probe, before if own else None)
        total = sum(weight for weight, _, _ in weighed)
        terms = [
            weight / total * log2_ratio(before, mass if own else table.mass(left)) for weight, mass, left in weighed
        ]
    # Sorted, so that probes which split alike come out alike to the last digit.
    return math.fsum(sorted(terms))


def gains(table: Table, belief: Belief) -> list[Gain]:
    """Every probe that can still rule something out, the best first, equals in the order of the table."""
    alive_mass = table.mass(belief.alive)
    found = [
        Gain(probe.probe_id, compute_expected_gain(table, belief, probe, alive_mass))
        for probe in table.probes
        if probe.probe_id not in belief.answered and probe.matters(belief.alive)
    ]
    return sorted(found, key=lambda gain: -gain.bits)


def _shares(table: Table, probe: Probe, alive: int) -> list[tuple[int, int]]:
    """How likely any one of its answers is under each survivor: whole numbers in those proportions, and under which."""
    ways = [(number, left) for number, members in table.ways[probe.probe_id] if (left := members & alive)]
    multiple = math.lcm(*(number for number, _ in ways))
    return [(multiple // number, left) for number, left in ways]
