"""Decisions on the graph as functions of what is there and what is proposed. Every store decides with these."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import TypeVar

import msgspec

from cmbs.errors import InvalidGraph
from cmbs.tee.kernel.lattice import (
    Delta,
    Edge,
    EdgeKey,
    MergeConflict,
    Node,
    conflicts_between,
    merge_edges,
    merge_nodes,
)
from cmbs.tee.kernel.store import MergeResult, TombstoneMerge, Universe

K = TypeVar("K", str, EdgeKey)
T = TypeVar("T", Node, Edge)


class Change(msgspec.Struct, frozen=True):
    """What merging a delta does to the graph: new things, what is new of known things, and what was refused.

    `created_*` and `merged_*` together name every distinct thing of the delta once, in the order of the delta.
    `added_to_*` has of each changed thing only what is new: the provenance that it did not have, and `hypothetical`
    false where it was true.
    """

    created_nodes: tuple[Node, ...]
    created_edges: tuple[Edge, ...]
    added_to_nodes: tuple[Node, ...]
    added_to_edges: tuple[Edge, ...]
    merged_nodes: tuple[str, ...]
    merged_edges: tuple[EdgeKey, ...]
    conflicts: tuple[MergeConflict, ...]

    @property
    def grows(self) -> bool:
        """Whether the graph is another one afterwards, so that its version grows."""
        return bool(self.created_nodes or self.created_edges or self.added_to_nodes or self.added_to_edges)

    def result(self, version: int) -> MergeResult:
        """The answer to a merge that left the graph at `version`."""
        return MergeResult(
            tuple(node.id for node in self.created_nodes),
            tuple(edge.key for edge in self.created_edges),
            self.merged_nodes,
            self.merged_edges,
            self.conflicts,
            version,
        )


def decide_merge(nodes: Mapping[str, Node], edges: Mapping[EdgeKey, Edge], delta: Delta) -> Change:
    """Merge `delta` into what is there.

    The mappings need to know only what the delta names, and of its provenance only what the delta proposes: so a merge
    costs what it proposes, however often a thing was proposed before.
    """
    # A dictionary as an ordered set: each conflict once.
    conflicts: dict[MergeConflict, None] = {}
    node_after: dict[str, Node] = {}
    for node in delta.nodes:
        before = node_after.get(node.id) or nodes.get(node.id)
        if before is None:
            node_after[node.id] = node
        else:
            conflicts |= dict.fromkeys(conflicts_between(before, node))
            node_after[node.id] = merge_nodes(before, node)
    edge_after: dict[EdgeKey, Edge] = {}
    for edge in delta.edges:
        known = edge_after.get(edge.key) or edges.get(edge.key)
        edge_after[edge.key] = edge if known is None else merge_edges(known, edge)
    new_nodes, changed_nodes, old_nodes = _classify(nodes, node_after)
    new_edges, changed_edges, old_edges = _classify(edges, edge_after)
    return Change(
        new_nodes,
        new_edges,
        tuple(_node_addition(nodes[node.id], node) for node in changed_nodes),
        # A merge adds provenance at the end.
        tuple(Edge(edge.key, edge.provenance[len(edges[edge.key].provenance) :]) for edge in changed_edges),
        old_nodes,
        old_edges,
        tuple(conflicts),
    )


def _classify(before: Mapping[K, T], after: Mapping[K, T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[K, ...]]:
    """New things, known things with new content, and the keys of all that was known."""
    known = tuple(key for key in after if key in before)
    created = tuple(thing for key, thing in after.items() if key not in before)
    return created, tuple(after[key] for key in known if after[key] != before[key]), known


def _node_addition(before: Node, after: Node) -> Node:
    unchanged = before.hypothetical == after.hypothetical
    return Node(after.id, after.type, after.label, unchanged, after.provenance[len(before.provenance) :])


def decide_tombstones(
    requested: Iterable[K], in_the_graph: Callable[[K], bool], tombstoned: Container[K], count: int
) -> tuple[TombstoneMerge[K], list[K]]:
    """Classify the requested tombstones, each distinct one once and in order; the second value are those to store.

    `count` is how many tombstones the incident has, nodes and edges together. `in_the_graph` is membership as of the
    incident's anchor. What is not in it is unmatched, now and whenever it is
    asked for again: the anchor does not move.
    """
    distinct = list(dict.fromkeys(requested))
    matched = [key for key in distinct if in_the_graph(key)]
    new = [key for key in distinct if key not in tombstoned]
    merge = TombstoneMerge(
        tuple(key for key in matched if key not in tombstoned),
        tuple(key for key in matched if key in tombstoned),
        tuple(key for key in distinct if not in_the_graph(key)),
        count + len(new),
    )
    return merge, new


def choose_anchor(anchor: int | None, present: int) -> int:
    """The version that a new incident sees; InvalidGraph where it is beyond the present one."""
    if anchor is not None and anchor > present:
        raise InvalidGraph(f"the graph is at version {present}, and has no version {anchor} yet")
    return present if anchor is None else anchor


def find_unknown(
    universe: Universe | None, has_node: Callable[[str], bool], has_edge: Callable[[EdgeKey], bool]
) -> tuple[str | EdgeKey, ...]:
    """What of a listed universe is not in the graph, given membership as of the anchor."""
    if universe is None:
        return ()
    nodes = [node_id for node_id in universe.node_ids if not has_node(node_id)]
    return (*nodes, *(key for key in universe.edges if not has_edge(key)))
