"""What faults did to stores: counted from the stored bytes after each test, added up at the end of the test run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from statistics import median
from typing import Any, NamedTuple, cast

import pytest

from cmbs.audit.plain_rows import all_sessions
from cmbs.stores import open_store

PROPERTY = "faults"
ALL_STREAMS = 2**31 - 1


class FaultCounts(NamedTuple):
    """What was done to a store, and what came of it."""

    kills: int
    acknowledged: int
    lost: int
    forks: int
    # Of each time that another database took over: how long it was until a write was acknowledged again.
    failover_seconds: list[float]


def count_faults(
    url: str, acknowledged: Iterable[tuple[str, str]], kills: int = 0, failover_seconds: Iterable[float] = ()
) -> FaultCounts:
    """Count the acknowledged (stream id, event id) that are not stored, and the events that follow the same one."""
    store = open_store(url)
    stored: set[tuple[str, str]] = set()
    forks = 0
    spaces = store.streams("space:", None, ALL_STREAMS)
    for stream_id in (*(summary.session_id for summary in all_sessions(store)), *spaces):
        bodies = [json.loads(entry.raw) for entry in store.read(stream_id)]
        forks += len(bodies) - len({body["prev_event_hash"] for body in bodies})
        stored.update((stream_id, body["event_id"]) for body in bodies)
    store.close()
    answered = set(acknowledged)
    return FaultCounts(kills, len(answered), len(answered - stored), forks, list(failover_seconds))


def write_fault_summary(terminalreporter: Any) -> None:
    """Add up what the tests recorded, in whichever process they ran."""
    counts = [
        FaultCounts(**cast("dict[str, Any]", value))
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if counts:
        kills, acknowledged, lost, forks = (sum(column) for column in list(zip(*counts, strict=True))[:4])
        terminalreporter.section("faults")
        terminalreporter.line(
            f"{kills} kills, {acknowledged} events acknowledged, {lost} lost, {forks} forks ({len(counts)} tests)"
        )
        seconds = [each for count in counts for each in count.failover_seconds]
        if seconds:
            terminalreporter.line(
                f"{len(seconds)} failovers, writes went on after {median(seconds):.1f} s (median),"
                f" {max(seconds):.1f} s (longest)"
            )
