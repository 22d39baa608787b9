"""The least an ASGI application can do with a JSON body: decode it, encode it again, send it back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

decode = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Echo the body of any request."""
    if scope["type"] != "http":
        return
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    answer = encode(decode(body))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
