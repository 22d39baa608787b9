"""Incidents of a Tee in the words of sessions: hypotheses in, hypotheses out. One call of Tee, or a few, each."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import grpc
from google.protobuf.empty_pb2 import Empty

from cmbs.errors import InvalidRequest, SessionNotFound, StoreUnavailable
from cmbs.spi import EliminationProvenance
from cmbs.stores._tee_calls import Calls
from cmbs.stores._tee_ids import hypothesis_of, parse_hypothesis
from cmbs.tee import EdgeKey
from cmbs.tee.access import is_text
from cmbs.tee.batches import batches
from cmbs.tee.client import collect
from cmbs.tee.kernel.lattice import NODE_TYPES
from cmbs.tee.kernel.wire import edge_entry, edge_key_of
from cmbs.tee.proto import tee_pb2 as pb

# Incidents of this name hold the universes of sessions, where Tee has no other place for them.
RESERVED = "cmbs:universe:"
# A session takes no longer ones by default. Fixed, so that the universe of a session stays what it was.
MAX_HYPOTHESIS_CHARS = 1_024
# Of a source and of a trigger: Tee takes no longer ones, and a session may where its server is set to.
MAX_PROVENANCE_CHARS = 1_024
# Of the ids and labels of a graph whose attributes are offered: what a server takes by default is less.
_MAX_ATTRIBUTE_CHARS = 16 << 20
# Of one request: below the 4 MiB that a gRPC server takes by default.
_MAX_REQUEST_IDS = 10_000
_MAX_REQUEST_BYTES = 2 << 20
# Tee insists on provenance; a belief server does not.
_UNKNOWN = "unknown"


_log = logging.getLogger("cmbs.tee")


class MergeOutcome:
    """The hypotheses that Tee has applied or had already, over several requests; all others are unmatched."""

    def __init__(self) -> None:
        self.applied: set[str] = set()
        self.already: set[str] = set()
        # How many tombstones the incident has after the last request; None of a Tee that does not say so.
        self.total: int | None = None

    def add(self, applied: Iterable[str], already: Iterable[str], result: pb.TombstoneMergeResult) -> None:
        """Take in the answer to one more request, and what it says of which hypotheses."""
        self.applied.update(applied)
        self.already.update(already)
        self.total = result.total if result.HasField("total") else None


class OfferedGraph(NamedTuple):
    """What a graph offers a session: hypotheses, its version, and what it says of its nodes if that is not too much."""

    ids: frozenset[str]
    version: int
    attributes: dict[str, dict[str, str]] | None


class Incidents:
    """What is asked of a Tee about incidents; from several threads at once."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._tee = calls.stub
        self._names_edges_as_we_do = False

    def create(self, request: pb.CreateIncidentRequest) -> pb.CreateIncidentResult:
        """Create an incident, or find the one that is there."""
        created: pb.CreateIncidentResult = self._calls.ask(
            partial(self._tee.CreateIncident, request), request.incident_id
        )
        return created

    def find(self, incident_id: str) -> pb.IncidentContext | None:
        """An incident without its tombstones; None where there is none."""
        request = pb.IncidentContextRequest(incident_id=incident_id, without_tombstones=True)
        try:
            found: pb.IncidentContext = self._calls.ask(partial(self._tee.GetIncidentContext, request), incident_id)
        except SessionNotFound:
            return None
        return found

    def graph_at(self, session_id: str, version: int | None, *, edges: bool) -> OfferedGraph | None:
        """What the graph offers at a version, or at the present one.

        None where Tee does not know the call.
        """
        graph = self._read_graph(pb.GraphAtRequest(causal_graph_version=version, nodes_only=not edges), session_id)
        return None if graph is None else _offer(graph, edges=edges)

    def whole_graph(self, version: int) -> pb.CausalGraph | None:
        """All nodes and edges at a version; None where Tee does not know the call."""
        return self._read_graph(pb.GraphAtRequest(causal_graph_version=version), "")

    def _read_graph(self, request: pb.GraphAtRequest, session_id: str) -> pb.CausalGraph | None:
        try:
            graph: pb.CausalGraph = self._calls.ask(
                partial(_collect_known, self._tee.StreamGraphAt, request), session_id
            )
        except _Unimplemented:
            return None
        return graph

    def universe(self, session_id: str) -> frozenset[str]:
        """What the listed universe of an incident holds."""
        request = pb.TombstoneRequest(incident_id=session_id)
        call = partial(_collect_known, self._tee.StreamUniverse, request)
        return _hypotheses_of_set(self._calls.ask(call, session_id))

    def identity(self) -> pb.TeeIdentity | None:
        """Which Tee this is; None where it does not know the call."""
        try:
            found: pb.TeeIdentity = self._calls.ask(partial(_ask_known, self._tee.GetIdentity, Empty()), "")
        except _Unimplemented:
            return None
        return found

    def stand_in_for(self, tee_ids: Iterable[str]) -> None:
        """Have Tee take the place of others that were lost."""
        self._calls.ask(partial(self._tee.StandInFor, pb.StandInRequest(tee_ids=tee_ids)), "")

    def tombstone_groups(self, session_id: str) -> dict[EliminationProvenance, frozenset[str]] | None:
        """The tombstones of an incident by provenance; None where Tee does not know the call."""
        request = pb.TombstoneRequest(incident_id=session_id)
        try:
            groups = self._calls.ask(partial(_list_known, self._tee.StreamTombstoneGroups, request), session_id)
        except _Unimplemented:
            return None
        found: dict[EliminationProvenance, frozenset[str]] = {}
        for each in groups:
            said = EliminationProvenance(each.provenance.source, each.provenance.trigger)
            ids = _hypotheses_of_set(each.tombstones)
            if ids:
                found[said] = found.get(said, frozenset()) | ids
        return found

    def view(self, session_id: str, incident_id: str, *, edges: bool) -> frozenset[str]:
        """What an incident sees."""
        return self.offer(session_id, incident_id, edges=edges).ids

    def offer(self, session_id: str, incident_id: str, *, edges: bool) -> OfferedGraph:
        """What an incident sees, and what the graph says of it."""
        request = pb.LiveViewRequest(incident_id=incident_id, nodes_only=not edges)
        call = partial(collect, self._tee.StreamLiveView, self._tee.GetLiveView, request)
        # A Tee that does not know `nodes_only` sends the edges all the same.
        return _offer(self._calls.ask(call, session_id), edges=edges)

    def tombstones(self, session_id: str, incident_id: str) -> frozenset[str]:
        """All tombstones of an incident."""
        request = pb.TombstoneRequest(incident_id=incident_id)
        call = partial(collect, self._tee.StreamTombstones, self._tee.GetTombstones, request)
        return _hypotheses_of_set(self._calls.ask(call, session_id))

    def version(self) -> str | None:
        """The present version of the graph, from the answer to an empty merge; None for a Tee without versions."""
        try:
            merged = self._calls.ask(partial(self._tee.MergeHypothesis, pb.HypothesisDelta()), "")
        except InvalidRequest:  # a Tee that will not merge nothing
            return None
        return str(merged.causal_graph_version) if merged.HasField("causal_graph_version") else None

    def merge_nodes(
        self,
        session_id: str,
        incident_id: str,
        nodes: dict[str, str],
        why: EliminationProvenance,
        outcome: MergeOutcome,
    ) -> None:
        """Tombstone nodes, given as hypotheses by node id."""
        for ids in _requests(nodes):
            request = pb.NodeTombstoneRequest(incident_id=incident_id, node_ids=ids, provenance=_message(why))
            result = self._calls.ask(partial(self._tee.MergeNodeTombstones, request), session_id)
            applied, already = result.applied_ids, result.already_tombstoned_ids
            outcome.add([nodes[each] for each in applied], [nodes[each] for each in already], result)

    def merge_edges(
        self,
        session_id: str,
        incident_id: str,
        edges: dict[str, EdgeKey],
        why: EliminationProvenance,
        outcome: MergeOutcome,
    ) -> None:
        """Tombstone edges, given by hypothesis."""
        for ids in self._edge_requests(edges):
            entries = [edge_entry(edges[each]) for each in ids]
            request = pb.EdgeTombstoneRequest(incident_id=incident_id, entries=entries, provenance=_message(why))
            result = self._calls.ask(partial(self._tee.MergeEdgeTombstones, request), session_id)
            applied, already = result.applied_ids, result.already_tombstoned_ids
            if len(ids) == 1:
                self._names_edges_as_we_do = ids[0] in {*applied, *already, *result.unmatched_ids}
                outcome.add(ids if applied else (), ids if already else (), result)
            else:
                outcome.add(applied, already, result)

    def _edge_requests(self, edges: Iterable[str]) -> Iterator[list[str]]:
        """Edges in batches. How an edge is named in an answer differs between Tees; alone, it needs no name.

        So one is sent alone, which shows the names; and all of them are where the Tee has names of its own.
        """
        rest = list(edges)
        while rest and not self._names_edges_as_we_do:
            yield [rest.pop()]
        yield from _requests(rest)


class _Unimplemented(StoreUnavailable):
    """Tee does not know a call."""


def _collect_known(stream: Any, request: Any, timeout: float) -> Any:
    """The parts of a stream as one message; a Tee that does not know the call is told apart from one that fails."""

    def refuse(_: object, timeout: float) -> Any:  # noqa: ARG001 - as a call is made
        raise _Unimplemented("the Tee does not know the call")

    return collect(stream, refuse, request, timeout=timeout)


def _ask_known(call: Any, request: Any, timeout: float) -> Any:
    with _telling_apart():
        return call(request, timeout=timeout)


def _list_known(stream: Any, request: Any, timeout: float) -> Any:
    with _telling_apart():
        return list(stream(request, timeout=timeout))


@contextmanager
def _telling_apart() -> Iterator[None]:
    """A Tee that does not know a call is told apart from one that fails."""
    try:
        yield
    except grpc.RpcError as exc:
        failure: Any = exc
        if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise _Unimplemented("the Tee does not know the call") from exc
        raise


def split_by_kind(hypothesis_ids: Iterable[str]) -> tuple[dict[str, str], dict[str, EdgeKey]]:
    """Hypotheses by node id, and edges by hypothesis; without what no graph can have."""
    nodes: dict[str, str] = {}
    edges: dict[str, EdgeKey] = {}
    for hypothesis_id in hypothesis_ids:
        if not is_text(hypothesis_id):
            continue
        thing = parse_hypothesis(hypothesis_id)
        if isinstance(thing, EdgeKey):
            edges[hypothesis_id] = thing
        elif thing and not thing.startswith(RESERVED):
            nodes[thing] = hypothesis_id
    return nodes, edges


def _offer(graph: pb.CausalGraph, *, edges: bool) -> OfferedGraph:
    return OfferedGraph(_hypotheses_in(graph, edges=edges), graph.causal_graph_version, _attributes_of(graph))


def _attributes_of(graph: pb.CausalGraph) -> dict[str, dict[str, str]] | None:
    """Type and label of the nodes, which the first write of each settles; None where they are too long in all."""
    if sum(len(node.id) + len(node.label) for node in graph.nodes) > _MAX_ATTRIBUTE_CHARS:
        return None
    return {
        hypothesis_of(node.id): {"type": NODE_TYPES[node.type].name, "label": node.label}
        for node in graph.nodes
        if node.type in NODE_TYPES and not node.id.startswith(RESERVED) and len(node.id) <= MAX_HYPOTHESIS_CHARS
    }


def _hypotheses_in(graph: pb.CausalGraph, *, edges: bool) -> frozenset[str]:
    """What a graph offers as hypotheses: without ids that are longer than a session takes, which would block it."""
    nodes = (hypothesis_of(node.id) for node in graph.nodes if not node.id.startswith(RESERVED))
    relations = (hypothesis_of(edge_key_of(edge)) for edge in graph.edges) if edges else ()
    found = frozenset(nodes).union(relations)
    usable = frozenset(each for each in found if len(each) <= MAX_HYPOTHESIS_CHARS)
    if len(usable) < len(found):
        _log.warning(
            "%d hypotheses of the graph are left out: their ids have more than %d characters",
            len(found) - len(usable),
            MAX_HYPOTHESIS_CHARS,
        )
    return usable


def _hypotheses_of_set(found: pb.TombstoneSet) -> frozenset[str]:
    return frozenset(map(hypothesis_of, found.node_ids)).union(
        hypothesis_of(edge_key_of(entry)) for entry in found.edge_entries
    )


def _message(provenance: EliminationProvenance) -> pb.Provenance:
    source, trigger = provenance.source_id or _UNKNOWN, provenance.trigger or _UNKNOWN
    if not (is_text(source) and is_text(trigger)):
        raise InvalidRequest("source and trigger must be text without lone surrogates")
    # The log has them whole.
    message = pb.Provenance(source=source[:MAX_PROVENANCE_CHARS], trigger=trigger[:MAX_PROVENANCE_CHARS])
    message.timestamp.GetCurrentTime()
    return message


def _requests(ids: Iterable[str]) -> Iterator[list[str]]:
    """The ids in batches that fit a request, with room for an edge's own fields."""
    return batches(ids, lambda each: len(each.encode()) + 10, max_bytes=_MAX_REQUEST_BYTES, max_items=_MAX_REQUEST_IDS)
