"""Windows of samples: the reduction that a probe declares makes one verdict of them, and the record says how."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.errors import InvalidKit, InvalidRequest, LimitExceeded
from cmbs.kit import (
    MAX_WINDOW_SAMPLES,
    NO_DATA,
    Constant,
    CutPoints,
    Gaps,
    Kit,
    KitHypothesis,
    KitOutcome,
    KitProbe,
    KitProvider,
    NormalBand,
    Reading,
    Reduction,
    Soundness,
    Tail,
    Window,
    read_response,
    reduce_window,
)
from cmbs.kit.windows import mean_of, show_found
from cmbs.testing.strategies.kits import kits, windows
from tests.support.subtests import for_each

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SAMPLES = st.lists(NUMBERS, min_size=1, max_size=12)
BAND = NormalBand("normal", "abnormal", median=100, mad=10, threshold=3)
HALVES = CutPoints((50,), ("low", "high"))
ANY, MEAN = Window(Reduction.ANY), Window(Reduction.MEAN)


def probe_of(window: Window | None, reading: Reading | None = BAND) -> KitProbe:
    names = ("normal", "abnormal", "low", "high")
    # What is normal rules out the hypothesis `busy`, which would have moved the measurement.
    outcomes = (KitOutcome(name, frozenset({"busy"} if name == "normal" else ()), Soundness.SOUND) for name in names)
    return KitProbe("p", "", tuple(outcomes), reading, window)


def verdict(window: Window, samples: Sequence[Any], reading: Reading = BAND) -> str | None:
    outcome = reduce_window(probe_of(window, reading), samples).outcome
    return None if outcome is None else outcome.outcome_id


# --- the laws of reductions -------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-15")
@given(SAMPLES)
def test_any_is_abnormal_exactly_where_a_sample_is_and_is_one_of_n(samples: list[float]) -> None:
    expected = "abnormal" if any(BAND.outcome_of(each) == "abnormal" for each in samples) else "normal"
    assert verdict(ANY, samples) == expected
    assert verdict(Window(Reduction.K_OF_N, k=1), samples) == expected


@pytest.mark.req("KIT-15")
@given(SAMPLES, st.data())
def test_k_of_n_counts_the_samples_and_a_higher_k_never_finds_more(samples: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(samples)))
    counted = sum(BAND.outcome_of(each) == "abnormal" for each in samples)
    reduced = reduce_window(probe_of(Window(Reduction.K_OF_N, k, len(samples))), samples)
    assert reduced.counted == counted
    assert reduced.outcome is not None
    assert (reduced.outcome.outcome_id == "abnormal") is (counted >= k)
    if reduced.outcome.outcome_id == "normal" and k < len(samples):
        assert verdict(Window(Reduction.K_OF_N, k + 1), samples) == "normal"


@pytest.mark.req("KIT-15")
@given(SAMPLES, st.randoms(use_true_random=False))
def test_the_mean_lies_among_the_samples_in_whatever_order_they_come(samples: list[float], dice: Any) -> None:
    shuffled = list(samples)
    dice.shuffle(shuffled)
    assert min(samples) <= mean_of(samples) <= max(samples)
    assert mean_of(shuffled) == mean_of(samples)
    assert verdict(MEAN, samples) == BAND.outcome_of(mean_of(samples))


@pytest.mark.req("KIT-15")
@given(NUMBERS, st.integers(1, 9), st.sampled_from([ANY, MEAN, Window(Reduction.K_OF_N, k=1)]))
def test_a_window_of_equal_samples_reads_as_one_of_them(number: float, times: int, window: Window) -> None:
    assert verdict(window, [number] * times) == BAND.outcome_of(number)


def expected_verdict(probe: KitProbe, samples: list[float]) -> str | None:
    """What a window reads as, worked out another way: exact means, and verdicts counted one by one."""
    window, reading = probe.window, probe.reading
    assert window is not None
    assert reading is not None
    if window.reduction is Reduction.MEAN:
        return reading.outcome_of(float(sum(map(Fraction, samples)) / len(samples)))
    counts = window.counts if window.counts is not None else getattr(reading, "abnormal", None)
    verdicts = [reading.outcome_of(each) for each in samples]
    if sum(each == counts for each in verdicts) >= (window.k or 1):
        return counts
    return next(each for each in verdicts if each != counts)


@pytest.mark.req("KIT-15")
@given(kits(min_probes=1), st.data())
def test_the_truth_survives_every_window_that_it_brings_about(kit: Kit, data: st.DataObject) -> None:
    truth = data.draw(st.sampled_from(kit.hypotheses)).id
    provider = KitProvider(kit)
    for probe in kit.probes:
        if probe.window is None:
            continue
        # Samples near enough to each other that no rounding of a mean decides.
        number = data.draw(NUMBERS)
        samples = data.draw(windows(probe) | st.just([number] * (probe.window.n or probe.window.k or 1)))
        verdict = expected_verdict(probe, samples)
        mask = provider.apply_probe(probe.probe_id, samples)
        if probe.window.reduction is Reduction.MEAN and read_response(probe, samples)[1]["window"]["value"] != repr(
            float(sum(map(Fraction, samples)) / len(samples))
        ):
            continue  # the last bit of the mean may fall on the other side of a cut
        brings_about = verdict is None or truth not in getattr(probe.outcome(verdict), "eliminates", ())
        assert (truth not in mask) is brings_about


@pytest.mark.req("KIT-15")
@given(st.lists(st.floats(60, 140), max_size=8), st.floats(1e3, 1e6), st.integers(0, 8))
def test_a_cause_that_moves_one_sample_survives_any_and_may_not_survive_the_mean(
    calm: list[float], spike: float, place: int
) -> None:
    samples = [*calm[:place], spike, *calm[place:]]
    kit = Kit("k", "1", "", (KitHypothesis("busy"), KitHypothesis("idle")), (probe_of(ANY),))
    assert KitProvider(kit).apply_probe("p", samples) == {}
    assert verdict(MEAN, [100.0] * 100 + [200.0]) == "normal"


# --- what is recorded -------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-15")
@pytest.mark.parametrize(
    ("window", "samples", "record"),
    [
        (ANY, [100, 900], {"counts": "abnormal", "counted": 1, "outcome_id": "abnormal"}),
        (MEAN, [100, 102], {"value": "101.0", "outcome_id": "normal"}),
        (
            Window(Reduction.K_OF_N, 2, 3),
            [900, 100, 100],
            {"k": 2, "n": 3, "counts": "abnormal", "counted": 1, "outcome_id": "normal"},
        ),
    ],
)
def test_what_was_reduced_is_recorded(window: Window, samples: list[float], record: dict[str, Any]) -> None:
    _, kept = read_response(probe_of(window), samples)
    assert kept["window"] == {"reduction": window.reduction.value, "samples": len(samples), **record}


@pytest.mark.req("KIT-23")
def test_no_data_is_an_answer_to_a_probe_with_a_window_too() -> None:
    for response in (None, NO_DATA):
        assert read_response(probe_of(ANY), response) == (None, {})


@pytest.mark.req("KIT-23")
@given(SAMPLES, st.lists(st.sampled_from([None, NO_DATA]), min_size=1), st.randoms(use_true_random=False))
def test_a_gap_means_what_the_kit_says(samples: list[float], gaps: list[str | None], dice: Any) -> None:
    with_gaps = [*samples, *gaps]
    dice.shuffle(with_gaps)
    for window in (ANY, MEAN, Window(Reduction.K_OF_N, 1, len(with_gaps))):
        whole = replace(window, n=None)
        left_out, no_verdict = (replace(window, gaps=each) for each in (Gaps.LEFT_OUT, Gaps.NO_VERDICT))
        assert verdict(left_out, with_gaps) == verdict(whole, samples)
        assert verdict(no_verdict, with_gaps) is None
        for each in (left_out, no_verdict):
            _, record = read_response(probe_of(each), with_gaps)
            assert (record["window"]["samples"], record["window"]["gaps"]) == (len(with_gaps), len(gaps))
            # Without gaps, the rule for them makes no difference.
            unbounded = replace(each, n=None)
            assert read_response(probe_of(unbounded), samples) == read_response(probe_of(whole), samples)


@pytest.mark.req("KIT-23")
def test_too_few_samples_beside_the_gaps_have_no_verdict() -> None:
    counting = Window(Reduction.K_OF_N, 2, 3, gaps=Gaps.LEFT_OUT)
    assert verdict(counting, [900, None, 900]) == "abnormal"
    assert verdict(counting, [100, None, 100]) == "normal"
    assert verdict(counting, [100, None, None]) is None
    assert verdict(replace(MEAN, gaps=Gaps.LEFT_OUT), [None]) is None


@pytest.mark.req("KIT-15")
def test_one_of_two_outcomes_of_cuts_can_be_counted() -> None:
    counting = Window(Reduction.K_OF_N, k=2, counts="high")
    assert verdict(counting, [10, 60, 70], HALVES) == "high"
    assert verdict(counting, [10, 10, 70], HALVES) == "low"


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED: list[tuple[Window | None, Any, str, str]] = [
    (None, [1, 2], "response", "probe `p` declares no reduction"),
    (ANY, [], "response", "a window of probe `p` has at least 1 sample, and this one has 0"),
    (Window(Reduction.K_OF_N, 3), [1, 2], "response", "a window of probe `p` has at least 3 samples"),
    (Window(Reduction.MEAN, n=3), [1, 2], "response", "a window of probe `p` has 3 samples, and this one has 2"),
    (ANY, [1, math.nan], "response[1]", "sample 1 of the window for probe `p` is not a finite number"),
    (ANY, [-math.inf], "response[0]", "sample 0 of"),
    (MEAN, [1, 2, 10**400], "response[2]", "sample 2 of"),
    (MEAN, [True], "response[0]", "sample 0 of"),
    (MEAN, [None], "response[0]", "sample 0 of the window for probe `p` was not measured, and its kit refuses gaps"),
    (MEAN, [1, "no-data"], "response[1]", "sample 1 of the window for probe `p` was not measured"),
    (Window(Reduction.MEAN, gaps=Gaps.LEFT_OUT), [None, "nothing"], "response[1]", "sample 1 of"),
    (ANY, 900, "response", "probe `p` declares a window, and reads a list of samples alone"),
    (ANY, 9e9, "response", "probe `p` declares a window"),
    (ANY, True, "response", "probe `p` declares a window"),
    (ANY, "normal", "response", "probe `p` declares a window"),
    (ANY, {"samples": [1]}, "response", "probe `p` declares a window"),
    (MEAN, ["1"], "response[0]", "sample 0 of"),
    (MEAN, [[1]], "response[0]", "sample 0 of"),
    (MEAN, [{"a": 1}], "response[0]", "sample 0 of"),
    (MEAN, ["x" * 100_000], "response[0]", "sample 0 of"),
    (MEAN, [10**5_000], "response[0]", "sample 0 of"),
]


@pytest.mark.req("KIT-15")
@for_each(("window", "samples", "field", "message"), REFUSED, ids=range(len(REFUSED)))
def test_a_window_that_cannot_be_read_is_refused_with_its_place(
    window: Window | None, samples: Any, field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_response(probe_of(window), samples)
    assert refused.value.message.startswith(message)
    assert refused.value.details["field"] == field
    assert {"found", "accepted", "next"} <= refused.value.details.keys()
    # Short, whatever was sent, and JSON.
    assert len(json.dumps(refused.value.details, allow_nan=False)) < 1_000


@pytest.mark.req("KIT-15")
def test_a_window_with_too_many_samples_is_refused_by_the_name_of_the_limit() -> None:
    with pytest.raises(LimitExceeded) as refused:
        read_response(probe_of(ANY), [1.0] * (MAX_WINDOW_SAMPLES + 1))
    assert refused.value.details["limit"] == "window_samples"
    assert reduce_window(probe_of(ANY), [100.0] * MAX_WINDOW_SAMPLES).samples == MAX_WINDOW_SAMPLES


THIRDS = CutPoints((1, 2), ("low", "normal", "high"))
IMPOSSIBLE: list[tuple[Callable[[], Any], str]] = [
    (lambda: Window(Reduction.K_OF_N), "`k` belongs to the reduction `k-of-n`"),
    (lambda: Window(Reduction.ANY, k=2), "`k` belongs to the reduction `k-of-n`"),
    (lambda: Window(Reduction.MEAN, counts="high"), "the reduction `mean` reads one number"),
    (lambda: Window(Reduction.K_OF_N, k=0), "`k` and `n` are whole numbers of at least 1"),
    (lambda: Window(Reduction.MEAN, n=0), "`k` and `n` are whole numbers of at least 1"),
    (lambda: Window(Reduction.K_OF_N, k=3, n=2), "`k` is 3, more than the 2 samples of a window"),
    (lambda: probe_of(ANY, None), "probe `p` reduces windows, and has no `reading`"),
    (lambda: probe_of(ANY, HALVES), "the reduction `any` counts one of two outcomes"),
    (lambda: probe_of(Window(Reduction.ANY, counts="cold"), HALVES), "the reduction `any` counts one of two outcomes"),
    (lambda: probe_of(Window(Reduction.ANY, counts="high"), THIRDS), "the reduction `any` counts one of two outcomes"),
]


@pytest.mark.req("KIT-15")
@for_each(("make", "message"), IMPOSSIBLE, ids=range(len(IMPOSSIBLE)))
def test_a_reduction_that_makes_no_sense_is_refused_when_it_is_made(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidKit) as refused:
        make()
    assert str(refused.value).startswith(message)


# --- baselines without spread -----------------------------------------------------------------------------------------


@pytest.mark.req("KIT-16")
@given(NUMBERS, NUMBERS, st.sampled_from(Tail))
def test_any_deviation_from_a_constant_baseline_is_abnormal_on_the_sides_that_count(
    median: float, number: float, tail: Tail
) -> None:
    band = NormalBand("normal", "abnormal", median, 0, tail=tail, constant=Constant.ABNORMAL)
    high, low = number > median and tail is not Tail.LOW, number < median and tail is not Tail.HIGH
    assert band.outcome_of(number) == ("abnormal" if high or low else "normal")


@pytest.mark.req("KIT-16")
@given(NUMBERS, SAMPLES)
def test_a_constant_baseline_without_verdict_reads_every_number_as_no_data(median: float, samples: list[float]) -> None:
    band = NormalBand("normal", "abnormal", median, 0, constant=Constant.NO_VERDICT)
    for window in (ANY, MEAN, Window(Reduction.K_OF_N, k=1)):
        reduced = reduce_window(probe_of(window, band), samples)
        assert reduced.outcome is None
        assert reduced.to_record()["outcome_id"] == "no-data"
    outcome, record = read_response(probe_of(None, band), samples[0])
    assert outcome is None
    assert record["reading"] == repr(samples[0])


@pytest.mark.req("KIT-16")
def test_a_baseline_with_spread_is_read_alike_whatever_is_said_of_constant_ones() -> None:
    for constant in (None, *Constant):
        band = NormalBand("normal", "abnormal", 100, 10, constant=constant)
        assert [band.outcome_of(number) for number in (100, 140, 900)] == ["normal", "normal", "abnormal"]


@pytest.mark.req("KIT-16")
def test_a_baseline_without_spread_and_without_a_declared_meaning_is_refused() -> None:
    with pytest.raises(InvalidKit, match="declare `constant: abnormal`"):
        NormalBand("normal", "abnormal", 100, 0)


@pytest.mark.req("KIT-15")
def test_what_was_sent_is_shown_as_it_is_where_it_is_short_and_can_be_written() -> None:
    assert [show_found(each) for each in (None, True, 1.5, 7, "short")] == [None, True, 1.5, 7, "short"]
    shown = [show_found(each) for each in (2**90, math.inf, Fraction(1, 3), [1], (1,), {"a": 1}, "x" * 900)]
    assert shown[:5] == ["a whole number of 91 bits", "inf", "1/3", "a list", "a list"]
    json.dumps(shown, allow_nan=False)
    assert all(len(each) < 100 for each in shown)
