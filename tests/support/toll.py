"""What a fault did: counted from the stored bytes after each test, added up at the end of the test run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import pytest

from cmbs.audit.fsck import all_sessions
from cmbs.stores import open_store

PROPERTY = "toll"


_ALL = 2**31 - 1


class Toll(NamedTuple):
    """What was done to a store, and what came of it."""

    kills: int
    acknowledged: int
    lost: int
    forks: int


def toll_of(url: str, acknowledged: Iterable[tuple[str, str]], kills: int = 0) -> Toll:
    """Count the acknowledged (stream id, event id) that are not stored, and the events that follow the same one."""
    store = open_store(url)
    stored: set[tuple[str, str]] = set()
    forks = 0
    spaces = store.streams("space:", None, _ALL)
    for stream_id in (*(summary.session_id for summary in all_sessions(store)), *spaces):
        bodies = [json.loads(entry.raw) for entry in store.read(stream_id)]
        forks += len(bodies) - len({body["prev_event_hash"] for body in bodies})
        stored.update((stream_id, body["event_id"]) for body in bodies)
    store.close()
    told = set(acknowledged)
    return Toll(kills, len(told), len(told - stored), forks)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Add up what the tests recorded, in whichever process they ran."""
    tolls = [
        Toll(**cast("dict[str, int]", value))
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if tolls:
        kills, acknowledged, lost, forks = (sum(column) for column in zip(*tolls, strict=True))
        terminalreporter.section("faults")
        terminalreporter.line(
            f"{kills} kills, {acknowledged} events acknowledged, {lost} lost, {forks} forks ({len(tolls)} tests)"
        )
