"""What an elimination store outside the log may say of itself, so that log and store can be held against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cmbs.spi.elimination_store import EliminationProvenance


@dataclass(frozen=True)
class StoreIdentity:
    """Which store this is, and the ids of lost ones that it stands in for."""

    store_id: str
    stands_in_for: frozenset[str] = frozenset()

    def is_home_of(self, store_id: str) -> bool:
        """Whether what was put into the store of this id is to be found here."""
        return store_id == self.store_id or store_id in self.stands_in_for


@runtime_checkable
class IdentifiedStore(Protocol):
    """An elimination store with an id that was made when it was: emptied and made again, it has another one."""

    def identity(self) -> StoreIdentity | None:
        """Which store this is; None where it cannot tell. `StoreUnavailable` where it cannot be asked."""
        ...


@runtime_checkable
class ConnectedStore(Protocol):
    """An elimination store behind a connection: where that was lost, another store, or an older one, may be back."""

    def losses(self) -> int:
        """How often the connection was lost so far."""
        ...


@runtime_checkable
class SourcedStore(Protocol):
    """An elimination store that others may write to, and that keeps what each tombstone was put there with."""

    def group_eliminated(self, session_id: str) -> Mapping[EliminationProvenance, frozenset[str]]:
        """The tombstones of a session, whether in its universe or not, by provenance."""
        ...
