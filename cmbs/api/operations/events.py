"""The operations by which streams are followed as they grow."""

from __future__ import annotations

from typing import Any

from cmbs.api.entries import AuditEvent
from cmbs.api.errors import TransportCode
from cmbs.api.examples import SESSION_ID
from cmbs.api.operation import Operation, Parameter
from cmbs.api.spaces import SpaceEvent
from cmbs.api.streams import (
    EventName,
    StreamEnd,
    StreamEntry,
    StreamEvent,
    StreamFault,
    StreamHead,
    StreamHeartbeat,
    StreamKind,
)
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import Scope

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
        {"type": "array", "items": {"enum": [kind.value for kind in StreamKind]}},
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

_COMMON: dict[str, Any] = {EventName.HEAD: StreamHead, EventName.HEARTBEAT: StreamHeartbeat, EventName.END: StreamEnd}

# A table of its own: an answer that goes on is no document, so it has no fields, no entity tag and no length.
EVENT_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/sessions/{session_id}/events",
        "follow_session",
        "Follow a session",
        "The events of a session as they are written, as server-sent events." + _WIRE,
        AuditEvent,
        query=(_FROM, _AFTER),
        errors=(*_ERRORS, ErrorCode.SESSION_NOT_FOUND),
        indivisible=True,
        beyond_stream=True,
        events={**_COMMON, EventName.ENTRY: AuditEvent},
    ),
    Operation(
        "GET",
        "/v1/spaces/{space_id}/events",
        "follow_space",
        "Follow a space",
        "The events of a space as they are written, as server-sent events; for operators, since nothing is left out."
        + _WIRE,
        SpaceEvent,
        query=(_FROM, _AFTER),
        errors=(*_ERRORS, ErrorCode.SPACE_NOT_FOUND),
        scope=Scope.SPACES_READ,
        indivisible=True,
        beyond_stream=True,
        events={**_COMMON, EventName.ENTRY: SpaceEvent},
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
        StreamEvent,
        query=(_BEGINNING, _CURSOR, *_FILTERS),
        errors=_ERRORS,
        scope=None,
        any_key=True,
        indivisible=True,
        events={**_COMMON, EventName.ENTRY: StreamEntry, EventName.CORRUPT: StreamFault},
    ),
)
