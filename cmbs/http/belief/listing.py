"""What the list of sessions can be asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

from cmbs.belief.kernel.queries import MAX_TERMS, MAX_TEXT_LENGTH, ORDERS, build_session_query, choose_word
from cmbs.http.exchange import Request
from cmbs.http.operation import Parameter
from cmbs.ledger.listing import SessionStanding
from cmbs.spi.session_search import SessionQuery

_TEXT: dict[str, Any] = {"type": "string"}
_MOMENT: dict[str, Any] = {"type": "string", "format": "date-time"}
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
    "text", "Only those with this text in their id or title, in any case.", {**_TEXT, "maxLength": MAX_TEXT_LENGTH}, "a"
)
ID_TEXT = Parameter(
    "text", "Only ids with this text in them, or in a value of their attributes, in any case.", TEXT.schema, "a"
)
SESSION_FILTERS = (
    ORDER,
    Parameter(
        "state",
        "Only those that stand so: the first that holds of `terminated`, `contradiction` (no survivor is left),"
        " `concluded` (a conclusion was accepted) and `open`.",
        {"type": "string", "enum": [each.value for each in SessionStanding]},
        "open",
    ),
    Parameter("kit", "Only those that were declared from this provider.", _TEXT, "web-shop"),
    Parameter("agent", "Only those that this authenticated actor declared, or reported in.", _TEXT, "planner"),
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


class SessionRequest(NamedTuple):
    """Which sessions are asked for, what of each, and the parameters of the page."""

    query: SessionQuery
    with_trail: bool
    page: dict[str, str]


def read_session_request(request: Request) -> SessionRequest:
    """What a request asks of the list of sessions."""
    given = request.query("cursor", "limit", *(each.name for each in SESSION_FILTERS))
    given.pop(LABEL.name, None)
    include = given.pop("include", None)
    if include is not None:
        choose_word("include", include, ["trail"])
    page: dict[str, str] = {name: given.pop(name) for name in ("cursor", "limit") if name in given}
    query = build_session_query(labels=request.query_list(LABEL.name), **given)
    return SessionRequest(query, include is not None, page)
