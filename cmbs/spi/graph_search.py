"""Searches in the causal graph that a session's hypotheses come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

MAX_PAGE_SIZE = 1_000
# Of a search, in edges.
MAX_DEPTH = 32


class CausalEdge(NamedTuple):
    """An edge as the graph has it: a dependency is written from what depends to what it depends on."""

    source: str
    target: str
    type: str


class CausalPath(NamedTuple):
    """A shortest path to `end`, its edges in the order of causation; without edges where a node explains itself."""

    end: str
    edges: tuple[CausalEdge, ...]


class SearchResult(NamedTuple):
    """A node that a search found, under the id that it has as a hypothesis, and how it is connected."""

    hypothesis_id: str
    label: str
    type: str
    paths: tuple[CausalPath, ...]


class SearchPage(NamedTuple):
    """A page of what a search found. `is_cut`: there is more beyond the depth or the size of the search.

    `next_cursor` is None on the last page. `version` is that of the graph which the session is anchored at.
    """

    results: tuple[SearchResult, ...]
    total: int
    is_cut: bool
    version: str
    next_cursor: str | None


class GraphNode(NamedTuple):
    """A node of the graph, under the id that it has as a hypothesis."""

    hypothesis_id: str
    label: str
    type: str


class GraphEdge(NamedTuple):
    """An edge of the graph, under the id that it has as a hypothesis."""

    hypothesis_id: str
    source: str
    target: str
    type: str


class GraphPage(NamedTuple):
    """Some of the graph that a session is anchored in, eliminated or not; what is on a page never changes.

    `next_cursor` is None on the last page. `version` is that of the graph which the session is anchored at.
    """

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    version: str
    next_cursor: str | None


class WholeGraph(NamedTuple):
    """A graph as of a version, without what sessions eliminated. A link is an edge as its cause and its effect."""

    nodes: tuple[GraphNode, ...]
    links: tuple[tuple[str, str], ...]


class SearchBounds(NamedTuple):
    """How far a search goes and which page of it is asked for; None is the default of the graph."""

    max_depth: int | None = None
    page_size: int | None = None
    cursor: str | None = None


DEFAULT_BOUNDS = SearchBounds()


@runtime_checkable
class GraphSearch(Protocol):
    """A store whose sessions are over a causal graph. What is eliminated in a session is left out of its searches.

    All methods raise `SessionNotFound`, and `InvalidRequest` for a node that is not in the graph or a bound that is
    too large.
    """

    def explain(self, session_id: str, symptoms: Sequence[str], bounds: SearchBounds = DEFAULT_BOUNDS) -> SearchPage:
        """The nodes that can cause at least one symptom: those that explain the most first, then the nearest."""
        ...

    def impact(self, session_id: str, node_id: str, bounds: SearchBounds = DEFAULT_BOUNDS) -> SearchPage:
        """What a node can affect, the nearest first."""
        ...

    def list_graph(self, session_id: str, bounds: SearchBounds = DEFAULT_BOUNDS) -> GraphPage:
        """A page of the graph that a session is anchored in: all nodes come first, then all edges."""
        ...


@runtime_checkable
class GraphReader(Protocol):
    """A store that can tell its whole causal graph as of a version, which never changes."""

    def read_graph(self, version: str) -> WholeGraph:
        """The graph; `InvalidRequest` where there is no such version, or the store cannot go back to one."""
        ...

    def create_anchored(self, session_id: str, hypothesis_ids: frozenset[str], version: str) -> None:
        """As `create_session` of an elimination store, for some of the nodes that the graph has at this version.

        Searches of the session then see the graph as of it.
        """
        ...
