"""An incident as a store holds it in memory."""

from __future__ import annotations

from cmbs.tee.kernel.lattice import EdgeKey, Provenance
from cmbs.tee.kernel.merge import Change
from cmbs.tee.kernel.store import Incident, MergeResult, Tombstones


class IncidentState:
    """An incident and its tombstones, which only become more."""

    __slots__ = ("edges", "incident", "nodes")

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self.nodes: dict[str, Provenance] = {}
        self.edges: dict[EdgeKey, Provenance] = {}

    def tombstones(self) -> Tombstones:
        """A copy that stays as it is."""
        return Tombstones(dict(self.nodes), dict(self.edges))


def merge_result(change: Change, version: int) -> MergeResult:
    """What a caller is told of a change."""
    return MergeResult(
        tuple([node.id for node in change.created_nodes]),
        tuple([edge.key for edge in change.created_edges]),
        change.merged_nodes,
        change.merged_edges,
        change.conflicts,
        version,
    )
