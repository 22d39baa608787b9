"""What lists of records and cases of a space can be asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from cmbs.belief.kernel.queries import check_text, choose_order, split_label
from cmbs.http.belief.listing import LABEL, ORDER, SINCE, TEXT, UNTIL
from cmbs.http.exchange import Request
from cmbs.http.operation import Parameter
from cmbs.identity import Scope
from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.ledger.instants import parse_instant
from cmbs.spi import AuditLog
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.listing import CaseFilter, RecordFilter, find_first_since, find_sessions_of_kit
from cmbs.substrate.server import SubstrateServer

_TEXT: dict[str, Any] = {"type": "string"}
_CASE = Parameter("case_id", "Only those of this case.", _TEXT, "INC-1042")
_KIT = Parameter(
    "kit",
    "Only those of a case whose session came from this provider. What the key may not read does not count.",
    _TEXT,
    "web-shop",
)
RECORD_FILTERS = (
    ORDER,
    _CASE,
    Parameter("agent", "Only those that this agent proposed.", _TEXT, "planner"),
    Parameter("tool", "Only those with a call of this tool.", _TEXT, "restart"),
    _KIT,
    Parameter("label", f"By the labels of their case. {LABEL.description}", LABEL.schema, LABEL.example),
    SINCE,
    UNTIL,
)
CASE_FILTERS = (
    ORDER,
    Parameter("session_id", "Only those of this belief session.", _TEXT, "s"),
    Parameter("agent", "Only those that this agent may act under.", _TEXT, "planner"),
    _KIT,
    LABEL,
    TEXT,
    SINCE,
    UNTIL,
)


def read_record_filter(
    request: Request, query: dict[str, str], status: StrEnum | None, space: Space, server: SubstrateServer
) -> RecordFilter:
    """Which records a request asks for. Moments become places in the log."""
    since, until = (
        find_first_since(server.settled, space, moment) if moment else None for moment in _read_moments(query)
    )
    return RecordFilter(
        status,
        query.get("case_id"),
        query.get("agent"),
        query.get("tool"),
        _read_labels(request),
        0 if since is None else since,
        MAX_SAFE_INTEGER if until is None else until,
        choose_order(query.get("order", "oldest")),
        request.actor,
        _read_kit(request, query, space, server.log),
    )


def read_case_filter(
    request: Request, query: dict[str, str], status: StrEnum | None, space: Space, server: SubstrateServer
) -> CaseFilter:
    """Which cases a request asks for."""
    return CaseFilter(
        status,
        query.get("session_id"),
        query.get("agent"),
        _read_labels(request),
        check_text(query.get("text")),
        *_read_moments(query),
        request.actor,
        _read_kit(request, query, space, server.log),
    )


def _read_kit(request: Request, query: dict[str, str], space: Space, log: AuditLog) -> frozenset[str] | None:
    """The sessions of the kit that is asked for, as far as the key reaches them; None where none is."""
    if "kit" not in query:
        return None
    found = find_sessions_of_kit(log, space, query["kit"])
    return frozenset(each for each in found if request.grants.reach(Scope.BELIEF_READ, each))


def _read_labels(request: Request) -> tuple[tuple[str, str], ...]:
    return tuple(split_label(label) for label in request.query_list(LABEL.name))


def _read_moments(query: dict[str, str]) -> tuple[str, str]:
    since, until = (parse_instant(query[name], name) if name in query else "" for name in ("since", "until"))
    return since, until
