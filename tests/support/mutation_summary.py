"""What became of the corpus of changes behind a store's back: added up at the end of the test run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import pytest

PROPERTY = "mutations"


class MutationCounts(NamedTuple):
    """How many changes were tried, found, and found somewhere else."""

    place: str
    tried: int
    found: int
    wrongly_located: int


def check_counts(
    record: Callable[[str, object], None], place: str, tried: int, missed: Sequence[str], mislocated: Sequence[str] = ()
) -> None:
    """Keep the figures, and fail where they are not all, all and none."""
    record(PROPERTY, MutationCounts(place, tried, tried - len(missed), len(mislocated))._asdict())
    if missed or mislocated:
        pytest.fail("\n".join(["not found:", *missed, "found elsewhere:", *mislocated]))


def write_mutation_summary(terminalreporter: Any) -> None:
    """A line for each corpus."""
    counts = [
        MutationCounts(**cast("dict[str, Any]", value))
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if counts:
        terminalreporter.section("changes behind the store's back")
    for place, tried, found, wrongly_located in counts:
        terminalreporter.line(f"{place}: {tried} tried, {found} found, {wrongly_located} wrongly located")
