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

import msgspec

from cmbs.errors import InvalidGraph
from cmbs.refusals import find_nearest
from cmbs.tee.batches import batches
from cmbs.tee.kernel.lattice import Edge, EdgeType, Node, NodeType, Provenance
from cmbs.tee.kernel.wire import provenance_message
from cmbs.tee.proto import tee_pb2 as pb

# The trigger of a provenance that is only a source.
DEFAULT_TRIGGER = "load"
# Of a delta. Any Tee takes 4 MiB.
_MAX_DELTA_ITEMS = 5_000
_MAX_DELTA_BYTES = 2 << 20


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
        raise InvalidGraph(f"not a graph: {exc}", {"field": "graph"}) from exc


def write_graph(nodes: Iterable[Node], edges: Iterable[Edge]) -> bytes:
    """A graph as JSON, sorted, so that the same graph is the same text."""
    graph = JsonGraph(
        [
            JsonNode(each.id, each.type.name, each.label, each.hypothetical, _json_provenance(each.provenance))
            for each in sorted(nodes, key=lambda node: node.id)
        ],
        [
            JsonEdge(each.key.source, each.key.target, each.key.type.name, _json_provenance(each.provenance))
            for each in sorted(edges, key=lambda edge: edge.key)
        ],
    )
    return msgspec.json.format(msgspec.json.encode(graph), indent=1)


def deltas(graph: JsonGraph) -> Iterator[pb.HypothesisDelta]:
    """The graph in messages of a size that Tee takes, nodes first; one at least, for Tee to say its version."""
    if not graph.nodes and not graph.edges:
        yield pb.HypothesisDelta()
    bounds = {"max_bytes": _MAX_DELTA_BYTES, "max_items": _MAX_DELTA_ITEMS}
    for nodes in batches(map(_node, graph.nodes), pb.Node.ByteSize, **bounds):
        yield pb.HypothesisDelta(nodes=nodes)
    for edges in batches(map(_edge, graph.edges), pb.Edge.ByteSize, **bounds):
        yield pb.HypothesisDelta(edges=edges)


def _node(node: JsonNode) -> pb.Node:
    return pb.Node(
        id=node.id,
        type=_number(NodeType, "NODE_TYPE_", node.type),  # type: ignore[arg-type]  # the numbers are the same
        label=node.id if node.label is None else node.label,
        hypothetical=node.hypothetical,
        provenance=map(_provenance_message, node.provenance),
    )


def _edge(edge: JsonEdge) -> pb.Edge:
    return pb.Edge(
        source=edge.source,
        target=edge.target,
        type=_number(EdgeType, "EDGE_TYPE_", edge.type),  # type: ignore[arg-type]  # the numbers are the same
        provenance=map(_provenance_message, edge.provenance),
    )


def _number(types: type[NodeType | EdgeType], prefix: str, name: str) -> int:
    try:
        return int(types[name.removeprefix(prefix)])
    except KeyError as exc:
        known = [each.name for each in types]
        raise InvalidGraph(
            f"`{name}` is not a type; there are {', '.join(known)}",
            {"field": "type", "found": name, "accepted": find_nearest(name.upper(), known) or known},
        ) from exc


def _provenance_message(provenance: str | JsonProvenance) -> pb.Provenance:
    if isinstance(provenance, str):
        return pb.Provenance(source=provenance, trigger=DEFAULT_TRIGGER)
    message = pb.Provenance(source=provenance.source, trigger=provenance.trigger)
    moment = provenance.timestamp
    if moment is not None:
        if moment.tzinfo is None:
            raise InvalidGraph(
                f"timestamp `{moment.isoformat()}` has no time zone",
                {"field": "timestamp", "found": moment.isoformat(), "accepted": f"{moment.isoformat()}Z"},
            )
        message.timestamp.FromDatetime(moment)
    return message


def _json_provenance(provenance: Iterable[Provenance]) -> list[str | JsonProvenance]:
    return [
        JsonProvenance(each.source, each.trigger, provenance_message(each).timestamp.ToDatetime(UTC))
        for each in provenance
    ]
