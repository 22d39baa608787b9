"""What followers of one source share: its newest items, read from the log once, however many follow."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from cmbs.api.streams import StreamHead, StreamHeartbeat
from cmbs.errors import CmbsError
from cmbs.http.waiting import Waiting
from cmbs.spi.journal import JournalPlace

# Bytes of the newest items that are kept in memory, of all sources together, and of one where there are many; older
# items come from the log.
MAX_TAIL_BYTES = 16_777_216
MIN_TAIL_BYTES = 65_536
# Entries that are read at once, and the least time between two such reads of one source: longer where many follow, each
# of whom is told less often.
PAGE_ENTRIES = 64
_READ_SECONDS = 0.02
_READ_SECONDS_EACH = 0.0005

# A place in the order of a source. Of a single stream, `position` is the seq of an entry, -1 before the first.
Place: TypeAlias = JournalPlace


class Item(NamedTuple):
    """An entry as it goes to followers: its place, the event on the wire, and what filters go by.

    Of a single stream, which has no filters, the rest is empty.
    """

    place: Place
    frame: bytes
    stream_kind: str = ""
    # As routes call it: the id of a session or of a space.
    stream_id: str = ""
    verb: str = ""
    refused: bool = False


class Page(NamedTuple):
    """Items beyond a place, in order, and how far was read: items that are no use to any follower are left out."""

    items: list[Item]
    end: Place
    # Whether there may be more right away.
    is_full: bool


class Source(Protocol):
    """Where items come from: one stream, or all of a log. Its methods may block, and raise what the log does."""

    @property
    def stream_id(self) -> str:
        """The stream that is watched for news; ANY_STREAM for all."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether reading waits for a device or a network."""
        ...

    def read(self, after: Place, limit: int) -> Page:
        """What comes after a place, verified: entries are those that their stream commits to."""
        ...

    def describe_head(self) -> tuple[Place, StreamHead]:
        """Where the source ends now, and what a `head` event says of that."""
        ...

    def describe_progress(self, place: Place, at: str) -> StreamHeartbeat:
        """What a heartbeat says of how far the source is known to reach at a moment; never touches the log."""
        ...

    def name_place(self, place: Place) -> str | None:
        """The cursor that stands for a place; None for the beginning."""
        ...


class Feed:
    """The tail of a source, kept current while anyone follows. All of it runs on one event loop."""

    def __init__(self, source: Source, start: Place, waiting: Waiting, count_feeds: Callable[[], int]) -> None:
        self.source = source
        self._waiting = waiting
        self._count_feeds = count_feeds
        # Everything in (`_base`, `end`] is in `_items`.
        self._base = start
        self.end = start
        self._items: list[Item] = []
        self._bytes = 0
        self.failure: CmbsError | None = None
        self._wakeups: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None

    def join(self, wakeup: asyncio.Event) -> None:
        """Have an event set whenever there is more; the first to join starts the reading."""
        self._wakeups.add(wakeup)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def leave(self, wakeup: asyncio.Event) -> bool:
        """Stop that; whether it was the last."""
        self._wakeups.discard(wakeup)
        if not self._wakeups and self._task is not None:
            self._task.cancel()
            self._task = None
        return not self._wakeups

    def take(self, after: Place) -> list[Item] | None:
        """The kept items beyond a place; None where some of them are in the log alone."""
        if after < self._base:
            return None
        return self._items[bisect_right(self._items, after, key=lambda item: item.place) :]

    async def read(self, after: Place) -> Page:
        """Items beyond a place, from the log."""
        source = self.source
        if source.blocking:
            return await asyncio.to_thread(source.read, after, PAGE_ENTRIES)
        return source.read(after, PAGE_ENTRIES)

    async def _run(self) -> None:
        """Read what is new, and wake the followers, until the last of them has left or reading fails."""
        with self._waiting.watch(self.source.stream_id) as moved:
            while True:
                moved.clear()
                try:
                    page = await self.read(self.end)
                except CmbsError as exc:
                    self.failure = exc
                    self._wake()
                    return
                if page.end != self.end:
                    self._keep(page)
                    self._wake()
                if not page.is_full:
                    await asyncio.sleep(max(_READ_SECONDS, _READ_SECONDS_EACH * len(self._wakeups)))
                    await wait_for(moved, self._waiting.look_seconds)

    def _keep(self, page: Page) -> None:
        self._items += page.items
        self.end = page.end
        self._bytes += sum(len(item.frame) for item in page.items)
        dropped = 0
        allowed = max(MIN_TAIL_BYTES, MAX_TAIL_BYTES // max(1, self._count_feeds()))
        while self._bytes > allowed:
            self._bytes -= len(self._items[dropped].frame)
            self._base = self._items[dropped].place
            dropped += 1
        del self._items[:dropped]

    def _wake(self) -> None:
        for wakeup in self._wakeups:
            wakeup.set()


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Return when an event is set, or the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
