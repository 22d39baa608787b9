"""Moments as the ledger writes them: RFC 3339 text in UTC with microseconds, whose order is that of text.

Kernels have no clock and need none of its types: a deadline is a moment that was recorded, and so many milliseconds.
"""

from __future__ import annotations

import re

from cmbs.errors import InvalidRequest

FIRST = "0001-01-01T00:00:00.000000Z"
LAST = "9999-12-31T23:59:59.999999Z"

_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_RFC_3339 = re.compile(
    rf"([0-9]{{4}})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]({_CLOCK}:[0-5][0-9])(?:\.([0-9]{{1,9}}))?"
    rf"(?:[Zz]|([+-])({_CLOCK}))"
)
_MICROS_OF_A_MILLI = 1_000
_MICROS_OF_A_SECOND = 1_000_000
_MICROS_OF_A_MINUTE = 60 * _MICROS_OF_A_SECOND
_MICROS_OF_A_DAY = 1_440 * _MICROS_OF_A_MINUTE
_DAYS_OF_AN_ERA = 146_097  # four hundred years
_FEBRUARY = 2


def later(moment: str, milliseconds: int) -> str:
    """The moment so much later, and never beyond the last one that can be written."""
    return _written(min(_micros(moment) + milliseconds * _MICROS_OF_A_MILLI, _LAST_MICRO))


def checked_instant(text: str, field: str) -> str:
    """A moment from outside, in the ledger's own form; InvalidRequest names the `field` where it is none.

    Digits beyond the microsecond are cut off. A leap second is refused: the ledger's clock has none.
    """
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise _refused(text, field)
    year, month, day, clock, fraction, sign, offset = match.groups()
    if int(day) > _days_of_month(int(year), int(month)):
        raise _refused(text, field)
    micros = _micros(f"{year}-{month}-{day}T{clock}.{(fraction or '')[:6]:0<6}Z")
    if sign is not None:
        east = (int(offset[:2]) * 60 + int(offset[3:])) * _MICROS_OF_A_MINUTE
        micros += east if sign == "-" else -east
    if not _FIRST_MICRO <= micros <= _LAST_MICRO:
        raise _refused(text, field)
    return _written(micros)


def _refused(text: str, field: str) -> InvalidRequest:
    shown = text if len(text) <= len(LAST) + len("+00:00") else text[: len(LAST)] + "…"
    return InvalidRequest(
        f"`{field}` must be a moment as in `2026-01-31T09:30:00Z` (RFC 3339), got `{shown}`", {"field": field}
    )


def _days_of_month(year: int, month: int) -> int:
    if month == _FEBRUARY:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 + (month + (month >> 3)) % 2


def _micros(moment: str) -> int:
    """Microseconds since the first of March of the year 0, of a moment in the ledger's form."""
    month = int(moment[5:7])
    # With March as the first month the leap day is the last of its year, and no month after it needs to know.
    year = int(moment[:4]) - (month <= _FEBRUARY)
    days = 365 * year + year // 4 - year // 100 + year // 400
    days += (153 * ((month + 9) % 12) + 2) // 5 + int(moment[8:10]) - 1
    minutes = int(moment[11:13]) * 60 + int(moment[14:16])
    return days * _MICROS_OF_A_DAY + minutes * _MICROS_OF_A_MINUTE + int(moment[17:19] + moment[20:26])


def _written(micros: int) -> str:
    days, rest = divmod(micros, _MICROS_OF_A_DAY)
    era, day_of_era = divmod(days, _DAYS_OF_AN_ERA)
    # How many years of 365 days, once the leap days of every fourth year but the hundredth ones are taken out.
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    year = era * 400 + year_of_era + (month >= 10)  # noqa: PLR2004 - January and February end the year that March began
    seconds, fraction = divmod(rest, _MICROS_OF_A_SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{year:04d}-{(month + 2) % 12 + 1:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{fraction:06d}Z"


_FIRST_MICRO = _micros(FIRST)
_LAST_MICRO = _micros(LAST)
