"""Moments of the ledger against the standard library's calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmbs.errors import InvalidRequest
from cmbs.ledger.instants import FIRST, LAST, later, parse_instant
from tests.support.subtests import for_each

MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))  # noqa: DTZ001 - naive bounds
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def written(moment: datetime) -> str:
    return f"{moment.year:04d}{moment:-%m-%dT%H:%M:%S.%f}Z"


@given(MOMENTS, st.integers(0, 10**15))
@example(datetime(9999, 12, 30), 10**15)  # noqa: DTZ001 - as drawn
def test_later_is_what_a_calendar_says(moment: datetime, milliseconds: int) -> None:
    try:
        expected = written(moment + timedelta(milliseconds=milliseconds))
    except OverflowError:
        expected = LAST
    assert later(written(moment), milliseconds) == expected


@given(MOMENTS, OFFSETS)
def test_a_moment_anywhere_is_written_in_utc(moment: datetime, offset: timezone) -> None:
    there = moment.replace(tzinfo=offset)
    text = f"{there.year:04d}-{there.isoformat()[5:]}"
    assert parse_instant(text, "at") == written(there.astimezone(UTC))


@given(MOMENTS)
def test_what_the_ledger_wrote_stays_as_it_is(moment: datetime) -> None:
    assert parse_instant(written(moment), "at") == written(moment)


@for_each(
    ("text", "expected"),
    [
        ("2026-01-31T09:30:00Z", "2026-01-31T09:30:00.000000Z"),
        ("2026-01-31t09:30:00.5z", "2026-01-31T09:30:00.500000Z"),
        ("2026-01-31T09:30:00.123456789Z", "2026-01-31T09:30:00.123456Z"),
        ("2024-02-29T23:59:59-00:01", "2024-03-01T00:00:59.000000Z"),
        ("2000-02-29T00:00:00Z", "2000-02-29T00:00:00.000000Z"),
        (FIRST, FIRST),
        (LAST, LAST),
    ],
)
def test_rfc_3339_in_all_its_forms_is_understood(text: str, expected: str) -> None:
    assert parse_instant(text, "at") == expected


@for_each(
    "text",
    [
        "",
        "tomorrow",
        "2026-01-31",
        "2026-01-31T09:30:00",
        "2026-01-31 09:30:00Z",
        "2026-01-31T09:30:00Z\n",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-04-00T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2026-06-30T23:59:60Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+00:60",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "\uff12\uff10\uff12\uff16-01-31T09:30:00Z",
        "2026-01-31T09:30:00." + "0" * 100_000 + "Z",
    ],
)
def test_what_is_no_moment_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match="`review_at` must be a moment") as refused:
        parse_instant(text, "review_at")
    assert refused.value.details == {"field": "review_at"}
    assert len(refused.value.message) < 200
