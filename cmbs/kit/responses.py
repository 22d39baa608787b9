"""From an answer to the outcome of a probe that it stands for."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from cmbs.documents.findings import list_ids
from cmbs.errors import InvalidRequest
from cmbs.kit.model import NO_DATA, KitOutcome, KitProbe


def outcome_for(probe: KitProbe, response: Any) -> KitOutcome | None:
    """The outcome that a response stands for; None for no data, which is None or `NO_DATA`.

    What the probe cannot read raises `InvalidRequest`: an elimination cannot be taken back, so nothing is guessed. A
    reading that is not a finite number is none: without one, the answer is no data.
    """
    match response:
        case None:
            return None
        case str():
            found = probe.outcome(response)
            if found is None and response != NO_DATA:
                raise _unreadable(probe, f"has no outcome `{response}`")
            return found
        case bool():
            raise _unreadable(probe, f"has no outcome `{str(response).lower()}`; an outcome is named by a text")
        case Real() if probe.reading is not None:
            return probe.outcome(probe.reading.outcome_of(_finite(probe, response)))
        case Real():
            raise _unreadable(probe, f"reads no numbers, and got {response}")
        case _:
            raise _unreadable(probe, f"cannot read a response of type {type(response).__name__}")


def _finite(probe: KitProbe, response: Real) -> float:
    try:
        number = float(response)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidRequest(
            f"the reading of probe `{probe.probe_id}` is not a finite number; without a reading, answer `{NO_DATA}`",
            {"probe_id": probe.probe_id},
        )
    return number


def _unreadable(probe: KitProbe, what: str) -> InvalidRequest:
    ids = [each.outcome_id for each in probe.outcomes]
    numbers = ", a number" if probe.reading is not None else ""
    return InvalidRequest(
        f"probe `{probe.probe_id}` {what}: it takes {list_ids(ids)}{numbers} or `{NO_DATA}`",
        {"probe_id": probe.probe_id, "outcomes": ids[:100]},
    )
