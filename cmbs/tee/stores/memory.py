"""The causal graph in this process: gone when it ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cmbs.errors import IncidentNotFound
from cmbs.tee.kernel.graph import Graph, IncidentState
from cmbs.tee.kernel.lattice import Delta, EdgeKey, Provenance, Timestamp
from cmbs.tee.kernel.merge import decide_tombstones
from cmbs.tee.kernel.store import (
    CreatedIncident,
    EdgeTombstones,
    GraphView,
    Incident,
    MergeResult,
    NodeTombstones,
    Tombstones,
)
from cmbs.tee.kernel.wire import encode_change


class MemoryGraphStore:
    """A `GraphStore` without a disk."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graph = Graph()
        self._incidents: dict[str, IncidentState] = {}

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

    def create_incident(self, incident_id: str, now: Timestamp) -> CreatedIncident:
        """Create an incident, anchored at the present version; an existing one is returned as it is."""
        with self._lock:
            known = self._incidents.get(incident_id)
            if known is not None:
                return CreatedIncident(known.incident, created=False)
            incident = Incident(incident_id, now, self._graph.version)
            self._incidents[incident_id] = IncidentState(incident)
            return CreatedIncident(incident, created=True)

    def incident(self, incident_id: str) -> Incident:
        """An incident."""
        return self._state(incident_id).incident

    def merge_node_tombstones(
        self, incident_id: str, node_ids: Sequence[str], provenance: Provenance
    ) -> NodeTombstones:
        """Tombstone nodes for an incident; those outside the graph (as of the anchor) are kept and unmatched."""
        with self._lock:
            state = self._state(incident_id)
            merge, new = decide_tombstones(node_ids, self._graph.has_node(state.incident.anchor), state.nodes)
            state.nodes.update(dict.fromkeys(new, provenance))
        return merge

    def merge_edge_tombstones(
        self, incident_id: str, edges: Sequence[EdgeKey], provenance: Provenance
    ) -> EdgeTombstones:
        """Tombstone edges for an incident; those outside the graph (as of the anchor) are kept and unmatched."""
        with self._lock:
            state = self._state(incident_id)
            merge, new = decide_tombstones(edges, self._graph.has_edge(state.incident.anchor), state.edges)
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

    def close(self) -> None:
        """Nothing is held."""

    def _state(self, incident_id: str) -> IncidentState:
        state = self._incidents.get(incident_id)
        if state is None:
            raise IncidentNotFound(incident_id)
        return state
