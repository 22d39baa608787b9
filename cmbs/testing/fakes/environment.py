"""A clock and an id source without surprises: what a server takes from the world around it, owned by the test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Lock

_NO_TIME = timedelta()
_MICROSECOND = timedelta(microseconds=1)


class ManualClock:
    """A `Clock` that moves only as it is told: by `tick` at every reading, by `advance`, and by `set`.

    With the default tick no two readings are the same, and each is later than the one before. A tick of nothing makes
    time stand still; `set` may also turn it back, as a machine's clock may be. Threads may share a clock.
    """

    def __init__(self, start: str = "2026-01-01T00:00:00.000000Z", tick: timedelta = _MICROSECOND) -> None:
        if tick < _NO_TIME:
            raise ValueError("a tick must not turn the clock back")
        self._next = _moment(start)
        self._tick = tick
        self._lock = Lock()

    def now(self) -> str:
        """The time in UTC: RFC 3339 text with microseconds."""
        with self._lock:
            moment = self._next
            self._next = moment + self._tick
        return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"

    def set(self, moment: str) -> None:
        """Make this the next reading."""
        then = _moment(moment)
        with self._lock:
            self._next = then

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        if by < _NO_TIME:
            raise ValueError("time passes forward only; use `set` to turn the clock back")
        with self._lock:
            self._next += by


class SequentialIds:
    """An `IdSource` that counts: ids with the shape of a version 4 UUID, in order, and the same in every run.

    Sources with different `space` numbers never hand out the same id.
    """

    def __init__(self, space: int = 0) -> None:
        if not 0 <= space < 1 << 32:
            raise ValueError("`space` must fit in 32 bits")
        self._space = space
        self._numbers = count(1)
        self._lock = Lock()

    def new_id(self) -> str:
        """The next id."""
        with self._lock:
            number = next(self._numbers)
        return f"{self._space:08x}-0000-4000-8000-{number:012x}"


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"`{text}` has no time zone")
    return moment.astimezone(UTC)
