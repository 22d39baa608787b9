"""Curves of strategies: the mean of playing out every truth, and absent where that takes too long."""

import math

import pytest
from hypothesis import given

from cmbs.analysis import KitStudy, Method, analyse, trajectory_of
from cmbs.analysis.agents import Agent, GreedyAgent, OptimalAgent, answer_of
from cmbs.analysis.appraisal import TOO_MUCH_WORK
from cmbs.analysis.curves import TOO_MANY_PLACES, compute_curves
from cmbs.analysis.gain import after_answer, prior_belief
from cmbs.analysis.table import Table, table_of
from cmbs.belief.server import BeliefServer
from cmbs.kit import KitProvider, ontology_of
from tests.support.domains import kit_of, tables

pytestmark = pytest.mark.req("CONSOLE-GHOSTS-01")
YES, NO, OPEN = frozenset({0}), frozenset({1}), frozenset({0, 1})
STEPS = 100_000
# Two probes halve what is left; the first in the table tells one cause from three.
HALVES = kit_of([[YES, NO, NO, NO], [YES, YES, NO, NO], [YES, NO, YES, NO]], [1.0] * 4)


def play(table: Table, agent: Agent, truth: str) -> list[float]:
    """The bits left after each probe of one game."""
    belief = prior_belief(table)
    bits = [math.log2(belief.alive.bit_count())]
    while (chosen := agent.choose(belief)) is not None:
        probe = table.probe(chosen)
        assert probe is not None
        left = belief.alive & (probe.consistent(answer_of(table, probe, truth, "")) or 0)
        belief = after_answer(table, belief, probe, left)
        bits.append(math.log2(left.bit_count()))
    return bits


@given(tables(hypotheses=6, probes=5))
def test_a_curve_is_the_mean_of_the_games_by_the_priors(table: Table) -> None:
    agents: dict[Method, Agent] = {Method.GREEDY: GreedyAgent(table), Method.EXACT: OptimalAgent(table, STEPS)}
    found = compute_curves(table, Method.EXACT, "", STEPS)
    assert [each.strategy for each in found] == [Method.GREEDY, Method.EXACT]
    for finding in found:
        games = [play(table, agents[finding.strategy], truth) for truth in table.hypotheses]
        longest = max(map(len, games))
        mean = [
            sum(weight * game[min(asked, len(game) - 1)] for weight, game in zip(table.weights, games, strict=True))
            / sum(table.weights)
            for asked in range(longest)
        ]
        assert finding.bits_left == pytest.approx(mean)
        assert finding.reason == ""


def test_halving_is_followed_by_both_strategies() -> None:
    for finding in compute_curves(table_of(HALVES), Method.EXACT, "", STEPS):
        assert finding.bits_left == [2.0, 1.0, 0.0]


def test_answers_that_are_left_open_are_followed_by_their_odds() -> None:
    table = table_of(kit_of([[YES, OPEN]], [1.0, 1.0]))
    for finding in compute_curves(table, Method.EXACT, "", STEPS):
        # One in four answers with what only the second hypothesis can say.
        assert finding.bits_left == [1.0, 0.75]


def test_what_takes_too_long_is_absent_and_says_so() -> None:
    table = table_of(HALVES)
    greedy, optimal = compute_curves(table, Method.GREEDY, TOO_MUCH_WORK, 8)
    assert (greedy.bits_left, greedy.reason) == (None, TOO_MANY_PLACES)
    assert (optimal.strategy, optimal.bits_left, optimal.reason) == (Method.EXACT, None, TOO_MUCH_WORK)


def test_an_analysis_has_the_curves_of_its_kit_and_finds_them_once() -> None:
    server = BeliefServer(belief_provider=KitProvider(HALVES))
    session_id, _ = server.declare_session(ontology_of(HALVES))
    trajectory, study = trajectory_of(server.audit_trace(session_id)), KitStudy(HALVES)
    first, second = analyse(trajectory, study).kit, analyse(trajectory, study).kit
    assert first is not None
    assert second is not None
    assert [each.bits_left for each in first.strategies] == [[2.0, 1.0, 0.0]] * 2
    assert first.strategies is second.strategies
