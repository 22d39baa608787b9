"""What the benchmarks share: results and their bars, interleaved rounds, and the data that they run on.

A number from one machine says little, so every result stands beside a baseline measured in the same run. Rounds of the
subject and of its baseline take turns, and their medians are compared: a burst of other work on the machine falls on
both, or is an outlier of one.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum

from cmbs.belief.server import BeliefServer
from cmbs.messages import OntologyBundle
from cmbs.stores import open_store

ONTOLOGY = OntologyBundle("bench-space", "v1", "graphstore://bench", "v1")
SOURCE = "adapter://bench"


class Direction(StrEnum):
    """On which side of its limit a value has to be."""

    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit that a measured value is held to."""

    direction: Direction
    limit: float
    unit: str = "×"

    def holds(self, value: float) -> bool:
        """Whether `value` is on the right side."""
        return value >= self.limit if self.direction is Direction.AT_LEAST else value <= self.limit

    def __str__(self) -> str:
        return f"{self.direction} {shown(self.limit)} {self.unit}"


def at_least(limit: float, unit: str = "×") -> Bar:
    """A bar that a value has to reach."""
    return Bar(Direction.AT_LEAST, limit, unit)


def at_most(limit: float, unit: str = "×") -> Bar:
    """A bar that a value may not pass."""
    return Bar(Direction.AT_MOST, limit, unit)


@dataclass(frozen=True, slots=True)
class Result:
    """One value that a benchmark found, and the bar that it is held to."""

    benchmark: str
    measured: str
    baseline: str
    value: float
    bar: Bar

    @property
    def passed(self) -> bool:
        """Whether the bar holds."""
        return self.bar.holds(self.value)


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a benchmark may take: the sizes of the problem stay, the number of repetitions changes."""

    rounds: int
    operations: int


FULL = Effort(rounds=7, operations=6_000)
QUICK = Effort(rounds=3, operations=1_500)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A named benchmark and how to run it."""

    name: str
    about: str
    run: Callable[[Effort], list[Result]]


def interleaved(subjects: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of what each subject returns, with the subjects taking turns in every round."""
    found: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, measure in subjects.items():
            found[name].append(measure())
    return {name: statistics.median(values) for name, values in found.items()}


@contextmanager
def belief_server(store_url: str = "memory:") -> Iterator[BeliefServer]:
    """A belief server in this process over a store of its own."""
    with closing(BeliefServer(store=open_store(store_url))) as server:
        yield server


def describe_machine() -> str:
    """What a reader of the numbers should know: a load near the number of processors means that others took part."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python} on {platform.machine()}, {os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}"


def hypothesis_ids(count: int) -> list[str]:
    """Ids of twelve characters each, sorted."""
    return [f"hyp-{number:08d}" for number in range(count)]


def shown(value: float) -> str:
    """A number as people read it: three significant digits, thousands apart."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def microseconds(seconds: float) -> str:
    """A short time as people read it."""
    return f"{shown(seconds * 1e6)} µs" if seconds < 1e-3 else f"{shown(seconds * 1e3)} ms"
