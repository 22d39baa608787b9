"""An elimination store that a test can make fail, hang or answer late, and that counts what it was told."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from threading import Event

from cmbs.errors import Conflict
from cmbs.spi import EliminationProvenance, EliminationResult
from tests.support.plain_store import PlainStore


class WaywardStore(PlainStore):
    """A plain store; `before` and `after` run around each call that writes, and may raise or wait."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, frozenset[str]]] = []
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.answered = Event()

    def heal(self) -> None:
        """From here on every call goes well."""
        self.before = self.after = lambda: None

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """Register a session; another universe under the same id is refused."""
        self.sent.append(("create_session", hypothesis_ids))
        self.before()
        if self._universes.get(session_id, hypothesis_ids) != hypothesis_ids:
            raise Conflict(f"session `{session_id}` exists with another universe")
        super().create_session(session_id, hypothesis_ids)
        self.after()
        self.answered.set()

    def eliminate(
        self, session_id: str, eliminated: AbstractSet[str], provenance: EliminationProvenance
    ) -> EliminationResult:
        """Add tombstones."""
        self.sent.append(("eliminate", frozenset(eliminated)))
        self.before()
        result = super().eliminate(session_id, eliminated, provenance)
        self.after()
        self.answered.set()
        return result
