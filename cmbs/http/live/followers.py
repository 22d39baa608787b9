"""Followers: requests whose answer goes on. They are counted, paced together, and ended with a reason.

A follower holds its place, never a queue: what it has not sent yet it takes from the shared tail of its feed, or from
the log where it lags. So a slow reader costs no more than a fast one, and no writer ever waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from cmbs.api.errors import TransportCode, TransportError
from cmbs.api.streams import EndReason, EventName, StreamEnd, StreamHead
from cmbs.errors import CmbsError, Forbidden, LedgerCorrupt, StoreUnavailable, Unauthenticated
from cmbs.http.live.feed import Feed, Item, Place, Source, wait_for
from cmbs.http.live.frames import RETRY, encode_json
from cmbs.http.waiting import Waiting
from cmbs.messages import Actor
from cmbs.spi import Clock
from cmbs.system import SystemClock

MAX_FOLLOWERS = 256
HEARTBEAT_SECONDS = 5
# What goes out at once to one follower, unless a single entry is larger.
MAX_CHUNK_BYTES = 65_536
# What all followers of a process may cost together, so that writers keep the rest: sends a second, evenly spread. A
# send of so many bytes counts twice.
MAX_SENDS_A_SECOND = 250.0
BYTES_A_SEND = 65_536
# Pages of the log that are in memory at a time for followers that lag, whatever is in them.
_MAX_PAGES = 4


class Caller(NamedTuple):
    """Who follows: how to ask whether they still may, and which items they want and may see."""

    admit: Callable[[], Awaitable[Actor]]
    accepts: Callable[[Item, Actor], bool]


class Pace:
    """Turns, so many a second, in the order in which they are asked for. The first after a pause comes at once."""

    def __init__(self, per_second: float = MAX_SENDS_A_SECOND) -> None:
        self._seconds_each = 1.0 / per_second
        self._next = 0.0

    async def take_turn(self) -> None:
        """Wait for a turn."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + self._seconds_each
        if at > now:
            await asyncio.sleep(at - now)

    def charge(self, n_bytes: int) -> None:
        """Let the turns after this one wait for what was sent in it."""
        self._next += self._seconds_each * n_bytes / BYTES_A_SEND


class Followers:
    """The followers of a process. `max_followers` is how many there may be at a time."""

    def __init__(
        self,
        waiting: Waiting,
        *,
        max_followers: int = MAX_FOLLOWERS,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self.waiting = waiting
        self.heartbeat_seconds = heartbeat_seconds
        self.clock = clock or SystemClock()
        self.pace = Pace()
        self._max_followers = max_followers
        self._feeds: dict[str, Feed] = {}
        self._followers: set[Follower] = set()
        self.pages = asyncio.Semaphore(_MAX_PAGES)

    @property
    def count(self) -> int:
        """How many follow now."""
        return len(self._followers)

    def refuse_more(self) -> None:
        """BUSY where as many follow as may, or the server is about to stop."""
        if self.waiting.is_draining:
            raise TransportError(TransportCode.BUSY, "the server stops; connect again")
        if self.count >= self._max_followers:
            raise TransportError(
                TransportCode.BUSY,
                f"{self._max_followers} followers are connected already, as many as `max_followers` allows; try again,"
                " or read `audit` with `wait`",
                {"limit": "max_followers", "maximum": self._max_followers},
            )

    def open(self, source: Source, start: Place, end: Place, head: StreamHead, caller: Caller) -> Follower:
        """A follower of a source, which ends at `end` now, from a place on; it counts until it is closed.

        BUSY where there is no room.
        """
        self.refuse_more()
        feed = self._feeds.get(source.stream_id)
        if feed is None or feed.failure is not None:
            feed = self._feeds[source.stream_id] = Feed(source, end, self.waiting, lambda: len(self._feeds))
        follower = Follower(self, feed, start, head, caller)
        self._followers.add(follower)
        return follower

    def remove(self, follower: Follower) -> None:
        """Let a follower go, and its feed where it was the last one of it."""
        self._followers.discard(follower)
        feed = follower.feed
        if feed.leave(follower.wakeup) and self._feeds.get(feed.source.stream_id) is feed:
            del self._feeds[feed.source.stream_id]

    def drain(self) -> None:
        """End every stream: the server is about to stop. On the loop that they run on."""
        for follower in self._followers:
            follower.wakeup.set()


class Follower:
    """One follower: the chunks that go to it, one after the other."""

    def __init__(self, followers: Followers, feed: Feed, start: Place, head: StreamHead, caller: Caller) -> None:
        self.feed = feed
        # Set when there may be something to do: more entries, the caller gone, the server about to stop.
        self.wakeup = asyncio.Event()
        self._followers = followers
        self._place = start
        self._head = head
        self._caller = caller
        self._next_heartbeat = 0.0
        feed.join(self.wakeup)

    def close(self) -> None:
        """Count no longer."""
        self._followers.remove(self)

    async def chunks(self, leaving: asyncio.Future[None]) -> AsyncGenerator[bytes]:
        """What is sent, until the caller is gone or the stream is ended with a reason."""
        leaving.add_done_callback(lambda _: self.wakeup.set())
        yield RETRY + encode_json(EventName.HEAD, self._head, self._cursor())
        self._schedule_heartbeat()
        while not leaving.done():
            self.wakeup.clear()
            try:
                async with aclosing(self._take_turn()) as turn:
                    async for chunk in turn:
                        yield chunk
            except (CmbsError, TransportError) as exc:
                yield _describe_end(exc)
                return
            if self._followers.waiting.is_draining:
                yield encode_json(EventName.END, StreamEnd(EndReason.SHUTDOWN))
                return
            if self._is_current():
                await wait_for(self.wakeup, self._next_heartbeat - asyncio.get_running_loop().time())

    async def _take_turn(self) -> AsyncGenerator[bytes]:
        """What there is to send now: a part of the entries, or a heartbeat where one is due."""
        pace = self._followers.pace
        await pace.take_turn()
        # Before anything is shown: a key that was revoked sees no more.
        actor = await self._caller.admit()
        items = self.feed.take(self._place)
        if items is None:
            # Held until it is sent where one entry is large: so few of these are in memory at a time.
            async with self._followers.pages:
                page = await self.feed.read(self._place)
                chunk = self._choose(page.items, page.end, actor)
                if len(chunk) > MAX_CHUNK_BYTES:
                    pace.charge(len(chunk))
                    yield chunk
                    chunk = b""
        else:
            chunk = self._choose(items, max(self._place, self.feed.end), actor)
        if chunk:
            pace.charge(len(chunk))
            yield chunk
        if self.feed.failure is not None and self._is_current():
            raise self.feed.failure
        if asyncio.get_running_loop().time() >= self._next_heartbeat:
            self._schedule_heartbeat()
            yield self._describe_heartbeat()

    def _choose(self, items: Sequence[Item], end: Place, actor: Actor) -> bytes:
        """The events of the items that the caller wants and may see, as many as go out at once; moves the place on."""
        frames: list[bytes] = []
        size = 0
        for item in items:
            if self._caller.accepts(item, actor):
                size += len(item.frame)
                if frames and size > MAX_CHUNK_BYTES:
                    return b"".join(frames)
                frames.append(item.frame)
            self._place = item.place
        self._place = end
        return b"".join(frames)

    def _is_current(self) -> bool:
        return self._place >= self.feed.end

    def _cursor(self) -> str | None:
        return self.feed.source.name_place(self._place)

    def _schedule_heartbeat(self) -> None:
        self._next_heartbeat = asyncio.get_running_loop().time() + self._followers.heartbeat_seconds

    def _describe_heartbeat(self) -> bytes:
        progress = self.feed.source.describe_progress(self.feed.end, self._followers.clock.now())
        return encode_json(EventName.HEARTBEAT, progress, self._cursor())


def _describe_end(error: CmbsError | TransportError) -> bytes:
    """The last event of a stream that an error ends; one that is not ours to explain is logged by the caller."""
    match error:
        case Unauthenticated() | Forbidden():
            reason = EndReason.PERMISSION_LOST
        case LedgerCorrupt():
            reason = EndReason.LEDGER_CORRUPT
        case StoreUnavailable():
            reason = EndReason.STORE_UNAVAILABLE
        case _:
            reason = EndReason.FAILED
    code, message = str(getattr(error, "code", "INTERNAL_ERROR")), getattr(error, "message", str(error))
    return encode_json(EventName.END, StreamEnd(reason, code, message))
