"""Known faults of a system, and how its components pass trouble on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """A part of a system; `node_type` is its type in a causal graph."""

    id: str
    label: str
    node_type: str


@dataclass(frozen=True, slots=True, order=True)
class Alert:
    """An alert, and the name of what it fires at."""

    name: str
    target: str

    @property
    def id(self) -> str:
        """`alert@target`."""
        return f"{self.name}@{self.target}"


@dataclass(frozen=True, slots=True)
class KnownFault:
    """What goes wrong, where it begins, what that spreads to, and which alerts tell.

    `mechanism_id` names it in a causal graph, and `provenance` says who knows of it.
    """

    fault_id: str
    label: str
    mechanism_id: str
    provenance: str
    root_causes: frozenset[Component]
    components: frozenset[Component]
    alerts: frozenset[Alert]
    propagations: frozenset[tuple[Component, Component]]


@dataclass(frozen=True, slots=True)
class System:
    """A system as its known faults. `system_id` begins the ids of its kits, `title` their titles."""

    system_id: str
    title: str
    source: str
    faults: tuple[KnownFault, ...]
