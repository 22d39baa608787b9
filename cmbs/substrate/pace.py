"""How long a piece of work may keep a processor busy, and that it gives way to others meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

# Work that takes long rests as long as it works: others then wait for a turn of one slice at most.
_SLICE_SECONDS = 0.005


class Pace:
    """Says whether a piece of work may go on: until it has used its processor time, or its caller has left.

    Made by who asks for the work; `begin` and `may_go_on` are called in the thread that works, `leave` in any.
    """

    def __init__(
        self,
        seconds: float,
        *,
        used: Callable[[], float] = time.thread_time,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        """`used` is the processor time of the thread that works, in seconds."""
        self.seconds = seconds
        self._used = used
        self._rest = rest
        self._ends = self._slice_ends = 0.0
        self._has_left = False
        self.has_stopped = False

    def begin(self) -> None:
        """Count from now on."""
        now = self._used()
        self._ends, self._slice_ends = now + self.seconds, now + _SLICE_SECONDS

    def leave(self) -> None:
        """Nobody waits for the work any more."""
        self._has_left = True

    def may_go_on(self) -> bool:
        """Whether the work may go on; it may rest first."""
        now = self._used()
        if self.has_stopped or self._has_left or now >= self._ends:
            self.has_stopped = True
            return False
        if now >= self._slice_ends:
            self._rest(_SLICE_SECONDS)
            self._slice_ends = self._used() + _SLICE_SECONDS
        return True
