"""Where followers get entries from: the log of a session or of a space, read and checked as `audit` reads it."""

from __future__ import annotations

from collections.abc import Iterable

from cmbs.api.streams import EventName, StreamHead, StreamHeartbeat
from cmbs.belief.server import BeliefServer
from cmbs.http.exchange import encode_entry
from cmbs.http.live.feed import Item, Page, Place
from cmbs.http.live.frames import encode_event
from cmbs.ledger import Head, StoredEntry
from cmbs.spi.audit_log import PAGE_BYTES, take_page
from cmbs.streams.reading import read_entries
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.server import SubstrateServer


class _OneStream:
    """What single streams have in common: the place after an entry is its seq."""

    def describe_progress(self, place: Place, at: str) -> StreamHeartbeat:
        """The newest seq."""
        return StreamHeartbeat(at, place.position)

    def name_place(self, place: Place) -> str | None:
        """The seq itself; there is none before the first entry."""
        return None if place.position < 0 else str(place.position)


class SessionSource(_OneStream):
    """The entries of a session."""

    def __init__(self, server: BeliefServer, session_id: str) -> None:
        self._server = server
        self.stream_id = session_id
        self.blocking = server.log.blocking

    def read(self, after: Place, limit: int) -> Page:
        """A page of them."""
        session = self._server.current_session(self.stream_id)
        entries = read_entries(self._server.log, self.stream_id, session.tree, after.position, limit)
        return _build_page(entries, after, session.head.seq)

    def describe_head(self) -> tuple[Place, StreamHead]:
        """Where the session ends now."""
        session = self._server.current_session(self.stream_id)
        return _describe_head(session.head, session.head_event_id)


class SpaceSource(_OneStream):
    """The entries of a space."""

    def __init__(self, server: SubstrateServer, space_id: str) -> None:
        self._server = server
        self._space_id = space_id
        self.stream_id = STREAM_PREFIX + space_id
        self.blocking = server.log.blocking

    def read(self, after: Place, limit: int) -> Page:
        """A page of them."""
        space = self._server.current(self._space_id)
        entries = read_entries(self._server.log, self.stream_id, space.tree, after.position, limit)
        return _build_page(entries, after, space.head.seq)

    def describe_head(self) -> tuple[Place, StreamHead]:
        """Where the space ends now."""
        space = self._server.current(self._space_id)
        return _describe_head(space.head, space.head_event_id)


def _build_page(entries: Iterable[StoredEntry], after: Place, last: int) -> Page:
    items = []
    end = after
    for stored in take_page(entries, PAGE_BYTES):
        end = Place(end.position + 1)
        items.append(Item(end, encode_event(EventName.ENTRY, encode_entry(stored), str(end.position))))
    return Page(items, end, end.position < last)


def _describe_head(head: Head, event_id: str) -> tuple[Place, StreamHead]:
    return Place(head.seq), StreamHead(head.seq, event_id, head.event_hash.hex())
