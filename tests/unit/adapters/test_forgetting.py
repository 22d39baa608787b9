"""Agents that forget, alone and with a server: what is counted, and what the server makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.adapters.forgetting import Memory, Worth, compare_memories
from cmbs.adapters.kits import load_kit
from cmbs.adapters.scoreboard import play_all
from cmbs.analysis.agents import RANDOM_ROUNDS, sample_truths
from cmbs.analysis.table import table_of
from cmbs.kit import Kit
from cmbs.testing.strategies.kits import kits
from scripts.check_docs import ROOT

ANIMALS = load_kit(ROOT / "examples" / "eight_animals.yaml")


def play(kit: Kit, forget: float, seed: str = "0", sample: int | None = None) -> dict[Memory, Worth]:
    return {each.memory: each for each in compare_memories(kit, forget, seed, sample)}


@pytest.mark.deep
@pytest.mark.req("WORTH-03")
@given(kits(max_hypotheses=5, max_probes=4, deterministic=True), st.floats(0, 1), st.integers(0, 3))
def test_with_the_server_nothing_is_looked_at_twice_and_no_cause_is_mistaken(
    kit: Kit, forget: float, seed: int
) -> None:
    found = play(kit, forget, str(seed))[Memory.SERVER]
    assert (found.repeated_mean, found.wrong, found.wrong_actions, found.undecided) == (0, 0, 0, 0)
    assert found.right == found.games == len(kit.hypotheses)
    assert found.probes_mean <= len(kit.probes)


@pytest.mark.deep
@pytest.mark.req("WORTH-03")
@given(kits(max_hypotheses=5, max_probes=4), st.floats(0, 1))
def test_every_game_is_counted_once_and_actions_are_those_on_what_was_concluded(kit: Kit, forget: float) -> None:
    for found in play(kit, forget).values():
        assert found.right + found.wrong + found.undecided == found.games
        assert found.wrong_actions == found.wrong
    assert play(kit, 0.0)[Memory.ALONE].repeated_mean == 0


@pytest.mark.req("WORTH-03")
def test_agents_that_forget_look_again_invent_and_mistake_the_cause_and_the_server_refuses_that() -> None:
    found = play(ANIMALS, 0.5)
    alone, served = found[Memory.ALONE], found[Memory.SERVER]
    assert alone.repeated_mean > 0
    assert alone.wrong > served.wrong
    assert served.refused_mean > 0 == alone.refused_mean
    assert play(ANIMALS, 0.5) == found
    assert play(ANIMALS, 0.5, seed="1") != found


@pytest.mark.req("WORTH-04")
def test_a_sample_of_the_truths_follows_from_the_seed_and_keeps_the_order_of_the_kit() -> None:
    table = table_of(ANIMALS)
    drawn = sample_truths(table, "0", 3)
    assert len(drawn) == 3
    assert drawn == [each for each in table.hypotheses if each in drawn] == sample_truths(table, "0", 3)
    assert {tuple(sample_truths(table, str(seed), 3)) for seed in range(9)} > {tuple(drawn)}
    assert sample_truths(table, "0", 99) == sample_truths(table, "0", None) == list(table.hypotheses)
    board = play_all(ANIMALS, sample=3)
    assert board.truths == 3
    assert {score.games for score in board.scores} == {3, 3 * RANDOM_ROUNDS}
    assert play(ANIMALS, 0.5, sample=2)[Memory.ALONE].games == 2
