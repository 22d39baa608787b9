"""One request over ASGI, the interface that every asynchronous web server speaks: read, admit, handle, answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeAlias

import msgspec

from cmbs.api.errors import (
    METHOD_NOT_ALLOWED,
    STATUS_OF_CODE,
    UNAUTHENTICATED,
    UNAVAILABLE,
    TransportCode,
    TransportError,
    complete_details,
    status_of,
)
from cmbs.errors import BeliefServerError, InvalidRequest, LimitExceeded, ProviderBroken
from cmbs.http.exchange import NOT_MODIFIED, EventStream, Response, split_query
from cmbs.http.headers import header_lookup
from cmbs.http.router import RouteMatch, method_not_allowed
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.tokens import without_keys

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# So much of a body is read of a caller who has not been admitted.
MAX_UNADMITTED_BODY_BYTES = 65_536
# A body that does not arrive in this time is given up; so is the rest of one that is not needed.
MAX_BODY_SECONDS = 60.0
MAX_DRAIN_SECONDS = 5.0
# A follower that does not take what it is sent in this time is gone.
MAX_SEND_SECONDS = 60.0

_JSON = (b"content-type", b"application/json")
_log = logging.getLogger("cmbs.http")


async def answer(match: RouteMatch, service: Service, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request for a path of the table. Whatever happens, the answer has the protocol's shape.

    Wrong methods, unreadable paths and callers who may not ask are refused before any of the body is read.
    """
    try:
        if scope["method"] not in match.endpoints:
            raise method_not_allowed(scope["method"], sorted(match.endpoints))
        if match.problem:
            raise InvalidRequest(match.problem)
        endpoint = match.endpoints[scope["method"]]
        operation = endpoint.operation
        header = header_lookup(scope["headers"])
        admitted = await service.admit(operation, match.params, header, scope.get("client"))
        body = b"" if operation.body is None else await read_body(scope, receive, service.body_bytes)
        query = split_query(scope.get("query_string", b""))
        gone = partial(_wait_until_gone, receive)
        response = await service.answer(endpoint, admitted, query, header, body, gone)
        if isinstance(response, EventStream):
            await _send_events(response, gone(), scope, send)
            return
    except Exception as exc:  # noqa: BLE001 - the last place that can still answer
        response = response_to(exc)
    await send_response(response, send)


async def _send_events(stream: EventStream, gone: Awaitable[None], scope: Scope, send: Send) -> None:
    """Send an answer that goes on, until its end, or until the caller is gone or takes nothing any more."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in stream.headers]
    leaving = asyncio.ensure_future(gone)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] != "HEAD":
            async with aclosing(stream.body.chunks(leaving)) as chunks:
                async for chunk in chunks:
                    async with asyncio.timeout(MAX_SEND_SECONDS):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if not leaving.done():
            await send({"type": "http.response.body", "body": b""})
    except TimeoutError:
        _log.info("a follower took nothing for %d seconds, and is let go", MAX_SEND_SECONDS)
    except Exception:  # noqa: BLE001 - the status is sent: all that is left is to end the answer
        _log.exception("a stream ended by an unexpected failure")
    finally:
        leaving.cancel()
        stream.body.close()


async def _wait_until_gone(receive: Receive) -> None:
    """Return when the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(scope: Scope, receive: Receive, limit: int, limit_name: str = "body_bytes") -> bytes:
    """The whole body; LimitExceeded as soon as it is known to be too large."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise LimitExceeded(limit_name, limit, int(value))
    chunks: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(MAX_BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise InvalidRequest("the body ended before it was complete")
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > limit:
                    raise LimitExceeded(limit_name, limit, size)
                more = message.get("more_body", False)
    except TimeoutError as exc:
        raise TransportError(TransportCode.REQUEST_TIMEOUT, "the body did not arrive in time") from exc
    return b"".join(chunks)


class BoundedBody:
    """The body of a request, whichever code reads it, and what becomes of the part that is not read.

    Up to `MAX_UNADMITTED_BODY_BYTES` come from any caller. Beyond, the caller must be one whom the gate admits.
    """

    def __init__(self, gate: Gate, body_bytes: int, scope: Scope, receive: Receive, send: Send) -> None:
        self._gate = gate
        self._limit = body_bytes
        self._scope = scope
        self._receive = receive
        self._send = send
        self._size = 0
        self._is_over = False

    async def receive(self) -> MutableMapping[str, Any]:
        """The next message of the server; an error where there is more than this caller may send."""
        before = self._size
        message = await self._receive()
        self._size += len(message.get("body", b""))
        self._is_over = not message.get("more_body", False)
        if before <= MAX_UNADMITTED_BODY_BYTES < self._size:
            await self._gate.admit(header_lookup(self._scope["headers"]), self._scope.get("client"), None)
        if self._size > self._limit:
            raise LimitExceeded("body_bytes", self._limit, self._size)
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send, once the rest of a small body has been read and dropped.

        A server that answers before it has all of a request closes the connection, and with it goes the next request.
        """
        if message["type"] == "http.response.start" and not self._is_over and self._is_small():
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_DRAIN_SECONDS):
                    while not self._is_over and self._size <= MAX_UNADMITTED_BODY_BYTES:
                        rest = await self._receive()
                        self._size += len(rest.get("body", b""))
                        self._is_over = not rest.get("more_body", False)
        elif message["type"] == "http.response.body" and self._scope["method"] == "HEAD":
            # The framework sends the body of GET, and not every server leaves it out.
            message = {**message, "body": b""}
        await self._send(message)

    def _is_small(self) -> bool:
        """Whether there is a body, small as far as is known, that the caller sends without being asked to."""
        headers = dict(self._scope["headers"])
        if b"expect" in headers:
            return False
        length = headers.get(b"content-length", b"")
        return b"transfer-encoding" in headers or (
            length.isdigit() and int(length) <= min(MAX_UNADMITTED_BODY_BYTES, self._limit)
        )


async def send_response(response: Response, send: Send) -> None:
    """Send a response; in JSON, where it does not say what else it is."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in response.headers]
    if response.status != NOT_MODIFIED:
        if not any(name == b"content-type" for name, _ in headers):
            headers.append(_JSON)
        headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def response_to(exc: Exception) -> Response:
    """The error model for any exception; one that is not ours is logged whole and described in general terms."""
    if isinstance(exc, (BeliefServerError, TransportError)):
        status = status_of(exc)
        headers: list[tuple[str, str]] = []
        if status == METHOD_NOT_ALLOWED:
            headers.append(("allow", ", ".join(exc.details.get("allowed", []))))
        elif status == UNAUTHENTICATED:
            headers.append(("www-authenticate", 'Bearer realm="cmbs"'))
        elif status == UNAVAILABLE:
            headers.append(("retry-after", "1"))
        if isinstance(exc, ProviderBroken):
            # What the provider raised is in the log alone.
            _log.error("%s", exc.message, exc_info=exc)
        return Response(status, error_body(exc.code, exc.message, exc.details), headers)
    _log.error("unexpected failure", exc_info=exc)
    code = TransportCode.INTERNAL_ERROR
    return Response(STATUS_OF_CODE[code], error_body(code, "the server failed; nothing is known to have changed", None))


def error_body(code: str, message: str, details: dict[str, Any] | None) -> bytes:
    """The error model of the protocol. What it says back of a request never holds a key."""
    completed = complete_details(code, details or {})
    return without_keys(msgspec.json.encode({"error": {"code": code, "message": message, "details": completed}}))
