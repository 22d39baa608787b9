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
from typing import Any, NamedTuple

import msgspec

from cmbs.errors import InvalidGraph

# What google.protobuf.Timestamp can say: the years 1 to 9999.
_MIN_SECONDS, _MAX_SECONDS = -62_135_596_800, 253_402_300_799
_NANOS_PER_SECOND = 1_000_000_000
# Of an id, in a message.
_MAX_SHOWN_CHARS = 64
_SOME_TEXT = {"minLength": 1}


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


# By the number on the wire.
NODE_TYPES = {int(kind): kind for kind in NodeType}
EDGE_TYPES = {int(kind): kind for kind in EdgeType}


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
    """A hypothesis. `provenance` has no key twice and is in the order in which it arrived."""

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
    """A proposal for the main graph. The same thing may be proposed several times in one."""

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
    return f"edge:{_escape(key.source)}|{_escape(key.target)}|{key.type.name}"


def _escape(end: str) -> str:
    return end.replace("%", "%25").replace("|", "%7C")


def merge_provenance(first: Iterable[Provenance], second: Iterable[Provenance]) -> tuple[Provenance, ...]:
    """The union by (source, trigger), what is new at the end."""
    union: dict[tuple[str, str], Provenance] = {}
    for each in (*first, *second):
        union.setdefault((each.source, each.trigger), each)
    return tuple(union.values())


def merge_nodes(first: Node, second: Node) -> Node:
    """Two opinions of one node: the type and label of `first` stay, and `conflicts_between` reports the others."""
    hypothetical = first.hypothetical and second.hypothetical
    provenance = merge_provenance(first.provenance, second.provenance)
    return Node(first.id, first.type, first.label, hypothetical, provenance)


def conflicts_between(first: Node, second: Node) -> list[MergeConflict]:
    """What of `second` is not stored when it is merged into `first`."""
    found = []
    if first.type != second.type:
        found.append(MergeConflict(first.id, "type", first.type.name, second.type.name))
    if first.label != second.label:
        found.append(MergeConflict(first.id, "label", first.label, second.label))
    return found


def merge_edges(first: Edge, second: Edge) -> Edge:
    """Two opinions of one edge, which have nothing to conflict about."""
    return Edge(first.key, merge_provenance(first.provenance, second.provenance))


# --- what may enter ---------------------------------------------------------------------------------------------------


def validate_timestamp(seconds: int, nanos: int) -> Timestamp:
    """A moment that the wire can carry back."""
    if not (_MIN_SECONDS <= seconds <= _MAX_SECONDS and 0 <= nanos < _NANOS_PER_SECOND):
        raise InvalidGraph(
            f"`{seconds}` seconds and `{nanos}` nanoseconds are not a timestamp of the years 1 to 9999",
            {"field": "timestamp", "found": {"seconds": seconds, "nanos": nanos}, "accepted": "the years 1 to 9999"},
        )
    return Timestamp(seconds, nanos)


def validate_provenance(source: str, trigger: str, timestamp: Timestamp) -> Provenance:
    """A provenance that names its source; what triggered it may be unknown."""
    if not source:
        raise InvalidGraph("provenance must name its source", {"field": "provenance.source", "accepted": _SOME_TEXT})
    return Provenance(source, trigger, timestamp)


def validate_node(
    node_id: str, type_number: int, label: str, provenance: Iterable[Provenance], *, hypothetical: bool
) -> Node:
    """A node that may enter the graph."""
    if not node_id:
        raise InvalidGraph("a node must have an id", {"field": "id", "accepted": _SOME_TEXT})
    name = f"node `{node_id[:_MAX_SHOWN_CHARS]}`"
    node_type = NODE_TYPES.get(type_number)
    if node_type is None:
        raise InvalidGraph(f"{name} has no known type: `{type_number}`", _wrong_type(type_number, NodeType))
    if not label:
        raise InvalidGraph(f"{name} must have a label", {"field": "label", "accepted": _SOME_TEXT})
    known = merge_provenance((), provenance)
    if not known:
        raise InvalidGraph(f"{name} must have provenance", {"field": "provenance", "accepted": {"minItems": 1}})
    return Node(node_id, node_type, label, hypothetical, known)


def validate_edge_key(source: str, target: str, type_number: int) -> EdgeKey:
    """An edge that may be in a graph."""
    if not source or not target:
        field = "target" if source else "source"
        raise InvalidGraph("an edge must have a source and a target", {"field": field, "accepted": _SOME_TEXT})
    if source == target:
        shown = source[:_MAX_SHOWN_CHARS]
        raise InvalidGraph(
            f"an edge from `{shown}` to itself is not allowed",
            {"field": "target", "found": shown, "accepted": "another node than the source"},
        )
    edge_type = EDGE_TYPES.get(type_number)
    if edge_type is None:
        name = _edge_name(source, target)
        raise InvalidGraph(f"{name} has no known type: `{type_number}`", _wrong_type(type_number, EdgeType))
    return EdgeKey(source, target, edge_type)


def validate_edge(key: EdgeKey, provenance: Iterable[Provenance]) -> Edge:
    """An edge that may enter the graph."""
    known = merge_provenance((), provenance)
    if not known:
        name = _edge_name(key.source, key.target)
        raise InvalidGraph(f"{name} must have provenance", {"field": "provenance", "accepted": {"minItems": 1}})
    return Edge(key, known)


def validate_incident_id(incident_id: str) -> str:
    """An incident id that may be used."""
    if not incident_id:
        raise InvalidGraph("an incident must have an id", {"field": "incident_id", "accepted": _SOME_TEXT})
    return incident_id


def _wrong_type(number: int, types: type[NodeType | EdgeType]) -> dict[str, Any]:
    return {"field": "type", "found": number, "accepted": {each.name: int(each) for each in types}}


def _edge_name(source: str, target: str) -> str:
    return f"the edge from `{source[:_MAX_SHOWN_CHARS]}` to `{target[:_MAX_SHOWN_CHARS]}`"
