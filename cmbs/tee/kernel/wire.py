"""Nodes, edges and tombstones as the bytes of the wire and back.

An encoded node or edge carries its field tag, so that a graph is the plain concatenation of what is in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from cmbs.tee.kernel.lattice import (
    Edge,
    EdgeKey,
    Node,
    Provenance,
    Timestamp,
    checked_edge,
    checked_edge_key,
    checked_node,
    checked_provenance,
    checked_timestamp,
)
from cmbs.tee.proto import tee_pb2 as pb

# Field numbers 1 and 2 of `CausalGraph`, each with wire type 2 (length-delimited).
_NODE_TAG = b"\x0a"
_EDGE_TAG = b"\x12"
# Fields 5 of `Node` and 4 of `Edge`.
_SAID_OF_NODE_TAG = b"\x2a"
_SAID_OF_EDGE_TAG = b"\x22"
_LOW_BITS, _MORE = 0x7F, 0x80


def provenance_message(provenance: Provenance) -> pb.Provenance:
    """A provenance as a message."""
    message = pb.Provenance(source=provenance.source, trigger=provenance.trigger)
    stamp = message.timestamp
    stamp.seconds, stamp.nanos = provenance.timestamp
    # An all-zero timestamp is still one.
    stamp.SetInParent()
    return message


# Thousands of things are said by one source on one occasion.
@lru_cache(maxsize=4096)
def _encoded_provenance(tag: bytes, provenance: Provenance) -> bytes:
    return _framed(tag, provenance_message(provenance).SerializeToString())


def encoded_node(node: Node) -> bytes:
    """A node as a field of a graph."""
    message = pb.Node(
        id=node.id,
        type=int(node.type),  # type: ignore[arg-type]  # the numbers are the same
        label=node.label,
        hypothetical=node.hypothetical,
    )
    said = [_encoded_provenance(_SAID_OF_NODE_TAG, each) for each in node.provenance]
    return _framed(_NODE_TAG, b"".join([message.SerializeToString(), *said]))


def encoded_edge(edge: Edge) -> bytes:
    """An edge as a field of a graph."""
    source, target, kind = edge.key
    message = pb.Edge(source=source, target=target, type=int(kind))  # type: ignore[arg-type]  # as above
    said = [_encoded_provenance(_SAID_OF_EDGE_TAG, each) for each in edge.provenance]
    return _framed(_EDGE_TAG, b"".join([message.SerializeToString(), *said]))


def encoded_addition(node: Node) -> bytes:
    """What a change added to a node as a field of a graph: without the type and the label, which never change."""
    message = pb.Node(id=node.id, hypothetical=node.hypothetical)
    said = [_encoded_provenance(_SAID_OF_NODE_TAG, each) for each in node.provenance]
    return _framed(_NODE_TAG, b"".join([message.SerializeToString(), *said]))


def grown_node(item: bytes, addition: bytes) -> bytes:
    """An encoded node with an encoded addition: the same bytes as those of the node with all its provenance."""
    added, body = pb.Node.FromString(_body(addition)), _body(item)
    if not added.hypothetical:
        # Once in the life of a node: it is not at the end, where one could add to it.
        whole = pb.Node.FromString(body)
        whole.hypothetical = False
        body = whole.SerializeToString()
    return _framed(_NODE_TAG, body + _encoded_all(_SAID_OF_NODE_TAG, added.provenance))


def grown_edge(item: bytes, addition: bytes) -> bytes:
    """An encoded edge with the provenance of the same edge encoded."""
    added = pb.Edge.FromString(_body(addition))
    return _framed(_EDGE_TAG, _body(item) + _encoded_all(_SAID_OF_EDGE_TAG, added.provenance))


def _encoded_all(tag: bytes, said: Iterable[pb.Provenance]) -> bytes:
    return b"".join([_framed(tag, each.SerializeToString()) for each in said])


def _body(item: bytes) -> bytes:
    """An item without its tag and length."""
    start = 1
    while item[start] >= _MORE:
        start += 1
    return item[start + 1 :]


def _framed(tag: bytes, body: bytes) -> bytes:
    length = len(body)
    if length < _MORE:
        return tag + bytes((length,)) + body
    octets = bytearray(tag)
    while length >= _MORE:
        octets.append(length & _LOW_BITS | _MORE)
        length >>= 7
    octets.append(length)
    return bytes(octets) + body


def encoded_version(version: int) -> bytes:
    """A graph's version as a field of it."""
    return pb.CausalGraph(causal_graph_version=version).SerializeToString()


def decoded(pieces: Iterable[bytes]) -> tuple[list[Node], list[Edge]]:
    """The nodes and edges in pieces of a graph."""
    graph = pb.CausalGraph.FromString(b"".join(pieces))
    return list(map(node_of, graph.nodes)), list(map(edge_of, graph.edges))


def provenance_of(message: pb.Provenance, now: Timestamp | None = None) -> Provenance:
    """A checked provenance; without a timestamp of its own it is of `now`, if there is one."""
    if now is not None and not message.HasField("timestamp"):
        return checked_provenance(message.source, message.trigger, now)
    stamp = message.timestamp
    return checked_provenance(message.source, message.trigger, checked_timestamp(stamp.seconds, stamp.nanos))


def node_of(message: pb.Node, now: Timestamp | None = None) -> Node:
    """A checked node."""
    provenance = [provenance_of(each, now) for each in message.provenance]
    return checked_node(message.id, message.type, message.label, provenance, hypothetical=message.hypothetical)


def edge_of(message: pb.Edge, now: Timestamp | None = None) -> Edge:
    """A checked edge."""
    return checked_edge(edge_key_of(message), [provenance_of(each, now) for each in message.provenance])


def edge_key_of(message: pb.Edge | pb.EdgeTombstoneEntry) -> EdgeKey:
    """The checked identity of an edge."""
    return checked_edge_key(message.source, message.target, message.type)


def edge_entry(key: EdgeKey) -> pb.EdgeTombstoneEntry:
    """The identity of an edge as a message."""
    return pb.EdgeTombstoneEntry(source=key.source, target=key.target, type=int(key.type))  # type: ignore[arg-type]


def split(piece: bytes) -> list[bytes]:
    """The single fields of a piece."""
    found = []
    start, end = 0, len(piece)
    while start < end:
        place, length, shift = start + 1, 0, 0
        while True:
            octet = piece[place]
            place += 1
            length |= (octet & _LOW_BITS) << shift
            if octet < _MORE:
                break
            shift += 7
        found.append(piece[start : place + length])
        start = place + length
    return found


def keyed_nodes(piece: bytes) -> list[tuple[str, bytes]]:
    """The nodes of a piece of encoded nodes, each as it is, with its id."""
    ids = [node.id for node in pb.CausalGraph.FromString(piece).nodes]
    return list(zip(ids, split(piece), strict=True))


def keyed_edges(piece: bytes) -> list[tuple[EdgeKey, bytes]]:
    """The edges of a piece of encoded edges, each as it is, with its identity."""
    keys = [edge_key_of(edge) for edge in pb.CausalGraph.FromString(piece).edges]
    return list(zip(keys, split(piece), strict=True))
