"""The optimum: against brute force on small tables, and what is said where it cannot be had."""

from bisect import bisect_left
from collections import Counter
from functools import cache
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.analysis.optimum import (
    MAX_CLASSES,
    Classes,
    Greedy,
    HuffmanBound,
    OneByOne,
    Optimum,
    OutOfSteps,
    Split,
    Steps,
    classes_of,
    huffman_cost,
    optimum_of,
)
from cmbs.analysis.table import Outcome, Probe, Table, bits_of, mask_from
from tests.support.domains import tables

PLENTY = 10**9
DEEP = 100


def least_cost(table: Table, alive: int) -> int:
    """The cost of the best decision tree, by trying every tree."""

    @cache
    def cost(left: int) -> int:
        if len(table.classes_in(left)) <= 1:
            return 0
        splits = [probe.parts(left) for probe in table.probes]
        return table.mass(left) + min(sum(map(cost, parts)) for parts in splits if len(parts) > 1)

    return cost(alive)


def cost_of_tree(classes: Classes, tree: Optimum | OneByOne | Greedy, alive: int) -> int:
    split = tree.choose(alive)
    return 0 if split is None else classes.mass(alive) + sum(cost_of_tree(classes, tree, part) for part in split.parts)


def depth_of_tree(tree: Optimum | OneByOne | Greedy, alive: int) -> int:
    split = tree.choose(alive)
    return 0 if split is None else 1 + max(depth_of_tree(tree, part) for part in split.parts)


def singling_out(size: int, weights: tuple[int, ...] | None = None) -> Table:
    """Each probe tells one hypothesis from all others."""
    everything = (1 << size) - 1
    probes = [Probe(str(bit), (Outcome("yes", 1 << bit), Outcome("no", everything ^ 1 << bit))) for bit in range(size)]
    return Table(tuple(map(str, range(size))), weights or (1,) * size, tuple(probes))


@pytest.mark.req("AN-04")
@given(tables(hypotheses=9, probes=7))
def test_the_optimum_is_that_of_brute_force(table: Table) -> None:
    classes = classes_of(table)
    optimum = Optimum(classes, Steps(PLENTY))
    cost = optimum.cost(classes.everything)
    assert cost == least_cost(table, table.everything)
    assert cost == cost_of_tree(classes, optimum, classes.everything)


@given(tables(hypotheses=9, probes=7), st.data())
def test_what_is_known_of_one_set_does_not_spoil_another(table: Table, data: st.DataObject) -> None:
    classes = classes_of(table)
    optimum = Optimum(classes, Steps(PLENTY))
    for alive in data.draw(st.lists(st.integers(1, classes.everything), max_size=6)):
        members = mask_from(bit for number in bits_of(alive) for bit in classes.atoms.members[number])
        assert optimum.cost(alive) == least_cost(table, members)


@pytest.mark.req("AN-04")
@given(tables(hypotheses=9, probes=7))
def test_greedy_is_no_better_than_the_optimum_and_huffman_no_worse(table: Table) -> None:
    classes = classes_of(table)
    best = Optimum(classes, Steps(PLENTY)).cost(classes.everything)
    greedy = Greedy(classes, Steps(PLENTY))
    assert HuffmanBound(classes).cost(classes.everything) <= best <= greedy.cost(classes.everything)
    assert greedy.cost(classes.everything) == cost_of_tree(classes, greedy, classes.everything)


@pytest.mark.req("WORTH-02")
@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.booleans(), st.data())
def test_the_closed_form_of_one_probe_for_each_hypothesis_is_the_exact_optimum(
    weights: list[int], last_has_none: bool, data: st.DataObject
) -> None:
    everything = (1 << len(weights)) - 1
    asked = range(len(weights) - (1 if last_has_none else 0))
    probes = [Probe(str(each), (Outcome("1", 1 << each), Outcome("0", everything ^ 1 << each))) for each in asked]
    table = Table(tuple(map(str, range(len(weights)))), tuple(weights), tuple(probes))
    classes = classes_of(table)
    found = optimum_of(classes, Steps(0))
    assert isinstance(found, OneByOne)
    alive = data.draw(st.integers(0, everything))
    assert found.cost(alive) == Optimum(classes, Steps(PLENTY)).cost(alive)
    if alive:
        assert found.cost(alive) == cost_of_tree(classes, found, alive)


@pytest.mark.req("WORTH-02")
def test_thousands_of_hypotheses_with_a_probe_each_have_an_exact_optimum_without_any_search() -> None:
    size = 2_000
    everything = (1 << size) - 1
    probes = tuple(
        Probe(str(each), (Outcome("1", 1 << each), Outcome("0", everything ^ 1 << each))) for each in range(size)
    )
    table = Table(tuple(map(str, range(size))), (1,) * size, probes)
    assert optimum_of(classes_of(table), Steps(0)).cost(everything) == size * (size + 1) // 2 - 1


@given(tables(hypotheses=9, probes=7))
def test_other_tables_are_searched(table: Table) -> None:
    classes = classes_of(table)
    found = optimum_of(classes, Steps(PLENTY))
    assert found.cost(classes.everything) == Optimum(classes, Steps(PLENTY)).cost(classes.everything)


def test_a_plan_that_was_made_before_its_parts_were_better_known_is_cut_off_by_what_is_known_now() -> None:
    splits = [(62, 1), (59, 4), (23, 40), (38, 25), (55, 8), (58, 1, 4), (27, 4, 32)]
    probes = [
        Probe(str(number), tuple(Outcome(str(each), mask) for each, mask in enumerate(parts)))
        for number, parts in enumerate(splits)
    ]
    table = Table(tuple("abcdef"), (9, 2, 7, 6, 8, 8), tuple(probes))
    classes = classes_of(table)
    assert Optimum(classes, Steps(PLENTY)).cost(classes.everything) == least_cost(table, table.everything)


def test_greedy_is_sometimes_worse() -> None:
    """The comparison above means something: there is a table on which the two differ."""
    columns = ["00111", "01011", "01001", "00001"]
    probes = []
    for number, column in enumerate(columns):
        fires = mask_from(position for position, each in enumerate(column) if each == "1")
        probes.append(Probe(str(number), (Outcome("1", fires), Outcome("0", 0b11111 ^ fires))))
    found = set()
    for weights in product((1, 2, 3), repeat=5):
        classes = classes_of(Table(tuple("abcde"), weights, tuple(probes)))
        best = Optimum(classes, Steps(PLENTY)).cost(classes.everything)
        found.add(Greedy(classes, Steps(PLENTY)).cost(classes.everything) - best)
    assert min(found) == 0
    assert max(found) > 0


@given(st.lists(st.integers(1, 20), max_size=7), st.integers(2, 4))
def test_the_huffman_bound_is_the_best_tree_where_any_split_is_allowed(weights: list[int], arity: int) -> None:
    @cache
    def cost(left: tuple[int, ...]) -> int:
        if len(left) <= 1:
            return 0
        ways = []
        for hands in product(range(arity), repeat=len(left) - 1):
            parts: list[list[int]] = [[] for _ in range(arity)]
            for weight, hand in zip(left, (0, *hands), strict=True):
                parts[hand].append(weight)
            if len(parts[0]) < len(left):
                ways.append(sum(cost(tuple(part)) for part in parts))
        return sum(left) + min(ways)

    assert huffman_cost(Counter(weights), arity) == cost(tuple(sorted(weights)))


def test_probes_that_split_alike_count_once_and_the_first_of_them() -> None:
    yes, no = Outcome("yes", 0b011), Outcome("no", 0b100)
    probes = (
        Probe("constant", (Outcome("yes", 0b111), Outcome("no", 0))),
        Probe("first", (yes, no)),
        Probe("the other way round", (no, yes)),
    )
    classes = classes_of(Table(("a", "b", "c"), (1, 1, 1), probes))
    assert classes.splits == (Split(1, (0b01, 0b10)),)
    assert (classes.atoms.members, classes.weights) == ([[0, 1], [2]], (2, 1))


def test_the_greedy_choice_among_equals_is_the_first_of_the_table() -> None:
    halves = [Outcome("yes", 0b0011), Outcome("no", 0b1100)], [Outcome("yes", 0b0101), Outcome("no", 0b1010)]
    table = Table(tuple("abcd"), (1,) * 4, tuple(Probe(str(number), tuple(each)) for number, each in enumerate(halves)))
    classes = classes_of(table)
    chosen = Greedy(classes, Steps(PLENTY)).choose(classes.everything)
    assert chosen is not None
    assert chosen.probe == 0


def test_one_class_needs_no_probe() -> None:
    classes = classes_of(Table(("a", "b"), (1, 1), ()))
    for tree in (Optimum(classes, Steps(0)), Greedy(classes, Steps(0))):
        assert (tree.cost(classes.everything), tree.choose(classes.everything)) == (0, None)
    assert HuffmanBound(classes).cost(classes.everything) == 0


def test_work_beyond_the_steps_is_not_done() -> None:
    classes = classes_of(singling_out(12))
    for tree in (Optimum(classes, Steps(20)), Greedy(classes, Steps(20))):
        with pytest.raises(OutOfSteps):
            tree.cost(classes.everything)


def test_the_same_work_takes_the_same_steps() -> None:
    used = set()
    for _ in range(3):
        classes, steps = classes_of(singling_out(12)), Steps(PLENTY)
        Optimum(classes, steps).cost(classes.everything)
        used.add(PLENTY - steps.left)
    assert len(used) == 1


def test_a_chain_of_any_length_is_greedy_but_not_searched_for_an_optimum() -> None:
    size = MAX_CLASSES + 1
    classes = classes_of(singling_out(size))
    with pytest.raises(OutOfSteps):
        Optimum(classes, Steps(PLENTY)).cost(classes.everything)
    greedy = Greedy(classes, Steps(PLENTY))
    assert greedy.cost(classes.everything) == size * (size + 1) // 2 - 1


def test_a_bound_over_many_weights_is_that_of_each_set() -> None:
    weights = tuple(range(1, 101))
    bound = HuffmanBound(classes_of(singling_out(100, weights)))
    for alive in (1, 0b1011, (1 << 100) - 1):
        kept = Counter(weights[bit] for bit in bits_of(alive))
        assert bound.cost(alive) == bound.cost(alive) == huffman_cost(kept, 2)


def test_a_tree_that_was_found_is_followed_without_further_steps() -> None:
    classes = classes_of(singling_out(9))
    needed = bisect_left(range(PLENTY), True, key=lambda steps: _find(classes, steps))
    tree = Optimum(classes, Steps(needed))
    tree.cost(classes.everything)
    assert depth_of_tree(tree, classes.everything) == 8


def _find(classes: Classes, steps: int) -> bool:
    try:
        Optimum(classes, Steps(steps)).cost(classes.everything)
    except OutOfSteps:
        return False
    return True


@pytest.mark.slow
def test_a_deep_tree_is_found() -> None:
    """Each hypothesis is as likely as all after it, so that asking for one after the other is best."""
    weights = (*(1 << number for number in reversed(range(DEEP - 1))), 1)
    classes = classes_of(singling_out(DEEP, weights))
    optimum = Optimum(classes, Steps(10 * PLENTY))
    assert optimum.cost(classes.everything) == HuffmanBound(classes).cost(classes.everything)
    assert depth_of_tree(optimum, classes.everything) == DEEP - 1


def test_a_tree_is_found_when_it_is_first_asked_for() -> None:
    classes = classes_of(singling_out(5))
    chosen = Optimum(classes, Steps(PLENTY)).choose(classes.everything)
    assert chosen is not None
    assert len(chosen.parts) == 2
