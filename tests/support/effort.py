"""How hard the tests look: one setting, `CMBS_EFFORT=fast|ci|deep`, read by `conftest.py` and by tests that loop.

`fast` is what `make test` runs: nothing that needs a server process of another vendor, and nothing that starts or
kills servers again and again. `ci` is what `make test-all` runs, the same examples every time. `deep` is a search of
hours.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest

VARIABLE = "CMBS_EFFORT"
# The markers of tests that `fast` leaves out, and what each of them says about a test.
MARKERS = {
    "postgres": "needs PostgreSQL",
    "neo4j": "needs Neo4j",
    "browser": "needs Chromium",
    "slow": "takes seconds: starts servers again and again, waits for time-outs, or tries thousands of changes",
}


class Effort(NamedTuple):
    """How much of everything one test run does."""

    name: str
    # Whether tests with one of MARKERS run.
    everything: bool
    # Examples of each property that does not say how many it wants.
    examples: int
    # Simulated histories.
    seeds: int
    # How often a kill loop kills, on each database.
    kills: int
    # A property that wants N examples at `ci` gets N times this.
    factor: float

    def examples_for(self, at_ci: int) -> int:
        """The examples of a property that wants a number of its own at `ci`."""
        return max(2, int(at_ci * self.factor))


EFFORTS = {
    effort.name: effort
    for effort in (
        Effort("fast", everything=False, examples=12, seeds=100, kills=1, factor=0.2),
        Effort("ci", everything=True, examples=60, seeds=1_000, kills=3, factor=1),
        Effort("deep", everything=True, examples=5_000, seeds=50_000, kills=200, factor=20),
    )
}


def read_effort() -> Effort:
    """What the environment asks for."""
    name = os.environ.get(VARIABLE) or "fast"
    if name not in EFFORTS:
        raise pytest.UsageError(f"{VARIABLE} is `{name}`; it must be one of {', '.join(EFFORTS)}")
    return EFFORTS[name]


EFFORT = read_effort()


def require_marker(name: str) -> None:
    """Fail a test that starts a backend although `fast` could not know that: it lacks the marker."""
    if not EFFORT.everything:
        pytest.fail(f"this test {MARKERS[name]}: mark it with `pytest.mark.{name}`")
