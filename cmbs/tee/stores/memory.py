"""The causal graph in this process: gone when it ends."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

from cmbs.errors import IncidentNotFound
from cmbs.tee.kernel.graph import Graph, IncidentState
from cmbs.tee.kernel.lattice import Delta, EdgeKey, Node, Provenance, Timestamp
from cmbs.tee.kernel.merge import choose_anchor, decide_tombstones, find_unknown
from cmbs.tee.kernel.store import (
    CreatedIncident,
    EdgeTombstones,
    GraphPage,
    GraphView,
    Identity,
    Incident,
    MergeResult,
    NodeTombstones,
    Tombstones,
    Universe,
)
from cmbs.tee.kernel.wire import encode_change


class MemoryGraphStore:
    """A `GraphStore` without a disk."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graph = Graph()
        self._incidents: dict[str, IncidentState] = {}
        self._identity = Identity(secrets.token_hex(16))

    def identity(self) -> Identity:
        """Which Tee this is."""
        return self._identity

    def stand_in_for(self, tee_ids: Sequence[str]) -> Identity:
        """Add Tees that were lost to those that this one stands in for."""
        with self._lock:
            known = self._identity
            named = (each for each in (*known.stands_in_for, *tee_ids) if each != known.tee_id)
            self._identity = known._replace(stands_in_for=tuple(dict.fromkeys(named)))
            return self._identity

    def merge(self, delta: Delta) -> MergeResult:
        """Merge a delta into the main graph."""
        with self._lock:
            change = self._graph.decide(delta)
            if change.grows:
                self._graph.absorb(self._graph.version + 1, *encode_change(change))
            return change.result(self._graph.version)

    def version(self) -> int:
        """The present version of the main graph."""
        return self._graph.version

    def main_graph(self) -> GraphView:
        """The main graph with its present version."""
        with self._lock:
            return self._graph.view(self._graph.version)

    def graph_at(self, version: int, *, edges: bool = True) -> GraphView:
        """The main graph as of a version."""
        with self._lock:
            view = self._graph.view(choose_anchor(version, self._graph.version))
        return view if edges else view._replace(edges=())

    def create_incident(
        self, incident_id: str, now: Timestamp, anchor: int | None = None, universe: Universe | None = None
    ) -> CreatedIncident:
        """Create an incident; an existing one is returned as it is."""
        with self._lock:
            known = self._incidents.get(incident_id)
            if known is not None:
                return CreatedIncident(known.incident, created=False)
            version = choose_anchor(anchor, self._graph.version)
            incident = Incident(incident_id, now, version, None if universe is None else universe.kind)
            unknown = find_unknown(universe, self._graph.has_node(version), self._graph.has_edge(version))
            if not unknown:
                self._incidents[incident_id] = IncidentState(incident, universe)
            return CreatedIncident(incident, not unknown, unknown)

    def universe(self, incident_id: str) -> Universe | None:
        """The universe that an incident was created with."""
        return self._state(incident_id).universe

    def incident(self, incident_id: str) -> Incident:
        """An incident."""
        return self._state(incident_id).incident

    def merge_node_tombstones(
        self, incident_id: str, node_ids: Sequence[str], provenance: Provenance
    ) -> NodeTombstones:
        """Tombstone nodes for an incident; those outside the graph (as of the anchor) are kept and unmatched."""
        with self._lock:
            state = self._state(incident_id)
            merge, new = decide_tombstones(
                node_ids, self._graph.has_node(state.incident.anchor), state.nodes, state.count
            )
            state.nodes.update(dict.fromkeys(new, provenance))
        return merge

    def merge_edge_tombstones(
        self, incident_id: str, edges: Sequence[EdgeKey], provenance: Provenance
    ) -> EdgeTombstones:
        """Tombstone edges for an incident; those outside the graph (as of the anchor) are kept and unmatched."""
        with self._lock:
            state = self._state(incident_id)
            merge, new = decide_tombstones(edges, self._graph.has_edge(state.incident.anchor), state.edges, state.count)
            state.edges.update(dict.fromkeys(new, provenance))
        return merge

    def tombstones(self, incident_id: str) -> Tombstones:
        """All tombstones of an incident, the unmatched included."""
        with self._lock:
            return self._state(incident_id).tombstones()

    def live_view(self, incident_id: str) -> GraphView:
        """The graph as of the incident's anchor less its tombstones."""
        with self._lock:
            state = self._state(incident_id)
            return self._graph.view(state.incident.anchor, state.nodes, state.edges)

    def find_nodes(self, version: int, node_ids: Sequence[str]) -> frozenset[str]:
        """Those of the ids that are nodes born up to a version."""
        with self._lock:
            return frozenset(filter(self._graph.has_node(version), node_ids))

    def nodes_at(self, version: int, node_ids: Sequence[str]) -> list[Node]:
        """Those of the nodes that were born up to a version."""
        with self._lock:
            return self._graph.nodes_at(version, node_ids)

    def edges_at(self, version: int, node_ids: Sequence[str]) -> list[EdgeKey]:
        """The edges, born up to a version, that have one of these nodes at either end."""
        with self._lock:
            return self._graph.edges_at(version, node_ids)

    def page_at(self, version: int, token: str, size: int) -> GraphPage:
        """A page of what was born up to a version."""
        with self._lock:
            return self._graph.page_at(version, token, size)

    def close(self) -> None:
        """Nothing is held."""

    def _state(self, incident_id: str) -> IncidentState:
        state = self._incidents.get(incident_id)
        if state is None:
            raise IncidentNotFound(incident_id)
        return state
