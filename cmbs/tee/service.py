"""Tee's calls as plain functions from a request to an answer; `cmbs.tee.server` puts them on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.empty_pb2 import Empty

from cmbs.errors import GraphTooLarge, InvalidGraph
from cmbs.spi import Clock
from cmbs.system import SystemClock
from cmbs.tee.batches import FRAME_BYTES, batches
from cmbs.tee.kernel.lattice import Delta, MergeConflict, Provenance, Timestamp, edge_id, validate_incident_id
from cmbs.tee.kernel.store import EdgeTombstones, GraphStore, GraphView
from cmbs.tee.kernel.wire import edge_entry, edge_key_of, edge_of, encode_version, node_of, provenance_of, split
from cmbs.tee.proto import tee_pb2 as pb

DEFAULT_MESSAGE_BYTES = 64 << 20
# Of a stream: far below the 4 MiB that a gRPC client takes by default.
_MAX_PART_BYTES = 1 << 20
# Of a value in a conflict: a short proposal may conflict with a label of any length.
_MAX_SHOWN_CHARS = 256


class TeeService:
    """The calls of Tee over a graph store. Answers that are graphs come encoded."""

    def __init__(
        self, store: GraphStore, clock: Clock | None = None, max_message_bytes: int = DEFAULT_MESSAGE_BYTES
    ) -> None:
        self._store = store
        self._clock: Clock = clock or SystemClock()
        self._max_message_bytes = max_message_bytes

    # --- the join phase ---

    def merge_hypothesis(self, request: pb.HypothesisDelta) -> pb.HypothesisMergeResult:
        """Grow the main graph."""
        now = self._now()
        nodes = tuple(node_of(each, now) for each in request.nodes)
        edges = tuple(edge_of(each, now) for each in request.edges)
        result = self._store.merge(Delta(nodes, edges))
        answer = pb.HypothesisMergeResult(
            created_ids=[*result.created_nodes, *map(edge_id, result.created_edges)],
            merged_ids=[*result.merged_nodes, *map(edge_id, result.merged_edges)],
            causal_graph_version=result.version,
        )
        answer.conflicts.extend(_select_fitting(result.conflicts, self._max_message_bytes - answer.ByteSize()))
        return answer

    def get_main_graph(self, request: Empty) -> bytes:  # noqa: ARG002 - it has nothing to say
        """The main graph in one message."""
        return self._whole(self._store.main_graph(), "StreamMainGraph")

    def stream_main_graph(self, request: Empty) -> Iterator[bytes]:  # noqa: ARG002 - it has nothing to say
        """The main graph in parts."""
        return _parts(self._store.main_graph())

    # --- the elimination phase ---

    def create_incident(self, request: pb.CreateIncidentRequest) -> pb.CreateIncidentResult:
        """Anchor an incident at the present graph."""
        incident, created = self._store.create_incident(validate_incident_id(request.incident_id), self._now())
        return pb.CreateIncidentResult(
            incident_id=incident.incident_id, created=created, causal_graph_version=incident.anchor
        )

    def get_incident_context(self, request: pb.IncidentContextRequest) -> pb.IncidentContext:
        """Anchor and tombstones: enough to recover a session."""
        incident = self._store.incident(validate_incident_id(request.incident_id))
        context = pb.IncidentContext(incident_id=incident.incident_id, causal_graph_version=incident.anchor)
        context.created_at.seconds, context.created_at.nanos = incident.created_at
        context.created_at.SetInParent()
        if not request.without_tombstones:
            context.tombstones.CopyFrom(self._tombstones(request.incident_id))
            self._check_size(context.ByteSize(), "without_tombstones and StreamTombstones")
        return context

    def merge_node_tombstones(self, request: pb.NodeTombstoneRequest) -> pb.TombstoneMergeResult:
        """Rule nodes out."""
        incident_id = validate_incident_id(request.incident_id)
        node_ids = list(request.node_ids)
        if not node_ids:
            raise InvalidGraph("`node_ids` must not be empty")
        if not all(node_ids):
            raise InvalidGraph("`node_ids` must not hold an empty id")
        result = self._store.merge_node_tombstones(incident_id, node_ids, self._provenance(request))
        return pb.TombstoneMergeResult(
            applied_ids=result.applied, already_tombstoned_ids=result.already, unmatched_ids=result.unmatched
        )

    def merge_edge_tombstones(self, request: pb.EdgeTombstoneRequest) -> pb.TombstoneMergeResult:
        """Rule edges out."""
        incident_id = validate_incident_id(request.incident_id)
        keys = list(map(edge_key_of, request.entries))
        if not keys:
            raise InvalidGraph("`entries` must not be empty")
        result: EdgeTombstones = self._store.merge_edge_tombstones(incident_id, keys, self._provenance(request))
        return pb.TombstoneMergeResult(
            applied_ids=map(edge_id, result.applied),
            already_tombstoned_ids=map(edge_id, result.already),
            unmatched_ids=map(edge_id, result.unmatched),
        )

    def get_live_view(self, request: pb.LiveViewRequest) -> bytes:
        """What an incident has not ruled out, in one message."""
        return self._whole(self._live_view(request), "StreamLiveView")

    def stream_live_view(self, request: pb.LiveViewRequest) -> Iterator[bytes]:
        """What an incident has not ruled out, in parts."""
        return _parts(self._live_view(request))

    def get_tombstones(self, request: pb.TombstoneRequest) -> pb.TombstoneSet:
        """What an incident has ruled out."""
        tombstones = self._tombstones(validate_incident_id(request.incident_id))
        self._check_size(tombstones.ByteSize(), "StreamTombstones")
        return tombstones

    def stream_tombstones(self, request: pb.TombstoneRequest) -> Iterator[pb.TombstoneSet]:
        """What an incident has ruled out, in parts; one at least."""
        tombstones = self._tombstones(validate_incident_id(request.incident_id))
        if not tombstones.ByteSize():
            yield tombstones
        for node_ids in batches(tombstones.node_ids, lambda each: len(each.encode()), max_bytes=_MAX_PART_BYTES):
            yield pb.TombstoneSet(node_ids=node_ids)
        for entries in batches(tombstones.edge_entries, pb.EdgeTombstoneEntry.ByteSize, max_bytes=_MAX_PART_BYTES):
            yield pb.TombstoneSet(edge_entries=entries)

    # --- what they share ---

    def _live_view(self, request: pb.LiveViewRequest) -> GraphView:
        view = self._store.live_view(validate_incident_id(request.incident_id))
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
                f"the answer has {size} bytes, a message at most {self._max_message_bytes}: use {way_out}"
            )

    def _provenance(self, request: pb.NodeTombstoneRequest | pb.EdgeTombstoneRequest) -> Provenance:
        return provenance_of(request.provenance, self._now())

    def _now(self) -> Timestamp:
        now = pb.Provenance().timestamp
        now.FromJsonString(self._clock.now())
        return Timestamp(now.seconds, now.nanos)


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


def _shorten(value: str) -> str:
    return value if len(value) <= _MAX_SHOWN_CHARS else f"{value[:_MAX_SHOWN_CHARS]}…"


def _parts(view: GraphView) -> Iterator[bytes]:
    """The view in messages of about the same size; the first one has the version."""
    pieces = [encode_version(view.version), *view.nodes, *view.edges]
    small = (each for piece in pieces for each in (split(piece) if len(piece) > _MAX_PART_BYTES else [piece]))
    for part in batches(small, len, max_bytes=_MAX_PART_BYTES):
        yield b"".join(part)
