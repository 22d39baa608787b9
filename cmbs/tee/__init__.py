"""Tee: the causal graph that many agents grow while many incidents eliminate from it.

The lattice and the contract of a graph store are in `cmbs.tee.kernel`, the drivers in `cmbs.tee.stores`, the gRPC
service in `cmbs.tee.service`.
"""

from cmbs.tee.kernel.lattice import (
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
from cmbs.tee.kernel.store import (
    CreatedIncident,
    EdgeTombstones,
    GraphPage,
    GraphStore,
    GraphView,
    Identity,
    Incident,
    MergeResult,
    NodeTombstones,
    Tombstones,
    Universe,
    UniverseKind,
)

__all__ = [
    "CreatedIncident",
    "Delta",
    "Edge",
    "EdgeKey",
    "EdgeTombstones",
    "EdgeType",
    "GraphPage",
    "GraphStore",
    "GraphView",
    "Identity",
    "Incident",
    "MergeConflict",
    "MergeResult",
    "Node",
    "NodeTombstones",
    "NodeType",
    "Provenance",
    "Timestamp",
    "Tombstones",
    "Universe",
    "UniverseKind",
    "edge_id",
]
