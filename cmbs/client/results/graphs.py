"""Answers about the causal graph of a session."""

from __future__ import annotations

from cmbs.client.results.belief import Result


class PathEdge(Result, frozen=True):
    """An edge of a path, as the graph has it: a dependency is written from what depends to what it depends on."""

    source: str
    target: str
    type: str


class Path(Result, frozen=True):
    """A shortest path, its edges in the order of causation; without edges where a symptom explains itself."""

    end: str
    edges: list[PathEdge]


class FoundNode(Result, frozen=True):
    """A node that a search found."""

    hypothesis_id: str
    label: str
    type: str
    paths: list[Path]


class GraphSearchPage(Result, frozen=True):
    """A page of what a search found. What is eliminated is on no path."""

    session_id: str
    causal_graph_version: str
    total: int
    is_cut: bool
    results: list[FoundNode]
    next_cursor: str | None


class GraphNode(Result, frozen=True):
    """A node, and what the session says of it."""

    hypothesis_id: str
    label: str
    type: str
    state: str


class GraphEdge(Result, frozen=True):
    """An edge, and what the session says of it. Its ends need not be nodes of the graph."""

    hypothesis_id: str
    source: str
    target: str
    type: str
    state: str


class GraphPage(Result, frozen=True):
    """A page of a graph: the nodes come first, then the edges."""

    session_id: str
    causal_graph_version: str
    audit_head_event_id: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    next_cursor: str | None
