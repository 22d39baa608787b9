"""A channel to a Tee, and graphs through it however large they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc

from cmbs.tee.access import validate_endpoint, validate_token
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.proto.tee_pb2_grpc import TeeStub

A = TypeVar("A", pb.CausalGraph, pb.TombstoneSet)

_OPTIONS = [
    # The server limits the size of its answers.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC's own pauses grow to two minutes: for that long, a Tee that is back would be taken for gone.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


def open_channel(
    endpoint: str,
    *,
    authorities: bytes | None = None,
    identity: tuple[bytes, bytes] | None = None,
    token: str | None = None,
) -> grpc.Channel:
    """A channel to `host:port`. `authorities` (PEM) asks for TLS; a token is sent with every call.

    `identity` is a certificate chain and its private key (PEM), for a Tee that asks its clients for one. Without TLS a
    token is still sent: use it on loopback or inside a network that you trust. InvalidRequest where the address cannot
    be one, or the token cannot be sent.
    """
    endpoint = validate_endpoint(endpoint)
    if authorities is None:
        channel = grpc.insecure_channel(endpoint, _OPTIONS)
    else:
        certificate, key = identity or (None, None)
        credentials = grpc.ssl_channel_credentials(authorities, key, certificate)
        channel = grpc.secure_channel(endpoint, credentials, _OPTIONS)
    return channel if token is None else grpc.intercept_channel(channel, _Token(token))


def stub_on(channel: grpc.Channel) -> TeeStub:
    """The calls of Tee on a channel."""
    return TeeStub(channel)  # type: ignore[no-untyped-call]  # generated


def collect(
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


class _Token(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Sends the token with every call; gRPC's own call credentials need TLS."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {validate_token(token)}")

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        metadata = (*(client_call_details.metadata or ()), self._header)
        return continuation(client_call_details._replace(metadata=metadata), request)

    intercept_unary_stream = intercept_unary_unary
