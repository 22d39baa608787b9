"""The query parameters that several operations have."""

from __future__ import annotations

from typing import Any

from cmbs.api.operation import Parameter
from cmbs.belief.kernel.queries import MAX_TERMS, MAX_TEXT_LENGTH, ORDERS
from cmbs.belief.kernel.requests import Limits
from cmbs.ledger.listing import SessionStanding

_TEXT: dict[str, Any] = {"type": "string"}
_MOMENT: dict[str, Any] = {"type": "string", "format": "date-time"}
LIMIT = Parameter(
    "limit",
    "How many items at most. The largest page is a setting of the server.",
    {"type": "integer", "minimum": 1, "maximum": Limits().page_size},
)
CURSOR = Parameter("cursor", "The `next_cursor` of the page before.", {"type": "string"})
AT = Parameter("at", "A seq or an event id: the belief right after that event.", {"type": "string"})
FROM = Parameter(
    "from", "What came after it: a seq or an event id, of a space a snapshot id; by default 0.", {"type": "string"}, "0"
)
TO = Parameter("to", "What came up to it, given as `from` is; by default the last event.", {"type": "string"}, "2")
WAIT = Parameter(
    "wait",
    "Seconds to wait for news before the answer, which then is as it is. The longest is a setting of the server.",
    {"type": "integer", "minimum": 0, "maximum": 3600},
    0,
)
AFTER = Parameter(
    "after", "With `wait`: until there are events after this seq or event id; by default, after the last.", _TEXT, "1"
)
SINCE_EVENT = Parameter(
    "since_event_id", "Only the events after this one.", {"type": "string", "maxLength": Limits().id_length}
)
ORDER = Parameter(
    "order",
    "The oldest first, which is the default, or the newest.",
    {"type": "string", "enum": list(ORDERS)},
    "newest",
)
LABEL = Parameter(
    "label",
    "Only those with this label, as `name:value`; may be sent several times, and then all must hold.",
    {"type": "array", "items": {"type": "string", "pattern": r"^[^:]+:[\s\S]+$"}},
    ["team:payments"],
)
SINCE = Parameter("since", "Only those from this moment on (RFC 3339).", _MOMENT, "2026-01-01T00:00:00Z")
UNTIL = Parameter("until", "Only those from before this moment (RFC 3339).", _MOMENT, "2030-01-01T00:00:00Z")
TEXT = Parameter(
    "text",
    "Only those with this text in their id, name or title, in any case.",
    {**_TEXT, "maxLength": MAX_TEXT_LENGTH},
    "a",
)
ID_TEXT = Parameter(
    "text", "Only ids with this text in them, or in a value of their attributes, in any case.", TEXT.schema, "a"
)
SESSION_FILTERS = (
    ORDER,
    Parameter(
        "state",
        "Only those in this state.",
        {"type": "string", "enum": [each.value for each in SessionStanding]},
        "open",
    ),
    Parameter("kit", "Only those that were declared from this provider.", _TEXT, "web-shop"),
    Parameter(
        "agent",
        "Only those that this agent declared, reported in, or was listed to work on.",
        _TEXT,
        "planner",
    ),
    Parameter("name", "Only the one that has this name.", _TEXT, "INC-1042"),
    Parameter("owner", "Only those that this person answers for.", _TEXT, "ann"),
    Parameter("severity", "Only those of this severity.", _TEXT, "high"),
    Parameter("source", "Only those with a report of this source.", _TEXT, "prometheus"),
    Parameter(LABEL.name, LABEL.description, {**LABEL.schema, "maxItems": MAX_TERMS}, LABEL.example),
    TEXT,
    SINCE,
    UNTIL,
    Parameter(
        "include",
        "`trail`: with how many hypotheses were left over time, in at most 58 points.",
        {"type": "string", "enum": ["trail"]},
        "trail",
    ),
)
CASE = Parameter("case_id", "Only those of this case, by its id or name.", _TEXT, "INC-1042")
_KIT = Parameter(
    "kit",
    "Only those of a case whose session came from this provider. What the key may not read does not count.",
    _TEXT,
    "web-shop",
)
RECORD_FILTERS = (
    ORDER,
    CASE,
    Parameter("agent", "Only those that this agent proposed.", _TEXT, "planner"),
    Parameter("tool", "Only those with a call of this tool.", _TEXT, "restart"),
    _KIT,
    Parameter("label", f"By the labels of their case. {LABEL.description}", LABEL.schema, LABEL.example),
    SINCE,
    UNTIL,
)
CASE_FILTERS = (
    ORDER,
    Parameter("agent", "Only those that this agent could act under when they were admitted.", _TEXT, "planner"),
    _KIT,
    LABEL,
    TEXT,
    SINCE,
    UNTIL,
)
# What the parameters of paths are.
PATH_PARAMETERS = {
    "kit_id": "The kit.",
    "webhook_id": "The webhook.",
    "delivery_id": "The delivery.",
    "session_id": "The session, by its id or the name of its case.",
    "obligation_id": "The obligation, percent-encoded.",
    "space_id": "The space.",
    "proposal_id": "The proposal.",
    "approval_id": "The request for approval.",
    "execution_id": "The execution.",
    "call_id": "The call.",
    "tool_id": "The tool, percent-encoded.",
    "token_id": "The capability token.",
    "case_id": "The case, by the id of its session or its name.",
    "entry_id": "The memory entry.",
    "change_id": "The change of policy.",
    "stream_id": "The stream, percent-encoded.",
}
