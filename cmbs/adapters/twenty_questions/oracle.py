"""A scripted player that has a thing in mind: for tests, and to watch a game."""

from __future__ import annotations

from cmbs.errors import InvalidRequest
from cmbs.kit import NO_DATA, Kit, KitProbe


class Oracle:
    """Answers for one hypothesis of a kit, and never lies.

    Where more than one outcome is consistent with it, it does not know; an `outspoken` one says the first of them.
    """

    def __init__(self, kit: Kit, hypothesis_id: str, *, outspoken: bool = False) -> None:
        if hypothesis_id not in kit.hypothesis_ids:
            raise InvalidRequest(f"kit `{kit.kit_id}` has no `{hypothesis_id}`")
        self.hypothesis_id = hypothesis_id
        self._outspoken = outspoken

    def answer(self, probe: KitProbe) -> str:
        """The id of an outcome, or `NO_DATA`."""
        consistent = [each.outcome_id for each in probe.outcomes if self.hypothesis_id not in each.eliminates]
        return consistent[0] if len(consistent) == 1 or (consistent and self._outspoken) else NO_DATA

    def is_it(self, hypothesis_id: str) -> bool:
        """Whether a guess is right."""
        return hypothesis_id == self.hypothesis_id
