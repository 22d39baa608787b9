"""What is normal for a measurement, from samples of it: the median, and the median absolute deviation from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from cmbs.errors import InvalidKit


class Baseline(NamedTuple):
    """Robust location and scale. The MAD may be zero; `NormalBand` refuses such a baseline."""

    median: float
    mad: float


def baseline_of(samples: Sequence[float]) -> Baseline:
    """The baseline of samples, of which up to half may be outliers."""
    if not samples:
        raise InvalidKit("a baseline needs at least one sample")
    for each in samples:
        if not math.isfinite(each):
            raise InvalidKit(f"a baseline has only finite numbers, not {each}")
    middle = median(samples)
    return Baseline(middle, median(abs(each - middle) for each in samples))
