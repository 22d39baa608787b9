"""What a kit is and cannot be; how numbers become outcomes; what the probes can tell apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.documents.findings import Severity
from cmbs.errors import InvalidKit, InvalidRequest
from cmbs.kit import (
    NO_DATA,
    CutPoints,
    Kit,
    KitHypothesis,
    KitOutcome,
    KitProbe,
    NormalBand,
    Soundness,
    Tail,
    outcome_for,
)
from cmbs.kit.baseline import baseline_of
from cmbs.kit.rules import KitRule, classes_of, findings_of, is_deterministic, summary_of
from cmbs.testing.strategies.kits import kits
from tests.support.subtests import for_each

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def outcome(outcome_id: str, *eliminates: str, soundness: Soundness = Soundness.SOUND) -> KitOutcome:
    return KitOutcome(outcome_id, frozenset(eliminates), soundness)


def probe(probe_id: str, *outcomes: KitOutcome, reading: Any = None) -> KitProbe:
    return KitProbe(probe_id, "", outcomes, reading)


def kit_of(names: str, *probes: KitProbe) -> Kit:
    return Kit("k", "1", "", tuple(map(KitHypothesis, names)), probes)


YES, NO = outcome("yes", "b"), outcome("no", "a")
BAND = NormalBand("normal", "abnormal", median=100, mad=10, threshold=3)

# --- what no kit can be -----------------------------------------------------------------------------------------------

IMPOSSIBLE: list[tuple[Callable[[], Any], str]] = [
    (lambda: KitHypothesis("a", prior=0), "the prior of hypothesis `a` is 0, not a finite number above 0"),
    (lambda: KitHypothesis("a", prior=math.nan), "the prior of hypothesis `a` is nan"),
    (lambda: Kit("k", "1", "", (), ()), "kit `k` has no hypothesis"),
    (lambda: kit_of("aba"), "`a` is declared twice as hypothesis"),
    (lambda: kit_of("ab", probe("p", YES, NO), probe("p", NO)), "`p` is declared twice as probe"),
    (lambda: probe("p"), "probe `p` has no outcome"),
    (lambda: kit_of("a\0"), "an id must not have the character U+0000"),
    (lambda: kit_of("ab", probe("\0", YES, NO)), "an id must not have the character U+0000"),
    (lambda: probe("p", outcome("\0")), "an id must not have the character U+0000"),
    (lambda: probe("p", YES, YES), "`yes` is declared twice as outcome of probe `p`"),
    (lambda: probe("p", outcome(NO_DATA)), "`no-data` is an answer to every probe"),
    (lambda: kit_of("a", probe("p", YES)), "outcome `yes` of probe `p` eliminates `b`, which is no hypothesis"),
    (lambda: probe("p", YES, NO, reading=BAND), "probe `p` reads numbers as `abnormal`, which is no outcome of it"),
    (lambda: NormalBand("n", "a", math.inf, 1), "the median of a baseline is inf"),
    (lambda: NormalBand("n", "a", 0, 0), "the MAD of a baseline is 0, and nothing says what a deviation means"),
    (lambda: NormalBand("n", "a", 0, -1), "the MAD of a baseline is -1, not a finite number of at least 0"),
    (lambda: NormalBand("n", "a", 0, 1.7e308), "the MAD of a baseline is 1.7e"),
    (lambda: NormalBand("n", "a", 0, 1, threshold=-1), "the threshold of a baseline is -1"),
    (lambda: NormalBand("n", "n", 0, 1), "`n` is the outcome of numbers that are normal and of numbers that are not"),
    (lambda: CutPoints((), ("a",)), "there is no cut"),
    (lambda: CutPoints((math.nan,), ("a", "b")), "cuts are finite numbers"),
    (lambda: CutPoints((1, 1), ("a", "b", "c")), "cuts rise from each to the next"),
    (lambda: CutPoints((1, 2), ("a", "b")), "2 cuts make 3 intervals, not 2"),
    (lambda: baseline_of([]), "a baseline needs at least one sample"),
    (lambda: baseline_of([1.0, math.inf]), "a baseline has only finite numbers, not inf"),
]


@pytest.mark.req("KIT-01")
@for_each(("make", "message"), IMPOSSIBLE, ids=range(len(IMPOSSIBLE)))
def test_what_no_kit_can_be_is_refused_when_it_is_made(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidKit) as refused:
        make()
    assert str(refused.value).startswith(message)


def test_a_kit_finds_its_probes_and_their_outcomes_by_id() -> None:
    kit = kit_of("ab", probe("p", YES, NO))
    assert kit.hypothesis_ids == {"a", "b"}
    assert kit.probe_ids == {"p"}
    found = kit.probe("p")
    assert found is not None
    assert (found.outcome("no"), found.outcome("maybe"), kit.probe("q")) == (NO, None, None)


# --- responses --------------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-06")
@pytest.mark.parametrize("response", [None, NO_DATA])
def test_no_data_stands_for_no_outcome(response: str | None) -> None:
    assert outcome_for(probe("p", YES, NO), response) is None


@for_each(
    ("response", "message"),
    [
        ("maybe", "probe `p` has no outcome `maybe`: it takes `yes`, `no` or `no-data`"),
        (True, "probe `p` has no outcome `true`; an outcome is named by a text: it takes `yes`, `no` or `no-data`"),
        (3, "probe `p` reads no numbers, and got 3: it takes `yes`, `no` or `no-data`"),
        (0.5, "probe `p` reads no numbers, and got 0.5: it takes `yes`, `no` or `no-data`"),
        (
            1 << 60_000,
            "probe `p` reads no numbers, and got a whole number of 60001 bits: it takes `yes`, `no` or `no-data`",
        ),
        ("y" * 90_000, f"probe `p` has no outcome `{'y' * 64}…`: it takes `yes`, `no` or `no-data`"),
        ({"yes": 1}, "probe `p` cannot read a response of type dict: it takes `yes`, `no` or `no-data`"),
    ],
    ids=["a text", "a boolean", "a number", "a fraction", "a huge number", "a long text", "an object"],
)
def test_a_response_that_a_probe_cannot_read_is_refused_and_nothing_is_guessed(response: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        outcome_for(probe("p", YES, NO), response)
    assert refused.value.message == message
    details = refused.value.details
    assert (details["field"], details["accepted"]) == ("response", "`yes`, `no` or `no-data`")
    assert len(f"{details['found']}") <= 65


def test_a_refusal_names_the_first_outcomes_and_that_numbers_are_read() -> None:
    many = probe("p", outcome("normal"), outcome("abnormal"), *(outcome(f"o{n}") for n in range(8)), reading=BAND)
    with pytest.raises(InvalidRequest, match=r"`o2` and 5 more, a number or `no-data`"):
        outcome_for(many, "high")


@pytest.mark.req("KIT-08")
@for_each("reading", [math.nan, math.inf, -math.inf, 10**400])
def test_a_reading_that_is_not_a_finite_number_is_refused(reading: float) -> None:
    measured = probe("p", outcome("normal", "a"), outcome("abnormal"), reading=BAND)
    with pytest.raises(InvalidRequest, match="not a finite number; without a reading, answer `no-data`"):
        outcome_for(measured, reading)


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-08")
@pytest.mark.parametrize(
    ("tail", "expected"),
    [(Tail.BOTH, "annna"), (Tail.HIGH, "nnnna"), (Tail.LOW, "annnn")],
)
def test_a_number_is_normal_up_to_the_threshold_on_the_sides_that_count(tail: Tail, expected: str) -> None:
    band = NormalBand("n", "a", median=100, mad=10, threshold=3, tail=tail)
    reach = 3 * 1.4826 * 10
    numbers = [100 - reach - 0.01, 100 - reach + 0.01, 100, 100 + reach - 0.01, 100 + reach + 0.01]
    assert "".join(str(band.outcome_of(number)) for number in numbers) == expected


def test_any_kind_of_real_number_is_read() -> None:
    measured = probe("p", outcome("normal", "a"), outcome("abnormal"), reading=BAND)
    assert outcome_for(measured, Fraction(201, 2)) == outcome_for(measured, 100) == outcome_for(measured, 100.5)


@pytest.mark.req("KIT-08")
def test_a_normal_reading_eliminates_and_one_that_is_not_need_not() -> None:
    measured = probe("p", outcome("normal", "a"), outcome("abnormal"), reading=BAND)
    normal, abnormal = outcome_for(measured, 101), outcome_for(measured, 1e308)
    assert normal is not None
    assert abnormal is not None
    assert (normal.eliminates, abnormal.eliminates) == (frozenset({"a"}), frozenset())


@given(st.lists(NUMBERS, min_size=1, max_size=5, unique=True), NUMBERS)
def test_a_cut_belongs_to_the_interval_above_it_and_every_number_to_one_interval(
    cuts: list[float], number: float
) -> None:
    rising = tuple(sorted(cuts))
    names = tuple(str(place) for place in range(len(rising) + 1))
    assert CutPoints(rising, names).outcome_of(number) == str(sum(cut <= number for cut in rising))


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=40), st.data())
def test_outliers_below_half_of_the_samples_do_not_move_a_baseline_beyond_the_others(
    samples: list[float], data: st.DataObject
) -> None:
    outliers = data.draw(st.lists(st.sampled_from([-1e300, 1e300]), max_size=(len(samples) - 1) // 2))
    median, mad = baseline_of([*samples, *outliers])
    assert min(samples) <= median <= max(samples)
    assert 0 <= mad <= max(samples) - min(samples)


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-04")
@given(kits())
def test_hypotheses_are_of_one_class_exactly_where_no_outcome_parts_them(kit: Kit) -> None:
    classes = classes_of(kit)
    outcomes = [each for asked in kit.probes for each in asked.outcomes]
    class_of = {name: number for number, members in enumerate(classes) for name in members}
    assert list(class_of) == [name for members in classes for name in members]
    assert class_of.keys() == kit.hypothesis_ids
    for one, other in product(kit.hypothesis_ids, repeat=2):
        parted = any((one in each.eliminates) != (other in each.eliminates) for each in outcomes)
        assert (class_of[one] != class_of[other]) == parted


@pytest.mark.req("KIT-04")
def test_residual_bits_are_the_entropy_that_is_left_within_the_classes() -> None:
    halves = kit_of("abcd", probe("p", outcome("yes", "a", "b"), outcome("no", "c", "d")))
    assert summary_of(halves).residual_bits == pytest.approx(1.0)
    weighted = Kit("k", "1", "", (KitHypothesis("a", prior=3e300), KitHypothesis("b", prior=1e300)), ())
    assert summary_of(weighted).residual_bits == pytest.approx(0.811278, abs=1e-6)
    negligible = Kit("k", "1", "", (KitHypothesis("a", prior=1e308), KitHypothesis("b", prior=5e-324)), ())
    assert summary_of(negligible).residual_bits == 0
    smallest = Kit("k", "1", "", (KitHypothesis("a"), KitHypothesis("b", prior=5e-324)), ())
    assert summary_of(smallest).residual_bits == pytest.approx(0)


@pytest.mark.slow
@pytest.mark.req("KIT-04")
def test_a_kit_may_have_very_many_classes() -> None:
    # Each as quickly told as the first: a look at the whole kit for every class would take all day.
    names = [f"h{number}" for number in range(20_000)]
    pairs = list(zip(names[::2], names[1::2], strict=True))
    probes = [
        probe(
            f"p{bit}",
            outcome("yes", *(each for number, pair in enumerate(pairs) if number >> bit & 1 for each in pair)),
        )
        for bit in range(14)
    ]
    kit = Kit("k", "1", "", tuple(map(KitHypothesis, names)), tuple(probes))
    told = [finding for finding in findings_of(kit) if finding.rule is KitRule.INDISTINGUISHABLE]
    assert len(told) == len(summary_of(kit).classes) == len(pairs)
    assert summary_of(kit).residual_bits == pytest.approx(1.0)


@given(kits())
def test_residual_bits_lie_between_none_and_all_that_there_are(kit: Kit) -> None:
    summary = summary_of(kit)
    assert -1e-9 <= summary.residual_bits <= math.log2(len(kit.hypotheses)) + 1e-9
    if len(summary.classes) == len(kit.hypotheses):
        assert summary.residual_bits == 0


@given(kits(deterministic=True))
def test_a_probe_is_deterministic_where_every_hypothesis_has_one_answer(kit: Kit) -> None:
    assert all(is_deterministic(kit, asked) for asked in kit.probes)
    assert summary_of(kit).deterministic_probes == len(kit.probes)


def test_a_probe_with_the_right_number_of_eliminations_in_the_wrong_places_is_not_deterministic() -> None:
    uneven = probe("p", outcome("x", "a", "b"), outcome("y", "a"), outcome("z", "b"))
    assert is_deterministic(kit_of("ab", uneven), uneven)
    uneven = probe("p", outcome("x", "a"), outcome("y", "a"))
    assert not is_deterministic(kit_of("ab", uneven), uneven)


@given(kits())
def test_a_kit_that_breaks_no_rule_has_warnings_at_most(kit: Kit) -> None:
    assert {finding.severity for finding in findings_of(kit)} <= {Severity.WARNING}


NEVER, SAME = KitRule.NEVER_MATTERS, KitRule.OUTCOMES_ALIKE
SIGN = outcome("firing", "a"), outcome("silent")


@pytest.mark.req("KIT-03", "KIT-05")
@for_each(
    ("names", "probes", "expected"),
    [
        (
            "ab",
            [probe("p", YES, NO, outcome("never", "a", "b"))],
            [(KitRule.ELIMINATES_EVERYTHING, ("probes", 0, "outcomes", 2))],
        ),
        # A probe without any possible answer is told by its outcomes.
        (
            "a",
            [probe("p", outcome("never", "a"))],
            [(KitRule.ELIMINATES_EVERYTHING, ("probes", 0, "outcomes", 0))],
        ),
        ("ab", [probe("p", YES, NO), probe("q", outcome("x"), outcome("y"))], [(NEVER, ("probes", 1))]),
        (
            "ab",
            [probe("p", YES, NO), probe("q", outcome("on", "a"), outcome("off", "b"))],
            [(KitRule.REPEATS_PROBE, ("probes", 1))],
        ),
        # Two probes of an open world do not repeat each other.
        ("ab", [probe("p", *SIGN), probe("q", *SIGN)], []),
        # Nor do probes with one outcome.
        ("a", [probe("p", outcome("x")), probe("q", outcome("y"))], [(NEVER, ("probes", 0)), (NEVER, ("probes", 1))]),
        (
            "ab",
            [probe("p", YES, NO, outcome("also yes", "b"), outcome("x"), outcome("y"))],
            [(SAME, ("probes", 0, "outcomes", 2))],
        ),
    ],
    ids=["everything", "no answer", "never matters", "follows", "open world", "one outcome", "alike"],
)
def test_what_breaks_a_rule_is_found_at_its_place(
    names: str, probes: list[KitProbe], expected: list[tuple[StrEnum, tuple[str | int, ...]]]
) -> None:
    assert [(finding.rule, finding.path) for finding in findings_of(kit_of(names, *probes))] == expected


@pytest.mark.req("KIT-03")
def test_a_hypothesis_that_every_outcome_eliminates_is_found() -> None:
    kit = kit_of("abc", probe("p", outcome("yes", "a", "b"), outcome("no", "a", "c")))
    (finding,) = findings_of(kit)
    assert finding.rule is KitRule.ELIMINATED_BY_EVERY_OUTCOME
    assert "eliminates `a`" in finding.message


@pytest.mark.req("KIT-04")
def test_hypotheses_that_no_probe_tells_apart_are_found_as_classes_with_their_bits() -> None:
    (finding,) = findings_of(kit_of("abc", probe("p", outcome("yes", "b", "c"), outcome("no", "a"))))
    assert (finding.rule, finding.path) == (KitRule.INDISTINGUISHABLE, ("hypotheses", 1))
    assert finding.message.endswith("`b`, `c`; they leave 0.667 bits of the kit undecided")


def test_errors_come_before_warnings() -> None:
    kit = kit_of("abc", probe("q", outcome("x")), probe("p", outcome("all", "a", "b", "c"), outcome("x")))
    assert [finding.severity for finding in findings_of(kit)] == ["error", "warning", "warning"]


def test_a_probe_separates_survivors_where_an_outcome_eliminates_some_of_them() -> None:
    def ask(probe_id: str, yes: str, no: str) -> KitProbe:
        named = (("yes", yes), ("no", no))
        return KitProbe(probe_id, "?", tuple(KitOutcome(each, frozenset(ids), Soundness.SOUND) for each, ids in named))

    probes = (ask("all or none", "abc", ""), ask("c", "ab", "c"), ask("a", "bc", "a"))
    kit = Kit("k", "1", "Kit", tuple(KitHypothesis(each) for each in "abc"), probes)
    assert kit.find_separating(frozenset("abc"), ()) == "c"
    assert kit.find_separating(frozenset("abc"), ("c",)) == "a"
    assert kit.find_separating(frozenset("ab"), ("a",)) is None
    assert kit.find_separating(frozenset("a"), ()) is None
