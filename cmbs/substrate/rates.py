"""How much each agent proposes in a second, as far as this process sees it."""

from __future__ import annotations

from collections import Counter
from threading import Lock

from cmbs.errors import LimitExceeded
from cmbs.messages import Actor
from cmbs.spi import Clock
from cmbs.substrate.kernel.loads import is_bounded

# The characters of a moment that name its second.
_SECOND = len("2026-01-01T00:00:00")


class ProposalRate:
    """Counts the proposals of the current second of the clock, by space and agent."""

    def __init__(self, clock: Clock, maximum: int) -> None:
        self._clock = clock
        self._maximum = maximum
        self._lock = Lock()
        self._second = ""
        self._counted: Counter[tuple[str, str]] = Counter()

    def count(self, space_id: str, actor: Actor) -> None:
        """Count one proposal more; LimitExceeded where it is one too many."""
        if not is_bounded(actor):
            return
        second = self._clock.now()[:_SECOND]
        with self._lock:
            if second != self._second:
                self._second, self._counted = second, Counter()
            self._counted[space_id, actor.id] += 1
            counted = self._counted[space_id, actor.id]
        if counted > self._maximum:
            raise LimitExceeded("agent_proposals_per_second", self._maximum, counted, agent_id=actor.id)
