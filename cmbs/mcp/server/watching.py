"""Subscriptions to sessions: `notifications/resources/updated` when an event was recorded in one.

Since 2026-07-28 a client opens a stream (`subscriptions/listen`) that says what it is about. Before, it subscribes on a
connection that stays open (`resources/subscribe`), which only standard streams are here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import mcp_types
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from cmbs.client import AsyncClient
from cmbs.errors import CmbsError, Forbidden, SessionNotFound, Unauthenticated
from cmbs.mcp.asking import MAX_WAIT_SECONDS
from cmbs.mcp.server.reporting import DEFAULT_LEVEL, Level
from cmbs.mcp.server.resources import find_session_of

Context = ServerRequestContext[Any, Any]

# By one client.
MAX_WATCHED = 50
# By all clients of a server: each takes a place among the requests that wait.
MAX_WATCHED_BY_ALL = 200
# Between two reads of a session: events that come closer together make one notification.
_PAUSE_SECONDS = 0.2
# Between two checks of whether the server stops.
_GLANCE_SECONDS = 0.5
# After a failure that may pass.
_RETRY_SECONDS = 2.0


class Room:
    """How many sessions are watched, of as many as may be."""

    def __init__(self, most: int = MAX_WATCHED_BY_ALL) -> None:
        self._most = most
        self._taken = 0

    @contextmanager
    def take(self, count: int) -> Iterator[None]:
        """Watch so many more for a while; MCPError where there is no room for them."""
        if self._taken + count > self._most:
            message = f"this server watches {self._most} sessions at once; subscribe later, or to fewer"
            raise MCPError(code=mcp_types.INVALID_REQUEST, message=message)
        self._taken += count
        try:
            yield
        finally:
            self._taken -= count


@dataclass
class Connection:
    """What is kept for a client of the handshake era for as long as it is connected."""

    tasks: TaskGroup
    log_level: Level = DEFAULT_LEVEL
    watched: dict[str, anyio.CancelScope] = field(default_factory=dict)


@asynccontextmanager
async def keep_connection(_: Any) -> AsyncIterator[Connection]:
    """From the start of a connection to its end, with which its subscriptions end."""
    async with anyio.create_task_group() as tasks:
        yield Connection(tasks)
        tasks.cancel_scope.cancel()


async def listen(
    api: AsyncClient,
    ctx: Context,
    params: mcp_types.SubscriptionsListenRequestParams,
    room: Room,
    is_stopping: Callable[[], bool],
) -> mcp_types.SubscriptionsListenResult:
    """Serve a stream of updates until its client goes, or the server stops. It honours what the caller may read."""
    wanted = params.notifications.resource_subscriptions or []
    _refuse_many(len(wanted))
    heads: dict[str, str] = {}
    for uri in wanted:
        session_id = find_session_of(uri)
        if session_id is not None:
            try:
                heads[uri] = await _read_head(api, session_id)
            except CmbsError:
                continue
    honoured = params.notifications.model_copy(update={"resource_subscriptions": list(heads) or None})
    bus = InMemorySubscriptionBus()
    handler = ListenHandler(bus)

    async def watch_to_the_end(uri: str) -> None:
        changed = partial(bus.publish, ResourceUpdated(uri))
        await _watch(api, find_session_of(uri) or "", heads[uri], changed)
        handler.close()

    async def close_when_stopping() -> None:
        # Without it a server would wait for its clients to go.
        while not is_stopping():  # noqa: ASYNC110 - what is asked knows no event
            await anyio.sleep(_GLANCE_SECONDS)
        handler.close()

    with room.take(len(heads)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close_when_stopping)
            for uri in heads:
                tasks.start_soon(watch_to_the_end, uri)
            result = await handler(ctx, params.model_copy(update={"notifications": honoured}))
            tasks.cancel_scope.cancel()
    return result


async def subscribe(api: AsyncClient, ctx: Context, uri: str) -> None:
    """Notify a client of the handshake era of every change of a session; CmbsError if it may not read that."""
    connection: Connection = ctx.lifespan_context
    session_id = find_session_of(uri)
    if session_id is None:
        message = "subscribe to a session, as `cmbs://sessions/{session_id}`: nothing else changes"
        raise MCPError(code=mcp_types.INVALID_PARAMS, message=message)
    if uri in connection.watched:
        return
    _refuse_many(len(connection.watched) + 1)
    head = await _read_head(api, session_id)
    scope = connection.watched[uri] = anyio.CancelScope()
    changed = partial(ctx.session.send_resource_updated, uri)

    async def watch_in_scope() -> None:
        with scope:
            await _watch(api, session_id, head, changed)
        if connection.watched.get(uri) is scope:
            del connection.watched[uri]

    connection.tasks.start_soon(watch_in_scope)


def unsubscribe(ctx: Context, uri: str) -> None:
    """End a subscription; nothing changes where there is none."""
    connection: Connection = ctx.lifespan_context
    scope = connection.watched.pop(uri, None)
    if scope is not None:
        scope.cancel()


async def _watch(api: AsyncClient, session_id: str, head: str, changed: Callable[[], Awaitable[None]]) -> None:
    """Call `changed` after each change, until the caller may not read the session any more, or is gone."""
    while True:
        try:
            newest = await _read_head(api, session_id, after=head)
            if newest != head:
                head = newest
                await changed()
        except (SessionNotFound, Forbidden, Unauthenticated, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return
        except CmbsError:
            await anyio.sleep(_RETRY_SECONDS)
        await anyio.sleep(_PAUSE_SECONDS)


async def _read_head(api: AsyncClient, session_id: str, after: str | None = None) -> str:
    """The last event of a session; where `after` is the last one, wait for another."""
    wait = None if after is None else MAX_WAIT_SECONDS
    found = await api.request(
        "query_belief", fields=["audit_head_event_id"], session_id=session_id, wait=wait, after=after
    )
    head: str = found["audit_head_event_id"]
    return head


def _refuse_many(count: int) -> None:
    if count > MAX_WATCHED:
        message = f"a client can subscribe to {MAX_WATCHED} sessions at once"
        raise MCPError(code=mcp_types.INVALID_PARAMS, message=message)
