"""From a window of samples to one verdict, by the reduction that a probe declares, and the record of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.kit.model import NO_DATA, KitOutcome, KitProbe, Reading, Reduction, Window

MAX_WINDOW_SAMPLES = 10_000
# Characters of what was sent that an error shows.
_MAX_SHOWN = 64
# Of whole numbers, those that JSON has exactly.
_EXACT_BITS = 53


@dataclass(frozen=True, slots=True)
class ReducedWindow:
    """What became of a window: its verdict, and what the verdict follows from.

    `value` is the mean that was read, `counted` how many samples read as `counts`; each is None for other reductions.
    `outcome` is None where the reading gives no verdict.
    """

    window: Window
    samples: int
    outcome: KitOutcome | None
    value: float | None = None
    counts: str | None = None
    counted: int | None = None

    def to_record(self) -> dict[str, Any]:
        """The reduction as data for an entry; the mean as text, as readings are."""
        found: dict[str, Any] = {"reduction": self.window.reduction.value, "samples": self.samples}
        found |= {name: bound for name, bound in (("k", self.window.k), ("n", self.window.n)) if bound is not None}
        if self.value is not None:
            found["value"] = repr(self.value)
        if self.counted is not None:
            found |= {"counts": self.counts, "counted": self.counted}
        return found | {"outcome_id": NO_DATA if self.outcome is None else self.outcome.outcome_id}


def reduce_window(probe: KitProbe, samples: Sequence[Any]) -> ReducedWindow:
    """The verdict of a window of samples.

    `InvalidRequest` where the probe declares no reduction, the window has not as many samples as it declares, or a
    sample is no finite number; `LimitExceeded` where there are too many.
    """
    window, reading = probe.window, probe.reading
    if window is None or reading is None:
        raise _refuse_window(
            probe,
            f"probe `{probe.probe_id}` declares no reduction, and cannot read a window of samples",
            "response",
            len(samples),
            "one outcome or number",
            "reduce the window yourself and send one outcome or number, or declare `window` in the kit",
        )
    if len(samples) > MAX_WINDOW_SAMPLES:
        raise LimitExceeded("window_samples", MAX_WINDOW_SAMPLES, len(samples), "response")
    _check_length(probe, window, len(samples))
    numbers = [_check_sample(probe, number, sample) for number, sample in enumerate(samples)]
    if window.reduction is Reduction.MEAN:
        value = mean_of(numbers)
        return ReducedWindow(window, len(numbers), _find_outcome(probe, reading.outcome_of(value)), value=value)
    return _count_samples(probe, window, reading, numbers)


def to_finite(value: Any) -> float | None:
    """A number as a finite float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def show_found(value: Any) -> Any:
    """What was sent, as an error shows it: itself where it is short, or else what it is."""
    match value:
        case None | bool():
            return value
        case str():
            return value if len(value) <= _MAX_SHOWN else value[:_MAX_SHOWN] + "…"
        case int():
            return value if value.bit_length() <= _EXACT_BITS else f"a whole number of {value.bit_length()} bits"
        case float() if math.isfinite(value):
            return value
        case Real():
            return f"{value}"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"


def mean_of(numbers: Sequence[float]) -> float:
    """The mean of at least one number: in whatever order they come, and never beyond the least or the largest."""
    return statistics.mean(numbers)


def _count_samples(probe: KitProbe, window: Window, reading: Reading, numbers: Sequence[float]) -> ReducedWindow:
    counts, other = window.resolve_counts(reading)
    verdicts = [reading.outcome_of(number) for number in numbers]
    counted = verdicts.count(counts)
    verdict = None if None in verdicts else counts if counted >= (window.k or 1) else other
    return ReducedWindow(window, len(numbers), _find_outcome(probe, verdict), counts=counts, counted=counted)


def _find_outcome(probe: KitProbe, outcome_id: str | None) -> KitOutcome | None:
    return None if outcome_id is None else probe.outcome(outcome_id)


def _check_length(probe: KitProbe, window: Window, length: int) -> None:
    if window.n is not None and length != window.n:
        accepted: dict[str, int] = {"minimum": window.n, "maximum": window.n}
    elif length < (window.k or 1):
        accepted = {"minimum": window.k or 1}
    else:
        return
    least = f"{'' if window.n is not None else 'at least '}{accepted['minimum']}"
    noun = "sample" if accepted["minimum"] == 1 else "samples"
    raise _refuse_window(
        probe,
        f"a window of probe `{probe.probe_id}` has {least} {noun}, and this one has {length}",
        "response",
        length,
        accepted,
        f"send as many samples; without them, answer `{NO_DATA}`",
    )


def _check_sample(probe: KitProbe, number: int, sample: Any) -> float:
    value = to_finite(sample)
    if value is not None:
        return value
    raise _refuse_window(
        probe,
        f"sample {number} of the window for probe `{probe.probe_id}` is not a finite number",
        f"response[{number}]",
        show_found(sample),
        "a finite number",
        "leave out what was not measured, and send the window again",
    )


def _refuse_window(
    probe: KitProbe, message: str, field: str, found: Any, accepted: Any, next_step: str
) -> InvalidRequest:
    details = {"probe_id": probe.probe_id, "field": field, "found": found, "accepted": accepted, "next": next_step}
    return InvalidRequest(message, details)
