"""Expected gain and luck: against the average over every world that there can be."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.analysis.appraisal import Study
from cmbs.analysis.gain import Belief, after_answer, bits_between, compute_expected_gain, gains, odds_of, prior_belief
from cmbs.analysis.table import Outcome, Probe, Table, entropy_of, table_of
from tests.support.domains import World, kit_of, tables, walk, worlds

EITHER = st.booleans().flatmap(lambda each: tables(hypotheses=5, probes=4, outcomes=3, deterministic=each))
STEPS = 100_000


def orders(table: Table) -> st.SearchStrategy[list[str]]:
    """Probes to ask one after the other, some of them again."""
    ids = [probe.probe_id for probe in table.probes]
    return st.lists(st.sampled_from(ids), max_size=5) if ids else st.just([])


def mean(table: Table, value_of: Callable[[World], float]) -> float:
    return math.fsum(float(world.chance) * value_of(world) for world in worlds(table))


@given(tables())
def test_where_each_hypothesis_says_the_answer_the_gain_is_the_entropy_of_the_answer(table: Table) -> None:
    belief = prior_belief(table)
    for probe in table.probes:
        answers = entropy_of([table.mass(part) for part in probe.parts(table.everything)])
        assert compute_expected_gain(table, belief, probe) == pytest.approx(answers, abs=1e-9)


@pytest.mark.req("AN-03")
@given(EITHER, st.data())
def test_the_expected_gain_is_the_mean_of_the_gain_over_worlds(table: Table, data: st.DataObject) -> None:
    """Whatever was asked before: of all worlds that answered alike so far, the mean is what was expected."""
    order = data.draw(orders(table))
    seen: dict[tuple[str, ...], list[tuple[Fraction, float, float]]] = {}
    for world in worlds(table):
        choices = Study(table).appraise(walk(table, world, order), STEPS).choices
        for number, choice in enumerate(choices):
            assert choice is not None
            assert choice.gain is not None
            told = tuple(world.answers[probe_id] for probe_id in order[:number])
            seen.setdefault(told, []).append((world.chance, choice.gain, choice.expected_gain))
    for alike in seen.values():
        total = sum(chance for chance, _, _ in alike)
        average = math.fsum(float(chance / total) * gain for chance, gain, _ in alike)
        assert {pytest.approx(expected, abs=1e-9) == average for _, _, expected in alike} == {True}


@pytest.mark.slow
@pytest.mark.req("AN-03")
@given(EITHER, st.data())
def test_mean_luck_over_truths_is_zero(table: Table, data: st.DataObject) -> None:
    order = data.draw(orders(table))

    def luck(world: World) -> float:
        choices = Study(table).appraise(walk(table, world, order), STEPS).choices
        return math.fsum(choice.luck or 0.0 for choice in choices if choice is not None)

    assert mean(table, luck) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.req("AN-03")
@given(tables(hypotheses=5, probes=4), st.data())
def test_mean_luck_in_probes_over_truths_is_zero(table: Table, data: st.DataObject) -> None:
    order = data.draw(orders(table))

    def luck(world: World) -> float:
        found = Study(table).appraise(walk(table, world, order), STEPS).regret.luck
        assert found is not None
        return found

    assert mean(table, luck) == pytest.approx(0.0, abs=1e-9)


@given(EITHER)
def test_gains_are_sorted_and_none_is_below_zero_and_only_probes_that_matter_have_one(table: Table) -> None:
    belief = prior_belief(table)
    found = gains(table, belief)
    assert [gain.bits for gain in found] == sorted((gain.bits for gain in found), reverse=True)
    matter = {probe.probe_id for probe in table.probes if probe.matters(table.everything)}
    assert {gain.probe_id for gain in found} == matter
    assert all(gain.bits > 0 for gain in found)


@given(EITHER, st.data())
def test_the_odds_are_those_of_the_worlds(table: Table, data: st.DataObject) -> None:
    if not table.probes:
        return
    probe = data.draw(st.sampled_from(table.probes))
    total, outcomes = odds_of(table, prior_belief(table), probe)
    told: dict[int, Fraction] = {}
    for world in worlds(table):
        left = probe.consistent(world.answers[probe.probe_id]) or 0
        told[left] = told.get(left, Fraction(0)) + world.chance
    expected: dict[int, Fraction] = {}
    for weight, left in outcomes:
        expected[left] = expected.get(left, Fraction(0)) + Fraction(weight, total)
    assert expected == told


def open_world() -> Table:
    """A sign that `a` may show and `b` and `c` never do: seeing it rules them out, not seeing it rules out nothing."""
    probes = (
        Probe("sign", (Outcome("seen", 0b001), Outcome("not seen", 0b111))),
        Probe("which", (Outcome("b", 0b011), Outcome("c", 0b101))),
    )
    return Table(("a", "b", "c"), (1, 1, 1), probes)


def test_an_answer_that_rules_out_nothing_still_moves_the_odds() -> None:
    table = open_world()
    sign = table.probes[0]
    belief = prior_belief(table)
    assert odds_of(table, belief, sign) == (6, [(1, 0b001), (5, 0b111)])
    assert compute_expected_gain(table, belief, sign) == pytest.approx(1 / 6 * math.log2(3))
    later = after_answer(table, belief, sign, 0b111)
    # Had `a` been true, the sign would have been seen every other time.
    assert later == Belief(0b111, (1, 2, 2), frozenset({"sign"}))


def test_a_probe_that_was_answered_would_answer_the_same_again() -> None:
    table = open_world()
    sign = table.probes[0]
    later = after_answer(table, prior_belief(table), sign, 0b111)
    assert odds_of(table, later, sign) == (1, [(1, 0b111)])
    assert compute_expected_gain(table, later, sign) == 0.0
    assert [gain.probe_id for gain in gains(table, later)] == ["which"]
    assert after_answer(table, later, sign, 0b111) == later


def test_what_leaves_nothing_has_no_number_of_bits() -> None:
    table = open_world()
    assert bits_between(table, 0b111, 0) is None
    assert bits_between(table, 0, 0) == 0.0
    assert bits_between(table, 0b111, 0b001) == pytest.approx(math.log2(3))


@pytest.mark.parametrize("priors", [[1e300, 1e-300, 1.0], [5e-324, 1.7e308, 1.0]])
def test_priors_that_are_further_apart_than_floats_are_no_trouble(priors: list[float]) -> None:
    yes, no = frozenset({0}), frozenset({1})
    table = table_of(kit_of([[yes, no, no], [no, yes, no]], priors))
    found = gains(table, prior_belief(table))
    assert {gain.probe_id for gain in found} == {"p0", "p1"}
    assert all(math.isfinite(gain.bits) and gain.bits >= 0 for gain in found)
    rarest = table.bit(f"h{priors.index(min(priors))}")
    expected = math.log2(sum(table.weights)) - math.log2(table.mass(rarest))
    assert bits_between(table, table.everything, rarest) == pytest.approx(expected)
    assert table.residual_bits(table.everything) == 0.0
    assert entropy_of(table.weights) == pytest.approx(0.0, abs=1e-200)
