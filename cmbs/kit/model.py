"""What a kit is: hypotheses, probes, and what each outcome of a probe rules out. Frozen, and nothing here does I/O.

The response to a probe is the id of one of its outcomes, a number where the probe reads numbers, or `NO_DATA`.
A hypothesis is consistent with an outcome if and only if the outcome does not eliminate it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from cmbs.errors import InvalidKit

# The response that was looked for and not found. Every probe takes it, no kit declares it, and it eliminates nothing.
NO_DATA = "no-data"

# A median absolute deviation times this estimates the standard deviation of a normal distribution.
MAD_TO_SIGMA = 1.4826
# The customary one: of normally distributed numbers, one in two thousand lies beyond.
DEFAULT_THRESHOLD = 3.5


class Soundness(StrEnum):
    """What has to be true for an elimination never to hit the truth. From the strongest claim to the weakest.

    `SOUND`: nothing more than that the response is right; what is eliminated contradicts it.
    `CLOSED_WORLD`: the kit also lists every effect a hypothesis has, so that the absence of a sign is a sign.
    `STATISTICAL`: the response comes from a threshold on a measurement, and is wrong at some rate.
    `HEURISTIC`: a rule of thumb; it is usually right, without any guarantee.
    """

    SOUND = "sound"
    CLOSED_WORLD = "closed-world"
    STATISTICAL = "statistical"
    HEURISTIC = "heuristic"


class Tail(StrEnum):
    """Which side of a baseline is not normal."""

    BOTH = "both"
    HIGH = "high"
    LOW = "low"


class Constant(StrEnum):
    """What a number means against a baseline without spread, whose MAD is 0.

    `ABNORMAL`: any deviation from the median, on a side that is not normal, is abnormal.
    `NO_VERDICT`: no number is read; the answer is no data.
    """

    ABNORMAL = "abnormal"
    NO_VERDICT = "no-verdict"


class Reduction(StrEnum):
    """How a window of samples becomes one verdict.

    `ANY`: one sample that reads as the counted outcome is enough.
    `MEAN`: the mean of the samples is read as one number.
    `K_OF_N`: at least `k` samples read as the counted outcome.
    """

    ANY = "any"
    MEAN = "mean"
    K_OF_N = "k-of-n"


class Gaps(StrEnum):
    """What a sample that was not measured means for its window.

    `REFUSED`: such a window is no response.
    `LEFT_OUT`: the verdict is that of the other samples, if there are enough of them.
    `NO_VERDICT`: such a window has no verdict; the answer is no data.
    """

    REFUSED = "refused"
    LEFT_OUT = "left-out"
    NO_VERDICT = "no-verdict"


@dataclass(frozen=True, slots=True)
class KitHypothesis:
    """One thing that may be true. `prior` is a weight, relative to those of the others.

    `attributes` are JSON values by name: what a session over the kit declares of the hypothesis.
    """

    id: str
    label: str = ""
    prior: float = 1.0
    tags: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.prior) and self.prior > 0):
            raise InvalidKit(f"the prior of hypothesis `{self.id}` is {self.prior}, not a finite number above 0")


@dataclass(frozen=True, slots=True)
class KitOutcome:
    """What a probe may answer, what that eliminates, and how far the elimination is to be trusted."""

    outcome_id: str
    eliminates: frozenset[str]
    soundness: Soundness
    label: str = ""


@dataclass(frozen=True, slots=True)
class NormalBand:
    """Reads a number against a baseline: it is normal up to `threshold` robust z-scores from the median.

    The scores are (number - median) / (1.4826 MAD). The bounds belong to the band. Where the MAD is 0, `constant` says
    what a number means.
    """

    normal: str
    abnormal: str
    median: float
    mad: float
    threshold: float = DEFAULT_THRESHOLD
    tail: Tail = Tail.BOTH
    constant: Constant | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.median):
            raise InvalidKit(f"the median of a baseline is {self.median}, not a finite number")
        if not (math.isfinite(MAD_TO_SIGMA * self.mad) and self.mad >= 0):
            raise InvalidKit(f"the MAD of a baseline is {self.mad}, not a finite number of at least 0")
        if self.mad == 0 and self.constant is None:
            raise InvalidKit(
                "the MAD of a baseline is 0, and nothing says what a deviation means: declare `constant: "
                f"{Constant.ABNORMAL}` (any deviation is abnormal) or `constant: {Constant.NO_VERDICT}`"
            )
        if not (math.isfinite(self.threshold) and self.threshold > 0):
            raise InvalidKit(f"the threshold of a baseline is {self.threshold}, not a finite number above 0")
        if self.normal == self.abnormal:
            raise InvalidKit(f"`{self.normal}` is the outcome of numbers that are normal and of numbers that are not")

    def robust_z(self, number: float) -> float:
        """How many robust standard deviations a number lies above the median; infinitely many where there are none."""
        if self.mad == 0:
            return 0.0 if number == self.median else math.copysign(math.inf, number - self.median)
        return (number - self.median) / (MAD_TO_SIGMA * self.mad)

    def outcome_of(self, number: float) -> str | None:
        """The outcome that a number stands for; None where the baseline gives no verdict."""
        if self.mad == 0 and self.constant is Constant.NO_VERDICT:
            return None
        score = self.robust_z(number)
        too_high = self.tail is not Tail.LOW and score > self.threshold
        too_low = self.tail is not Tail.HIGH and score < -self.threshold
        return self.abnormal if too_high or too_low else self.normal

    def outcome_ids(self) -> frozenset[str]:
        """Every outcome that a number may stand for."""
        return frozenset({self.normal, self.abnormal})


@dataclass(frozen=True, slots=True)
class CutPoints:
    """Reads a number by the interval that it lies in: the first outcome below the first cut, and so on upwards.

    A cut belongs to the interval above it. There is one outcome more than there are cuts, and one may stand for several
    intervals.
    """

    cuts: tuple[float, ...]
    outcomes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.cuts:
            raise InvalidKit("there is no cut, so every number would have the same outcome")
        if not all(map(math.isfinite, self.cuts)):
            raise InvalidKit(f"cuts are finite numbers, not {list(self.cuts)}")
        if any(low >= high for low, high in zip(self.cuts, self.cuts[1:], strict=False)):
            raise InvalidKit(f"cuts rise from each to the next, not as in {list(self.cuts)}")
        if len(self.outcomes) != len(self.cuts) + 1:
            raise InvalidKit(f"{len(self.cuts)} cuts make {len(self.cuts) + 1} intervals, not {len(self.outcomes)}")

    def outcome_of(self, number: float) -> str:
        """The outcome that a number stands for."""
        return self.outcomes[bisect_right(self.cuts, number)]

    def outcome_ids(self) -> frozenset[str]:
        """Every outcome that a number may stand for."""
        return frozenset(self.outcomes)


# How a probe reads numbers.
Reading = NormalBand | CutPoints


@dataclass(frozen=True, slots=True)
class Window:
    """How a probe reads a window of samples; a probe that declares one reads nothing else, and no data.

    `counts` is the outcome that samples are counted for; for a baseline it is what is abnormal, if not said. `n` is how
    many samples a window has, gaps included; any number, if not said.
    """

    reduction: Reduction
    k: int | None = None
    n: int | None = None
    counts: str | None = None
    gaps: Gaps = Gaps.REFUSED

    def __post_init__(self) -> None:
        if (self.reduction is Reduction.K_OF_N) is not (self.k is not None):
            raise InvalidKit(f"`k` belongs to the reduction `{Reduction.K_OF_N}`, and to no other")
        if self.reduction is Reduction.MEAN and self.counts is not None:
            raise InvalidKit(f"the reduction `{Reduction.MEAN}` reads one number, and counts nothing")
        if (self.k is not None and self.k < 1) or (self.n is not None and self.n < 1):
            raise InvalidKit("`k` and `n` are whole numbers of at least 1")
        if self.k is not None and self.n is not None and self.k > self.n:
            raise InvalidKit(f"`k` is {self.k}, more than the {self.n} samples of a window")

    def resolve_counts(self, reading: Reading) -> tuple[str, str]:
        """The outcome that samples are counted for, and the one that a window has where too few of them do."""
        usual = reading.abnormal if isinstance(reading, NormalBand) else None
        counted = usual if self.counts is None else self.counts
        others = sorted(reading.outcome_ids() - {counted})
        if counted is None or counted not in reading.outcome_ids() or len(others) != 1:
            raise InvalidKit(
                f"the reduction `{self.reduction}` counts one of two outcomes: `counts` names it, and the reading has "
                f"{len(reading.outcome_ids())} outcomes"
            )
        return counted, others[0]


@dataclass(frozen=True)
class KitProbe:
    """Something to find out: `prompt` is the question.

    `reading` is there where numbers mean something, `window` where windows of samples are the only answers.
    """

    probe_id: str
    prompt: str
    outcomes: tuple[KitOutcome, ...]
    reading: Reading | None = None
    window: Window | None = None

    def __post_init__(self) -> None:
        if not self.outcomes:
            raise InvalidKit(f"probe `{self.probe_id}` has no outcome")
        _refuse_repeated((each.outcome_id for each in self.outcomes), f"outcome of probe `{self.probe_id}`")
        if NO_DATA in self._by_id:
            raise InvalidKit(f"`{NO_DATA}` is an answer to every probe, and not to be declared by `{self.probe_id}`")
        unknown = sorted(self.reading.outcome_ids() - self._by_id.keys()) if self.reading else []
        if unknown:
            raise InvalidKit(f"probe `{self.probe_id}` reads numbers as `{unknown[0]}`, which is no outcome of it")
        if self.window is not None and self.reading is None:
            raise InvalidKit(f"probe `{self.probe_id}` reduces windows, and has no `reading` for their samples")
        if self.window is not None and self.reading is not None and self.window.reduction is not Reduction.MEAN:
            self.window.resolve_counts(self.reading)

    @cached_property
    def _by_id(self) -> dict[str, KitOutcome]:
        return {each.outcome_id: each for each in self.outcomes}

    @property
    def reads_numbers(self) -> bool:
        """Whether one number is an answer."""
        return self.reading is not None and self.window is None

    def outcome(self, outcome_id: str) -> KitOutcome | None:
        """The outcome of that id; None where there is none."""
        return self._by_id.get(outcome_id)


@dataclass(frozen=True)
class Kit:
    """A domain: what may be true in it, and what can be found out about that.

    `source` tells where the knowledge is from. A change of the hypotheses, the probes or the meaning of an outcome is
    a new `version`.
    """

    kit_id: str
    version: str
    title: str
    hypotheses: tuple[KitHypothesis, ...]
    probes: tuple[KitProbe, ...]
    description: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not self.hypotheses:
            raise InvalidKit(f"kit `{self.kit_id}` has no hypothesis")
        _refuse_repeated((self.kit_id,), "kit")
        _refuse_repeated((self.version,), "version")
        _refuse_repeated((each.id for each in self.hypotheses), "hypothesis")
        _refuse_repeated((each.probe_id for each in self.probes), "probe")
        for probe in self.probes:
            for outcome in probe.outcomes:
                if not outcome.eliminates <= self.hypothesis_ids:
                    unknown = sorted(outcome.eliminates - self.hypothesis_ids)
                    raise InvalidKit(
                        f"outcome `{outcome.outcome_id}` of probe `{probe.probe_id}` eliminates `{unknown[0]}`, which "
                        "is no hypothesis of the kit"
                    )

    @cached_property
    def hypothesis_ids(self) -> frozenset[str]:
        """Every hypothesis."""
        return frozenset(each.id for each in self.hypotheses)

    @cached_property
    def _probes_by_id(self) -> dict[str, KitProbe]:
        return {each.probe_id: each for each in self.probes}

    @cached_property
    def probe_ids(self) -> frozenset[str]:
        """Every probe."""
        return frozenset(self._probes_by_id)

    def find_separating(self, survivors: AbstractSet[str], answered: Container[str]) -> str | None:
        """The first probe without an answer that can tell these hypotheses apart: an outcome eliminates some of them.

        One that would eliminate them all tells none apart.
        """
        for each in self.probes:
            if each.probe_id not in answered:
                for outcome in each.outcomes:
                    if 0 < len(outcome.eliminates & survivors) < len(survivors):
                        return each.probe_id
        return None

    def probe(self, probe_id: str) -> KitProbe | None:
        """The probe of that id; None where there is none."""
        return self._probes_by_id.get(probe_id)


def _refuse_repeated(ids: Iterable[str], noun: str) -> None:
    """Refuse an id that is declared twice, and one with NUL, which no database keeps in a text."""
    seen: set[str] = set()
    for each in ids:
        if "\0" in each:
            raise InvalidKit(f"an id must not have the character U+0000, as {noun} `{each}` has")
        if each in seen:
            raise InvalidKit(f"`{each}` is declared twice as {noun}")
        seen.add(each)
