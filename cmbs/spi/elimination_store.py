"""Where tombstones live: the Elimination Store SPI, as its specification defines it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class EliminationProvenance:
    """Where an elimination came from; carried, never interpreted."""

    source_id: str
    trigger: str


@dataclass(frozen=True)
class EliminationResult:
    """What a store made of a request, authoritative for each id.

    `total` is how many tombstones the session has in the store afterwards, those of other writers included; None of a
    store that does not count them. Fewer than the log has mean that the store was put back to an older state.
    """

    applied: frozenset[str]
    already_eliminated: frozenset[str]
    total: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class RecoveredState:
    """What a store knows of a session; `survivors` is the universe less the eliminated."""

    hypothesis_ids: frozenset[str]
    eliminated: frozenset[str]
    survivors: frozenset[str]


@runtime_checkable
class EliminationStore(Protocol):
    """Holds, for each session, a universe and the tombstones in it.

    What MUST hold: tombstones are never removed; `eliminate` is idempotent and atomic; when it returns, the tombstones
    are as durable as the store gets; an id outside the universe changes nothing and is in neither set of the result; a
    call that raises has changed nothing or can be repeated safely. Methods may be called from several threads at once.
    A session that was never created is a `SessionNotFound`; a store that cannot be reached, a `StoreUnavailable`.

    `cmbs.testing.contracts.elimination_store` has this as tests that every store passes.
    """

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """Register a session and its universe. Repeating it changes nothing; another universe is a `Conflict`."""
        ...

    def eliminate(
        self, session_id: str, eliminated: AbstractSet[str], provenance: EliminationProvenance
    ) -> EliminationResult:
        """Add tombstones; tells which are new and which were there before."""
        ...

    def get_survivors(self, session_id: str) -> frozenset[str]:
        """The universe less the tombstones."""
        ...

    def get_eliminated(self, session_id: str) -> frozenset[str]:
        """The tombstones."""
        ...

    def recover(self, session_id: str) -> RecoveredState:
        """Universe, tombstones and survivors, consistent with each other."""
        ...
