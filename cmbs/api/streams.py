"""Types of the server-sent events by which streams are followed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from cmbs.api.answers import Answer, Partial
from cmbs.api.entries import AuditEvent
from cmbs.api.spaces import SpaceEvent

# An entry of any stream: those of sessions have `delta` and the commitments to the survivors, those of spaces do not.
Event: TypeAlias = AuditEvent | SpaceEvent


class StreamKind(StrEnum):
    """The kinds of streams that can be followed."""

    SESSION = "session"
    SPACE = "space"


class StreamHead(Partial, frozen=True):
    """The data of an event `head` or `heartbeat`: where the stream ends."""

    seq: int | None = None
    event_id: str | None = None
    event_hash: str | None = None
    at: str | None = None


class StreamEnd(Partial, frozen=True):
    """The data of an event `end`: why the server ends the stream."""

    reason: str
    code: str | None = None
    message: str | None = None


class StreamEntry(Answer, frozen=True):
    """The data of an event `entry`, of a follower of all streams."""

    stream_kind: StreamKind
    stream_id: str
    entry: msgspec.Raw


class StreamFault(Answer, frozen=True):
    """The data of an event `corrupt`: why no more entries of a stream come. It does not verify at `seq`."""

    stream_kind: StreamKind
    stream_id: str
    seq: int
    code: str
    message: str


class StreamEvent(Answer, frozen=True):
    """What a follower of all streams is handed: an entry of one of them, or the fault that stands in its place."""

    stream_kind: StreamKind
    stream_id: str
    cursor: Annotated[str, Meta(description="A follower that begins at it goes on after this event.")]
    entry: Event | None = None
    fault: StreamFault | None = None
