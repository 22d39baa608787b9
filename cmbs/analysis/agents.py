"""Scripted agents: ways to choose the next probe, to have something that a real agent can be compared with.

They are given the kit and what is left, never the truth. Nothing in the belief server uses them.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple, Protocol

from cmbs.analysis.appraisal import TOO_MUCH_WORK
from cmbs.analysis.gain import Belief, gains, prior_belief
from cmbs.analysis.open_world import OpenOptimum
from cmbs.analysis.optimum import Classes, OutOfSteps, Steps, classes_of, optimum_of
from cmbs.analysis.table import Probe, Table

# Orders that the random agent tries, each with every truth: one alone would say little of the others.
RANDOM_ROUNDS = 3


class AgentName(StrEnum):
    """The agents there are, from the most naive on."""

    FIXED = "fixed"
    RANDOM = "random"
    GREEDY = "greedy"
    OPTIMAL = "optimal"


class Agent(Protocol):
    """Chooses probes, one game after another."""

    def choose(self, belief: Belief) -> str | None:
        """The probe to ask next; None where it has none left to ask."""
        ...


class InOrder:
    """Asks one probe after the other, whether or not it can still tell anything."""

    def __init__(self, order: list[str]) -> None:
        self._order = order

    def choose(self, belief: Belief) -> str | None:
        """The first that was not answered yet."""
        return next((probe_id for probe_id in self._order if probe_id not in belief.answered), None)


class GreedyAgent:
    """Asks what is expected to tell most, the first of the kit among equals."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._known: dict[tuple[int, frozenset[str]], str | None] = {}

    def choose(self, belief: Belief) -> str | None:
        """The probe with the largest expected gain."""
        key = (belief.alive, frozenset() if self._table.deterministic else belief.answered)
        if key not in self._known:
            best = next(iter(gains(self._table, belief)), None)
            self._known[key] = None if best is None else best.probe_id
        return self._known[key]


class OptimalAgent:
    """Follows an optimal decision tree over sets; for tables where each hypothesis determines every answer."""

    def __init__(self, table: Table, steps: int) -> None:
        """Find the tree; OutOfSteps where that takes too long."""
        self._table = table
        self._classes: Classes = classes_of(table)
        self._tree = optimum_of(self._classes, Steps(steps))
        self._tree.cost(self._classes.everything)

    def choose(self, belief: Belief) -> str | None:
        """The probe at this place of the tree."""
        split = self._tree.choose(self._classes.of(belief.alive))
        return None if split is None else self._table.probes[split.probe].probe_id


class OpenOptimalAgent:
    """The same over beliefs, for tables where a hypothesis may leave an answer open."""

    def __init__(self, table: Table, steps: int) -> None:
        """Find the tree; OutOfSteps where that takes too long."""
        self._allowed = steps
        self._steps = Steps(steps)
        self._tree = OpenOptimum(table, self._steps)
        self._tree.branch(prior_belief(table))

    def choose(self, belief: Belief) -> str | None:
        """The probe at this place of the tree."""
        # The tree is known from here on. Looking it up takes steps all the same, and games must not use them up.
        self._steps.left = self._allowed
        first = self._tree.branch(belief).first
        return None if first is None else first.probe_id


def shuffle(probe_ids: list[str], seed: str) -> list[str]:
    """The probes in an order that follows from the seed alone, on every machine."""
    return sorted(probe_ids, key=lambda probe_id: draw_number(seed, probe_id))


def answer_of(table: Table, probe: Probe, truth: str, seed: str) -> str:
    """What the world answers where `truth` is true; where it may answer several things, one that the seed draws."""
    possible = [each.outcome_id for each in probe.outcomes if each.consistent & table.bit(truth)]
    return possible[draw_number(seed, truth, probe.probe_id) % len(possible)]


class Players(NamedTuple):
    """Who plays, each agent as one player a round; and who cannot, and why.

    A player plays every truth alike. One with other dice for every truth could be luckier than the best.
    """

    players: dict[AgentName, list[Agent]]
    absent: dict[AgentName, str]


def agents_for(table: Table, seed: str, steps: int) -> Players:
    """The agents that can play on a table."""
    order = [probe.probe_id for probe in table.probes]
    players: dict[AgentName, list[Agent]] = {
        AgentName.FIXED: [InOrder(order)],
        AgentName.RANDOM: [InOrder(shuffle(order, f"{seed}/{number}")) for number in range(RANDOM_ROUNDS)],
        AgentName.GREEDY: [GreedyAgent(table)],
    }
    try:
        optimal = OptimalAgent(table, steps) if table.deterministic else OpenOptimalAgent(table, steps)
    except OutOfSteps:
        return Players(players, {AgentName.OPTIMAL: TOO_MUCH_WORK})
    players[AgentName.OPTIMAL] = [optimal]
    return Players(players, {})


def sample_truths(table: Table, seed: str, size: int | None) -> list[str]:
    """Some of the hypotheses, in the order of the table: which ones follows from the seed; all, without a size."""
    if size is None or size >= len(table.hypotheses):
        return list(table.hypotheses)
    drawn = set(sorted(table.hypotheses, key=lambda each: draw_number(seed, "sample", each))[:size])
    return [each for each in table.hypotheses if each in drawn]


def draw_number(*parts: str) -> int:
    """A number below 2^64 that follows from texts alone, on every machine."""
    framed = "".join(f"{len(part)}:{part}" for part in parts)
    return int.from_bytes(sha256(framed.encode()).digest()[:8], "big")
