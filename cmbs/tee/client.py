"""A channel to a Tee, and graphs through it however large they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc

from cmbs.tee.access import checked_endpoint, checked_token
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.proto.tee_pb2_grpc import TeeStub

DEFAULT_ENDPOINT = "127.0.0.1:50051"
A = TypeVar("A", pb.CausalGraph, pb.TombstoneSet)

# gRPC's own pauses grow to two minutes: for that long, a Tee that is back would be taken for gone.
_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


def open_channel(endpoint: str, *, authorities: bytes | None = None, token: str | None = None) -> grpc.Channel:
    """A channel to `host:port`. `authorities` (PEM) asks for TLS; with it, a token travels in every call.

    Without TLS a token is still sent: use it on loopback or inside a network that you trust. InvalidRequest where the
    address cannot be one, or the token cannot be sent.
    """
    endpoint = checked_endpoint(endpoint)
    # The server has the say on the size of its answers.
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), *_RECONNECT]
    if authorities is None:
        channel = grpc.insecure_channel(endpoint, options)
    else:
        channel = grpc.secure_channel(endpoint, grpc.ssl_channel_credentials(authorities), options)
    return channel if token is None else grpc.intercept_channel(channel, _Token(token))


def stub_on(channel: grpc.Channel) -> TeeStub:
    """The calls of Tee on a channel."""
    return TeeStub(channel)  # type: ignore[no-untyped-call]  # generated


def collected(
    stream: Callable[..., Iterator[A]], whole: Callable[..., A], request: Any, *, timeout: float | None = None
) -> A:
    """The answer to a call that has a streaming twin: by the stream, or in one message from a Tee that has no streams.

    The parts are merged as messages are, so that the answer is the same either way.
    """
    try:
        parts = stream(request, timeout=timeout)
        answer = next(parts)
        for part in parts:
            answer.MergeFrom(part)
    except grpc.RpcError as exc:
        if exc.code() is grpc.StatusCode.UNIMPLEMENTED:
            return whole(request, timeout=timeout)
        raise
    else:
        return answer


class _Details(grpc.ClientCallDetails):
    """The details of a call with more metadata."""

    def __init__(self, details: Any, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = metadata
        self.credentials = details.credentials
        self.wait_for_ready = details.wait_for_ready
        self.compression = details.compression


class _Token(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Sends the token with every call."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {checked_token(token)}")

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def _with_token(self, details: Any) -> _Details:
        return _Details(details, (*(details.metadata or ()), self._header))
