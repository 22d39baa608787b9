"""The operations on the causal graph of a session."""

from __future__ import annotations

from collections.abc import Sequence

from cmbs.client.calls import Moment, PageCall, list_ids, read
from cmbs.client.operations import listing
from cmbs.client.results import graphs as results

_SESSION = "/v1/sessions/{}"


class GraphOperations:
    """Where the hypotheses of a session come from."""

    @listing
    def session_graph(
        self, session_id: str, *, at: Moment | None = None, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[results.GraphPage, results.GraphNode | results.GraphEdge]:
        """The causal graph of a session: nodes, then edges, each with what the session says of it."""
        call = read(f"{_SESSION}/graph", session_id, answer=results.GraphPage, at=at, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: [*page.nodes, *page.edges], lambda page: page.next_cursor)

    @listing
    def explain_symptoms(
        self,
        session_id: str,
        symptom: Sequence[str],
        *,
        max_depth: int | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> PageCall[results.GraphSearchPage, results.FoundNode]:
        """The nodes that are not eliminated and can explain symptoms, those that explain the most first."""
        call = read(
            f"{_SESSION}/explain",
            session_id,
            answer=results.GraphSearchPage,
            symptom=list_ids("symptom", symptom),
            max_depth=max_depth,
            cursor=cursor,
            limit=limit,
        )
        return PageCall(call, lambda page: page.results, lambda page: page.next_cursor)

    @listing
    def node_impact(
        self,
        session_id: str,
        node: str,
        *,
        max_depth: int | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> PageCall[results.GraphSearchPage, results.FoundNode]:
        """The nodes that a node can affect and that are not eliminated, the nearest first."""
        call = read(
            f"{_SESSION}/impact",
            session_id,
            answer=results.GraphSearchPage,
            node=node,
            max_depth=max_depth,
            cursor=cursor,
            limit=limit,
        )
        return PageCall(call, lambda page: page.results, lambda page: page.next_cursor)
