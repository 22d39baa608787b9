"""The causal graph of a session over HTTP: what explains symptoms, what a node can affect, and the graph in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cmbs.api.answers import Answer
from cmbs.api.graphs import (
    FoundNode,
    GraphEdgeItem,
    GraphNodeItem,
    GraphSearchPage,
    PathEdge,
    PathItem,
    SessionGraphResponse,
)
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest
from cmbs.http.exchange import Request, Response, cursor_of, encode_answer, read_moment
from cmbs.spi.graph_search import MAX_DEPTH, MAX_PAGE_SIZE, SearchBounds, SearchPage

# --- operations -------------------------------------------------------------------------------------------------------


class GraphRoutes:
    """The handlers. Each waits for the store of the graph, and so does it in a thread."""

    def __init__(self, server: BeliefServer) -> None:
        self._graphs = server.graphs

    async def session_graph(self, request: Request) -> Response:
        """A page of the graph."""
        at, bounds = read_moment(request.query.get("at")), _read_bounds(request)
        session_id = request.params["session_id"]

        def read() -> SessionGraphResponse:
            page = self._graphs.list_page(session_id, bounds, at=at)
            nodes = zip(page.graph.nodes, page.node_states, strict=True)
            edges = zip(page.graph.edges, page.edge_states, strict=True)
            return SessionGraphResponse(
                session_id,
                page.graph.version,
                page.event_id,
                [GraphNodeItem(*node, state) for node, state in nodes],
                [GraphEdgeItem(*edge, state) for edge, state in edges],
                _write_cursor(page.graph.next_cursor),
            )

        return await _respond(read)

    async def explain_symptoms(self, request: Request) -> Response:
        """What can explain symptoms."""
        symptoms, bounds = request.query["symptom"], _read_bounds(request)
        session_id = request.params["session_id"]
        return await _respond(lambda: _describe(session_id, self._graphs.explain(session_id, symptoms, bounds)))

    async def node_impact(self, request: Request) -> Response:
        """What a node can affect."""
        node, bounds = request.query["node"], _read_bounds(request)
        session_id = request.params["session_id"]
        return await _respond(lambda: _describe(session_id, self._graphs.impact(session_id, node, bounds)))


async def _respond(read: Callable[[], Answer]) -> Response:
    return Response(200, await asyncio.to_thread(lambda: encode_answer(read())))


def _read_bounds(request: Request) -> SearchBounds:
    return SearchBounds(
        _read_number(request.query, "max_depth", MAX_DEPTH),
        _read_number(request.query, "limit", MAX_PAGE_SIZE),
        request.after,
    )


def _read_number(query: dict[str, Any], name: str, maximum: int) -> int | None:
    if name not in query:
        return None
    number: int = query[name]
    if not 1 <= number <= maximum:
        raise InvalidRequest(
            f"`{name}` must be from 1 to {maximum}, got `{number}`",
            {"parameter": name, "found": number, "accepted": {"minimum": 1, "maximum": maximum}},
        )
    return number


def _write_cursor(token: str | None) -> str | None:
    return None if token is None else cursor_of(token)


def _describe(session_id: str, page: SearchPage) -> GraphSearchPage:
    results = [
        FoundNode(
            found.hypothesis_id,
            found.label,
            found.type,
            [PathItem(path.end, [PathEdge(*edge) for edge in path.edges]) for path in found.paths],
        )
        for found in page.results
    ]
    return GraphSearchPage(session_id, page.version, page.total, page.is_cut, results, _write_cursor(page.next_cursor))
