"""Decisions on the graph as functions of what is there and what is proposed. Every store decides with these."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from cmbs.tee.kernel.lattice import (
    Delta,
    Edge,
    EdgeKey,
    MergeConflict,
    Node,
    conflicts_between,
    merged_edges,
    merged_nodes,
)

K = TypeVar("K", str, EdgeKey)


class Change(msgspec.Struct, frozen=True):
    """What merging a delta does to the graph: new things, things with new content (whole), and what was refused.

    `created_*` and `merged_*` together name every distinct thing of the delta once, in the order of the delta.
    `added_to_*` has of each changed thing, in the same order, only what is new: the provenance that it did not have,
    and `hypothetical` false where it was true.
    """

    created_nodes: tuple[Node, ...]
    created_edges: tuple[Edge, ...]
    changed_nodes: tuple[Node, ...]
    changed_edges: tuple[Edge, ...]
    added_to_nodes: tuple[Node, ...]
    added_to_edges: tuple[Edge, ...]
    merged_nodes: tuple[str, ...]
    merged_edges: tuple[EdgeKey, ...]
    conflicts: tuple[MergeConflict, ...]

    @property
    def grows(self) -> bool:
        """Whether the graph is another one afterwards, so that its version grows."""
        return bool(self.created_nodes or self.created_edges or self.changed_nodes or self.changed_edges)


def decide_merge(nodes: Mapping[str, Node], edges: Mapping[EdgeKey, Edge], delta: Delta) -> Change:
    """Merge `delta` into what is there. The mappings need to know only what the delta names."""
    conflicts: list[MergeConflict] = []
    node_after: dict[str, Node] = {}
    for node in delta.nodes:
        before = node_after.get(node.id) or nodes.get(node.id)
        if before is None:
            node_after[node.id] = node
        else:
            conflicts += conflicts_between(before, node)
            node_after[node.id] = merged_nodes(before, node)
    edge_after: dict[EdgeKey, Edge] = {}
    for edge in delta.edges:
        known = edge_after.get(edge.key) or edges.get(edge.key)
        edge_after[edge.key] = edge if known is None else merged_edges(known, edge)
    new_nodes, changed_nodes, old_nodes = _sorted_out(nodes, node_after)
    new_edges, changed_edges, old_edges = _sorted_out(edges, edge_after)
    return Change(
        new_nodes,
        new_edges,
        changed_nodes,
        changed_edges,
        tuple([_added_to_node(nodes[node.id], node) for node in changed_nodes]),
        tuple([_added_to_edge(edges[edge.key], edge) for edge in changed_edges]),
        old_nodes,
        old_edges,
        _once_each(conflicts),
    )


Thing = TypeVar("Thing", Node, Edge)


def _sorted_out(
    before: Mapping[K, Thing], after: Mapping[K, Thing]
) -> tuple[tuple[Thing, ...], tuple[Thing, ...], tuple[K, ...]]:
    """New things, known things with new content, and the keys of all that was known."""
    created, changed, known = [], [], []
    for key, thing in after.items():
        existing = before.get(key)
        if existing is None:
            created.append(thing)
            continue
        known.append(key)
        if thing != existing:
            changed.append(thing)
    return tuple(created), tuple(changed), tuple(known)


# A merge adds to provenance at its end.
def _added_to_node(before: Node, after: Node) -> Node:
    unchanged = before.hypothetical == after.hypothetical
    return Node(after.id, after.type, after.label, unchanged, after.provenance[len(before.provenance) :])


def _added_to_edge(before: Edge, after: Edge) -> Edge:
    return Edge(after.key, after.provenance[len(before.provenance) :])


def _once_each(conflicts: Iterable[MergeConflict]) -> tuple[MergeConflict, ...]:
    return tuple(dict.fromkeys(conflicts))


class TombstoneMerge(msgspec.Struct, Generic[K], frozen=True):
    """What became of each distinct id of a tombstone request, in its order; `new` are the ones to keep."""

    applied: tuple[K, ...]
    already: tuple[K, ...]
    unmatched: tuple[K, ...]
    new: tuple[K, ...]


def decide_tombstones(
    requested: Iterable[K], in_the_graph: Callable[[K], bool], tombstoned: Container[K]
) -> TombstoneMerge[K]:
    """Classify the requested tombstones.

    `in_the_graph` is membership as of the incident's anchor. What is not in it is unmatched, now and whenever it is
    asked for again: the anchor does not move.
    """
    applied, already, unmatched, new = [], [], [], []
    for key in dict.fromkeys(requested):
        known = key in tombstoned
        if not known:
            new.append(key)
        if not in_the_graph(key):
            unmatched.append(key)
        elif known:
            already.append(key)
        else:
            applied.append(key)
    return TombstoneMerge(tuple(applied), tuple(already), tuple(unmatched), tuple(new))
