"""The causal graph of a system, in the JSON that `cmbs tee load` reads.

A component that passes trouble on to another PROPAGATES_TO it; a fault is a mechanism that MANIFESTS_AS its root
causes. Everything is hypothetical, with those who say so as its provenance. The graph may have circles.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from cmbs.adapters.sre.faults import System


def causal_graph(system: System) -> dict[str, Any]:
    """The graph of all faults together; the same faults give the same graph, whatever their order."""
    nodes: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    edges: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for fault in system.faults:
        for component in fault.components:
            nodes[component.id, component.node_type, component.label].add(fault.provenance)
        for source, target in fault.propagations:
            edges[source.id, target.id, "PROPAGATES_TO"].add(fault.provenance)
        if fault.root_causes:
            nodes[fault.mechanism_id, "MECHANISM", fault.label].add(fault.provenance)
        for cause in fault.root_causes:
            edges[fault.mechanism_id, cause.id, "MANIFESTS_AS"].add(fault.provenance)
    return {
        "nodes": [
            {"id": node_id, "type": kind, "label": label, "hypothetical": True, "provenance": sorted(said_by)}
            for (node_id, kind, label), said_by in sorted(nodes.items())
        ],
        "edges": [
            {"source": source, "target": target, "type": kind, "provenance": sorted(said_by)}
            for (source, target, kind), said_by in sorted(edges.items())
        ],
    }
