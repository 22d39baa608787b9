"""The wire format of followers: server-sent events, each with its name, and an id to resume after."""

from __future__ import annotations

import msgspec

from cmbs.api.streams import EventName
from cmbs.http.exchange import encode_answer

MEDIA_TYPE = "text/event-stream"
# How long a client waits before it connects again: a line of the first event.
RETRY = b"retry: 1000\n"


def encode_event(name: EventName, data: bytes, cursor: str | None = None) -> bytes:
    """One event. `data` is JSON without line ends; `cursor`, if there is one, is where to resume after it."""
    place = b"" if cursor is None else b"id: %b\n" % cursor.encode()
    return b"%bevent: %b\ndata: %b\n\n" % (place, name.encode(), data)


def encode_json(name: EventName, content: msgspec.Struct, cursor: str | None = None) -> bytes:
    """One event of a value that is encoded here."""
    return encode_event(name, encode_answer(content), cursor)
