"""Nodes, edges and tombstones as the bytes of the wire and back.

An encoded node or edge is a graph message with nothing else in it, so that a graph is the concatenation of its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cmbs.tee.kernel.lattice import (
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
from cmbs.tee.proto import tee_pb2 as pb


def provenance_message(provenance: Provenance) -> pb.Provenance:
    """A provenance as a message."""
    message = pb.Provenance(source=provenance.source, trigger=provenance.trigger)
    message.timestamp.seconds, message.timestamp.nanos = provenance.timestamp
    # An all-zero timestamp is still one.
    message.timestamp.SetInParent()
    return message


def _node_message(node: Node) -> pb.Node:
    return pb.Node(
        id=node.id,
        type=int(node.type),  # type: ignore[arg-type]  # the numbers are the same
        label=node.label,
        hypothetical=node.hypothetical,
        provenance=map(provenance_message, node.provenance),
    )


def _edge_message(edge: Edge) -> pb.Edge:
    source, target, kind = edge.key
    provenance = map(provenance_message, edge.provenance)
    return pb.Edge(source=source, target=target, type=int(kind), provenance=provenance)  # type: ignore[arg-type]


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
    additions = [
        pb.Node(id=node.id, hypothetical=node.hypothetical, provenance=map(provenance_message, node.provenance))
        for node in change.added_to_nodes
    ]
    nodes = pb.CausalGraph(nodes=[*map(_node_message, change.created_nodes), *additions])
    edges = pb.CausalGraph(edges=map(_edge_message, change.created_edges + change.added_to_edges))
    return nodes.SerializeToString(), edges.SerializeToString()


def extend_node(item: bytes, addition: pb.Node) -> bytes:
    """An encoded node with an addition: the same bytes as those of the node with all its provenance."""
    (node,) = pb.CausalGraph.FromString(item).nodes
    node.provenance.extend(addition.provenance)
    node.hypothetical = node.hypothetical and addition.hypothetical
    return encode_node(node)


def extend_edge(item: bytes, addition: pb.Edge) -> bytes:
    """An encoded edge with an addition."""
    (edge,) = pb.CausalGraph.FromString(item).edges
    edge.provenance.extend(addition.provenance)
    return encode_edge(edge)


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
