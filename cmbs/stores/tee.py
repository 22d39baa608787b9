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
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from threading import Lock
from typing import NamedTuple

from cmbs.errors import Conflict, InvalidHypothesisId, InvalidRequest, SessionNotFound
from cmbs.spi import AnchoredUniverse, EliminationProvenance, EliminationResult, RecoveredState
from cmbs.stores._tee_calls import Calls
from cmbs.stores._tee_ids import hypothesis_of, named_by
from cmbs.tee import EdgeKey
from cmbs.tee.client import collected
from cmbs.tee.kernel.wire import edge_entry, edge_key_of
from cmbs.tee.proto import tee_pb2 as pb

_RESERVED = "cmbs:universe:"
_NOTHING: frozenset[str] = frozenset()
# What one request carries: below the 4 MiB that a gRPC server takes by default.
_REQUEST_IDS = 10_000
_REQUEST_BYTES = 2 << 20
_REMEMBERED_IDS = 1_000_000
_REMEMBERED_SESSIONS = 10_000
_REMEMBERED_VERSIONS = 4
_REMEMBERED_OFFERS = 1000
# Tee insists on provenance; a belief server does not.
_UNKNOWN = "unknown"
_OURS = EliminationProvenance("cmbs", "universe")


class _Mark(StrEnum):
    """How a universe is kept."""

    LISTED = f"{_RESERVED}listed"
    NODES = f"{_RESERVED}nodes"
    GRAPH = f"{_RESERVED}graph"


class _Kept(NamedTuple):
    """A universe as Tee keeps it; `mark` is None while it is not complete, `ids` are of a listed one."""

    mark: _Mark | None
    ids: frozenset[str]


class _Told:
    """What Tee made of ids, request by request. What it made neither of is unmatched."""

    __slots__ = ("already", "applied")

    def __init__(self) -> None:
        self.applied: set[str] = set()
        self.already: set[str] = set()

    def note(self, applied: Iterable[str], already: Iterable[str]) -> None:
        self.applied.update(applied)
        self.already.update(already)


class TeeStore:
    """An `EliminationStore` and `UniverseSource` over a gRPC channel; from several threads at once.

    `endpoint` is `host:port`. `authorities` (certificates in PEM) asks for TLS. `timeout_seconds` bounds every call,
    repeats included. With `edges`, a universe that nobody lists has the edges of the graph too, not only its nodes.
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
        self._remembered: OrderedDict[str, _Kept] = OrderedDict()
        self._remembered_ids = 0
        # What sessions that are being declared were told is the whole graph, so that it is known as such without being
        # read again; and the graphs that were seen last, by version, so that they share one copy.
        self._offered: OrderedDict[str, tuple[int, frozenset[str]]] = OrderedDict()
        self._seen: OrderedDict[int, frozenset[str]] = OrderedDict()
        self._names_edges_as_we_do = False

    # --- the SPI ---

    def anchor(self, session_id: str, expected_version: str = "") -> AnchoredUniverse:
        """The universe of a session: as it was created with, or else the graph as of now, for good."""
        if self._is_new(_checked(session_id)):
            # What will be refused anyway must not pin the session to a graph that it cannot be declared from.
            now = self._version()
            if now is not None and (now == "0" or expected_version not in ("", now)):
                return AnchoredUniverse(_NOTHING, now)
        incident = self._create_incident(session_id)
        version = incident.causal_graph_version if incident.HasField("causal_graph_version") else None
        kept = self._kept(session_id)
        if kept is not None and kept.mark is not None:
            ids = self._universe(session_id, kept)
        else:
            ids = self._view(session_id, session_id, self._whole)
            if version is not None and (incident.created or not self._tombstones(session_id, session_id)):
                self._offer(session_id, version, ids)
        return AnchoredUniverse(ids, None if version is None else str(version))

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """Create the incident, then keep the universe. `InvalidHypothesisId` names what is not in the graph."""
        universe = frozenset(hypothesis_ids)
        first = self._create_incident(_checked(session_id))
        second = self._create_incident(_RESERVED + session_id)
        kept = None if second.created else self._kept(session_id)
        if kept is not None and kept.mark is not None:
            if self._universe(session_id, kept) != universe:
                raise Conflict(f"session `{session_id}` was created with another universe", {"session_id": session_id})
        else:
            if kept is not None and not kept.ids <= universe:
                raise Conflict(f"another universe was begun for session `{session_id}`", {"session_id": session_id})
            if first.causal_graph_version != second.causal_graph_version:
                self._refuse_unborn(session_id, universe)
            if self._was_offered(session_id, universe, first, second):
                kept = _Kept(self._whole, _NOTHING)
            else:
                kept = self._listed(session_id, universe)
            mark = str(kept.mark)
            self._merge_nodes(session_id, _RESERVED + session_id, {mark: mark}, _OURS, _Told())
        self._remember(session_id, kept)

    def eliminate(
        self, session_id: str, eliminated: AbstractSet[str], provenance: EliminationProvenance
    ) -> EliminationResult:
        """Merge tombstones; ids outside the universe are not sent, and nothing is sent for nothing."""
        if not eliminated:
            return EliminationResult(_NOTHING, _NOTHING)
        kept = self._complete(session_id)
        asked = eliminated & kept.ids if kept.mark is _Mark.LISTED else eliminated
        nodes, edges = _sorted_out(asked)
        told = _Told()
        self._merge_nodes(session_id, session_id, nodes, provenance, told)
        if kept.mark is not _Mark.NODES:
            self._merge_edges(session_id, session_id, edges, provenance, told)
        return EliminationResult(frozenset(told.applied), frozenset(told.already))

    def get_survivors(self, session_id: str) -> frozenset[str]:
        """The universe less the tombstones."""
        return self.recover(session_id).survivors

    def get_eliminated(self, session_id: str) -> frozenset[str]:
        """The tombstones within the universe."""
        return self.recover(session_id).eliminated

    def recover(self, session_id: str) -> RecoveredState:
        """Universe, tombstones and survivors.

        An edge survives the tombstones of its ends: to a session, all hypotheses stand for themselves.
        """
        universe = self._universe(session_id, self._complete(session_id))
        eliminated = self._tombstones(session_id, session_id) & universe
        return RecoveredState(universe, eliminated, universe - eliminated)

    def close(self) -> None:
        """Let go of the channel."""
        self._calls.close()

    # --- universes ---

    def _complete(self, session_id: str) -> _Kept:
        """How the universe of a session is kept; SessionNotFound where it was never created, or not to the end."""
        with self._lock:
            known = self._remembered.get(session_id)
            if known is not None:
                self._remembered.move_to_end(session_id)
                return known
        kept = self._kept(_checked(session_id))
        if kept is None or kept.mark is None:
            raise SessionNotFound(session_id)
        self._remember(session_id, kept)
        return kept

    def _kept(self, session_id: str) -> _Kept | None:
        try:
            ids = self._tombstones(session_id, _RESERVED + session_id)
        except SessionNotFound:
            return None
        marks = [mark for mark in _Mark if mark in ids]
        return _Kept(marks[0] if marks else None, ids - set(_Mark))

    def _universe(self, session_id: str, kept: _Kept) -> frozenset[str]:
        if kept.mark is None or kept.mark is _Mark.LISTED:
            return kept.ids
        return self._view(session_id, _RESERVED + session_id, kept.mark)

    def _listed(self, session_id: str, universe: frozenset[str]) -> _Kept:
        nodes, edges = _sorted_out(universe)
        told = _Told()
        self._merge_nodes(session_id, _RESERVED + session_id, nodes, _OURS, told)
        self._merge_edges(session_id, _RESERVED + session_id, edges, _OURS, told)
        unknown = universe - told.applied - told.already
        if unknown:
            raise InvalidHypothesisId(sorted(unknown))
        return _Kept(_Mark.LISTED, universe)

    def _refuse_unborn(self, session_id: str, universe: frozenset[str]) -> None:
        """Refuse what is not in the graph as of the session's own incident, which may be older than its second one.

        To that incident it would never be there: what the session rules out, Tee would not.
        """
        mark = _Mark.GRAPH if _sorted_out(universe)[1] else _Mark.NODES
        there = self._view(session_id, session_id, mark) | self._tombstones(session_id, session_id)
        if not universe <= there:
            raise InvalidHypothesisId(sorted(universe - there))

    def _was_offered(
        self,
        session_id: str,
        universe: frozenset[str],
        first: pb.CreateIncidentResult,
        second: pb.CreateIncidentResult,
    ) -> bool:
        """Whether the universe is the whole graph as both incidents see it."""
        with self._lock:
            version, ids = self._offered.pop(session_id, (None, _NOTHING))
        return version == first.causal_graph_version == second.causal_graph_version and ids == universe

    def _remember(self, session_id: str, kept: _Kept) -> None:
        with self._lock:
            if session_id in self._remembered:
                return
            self._remembered[session_id] = kept
            self._remembered_ids += len(kept.ids)
            while len(self._remembered) > _REMEMBERED_SESSIONS or (
                self._remembered_ids > _REMEMBERED_IDS and len(self._remembered) > 1
            ):
                _, forgotten = self._remembered.popitem(last=False)
                self._remembered_ids -= len(forgotten.ids)

    def _offer(self, session_id: str, version: int, ids: frozenset[str]) -> None:
        with self._lock:
            seen = self._seen.get(version)
            if seen is None or seen != ids:
                seen = self._seen[version] = ids
            self._seen.move_to_end(version)
            if len(self._seen) > _REMEMBERED_VERSIONS:
                self._seen.popitem(last=False)
            self._offered[session_id] = (version, seen)
            if len(self._offered) > _REMEMBERED_OFFERS:
                self._offered.popitem(last=False)

    # --- calls ---

    def _create_incident(self, incident_id: str) -> pb.CreateIncidentResult:
        request = pb.CreateIncidentRequest(incident_id=incident_id)
        created: pb.CreateIncidentResult = self._calls.ask(
            lambda timeout: self._tee.CreateIncident(request, timeout=timeout), incident_id
        )
        return created

    def _is_new(self, incident_id: str) -> bool:
        request = pb.IncidentContextRequest(incident_id=incident_id, without_tombstones=True)
        try:
            self._calls.ask(lambda timeout: self._tee.GetIncidentContext(request, timeout=timeout), incident_id)
        except SessionNotFound:
            return True
        return False

    def _version(self) -> str | None:
        """The present version of the graph, told in answer to a merge of nothing; None where nobody counts."""
        try:
            merged: pb.HypothesisMergeResult = self._calls.ask(
                lambda timeout: self._tee.MergeHypothesis(pb.HypothesisDelta(), timeout=timeout), ""
            )
        except InvalidRequest:  # a Tee that will not merge nothing
            return None
        return str(merged.causal_graph_version) if merged.HasField("causal_graph_version") else None

    def _view(self, session_id: str, incident_id: str, mark: _Mark) -> frozenset[str]:
        """What an incident sees, as hypotheses."""
        request = pb.LiveViewRequest(incident_id=incident_id, nodes_only=mark is _Mark.NODES)
        stream, whole = self._tee.StreamLiveView, self._tee.GetLiveView
        graph = self._calls.ask(lambda timeout: collected(stream, whole, request, timeout=timeout), session_id)
        nodes = (hypothesis_of(node.id) for node in graph.nodes if not node.id.startswith(_RESERVED))
        # A Tee that does not know `nodes_only` sends the edges all the same.
        edges = () if mark is _Mark.NODES else (hypothesis_of(edge_key_of(edge)) for edge in graph.edges)
        return frozenset(nodes).union(edges)

    def _tombstones(self, session_id: str, incident_id: str) -> frozenset[str]:
        """All tombstones of an incident, as hypotheses."""
        request = pb.TombstoneRequest(incident_id=incident_id)
        stream, whole = self._tee.StreamTombstones, self._tee.GetTombstones
        found = self._calls.ask(lambda timeout: collected(stream, whole, request, timeout=timeout), session_id)
        return frozenset(map(hypothesis_of, found.node_ids)).union(
            hypothesis_of(edge_key_of(entry)) for entry in found.edge_entries
        )

    def _merge_nodes(
        self, session_id: str, incident_id: str, nodes: dict[str, str], said: EliminationProvenance, told: _Told
    ) -> None:
        """Tombstone nodes, given as hypotheses by node id."""
        for ids in _requests(nodes):
            request = pb.NodeTombstoneRequest(incident_id=incident_id, node_ids=ids, provenance=_message(said))
            applied, already, _ = self._merged(self._tee.MergeNodeTombstones, request, session_id)
            told.note([nodes[each] for each in applied], [nodes[each] for each in already])

    def _merge_edges(
        self, session_id: str, incident_id: str, edges: dict[str, EdgeKey], said: EliminationProvenance, told: _Told
    ) -> None:
        """Tombstone edges, given by hypothesis."""
        for ids in self._edge_requests(edges):
            entries = [edge_entry(edges[each]) for each in ids]
            request = pb.EdgeTombstoneRequest(incident_id=incident_id, entries=entries, provenance=_message(said))
            applied, already, unmatched = self._merged(self._tee.MergeEdgeTombstones, request, session_id)
            if len(ids) == 1:
                self._names_edges_as_we_do = ids[0] in {*applied, *already, *unmatched}
                told.note(ids if applied else (), ids if already else ())
            else:
                told.note(applied, already)

    def _edge_requests(self, edges: Iterable[str]) -> Iterator[list[str]]:
        """Edges in portions. How an edge is named in an answer is for each Tee to say; alone, it needs no name.

        So one is sent alone, which tells; and all of them are where the Tee has names of its own.
        """
        rest = list(edges)
        while rest and not self._names_edges_as_we_do:
            yield [rest.pop()]
        yield from _requests(rest)

    def _merged(
        self,
        merge: Callable[..., pb.TombstoneMergeResult],
        request: pb.NodeTombstoneRequest | pb.EdgeTombstoneRequest,
        session_id: str,
    ) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        """Applied, already tombstoned, unmatched."""
        answer = self._calls.ask(lambda timeout: merge(request, timeout=timeout), session_id)
        return answer.applied_ids, answer.already_tombstoned_ids, answer.unmatched_ids


def _checked(session_id: str) -> str:
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


def _message(said: EliminationProvenance) -> pb.Provenance:
    if not (_is_text(said.source_id) and _is_text(said.trigger)):
        raise InvalidRequest("source and trigger must be text without lone surrogates")
    message = pb.Provenance(source=said.source_id or _UNKNOWN, trigger=said.trigger or _UNKNOWN)
    message.timestamp.GetCurrentTime()
    return message


def _sorted_out(hypothesis_ids: Iterable[str]) -> tuple[dict[str, str], dict[str, EdgeKey]]:
    """Hypotheses by node id, and edges by hypothesis; without what no graph can have."""
    nodes: dict[str, str] = {}
    edges: dict[str, EdgeKey] = {}
    for hypothesis_id in hypothesis_ids:
        if not _is_text(hypothesis_id):
            continue
        thing = named_by(hypothesis_id)
        if isinstance(thing, EdgeKey):
            edges[hypothesis_id] = thing
        elif thing and not thing.startswith(_RESERVED):
            nodes[thing] = hypothesis_id
    return nodes, edges


def _requests(ids: Iterable[str]) -> Iterator[list[str]]:
    """The ids in portions that fit a request."""
    portion: list[str] = []
    size = 0
    for each in ids:
        weight = len(each.encode()) + 16
        if portion and (len(portion) == _REQUEST_IDS or size + weight > _REQUEST_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += weight
    if portion:
        yield portion
