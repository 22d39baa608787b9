"""The machine's clock and ids: what servers use where no others are injected."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta

from cmbs.system import RandomIds, SystemClock


def test_ids_are_random_uuids_in_their_canonical_form() -> None:
    ids = RandomIds()
    made = [ids.new_id() for _ in range(100)]
    assert len(set(made)) == 100
    for text in made:
        assert str(uuid.UUID(text)) == text
        assert (uuid.UUID(text).version, uuid.UUID(text).variant) == (4, uuid.RFC_4122)


def test_moments_are_utc_with_microseconds() -> None:
    clock = SystemClock()
    before = datetime.now(UTC) - timedelta(seconds=1)
    moment = clock.now()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", moment)
    assert before <= datetime.fromisoformat(moment) <= datetime.now(UTC) + timedelta(seconds=1)
