"""How hard the tests look: one setting, `CMBS_EFFORT=fast|ci|deep`, read by `conftest.py` and by tests that loop.

`fast` is what `make test` runs: nothing that needs a server process of another vendor, and nothing that starts or
kills servers again and again. `ci` is what `make check` adds to that. `deep` is what `make test-deep` runs before a
release: everything.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest

VARIABLE = "CMBS_EFFORT"
# Set where no backend may be missing: in CI.
REQUIRED = "CMBS_REQUIRE_BACKENDS"
# The markers of tests that `fast` leaves out, and what each of them says about a test.
CI_MARKERS = {
    "postgres": "needs PostgreSQL",
    "neo4j": "needs Neo4j",
    "browser": "needs Chromium",
    "slow": "takes seconds: starts servers again and again, or waits for time-outs",
}
# What `ci` leaves out too.
DEEP_MARKERS = {"deep": "takes minutes: tries thousands of changes, or kills servers many times"}
MARKERS = CI_MARKERS | DEEP_MARKERS


class Effort(NamedTuple):
    """How much of everything one test run does."""

    name: str
    # Tests with one of these do not run.
    left_out: frozenset[str]
    # Examples of each property that does not say how many it wants.
    examples: int
    # Simulated histories.
    seeds: int
    # How often a kill loop kills, on each database.
    kills: int
    # A property that wants N examples at `ci` gets N times this.
    factor: float

    @property
    def everything(self) -> bool:
        """Whether a corpus is tried whole, and not in strides."""
        return not self.left_out

    def examples_for(self, at_ci: int) -> int:
        """The examples of a property that wants a number of its own at `ci`."""
        return max(2, int(at_ci * self.factor))


EFFORTS = {
    effort.name: effort
    for effort in (
        Effort("fast", left_out=frozenset(MARKERS), examples=8, seeds=50, kills=1, factor=0.12),
        Effort("ci", left_out=frozenset(DEEP_MARKERS), examples=60, seeds=200, kills=2, factor=1),
        Effort("deep", left_out=frozenset(), examples=200, seeds=1_000, kills=20, factor=3),
    )
}


def read_effort() -> Effort:
    """What the environment asks for."""
    name = os.environ.get(VARIABLE) or "fast"
    if name not in EFFORTS:
        raise pytest.UsageError(f"{VARIABLE} is `{name}`; it must be one of {', '.join(EFFORTS)}")
    return EFFORTS[name]


EFFORT = read_effort()
# In `make check`, where a red build must be the same build again: each property is tried with the same examples.
REPEATABLE = EFFORT.name == "ci" or os.environ.get("CMBS_REPEATABLE") == "1"


def require_marker(name: str) -> None:
    """Fail a test that starts a backend although `fast` could not know that: it lacks the marker."""
    if name in EFFORT.left_out:
        pytest.fail(f"this test {MARKERS[name]}: mark it with `pytest.mark.{name}`")
