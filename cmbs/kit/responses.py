"""From an answer to the outcome of a probe that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

from cmbs.documents.findings import list_ids
from cmbs.errors import InvalidRequest
from cmbs.kit.model import NO_DATA, KitOutcome, KitProbe, NormalBand, Reading
from cmbs.kit.windows import reduce_window, show_found, to_finite


class ReadResponse(NamedTuple):
    """What a response stands for, and how that follows from it.

    `outcome` is None for no data. `record` says how numbers were read, as data for an entry: empty for an outcome that
    was named, `reading` (and `robust_z`) for a number, `window` for samples.
    """

    outcome: KitOutcome | None
    record: Mapping[str, Any]


def read_response(probe: KitProbe, response: Any) -> ReadResponse:
    """The outcome that a response stands for, with the record of how it was read.

    A response is no data (None or `NO_DATA`), the id of an outcome, or a number where the probe reads numbers. Where it
    declares a window it is a list of samples, and nothing else: one number or an outcome would be a window that was
    reduced by a rule that is not on record. What the probe cannot read raises `InvalidRequest`: an elimination
    cannot be taken back, so nothing is guessed. A number that is not finite is no reading; the answer then is no data.
    """
    match response:
        case None:
            return ReadResponse(None, {})
        case list() | tuple():
            return _reduce(probe, response)
        case _ if probe.window is not None and response != NO_DATA:
            return _reduce(probe, response)
        case str():
            found = probe.outcome(response)
            if found is None and response != NO_DATA:
                raise _unreadable(probe, f"has no outcome `{show_found(response)}`", response)
            return ReadResponse(found, {})
        case bool():
            named = str(response).lower()
            raise _unreadable(probe, f"has no outcome `{named}`; an outcome is named by a text", response)
        case Real() if probe.reading is not None:
            return _read_number(probe, probe.reading, response)
        case Real():
            raise _unreadable(probe, f"reads no numbers, and got {show_found(response)}", response)
        case _:
            raise _unreadable(probe, f"cannot read a response of type {type(response).__name__}", response)


def outcome_for(probe: KitProbe, response: Any) -> KitOutcome | None:
    """The outcome that a response stands for; None for no data. Raises what `read_response` raises."""
    return read_response(probe, response).outcome


def _reduce(probe: KitProbe, response: Any) -> ReadResponse:
    reduced = reduce_window(probe, response)
    return ReadResponse(reduced.outcome, {"window": reduced.to_record()})


def _read_number(probe: KitProbe, reading: Reading, response: Any) -> ReadResponse:
    number = to_finite(response)
    if number is None:
        raise InvalidRequest(
            f"the reading of probe `{probe.probe_id}` is not a finite number; without a reading, answer `{NO_DATA}`",
            {
                "probe_id": probe.probe_id,
                "field": "response",
                "found": show_found(response),
                "accepted": "a finite number",
                "next": f"send what was read, or `{NO_DATA}`",
            },
        )
    outcome_id = reading.outcome_of(number)
    # As text: canonical JSON has neither infinities nor whole numbers beyond 2^53.
    record = {"reading": repr(number)}
    if isinstance(reading, NormalBand):
        record["robust_z"] = f"{reading.robust_z(number):.3f}"
    return ReadResponse(None if outcome_id is None else probe.outcome(outcome_id), record)


def _unreadable(probe: KitProbe, what: str, response: Any) -> InvalidRequest:
    ids = [each.outcome_id for each in probe.outcomes]
    numbers = ", a number" if probe.reading is not None else ""
    accepted = f"{list_ids(ids)}{numbers} or `{NO_DATA}`"
    return InvalidRequest(
        f"probe `{probe.probe_id}` {what}: it takes {accepted}",
        {
            "probe_id": probe.probe_id,
            "field": "response",
            "found": show_found(response),
            "accepted": accepted,
            "next": f"send one of these; for what was looked for and not found, `{NO_DATA}`",
            "outcomes": ids[:100],
        },
    )
