"""Moments as the ledger writes them: RFC 3339 text in UTC with microseconds, whose order is that of text.

Kernels have no clock: a deadline is a moment that was recorded, and so many milliseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from msgspec import Meta

from cmbs.errors import InvalidRequest

# How a schema describes one.
Timestamp = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$",
        description="RFC 3339 in UTC, with microseconds.",
        extra_json_schema={"format": "date-time"},
    ),
]
FIRST = "0001-01-01T00:00:00.000000Z"
LAST = "9999-12-31T23:59:59.999999Z"

# The standard library reads other forms of ISO 8601 too.
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_RFC_3339 = re.compile(
    rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[Tt]{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:[Zz]|[+-]{_CLOCK})"
)


def later(moment: str, milliseconds: int) -> str:
    """The moment so much later, and never beyond the last one that can be written."""
    try:
        return _format(datetime.fromisoformat(moment) + timedelta(milliseconds=milliseconds))
    except OverflowError:
        return LAST


def parse_instant(text: str, field: str) -> str:
    """A moment from outside, in the ledger's own form; InvalidRequest names the `field` where it is none.

    Digits beyond the microsecond are cut off. A leap second is refused: the ledger's clock has none.
    """
    try:
        if _RFC_3339.fullmatch(text) is not None:
            return _format(datetime.fromisoformat(text.upper()).astimezone(UTC))
    except (ValueError, OverflowError):
        pass  # no such day, or beyond the years that can be written
    shown = text if len(text) <= len(LAST) + len("+00:00") else text[: len(LAST)] + "…"
    raise InvalidRequest(
        f"`{field}` must be a moment as in `2026-01-31T09:30:00Z` (RFC 3339), got `{shown}`", {"field": field}
    )


def _format(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
