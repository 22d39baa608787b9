"""Sessions over kits of a causal graph: their hypotheses, and what an answer for a component rules out.

The graph is in the elimination store, and is read as of the version that a session is anchored at, which never changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

from cmbs.belief.agreement import Agreement
from cmbs.belief.kernel.causation import CausalGraph, Causation, describe_reading
from cmbs.belief.kernel.nearest import find_nearest
from cmbs.belief.kernel.session import Session
from cmbs.belief.remote_calls import RemoteCalls
from cmbs.errors import InvalidRequest, StoreDisagrees, UnknownProbe
from cmbs.kit.graph_kit import GraphKit, GraphProbe
from cmbs.kit.model import KitProbe
from cmbs.messages import OntologyBundle
from cmbs.spi.graph_search import GraphNode, GraphReader
from cmbs.spi.store_identity import ConnectedStore

# Graphs that were read, and what follows from them and symptoms. A graph of 100,000 nodes and 400,000 edges is about
# 60 MB.
_MAX_GRAPHS = 2
_MAX_CAUSATIONS = 8


class GraphHypotheses(NamedTuple):
    """What a session over a graph is declared with: the hypotheses, and what the graph says of them."""

    hypothesis_ids: frozenset[str]
    attributes: dict[str, dict[str, Any]]


class GraphKits:
    """What kits of causal graphs come to, for sessions whose tombstones are in `store`; without a graph, an error."""

    def __init__(self, store: object, calls: RemoteCalls | None, agreement: Agreement | None) -> None:
        self._store = store
        self._calls = calls
        self._agreement = agreement
        self._lock = Lock()
        # By how often the connection was lost, too: another Tee may be back, with another graph at a version.
        self._graphs: OrderedDict[tuple[int, str], CausalGraph] = OrderedDict()
        self._causations: OrderedDict[tuple[int, str, tuple[str, ...]], Causation] = OrderedDict()

    def require_graph(self) -> tuple[GraphReader, RemoteCalls]:
        """The store of the graph; an error where there is none."""
        if self._calls is None or not isinstance(self._store, GraphReader):
            raise InvalidRequest(
                "the kit is over a causal graph, and this server has none",
                {"field": "kit", "next": "ask a server that was started with `cmbs serve --tee`"},
            )
        return self._store, self._calls

    def choose_hypotheses(
        self, kit: GraphKit, version: str, offered: frozenset[str], symptoms: Sequence[str]
    ) -> GraphHypotheses:
        """The nodes that a session is declared over, of those that the store offers: of the kinds of the kit, and able
        to have caused a symptom.
        """
        nodes = [each for each in self._list_hypotheses(kit, version, symptoms) if each.hypothesis_id in offered]
        if not nodes:
            raise InvalidRequest(
                f"no node of the graph of the kinds {', '.join(sorted(kit.hypotheses))} can have caused these symptoms",
                {"field": "symptoms", "next": "name the nodes where something shows; `explain` lists their causes"},
            )
        return GraphHypotheses(
            frozenset(each.hypothesis_id for each in nodes),
            {each.hypothesis_id: _describe(each) for each in nodes},
        )

    def expand(self, session: Session, kit: GraphKit, probe_id: str) -> tuple[KitProbe, dict[str, Any]]:
        """The probe of one component with what each outcome rules out in a session, and what an event says of it."""
        named = kit.find_probe(probe_id)
        if named is None:
            raise UnknownProbe(probe_id)
        probe, component = named
        causation = self.find_causation(session, kit)
        _check_component(causation, probe, component)
        blocked = causation.find_blocked(component).intersection(session.universe.ids)
        return probe.expand(component, blocked), describe_reading(session, kit, component)

    def find_causation(self, session: Session, kit: GraphKit) -> Causation:
        """What can have caused the symptoms of a session; StoreDisagrees where the graph is not the one it is over."""
        if self._agreement is not None:
            self._agreement.require_agreement(session)
        version = session.ontology.causal_graph_version
        causation = self._find_causation(version, session.symptoms)
        found = {each.hypothesis_id for each in self._list_hypotheses(kit, version, session.symptoms)}
        if not found.issuperset(session.universe.ids):
            raise StoreDisagrees(
                f"the causal graph at version `{version}` is not the one that session `{session.session_id}` is over:"
                " it lacks causes that were declared",
                {"session_id": session.session_id, "causal_graph_version": version},
            )
        return causation

    def _list_hypotheses(self, kit: GraphKit, version: str, symptoms: Sequence[str]) -> list[GraphNode]:
        causes = self._find_causation(version, tuple(symptoms)).list_causes()
        return [each for each in causes if each.type in kit.hypotheses]

    def _find_causation(self, version: str, symptoms: tuple[str, ...]) -> Causation:
        losses = self._store.losses() if isinstance(self._store, ConnectedStore) else 0
        key = (losses, version, symptoms)
        with self._lock:
            known = self._causations.get(key)
            if known is not None:
                self._causations.move_to_end(key)
                return known
        graph = self._find_graph(losses, version)
        _check_symptoms(graph, symptoms)
        found = Causation(graph, symptoms)
        with self._lock:
            self._causations[key] = found
            while len(self._causations) > _MAX_CAUSATIONS:
                self._causations.popitem(last=False)
        return found

    def _find_graph(self, losses: int, version: str) -> CausalGraph:
        store, calls = self.require_graph()
        with self._lock:
            known = self._graphs.get((losses, version))
        if known is not None:
            return known
        graph = CausalGraph(calls.ask(lambda: store.read_graph(version)))
        with self._lock:
            self._graphs[losses, version] = graph
            while len(self._graphs) > _MAX_GRAPHS:
                self._graphs.popitem(last=False)
        return graph


def ontology_of_graph(kit: GraphKit) -> OntologyBundle:
    """The bundle to declare a session over a kit of a causal graph with, at the version that the graph has."""
    return OntologyBundle(kit.kit_id, kit.version, "tee", "")


def _describe(node: GraphNode) -> dict[str, Any]:
    said = {"component": node.hypothesis_id, "kind": node.type}
    return said | {"label": node.label} if node.label else said


def _check_symptoms(graph: CausalGraph, symptoms: Sequence[str]) -> None:
    unknown = [each for each in symptoms if each not in graph.nodes]
    if unknown:
        nearest = find_nearest(unknown[0], sorted(graph.nodes))
        raise InvalidRequest(
            f"the causal graph has no node `{unknown[0]}`" + ("" if nearest is None else f"; is it `{nearest}`?"),
            {"field": "symptoms", "found": unknown[0], "next": "name nodes of the graph"},
        )


def _check_component(causation: Causation, probe: GraphProbe, component: str) -> None:
    node = causation.graph.nodes.get(component)
    details: dict[str, Any] = {"field": "probe_id", "found": probe.name(component)}
    if node is None:
        nearest = find_nearest(component, sorted(causation.graph.nodes))
        meant = "" if nearest is None else f"; is it `{nearest}`?"
        raise InvalidRequest(f"the graph of the session has no component `{component}`{meant}", details)
    if component in causation.symptoms:
        raise InvalidRequest(
            f"`{component}` is a symptom of the session: it shows that something is wrong, and cannot be healthy",
            {**details, "next": "ask about what can have caused it"},
        )
    if node.type not in probe.components:
        raise InvalidRequest(
            f"probe `{probe.probe_id}` is not asked of `{component}`, which is a {node.type}",
            {**details, "accepted": sorted(probe.components)},
        )
