"""Connections to upstream servers: opened when one is needed, kept, and opened again after they broke."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

from mcp.client.streamable_http import streamable_http_client

from cmbs.substrate.tools.credentials import Credentials
from cmbs.substrate.tools.mcp_connection import LEVELS, NEWEST, Connection, Manner, OpenTarget, UpstreamFailed
from cmbs.substrate.tools.mcp_http import build_http_client
from cmbs.substrate.tools.mcp_servers import MESSAGE_BYTES, HttpServer, McpServer, McpServers, StdioServer
from cmbs.substrate.tools.mcp_stdio import StdioProgram


async def open_server(
    server: McpServer, values: dict[str, str], stack: AsyncExitStack, tls: ssl.SSLContext | None = None
) -> Any:
    """The program of a server on standard streams, or a connection to a URL."""
    if isinstance(server, StdioServer):
        return StdioProgram(server.command, values, server.cwd, server.max_message_bytes)
    client = await stack.enter_async_context(build_http_client(values, tls))
    # What a stream of the server's own may say at once; of answers, the client sees to it.
    return streamable_http_client(server.url, http_client=client, max_sse_event_size=2 * MESSAGE_BYTES)


class _Key(NamedTuple):
    name: str
    # Of an actor with credentials of its own; None for the connection that the others share.
    actor_id: str | None
    manner: Manner


class Connections:
    """The connections to servers, of a gateway or of a server that runs tools; all on one event loop.

    One to each server for each manner in which clients speak, opened by the first that does. An actor with credentials
    of its own at a server has connections of its own.
    """

    def __init__(
        self,
        config: McpServers,
        environment: Mapping[str, str],
        open_target: OpenTarget | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`open_target` gives what the SDK connects to; by default the program or the URL that a server names.

        `tls` says whom to trust over HTTP.
        """
        self.config = config
        self.credentials = Credentials(environment, config.variables())
        self._open_target = open_target or partial(open_server, tls=tls)
        self._open: dict[_Key, Connection] = {}
        # Of which requests may still be under way, though they take no more.
        self._retired: set[Connection] = set()
        # The lowest level of log messages that a client asked for.
        self._level: str | None = None
        self.on_list_changed: Callable[[str, str], None] = lambda _, __: None
        self.on_resource_updated: Callable[[str, str], None] = lambda _, __: None

    def connection(self, name: str, actor_id: str = "", manner: Manner = NEWEST) -> Connection:
        """The connection by which an actor reaches a server; a new one where there is none that is good."""
        own = actor_id if self.config.server_for(name, actor_id)[1] else None
        key = _Key(name, own, manner)
        known = self._find(key)
        if known is None and manner.older:
            newest = self._find(key._replace(manner=manner._replace(older=False)))
            # Where it speaks nothing newer, or is still being asked.
            known = newest if newest is not None and not newest.modern else None
        return known or self._make(key)

    def want_level(self, level: str) -> None:
        """Have servers with sessions say what is of this level too, from the next call on."""
        if self._level is None or LEVELS.index(level) < LEVELS.index(self._level):
            self._level = level

    async def reach(self, name: str, actor_id: str, manner: Manner, seconds: float) -> Connection:
        """The connection, once it is ready; UpstreamFailed where it is not in time, and nothing was sent."""
        connection = self.connection(name, actor_id, manner)
        try:
            async with asyncio.timeout(seconds):
                await connection.wait_ready()
                if manner.older and connection.modern:
                    connection = self.connection(name, actor_id, manner)
                    await connection.wait_ready()
                if self._level is not None:
                    await connection.set_level(self._level)
        except TimeoutError as exc:
            raise UpstreamFailed(f"{connection.where} was not ready within {seconds:g} s") from exc
        return connection

    def _find(self, key: _Key) -> Connection | None:
        known = self._open.get(key)
        return known if known is not None and known.good else None

    def _make(self, key: _Key) -> Connection:
        broken = self._open.pop(key, None)
        if broken is not None:
            broken.retire()
            self._retired = {each for each in self._retired | {broken} if not each.has_ended}
        server, _ = self.config.server_for(key.name, key.actor_id or "")
        made = Connection(key.name, server, self._values(server), self._open_target, key.manner)
        made.on_list_changed = lambda kind: self.on_list_changed(key.name, kind)
        made.on_resource_updated = lambda uri: self.on_resource_updated(key.name, uri)
        self._open[key] = made
        return made

    def any_connection(self, name: str) -> Connection:
        """A connection that is there, to look at a server; a new one where there is none that is good."""
        shared = self._list_shared(name)
        return shared[-1] if shared else self.connection(name)

    def close_idle(self, seconds: float) -> None:
        """Close connections that were of no use for so long, but for the last one that all share."""
        now = asyncio.get_running_loop().time()
        for key, each in list(self._open.items()):
            is_idle = not each.in_use and now - each.used_at >= seconds
            if is_idle and (key.actor_id is not None or len(self._list_shared(key.name)) > 1):
                each.abandon()
                del self._open[key]

    def describe(self, name: str) -> str:
        """What a server is to the gateway now: `ready`, `connecting` or `unreachable`."""
        shared = self._list_shared(name)
        if any(each.session is not None for each in shared):
            return "ready"
        return "connecting" if shared else "unreachable"

    def _list_shared(self, name: str) -> list[Connection]:
        return [each for key, each in self._open.items() if key.name == name and key.actor_id is None and each.good]

    async def aclose(self) -> None:
        """End every session."""
        await asyncio.gather(*(connection.aclose() for connection in {*self._open.values(), *self._retired}))

    def _values(self, server: McpServer) -> dict[str, str]:
        values = {}
        for name, variable in (server.headers if isinstance(server, HttpServer) else server.env).items():
            value = self.credentials.get(variable)
            if value is None:
                raise UpstreamFailed(f"the environment variable `{variable}` is not set")
            values[name] = value
        return values
