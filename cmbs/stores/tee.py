"""Tombstones in Tee: every session is an incident of the same id, its hypotheses are in the shared causal graph.

Tee knows the graph as of an incident's anchor, not which part of it a session was declared over. That is kept in a
second incident, `cmbs:universe:<session_id>`, by calls that every Tee has. Its tombstones say what the universe is: one
of the marks below, written last, and with `listed` all ids of the universe. With the other marks, the universe is what
the second incident sees: nothing more is written for a session over the whole graph, however large that is.

A Tee without anchors serves as well: universes are then always listed, and so stay as they are while the graph grows.

`create_session` for one session id must not run twice at once with different universes. Under a belief server it does
not: its log has one intent for a session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import NamedTuple

from cmbs.errors import Conflict, InvalidHypothesisId, InvalidRequest, SessionNotFound
from cmbs.spi import AnchoredUniverse, EliminationProvenance, EliminationResult, RecoveredState
from cmbs.stores._tee_calls import Calls
from cmbs.stores._tee_ids import hypothesis_of, parse_hypothesis
from cmbs.tee import EdgeKey
from cmbs.tee.batches import batches
from cmbs.tee.client import collect
from cmbs.tee.kernel.wire import edge_entry, edge_key_of
from cmbs.tee.proto import tee_pb2 as pb

_RESERVED = "cmbs:universe:"
_NOTHING: frozenset[str] = frozenset()
# Of one request: below the 4 MiB that a gRPC server takes by default.
_MAX_REQUEST_IDS = 10_000
_MAX_REQUEST_BYTES = 2 << 20
_MAX_CACHED_IDS = 1_000_000
_MAX_CACHED_SESSIONS = 10_000
_MAX_CACHED_GRAPHS = 4
# Tee insists on provenance; a belief server does not.
_UNKNOWN = "unknown"
_OURS = EliminationProvenance("cmbs", "universe")


class _Mark(StrEnum):
    """How a universe is kept."""

    LISTED = f"{_RESERVED}listed"
    NODES = f"{_RESERVED}nodes"
    GRAPH = f"{_RESERVED}graph"


class _StoredUniverse(NamedTuple):
    """A universe as Tee keeps it; `mark` is None while it is not complete, `ids` are of a listed one."""

    mark: _Mark | None
    ids: frozenset[str]


class _Outcome:
    """The hypotheses that Tee has applied or had already, over several requests; all others are unmatched."""

    def __init__(self) -> None:
        self.applied: set[str] = set()
        self.already: set[str] = set()

    def add(self, applied: Iterable[str], already: Iterable[str]) -> None:
        self.applied.update(applied)
        self.already.update(already)


class TeeStore:
    """An `EliminationStore` and `UniverseSource` over a gRPC channel; from several threads at once.

    `endpoint` is `host:port`. `authorities` (certificates in PEM) asks for TLS. `timeout_seconds` bounds every call,
    repeats included. With `edges`, a universe without a list has the edges of the graph too, not only its nodes.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: str | None = None,
        authorities: bytes | None = None,
        timeout_seconds: float = 10.0,
        edges: bool = False,
    ) -> None:
        self._calls = Calls(endpoint, token=token, authorities=authorities, timeout_seconds=timeout_seconds)
        self._tee = self._calls.stub
        self._whole = _Mark.GRAPH if edges else _Mark.NODES
        self._lock = Lock()
        self._universes: OrderedDict[str, _StoredUniverse] = OrderedDict()
        self._cached_ids = 0
        # The whole graph by version, as `anchor` answered it: a session over all of it needs no list.
        self._graphs: OrderedDict[int, frozenset[str]] = OrderedDict()
        self._names_edges_as_we_do = False

    # --- the SPI ---

    def anchor(self, session_id: str, expected_version: str = "") -> AnchoredUniverse:
        """The universe of a session: as it was created with, or else the graph as of now, for good."""
        if self._is_new(_validate_session_id(session_id)):
            # What will be refused anyway must not pin the session to a graph that it cannot be declared from.
            now = self._version()
            if now is not None and (now == "0" or expected_version not in ("", now)):
                return AnchoredUniverse(_NOTHING, now)
        incident = self._create_incident(session_id)
        version = incident.causal_graph_version if incident.HasField("causal_graph_version") else None
        stored = self._read_universe(session_id)
        if stored is not None and stored.mark is not None:
            ids = self._universe(session_id, stored)
        else:
            ids = self._view(session_id, session_id, self._whole)
            if version is not None and (incident.created or not self._tombstones(session_id, session_id)):
                with self._lock:
                    self._graphs[version] = ids
                    while len(self._graphs) > _MAX_CACHED_GRAPHS:
                        self._graphs.popitem(last=False)
        return AnchoredUniverse(ids, None if version is None else str(version))

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """Create the incident, then keep the universe. `InvalidHypothesisId` names what is not in the graph."""
        universe = frozenset(hypothesis_ids)
        first = self._create_incident(_validate_session_id(session_id))
        second = self._create_incident(_RESERVED + session_id)
        stored = None if second.created else self._read_universe(session_id)
        if stored is not None and stored.mark is not None:
            if self._universe(session_id, stored) != universe:
                raise Conflict(f"session `{session_id}` was created with another universe", {"session_id": session_id})
        else:
            begun = _NOTHING if stored is None else stored.ids
            if not begun <= universe:
                raise Conflict(f"another universe was begun for session `{session_id}`", {"session_id": session_id})
            version = second.causal_graph_version
            with self._lock:
                is_whole = self._graphs.get(version) == universe and not begun
            if first.causal_graph_version != version:
                self._refuse_unborn(session_id, universe)
                is_whole = False
            stored = _StoredUniverse(self._whole, _NOTHING) if is_whole else self._write_list(session_id, universe)
            mark = str(stored.mark)
            self._merge_nodes(session_id, _RESERVED + session_id, {mark: mark}, _OURS, _Outcome())
        self._cache(session_id, stored)

    def eliminate(
        self, session_id: str, eliminated: AbstractSet[str], provenance: EliminationProvenance
    ) -> EliminationResult:
        """Merge tombstones; ids outside the universe are not sent, and nothing is sent for nothing."""
        if not eliminated:
            return EliminationResult(_NOTHING, _NOTHING)
        stored = self._find_universe(session_id)
        nodes, edges = _split_by_kind(eliminated & stored.ids if stored.mark is _Mark.LISTED else eliminated)
        outcome = _Outcome()
        self._merge_nodes(session_id, session_id, nodes, provenance, outcome)
        if stored.mark is not _Mark.NODES:
            self._merge_edges(session_id, session_id, edges, provenance, outcome)
        return EliminationResult(frozenset(outcome.applied), frozenset(outcome.already))

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
        universe = self._universe(session_id, self._find_universe(session_id))
        eliminated = self._tombstones(session_id, session_id) & universe
        return RecoveredState(universe, eliminated, universe - eliminated)

    def close(self) -> None:
        """Let go of the channel."""
        self._calls.close()

    # --- universes ---

    def _find_universe(self, session_id: str) -> _StoredUniverse:
        """How the universe of a session is kept; SessionNotFound where it was never created, or not to the end."""
        with self._lock:
            cached = self._universes.get(session_id)
            if cached is not None:
                self._universes.move_to_end(session_id)
                return cached
        stored = self._read_universe(_validate_session_id(session_id))
        if stored is None or stored.mark is None:
            raise SessionNotFound(session_id)
        self._cache(session_id, stored)
        return stored

    def _read_universe(self, session_id: str) -> _StoredUniverse | None:
        try:
            ids = self._tombstones(session_id, _RESERVED + session_id)
        except SessionNotFound:
            return None
        return _StoredUniverse(next((mark for mark in _Mark if mark in ids), None), ids - set(_Mark))

    def _universe(self, session_id: str, stored: _StoredUniverse) -> frozenset[str]:
        if stored.mark is None or stored.mark is _Mark.LISTED:
            return stored.ids
        return self._view(session_id, _RESERVED + session_id, stored.mark)

    def _write_list(self, session_id: str, universe: frozenset[str]) -> _StoredUniverse:
        nodes, edges = _split_by_kind(universe)
        outcome = _Outcome()
        self._merge_nodes(session_id, _RESERVED + session_id, nodes, _OURS, outcome)
        self._merge_edges(session_id, _RESERVED + session_id, edges, _OURS, outcome)
        unknown = universe - outcome.applied - outcome.already
        if unknown:
            raise InvalidHypothesisId(sorted(unknown))
        return _StoredUniverse(_Mark.LISTED, universe)

    def _refuse_unborn(self, session_id: str, universe: frozenset[str]) -> None:
        """Refuse what is not in the graph as of the session's own incident, which may be older than its second one.

        To that incident it would never be there: what the session rules out, Tee would not.
        """
        mark = _Mark.GRAPH if _split_by_kind(universe)[1] else _Mark.NODES
        there = self._view(session_id, session_id, mark) | self._tombstones(session_id, session_id)
        if not universe <= there:
            raise InvalidHypothesisId(sorted(universe - there))

    def _cache(self, session_id: str, stored: _StoredUniverse) -> None:
        with self._lock:
            if session_id in self._universes:
                return
            self._universes[session_id] = stored
            self._cached_ids += len(stored.ids)
            while len(self._universes) > _MAX_CACHED_SESSIONS or (
                self._cached_ids > _MAX_CACHED_IDS and len(self._universes) > 1
            ):
                _, evicted = self._universes.popitem(last=False)
                self._cached_ids -= len(evicted.ids)

    # --- calls ---

    def _create_incident(self, incident_id: str) -> pb.CreateIncidentResult:
        request = pb.CreateIncidentRequest(incident_id=incident_id)
        created: pb.CreateIncidentResult = self._calls.ask(partial(self._tee.CreateIncident, request), incident_id)
        return created

    def _is_new(self, incident_id: str) -> bool:
        request = pb.IncidentContextRequest(incident_id=incident_id, without_tombstones=True)
        try:
            self._calls.ask(partial(self._tee.GetIncidentContext, request), incident_id)
        except SessionNotFound:
            return True
        return False

    def _version(self) -> str | None:
        """The present version of the graph, from the answer to an empty merge; None for a Tee without versions."""
        try:
            merged = self._calls.ask(partial(self._tee.MergeHypothesis, pb.HypothesisDelta()), "")
        except InvalidRequest:  # a Tee that will not merge nothing
            return None
        return str(merged.causal_graph_version) if merged.HasField("causal_graph_version") else None

    def _view(self, session_id: str, incident_id: str, mark: _Mark) -> frozenset[str]:
        """What an incident sees, as hypotheses."""
        request = pb.LiveViewRequest(incident_id=incident_id, nodes_only=mark is _Mark.NODES)
        call = partial(collect, self._tee.StreamLiveView, self._tee.GetLiveView, request)
        graph = self._calls.ask(call, session_id)
        nodes = (hypothesis_of(node.id) for node in graph.nodes if not node.id.startswith(_RESERVED))
        # A Tee that does not know `nodes_only` sends the edges all the same.
        edges = () if mark is _Mark.NODES else (hypothesis_of(edge_key_of(edge)) for edge in graph.edges)
        return frozenset(nodes).union(edges)

    def _tombstones(self, session_id: str, incident_id: str) -> frozenset[str]:
        """All tombstones of an incident, as hypotheses."""
        request = pb.TombstoneRequest(incident_id=incident_id)
        call = partial(collect, self._tee.StreamTombstones, self._tee.GetTombstones, request)
        found = self._calls.ask(call, session_id)
        return frozenset(map(hypothesis_of, found.node_ids)).union(
            hypothesis_of(edge_key_of(entry)) for entry in found.edge_entries
        )

    def _merge_nodes(
        self, session_id: str, incident_id: str, nodes: dict[str, str], why: EliminationProvenance, outcome: _Outcome
    ) -> None:
        """Tombstone nodes, given as hypotheses by node id."""
        for ids in _requests(nodes):
            request = pb.NodeTombstoneRequest(incident_id=incident_id, node_ids=ids, provenance=_message(why))
            result = self._calls.ask(partial(self._tee.MergeNodeTombstones, request), session_id)
            applied, already = result.applied_ids, result.already_tombstoned_ids
            outcome.add([nodes[each] for each in applied], [nodes[each] for each in already])

    def _merge_edges(
        self,
        session_id: str,
        incident_id: str,
        edges: dict[str, EdgeKey],
        why: EliminationProvenance,
        outcome: _Outcome,
    ) -> None:
        """Tombstone edges, given by hypothesis."""
        for ids in self._edge_requests(edges):
            entries = [edge_entry(edges[each]) for each in ids]
            request = pb.EdgeTombstoneRequest(incident_id=incident_id, entries=entries, provenance=_message(why))
            result = self._calls.ask(partial(self._tee.MergeEdgeTombstones, request), session_id)
            applied, already = result.applied_ids, result.already_tombstoned_ids
            if len(ids) == 1:
                self._names_edges_as_we_do = ids[0] in {*applied, *already, *result.unmatched_ids}
                outcome.add(ids if applied else (), ids if already else ())
            else:
                outcome.add(applied, already)

    def _edge_requests(self, edges: Iterable[str]) -> Iterator[list[str]]:
        """Edges in batches. How an edge is named in an answer differs between Tees; alone, it needs no name.

        So one is sent alone, which shows the names; and all of them are where the Tee has names of its own.
        """
        rest = list(edges)
        while rest and not self._names_edges_as_we_do:
            yield [rest.pop()]
        yield from _requests(rest)


def _validate_session_id(session_id: str) -> str:
    if not session_id or session_id.startswith(_RESERVED) or not _is_text(session_id):
        raise InvalidRequest(f"`{ascii(session_id)[1:-1]}` cannot be the id of a session that is kept in Tee")
    return session_id


def _is_text(value: str) -> bool:
    """Whether the wire can carry it: a lone surrogate is no text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _message(provenance: EliminationProvenance) -> pb.Provenance:
    source, trigger = provenance.source_id or _UNKNOWN, provenance.trigger or _UNKNOWN
    if not (_is_text(source) and _is_text(trigger)):
        raise InvalidRequest("source and trigger must be text without lone surrogates")
    message = pb.Provenance(source=source, trigger=trigger)
    message.timestamp.GetCurrentTime()
    return message


def _split_by_kind(hypothesis_ids: Iterable[str]) -> tuple[dict[str, str], dict[str, EdgeKey]]:
    """Hypotheses by node id, and edges by hypothesis; without what no graph can have."""
    nodes: dict[str, str] = {}
    edges: dict[str, EdgeKey] = {}
    for hypothesis_id in hypothesis_ids:
        if not _is_text(hypothesis_id):
            continue
        thing = parse_hypothesis(hypothesis_id)
        if isinstance(thing, EdgeKey):
            edges[hypothesis_id] = thing
        elif thing and not thing.startswith(_RESERVED):
            nodes[thing] = hypothesis_id
    return nodes, edges


def _requests(ids: Iterable[str]) -> Iterator[list[str]]:
    """The ids in batches that fit a request, with room for an edge's own fields."""
    return batches(ids, lambda each: len(each.encode()) + 10, max_bytes=_MAX_REQUEST_BYTES, max_items=_MAX_REQUEST_IDS)
