"""The optimum where answers are open: against every strategy, played out in every world."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.analysis import Method
from cmbs.analysis.appraisal import Study
from cmbs.analysis.gain import Belief, prior_belief
from cmbs.analysis.open_world import MAX_PROBES, Branch, OpenBound, OpenGreedy, OpenOptimum
from cmbs.analysis.optimum import Optimum, OutOfSteps, Steps, classes_of
from cmbs.analysis.prospects import OpenBoundProspects
from cmbs.analysis.table import Table, table_of
from tests.support.domains import World, kit_of, tables, walk, worlds

YES, NO, OPEN = frozenset({0}), frozenset({1}), frozenset({0, 1})
PLENTY = 10**9
SMALL = tables(hypotheses=4, probes=3, outcomes=2, deterministic=False)


def fewest_probes(table: Table, possible: list[World], alive: int, unasked: frozenset[str]) -> Fraction:
    """The mean over the worlds that are still possible, for the best strategy, by trying all of them."""
    total = sum((world.chance for world in possible), Fraction(0))
    found = []
    for probe in table.probes:
        if probe.probe_id not in unasked or not probe.matters(alive):
            continue
        answers: dict[str, list[World]] = {}
        for world in possible:
            answers.setdefault(world.answers[probe.probe_id], []).append(world)
        expected = Fraction(1)
        for answer, own in answers.items():
            chance = sum((world.chance for world in own), Fraction(0)) / total
            left = alive & (probe.consistent(answer) or 0)
            expected += chance * fewest_probes(table, own, left, unasked - {probe.probe_id})
        found.append(expected)
    return min(found, default=Fraction(0))


@pytest.mark.req("AN-04")
@given(SMALL)
def test_the_optimum_is_that_of_the_best_strategy_in_all_worlds(table: Table) -> None:
    everything = [*worlds(table)]
    expected = fewest_probes(table, everything, table.everything, frozenset(probe.probe_id for probe in table.probes))
    assert OpenOptimum(table, Steps(PLENTY)).branch(prior_belief(table)).probes == expected


@pytest.mark.req("AN-04")
@given(SMALL)
def test_greedy_is_no_better_than_the_optimum(table: Table) -> None:
    belief = prior_belief(table)
    assert (
        OpenGreedy(table, Steps(PLENTY)).branch(belief).probes
        >= OpenOptimum(table, Steps(PLENTY)).branch(belief).probes
    )


@given(tables(hypotheses=5, probes=4))
def test_where_nothing_is_open_the_optimum_is_that_over_sets(table: Table) -> None:
    classes = classes_of(table)
    cost = Optimum(classes, Steps(PLENTY)).cost(classes.everything)
    found = OpenOptimum(table, Steps(PLENTY)).branch(prior_belief(table))
    assert found.probes == Fraction(cost, classes.mass(classes.everything))


@given(SMALL, st.data())
def test_choices_have_no_regret_below_zero_and_luck_is_zero_on_average(table: Table, data: st.DataObject) -> None:
    ids = [probe.probe_id for probe in table.probes]
    order = data.draw(st.lists(st.sampled_from(ids), max_size=4)) if ids else []
    study = Study(table)
    luck = 0.0
    for world in worlds(table):
        found = study.appraise(walk(table, world, order), PLENTY)
        assert found.regret.method is Method.EXACT
        assert all((choice.regret or 0) >= 0 for choice in found.choices if choice is not None)
        luck += float(world.chance) * (found.regret.luck or 0)
    assert luck == pytest.approx(0.0, abs=1e-9)


def test_no_agent_asks_a_probe_again() -> None:
    table = table_of(kit_of([[YES, OPEN]], [1.0, 1.0]))
    asked = Belief(0b11, (1, 1), frozenset({"p0"}))
    tree = OpenOptimum(table, Steps(PLENTY))
    assert tree.useful(asked) == []
    assert tree.branch(asked) == Branch(Fraction(0), None)


def test_what_promises_most_first_is_not_always_best() -> None:
    """The two strategies differ somewhere, so that comparing them means something."""
    columns = [[YES, YES, NO, OPEN], [YES, NO, YES, OPEN], [OPEN, NO, YES, YES], [NO, OPEN, YES, NO]]
    differences = set()
    for weight in (1.0, 2.0, 5.0):
        table = table_of(kit_of(columns, [weight, 1.0, 1.0, 3.0]))
        belief = prior_belief(table)
        greedy, best = (kind(table, Steps(PLENTY)).branch(belief).probes for kind in (OpenGreedy, OpenOptimum))
        differences.add(greedy - best)
    assert max(differences) > 0


def test_work_beyond_the_steps_is_not_done() -> None:
    table = table_of(kit_of([[YES, OPEN, NO]] * 2, [1.0] * 3))
    for kind in (OpenGreedy, OpenOptimum):
        with pytest.raises(OutOfSteps):
            kind(table, Steps(5)).branch(prior_belief(table))


@given(tables(hypotheses=4, probes=3, deterministic=False))
def test_no_strategy_beats_the_bound(table: Table) -> None:
    belief = prior_belief(table)
    best = OpenOptimum(table, Steps(PLENTY)).branch(belief).probes
    assert OpenBound(table).probes(belief) <= best
    assert (OpenBound(table).probes(belief) > 0) == (best > 0)


def test_the_bound_parts_only_what_a_probe_always_answers_differently() -> None:
    """One probe, seven classes: no game is longer than one probe, whatever it leaves open."""
    cells = [frozenset(each) for each in ({0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2})]
    seven = table_of(kit_of([cells], [1.0] * 7))
    assert OpenBound(seven).probes(prior_belief(seven)) == 1
    four = [[frozenset({number >> digit & 1}) for number in range(4)] for digit in range(2)]
    beside = [frozenset({0, 1}), frozenset({0}), frozenset({0}), frozenset({0})]
    table = table_of(kit_of([*four, beside], [1.0] * 4))
    assert OpenBound(table).probes(prior_belief(table)) == 2


def test_as_many_probes_as_are_followed_do_not_go_too_deep() -> None:
    for number, fits in ((MAX_PROBES, True), (MAX_PROBES + 1, False)):
        table = table_of(kit_of([[OPEN, NO]] * number, [1.0, 1.0]))
        tree = OpenGreedy(table, Steps(PLENTY))
        if fits:
            assert tree.branch(prior_belief(table)).probes == Fraction(number, 2) + 1 - Fraction(1, 2**number)
        else:
            with pytest.raises(OutOfSteps):
                tree.branch(prior_belief(table))


def test_the_bound_from_below_is_the_same_however_little_work_is_allowed() -> None:
    bound = OpenBoundProspects(table_of(kit_of([[YES, OPEN]], [1.0, 1.0])))
    assert bound.allow(0) is bound
