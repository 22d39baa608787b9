"""Feed a core with eliminations that another system has already decided.

The adapter forwards and interprets nothing: ids pass through as they are, and what the core answers is the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass

from cmbs.core import CMBSCore, ProbeResult


@dataclass(frozen=True, slots=True)
class LegacyEliminationEvent:
    """One elimination as the other system recorded it."""

    probe_id: str
    observable_id: str
    eliminated_hypotheses: Collection[Hashable]


class LegacyReplayAdapter:
    """Replays the events of another system into one core."""

    __slots__ = ("_core",)

    def __init__(self, core: CMBSCore) -> None:
        """Forward everything to `core`."""
        self._core = core

    def submit_elimination_event(self, event: LegacyEliminationEvent) -> ProbeResult:
        """Forward one event and return the core's answer."""
        return submit_legacy_elimination(self._core, event.probe_id, event.observable_id, event.eliminated_hypotheses)

    def submit_elimination_events(self, events: Iterable[LegacyEliminationEvent]) -> list[ProbeResult]:
        """Forward events in the order given and return the core's answers; a refused one does not stop the rest."""
        return [self.submit_elimination_event(event) for event in events]


def submit_legacy_elimination(
    core: CMBSCore, probe_id: str, observable_id: str, eliminated_hypotheses: Iterable[Hashable]
) -> ProbeResult:
    """Forward one elimination to `core` and return its answer."""
    return core.submit_probe_result(probe_id, observable_id, eliminated_hypotheses)
