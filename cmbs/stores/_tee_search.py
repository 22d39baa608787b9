"""Searches in a causal graph between the words of the SPI and those of the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cmbs.errors import InvalidRequest
from cmbs.spi.graph_search import (
    CausalEdge,
    CausalPath,
    GraphEdge,
    GraphNode,
    GraphPage,
    SearchBounds,
    SearchPage,
    SearchResult,
    WholeGraph,
)
from cmbs.stores._tee_ids import hypothesis_of, parse_hypothesis
from cmbs.tee import EdgeKey
from cmbs.tee.access import is_text
from cmbs.tee.kernel.paths import cause_and_effect
from cmbs.tee.kernel.wire import edge_key_of
from cmbs.tee.proto import tee_pb2 as pb

_MAX_UINT32 = 2**32 - 1


def node_id_of(hypothesis_id: str) -> str:
    """The node that a hypothesis is; InvalidRequest for an edge, which can neither be a symptom nor be reached."""
    if not is_text(hypothesis_id):
        raise InvalidRequest("the id of a node must be text without lone surrogates", {"field": "node"})
    thing = parse_hypothesis(hypothesis_id)
    if isinstance(thing, EdgeKey):
        raise InvalidRequest(f"`{hypothesis_id}` is an edge: a search begins at a node", {"field": "node"})
    return thing


def encode_bounds(bounds: SearchBounds) -> dict[str, Any]:
    """Bounds as fields of a request; what is not said is left to the Tee."""
    depth = {} if bounds.max_depth is None else {"max_depth": _encode_number(bounds.max_depth)}
    return {**depth, **encode_page(bounds)}


def encode_page(bounds: SearchBounds) -> dict[str, Any]:
    """As `encode_bounds`, but only which page is asked for."""
    size = {} if bounds.page_size is None else {"page_size": _encode_number(bounds.page_size)}
    return {"page_token": bounds.cursor or "", **size}


def _encode_number(number: int) -> int:
    """A bound as far as a message can carry it, for the Tee to refuse."""
    return min(max(number, 0), _MAX_UINT32)


def result_of(node: pb.Node, paths: Iterable[pb.CausalPath]) -> SearchResult:
    """What a search found, in the words of a session."""
    return SearchResult(hypothesis_of(node.id), node.label, _node_type(node), tuple(map(_path_of, paths)))


def page_of(results: Iterable[SearchResult], found: pb.ExplainResult | pb.ImpactResult) -> SearchPage:
    """A page of results."""
    version = str(found.causal_graph_version)
    return SearchPage(tuple(results), found.total, found.cut, version, found.next_page_token or None)


def graph_page_of(page: pb.GraphPage) -> GraphPage:
    """A page of the graph, in the words of a session."""
    nodes = (GraphNode(hypothesis_of(node.id), node.label, _node_type(node)) for node in page.nodes)
    edges = (GraphEdge(hypothesis_of(edge_key_of(edge)), *_edge_of(edge)) for edge in page.edges)
    return GraphPage(tuple(nodes), tuple(edges), str(page.causal_graph_version), page.next_page_token or None)


def whole_graph_of(graph: pb.CausalGraph) -> WholeGraph:
    """A graph in the words of a session, its edges as cause and effect."""
    nodes = (GraphNode(hypothesis_of(node.id), node.label, _node_type(node)) for node in graph.nodes)
    ends = (cause_and_effect(edge_key_of(edge)) for edge in graph.edges)
    return WholeGraph(tuple(nodes), tuple((hypothesis_of(cause), hypothesis_of(effect)) for cause, effect in ends))


def _path_of(path: pb.CausalPath) -> CausalPath:
    return CausalPath(hypothesis_of(path.end), tuple(map(_edge_of, path.edges)))


def _edge_of(edge: pb.EdgeTombstoneEntry) -> CausalEdge:
    kind = pb.EdgeType.Name(edge.type).removeprefix("EDGE_TYPE_")
    return CausalEdge(hypothesis_of(edge.source), hypothesis_of(edge.target), kind)


def _node_type(node: pb.Node) -> str:
    return pb.NodeType.Name(node.type).removeprefix("NODE_TYPE_")
