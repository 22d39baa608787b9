"""Tee: the causal graph that many agents grow while many incidents eliminate from it.

The lattice and the contract of a graph store are here; the drivers and the gRPC service are modules of their own, which
need what they are made of: `cmbs.tee.memory`, `cmbs.tee.sqlite`, `cmbs.tee.neo4j`, `cmbs.tee.service`.
"""

from cmbs.tee.graph_store import (
    CreatedIncident,
    EdgeTombstones,
    GraphStore,
    GraphView,
    Incident,
    MergeResult,
    NodeTombstones,
    Tombstones,
)
from cmbs.tee.lattice import (
    Delta,
    Edge,
    EdgeKey,
    EdgeType,
    MergeConflict,
    Node,
    NodeType,
    Provenance,
    Timestamp,
    edge_id,
)

__all__ = [
    "CreatedIncident",
    "Delta",
    "Edge",
    "EdgeKey",
    "EdgeTombstones",
    "EdgeType",
    "GraphStore",
    "GraphView",
    "Incident",
    "MergeConflict",
    "MergeResult",
    "Node",
    "NodeTombstones",
    "NodeType",
    "Provenance",
    "Timestamp",
    "Tombstones",
    "edge_id",
]
