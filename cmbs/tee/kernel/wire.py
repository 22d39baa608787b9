"""Nodes, edges and tombstones as the bytes of the wire and back.

An encoded node or edge is a graph message with nothing else in it, so that a graph is the concatenation of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TypeAlias

from cmbs.errors import InvalidGraph
from cmbs.tee.kernel.lattice import (
    EDGE_TYPES,
    Edge,
    EdgeKey,
    Node,
    Provenance,
    Timestamp,
    validate_edge,
    validate_edge_key,
    validate_node,
    validate_provenance,
    validate_timestamp,
)
from cmbs.tee.kernel.merge import Change
from cmbs.tee.kernel.store import Universe, UniverseKind
from cmbs.tee.proto import tee_pb2 as pb

# Fields 1 and 2 of a graph message, each with a length.
_NODE_TAG, _EDGE_TAG = b"\x0a", b"\x12"
_LOW_BITS, _MORE_FOLLOWS = 0x7F, 0x80


def provenance_message(provenance: Provenance) -> pb.Provenance:
    """A provenance as a message."""
    message = pb.Provenance(source=provenance.source, trigger=provenance.trigger)
    message.timestamp.seconds, message.timestamp.nanos = provenance.timestamp
    # An all-zero timestamp is still one.
    message.timestamp.SetInParent()
    return message


Describe: TypeAlias = Callable[[Provenance], pb.Provenance]


def _node_message(node: Node, describe: Describe = provenance_message) -> pb.Node:
    return pb.Node(
        id=node.id,
        type=int(node.type),  # type: ignore[arg-type]  # the numbers are the same
        label=node.label,
        hypothetical=node.hypothetical,
        provenance=map(describe, node.provenance),
    )


def _edge_message(edge: Edge, describe: Describe = provenance_message) -> pb.Edge:
    source, target, kind = edge.key
    return pb.Edge(source=source, target=target, type=int(kind), provenance=map(describe, edge.provenance))  # type: ignore[arg-type]


def encode_node(node: Node | pb.Node) -> bytes:
    """A node as a graph of its own."""
    message = _node_message(node) if isinstance(node, Node) else node
    return pb.CausalGraph(nodes=[message]).SerializeToString()


def encode_edge(edge: Edge | pb.Edge) -> bytes:
    """An edge as a graph of its own."""
    message = _edge_message(edge) if isinstance(edge, Edge) else edge
    return pb.CausalGraph(edges=[message]).SerializeToString()


def encode_change(change: Change) -> tuple[bytes, bytes]:
    """The nodes and the edges that a change creates or adds to; of the latter what is new, without type and label."""
    # Most of a delta was said by one source on one occasion: a third of the time of a large one is saved.
    describe = cache(provenance_message)
    additions = [
        pb.Node(id=node.id, hypothetical=node.hypothetical, provenance=map(describe, node.provenance))
        for node in change.added_to_nodes
    ]
    nodes = pb.CausalGraph(nodes=[*(_node_message(node, describe) for node in change.created_nodes), *additions])
    edges = pb.CausalGraph(
        edges=(_edge_message(edge, describe) for edge in change.created_edges + change.added_to_edges)
    )
    return nodes.SerializeToString(), edges.SerializeToString()


def frame_node(body: bytes) -> bytes:
    """The bytes of a Node message as a graph of its own."""
    return _NODE_TAG + _encode_length(len(body)) + body


def frame_edge(body: bytes) -> bytes:
    """The bytes of an Edge message as a graph of its own."""
    return _EDGE_TAG + _encode_length(len(body)) + body


def encode_node_provenance(message: pb.Node) -> bytes:
    """The provenance of a node alone: behind the bytes of that node, it is provenance more."""
    return pb.Node(provenance=message.provenance).SerializeToString()


def encode_edge_provenance(message: pb.Edge) -> bytes:
    """The provenance of an edge alone."""
    return pb.Edge(provenance=message.provenance).SerializeToString()


def read_edge_key(message: pb.Edge) -> EdgeKey:
    """The identity of an edge that was valid when it was stored."""
    return EdgeKey(message.source, message.target, EDGE_TYPES[message.type])


def _encode_length(length: int) -> bytes:
    """A length as protobuf writes it: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while length > _LOW_BITS:
        encoded.append(length & _LOW_BITS | _MORE_FOLLOWS)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)


def encode_version(version: int) -> bytes:
    """A graph's version as a field of it."""
    return pb.CausalGraph(causal_graph_version=version).SerializeToString()


def decode(pieces: Iterable[bytes]) -> tuple[list[Node], list[Edge]]:
    """The nodes and edges in pieces of a graph."""
    graph = pb.CausalGraph.FromString(b"".join(pieces))
    return list(map(node_of, graph.nodes)), list(map(edge_of, graph.edges))


def split(piece: bytes) -> Iterator[bytes]:
    """A piece of a graph as one piece for each thing in it."""
    graph = pb.CausalGraph.FromString(piece)
    yield from map(encode_node, graph.nodes)
    yield from map(encode_edge, graph.edges)


def provenance_of(message: pb.Provenance, now: Timestamp | None = None) -> Provenance:
    """A valid provenance; without a timestamp of its own it is of `now`, if there is one."""
    if now is not None and not message.HasField("timestamp"):
        return validate_provenance(message.source, message.trigger, now)
    stamp = message.timestamp
    return validate_provenance(message.source, message.trigger, validate_timestamp(stamp.seconds, stamp.nanos))


def node_of(message: pb.Node, now: Timestamp | None = None) -> Node:
    """A valid node."""
    provenance = [provenance_of(each, now) for each in message.provenance]
    return validate_node(message.id, message.type, message.label, provenance, hypothetical=message.hypothetical)


def edge_of(message: pb.Edge, now: Timestamp | None = None) -> Edge:
    """A valid edge."""
    return validate_edge(edge_key_of(message), [provenance_of(each, now) for each in message.provenance])


def edge_key_of(message: pb.Edge | pb.EdgeTombstoneEntry) -> EdgeKey:
    """The valid identity of an edge."""
    return validate_edge_key(message.source, message.target, message.type)


def edge_entry(key: EdgeKey) -> pb.EdgeTombstoneEntry:
    """The identity of an edge as a message."""
    return pb.EdgeTombstoneEntry(source=key.source, target=key.target, type=int(key.type))  # type: ignore[arg-type]


def universe_message(universe: Universe) -> pb.Universe:
    """A universe as a message."""
    return pb.Universe(
        kind=int(universe.kind),  # type: ignore[arg-type]  # the numbers are the same
        node_ids=universe.node_ids,
        edge_entries=map(edge_entry, universe.edges),
    )


def universe_of(message: pb.Universe) -> Universe:
    """A valid universe, each thing in it once: only a listed one has ids."""
    try:
        kind = UniverseKind(message.kind)
    except ValueError as exc:
        raise InvalidGraph(f"a universe has no kind `{message.kind}`") from exc
    nodes, edges = tuple(dict.fromkeys(message.node_ids)), tuple(dict.fromkeys(map(edge_key_of, message.edge_entries)))
    if kind is not UniverseKind.LISTED and (nodes or edges):
        raise InvalidGraph("only a listed universe names what is in it")
    if not all(nodes):
        raise InvalidGraph("a universe must not hold an empty id")
    return Universe(kind, nodes, edges)
