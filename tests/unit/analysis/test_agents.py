"""Scripted agents: what they choose, and who can play."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.analysis.agents import (
    RANDOM_ROUNDS,
    AgentName,
    GreedyAgent,
    InOrder,
    OptimalAgent,
    agents_for,
    answer_of,
    shuffle,
)
from cmbs.analysis.gain import Belief, after_answer, compute_expected_gain, prior_belief
from cmbs.analysis.optimum import OutOfSteps
from cmbs.analysis.table import Table, table_of
from tests.support.domains import kit_of, tables

YES, NO, OPEN = frozenset({0}), frozenset({1}), frozenset({0, 1})
HALVES = table_of(kit_of([[YES, NO, NO, NO], [YES, YES, NO, NO], [YES, NO, YES, NO]], [1.0] * 4))


def test_a_fixed_order_is_kept_whatever_is_answered_until_it_ends() -> None:
    agent = InOrder(["b", "a"])
    beliefs = [Belief(0b1, (1,), frozenset(answered)) for answered in ("", "b", "ab")]
    assert [agent.choose(belief) for belief in beliefs] == ["b", "a", None]


def test_a_shuffle_follows_from_its_seed_alone() -> None:
    probes = list("abcdefgh")
    assert shuffle(probes, "1") == shuffle(probes[::-1], "1")
    assert sorted(shuffle(probes, "1")) == probes
    assert len({tuple(shuffle(probes, str(seed))) for seed in range(20)}) > 10


@given(tables(deterministic=False))
def test_no_probe_promises_more_than_the_greedy_one(table: Table) -> None:
    belief = prior_belief(table)
    chosen = GreedyAgent(table).choose(belief)
    expected = {probe.probe_id: compute_expected_gain(table, belief, probe) for probe in table.probes}
    if chosen is None:
        assert max(expected.values(), default=0.0) == 0.0
    else:
        assert expected[chosen] == max(expected.values())


def test_a_greedy_agent_remembers_what_was_asked_where_that_matters() -> None:
    table = table_of(kit_of([[YES, OPEN], [YES, OPEN]], [1.0, 1.0]))
    agent, belief = GreedyAgent(table), prior_belief(table)
    first = agent.choose(belief)
    assert first == "p0"
    assert agent.choose(belief) == first
    silent = after_answer(table, belief, table.probes[0], belief.alive)
    assert agent.choose(silent) == "p1"


def test_agents_with_nothing_left_to_ask_say_so() -> None:
    resolved = Belief(0b0001, HALVES.weights)
    assert GreedyAgent(HALVES).choose(resolved) is None
    assert OptimalAgent(HALVES, 1000).choose(resolved) is None


@given(tables(deterministic=False), st.text(max_size=3))
def test_what_the_world_answers_never_contradicts_the_truth(table: Table, seed: str) -> None:
    for probe in table.probes:
        for truth in table.hypotheses:
            consistent = probe.consistent(answer_of(table, probe, truth, seed))
            assert consistent is not None
            assert consistent & table.bit(truth)


def test_who_cannot_play_is_absent_and_why() -> None:
    everyone = agents_for(HALVES, "0", 1000)
    assert (list(everyone.players), everyone.absent) == (list(AgentName), {})
    unsearched = agents_for(HALVES, "0", 0)
    assert list(unsearched.players) == [AgentName.FIXED, AgentName.RANDOM, AgentName.GREEDY]
    assert "more steps" in unsearched.absent[AgentName.OPTIMAL]
    with pytest.raises(OutOfSteps):
        OptimalAgent(HALVES, 0)


def test_where_answers_are_open_the_optimal_agent_minds_what_was_asked() -> None:
    table = table_of(kit_of([[YES, OPEN], [YES, OPEN]], [1.0, 1.0]))
    (agent,) = agents_for(table, "0", 1000).players[AgentName.OPTIMAL]
    belief = prior_belief(table)
    asked = []
    for _ in table.probes:
        chosen = agent.choose(belief)
        assert chosen is not None
        asked.append(chosen)
        probe = table.probe(chosen)
        assert probe is not None
        belief = after_answer(table, belief, probe, belief.alive)
    assert (sorted(asked), agent.choose(belief)) == (["p0", "p1"], None)


def test_every_agent_has_a_player_and_the_random_one_several() -> None:
    belief = prior_belief(HALVES)
    players = agents_for(HALVES, "0", 1000).players
    chosen = {name: [player.choose(belief) for player in own] for name, own in players.items()}
    assert (chosen[AgentName.FIXED], chosen[AgentName.GREEDY], chosen[AgentName.OPTIMAL]) == (["p0"], ["p1"], ["p1"])
    assert len(chosen[AgentName.RANDOM]) == RANDOM_ROUNDS
