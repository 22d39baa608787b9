"""The causal graph in the eyes of a session: what can explain symptoms, what a node can affect, and the graph itself.

The graph is in the elimination store, and is read as of the version that the session is anchored at. What is eliminated
there is the log's to say: a store that does not agree with the log of the session is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cmbs.belief.agreement import Agreement
from cmbs.belief.kernel.session import Session
from cmbs.belief.kernel.survivors import Survivors
from cmbs.belief.kernel.views import seq_at, survivors_at
from cmbs.belief.remote_calls import RemoteCalls
from cmbs.errors import InvalidRequest
from cmbs.messages import HypothesisState
from cmbs.spi.graph_search import DEFAULT_BOUNDS, GraphPage, GraphSearch, SearchBounds, SearchPage

_NO_GRAPH = "sessions of this server are not over a causal graph"


class SessionGraphPage(NamedTuple):
    """A page of the graph, with the state of its nodes and edges in their order, right after an event."""

    graph: GraphPage
    node_states: tuple[HypothesisState, ...]
    edge_states: tuple[HypothesisState, ...]
    event_id: str


class SessionGraphs:
    """The graphs of sessions whose tombstones are in `store`; without a store, of none."""

    def __init__(
        self,
        store: object,
        calls: RemoteCalls | None,
        agreement: Agreement | None,
        read: Callable[[str], Session],
    ) -> None:
        self._store = store
        self._calls = calls
        self._agreement = agreement
        self._read = read

    def explain(self, session_id: str, symptoms: Sequence[str], bounds: SearchBounds = DEFAULT_BOUNDS) -> SearchPage:
        """The nodes that can cause at least one symptom and are not eliminated."""
        store, calls, _ = self._require(session_id)
        return calls.ask(lambda: store.explain(session_id, symptoms, bounds))

    def impact(self, session_id: str, node_id: str, bounds: SearchBounds = DEFAULT_BOUNDS) -> SearchPage:
        """What a node can affect and is not eliminated."""
        store, calls, _ = self._require(session_id)
        return calls.ask(lambda: store.impact(session_id, node_id, bounds))

    def list_page(
        self, session_id: str, bounds: SearchBounds = DEFAULT_BOUNDS, *, at: int | str | None = None
    ) -> SessionGraphPage:
        """A page of the graph, with what the session says of it now, or right after event `at`."""
        store, calls, session = self._require(session_id)
        seq = seq_at(session, at)
        survivors = survivors_at(session, seq)
        graph = calls.ask(lambda: store.list_graph(session_id, bounds))

        def find_states(ids: list[str]) -> tuple[HypothesisState, ...]:
            return tuple(_find_state(session, survivors, each) for each in ids)

        return SessionGraphPage(
            graph,
            find_states([node.hypothesis_id for node in graph.nodes]),
            find_states([edge.hypothesis_id for edge in graph.edges]),
            session.events.at(seq)[0],
        )

    def _require(self, session_id: str) -> tuple[GraphSearch, RemoteCalls, Session]:
        """The store of a session that has a graph; an error where there is none, or where the two do not agree."""
        session, store, agreement = self._read(session_id), self._store, self._agreement
        if self._calls is None or agreement is None or not isinstance(store, GraphSearch):
            raise InvalidRequest(_NO_GRAPH, {"next": "ask a server that was started with `cmbs serve --tee`"})
        if session.provider is not None and not session.is_in_store:
            raise InvalidRequest(
                f"session `{session_id}` is not over a causal graph: it is over provider `{session.provider.id}`",
                {"session_id": session_id, "next": "ask about a session that was declared without a provider"},
            )
        agreement.require_agreement(session)
        return store, self._calls, session


def _find_state(session: Session, survivors: Survivors, hypothesis_id: str) -> HypothesisState:
    if hypothesis_id in survivors:
        return HypothesisState.SURVIVOR
    return HypothesisState.ELIMINATED if hypothesis_id in session.universe else HypothesisState.OUTSIDE
