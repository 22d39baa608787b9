"""Types of the causal graph of a session: what explains symptoms, what a node can affect, and the graph in pages."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from cmbs.api.answers import Answer, Page
from cmbs.api.sessions import NextCursor
from cmbs.messages import HypothesisState

Version = Annotated[
    str, Meta(description="The version of the graph that the session is anchored at; it never changes.")
]
Kind = Annotated[str, Meta(description="The type, as Tee names it.")]
State = Annotated[
    HypothesisState,
    Meta(description="By the log of the session; `outside` is what is in the graph and not in the universe."),
]


class PathEdge(Answer, frozen=True):
    """An edge of a path, as the graph has it: a dependency is written from what depends to what it depends on."""

    source: str
    target: str
    type: Kind


class PathItem(Answer, frozen=True):
    """A shortest path, its edges in the order of causation; without edges where a symptom explains itself."""

    end: Annotated[str, Meta(description="The symptom that is explained, or the node that is affected.")]
    edges: list[PathEdge]


class FoundNode(Answer, frozen=True):
    """A node that a search found."""

    hypothesis_id: str
    label: str
    type: Kind
    paths: list[PathItem]


class GraphSearchPage(Page[FoundNode], frozen=True):
    """A page of what a search found. What is eliminated is on no path."""

    collection: ClassVar[str] = "results"
    session_id: str
    causal_graph_version: Version
    total: Annotated[int, Meta(ge=0, description="How many nodes were found, on all pages.")]
    is_cut: Annotated[bool, Meta(description="Whether there is more beyond the depth or the size of the search.")]
    results: list[FoundNode]
    next_cursor: NextCursor


class GraphNodeItem(Answer, frozen=True):
    """A node."""

    hypothesis_id: str
    label: str
    type: Kind
    state: State


class GraphEdgeItem(Answer, frozen=True):
    """An edge. Its ends need not be nodes of the graph."""

    hypothesis_id: str
    source: str
    target: str
    type: Kind
    state: State


class SessionGraphResponse(Page[GraphNodeItem | GraphEdgeItem], frozen=True):
    """A page of a graph: the nodes come first, then the edges."""

    session_id: str
    causal_graph_version: Version
    audit_head_event_id: Annotated[
        str, Meta(description="The event that the states are right after; pass it as `at` to read the next page so.")
    ]
    nodes: list[GraphNodeItem]
    edges: list[GraphEdgeItem]
    next_cursor: NextCursor

    @property
    def items(self) -> list[GraphNodeItem | GraphEdgeItem]:
        """The nodes of this page, and then its edges."""
        return [*self.nodes, *self.edges]
