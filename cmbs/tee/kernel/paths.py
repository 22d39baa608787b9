"""Which causes can explain symptoms, and what a node can reach: searches along the causal direction of edges.

Cause and effect of an edge follow from its type:

=============  =================================================================
DEPENDS_ON     the target is the cause: what a thing depends on can break it
PROPAGATES_TO  the source is the cause: its failure spreads to the target
MANIFESTS_AS   the source is the cause: the mechanism shows as the target
=============  =================================================================

A search goes breadth first, one step of the store for each level, within limits. It sees the graph as of an incident's
anchor less its tombstones. Membership at an anchor never changes, and the tombstones are read once: so the steps of one
search see one graph, however the store grows meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from cmbs.errors import InvalidGraph
from cmbs.spi.graph_search import MAX_DEPTH
from cmbs.tee.kernel.lattice import EdgeKey, EdgeType

MAX_SYMPTOMS = 100
MAX_VISITED = 100_000

# The edges that have one of these nodes at either end, as of the anchor of the incident.
Step: TypeAlias = Callable[[Sequence[str]], Iterable[EdgeKey]]


class SearchLimits(NamedTuple):
    """How far a search goes: so many edges from where it began, and so many nodes in all."""

    depth: int = 5
    visited: int = MAX_VISITED


class Search(NamedTuple):
    """What a search found: for each node its distance, and the edge by which it was reached first.

    `is_cut` says that there is more beyond the limits.
    """

    start: str
    distances: Mapping[str, int]
    reached_by: Mapping[str, EdgeKey]
    is_cut: bool
    toward_causes: bool


class SymptomPath(NamedTuple):
    """A shortest way from a cause to a symptom, or from a node to what it reaches: edges in the order of causation."""

    end: str
    edges: tuple[EdgeKey, ...]


class Explanations(NamedTuple):
    """The nodes that can explain at least one symptom: those that explain the most first, then the nearest, then by id.

    `is_cut` where the limits ended a search.
    """

    node_ids: tuple[str, ...]
    searches: tuple[Search, ...]
    is_cut: bool

    def paths_of(self, node_id: str) -> tuple[SymptomPath, ...]:
        """A shortest path from the node to every symptom that it explains."""
        return tuple(
            SymptomPath(found.start, walk(found, node_id)) for found in self.searches if node_id in found.distances
        )


def cause_and_effect(key: EdgeKey) -> tuple[str, str]:
    """The ends of an edge as cause and effect."""
    return (key.target, key.source) if key.type is EdgeType.DEPENDS_ON else (key.source, key.target)


def validate_limits(depth: int, visited: int = MAX_VISITED) -> SearchLimits:
    """Limits within what a server allows; InvalidGraph says which one is not."""
    if not 1 <= depth <= MAX_DEPTH:
        raise InvalidGraph(
            f"`max_depth` must be from 1 to {MAX_DEPTH}, got `{depth}`",
            {"field": "max_depth", "found": depth, "accepted": {"minimum": 1, "maximum": MAX_DEPTH}},
        )
    return SearchLimits(depth, visited)


def validate_symptoms(symptoms: Iterable[str]) -> tuple[str, ...]:
    """Distinct symptoms in their order: one at least, not too many."""
    distinct = tuple(dict.fromkeys(symptoms))
    if not distinct or not all(distinct):
        raise InvalidGraph(
            "name at least one symptom: the id of a node of the graph",
            {"field": "symptoms", "accepted": {"minItems": 1}},
        )
    if len(distinct) > MAX_SYMPTOMS:
        raise InvalidGraph(
            f"at most {MAX_SYMPTOMS} symptoms can be explained at once, got {len(distinct)}",
            {"field": "symptoms", "found": len(distinct), "accepted": {"maxItems": MAX_SYMPTOMS}},
        )
    return distinct


def explain(
    step: Step,
    symptoms: Sequence[str],
    dead_nodes: Container[str],
    dead_edges: Container[EdgeKey],
    limits: SearchLimits,
) -> Explanations:
    """The nodes that can cause at least one of the symptoms. A symptom explains itself, by a path without edges."""
    searches = tuple(
        _search(step, symptom, dead_nodes, dead_edges, limits, toward_causes=True)
        for symptom in symptoms
        if symptom not in dead_nodes
    )
    explained: Counter[str] = Counter()
    distance: Counter[str] = Counter()
    for found in searches:
        explained.update(found.distances.keys())
        distance.update(found.distances)
    node_ids = sorted(explained, key=lambda each: (-explained[each], distance[each], each))
    return Explanations(tuple(node_ids), searches, any(found.is_cut for found in searches))


def reach(
    step: Step, node_id: str, dead_nodes: Container[str], dead_edges: Container[EdgeKey], limits: SearchLimits
) -> tuple[tuple[str, ...], Search]:
    """What a node can affect, the nearest first; and the search that found it."""
    if node_id in dead_nodes:
        return (), Search(node_id, {}, {}, is_cut=False, toward_causes=False)
    found = _search(step, node_id, dead_nodes, dead_edges, limits, toward_causes=False)
    ends = sorted((each for each in found.distances if each != node_id), key=lambda each: (found.distances[each], each))
    return tuple(ends), found


def _search(
    step: Step,
    start: str,
    dead_nodes: Container[str],
    dead_edges: Container[EdgeKey],
    limits: SearchLimits,
    *,
    toward_causes: bool,
) -> Search:
    distances, reached_by = {start: 0}, dict[str, EdgeKey]()
    frontier, depth = [start], 0
    while frontier:
        inside = set(frontier)
        found: dict[str, EdgeKey] = {}
        for key in step(frontier):
            # As `cause_and_effect` has it.
            here, there = key[:2] if (key[2] is EdgeType.DEPENDS_ON) is toward_causes else key[1::-1]
            if here in inside and there not in distances and there not in dead_nodes and key not in dead_edges:
                known = found.get(there)
                # Of several shortest paths, the same one from every store.
                if known is None or key < known:
                    found[there] = key
        depth += 1
        if found and (depth > limits.depth or len(distances) + len(found) > limits.visited):
            return Search(start, distances, reached_by, is_cut=True, toward_causes=toward_causes)
        distances.update(dict.fromkeys(found, depth))
        reached_by.update(found)
        frontier = list(found)
    return Search(start, distances, reached_by, is_cut=False, toward_causes=toward_causes)


def walk(found: Search, node_id: str) -> tuple[EdgeKey, ...]:
    """The edges between a node and the start of a search, in the order of causation."""
    edges = []
    while node_id != found.start:
        key = found.reached_by[node_id]
        edges.append(key)
        cause, effect = cause_and_effect(key)
        node_id = effect if found.toward_causes else cause
    return tuple(edges if found.toward_causes else reversed(edges))
