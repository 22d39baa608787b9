"""The scoreboard: scripted agents on real servers, and the figures of the ITBench alerts."""

import math
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmbs.adapters.scoreboard import Round, Score, Scoreboard, play_all
from cmbs.analysis import KitStudy, Method, analyse, table_of, trajectory_of
from cmbs.analysis.agents import RANDOM_ROUNDS, AgentName
from cmbs.analysis.gain import gains, prior_belief
from cmbs.belief.server import BeliefServer
from cmbs.kit import Kit, KitHypothesis, KitOutcome, KitProbe, KitProvider, Soundness, ontology_of
from tests.support.domains import kit_of, kits
from tests.support.effort import EFFORT
from tests.support.itbench import load_derived, needs_itbench

YES, NO, OPEN = frozenset({0}), frozenset({1}), frozenset({0, 1})
HALVES = kit_of([[YES, NO, NO, NO], [YES, YES, NO, NO], [YES, NO, YES, NO]], [1.0] * 4)


def known(figure: float | None) -> float:
    """A figure that is known, because its optimum is."""
    assert figure is not None
    return figure


def score(board: Scoreboard, agent: AgentName) -> Score:
    return next(each for each in board.scores if each.agent is agent)


@pytest.mark.req("AN-10")
def test_every_agent_finds_every_truth_and_the_better_ones_ask_less() -> None:
    board = play_all(HALVES)
    assert [each.agent for each in board.scores] == list(AgentName)
    assert [(each.games, each.found) for each in board.scores] == [(4, 4), (12, 12), (4, 4), (4, 4)]
    assert {each.bits_mean for each in board.scores} == {2.0}
    assert (board.optimum, board.method, board.reason, board.absent) == (2.0, Method.EXACT, "", {})
    optimal, fixed = score(board, AgentName.OPTIMAL), score(board, AgentName.FIXED)
    assert (optimal.probes_mean, optimal.probes_worst, optimal.regret_mean, optimal.redundancy) == (2.0, 2, 0.0, 0.0)
    # `h0` is told by the first probe, by luck; `h1` by the first two; the others take all three.
    assert (fixed.probes_mean, fixed.probes_worst) == (2.25, 3)
    assert fixed.regret_mean == pytest.approx(0.25)


def test_the_same_seed_gives_the_same_board() -> None:
    assert play_all(HALVES, "7") == play_all(HALVES, "7")


def test_priors_weigh_the_games() -> None:
    kit = kit_of([[YES, NO, NO], [NO, YES, NO]], [8.0, 1.0, 1.0])
    board = play_all(kit)
    # The likely one is told at once, the others by a second question.
    assert score(board, AgentName.OPTIMAL).probes_mean == pytest.approx(1.2)
    assert board.optimum == pytest.approx(1.2)


def test_where_answers_are_open_games_end_once_nothing_more_can_be_learnt() -> None:
    kit = kit_of([[YES, OPEN, OPEN], [OPEN, OPEN, OPEN]], [1.0] * 3)
    board = play_all(kit)
    assert (board.absent, board.method, board.deterministic) == ({}, Method.EXACT, False)
    assert {each.probes_worst for each in board.scores} <= {1, 2}
    assert score(board, AgentName.GREEDY).probes_worst == score(board, AgentName.OPTIMAL).probes_worst == 1


def test_an_observer_sees_every_truth_of_every_agent() -> None:
    seen: list[tuple[str, str]] = []

    def watch(rounds: Sequence[Round], agent: str) -> Iterator[Round]:
        for player, truth in rounds:
            seen.append((agent, truth))
            yield player, truth

    play_all(HALVES, watch=watch)
    assert {agent: [truth for name, truth in seen if name == agent] for agent in AgentName} == {
        agent: [hypothesis.id for hypothesis in HALVES.hypotheses] * (RANDOM_ROUNDS if agent == "random" else 1)
        for agent in AgentName
    }


@pytest.mark.req("AN-10")
@settings(max_examples=EFFORT.examples_for(15))
@given(kits(hypotheses=6, probes=4), st.integers(0, 9))
def test_no_agent_beats_the_optimal_one_which_has_no_regret(kit: Kit, seed: int) -> None:
    board = play_all(kit, str(seed))
    optimal = score(board, AgentName.OPTIMAL)
    assert optimal.probes_mean == pytest.approx(board.optimum)
    assert optimal.regret_mean == pytest.approx(0.0, abs=1e-9)
    for each in board.scores:
        assert each.probes_mean >= known(board.optimum) - 1e-9
        assert each.found == each.games
        assert each.luck_mean == pytest.approx(0.0, abs=1e-9)
        assert each.probes_mean == pytest.approx(known(board.optimum) + known(each.regret_mean), abs=1e-9)


# --- the figures of the ITBench alerts, in a closed world with a uniform prior ---


def alerts(*agreement: str) -> Kit:
    """The kit of the derived alerts: a fault fires what it lists, and nothing else."""
    document = load_derived("alert_kit.json")
    faults = [each for each in document["hypotheses"] if not agreement or each["label_agreement"] in agreement]
    ids = frozenset(each["id"] for each in faults)
    probes = []
    for probe in document["probes"]:
        firing = frozenset(each["id"] for each in faults if probe["id"] in each["fires"])
        outcomes = (
            KitOutcome("firing", ids - firing, Soundness.SOUND),
            KitOutcome("silent", firing, Soundness.CLOSED_WORLD),
        )
        probes.append(KitProbe(probe["id"], "", outcomes))
    return Kit("alerts", "1", "", tuple(KitHypothesis(each["id"]) for each in faults), tuple(probes))


@pytest.mark.req("AN-10")
@settings(max_examples=EFFORT.examples_for(15))
@given(kits(hypotheses=7, probes=5), st.integers(0, 400))
def test_however_few_steps_all_games_are_held_against_one_optimum(kit: Kit, steps: int) -> None:
    board = play_all(kit, steps=steps)
    for each in board.scores:
        if board.method is Method.HUFFMAN:
            # Only a bound is known, so nothing is said to be lost by choices.
            assert (board.optimum, each.regret_mean, each.luck_mean) == (None, None, None)
            continue
        assert each.probes_mean == pytest.approx(known(board.optimum) + known(each.regret_mean) - known(each.luck_mean))
        if board.method is Method.EXACT:
            assert each.luck_mean == pytest.approx(0.0, abs=1e-9)


@settings(max_examples=EFFORT.examples_for(15))
@given(kits(hypotheses=4, probes=4, outcomes=2, deterministic=False), st.integers(0, 400))
def test_an_agent_that_knows_its_tree_plays_to_the_end(kit: Kit, steps: int) -> None:
    board = play_all(kit, steps=steps)
    assert (AgentName.OPTIMAL in board.absent) == (len(board.scores) == len(AgentName) - 1)


@pytest.mark.deep
def test_a_path_that_takes_more_steps_weakens_the_method_for_all() -> None:
    """The start is soon seen through; sets that only a poor order of probes leads to are not."""
    columns = [[frozenset({number % base}) for number in range(12)] for base in (2, 3, 4, 5)]
    kit = kit_of(columns, [1.0] * 12)
    methods = [play_all(kit, steps=steps).method for steps in (*range(0, 120, 6), 10**6)]
    assert methods == sorted(methods, key=lambda method: -method.rank)
    assert set(methods) == set(Method)


def test_priors_beyond_what_floats_hold_are_weighed() -> None:
    board = play_all(kit_of([[YES, NO, NO], [NO, YES, NO]], [1e300, 1e-300, 1.0]))
    assert score(board, AgentName.OPTIMAL).probes_mean == pytest.approx(1.0)
    assert score(board, AgentName.OPTIMAL).probes_worst == 2


@pytest.mark.deep
@pytest.mark.req("AN-11")
@needs_itbench
@pytest.mark.parametrize(
    ("agreement", "size", "classes", "residual", "optimum", "greedy", "worst"),
    [
        pytest.param((), 61, 53, 0.275, 6.082, 6.164, 10, id="all"),
        pytest.param(("agree", "name-variant"), 53, 48, 0.189, 5.887, 5.906, 9, id="clean"),
    ],
)
def test_the_figures_of_the_alerts(
    agreement: tuple[str, ...], size: int, classes: int, residual: float, optimum: float, greedy: float, worst: int
) -> None:
    board = play_all(alerts(*agreement))
    assert (board.hypotheses, board.classes, round(board.residual_bits, 3)) == (size, classes, residual)
    assert (round(known(board.optimum), 3), board.method) == (optimum, Method.EXACT)
    found = score(board, AgentName.GREEDY)
    assert (round(found.probes_mean, 3), found.probes_worst) == (greedy, worst)
    assert round(score(board, AgentName.OPTIMAL).probes_mean, 3) == optimum
    assert all(each.found == each.games for each in board.scores)


@pytest.mark.req("AN-11")
@needs_itbench
def test_the_first_probe_on_the_clean_alerts() -> None:
    table = table_of(alerts("agree", "name-variant"))
    first = gains(table, prior_belief(table))[0]
    assert (first.probe_id, round(first.bits, 3)) == ("HighRequestErrorRate@checkout", 0.979)


@needs_itbench
def test_a_session_on_the_clean_alerts_is_held_against_the_exact_optimum() -> None:
    kit = alerts("agree", "name-variant")
    server = BeliefServer(belief_provider=KitProvider(kit))
    session_id, _ = server.declare_session(ontology_of(kit))
    server.apply_probe(session_id, "HighRequestErrorRate@checkout", "silent")
    analysis = analyse(trajectory_of(server.audit_trace(session_id)), KitStudy(kit))
    assert analysis.kit is not None
    choice = analysis.timeline[0].choice
    assert choice is not None
    assert choice.value_ratio == 1.0
    assert (analysis.kit.regret.method, round(known(analysis.kit.regret.optimum), 3)) == (Method.EXACT, 5.887)
    assert math.isclose(analysis.kit.gain or 0.0, analysis.bits or 0.0)
