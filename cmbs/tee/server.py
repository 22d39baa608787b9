"""Tee over gRPC: the calls of `TeeService` on an asyncio server, with reflection, health, TLS, tokens and deadlines."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import grpc
import msgspec
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cmbs.errors import GraphTooLarge, GraphUnavailable, IncidentNotFound, InvalidGraph, TeeError
from cmbs.refusals import Refusal
from cmbs.tee.access import MAX_REFUSAL_BYTES, REFUSAL_KEY, validate_token
from cmbs.tee.kernel.store import GraphStore
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.service import DEFAULT_MESSAGE_BYTES, TeeService
from cmbs.tee.tokens import Token, tokens_of

SERVICE = "tee.Tee"
_HEALTH = "/grpc.health.v1.Health/"
_THREADS = 8
_LOG = logging.getLogger("cmbs.tee")

STATUS_OF: dict[type[TeeError], grpc.StatusCode] = {
    InvalidGraph: grpc.StatusCode.INVALID_ARGUMENT,
    GraphTooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    IncidentNotFound: grpc.StatusCode.NOT_FOUND,
    GraphUnavailable: grpc.StatusCode.UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM texts. With `client_authorities`, only clients with a certificate that these signed can connect."""

    certificate: bytes
    private_key: bytes
    client_authorities: bytes | None = None


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How Tee is served. `token`: what callers must send as `authorization: Bearer …`; health checks need none.

    A file of tokens lets in who has any of them.
    """

    host: str = "127.0.0.1"
    port: int = 50051
    tls: Tls | None = None
    token: Token | None = None
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES
    max_seconds: float = 60.0
    # Beyond, calls are refused as RESOURCE_EXHAUSTED: nothing was done, and they may be repeated.
    max_calls: int = 256


class Call(NamedTuple):
    """A call of the service. A method that answers with a graph returns bytes, any other a message."""

    name: str
    method: Callable[[TeeService, Any], Any]
    request: type[Message]
    streams: bool = False
    writes: bool = False


CALLS = (
    Call("MergeHypothesis", TeeService.merge_hypothesis, pb.HypothesisDelta, writes=True),
    Call("CreateIncident", TeeService.create_incident, pb.CreateIncidentRequest, writes=True),
    Call("GetIncidentContext", TeeService.get_incident_context, pb.IncidentContextRequest),
    Call("MergeNodeTombstones", TeeService.merge_node_tombstones, pb.NodeTombstoneRequest, writes=True),
    Call("MergeEdgeTombstones", TeeService.merge_edge_tombstones, pb.EdgeTombstoneRequest, writes=True),
    Call("GetLiveView", TeeService.get_live_view, pb.LiveViewRequest),
    Call("GetTombstones", TeeService.get_tombstones, pb.TombstoneRequest),
    Call("GetMainGraph", TeeService.get_main_graph, Empty),
    Call("StreamMainGraph", TeeService.stream_main_graph, Empty, streams=True),
    Call("StreamLiveView", TeeService.stream_live_view, pb.LiveViewRequest, streams=True),
    Call("StreamTombstones", TeeService.stream_tombstones, pb.TombstoneRequest, streams=True),
    Call("StreamGraphAt", TeeService.stream_graph_at, pb.GraphAtRequest, streams=True),
    Call("StreamUniverse", TeeService.stream_universe, pb.TombstoneRequest, streams=True),
    Call("Explain", TeeService.explain, pb.ExplainRequest),
    Call("Impact", TeeService.impact, pb.ImpactRequest),
    Call("ListGraph", TeeService.list_graph, pb.ListGraphRequest),
    Call("GetIdentity", TeeService.get_identity, Empty),
    Call("StandInFor", TeeService.stand_in_for, pb.StandInRequest, writes=True),
    Call("StreamTombstoneGroups", TeeService.stream_tombstone_groups, pb.TombstoneRequest, streams=True),
)


class TeeServer:
    """A Tee that listens. `port` is the one it got, where 0 was asked for."""

    def __init__(self, store: GraphStore, options: ServerOptions) -> None:
        self._options = options
        self._service = TeeService(store, max_message_bytes=options.max_message_bytes)
        # Two pools: writes may all wait for other processes, and reads should not wait with them.
        self._reading = ThreadPoolExecutor(_THREADS, thread_name_prefix="tee-reads")
        self._writing = ThreadPoolExecutor(_THREADS, thread_name_prefix="tee-writes")
        self._health = health.aio.HealthServicer()
        self.port = options.port

    async def start(self) -> None:
        """Listen; GraphUnavailable where the address is taken, InvalidRequest for a token that a call cannot carry."""
        options = self._options
        self._server = grpc.aio.server(
            interceptors=[] if options.token is None else [_TokenCheck(options.token)],
            maximum_concurrent_rpcs=options.max_calls,
            options=[
                ("grpc.max_receive_message_length", options.max_message_bytes),
                ("grpc.max_send_message_length", -1),
                # Two servers on one port would each get some of the calls.
                ("grpc.so_reuseport", 0),
            ],
        )
        handlers = {call.name: self._handler(call) for call in CALLS}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        address = f"[{options.host}]:{options.port}" if ":" in options.host else f"{options.host}:{options.port}"
        try:
            self.port = self._listen(address)
        except RuntimeError as exc:
            step = "stop what listens there, or choose another port"
            raise GraphUnavailable(f"cannot listen on `{address}`", {"next": step}) from exc
        await self._server.start()
        for name in ("", SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    def _listen(self, address: str) -> int:
        tls = self._options.tls
        if tls is None:
            return self._server.add_insecure_port(address)
        credentials = grpc.ssl_server_credentials(
            [(tls.private_key, tls.certificate)], tls.client_authorities, tls.client_authorities is not None
        )
        return self._server.add_secure_port(address, credentials)

    async def stop(self, grace: float) -> None:
        """Take no new calls, let those under way finish for `grace` seconds, and end."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)
        for threads in (self._reading, self._writing):
            threads.shutdown(wait=False, cancel_futures=True)

    def _handler(self, call: Call) -> grpc.RpcMethodHandler[Any, Any]:
        threads = self._writing if call.writes else self._reading

        def run(work: Callable[[], Any]) -> Awaitable[Any]:
            return asyncio.get_running_loop().run_in_executor(threads, work)

        async def answer(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            async with self._deadline(context):
                return await run(lambda: call.method(self._service, _read(call, request)))

        async def stream(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            parts: Iterator[Any] = iter(())
            async with self._deadline(context):
                try:
                    parts = await run(lambda: call.method(self._service, _read(call, request)))
                    while (part := await run(lambda: next(parts, None))) is not None:
                        await context.write(part)
                finally:
                    # The status waits until the reader takes it; the view is let go of before.
                    parts = iter(())

        # Requests come as bytes, so that what cannot be read is refused in the words of `_read`.
        if call.streams:
            return grpc.unary_stream_rpc_method_handler(stream, None, _serialise)
        return grpc.unary_unary_rpc_method_handler(answer, None, _serialise)

    @asynccontextmanager
    async def _deadline(self, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
        """Bound a call by the caller's deadline and `max_seconds`, and answer failures with their status."""
        # The type information does not say so, but a call need not have a deadline.
        remaining: Any = context.time_remaining()
        limit = self._options.max_seconds if remaining is None else min(remaining, self._options.max_seconds)
        try:
            async with asyncio.timeout(limit):
                yield
        except TeeError as exc:
            await _abort(context, STATUS_OF[type(exc)], exc.message, **exc.details)
        except TimeoutError:
            message = f"no answer within {limit:.3g} seconds"
            step = "ask for less, or allow more time"
            await _abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, message, accepted={"maximum": limit}, next=step)
        except Exception:  # noqa: BLE001 - logged whole, and answered
            _LOG.exception("a call failed")
            step = "look into the log of the server"
            await _abort(context, grpc.StatusCode.INTERNAL, "the server failed", next=step)


async def _abort(
    context: grpc.aio.ServicerContext[Any, Any], status: grpc.StatusCode, message: str, **details: Any
) -> None:
    """End a call with its status, a sentence, and the same in fields: JSON of a `Refusal` in the trailing metadata."""
    refusal = msgspec.convert({**details, "code": status.name, "message": message}, Refusal)
    data = msgspec.json.encode(refusal)
    if len(data) > MAX_REFUSAL_BYTES:
        data = msgspec.json.encode(msgspec.structs.replace(refusal, faults=(), found=None))
    await context.abort(status, refusal.sentence, ((REFUSAL_KEY, data),))


def _read(call: Call, request: bytes) -> Message:
    try:
        return call.request.FromString(request)
    except DecodeError as exc:
        name = call.request.DESCRIPTOR.full_name
        raise InvalidGraph(f"the request is not a `{name}` message", {"field": "request", "accepted": name}) from exc


def _serialise(answer: Any) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


class _TokenCheck(grpc.aio.ServerInterceptor):
    """Refuses calls without the token; health checks need none, for probes that cannot send one."""

    def __init__(self, token: Token) -> None:
        self._token = token
        for each in tokens_of(token):
            validate_token(each)

        async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            field, step = "authorization", "send the token of this Tee as `authorization: Bearer …`"
            status = grpc.StatusCode.UNAUTHENTICATED
            await _abort(context, status, "this Tee asks for a token", field=field, next=step)

        self._refusal: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(refuse)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The call itself, or a refusal."""
        method: Any = handler_call_details.method
        offered = dict(handler_call_details.invocation_metadata).get("authorization", "")
        raw = offered if isinstance(offered, bytes) else offered.encode()
        # All of them are compared, so that the time tells nothing of which one was near.
        known = [hmac.compare_digest(raw, f"Bearer {each}".encode()) for each in tokens_of(self._token)]
        if method.startswith(_HEALTH) or any(known):
            return await continuation(handler_call_details)
        return self._refusal
