"""Tee's calls as plain functions from a request to an answer; `cmbs.tee.server` puts them on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from google.protobuf.empty_pb2 import Empty

from cmbs.errors import GraphTooLarge, InvalidGraph
from cmbs.refusals import MAX_FAULTS
from cmbs.spi import Clock
from cmbs.system import SystemClock
from cmbs.tee.batches import FRAME_BYTES, batches
from cmbs.tee.kernel.lattice import (
    Delta,
    Edge,
    EdgeKey,
    MergeConflict,
    Node,
    Provenance,
    Timestamp,
    edge_id,
    validate_incident_id,
)
from cmbs.tee.kernel.limits import TeeLimits
from cmbs.tee.kernel.pages import choose_size, select_page
from cmbs.tee.kernel.paths import SearchLimits, SymptomPath, explain, reach, validate_limits, validate_symptoms, walk
from cmbs.tee.kernel.store import EdgeTombstones, GraphStore, GraphView, Identity
from cmbs.tee.kernel.wire import (
    edge_entry,
    edge_key_of,
    edge_of,
    encode_version,
    node_of,
    provenance_message,
    provenance_of,
    split,
    universe_of,
)
from cmbs.tee.proto import tee_pb2 as pb

M = TypeVar("M")
R = TypeVar("R")
P = TypeVar("P", pb.Explanation, pb.Reached)

DEFAULT_MESSAGE_BYTES = 64 << 20
# Of a stream: far below the 4 MiB that a gRPC client takes by default.
_MAX_PART_BYTES = 1 << 20
# Of a value in a conflict: a short proposal may conflict with a label of any length.
_MAX_SHOWN_CHARS = 256
# Of what a universe names and the graph does not have.
_MAX_UNKNOWN = 1_000
# Incidents of this name hold universes of sessions, from before incidents had their own; one of these marks ends them.
_UNIVERSES = "cmbs:universe:"
_MARKS = frozenset(f"{_UNIVERSES}{each}" for each in ("listed", "nodes", "graph"))


class _NamesIncident(Protocol):
    incident_id: str


class TeeService:
    """The calls of Tee over a graph store. Answers that are graphs come encoded."""

    def __init__(
        self,
        store: GraphStore,
        clock: Clock | None = None,
        max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
        limits: TeeLimits | None = None,
    ) -> None:
        self._store = store
        self._limits = limits or TeeLimits()
        self._clock: Clock = clock or SystemClock()
        self._max_message_bytes = max_message_bytes

    # --- the join phase ---

    def merge_hypothesis(self, request: pb.HypothesisDelta) -> pb.HypothesisMergeResult:
        """Grow the main graph."""
        now = self._now()
        self._limits.check_number("things_per_delta", len(request.nodes) + len(request.edges))
        faults: list[InvalidGraph] = []
        nodes = tuple(_read_each("nodes", request.nodes, partial(self._read_node, now), faults))
        edges = tuple(_read_each("edges", request.edges, partial(self._read_edge, now), faults))
        _raise_all(faults)
        result = self._store.merge(Delta(nodes, edges))
        answer = pb.HypothesisMergeResult(
            created_ids=[*result.created_nodes, *map(edge_id, result.created_edges)],
            merged_ids=[*result.merged_nodes, *map(edge_id, result.merged_edges)],
            causal_graph_version=result.version,
        )
        answer.conflicts.extend(_select_fitting(result.conflicts, self._max_message_bytes - answer.ByteSize()))
        return answer

    def _read_node(self, now: Timestamp, message: pb.Node) -> Node:
        node = node_of(message, now)
        self._limits.check_node(node)
        return node

    def _read_edge(self, now: Timestamp, message: pb.Edge) -> Edge:
        edge = edge_of(message, now)
        self._limits.check_edge(edge)
        return edge

    def get_main_graph(self, request: Empty) -> bytes:  # noqa: ARG002 - it has nothing to say
        """The main graph in one message."""
        return self._whole(self._store.main_graph(), "StreamMainGraph")

    def stream_main_graph(self, request: Empty) -> Iterator[bytes]:  # noqa: ARG002 - it has nothing to say
        """The main graph in parts."""
        return _parts(self._store.main_graph())

    def stream_graph_at(self, request: pb.GraphAtRequest) -> Iterator[bytes]:
        """The main graph as of a version, in parts."""
        named = request.causal_graph_version if request.HasField("causal_graph_version") else None
        version = self._store.version() if named is None else named
        return _parts(self._store.graph_at(version, edges=not request.nodes_only))

    # --- the elimination phase ---

    def create_incident(self, request: pb.CreateIncidentRequest) -> pb.CreateIncidentResult:
        """Anchor an incident at the present graph, or at the version that is named."""
        universe = request.universe
        self._limits.check_number("ids_per_request", len(universe.node_ids) + len(universe.edge_entries))
        incident, created, unknown = self._store.create_incident(
            self._incident_id(request),
            self._now(),
            request.causal_graph_version if request.HasField("causal_graph_version") else None,
            universe_of(universe) if request.HasField("universe") else None,
        )
        answer = pb.CreateIncidentResult(
            incident_id=incident.incident_id, created=created, causal_graph_version=incident.anchor
        )
        answer.unknown_ids.extend(each if isinstance(each, str) else edge_id(each) for each in unknown[:_MAX_UNKNOWN])
        if incident.universe is not None:
            answer.universe = int(incident.universe)  # type: ignore[assignment]  # the numbers are the same
        return answer

    def get_incident_context(self, request: pb.IncidentContextRequest) -> pb.IncidentContext:
        """Anchor and tombstones: enough to recover a session."""
        incident = self._store.incident(self._incident_id(request))
        context = pb.IncidentContext(incident_id=incident.incident_id, causal_graph_version=incident.anchor)
        context.created_at.seconds, context.created_at.nanos = incident.created_at
        context.created_at.SetInParent()
        if incident.universe is not None:
            context.universe = int(incident.universe)  # type: ignore[assignment]  # the numbers are the same
        if not request.without_tombstones:
            context.tombstones.CopyFrom(self._tombstones(request.incident_id))
            self._check_size(context.ByteSize(), "without_tombstones and StreamTombstones")
        return context

    def stream_universe(self, request: pb.TombstoneRequest) -> Iterator[pb.TombstoneSet]:
        """What the listed universe of an incident holds, in parts; one at least."""
        universe = self._store.universe(self._incident_id(request))
        node_ids, edges = ((), ()) if universe is None else (universe.node_ids, universe.edges)
        return _set_parts(pb.TombstoneSet(node_ids=node_ids, edge_entries=map(edge_entry, edges)))

    def merge_node_tombstones(self, request: pb.NodeTombstoneRequest) -> pb.TombstoneMergeResult:
        """Rule nodes out."""
        incident_id = self._incident_id(request)
        node_ids = list(request.node_ids)
        if not node_ids:
            raise InvalidGraph("`node_ids` must not be empty", {"field": "node_ids", "accepted": {"minItems": 1}})
        if not all(node_ids):
            empty = f"node_ids[{node_ids.index('')}]"
            raise InvalidGraph(
                "`node_ids` must not hold an empty id", {"field": empty, "found": "", "accepted": {"minLength": 1}}
            )
        self._limits.check_number("ids_per_request", len(node_ids))
        self._limits.check_ids(node_ids)
        self._refuse_foreign(incident_id, node_ids)
        result = self._store.merge_node_tombstones(incident_id, node_ids, self._provenance(request))
        return pb.TombstoneMergeResult(
            applied_ids=result.applied,
            already_tombstoned_ids=result.already,
            unmatched_ids=result.unmatched,
            total=result.total,
        )

    def merge_edge_tombstones(self, request: pb.EdgeTombstoneRequest) -> pb.TombstoneMergeResult:
        """Rule edges out."""
        incident_id = self._incident_id(request)
        faults: list[InvalidGraph] = []
        keys = list(_read_each("entries", request.entries, edge_key_of, faults))
        _raise_all(faults)
        if not keys:
            raise InvalidGraph("`entries` must not be empty", {"field": "entries", "accepted": {"minItems": 1}})
        self._limits.check_number("ids_per_request", len(keys))
        self._limits.check_ids(end for key in keys for end in key[:2])
        self._refuse_foreign(incident_id, keys)
        result: EdgeTombstones = self._store.merge_edge_tombstones(incident_id, keys, self._provenance(request))
        return pb.TombstoneMergeResult(
            applied_ids=map(edge_id, result.applied),
            already_tombstoned_ids=map(edge_id, result.already),
            unmatched_ids=map(edge_id, result.unmatched),
            total=result.total,
        )

    def get_live_view(self, request: pb.LiveViewRequest) -> bytes:
        """What an incident has not ruled out, in one message."""
        return self._whole(self._live_view(request), "StreamLiveView")

    def stream_live_view(self, request: pb.LiveViewRequest) -> Iterator[bytes]:
        """What an incident has not ruled out, in parts."""
        return _parts(self._live_view(request))

    def get_tombstones(self, request: pb.TombstoneRequest) -> pb.TombstoneSet:
        """What an incident has ruled out."""
        tombstones = self._tombstones(self._incident_id(request))
        self._check_size(tombstones.ByteSize(), "StreamTombstones")
        return tombstones

    def stream_tombstones(self, request: pb.TombstoneRequest) -> Iterator[pb.TombstoneSet]:
        """What an incident has ruled out, in parts; one at least."""
        return _set_parts(self._tombstones(self._incident_id(request)))

    def stream_tombstone_groups(self, request: pb.TombstoneRequest) -> Iterator[pb.TombstoneGroup]:
        """What an incident has ruled out, by what was said with it; one group at least."""
        found = self._store.tombstones(self._incident_id(request))
        groups: dict[Provenance, pb.TombstoneSet] = {}
        for node_id, said in found.nodes.items():
            groups.setdefault(said, pb.TombstoneSet()).node_ids.append(node_id)
        for edge, said in found.edges.items():
            groups.setdefault(said, pb.TombstoneSet()).edge_entries.append(edge_entry(edge))
        if not groups:
            yield pb.TombstoneGroup()
        for said, whole in groups.items():
            for part in _set_parts(whole):
                yield pb.TombstoneGroup(provenance=provenance_message(said), tombstones=part)

    # --- which Tee this is ---

    def get_identity(self, request: Empty) -> pb.TeeIdentity:  # noqa: ARG002 - it has nothing to say
        """The id that was made with the graph."""
        return _identity_message(self._store.identity())

    def stand_in_for(self, request: pb.StandInRequest) -> pb.TeeIdentity:
        """Take the place of Tees that were lost."""
        if not all(request.tee_ids):
            raise InvalidGraph("`tee_ids` must not hold an empty id")
        self._limits.check_number("ids_per_request", len(request.tee_ids))
        self._limits.check_ids(request.tee_ids)
        return _identity_message(self._store.stand_in_for(list(request.tee_ids)))

    # --- searches ---

    def explain(self, request: pb.ExplainRequest) -> pb.ExplainResult:
        """Which live nodes can explain the symptoms."""
        incident = self._store.incident(self._incident_id(request))
        symptoms = validate_symptoms(request.symptoms)
        self._require_nodes(incident.anchor, "symptoms", symptoms)
        tombstones = self._store.tombstones(incident.incident_id)
        step = partial(self._store.edges_at, incident.anchor)
        found = explain(step, symptoms, tombstones.nodes, tombstones.edges, _read_limits(request))
        # An end of an edge need not be a node, and then is no hypothesis.
        known = self._store.find_nodes(incident.anchor, found.node_ids)
        page = select_page([each for each in found.node_ids if each in known], request.page_size, request.page_token)
        nodes = self._find_nodes(incident.anchor, page.items)
        explanations = _take_fitting(
            pb.Explanation(node=nodes[each], paths=map(_path_message, found.paths_of(each))) for each in page.items
        )
        return pb.ExplainResult(
            explanations=explanations,
            next_page_token=page.token_after(len(explanations)),
            cut=found.is_cut,
            total=page.total,
            causal_graph_version=incident.anchor,
        )

    def impact(self, request: pb.ImpactRequest) -> pb.ImpactResult:
        """What a node can reach."""
        incident = self._store.incident(self._incident_id(request))
        (node_id,) = validate_symptoms([request.node_id])
        self._require_nodes(incident.anchor, "node_id", [node_id])
        tombstones = self._store.tombstones(incident.incident_id)
        step = partial(self._store.edges_at, incident.anchor)
        ends, found = reach(step, node_id, tombstones.nodes, tombstones.edges, _read_limits(request))
        known = self._store.find_nodes(incident.anchor, ends)
        page = select_page([each for each in ends if each in known], request.page_size, request.page_token)
        nodes = self._find_nodes(incident.anchor, page.items)
        reached = _take_fitting(
            pb.Reached(node=nodes[each], path=_path_message(SymptomPath(each, walk(found, each))))
            for each in page.items
        )
        return pb.ImpactResult(
            reached=reached,
            next_page_token=page.token_after(len(reached)),
            cut=found.is_cut,
            total=page.total,
            causal_graph_version=incident.anchor,
        )

    def list_graph(self, request: pb.ListGraphRequest) -> pb.GraphPage:
        """A page of the graph that an incident sees."""
        incident = self._store.incident(self._incident_id(request))
        page = self._store.page_at(incident.anchor, request.page_token, choose_size(request.page_size))
        return pb.GraphPage(
            nodes=map(_bare_node, page.nodes),
            edges=map(edge_entry, page.edges),
            next_page_token=page.next_token,
            causal_graph_version=incident.anchor,
        )

    def _require_nodes(self, version: int, field: str, node_ids: Sequence[str]) -> None:
        known = self._store.find_nodes(version, node_ids)
        for node_id in node_ids:
            if node_id not in known:
                shown = _shorten(node_id)
                raise InvalidGraph(
                    f"node `{shown}` is not in the graph as of version {version}, the incident's anchor",
                    {"field": field, "found": shown, "next": "name a node of the graph: `cmbs tee show` lists them"},
                )

    def _find_nodes(self, version: int, node_ids: Sequence[str]) -> dict[str, pb.Node]:
        return {node.id: _bare_node(node) for node in self._store.nodes_at(version, node_ids)}

    # --- what they share ---

    def _refuse_foreign(self, incident_id: str, keys: Sequence[str] | Sequence[EdgeKey]) -> None:
        """InvalidGraph for new tombstones in an incident that holds a universe to its end."""
        if not incident_id.startswith(_UNIVERSES):
            return
        held = self._store.tombstones(incident_id)
        if not _MARKS.isdisjoint(held.nodes) and not all(each in held.nodes or each in held.edges for each in keys):
            raise InvalidGraph("the incident holds the universe of a session, which is complete")

    def _incident_id(self, request: _NamesIncident) -> str:
        self._limits.check_ids([request.incident_id])
        return validate_incident_id(request.incident_id)

    def _live_view(self, request: pb.LiveViewRequest) -> GraphView:
        view = self._store.live_view(self._incident_id(request))
        return view._replace(edges=()) if request.nodes_only else view

    def _tombstones(self, incident_id: str) -> pb.TombstoneSet:
        tombstones = self._store.tombstones(incident_id)
        return pb.TombstoneSet(node_ids=tombstones.nodes, edge_entries=map(edge_entry, tombstones.edges))

    def _whole(self, view: GraphView, way_out: str) -> bytes:
        pieces = [*view.nodes, *view.edges, encode_version(view.version)]
        self._check_size(sum(map(len, pieces)), way_out)
        return b"".join(pieces)

    def _check_size(self, size: int, way_out: str) -> None:
        if size > self._max_message_bytes:
            raise GraphTooLarge(
                f"the answer has {size} bytes, a message at most {self._max_message_bytes}: use {way_out}",
                {
                    "field": "answer",
                    "found": size,
                    "accepted": {"maximum": self._max_message_bytes},
                    "next": f"use {way_out}",
                },
            )

    def _provenance(self, request: pb.NodeTombstoneRequest | pb.EdgeTombstoneRequest) -> Provenance:
        said = provenance_of(request.provenance, self._now())
        self._limits.check_provenance(said, request.incident_id)
        return said

    def _now(self) -> Timestamp:
        now = pb.Provenance().timestamp
        now.FromJsonString(self._clock.now())
        return Timestamp(now.seconds, now.nanos)


def _read_each(field: str, items: Iterable[M], read: Callable[[M], R], faults: list[InvalidGraph]) -> Iterator[R]:
    """What each item says; what is wrong with one is added to `faults`, under the item's place."""
    for place, item in enumerate(items):
        try:
            yield read(item)
        except InvalidGraph as exc:
            within = f"{field}[{place}].{exc.details['field']}"
            faults.append(InvalidGraph(exc.message, {**exc.details, "field": within}))


def _raise_all(faults: list[InvalidGraph]) -> None:
    """Raise InvalidGraph for the first fault, with the first few of them in its details."""
    if not faults:
        return
    first, rest = faults[0], len(faults) - 1
    more = f" and {rest} more" if rest else ""
    listed = [{**_without_next(each.details), "message": each.message} for each in faults[:MAX_FAULTS]]
    raise InvalidGraph(first.message + more, {**first.details, **({"faults": listed} if rest else {})})


def _without_next(details: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if name != "next"}


def _identity_message(identity: Identity) -> pb.TeeIdentity:
    return pb.TeeIdentity(tee_id=identity.tee_id, stands_in_for=identity.stands_in_for)


def _set_parts(whole: pb.TombstoneSet) -> Iterator[pb.TombstoneSet]:
    """A set in parts that each fit a message; one at least."""
    if not whole.ByteSize():
        yield whole
    for node_ids in batches(whole.node_ids, lambda each: len(each.encode()), max_bytes=_MAX_PART_BYTES):
        yield pb.TombstoneSet(node_ids=node_ids)
    for entries in batches(whole.edge_entries, pb.EdgeTombstoneEntry.ByteSize, max_bytes=_MAX_PART_BYTES):
        yield pb.TombstoneSet(edge_entries=entries)


def _select_fitting(conflicts: Iterable[MergeConflict], room: int) -> Iterator[pb.MergeConflict]:
    """As many conflicts as fit into `room` bytes: the merge is done, so its answer cannot be refused any more."""
    for each in conflicts:
        message = pb.MergeConflict(
            id=each.id,
            field=each.field,
            existing_value=_shorten(each.existing_value),
            proposed_value=_shorten(each.proposed_value),
        )
        room -= message.ByteSize() + FRAME_BYTES
        if room < 0:
            return
        yield message


def _take_fitting(messages: Iterable[P]) -> list[P]:
    """As many messages as make a page of about a part's size, one at least: paths may be many and long."""
    taken: list[P] = []
    room = _MAX_PART_BYTES
    for message in messages:
        room -= message.ByteSize() + FRAME_BYTES
        if taken and room < 0:
            break
        taken.append(message)
    return taken


def _read_limits(request: pb.ExplainRequest | pb.ImpactRequest) -> SearchLimits:
    return validate_limits(request.max_depth) if request.HasField("max_depth") else SearchLimits()


def _bare_node(node: Node) -> pb.Node:
    """A node as a message without provenance."""
    return pb.Node(id=node.id, type=int(node.type), label=node.label, hypothetical=node.hypothetical)  # type: ignore[arg-type]


def _path_message(path: SymptomPath) -> pb.CausalPath:
    return pb.CausalPath(end=path.end, edges=map(edge_entry, path.edges))


def _shorten(value: str) -> str:
    return value if len(value) <= _MAX_SHOWN_CHARS else f"{value[:_MAX_SHOWN_CHARS]}…"


def _parts(view: GraphView) -> Iterator[bytes]:
    """The view in messages of about the same size; the first one has the version."""
    pieces = [encode_version(view.version), *view.nodes, *view.edges]
    small = (each for piece in pieces for each in (split(piece) if len(piece) > _MAX_PART_BYTES else [piece]))
    for part in batches(small, len, max_bytes=_MAX_PART_BYTES):
        yield b"".join(part)
