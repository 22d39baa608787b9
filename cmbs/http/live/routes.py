"""The routes that are followed: their table, and what begins each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cmbs.belief.server import BeliefServer
from cmbs.errors import EventNotFound, InvalidRequest
from cmbs.http.exchange import EventStream, Request, whole_number
from cmbs.http.live.feed import Item, Place, Source
from cmbs.http.live.followers import Caller, Followers
from cmbs.http.live.frames import MEDIA_TYPE
from cmbs.http.live.journal import Filter, JournalSource, read_cursor
from cmbs.http.live.sources import SessionSource, SpaceSource
from cmbs.http.spaces.reading import Spaces, require_operator
from cmbs.identity.kernel.scopes import Need, Reach, Scope, grants_of
from cmbs.messages import Actor, ActorKind
from cmbs.spi.journal import JOURNAL_BEGINNING

T = TypeVar("T")

_LAST_EVENT_ID = "last-event-id"
_SHOWN = 64


class EventRoutes:
    """The handlers of what is followed."""

    def __init__(self, server: BeliefServer, spaces: Spaces, followers: Followers) -> None:
        self._server = server
        self._spaces = spaces
        self._followers = followers

    async def follow_session(self, request: Request) -> EventStream:
        """Follow a session."""
        start = _read_start(request)
        return await self._follow(SessionSource(self._server, request.params["session_id"]), start, request.admit)

    async def follow_space(self, request: Request) -> EventStream:
        """Follow a space."""
        start = _read_start(request)
        require_operator(request.actor)

        async def admit() -> Actor:
            actor = await request.admit()
            require_operator(actor)
            return actor

        return await self._follow(SpaceSource(self._spaces.server, request.params["space_id"]), start, admit)

    async def follow_all(self, request: Request) -> EventStream:
        """Follow every stream that the key may read."""
        start, chosen = _read_filter(request)
        _require_some(request.actor)

        async def admit() -> Actor:
            actor = await request.admit()
            _require_some(actor)
            return actor

        return await self._follow(JournalSource(self._server, self._spaces), start, admit, chosen.accepts)

    async def _follow(
        self,
        source: Source,
        start: Place | None,
        admit: Callable[[], Awaitable[Actor]],
        accepts: Callable[[Item, Actor], bool] = lambda *_: True,
    ) -> EventStream:
        # Before anything is read for a caller who is then refused, and again once it is.
        self._followers.refuse_more()
        end, head = await _read(source, source.describe_head)
        if start is not None and start > end:
            raise EventNotFound(source.name_place(start) or "")
        follower = self._followers.open(source, end if start is None else start, end, head, Caller(admit, accepts))
        return EventStream(follower, [("content-type", MEDIA_TYPE), ("cache-control", "no-store")])


def _read_start(request: Request) -> Place | None:
    """The place after which a stream begins; None for its end. A header wins over the query, which is sent again."""
    query = request.query
    if "from" in query and "after" in query:
        raise InvalidRequest("send `from` or `after`, not both: each says where the stream begins")
    last = request.header(_LAST_EVENT_ID)
    if last is not None and last.strip():
        return Place(whole_number("Last-Event-ID", last.strip()))
    if "after" in query:
        return Place(query["after"])
    return Place(query["from"] - 1) if "from" in query else None


async def _read(source: Source, read: Callable[[], T]) -> T:
    return await asyncio.to_thread(read) if source.blocking else read()


def _read_filter(request: Request) -> tuple[Place | None, Filter]:
    """Where a stream of all begins, and what is wanted of it."""
    query = request.query
    if "from" in query and "after" in query:
        raise InvalidRequest("send `from` or `after`, not both: each says where the stream begins")
    chosen = Filter(
        frozenset(request.query.get("kind", [])),
        frozenset(request.query.get("stream_id", [])),
        frozenset(request.query.get("verb", [])),
        query.get("refused") == "true",
    )
    last = (request.header(_LAST_EVENT_ID) or "").strip() or query.get("after", "")
    if last:
        return read_cursor(last), chosen
    return (JOURNAL_BEGINNING if "from" in query else None), chosen


def _require_some(actor: Actor) -> None:
    """Forbidden for a key that may read no stream."""
    grants = grants_of(actor)
    if actor.kind is ActorKind.OPERATOR and grants.cover(Need(Scope.SPACES_READ, Reach.ANY)):
        return
    grants.require(Need(Scope.BELIEF_READ, Reach.ANY))
