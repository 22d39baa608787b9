"""What the importers share: collecting nodes and edges, reading JSON, walking data of unknown shape."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import msgspec

from cmbs.errors import InvalidGraph
from cmbs.tee.access import is_text
from cmbs.tee.graph_json import JsonEdge, JsonGraph, JsonNode, JsonProvenance
from cmbs.tee.kernel.lattice import EdgeType, NodeType
from cmbs.tee.kernel.limits import TeeLimits

_LIMITS = TeeLimits()


class Imported(NamedTuple):
    """A graph, and how often something was left out, by why."""

    graph: JsonGraph
    left_out: Counter[str]


class GraphBuilder:
    """Collects a graph in which every node and edge is there once, with the same provenance."""

    def __init__(self, source: str, trigger: str) -> None:
        self._provenance: list[str | JsonProvenance] = [JsonProvenance(source, trigger)]
        self._nodes: dict[str, JsonNode] = {}
        self._edges: dict[tuple[str, str, EdgeType], JsonEdge] = {}
        self._unfit: set[str] = set()
        self.left_out: Counter[str] = Counter()

    def add_node(self, node_id: str, kind: NodeType, label: str = "") -> str:
        """A node, unless it is there or Tee would not take its id; the id. A label is made to fit."""
        if len(node_id) > _LIMITS.id_length or not is_text(node_id):
            self._unfit.add(node_id)
        elif node_id not in self._nodes:
            shown = (label or node_id)[: _LIMITS.label_length].encode(errors="replace").decode()
            self._nodes[node_id] = JsonNode(node_id, kind.name, shown, hypothetical=False, provenance=self._provenance)
        return node_id

    def add_dependency(self, source: str, target: str) -> None:
        """An edge that says that `source` depends on `target`; a thing does not depend on itself."""
        if source != target:
            key = (source, target, EdgeType.DEPENDS_ON)
            self._edges[key] = JsonEdge(source, target, EdgeType.DEPENDS_ON.name, self._provenance)

    def has_node(self, node_id: str) -> bool:
        """Whether a node is there."""
        return node_id in self._nodes

    def build(self) -> Imported:
        """The graph. Edges to what is no node are left out and counted."""
        if self._unfit:
            self.left_out[f"names of more than {_LIMITS.id_length} characters, or that are no text"] = len(self._unfit)
        edges = []
        for edge in self._edges.values():
            if edge.source in self._nodes and edge.target in self._nodes:
                edges.append(edge)
            else:
                self.left_out["dependencies on something that the file does not describe"] += 1
        return Imported(JsonGraph(list(self._nodes.values()), edges), self.left_out)


def read_json_documents(data: bytes, name: str) -> list[Any]:
    """The JSON values of a file: one, or one a line, as exporters write them; InvalidGraph names the line."""
    try:
        return [msgspec.json.decode(data)]
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
        if len(lines) < 2:  # noqa: PLR2004 - one line is one value
            raise InvalidGraph(f"`{name}` is not JSON: {exc}") from exc
    documents = []
    for number, line in lines:
        try:
            documents.append(msgspec.json.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise InvalidGraph(f"`{name}` is neither JSON nor one JSON value a line: line {number}: {exc}") from exc
    return documents


def member(value: Any, *path: str) -> Any:
    """What is at a path of names inside of objects; None where it is not there."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def texts(value: Any) -> list[str]:
    """The texts of a list that are not empty; none where it is no list."""
    return [each for each in value if isinstance(each, str) and each] if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """A text, or nothing."""
    return value if isinstance(value, str) else ""
