"""What a server takes from the world around it: the time and fresh ids. Injected, so that tests own both."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The time, as the ledger records it."""

    def now(self) -> str:
        """The present moment in UTC: RFC 3339 text with microseconds, as in `2026-01-31T09:30:00.000000Z`.

        MAY go backwards (clocks are set); the order of events is their `seq`, never their time.
        """
        ...


class IdSource(Protocol):
    """Fresh ids."""

    def new_id(self) -> str:
        """A UUID in its canonical text form that was never handed out before."""
        ...
