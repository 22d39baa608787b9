"""Main graphs as JSON: what `cmbs tee load` reads and `cmbs tee show --json` writes.

::

    {"nodes": [{"id": "db", "type": "SERVICE", "label": "db", "hypothetical": true, "provenance": ["cmdb"]}],
     "edges": [{"source": "api", "target": "db", "type": "DEPENDS_ON", "provenance": [{"source": "traces",
                "trigger": "scan", "timestamp": "2026-01-31T09:30:00Z"}]}]}

Provenance is an object, or just the source; a label is the id where none is given. Without a timestamp, Tee's time is
taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from cmbs.errors import InvalidGraph
from cmbs.tee.kernel.lattice import Edge, EdgeType, Node, NodeType, Provenance
from cmbs.tee.proto import tee_pb2 as pb

# What stands as the trigger of a provenance that is only a source.
LOADED = "load"
# A delta: at most so many things, and so many bytes unless one thing alone has more. Any Tee takes 4 MiB.
_BATCH = 5_000
_BATCH_BYTES = 2 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JsonProvenance(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Who said so."""

    source: str
    trigger: str = ""
    timestamp: datetime | None = None


class JsonNode(msgspec.Struct, forbid_unknown_fields=True):
    """A node."""

    id: str
    type: str
    label: str | None = None
    hypothetical: bool = True
    provenance: list[str | JsonProvenance] = []


class JsonEdge(msgspec.Struct, forbid_unknown_fields=True):
    """An edge."""

    source: str
    target: str
    type: str
    provenance: list[str | JsonProvenance] = []


class JsonGraph(msgspec.Struct, forbid_unknown_fields=True):
    """A graph."""

    nodes: list[JsonNode] = []
    edges: list[JsonEdge] = []


def read_graph(data: bytes) -> JsonGraph:
    """A graph from JSON; InvalidGraph says what is wrong and where."""
    try:
        return msgspec.json.decode(data, type=JsonGraph)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InvalidGraph(f"not a graph: {exc}") from exc


def write_graph(nodes: Iterable[Node], edges: Iterable[Edge]) -> bytes:
    """A graph as JSON, sorted, so that the same graph is the same text."""
    graph = JsonGraph(
        sorted(
            [
                JsonNode(each.id, each.type.name, each.label, each.hypothetical, list(map(_written, each.provenance)))
                for each in nodes
            ],
            key=lambda node: node.id,
        ),
        [
            JsonEdge(each.key.source, each.key.target, each.key.type.name, list(map(_written, each.provenance)))
            for each in sorted(edges, key=lambda edge: edge.key)
        ],
    )
    return msgspec.json.format(msgspec.json.encode(graph), indent=1)


def deltas(graph: JsonGraph) -> Iterator[pb.HypothesisDelta]:
    """The graph in messages of a size that Tee takes, nodes first; one at least, for Tee to say its version."""
    if not graph.nodes and not graph.edges:
        yield pb.HypothesisDelta()
    for nodes in _batches(map(_node, graph.nodes)):
        yield pb.HypothesisDelta(nodes=nodes)
    for edges in _batches(map(_edge, graph.edges)):
        yield pb.HypothesisDelta(edges=edges)


def _node(node: JsonNode) -> pb.Node:
    return pb.Node(
        id=node.id,
        type=_number(NodeType, "NODE_TYPE_", node.type),  # type: ignore[arg-type]  # the numbers are the same
        label=node.id if node.label is None else node.label,
        hypothetical=node.hypothetical,
        provenance=map(_said, node.provenance),
    )


def _edge(edge: JsonEdge) -> pb.Edge:
    return pb.Edge(
        source=edge.source,
        target=edge.target,
        type=_number(EdgeType, "EDGE_TYPE_", edge.type),  # type: ignore[arg-type]  # the numbers are the same
        provenance=map(_said, edge.provenance),
    )


def _number(types: type[NodeType | EdgeType], prefix: str, name: str) -> int:
    try:
        return int(types[name.removeprefix(prefix)])
    except KeyError as exc:
        raise InvalidGraph(f"`{name}` is not a type; there are {', '.join(each.name for each in types)}") from exc


def _said(provenance: str | JsonProvenance) -> pb.Provenance:
    if isinstance(provenance, str):
        return pb.Provenance(source=provenance, trigger=LOADED)
    said = pb.Provenance(source=provenance.source, trigger=provenance.trigger)
    if provenance.timestamp is not None:
        moment = provenance.timestamp
        if moment.tzinfo is None:
            raise InvalidGraph(f"timestamp `{moment.isoformat()}` has no time zone")
        since = moment - _EPOCH
        said.timestamp.seconds = since.days * 86_400 + since.seconds
        said.timestamp.nanos = since.microseconds * 1000
    return said


def _written(provenance: Provenance) -> JsonProvenance:
    seconds, nanos = provenance.timestamp
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanos // 1000)
    return JsonProvenance(provenance.source, provenance.trigger, moment)


T = TypeVar("T", pb.Node, pb.Edge)


def _batches(things: Iterable[T]) -> Iterator[list[T]]:
    batch: list[T] = []
    size = 0
    for thing in things:
        weight = thing.ByteSize()
        if batch and (len(batch) == _BATCH or size + weight > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(thing)
        size += weight
    if batch:
        yield batch
