"""What the causal graph is made of, and how two opinions of the same thing become one.

Identity is a node's `id` and an edge's (source, target, type). Every merge is field by field:

=============  ==========================================================================================
type, label    the first write stays; another proposal is reported as a conflict and not stored
hypothetical   once false, false
provenance     a set keyed by (source, trigger); the first timestamp of a key stays
=============  ==========================================================================================

So every merge is associative and idempotent, conflicts included, and commutative up to "the first write stays". A
proposal with a conflict still counts in the fields that do not conflict: were it dropped whole, what becomes of three
proposals would depend on how they were grouped.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import msgspec

from cmbs.errors import InvalidGraph

# What google.protobuf.Timestamp can say: the years 1 to 9999.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_NANOS_OF_A_SECOND = 1_000_000_000
_SHOWN = 64  # characters of an id that a message repeats


class NodeType(IntEnum):
    """What a node stands for; the numbers are those of the wire."""

    SERVICE = 1
    DEPENDENCY = 2
    INFRASTRUCTURE = 3
    MECHANISM = 4


class EdgeType(IntEnum):
    """What an edge says; the numbers are those of the wire."""

    DEPENDS_ON = 1
    PROPAGATES_TO = 2
    MANIFESTS_AS = 3


class Timestamp(NamedTuple):
    """A moment in UTC: seconds since the epoch, and nanoseconds within the second."""

    seconds: int
    nanos: int


class Provenance(msgspec.Struct, frozen=True):
    """Who said so and on what occasion: the pair is the identity. `timestamp` is when it was first said."""

    source: str
    trigger: str
    timestamp: Timestamp


class EdgeKey(NamedTuple):
    """The identity of an edge."""

    source: str
    target: str
    type: EdgeType


class Node(msgspec.Struct, frozen=True):
    """A hypothesis. `provenance` has no key twice and stands in the order in which it was first heard."""

    id: str
    type: NodeType
    label: str
    hypothetical: bool
    provenance: tuple[Provenance, ...]


class Edge(msgspec.Struct, frozen=True):
    """A causal relation. Its ends need not be nodes of the graph (yet)."""

    key: EdgeKey
    provenance: tuple[Provenance, ...]


class Delta(msgspec.Struct, frozen=True):
    """What somebody proposes to merge into the main graph. The same thing may be proposed several times in one."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()


class MergeConflict(msgspec.Struct, frozen=True):
    """A proposal that was not stored, because `existing_value` was there first."""

    id: str
    field: str
    existing_value: str
    proposed_value: str


def edge_id(key: EdgeKey) -> str:
    """An edge as one string, `edge:source|target|TYPE`; different edges never have the same one."""
    return f"edge:{_escaped(key.source)}|{_escaped(key.target)}|{key.type.name}"


def _escaped(end: str) -> str:
    return end.replace("%", "%25").replace("|", "%7C") if "|" in end or "%" in end else end


def merged_provenance(first: tuple[Provenance, ...], second: tuple[Provenance, ...]) -> tuple[Provenance, ...]:
    """The union by (source, trigger); `first` itself where there is nothing new."""
    if first is second:
        return first
    keys = {(each.source, each.trigger) for each in first}
    new = []
    for each in second:
        key = (each.source, each.trigger)
        if key not in keys:
            keys.add(key)
            new.append(each)
    return (*first, *new) if new else first


def merged_nodes(first: Node, second: Node) -> Node:
    """Two opinions of one node; `first` itself where the second adds nothing. See `conflicts_between`."""
    provenance = merged_provenance(first.provenance, second.provenance)
    hypothetical = first.hypothetical and second.hypothetical
    if provenance is first.provenance and hypothetical == first.hypothetical:
        return first
    return Node(first.id, first.type, first.label, hypothetical, provenance)


def conflicts_between(first: Node, second: Node) -> list[MergeConflict]:
    """What of `second` is not stored when it is merged into `first`."""
    found = []
    if first.type != second.type:
        found.append(MergeConflict(first.id, "type", first.type.name, second.type.name))
    if first.label != second.label:
        found.append(MergeConflict(first.id, "label", first.label, second.label))
    return found


def merged_edges(first: Edge, second: Edge) -> Edge:
    """Two opinions of one edge; `first` itself where the second adds nothing. Edges have nothing to conflict about."""
    provenance = merged_provenance(first.provenance, second.provenance)
    return first if provenance is first.provenance else Edge(first.key, provenance)


# --- what may enter ---------------------------------------------------------------------------------------------------


def checked_timestamp(seconds: int, nanos: int) -> Timestamp:
    """A moment that the wire can carry back."""
    if not (_FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < _NANOS_OF_A_SECOND):
        raise InvalidGraph(f"`{seconds}` seconds and `{nanos}` nanoseconds are not a timestamp of the years 1 to 9999")
    return Timestamp(seconds, nanos)


def checked_provenance(source: str, trigger: str, timestamp: Timestamp) -> Provenance:
    """A provenance that names its source; what triggered it may be unknown."""
    if not source:
        raise InvalidGraph("provenance must name its source")
    return Provenance(source, trigger, timestamp)


def checked_node(
    node_id: str, type_number: int, label: str, provenance: Iterable[Provenance], *, hypothetical: bool
) -> Node:
    """A node that may enter the graph."""
    if not node_id:
        raise InvalidGraph("a node must have an id")
    if type_number not in _NODE_TYPES:
        raise InvalidGraph(f"node `{node_id[:_SHOWN]}` has no known type: `{type_number}`")
    if not label:
        raise InvalidGraph(f"node `{node_id[:_SHOWN]}` must have a label")
    known = merged_provenance((), tuple(provenance))
    if not known:
        raise InvalidGraph(f"node `{node_id[:_SHOWN]}` must have provenance")
    return Node(node_id, _NODE_TYPES[type_number], label, hypothetical, known)


def checked_edge_key(source: str, target: str, type_number: int) -> EdgeKey:
    """An edge that may be in a graph."""
    if not source or not target:
        raise InvalidGraph("an edge must have a source and a target")
    if source == target:
        raise InvalidGraph(f"an edge from `{source[:_SHOWN]}` to itself is not allowed")
    if type_number not in _EDGE_TYPES:
        raise InvalidGraph(
            f"the edge from `{source[:_SHOWN]}` to `{target[:_SHOWN]}` has no known type: `{type_number}`"
        )
    return EdgeKey(source, target, _EDGE_TYPES[type_number])


def checked_edge(key: EdgeKey, provenance: Iterable[Provenance]) -> Edge:
    """An edge that may enter the graph."""
    known = merged_provenance((), tuple(provenance))
    if not known:
        raise InvalidGraph(f"the edge from `{key.source[:_SHOWN]}` to `{key.target[:_SHOWN]}` must have provenance")
    return Edge(key, known)


def checked_incident_id(incident_id: str) -> str:
    """An incident id that may be used."""
    if not incident_id:
        raise InvalidGraph("an incident must have an id")
    return incident_id


_NODE_TYPES = {int(each): each for each in NodeType}
_EDGE_TYPES = {int(each): each for each in EdgeType}
