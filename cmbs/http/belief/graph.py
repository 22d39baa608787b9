"""The causal graph of a session over HTTP: what explains symptoms, what a node can affect, and the graph in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cmbs.belief.graph import HypothesisState
from cmbs.belief.server import BeliefServer
from cmbs.errors import ErrorCode, InvalidRequest
from cmbs.http.belief.schemas import NextCursor
from cmbs.http.exchange import Request, Response, cursor_of, from_cursor, read_moment, whole_number
from cmbs.http.operation import AT, CURSOR, Operation, Parameter
from cmbs.spi.graph_search import MAX_DEPTH, MAX_PAGE_SIZE, SearchBounds, SearchPage

_ENCODE = msgspec.json.Encoder().encode
_ERRORS = (
    ErrorCode.STORE_UNAVAILABLE,
    ErrorCode.SESSION_NOT_FOUND,
    ErrorCode.LEDGER_CORRUPT,
    ErrorCode.LIMIT_EXCEEDED,
)
_LIMIT = Parameter(
    "limit", "How many items at most; 100 by default.", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE}
)
_SYMPTOM = Parameter(
    "symptom",
    "A node that shows something wrong; once for each, up to 100.",
    {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 100},
    ["web-alert"],
    required=True,
)
_NODE = Parameter("node", "The node to begin at.", {"type": "string", "minLength": 1}, "db", required=True)
_DEPTH = Parameter(
    "max_depth",
    "How many edges a search goes far; 5 by default.",
    {"type": "integer", "minimum": 1, "maximum": MAX_DEPTH},
    5,
)
_NO_GRAPH = " Refused where the server has no Tee, and for sessions over a provider."

# --- answers ----------------------------------------------------------------------------------------------------------

Version = Annotated[
    str, Meta(description="The version of the graph that the session is anchored at; it never changes.")
]
Kind = Annotated[str, Meta(description="The type, as Tee names it.")]
State = Annotated[
    HypothesisState,
    Meta(description="By the log of the session; `outside` is what is in the graph and not in the universe."),
]


class PathEdge(msgspec.Struct):
    """An edge of a path, as the graph has it: a dependency is written from what depends to what it depends on."""

    source: str
    target: str
    type: Kind


class PathItem(msgspec.Struct):
    """A shortest path, its edges in the order of causation; without edges where a symptom explains itself."""

    end: Annotated[str, Meta(description="The symptom that is explained, or the node that is affected.")]
    edges: list[PathEdge]


class FoundNode(msgspec.Struct):
    """A node that a search found."""

    hypothesis_id: str
    label: str
    type: Kind
    paths: list[PathItem]


class GraphSearchPage(msgspec.Struct):
    """A page of what a search found. What is eliminated is on no path."""

    session_id: str
    causal_graph_version: Version
    total: Annotated[int, Meta(ge=0, description="How many nodes were found, on all pages.")]
    is_cut: Annotated[bool, Meta(description="Whether there is more beyond the depth or the size of the search.")]
    results: list[FoundNode]
    next_cursor: NextCursor


class GraphNodeItem(msgspec.Struct):
    """A node."""

    hypothesis_id: str
    label: str
    type: Kind
    state: State


class GraphEdgeItem(msgspec.Struct):
    """An edge. Its ends need not be nodes of the graph."""

    hypothesis_id: str
    source: str
    target: str
    type: Kind
    state: State


class SessionGraphResponse(msgspec.Struct):
    """A page of a graph: the nodes come first, then the edges."""

    session_id: str
    causal_graph_version: Version
    audit_head_event_id: Annotated[
        str, Meta(description="The event that the states are right after; pass it as `at` to read the next page so.")
    ]
    nodes: list[GraphNodeItem]
    edges: list[GraphEdgeItem]
    next_cursor: NextCursor


# --- operations -------------------------------------------------------------------------------------------------------

GRAPH_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/sessions/{session_id}/graph",
        "session_graph",
        "The causal graph of a session",
        "Nodes, then edges, as of the version that the session is anchored at, each with what the session says of it."
        " What is on a page never changes but for the states, which `at` pins." + _NO_GRAPH,
        SessionGraphResponse,
        query=(CURSOR, _LIMIT, AT),
        errors=(*_ERRORS, ErrorCode.EVENT_NOT_FOUND),
        beyond_stream=True,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/explain",
        "explain_symptoms",
        "Which nodes can explain symptoms",
        "Those that are not eliminated and reach at least one symptom: those that explain the most first, then the"
        " nearest, each with a shortest path." + _NO_GRAPH,
        GraphSearchPage,
        query=(_SYMPTOM, _DEPTH, CURSOR, _LIMIT),
        errors=_ERRORS,
        beyond_stream=True,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/impact",
        "node_impact",
        "What a node can affect",
        "The nodes that it reaches and that are not eliminated, the nearest first, each with a shortest path."
        + _NO_GRAPH,
        GraphSearchPage,
        query=(_NODE, _DEPTH, CURSOR, _LIMIT),
        errors=_ERRORS,
        beyond_stream=True,
    ),
)


class GraphRoutes:
    """The handlers. Each waits for the store of the graph, and so does it in a thread."""

    def __init__(self, server: BeliefServer) -> None:
        self._graphs = server.graphs

    async def session_graph(self, request: Request) -> Response:
        """A page of the graph."""
        query = request.query("cursor", "limit", "at")
        at, bounds = read_moment(query.get("at")), _read_bounds(query)
        session_id = request.params["session_id"]

        def read() -> dict[str, Any]:
            page = self._graphs.list_page(session_id, bounds, at=at)
            nodes = zip(page.graph.nodes, page.node_states, strict=True)
            edges = zip(page.graph.edges, page.edge_states, strict=True)
            return {
                "session_id": session_id,
                "causal_graph_version": page.graph.version,
                "audit_head_event_id": page.event_id,
                "nodes": [{**node._asdict(), "state": state} for node, state in nodes],
                "edges": [{**edge._asdict(), "state": state} for edge, state in edges],
                "next_cursor": _write_cursor(page.graph.next_cursor),
            }

        return await _respond(read)

    async def explain_symptoms(self, request: Request) -> Response:
        """What can explain symptoms."""
        query = request.query("symptom", "max_depth", "cursor", "limit")
        symptoms, bounds = request.query_list("symptom"), _read_bounds(query)
        if not all(symptoms) or not symptoms:
            raise _refuse_missing("symptom", "the id of a node that shows something wrong")
        session_id = request.params["session_id"]
        return await _respond(lambda: _describe(session_id, self._graphs.explain(session_id, symptoms, bounds)))

    async def node_impact(self, request: Request) -> Response:
        """What a node can affect."""
        query = request.query("node", "max_depth", "cursor", "limit")
        node, bounds = query.get("node"), _read_bounds(query)
        if not node:
            raise _refuse_missing("node", "the id of the node to begin at")
        session_id = request.params["session_id"]
        return await _respond(lambda: _describe(session_id, self._graphs.impact(session_id, node, bounds)))


async def _respond(read: Callable[[], dict[str, Any]]) -> Response:
    return Response(200, await asyncio.to_thread(lambda: _ENCODE(read())))


def _refuse_missing(name: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"send `{name}`: {what}",
        {"parameter": name, "accepted": {"minLength": 1}, "next": f"add `{name}` to the query"},
    )


def _read_bounds(query: dict[str, str]) -> SearchBounds:
    return SearchBounds(
        _read_number(query, "max_depth", MAX_DEPTH),
        _read_number(query, "limit", MAX_PAGE_SIZE),
        from_cursor(query["cursor"], 1)[0] if "cursor" in query else None,
    )


def _read_number(query: dict[str, str], name: str, maximum: int) -> int | None:
    if name not in query:
        return None
    number = whole_number(name, query[name])
    if not 1 <= number <= maximum:
        raise InvalidRequest(
            f"`{name}` must be from 1 to {maximum}, got `{number}`",
            {"parameter": name, "found": number, "accepted": {"minimum": 1, "maximum": maximum}},
        )
    return number


def _write_cursor(token: str | None) -> str | None:
    return None if token is None else cursor_of(token)


def _describe(session_id: str, page: SearchPage) -> dict[str, Any]:
    results = [
        {
            **found._asdict(),
            "paths": [{"end": path.end, "edges": [edge._asdict() for edge in path.edges]} for path in found.paths],
        }
        for found in page.results
    ]
    return {
        "session_id": session_id,
        "causal_graph_version": page.version,
        "total": page.total,
        "is_cut": page.is_cut,
        "results": results,
        "next_cursor": _write_cursor(page.next_cursor),
    }
