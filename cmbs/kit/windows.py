"""From a window of samples to one verdict, by the reduction that a probe declares, and the record of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.kit.model import NO_DATA, Gaps, KitOutcome, KitProbe, Reading, Reduction, Window

MAX_WINDOW_SAMPLES = 10_000
# Characters of what was sent that an error shows.
_MAX_SHOWN = 64
# Of whole numbers, those that JSON has exactly.
_EXACT_BITS = 53


@dataclass(frozen=True, slots=True)
class ReducedWindow:
    """What became of a window: its verdict, and what the verdict follows from.

    `samples` is how many were sent, `gaps` how many of them were not measured. `value` is the mean that was read,
    `counted` how many samples read as `counts`; each is None for other reductions, and where there is no verdict
    because of gaps. `outcome` is None where there is no verdict.
    """

    window: Window
    samples: int
    outcome: KitOutcome | None
    value: float | None = None
    counts: str | None = None
    counted: int | None = None
    gaps: int = 0

    def to_record(self) -> dict[str, Any]:
        """The reduction as data for an entry; the mean as text, as readings are."""
        found: dict[str, Any] = {"reduction": self.window.reduction.value, "samples": self.samples}
        found |= {name: bound for name, bound in (("k", self.window.k), ("n", self.window.n)) if bound is not None}
        if self.gaps:
            found["gaps"] = self.gaps
        if self.value is not None:
            found["value"] = repr(self.value)
        if self.counted is not None:
            found |= {"counts": self.counts, "counted": self.counted}
        return found | {"outcome_id": NO_DATA if self.outcome is None else self.outcome.outcome_id}


def reduce_window(probe: KitProbe, samples: Any) -> ReducedWindow:
    """The verdict of a window of samples, which is a list.

    A sample that was not measured is None or `NO_DATA`. `InvalidRequest` where the probe declares no reduction, the
    window has not as many samples as it declares, a sample is no finite number, or was not measured and the kit refuses
    that; `LimitExceeded` where there are too many.
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
    if not isinstance(samples, list | tuple):
        raise _refuse_window(
            probe,
            f"probe `{probe.probe_id}` declares a window, and reads a list of samples alone",
            "response",
            show_found(samples),
            f"a list of samples or `{NO_DATA}`",
            "send the samples as they were measured: the kit reduces them, and the reduction is recorded",
        )
    if len(samples) > MAX_WINDOW_SAMPLES:
        raise LimitExceeded("window_samples", MAX_WINDOW_SAMPLES, len(samples), "response")
    _check_length(probe, window, len(samples))
    measured = [(number, sample) for number, sample in enumerate(samples) if not _is_gap(probe, window, number, sample)]
    numbers = [_check_sample(probe, number, sample) for number, sample in measured]
    gaps = len(samples) - len(numbers)
    if (gaps and window.gaps is Gaps.NO_VERDICT) or len(numbers) < (window.k or 1):
        return ReducedWindow(window, len(samples), None, gaps=gaps)
    if window.reduction is Reduction.MEAN:
        value = mean_of(numbers)
        outcome = _find_outcome(probe, reading.outcome_of(value))
        return ReducedWindow(window, len(samples), outcome, value=value, gaps=gaps)
    return _count_samples(probe, window, reading, numbers, gaps)


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


def _count_samples(
    probe: KitProbe, window: Window, reading: Reading, numbers: Sequence[float], gaps: int
) -> ReducedWindow:
    counts, other = window.resolve_counts(reading)
    verdicts = [reading.outcome_of(number) for number in numbers]
    counted = verdicts.count(counts)
    verdict = None if None in verdicts else counts if counted >= (window.k or 1) else other
    outcome = _find_outcome(probe, verdict)
    return ReducedWindow(window, len(numbers) + gaps, outcome, counts=counts, counted=counted, gaps=gaps)


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


def _is_gap(probe: KitProbe, window: Window, number: int, sample: Any) -> bool:
    """Whether a sample was not measured; refused where the kit refuses that."""
    if sample is not None and not (isinstance(sample, str) and sample == NO_DATA):
        return False
    if window.gaps is Gaps.REFUSED:
        raise _refuse_window(
            probe,
            f"sample {number} of the window for probe `{probe.probe_id}` was not measured, and its kit refuses gaps",
            f"response[{number}]",
            show_found(sample),
            "a finite number",
            f"send a window without gaps, or answer `{NO_DATA}`; a kit may say `gaps: {Gaps.LEFT_OUT}`",
        )
    return True


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
        "send null for what was not measured: the kit says what that means",
    )


def _refuse_window(
    probe: KitProbe, message: str, field: str, found: Any, accepted: Any, next_step: str
) -> InvalidRequest:
    details = {"probe_id": probe.probe_id, "field": field, "found": found, "accepted": accepted, "next": next_step}
    return InvalidRequest(message, details)
