"""Types of the server-sent events by which streams are followed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from cmbs.api.answers import Answer, Partial
from cmbs.api.entries import AuditEvent
from cmbs.api.sessions import REFERENCE
from cmbs.api.spaces import SpaceEvent
from cmbs.ledger.instants import Timestamp

# An entry of any stream: those of sessions have `delta` and the commitments to the survivors, those of spaces do not.
Event: TypeAlias = AuditEvent | SpaceEvent
# The same as bytes, which a follower of all streams decodes once it knows which of the two it is.
AnyEntry: TypeAlias = Annotated[
    msgspec.Raw,
    Meta(
        description="As `audit` gives it.",
        extra_json_schema={
            "anyOf": [{"$ref": REFERENCE.format(name=kind.__name__)} for kind in (AuditEvent, SpaceEvent)]
        },
    ),
]


class StreamKind(StrEnum):
    """The kinds of streams that can be followed."""

    SESSION = "session"
    SPACE = "space"


class EventName(StrEnum):
    """What a server-sent event is."""

    HEAD = "head"
    ENTRY = "entry"
    # In the place of entries of a stream that does not verify, where others go on.
    CORRUPT = "corrupt"
    HEARTBEAT = "heartbeat"
    END = "end"


class EndReason(StrEnum):
    """Why the server ends a stream on purpose."""

    SHUTDOWN = "shutdown"
    PERMISSION_LOST = "permission_lost"
    LEDGER_CORRUPT = "ledger_corrupt"
    STORE_UNAVAILABLE = "store_unavailable"
    FAILED = "failed"


Cursor: TypeAlias = Annotated[
    str | None, Meta(description="Of all streams: where the log ends; a follower that begins at it goes on from there.")
]


class StreamHead(Partial, frozen=True):
    """The data of the first event, `head`: where the log ends."""

    seq: Annotated[int | None, Meta(description="Of one stream: the seq of its last entry.")] = None
    event_id: Annotated[str | None, Meta(description="Of one stream: the id of its last entry.")] = None
    event_hash: Annotated[str | None, Meta(description="Of one stream: the hash of its last entry.")] = None
    cursor: Cursor = None


class StreamHeartbeat(Partial, frozen=True):
    """The data of an event `heartbeat`: how far the log was read, and when."""

    at: Timestamp
    seq: Annotated[int | None, Meta(description="Of one stream: the seq of its last entry.")] = None
    cursor: Cursor = None


class StreamEnd(Partial, frozen=True):
    """The data of an event `end`: why the server ends the stream."""

    # Newer servers may have other reasons.
    reason: Annotated[str, Meta(extra_json_schema={"enum": [each.value for each in EndReason]})]
    code: Annotated[str | None, Meta(description="The code of the error that ends it.")] = None
    message: Annotated[str | None, Meta(description="The error, for people.")] = None


class StreamEntry(Answer, frozen=True):
    """The data of an event `entry`, of a follower of all streams."""

    stream_kind: StreamKind
    stream_id: str
    entry: AnyEntry


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
