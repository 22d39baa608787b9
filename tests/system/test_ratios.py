"""The speed ratios on record are those that are measured, and one that fell is marked."""

import pytest

from bench.ratios import DECISION, GATEWAY, Recorded, judge, load_record, summarize, write_table


def test_the_record_has_the_median_and_how_far_below_it_a_run_was() -> None:
    runs = [{GATEWAY: value} for value in (0.5, 0.4, 0.6)]
    assert summarize(runs) == {GATEWAY.name: Recorded(0.5, 0.2)}


@pytest.mark.parametrize(
    ("value", "note"),
    [(0.6, ""), (0.5, ""), (0.41, ""), (0.3, "**fell by 40%**")],
    ids=["rose", "same", "noise", "fell"],
)
def test_a_ratio_that_fell_by_more_than_the_noise_is_marked(value: float, note: str) -> None:
    assert judge(value, Recorded(0.5, 0.2)) == note
    assert f"| {value:.2f} × | {note} |" in write_table({DECISION: value}, {DECISION.name: Recorded(0.5, 0.2)})[-1]


def test_a_ratio_that_is_not_on_record_is_not_judged() -> None:
    assert "| none | 0.50 × |  |" in write_table({DECISION: 0.5}, {})[-1]


def test_the_record_has_six_ratios() -> None:
    names = {"http-durable", "http-memory", "python", "decision", "proposals", "gateway"}
    assert load_record().ratios.keys() == names
