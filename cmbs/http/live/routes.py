"""The routes that are followed: their table, and what begins each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cmbs.belief.server import BeliefServer
from cmbs.errors import ErrorCode, EventNotFound, InvalidRequest
from cmbs.http.errors import TransportCode
from cmbs.http.examples import SESSION_ID
from cmbs.http.exchange import EventStream, Request, whole_number
from cmbs.http.live.feed import Item, Place, Source
from cmbs.http.live.followers import Caller, Followers
from cmbs.http.live.frames import MEDIA_TYPE
from cmbs.http.live.journal import EventStreamKind, Filter, JournalSource, read_cursor
from cmbs.http.live.sources import SessionSource, SpaceSource
from cmbs.http.operation import Operation, Parameter
from cmbs.http.spaces.reading import Spaces, require_operator
from cmbs.identity import Need, Reach, Scope
from cmbs.identity.kernel.scopes import grants_of
from cmbs.messages import Actor, ActorKind
from cmbs.spi.journal import JOURNAL_BEGINNING

T = TypeVar("T")

_LAST_EVENT_ID = "last-event-id"
_SHOWN = 64
_FROM = Parameter("from", "Begin with the entry of this seq; 0 is the first.", {"type": "integer", "minimum": 0}, 0)
_AFTER = Parameter(
    "after",
    "Begin after the entry of this seq: what `Last-Event-ID` says, for clients that cannot set headers.",
    {"type": "integer", "minimum": 0},
    1,
)
_TEXTS = {"type": "array", "items": {"type": "string"}}
_CURSOR = Parameter(
    "after",
    "A cursor to begin after: what `Last-Event-ID` says, for clients that cannot set headers.",
    {"type": "string"},
    "",
)
_BEGINNING = Parameter("from", "`0` begins with the first entry of all.", {"type": "integer", "enum": [0]}, 0)
_FILTERS = (
    Parameter(
        "kind",
        "Only streams of this kind; may be repeated.",
        {"type": "array", "items": {"enum": [kind.value for kind in EventStreamKind]}},
        ["session"],
    ),
    Parameter("stream_id", "Only this session or space; may be repeated.", _TEXTS, [SESSION_ID]),
    Parameter("verb", "Only entries of this verb; may be repeated.", _TEXTS, ["DECLARE_CONCLUSION"]),
    Parameter("refused", "`true`: only what was refused.", {"type": "string", "enum": ["true", "false"]}, "true"),
)
_WIRE = (
    " Each entry is an event `entry` whose `id` is the seq and whose `data` is the entry as `audit` gives it, in order,"
    " without gaps or repeats, from after `Last-Event-ID`, or else from now on. The first event, `head`, says where the"
    " log ends; `heartbeat` comes every few seconds, and `end` before the server closes the stream on purpose."
)
_ERRORS = (
    ErrorCode.STORE_UNAVAILABLE,
    ErrorCode.LEDGER_CORRUPT,
    ErrorCode.LIMIT_EXCEEDED,
    ErrorCode.EVENT_NOT_FOUND,
    TransportCode.BUSY,
)

# A table of its own: an answer that goes on is no document, so it has no fields, no entity tag and no length.
EVENT_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/sessions/{session_id}/events",
        "follow_session",
        "Follow a session",
        "The events of a session as they are written, as server-sent events." + _WIRE,
        str,
        query=(_FROM, _AFTER),
        errors=(*_ERRORS, ErrorCode.SESSION_NOT_FOUND),
        indivisible=True,
        beyond_stream=True,
        is_followed=True,
    ),
    Operation(
        "GET",
        "/v1/spaces/{space_id}/events",
        "follow_space",
        "Follow a space",
        "The events of a space as they are written, as server-sent events; for operators, since nothing is left out."
        + _WIRE,
        str,
        query=(_FROM, _AFTER),
        errors=(*_ERRORS, ErrorCode.SPACE_NOT_FOUND),
        scope=Scope.SPACES_READ,
        indivisible=True,
        beyond_stream=True,
        is_followed=True,
    ),
    Operation(
        "GET",
        "/v1/events",
        "follow_all",
        "Follow every session and space",
        "The events of all streams that the key may read, as they are written, as server-sent events. Each entry is an"
        ' event `entry` whose `data` is `{"stream_kind": …, "stream_id": …, "entry": {…}}`, and whose `id` is a cursor'
        " that is good at every process over the same store. No entry is left out, and those of one stream come in"
        " order. Where a stream does not verify, an event `corrupt` stands in the place of its entries.",
        str,
        query=(_BEGINNING, _CURSOR, *_FILTERS),
        errors=_ERRORS,
        scope=None,
        any_key=True,
        indivisible=True,
        is_followed=True,
    ),
)


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
    query = request.query("from", "after")
    if "from" in query and "after" in query:
        raise InvalidRequest("send `from` or `after`, not both: each says where the stream begins")
    last = request.header(_LAST_EVENT_ID)
    if last is not None and last.strip():
        return Place(whole_number("Last-Event-ID", last.strip()))
    if "after" in query:
        return Place(whole_number("after", query["after"]))
    return Place(whole_number("from", query["from"]) - 1) if "from" in query else None


async def _read(source: Source, read: Callable[[], T]) -> T:
    return await asyncio.to_thread(read) if source.blocking else read()


def _read_filter(request: Request) -> tuple[Place | None, Filter]:
    """Where a stream of all begins, and what is wanted of it."""
    query = request.query("from", "after", "kind", "stream_id", "verb", "refused")
    kinds = [kind.value for kind in EventStreamKind]
    for name, accepted in (("kind", kinds), ("refused", ["true", "false"]), ("from", ["0"])):
        for found in request.query_list(name):
            if found not in accepted:
                raise InvalidRequest(
                    f"`{name}` must be {' or '.join(f'`{each}`' for each in accepted)}, got `{found[:_SHOWN]}`",
                    {"parameter": name, "found": found[:_SHOWN], "accepted": accepted},
                )
    if "from" in query and "after" in query:
        raise InvalidRequest("send `from` or `after`, not both: each says where the stream begins")
    chosen = Filter(
        frozenset(request.query_list("kind")),
        frozenset(request.query_list("stream_id")),
        frozenset(request.query_list("verb")),
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
