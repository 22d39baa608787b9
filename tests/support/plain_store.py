"""The least that may be plugged in as an elimination store: the five methods of its specification, and two dicts."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from cmbs.errors import SessionNotFound
from cmbs.spi import EliminationProvenance, EliminationResult, RecoveredState


class PlainStore:
    """Tombstones in this process, and who caused them. It is no audit log."""

    def __init__(self) -> None:
        self._universes: dict[str, frozenset[str]] = {}
        self._tombstones: dict[str, frozenset[str]] = {}
        self.provenances: list[EliminationProvenance] = []

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """Register a session."""
        self._universes[session_id] = hypothesis_ids
        self._tombstones.setdefault(session_id, frozenset())

    def eliminate(
        self, session_id: str, eliminated: AbstractSet[str], provenance: EliminationProvenance
    ) -> EliminationResult:
        """Add tombstones."""
        known = frozenset(eliminated) & self._universe(session_id)
        before = self._tombstones[session_id]
        self._tombstones[session_id] = before | known
        self.provenances.append(provenance)
        return EliminationResult(known - before, known & before)

    def get_survivors(self, session_id: str) -> frozenset[str]:
        """What is left."""
        return self._universe(session_id) - self._tombstones[session_id]

    def get_eliminated(self, session_id: str) -> frozenset[str]:
        """What is gone."""
        self._universe(session_id)
        return self._tombstones[session_id]

    def recover(self, session_id: str) -> RecoveredState:
        """Everything."""
        return RecoveredState(
            self._universe(session_id), self.get_eliminated(session_id), self.get_survivors(session_id)
        )

    def _universe(self, session_id: str) -> frozenset[str]:
        if session_id not in self._universes:
            raise SessionNotFound(session_id)
        return self._universes[session_id]
