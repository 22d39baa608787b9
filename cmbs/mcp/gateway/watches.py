"""Subscriptions to resources of upstreams: one to each resource, for all clients that asked for it.

A subscription that breaks off is made again while a client wants it; what changed meanwhile is announced as a change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import mcp_types
from mcp import MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

from cmbs.substrate.tools.mcp_connection import Connection, Manner, UpstreamBroke, UpstreamFailed
from cmbs.substrate.tools.mcp_connections import Connections

_log = logging.getLogger("cmbs.gateway")
MAX_WATCHED = 50
_MAX_WATCHES = 1_000
_RETRY_SECONDS = 5.0
_READY_SECONDS = 10.0
_FAILURES = (UpstreamFailed, UpstreamBroke, MCPError, SubscriptionLost, ListenNotSupportedError, TimeoutError)


class _Watch:
    """One resource of one server, as it is reached by one actor."""

    def __init__(self, connections: Connections, upstream: str, agent_id: str, uri: str, manner: Manner) -> None:
        self._connections = connections
        self._upstream = upstream
        self._agent_id = agent_id
        self._uri = uri
        self._manner = manner
        self._connection: Connection | None = None
        self.wanted = 0
        self.ready = asyncio.Event()
        self.failure: Exception | None = None
        self.task = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            try:
                self._connection = await self._connections.reach(
                    self._upstream, self._agent_id, self._manner, _READY_SECONDS
                )
                await self._connection.watch(self._uri, self._begin)
            except _FAILURES as exc:
                if not self.ready.is_set():
                    self.failure = exc
                    self.ready.set()
                    return
                _log.info("`%s` is not watched for a while: %s", self._uri, exc)
            await asyncio.sleep(_RETRY_SECONDS)

    def _begin(self) -> None:
        if self.ready.is_set():
            self._connections.on_resource_updated(self._upstream, self._uri)
        self.ready.set()

    async def end(self) -> None:
        """Take the subscription back."""
        self.task.cancel()
        await asyncio.wait({self.task})
        if self._connection is not None:
            await self._connection.unwatch(self._uri)


class Watches:
    """The subscriptions of a gateway at its upstreams."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._watches: dict[tuple[str, str, Manner, str], _Watch] = {}

    async def add(self, upstream: str, agent_id: str, uri: str, manner: Manner) -> Callable[[], None]:
        """Watch a resource for one more client; gives what takes it back. MCPError where the server refuses."""
        own = agent_id if self._connections.config.server_for(upstream, agent_id)[1] else ""
        key = (upstream, own, manner, uri)
        watch = self._watches.get(key)
        if watch is None:
            if len(self._watches) >= _MAX_WATCHES:
                message = f"the gateway watches {_MAX_WATCHES} resources at once; subscribe later"
                raise MCPError(code=mcp_types.INVALID_REQUEST, message=message)
            watch = self._watches[key] = _Watch(self._connections, upstream, agent_id, uri, manner)
        watch.wanted += 1
        try:
            await watch.ready.wait()
        except asyncio.CancelledError:
            self._release(key, watch)
            raise
        if watch.failure is not None:
            self._release(key, watch)
            if isinstance(watch.failure, MCPError):
                raise watch.failure
            raise MCPError(code=mcp_types.INTERNAL_ERROR, message=str(watch.failure))
        return lambda: self._release(key, watch)

    def find(self, upstream: str, uri: str) -> set[str]:
        """The watched resources that a change of this one is a change of: itself, and what it is in."""
        watched = {key[3] for key in self._watches if key[0] == upstream}
        return {each for each in watched if uri == each or uri.startswith(each.rstrip("/") + "/")}

    def _release(self, key: tuple[str, str, Manner, str], watch: _Watch) -> None:
        watch.wanted -= 1
        if watch.wanted == 0 and self._watches.get(key) is watch:
            del self._watches[key]
            self._ending = asyncio.ensure_future(watch.end())

    async def aclose(self) -> None:
        """End every subscription, without a word to the servers: their connections end next."""
        tasks = [watch.task for watch in self._watches.values()]
        self._watches.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
