"""Where a session's universe may come from when its declaration names none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True)
class AnchoredUniverse:
    """The hypotheses of a session. `causal_graph_version` is what they are the whole of; None where none is counted.

    `attributes` is what the graph says of some of them, by hypothesis and name; None where that is too much to carry.
    A store may leave them empty for a session that it knows already.
    """

    hypothesis_ids: frozenset[str]
    causal_graph_version: str | None
    attributes: Mapping[str, Mapping[str, Any]] | None = field(default_factory=dict, compare=False)


@runtime_checkable
class UniverseSource(Protocol):
    """An elimination store that has hypotheses of its own.

    What MUST hold: the answer is what the graph has at the version that it names, and stays so however the graph grows.
    For a session that was created, it is the universe that it was created with. Where there are no hypotheses, or the
    graph is at another version than the one that is expected, the answer says so and has no ids. A store that cannot
    be reached is a `StoreUnavailable`.

    What MAY differ: a store that counts no versions may have to write, so that a session stays where it was anchored.
    """

    def anchor(self, session_id: str, expected_version: str = "") -> AnchoredUniverse:
        """The universe of a session that is declared, or about to be; any version will do where none is expected."""
        ...


@runtime_checkable
class AnchoringStore(Protocol):
    """A `UniverseSource` that creates a session at the version which `anchor` named, whatever was merged since."""

    def create_session_at(self, session_id: str, hypothesis_ids: frozenset[str], version: str) -> None:
        """As `create_session` of an elimination store. A version that the graph never had is no error."""
        ...
