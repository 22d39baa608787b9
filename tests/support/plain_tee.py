"""Tees that are not ours: one with the eight calls alone, and one whose calls fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import grpc
from google.protobuf.empty_pb2 import Empty

from cmbs.errors import IncidentNotFound
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.server import CALLS
from cmbs.tee.service import TeeService
from cmbs.tee.stores.memory import MemoryGraphStore

Calls: TypeAlias = Mapping[str, Callable[[Any, Any], Any]]

_UNARY = {call.name: call for call in CALLS if not call.streams}
_PLAIN = (
    *("MergeHypothesis", "GetMainGraph", "CreateIncident", "GetIncidentContext"),
    *("MergeNodeTombstones", "MergeEdgeTombstones", "GetLiveView", "GetTombstones"),
)
_FIRST_ADDITION = 16
_ALL = {call.name: call for call in CALLS}
# Streams without a twin in one message.
_SINGLE_STREAMS = ("StreamGraphAt", "StreamUniverse")


@contextmanager
def serving(calls: Calls) -> Iterator[int]:
    """Serve the calls that a test has instead of our Tee; the port. Each is a function of a request and a context."""
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads)
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: (
                grpc.unary_stream_rpc_method_handler(call, _ALL[name].request.FromString, _serialise)
                if _ALL[name].streams
                else grpc.unary_unary_rpc_method_handler(call, _ALL[name].request.FromString, _serialise)
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


def _serialise(answer: Any) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def _answer(call: Callable[[Any], Any], request: Any, context: Any) -> Any:
    """What our service answers, as a message."""
    try:
        answer = call(request)
    except IncidentNotFound as exc:
        return context.abort(grpc.StatusCode.NOT_FOUND, str(exc))
    return pb.CausalGraph.FromString(answer) if isinstance(answer, bytes) else answer


class PlainTee:
    """The eight calls over a graph in memory: no anchors, no streams, and edges under names of its own."""

    def __init__(self) -> None:
        self._service = TeeService(MemoryGraphStore())

    def calls(self) -> Calls:
        """The eight calls."""
        calls: dict[str, Callable[[Any], Any]] = {
            **{name: partial(_ALL[name].method, self._service) for name in _PLAIN},
            "GetLiveView": self._live_view,
            "MergeEdgeTombstones": self._edge_tombstones,
        }
        return {name: partial(_answer_plainly, call) for name, call in calls.items()}

    def _live_view(self, request: pb.LiveViewRequest) -> pb.CausalGraph:
        """Of the whole graph as it is now."""
        gone = self._service.get_tombstones(pb.TombstoneRequest(incident_id=request.incident_id))
        dead, graph = set(gone.node_ids), pb.CausalGraph.FromString(self._service.get_main_graph(Empty()))
        return pb.CausalGraph(nodes=[each for each in graph.nodes if each.id not in dead], edges=graph.edges)

    def _edge_tombstones(self, request: pb.EdgeTombstoneRequest) -> pb.TombstoneMergeResult:
        result = self._service.merge_edge_tombstones(request)
        for named in (result.applied_ids, result.already_tombstoned_ids, result.unmatched_ids):
            named[:] = [each.removeprefix("edge:").replace("|", " -> ") for each in named]
        return result


def _answer_plainly(call: Callable[[Any], Any], request: Any, context: Any) -> Any:
    """Without the fields that only our Tee has."""
    _clear_additions(request)
    answer = _answer(call, request, context)
    _clear_additions(answer)
    return answer


def _clear_additions(message: Any) -> None:
    """Drop the fields whose numbers are those of additions: another Tee does not know them."""
    for name, field in message.DESCRIPTOR.fields_by_name.items():
        if field.number >= _FIRST_ADDITION:
            message.ClearField(name)


class Faults:
    """Calls of our own Tee, without streams that have a twin, of which one fails: before it took effect, or after."""

    def __init__(self, service: TeeService) -> None:
        self._service = service
        self._fail_at: tuple[int, str] | None = None
        self.asked = 0

    def fail(self, call: int, moment: str) -> None:
        """Let the call of this number, counted from here, fail once."""
        self.asked, self._fail_at = 0, (call, moment)

    def calls(self) -> Calls:
        """What to serve."""
        calls = {name: partial(self._fail_or_answer, call.method) for name, call in _UNARY.items()}
        return calls | {name: partial(self._stream, _ALL[name].method) for name in _SINGLE_STREAMS}

    def _stream(self, method: Callable[..., Any], request: Any, context: Any) -> Iterator[Any]:
        self.asked += 1
        if self._fail_at == (self.asked, "before"):
            context.abort(grpc.StatusCode.INTERNAL, "before")
        yield from method(self._service, request)
        if self._fail_at == (self.asked, "after"):
            context.abort(grpc.StatusCode.INTERNAL, "after")

    def _fail_or_answer(self, method: Callable[..., Any], request: Any, context: Any) -> Any:
        self.asked += 1
        if self._fail_at == (self.asked, "before"):
            return context.abort(grpc.StatusCode.INTERNAL, "before")
        try:
            return _answer(partial(method, self._service), request, context)
        finally:
            if self._fail_at == (self.asked, "after"):
                context.abort(grpc.StatusCode.INTERNAL, "after")
