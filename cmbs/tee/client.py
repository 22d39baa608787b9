"""A channel to a Tee, and graphs through it however large they are."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
import msgspec

from cmbs.errors import InvalidRequest
from cmbs.refusals import Refusal
from cmbs.tee.access import REFUSAL_KEY, validate_endpoint, validate_token
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.proto.tee_pb2_grpc import TeeStub
from cmbs.tee.tokens import Token, tokens_of

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
    token: Token | None = None,
) -> grpc.Channel:
    """A channel to `host:port`. `authorities` (PEM) asks for TLS. A token is sent with every call.

    `identity` is a certificate chain and its private key (PEM), for a Tee that asks its clients for one. Without TLS a
    token is still sent: use it on loopback or inside a network that you trust. InvalidRequest where the address cannot
    be one, or the token cannot be sent.
    """
    endpoint = validate_endpoint(endpoint)
    if authorities is None:
        channel = grpc.insecure_channel(endpoint, _OPTIONS)
    else:
        _check_authorities(authorities)
        certificate, key = identity or (None, None)
        credentials = grpc.ssl_channel_credentials(authorities, key, certificate)
        channel = grpc.secure_channel(endpoint, credentials, _OPTIONS)
    return channel if token is None else grpc.intercept_channel(channel, _Token(token))


def _check_authorities(authorities: bytes) -> None:
    """InvalidRequest for what holds no certificate: gRPC would say only that it cannot connect."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authorities.decode("ascii"))
    except (ssl.SSLError, ValueError) as exc:
        raise InvalidRequest(
            "the authorities of Tee have no certificate in PEM", {"next": "look into the file of `--ca` or `--tee-ca`"}
        ) from exc


def stub_on(channel: grpc.Channel) -> TeeStub:
    """The calls of Tee on a channel."""
    return TeeStub(channel)  # type: ignore[no-untyped-call]  # generated


def find_refusal(error: grpc.RpcError) -> Refusal | None:
    """What a Tee says of a call that it refused, in fields; None from one that does not say, or that did not answer."""
    metadata: Any = getattr(error, "trailing_metadata", tuple)()
    for name, value in metadata or ():
        if name == REFUSAL_KEY:
            try:
                return msgspec.json.decode(value, type=Refusal)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return None
    return None


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

    def __init__(self, token: Token) -> None:
        self._token = token
        validate_token(tokens_of(token)[0])

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        header = ("authorization", f"Bearer {tokens_of(self._token)[0]}")
        metadata = (*(client_call_details.metadata or ()), header)
        return continuation(client_call_details._replace(metadata=metadata), request)

    intercept_unary_stream = intercept_unary_unary
