"""Bodies of requests over MCP: read whole before the SDK is asked, which refuses large ones in words of its own."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from starlette.types import ASGIApp

from cmbs.api.errors import TransportError
from cmbs.errors import BeliefServerError, LimitExceeded
from cmbs.http.asgi import MAX_BODY_SECONDS, Receive, Scope, Send, read_body, response_to, send_response

# That of the SDK, which decodes a message on the event loop: a larger one would hold up all others.
MAX_MESSAGE_BYTES = DEFAULT_MAX_REQUEST_BODY_SIZE
_LIMIT = "mcp_message_bytes"
# So much of a body that is refused is read and dropped: a caller that is still sending sees no answer before its end.
_MAX_DRAINED_BYTES = 67_108_864


class BoundedMessages:
    """An application of MCP that is given whole bodies, and none that is too large."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, MAX_MESSAGE_BYTES, _LIMIT)
        except (BeliefServerError, TransportError) as exc:
            if exc.details.get("limit") == _LIMIT:
                exc.details["next"] = "send less in one message: this limit is fixed"
                if exc.details["actual"] <= _MAX_DRAINED_BYTES:
                    await _drain(scope, receive)
            await send_response(response_to(exc), send)
            return
        whole = iter([{"type": "http.request", "body": body}])

        async def replay() -> MutableMapping[str, Any]:
            for message in whole:
                return message
            return await receive()

        await self._app(scope, replay, send)


async def _drain(scope: Scope, receive: Receive) -> None:
    """Drop the rest of a body that is being sent, within bounds; a caller that asks first sends none."""
    if b"expect" in dict(scope["headers"]):
        return
    size, more = 0, True
    with suppress(TimeoutError, LimitExceeded):
        async with asyncio.timeout(MAX_BODY_SECONDS):
            while more and size < _MAX_DRAINED_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                more = message.get("more_body", False)
