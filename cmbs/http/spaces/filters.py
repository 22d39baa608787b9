"""What lists of records and cases of a space can be asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from cmbs.belief.kernel.queries import check_text, choose_order, split_label
from cmbs.http.belief.listing import LABEL, ORDER, SINCE, TEXT, UNTIL
from cmbs.http.exchange import Request
from cmbs.http.operation import Parameter
from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.ledger.instants import parse_instant
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.listing import CaseFilter, RecordFilter, find_first_since
from cmbs.substrate.settled import SettledRecords

_TEXT: dict[str, Any] = {"type": "string"}
_CASE = Parameter("case_id", "Only those of this case.", _TEXT, "INC-1042")
RECORD_FILTERS = (
    ORDER,
    _CASE,
    Parameter("agent", "Only those that this agent proposed.", _TEXT, "planner"),
    Parameter("tool", "Only those with a call of this tool.", _TEXT, "restart"),
    Parameter("label", f"By the labels of their case. {LABEL.description}", LABEL.schema, LABEL.example),
    SINCE,
    UNTIL,
)
CASE_FILTERS = (
    ORDER,
    Parameter("session_id", "Only those of this belief session.", _TEXT, "s"),
    Parameter("agent", "Only those that this agent may act under.", _TEXT, "planner"),
    LABEL,
    TEXT,
    SINCE,
    UNTIL,
)


def read_record_filter(
    request: Request, query: dict[str, str], status: StrEnum | None, space: Space, settled: SettledRecords
) -> RecordFilter:
    """Which records a request asks for. Moments become places in the log."""
    since, until = (find_first_since(settled, space, moment) if moment else None for moment in _read_moments(query))
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
    )


def read_case_filter(request: Request, query: dict[str, str], status: StrEnum | None) -> CaseFilter:
    """Which cases a request asks for."""
    return CaseFilter(
        status,
        query.get("session_id"),
        query.get("agent"),
        _read_labels(request),
        check_text(query.get("text")),
        *_read_moments(query),
        request.actor,
    )


def _read_labels(request: Request) -> tuple[tuple[str, str], ...]:
    return tuple(split_label(label) for label in request.query_list(LABEL.name))


def _read_moments(query: dict[str, str]) -> tuple[str, str]:
    since, until = (parse_instant(query[name], name) if name in query else "" for name in ("since", "until"))
    return since, until
