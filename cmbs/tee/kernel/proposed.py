"""What a proposed graph would change of the one that is there, without merging it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cmbs.tee.kernel.lattice import Edge, EdgeKey, MergeConflict, Node, conflicts_between


class Proposed(NamedTuple):
    """What is new, what is there already, and what would stay as it is because something else was first."""

    new_nodes: tuple[Node, ...]
    new_edges: tuple[EdgeKey, ...]
    known_nodes: int
    known_edges: int
    conflicts: tuple[MergeConflict, ...]


def compare_proposal(
    nodes: Iterable[Node], edges: Iterable[EdgeKey], there: Iterable[Node], edges_there: Iterable[Edge]
) -> Proposed:
    """Compare proposed nodes and edges with the graph that is there."""
    known = {node.id: node for node in there}
    known_keys = {edge.key for edge in edges_there}
    proposed, keys = list(nodes), list(dict.fromkeys(edges))
    conflicts = [
        conflict for node in proposed if node.id in known for conflict in conflicts_between(known[node.id], node)
    ]
    new_nodes = tuple(node for node in proposed if node.id not in known)
    new_edges = tuple(key for key in keys if key not in known_keys)
    return Proposed(new_nodes, new_edges, len(proposed) - len(new_nodes), len(keys) - len(new_edges), tuple(conflicts))
