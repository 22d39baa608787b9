"""The routes over ASGI, the interface that every asynchronous web server speaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from cmbs.errors import LimitExceeded
from cmbs.http.exchange import Request, Response, cut_off
from cmbs.http.headers import Headers
from cmbs.http.router import Found, response_to
from cmbs.identity import Gate
from cmbs.identity.kernel.model import ANONYMOUS

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = (b"content-type", b"application/json")


async def answer(found: Found, gate: Gate, body_bytes: int, scope: Scope, receive: Receive, send: Send) -> None:
    """Carry out a request on a path of the table. Whatever happens, the answer has the protocol's shape.

    Strangers are turned away before their bodies are read.
    """
    try:
        handler, needed = found.handler(scope["method"])
        header = Headers(scope["headers"]).value
        actor = ANONYMOUS
        if needed is not None:
            if not gate.is_current:
                await gate.catch_up()
            client = scope.get("client")
            actor = gate.admit(header, client[0] if client else None, needed)
        body = await _read_body(scope, receive, body_bytes)
        query_string: bytes = scope.get("query_string", b"")
        response = await handler(Request(found.params, body, query_string, header, actor))
    except Exception as exc:  # noqa: BLE001 - the last place that can still answer
        response = response_to(exc)
    await _send(response, send, with_body=scope["method"] != "HEAD")


async def _send(response: Response, send: Send, *, with_body: bool) -> None:
    headers = [_JSON, (b"content-length", b"%d" % len(response.body))]
    headers += [(name.encode(), value.encode("latin-1")) for name, value in response.headers]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body if with_body else b""})


async def _read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body. LimitExceeded as soon as it is known to be too large."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise LimitExceeded("body_bytes", limit, int(value))
    message = await receive()
    if message["type"] == "http.disconnect":
        raise cut_off()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limit:
            raise LimitExceeded("body_bytes", limit, len(body))
        return body
    chunks, size = [body], len(body)
    while message.get("more_body", False):
        if size > limit:
            raise LimitExceeded("body_bytes", limit, size)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise cut_off()
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
    if size > limit:
        raise LimitExceeded("body_bytes", limit, size)
    return b"".join(chunks)
