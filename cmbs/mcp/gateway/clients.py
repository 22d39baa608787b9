"""The clients of a gateway: those of the protocol with sessions, which are kept in mind, and the listener of a call.

A client without sessions says in each request what it wants to hear, and listens for changes by a request of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

import anyio
import mcp_types
from mcp import MCPError
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from cmbs.substrate.tools.mcp_connection import LEVELS, Manner, Wire, WireResult

Context = ServerRequestContext[Any, Any]
List = Literal["tools", "prompts", "resources"]

_SEND_SECONDS = 5.0
_MOMENT_SECONDS = 0.05
# What a server may ask of a client.
_QUESTIONS: dict[str, TypeAdapter[Any]] = {
    "elicitation/create": TypeAdapter(mcp_types.ElicitRequest),
    "sampling/createMessage": TypeAdapter(mcp_types.CreateMessageRequest),
}
_NOTIFICATIONS: dict[str, TypeAdapter[Any]] = {
    "notifications/message": TypeAdapter(mcp_types.LoggingMessageNotification),
    "notifications/elicitation/complete": TypeAdapter(mcp_types.ElicitCompleteNotification),
}
_EVENTS: dict[List, ServerEvent] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}


def is_modern(ctx: Context) -> bool:
    """Whether a request is of the protocol without sessions."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def manner_of(ctx: Context) -> Manner:
    """How servers are spoken to for a client."""
    declared = ctx.session.client_capabilities
    return Manner(older=not is_modern(ctx), samples=declared is not None and declared.sampling is not None)


class ConnectedClient:
    """A client of the protocol with sessions, for as long as its session lasts."""

    def __init__(self, session: ServerSession) -> None:
        # For messages that belong to no request.
        self.session = session
        # The lowest level of log messages that it wants; None where it never said.
        self.level: str | None = None
        # The resources that it subscribed to, by server and URI, each with what takes the subscription back.
        self.watched: dict[tuple[str, str], Callable[[], None]] = {}
        self.is_gone = False

    def end(self) -> None:
        """Take back what it subscribed to."""
        self.is_gone = True
        for release in self.watched.values():
            release()
        self.watched.clear()

    def wants_level(self, level: str) -> bool:
        """Whether it wants log messages of this level."""
        return self.level is None or LEVELS.index(level) >= LEVELS.index(self.level)


class Clients:
    """The clients that are there, to be notified."""

    def __init__(self) -> None:
        self._connected: dict[Connection, ConnectedClient] = {}
        self._announcing: set[str] = set()
        # Of clients without sessions: those that listen.
        self.bus = InMemorySubscriptionBus()

    def client_of(self, ctx: Context) -> ConnectedClient:
        """The client of a request of the protocol with sessions."""
        connection = ctx.session._connection  # noqa: SLF001 - the SDK has no other name for what a session is
        known = self._connected.get(connection)
        if known is None:
            known = self._connected[connection] = ConnectedClient(ctx.session)
            connection.exit_stack.callback(self._forget, connection)
        return known

    def _forget(self, connection: Connection) -> None:
        self._connected.pop(connection).end()

    async def announce(self, changed: List) -> None:
        """Have every client know that a list is another now; once for what changes within a moment."""
        if not await self._is_first(changed):
            return
        await self.bus.publish(_EVENTS[changed])
        sessions = [each.session for each in self._connected.values()]
        match changed:
            case "tools":
                sent = [session.send_tool_list_changed() for session in sessions]
            case "prompts":
                sent = [session.send_prompt_list_changed() for session in sessions]
            case _:
                sent = [session.send_resource_list_changed() for session in sessions]
        await asyncio.gather(*map(_send, sent))

    async def announce_resource(self, upstream: str, watched: str, uri: str) -> None:
        """Have those who subscribed to a resource know that it changed, or what is below it."""
        if not await self._is_first(f"{upstream} {watched}"):
            return
        await self.bus.publish(ResourceUpdated(watched))
        sessions = [each.session for each in self._connected.values() if (upstream, watched) in each.watched]
        await asyncio.gather(*(_send(session.send_resource_updated(uri)) for session in sessions))

    async def _is_first(self, change: str) -> bool:
        """Whether this is not about to be announced already; returns after a moment."""
        if change in self._announcing:
            return False
        self._announcing.add(change)
        await asyncio.sleep(_MOMENT_SECONDS)
        self._announcing.discard(change)
        return True


async def _send(sending: Any) -> None:
    """One message that takes no answer; a client that does not read, or is gone, holds up no other."""
    with suppress(Exception), anyio.move_on_after(_SEND_SECONDS):
        await sending


class ClientOfCall:
    """The client that waits for one call, by the request that brought it."""

    def __init__(self, ctx: Context, client: ConnectedClient | None) -> None:
        self._ctx = ctx
        self._client = client
        self.modern = client is None
        declared = ctx.session.client_capabilities
        elicitation = None if declared is None else declared.elicitation
        self.takes_urls = elicitation is not None and elicitation.url is not None

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """See `Listener.progress`."""
        await self._ctx.session.report_progress(progress, total, message)

    async def ask(self, method: str, params: Wire) -> Wire:
        """See `Listener.ask`."""
        if self.modern:
            raise MCPError(
                code=mcp_types.INVALID_REQUEST,
                message="the server asks in the middle of a call, which clients of this version do not answer",
            )
        if method not in _QUESTIONS:
            raise MCPError(code=mcp_types.METHOD_NOT_FOUND, message=f"clients are not asked `{method}`")
        request = _QUESTIONS[method].validate_python({"method": method, "params": params}, by_name=False)
        metadata = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        answer = await self._ctx.session.send_request(request, WireResult, metadata=metadata)
        return answer.model_extra or {}

    async def notify(self, method: str, params: Wire) -> None:
        """See `Listener.notify`."""
        if method == "notifications/message" and not self._wants_log(params):
            return
        notification = _NOTIFICATIONS[method].validate_python({"method": method, "params": params}, by_name=False)
        await self._ctx.session.send_notification(notification, related_request_id=self._ctx.request_id)

    def _wants_log(self, params: Mapping[str, Any]) -> bool:
        level = str(params.get("level"))
        if self._client is None:
            return level in allowed_log_levels(self._ctx.protocol_version, self._ctx.meta)
        return level in LEVELS and self._client.wants_level(level)
