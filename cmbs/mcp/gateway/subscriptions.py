"""What clients of a gateway want to hear: log messages, and changes of resources and of lists."""

from __future__ import annotations

import logging
from collections.abc import Callable

import mcp_types
from mcp import MCPError
from mcp.server.subscriptions import ListenHandler

from cmbs.mcp.gateway.callers import Callers
from cmbs.mcp.gateway.clients import Clients, Context, manner_of
from cmbs.mcp.gateway.requests import Requests
from cmbs.mcp.gateway.watches import MAX_WATCHED, Watches
from cmbs.substrate.tools.mcp_connection import LEVELS, Wire
from cmbs.substrate.tools.mcp_connections import Connections

_log = logging.getLogger("cmbs.gateway")


class Subscriptions:
    """The requests of clients to be told of something."""

    def __init__(self, connections: Connections, callers: Callers, clients: Clients, requests: Requests) -> None:
        self._connections = connections
        self._callers = callers
        self._clients = clients
        self._requests = requests
        self._listening = ListenHandler(clients.bus)
        self.watches = Watches(connections)

    async def aclose(self) -> None:
        """End every subscription."""
        self._listening.close()
        await self.watches.aclose()

    async def set_level(self, ctx: Context, params: Wire) -> Wire:
        """Take the lowest level of log messages that a client with a session wants."""
        await self._callers.require(ctx)
        level = str(params.get("level"))
        if level not in LEVELS:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"`level` must be one of {', '.join(LEVELS)}")
        self._clients.client_of(ctx).level = level
        self._connections.want_level(level)
        return {}

    async def subscribe(self, ctx: Context, params: Wire) -> Wire:
        """Who may read a resource may subscribe to it: it is read once, for the policy and the record."""
        uri, client = str(params.get("uri")), self._clients.client_of(ctx)
        if len(client.watched) >= MAX_WATCHED:
            message = f"a client can subscribe to {MAX_WATCHED} resources at once"
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=message)
        upstream = self._requests.find_owner(params)
        if (upstream, uri) not in client.watched:
            await self._requests.read_resource(ctx, {"uri": uri})
            caller = await self._callers.require(ctx)
            # Before the server is asked: a change may be said together with its answer.
            client.watched[upstream, uri] = _do_nothing
            try:
                client.watched[upstream, uri] = await self.watches.add(upstream, caller.agent_id, uri, manner_of(ctx))
            except BaseException:
                client.watched.pop((upstream, uri), None)
                raise
            if client.is_gone:
                client.end()
        return {}

    async def unsubscribe(self, ctx: Context, params: Wire) -> Wire:
        """Take a subscription back; nothing changes where there is none."""
        uri, client = str(params.get("uri")), self._clients.client_of(ctx)
        for upstream, watched in list(client.watched):
            if watched == uri:
                client.watched.pop((upstream, watched))()
        return {}

    async def listen(
        self, ctx: Context, params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        """Serve a client without sessions that listens, until it goes. Of resources, those that it may read."""
        caller = await self._callers.require(ctx)
        wanted = list(dict.fromkeys(params.notifications.resource_subscriptions or []))
        if len(wanted) > MAX_WATCHED:
            message = f"a client can subscribe to {MAX_WATCHED} resources at once"
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=message)
        releases: list[Callable[[], None]] = []
        honoured: list[str] = []
        try:
            for uri in wanted:
                try:
                    await self._requests.read_resource(ctx, {"uri": uri})
                    upstream = self._requests.find_owner({"uri": uri})
                    releases.append(await self.watches.add(upstream, caller.agent_id, uri, manner_of(ctx)))
                except MCPError as exc:
                    _log.info("`%s` is not watched: %s", uri, exc)
                    continue
                honoured.append(uri)
            notifications = params.notifications.model_copy(update={"resource_subscriptions": honoured or None})
            return await self._listening(ctx, params.model_copy(update={"notifications": notifications}))
        finally:
            for release in releases:
                release()


def _do_nothing() -> None:
    """What takes back a subscription that is not made yet."""
