"""Where a session's universe may come from when its declaration names none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class AnchoredUniverse:
    """The hypotheses of a session. `causal_graph_version` is what they are the whole of; None where none is counted."""

    hypothesis_ids: frozenset[str]
    causal_graph_version: str | None


@runtime_checkable
class UniverseSource(Protocol):
    """An elimination store that has hypotheses of its own.

    What MUST hold: the first `anchor` for a session id fixes its universe, whatever becomes of the graph or of the
    session later; the same id again gives the same answer. Nothing is fixed where there are no hypotheses, or where
    the graph is at another version than the one that is expected: the answer says so, and has no ids. A store that
    cannot be reached is a `StoreUnavailable`.
    """

    def anchor(self, session_id: str, expected_version: str = "") -> AnchoredUniverse:
        """The universe of a session that is declared, or about to be; any version will do where none is expected."""
        ...
