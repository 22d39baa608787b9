"""Tables: what a kit says, as sets of bits."""

import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.analysis.table import Outcome, Probe, Scale, Table, bits_of, entropy_of, mask_from, table_of, whole_weights
from cmbs.errors import InvalidKit
from cmbs.kit import Kit
from tests.support.domains import kit_of, kits, tables

YES, NO = frozenset({0}), frozenset({1})
POSITIONS = st.frozensets(st.integers(0, 1500))


@given(POSITIONS)
def test_a_set_of_positions_comes_back_in_order(positions: frozenset[int]) -> None:
    assert list(bits_of(mask_from(positions))) == sorted(positions)


@given(st.lists(st.integers(1, 10**30), max_size=40), st.data())
def test_a_scale_weighs_what_the_weights_add_up_to(weights: list[int], data: st.DataObject) -> None:
    chosen = data.draw(st.frozensets(st.sampled_from(range(len(weights))))) if weights else frozenset[int]()
    assert Scale(weights).mass(mask_from(chosen)) == sum(weights[position] for position in chosen)


def test_priors_become_whole_numbers_in_the_same_proportions() -> None:
    assert whole_weights([1.0, 1.0]) == (1, 1)
    assert whole_weights([0.1, 0.2, 0.7]) == (1, 2, 7)
    assert whole_weights([2.0, 4.0]) == (1, 2)
    assert whole_weights([1e-3, 1.0]) == (1, 1000)


@given(kits(deterministic=False))
def test_a_hypothesis_is_consistent_with_an_outcome_unless_the_outcome_eliminates_it(kit: Kit) -> None:
    table = table_of(kit)
    for probe in kit.probes:
        for outcome in probe.outcomes:
            row = table.probe(probe.probe_id)
            assert row is not None
            consistent = row.consistent(outcome.outcome_id)
            assert consistent is not None
            assert set(table.ids_of(consistent)) == kit.hypothesis_ids - outcome.eliminates


@given(tables(deterministic=False))
def test_hypotheses_share_a_class_exactly_where_no_outcome_tells_them_apart(table: Table) -> None:
    signatures = defaultdict(set)
    for hypothesis_id in table.hypotheses:
        bit = table.bit(hypothesis_id)
        key = tuple(bool(each.consistent & bit) for probe in table.probes for each in probe.outcomes)
        signatures[key].add(hypothesis_id)
    assert [{table.hypotheses[bit] for bit in each} for each in table.classes] == list(signatures.values())


@given(tables())
def test_residual_bits_are_what_is_left_of_the_entropy_once_every_probe_was_answered(table: Table) -> None:
    total = table.mass(table.everything)
    masses = [table.mass(mask_from(each)) for each in table.classes]
    between = entropy_of(masses)
    whole = entropy_of(table.weights)
    assert table.residual_bits(table.everything) == pytest.approx(whole - between, abs=1e-9)
    assert sum(masses) == total


def test_equal_hypotheses_leave_the_bits_of_their_number() -> None:
    table = table_of(kit_of([[YES, YES, YES, NO]], [1.0] * 4))
    assert table.classes == ((0, 1, 2), (3,))
    assert table.residual_bits(table.everything) == pytest.approx(3 / 4 * math.log2(3))


def test_without_probes_everything_is_one_class() -> None:
    table = table_of(kit_of([], [1.0, 1.0]))
    assert table.classes == ((0, 1),)
    assert table.deterministic


@given(tables(deterministic=False), st.data())
def test_a_part_of_a_table_says_the_same_of_what_is_in_it(table: Table, data: st.DataObject) -> None:
    keep = data.draw(st.frozensets(st.sampled_from(table.hypotheses), min_size=1))
    part = table.restrict(keep)
    assert set(part.hypotheses) == keep
    for probe, small in zip(table.probes, part.probes, strict=True):
        for whole, own in zip(probe.outcomes, small.outcomes, strict=True):
            assert whole.outcome_id == own.outcome_id
            assert set(part.ids_of(own.consistent)) == set(table.ids_of(whole.consistent)) & keep
    assert {each: part.mass(part.bit(each)) for each in keep} == {each: table.mass(table.bit(each)) for each in keep}


def test_a_table_knows_what_it_does_not_have() -> None:
    table = table_of(kit_of([[YES, NO]], [1.0, 1.0]))
    assert table.bit("absent") == 0
    assert table.mask_of(["h1", "absent"]) == 0b10
    assert table.probe("absent") is None
    assert table.probes[0].consistent("absent") is None


def test_a_hypothesis_that_makes_every_answer_impossible_is_refused() -> None:
    probe = Probe("p", (Outcome("yes", 0b01), Outcome("no", 0b01)))
    with pytest.raises(InvalidKit, match="every outcome of probe `p` eliminates hypothesis `b`"):
        Table(("a", "b"), (1, 1), (probe,))


def test_a_probe_matters_while_an_answer_would_rule_something_out() -> None:
    probe = Probe("p", (Outcome("yes", 0b011), Outcome("no", 0b100)))
    assert probe.matters(0b111)
    assert not probe.matters(0b011)
    assert probe.parts(0b011) == [0b011]
