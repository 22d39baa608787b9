"""How fast a strategy narrows a kit down, on average over what may be true: something to hold a session against."""

from __future__ import annotations

import math

from cmbs.analysis.agents import Agent, GreedyAgent, OpenOptimalAgent, OptimalAgent
from cmbs.analysis.findings import StrategyFinding
from cmbs.analysis.gain import Belief, after_answer, odds_of, prior_belief
from cmbs.analysis.optimum import Method, OutOfSteps, Steps
from cmbs.analysis.table import Table
from cmbs.core import entropy

TOO_MANY_PLACES = "following the strategy takes more steps than were allowed"
_HYPOTHESES_PER_STEP = 64
# Of the steps of an analysis, so many parts go into following a strategy: a curve is the least of what it is asked for.
_SHARE = 4


def compute_curves(table: Table, optimum: Method, reason: str, steps: int) -> list[StrategyFinding]:
    """The greedy curve, then the optimal one, each absent where it takes too long.

    `optimum` is the strongest method that so many steps were enough for from the start, and `reason` says why there is
    no stronger one.
    """
    greedy = _follow(Method.GREEDY, table, steps)
    if optimum is not Method.EXACT:
        return [greedy, StrategyFinding(strategy=Method.EXACT, bits_left=None, reason=reason)]
    return [greedy, _follow(Method.EXACT, table, steps)]


def _follow(strategy: Method, table: Table, steps: int) -> StrategyFinding:
    try:
        curve = _measure(table, _agent(strategy, table, steps), Steps(steps // _SHARE))
    except OutOfSteps:
        return StrategyFinding(strategy=strategy, bits_left=None, reason=TOO_MANY_PLACES)
    return StrategyFinding(strategy=strategy, bits_left=curve, reason="")


def _agent(strategy: Method, table: Table, steps: int) -> Agent:
    if strategy is Method.GREEDY:
        return GreedyAgent(table)
    return OptimalAgent(table, steps) if table.deterministic else OpenOptimalAgent(table, steps)


def _measure(table: Table, agent: Agent, steps: Steps) -> list[float]:
    """The bits that are left after each probe, beginning with none; OutOfSteps where there are too many places."""
    level = [(1.0, prior_belief(table))]
    over = 0.0
    curve = [entropy(len(table.hypotheses))]
    while True:
        following: list[tuple[float, Belief]] = []
        for chance, belief in level:
            alive = belief.alive.bit_count()
            steps.take(1 + len(table.probes) * (1 + alive // _HYPOTHESES_PER_STEP))
            probe_id = agent.choose(belief)
            probe = None if probe_id is None else table.probe(probe_id)
            if probe is None:
                over += chance * entropy(alive)
                continue
            total, outcomes = odds_of(table, belief, probe)
            following += [
                (chance * (weight / total), after_answer(table, belief, probe, part)) for weight, part in outcomes
            ]
        if not following:
            return curve
        level = following
        curve.append(over + math.fsum(chance * entropy(belief.alive.bit_count()) for chance, belief in level))
