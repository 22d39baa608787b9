"""The clock and the ids of the machine."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime


class SystemClock:
    """The machine's clock."""

    def now(self) -> str:
        """The present moment in UTC."""
        return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


class RandomIds:
    """Random UUIDs."""

    def new_id(self) -> str:
        """A version 4 UUID."""
        return str(uuid.uuid4())
