"""A Tee that has nothing of ours: the eight calls, no anchors, no streams, and edges under names of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias

import grpc
from google.protobuf.empty_pb2 import Empty

from cmbs.errors import IncidentNotFound
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.service import TeeService
from cmbs.tee.stores.memory import MemoryGraphStore

Calls: TypeAlias = Mapping[str, Callable[[Any, Any], Any]]

_REQUESTS: dict[str, Any] = {
    "MergeHypothesis": pb.HypothesisDelta,
    "GetMainGraph": Empty,
    "CreateIncident": pb.CreateIncidentRequest,
    "GetIncidentContext": pb.IncidentContextRequest,
    "MergeNodeTombstones": pb.NodeTombstoneRequest,
    "MergeEdgeTombstones": pb.EdgeTombstoneRequest,
    "GetLiveView": pb.LiveViewRequest,
    "GetTombstones": pb.TombstoneRequest,
}


@contextmanager
def serving(calls: Calls) -> Iterator[int]:
    """Serve the calls that a test has instead of our Tee; the port. Each is a function of a request and a context."""
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads)
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(
                call, _REQUESTS[name].FromString, lambda message: message.SerializeToString()
            )
            for name, call in calls.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tee.Tee", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()


class PlainTee:
    """The shared part of the wire, over a graph in memory."""

    def __init__(self) -> None:
        self._service = TeeService(MemoryGraphStore())

    def calls(self) -> Calls:
        """The eight calls."""
        service = self._service
        return {
            "MergeHypothesis": _answering(service.merge_hypothesis),
            "GetMainGraph": _answering(self._main_graph),
            "CreateIncident": _answering(service.create_incident),
            "GetIncidentContext": _answering(service.get_incident_context),
            "MergeNodeTombstones": _answering(service.merge_node_tombstones),
            "MergeEdgeTombstones": _answering(self._edge_tombstones),
            "GetLiveView": _answering(self._live_view),
            "GetTombstones": _answering(service.get_tombstones),
        }

    def _main_graph(self, request: Empty) -> pb.CausalGraph:
        return pb.CausalGraph.FromString(self._service.get_main_graph(request))

    def _live_view(self, request: pb.LiveViewRequest) -> pb.CausalGraph:
        """Of the whole graph as it is now."""
        gone = self._service.get_tombstones(pb.TombstoneRequest(incident_id=request.incident_id))
        dead, graph = set(gone.node_ids), self._main_graph(Empty())
        return pb.CausalGraph(nodes=[each for each in graph.nodes if each.id not in dead], edges=graph.edges)

    def _edge_tombstones(self, request: pb.EdgeTombstoneRequest) -> pb.TombstoneMergeResult:
        result = self._service.merge_edge_tombstones(request)
        for named in (result.applied_ids, result.already_tombstoned_ids, result.unmatched_ids):
            named[:] = [each.removeprefix("edge:").replace("|", " -> ") for each in named]
        return result


class Faults:
    """Calls of our own Tee, without its streams, of which one fails: before it took effect, or after."""

    def __init__(self, service: TeeService) -> None:
        self._service = service
        self._fail_at: tuple[int, str] | None = None
        self.asked = 0

    def fail(self, call: int, moment: str) -> None:
        """Let the call of this number, counted from here, fail once."""
        self.asked, self._fail_at = 0, (call, moment)

    def calls(self) -> Calls:
        """What to serve."""
        service = self._service
        return {
            "CreateIncident": self._faulty(service.create_incident),
            "GetIncidentContext": self._faulty(service.get_incident_context),
            "MergeHypothesis": self._faulty(service.merge_hypothesis),
            "MergeNodeTombstones": self._faulty(service.merge_node_tombstones),
            "MergeEdgeTombstones": self._faulty(service.merge_edge_tombstones),
            "GetLiveView": self._faulty(lambda request: pb.CausalGraph.FromString(service.get_live_view(request))),
            "GetTombstones": self._faulty(service.get_tombstones),
        }

    def _faulty(self, call: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(request: Any, context: Any) -> Any:
            self.asked += 1
            if self._fail_at == (self.asked, "before"):
                return context.abort(grpc.StatusCode.INTERNAL, "before")
            try:
                return call(request)
            except IncidentNotFound as exc:
                return context.abort(grpc.StatusCode.NOT_FOUND, str(exc))
            finally:
                if self._fail_at == (self.asked, "after"):
                    context.abort(grpc.StatusCode.INTERNAL, "after")

        return answer


def _answering(call: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def answer(request: Any, context: Any) -> Any:
        # What is not known here is not seen.
        request.DiscardUnknownFields()
        for field in ("without_tombstones", "nodes_only"):
            if field in request.DESCRIPTOR.fields_by_name:
                request.ClearField(field)
        try:
            answered = call(request)
        except IncidentNotFound as exc:
            return context.abort(grpc.StatusCode.NOT_FOUND, str(exc))
        if "causal_graph_version" in answered.DESCRIPTOR.fields_by_name:
            answered.ClearField("causal_graph_version")
        return answered

    return answer
