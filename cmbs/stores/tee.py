"""Tombstones in Tee: every session is an incident of the same id, its hypotheses are in the shared causal graph.

A session is declared in two steps. `anchor` reads which hypotheses the graph has at its present version, and writes
nothing. `create_session` creates the incident, anchored at that version, together with its universe: all nodes, all
nodes and edges, or a list. What is merged between the two steps is born later, and changes nothing for the session.

A Tee without universes of its own serves as well: see `cmbs.stores._tee_marked`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from threading import Lock
from typing import NamedTuple

from cmbs.errors import Conflict, InvalidHypothesisId, InvalidRequest, SessionNotFound
from cmbs.spi import AnchoredUniverse, EliminationProvenance, EliminationResult, RecoveredState, StoreIdentity
from cmbs.spi.graph_search import DEFAULT_BOUNDS, GraphPage, SearchBounds, SearchPage, WholeGraph
from cmbs.stores._tee_calls import Calls
from cmbs.stores._tee_incidents import RESERVED, Incidents, MergeOutcome, split_by_kind
from cmbs.stores._tee_marked import anchor_marked, create_marked, read_marked
from cmbs.stores._tee_search import (
    encode_bounds,
    encode_page,
    graph_page_of,
    node_id_of,
    page_of,
    result_of,
    whole_graph_of,
)
from cmbs.tee.access import is_text
from cmbs.tee.kernel.store import UniverseKind
from cmbs.tee.kernel.wire import edge_entry
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.tokens import Token

_NOTHING: frozenset[str] = frozenset()
_MAX_CACHED_IDS = 1_000_000
_MAX_CACHED_SESSIONS = 10_000
_MAX_CACHED_GRAPHS = 4


class _Kept(NamedTuple):
    """How the universe of a session is kept. `ids` are those of a listed one; `anchor` is that of the others."""

    kind: UniverseKind
    ids: frozenset[str] = _NOTHING
    anchor: int = 0


class TeeStore:
    """An `EliminationStore` and `UniverseSource` over a gRPC channel; from several threads at once.

    `endpoint` is `host:port`. `authorities` (certificates in PEM) asks for TLS; `certificate` is our own chain and its
    key, for a Tee that asks for one. `timeout_seconds` bounds every call, repeats included.
    With `edges`, a universe without a list has the edges of the graph too, not only its nodes.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: Token | None = None,
        authorities: bytes | None = None,
        certificate: tuple[bytes, bytes] | None = None,
        timeout_seconds: float = 10.0,
        edges: bool = False,
    ) -> None:
        self._calls = Calls(
            endpoint,
            token=token,
            authorities=authorities,
            certificate=certificate,
            timeout_seconds=timeout_seconds,
        )
        self._tee = self._calls.stub
        self._incidents = Incidents(self._calls)
        self._edges = edges
        self._lock = Lock()
        self._universes: OrderedDict[str, _Kept] = OrderedDict()
        self._cached_ids = 0
        # The whole graph by version, as `anchor` answered it: what `create_session` compares a universe with.
        # By the losses of the connection too: a Tee that was restored meanwhile may have another graph at a version.
        self._graphs: OrderedDict[tuple[int, int], frozenset[str]] = OrderedDict()

    # --- the SPI ---

    def anchor(self, session_id: str, expected_version: str = "") -> AnchoredUniverse:
        """The universe of a session: as it was created with, or else the graph as it is now. Writes nothing."""
        losses = self._calls.losses
        known = self._incidents.find(_validate_session_id(session_id))
        if known is not None and known.HasField("universe"):
            return AnchoredUniverse(self._universe(session_id), str(known.causal_graph_version))
        found = None if known is not None else self._incidents.graph_at(session_id, None, edges=self._edges)
        if found is None:
            return anchor_marked(self._incidents, session_id, expected_version, edges=self._edges)
        version = str(found.version)
        if found.version == 0 or expected_version not in ("", version):
            return AnchoredUniverse(_NOTHING, version)
        self._cache_graph(found.version, losses, found.ids)
        return AnchoredUniverse(found.ids, version, found.attributes)

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """Create the incident with its universe. `InvalidHypothesisId` names what is not in the graph."""
        self.create_session_at(session_id, hypothesis_ids, "")

    def create_session_at(self, session_id: str, hypothesis_ids: frozenset[str], version: str) -> None:
        """As `create_session`. A universe that is all of the graph at this version is anchored there, not listed."""
        universe = frozenset(hypothesis_ids)
        nodes, edges = split_by_kind(universe)
        if universe.difference(nodes.values(), edges):
            # What no graph can have cannot even be asked for.
            self._refuse_unknown(_validate_session_id(session_id), universe, None)
        self._create(self._request(_validate_session_id(session_id), universe, version), universe)

    def create_anchored(self, session_id: str, hypothesis_ids: frozenset[str], version: str) -> None:
        """Create the incident at this version, with some of the nodes that the graph has there."""
        universe = frozenset(hypothesis_ids)
        request = self._request(_validate_session_id(session_id), universe, version)
        request.causal_graph_version = _read_version(version)
        self._create(request, universe)

    def read_graph(self, version: str) -> WholeGraph:
        """All nodes and edges as of a version."""
        found = self._incidents.whole_graph(_read_version(version))
        if found is None:
            raise InvalidRequest(
                "this Tee cannot tell its graph as of a version", {"next": "use a Tee of this release, or a later one"}
            )
        return whole_graph_of(found)

    def _create(self, request: pb.CreateIncidentRequest, universe: frozenset[str]) -> None:
        session_id = request.incident_id
        result = self._incidents.create(request)
        if result.unknown_ids:
            self._refuse_unknown(session_id, universe, result.causal_graph_version)
        if not result.HasField("universe"):
            create_marked(self._incidents, session_id, universe, result)
            self._cache(session_id, _Kept(UniverseKind.LISTED, universe))
        elif not result.created and self._universe(session_id) != universe:
            raise Conflict(f"session `{session_id}` was created with another universe", {"session_id": session_id})

    def _refuse_unknown(self, session_id: str, universe: frozenset[str], version: int | None) -> None:
        """Raise InvalidHypothesisId with everything that the graph does not have at a version."""
        found = self._incidents.graph_at(session_id, version, edges=True)
        if found is not None:
            raise InvalidHypothesisId(sorted(universe - found.ids))

    def eliminate(
        self, session_id: str, eliminated: AbstractSet[str], provenance: EliminationProvenance
    ) -> EliminationResult:
        """Merge tombstones; ids outside the universe are not sent, and nothing is sent for nothing."""
        if not eliminated:
            return EliminationResult(_NOTHING, _NOTHING)
        kept = self._find_universe(session_id)
        nodes, edges = split_by_kind(eliminated & kept.ids if kept.kind is UniverseKind.LISTED else eliminated)
        outcome = MergeOutcome()
        self._incidents.merge_nodes(session_id, session_id, nodes, provenance, outcome)
        if kept.kind is not UniverseKind.NODES:
            self._incidents.merge_edges(session_id, session_id, edges, provenance, outcome)
        return EliminationResult(frozenset(outcome.applied), frozenset(outcome.already), outcome.total)

    def get_survivors(self, session_id: str) -> frozenset[str]:
        """The universe less the tombstones."""
        return self.recover(session_id).survivors

    def get_eliminated(self, session_id: str) -> frozenset[str]:
        """The tombstones within the universe."""
        return self.recover(session_id).eliminated

    def recover(self, session_id: str) -> RecoveredState:
        """Universe, tombstones and survivors.

        An edge survives the tombstones of its ends: to a session, hypotheses are independent of each other.
        """
        # Not from the cache: what is asked for is what Tee has now, which may be another Tee, or an older copy.
        self._forget_universe(session_id)
        universe = self._universe(session_id)
        eliminated = self._incidents.tombstones(session_id, session_id) & universe
        return RecoveredState(universe, eliminated, universe - eliminated)

    def identity(self) -> StoreIdentity | None:
        """Which Tee this is; None of one that has no identity."""
        found = self._incidents.identity()
        return None if found is None else StoreIdentity(found.tee_id, frozenset(found.stands_in_for))

    def find_lacking(self, hypothesis_ids: frozenset[str]) -> frozenset[str]:
        """Those of the hypotheses that the graph does not have now."""
        found = self._incidents.graph_at("", None, edges=bool(split_by_kind(hypothesis_ids)[1]))
        return _NOTHING if found is None else hypothesis_ids - found[0]

    def losses(self) -> int:
        """How often the connection was lost so far."""
        return self._calls.losses

    def stand_in_for(self, store_ids: Iterable[str]) -> None:
        """Have the Tee take the place of others that were lost: their sessions are taken to be here."""
        self._incidents.stand_in_for(sorted(store_ids))

    def group_eliminated(self, session_id: str) -> Mapping[EliminationProvenance, frozenset[str]]:
        """The tombstones of a session by provenance; a Tee that does not tell has them all from nowhere."""
        groups = self._incidents.tombstone_groups(_validate_session_id(session_id))
        if groups is None:
            return {EliminationProvenance("", ""): self._incidents.tombstones(session_id, session_id)}
        return groups

    def explain(self, session_id: str, symptoms: Sequence[str], bounds: SearchBounds = DEFAULT_BOUNDS) -> SearchPage:
        """The nodes that can cause at least one symptom."""
        request = pb.ExplainRequest(
            incident_id=_validate_session_id(session_id), symptoms=map(node_id_of, symptoms), **encode_bounds(bounds)
        )
        found = self._calls.ask(partial(self._tee.Explain, request), session_id)
        return page_of((result_of(each.node, each.paths) for each in found.explanations), found)

    def impact(self, session_id: str, node_id: str, bounds: SearchBounds = DEFAULT_BOUNDS) -> SearchPage:
        """What a node can affect."""
        request = pb.ImpactRequest(
            incident_id=_validate_session_id(session_id), node_id=node_id_of(node_id), **encode_bounds(bounds)
        )
        found = self._calls.ask(partial(self._tee.Impact, request), session_id)
        return page_of((result_of(each.node, [each.path]) for each in found.reached), found)

    def list_graph(self, session_id: str, bounds: SearchBounds = DEFAULT_BOUNDS) -> GraphPage:
        """A page of the graph that a session is anchored in."""
        request = pb.ListGraphRequest(incident_id=_validate_session_id(session_id), **encode_page(bounds))
        return graph_page_of(self._calls.ask(partial(self._tee.ListGraph, request), session_id))

    def close(self) -> None:
        """Let go of the channel."""
        self._calls.close()

    # --- universes ---

    def _request(self, session_id: str, universe: frozenset[str], version: str) -> pb.CreateIncidentRequest:
        """A whole graph is named by its version, anything else by a list."""
        request = pb.CreateIncidentRequest(incident_id=session_id)
        anchor = int(version) if version.isascii() and version.isdecimal() else None
        if anchor is not None and self._whole_graph(session_id, anchor) == universe:
            request.causal_graph_version = anchor
            kind = UniverseKind.GRAPH if self._edges else UniverseKind.NODES
            request.universe.kind = int(kind)  # type: ignore[assignment]  # the numbers are the same
            return request
        nodes, edges = split_by_kind(universe)
        request.universe.kind = int(UniverseKind.LISTED)  # type: ignore[assignment]
        request.universe.node_ids.extend(sorted(nodes))
        request.universe.edge_entries.extend(edge_entry(edges[each]) for each in sorted(edges))
        return request

    def _whole_graph(self, session_id: str, version: int) -> frozenset[str] | None:
        """All hypotheses of a version: from the cache, which only a process that was restarted lacks."""
        with self._lock:
            cached = self._graphs.get((version, self._calls.losses))
        if cached is not None:
            return cached
        try:
            found = self._incidents.graph_at(session_id, version, edges=self._edges)
        except InvalidRequest:  # the graph has no such version
            return None
        return None if found is None else found.ids

    def _cache_graph(self, version: int, losses: int, ids: frozenset[str]) -> None:
        with self._lock:
            self._graphs[version, losses] = ids
            while len(self._graphs) > _MAX_CACHED_GRAPHS:
                self._graphs.popitem(last=False)

    def _universe(self, session_id: str) -> frozenset[str]:
        kept = self._find_universe(session_id)
        if kept.kind is UniverseKind.LISTED:
            return kept.ids
        edges = kept.kind is UniverseKind.GRAPH
        found = self._incidents.graph_at(session_id, kept.anchor, edges=edges)
        if found is None:  # pragma: no cover - a Tee that keeps such universes knows the call
            raise SessionNotFound(session_id)
        return found.ids

    def _find_universe(self, session_id: str) -> _Kept:
        """How the universe of a session is kept; SessionNotFound where it was never created, or not to the end."""
        with self._lock:
            cached = self._universes.get(session_id)
            if cached is not None:
                self._universes.move_to_end(session_id)
                return cached
        kept = self._read_universe(_validate_session_id(session_id))
        self._cache(session_id, kept)
        return kept

    def _forget_universe(self, session_id: str) -> None:
        with self._lock:
            gone = self._universes.pop(session_id, None)
            self._cached_ids -= 0 if gone is None else len(gone.ids)

    def _read_universe(self, session_id: str) -> _Kept:
        incident = self._incidents.find(session_id)
        if incident is None:
            raise SessionNotFound(session_id)
        if not incident.HasField("universe"):
            marked = read_marked(self._incidents, session_id)
            if marked is None or not marked.is_complete:
                raise SessionNotFound(session_id)
            return _Kept(UniverseKind.LISTED, marked.ids)
        kind = UniverseKind(incident.universe)
        ids = self._incidents.universe(session_id) if kind is UniverseKind.LISTED else _NOTHING
        return _Kept(kind, ids, incident.causal_graph_version)

    def _cache(self, session_id: str, kept: _Kept) -> None:
        with self._lock:
            if session_id in self._universes:
                return
            self._universes[session_id] = kept
            self._cached_ids += len(kept.ids)
            while len(self._universes) > _MAX_CACHED_SESSIONS or (
                self._cached_ids > _MAX_CACHED_IDS and len(self._universes) > 1
            ):
                _, evicted = self._universes.popitem(last=False)
                self._cached_ids -= len(evicted.ids)


def _read_version(version: str) -> int:
    if not (version.isascii() and version.isdecimal()):
        raise InvalidRequest(f"`{version}` is no version of a causal graph")
    return int(version)


def _validate_session_id(session_id: str) -> str:
    if not session_id or session_id.startswith(RESERVED) or not is_text(session_id):
        raise InvalidRequest(f"`{ascii(session_id)[1:-1]}` cannot be the id of a session that is kept in Tee")
    return session_id
