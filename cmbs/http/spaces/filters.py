"""What lists of records and cases of a space can be asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from cmbs.api.parameters import LABEL
from cmbs.belief.kernel.queries import check_text, choose_order, split_label
from cmbs.http.exchange import Request
from cmbs.identity.kernel.scopes import Scope
from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.ledger.instants import parse_instant
from cmbs.spi import AuditLog
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.listing import CaseFilter, RecordFilter, find_first_since, find_sessions_of_kit
from cmbs.substrate.server import SubstrateServer


def read_record_filter(
    request: Request, statuses: type[StrEnum] | None, space: Space, server: SubstrateServer
) -> RecordFilter:
    """Which records a request asks for. Moments become places in the log."""
    query = request.query
    since, until = (
        find_first_since(server.settled, space, moment) if moment else None for moment in _read_moments(query)
    )
    return RecordFilter(
        _read_status(request, statuses),
        query.get("case_id"),
        query.get("agent"),
        query.get("tool"),
        _read_labels(request),
        0 if since is None else since,
        MAX_SAFE_INTEGER if until is None else until,
        choose_order(query.get("order", "oldest")),
        request.actor,
        _read_kit(request, space, server.log),
    )


def read_case_filter(
    request: Request, statuses: type[StrEnum] | None, space: Space, server: SubstrateServer
) -> CaseFilter:
    """Which cases a request asks for."""
    query = request.query
    return CaseFilter(
        _read_status(request, statuses),
        query.get("agent"),
        _read_labels(request),
        check_text(query.get("text")),
        *_read_moments(query),
        request.actor,
        _read_kit(request, space, server.log),
    )


def _read_kit(request: Request, space: Space, log: AuditLog) -> frozenset[str] | None:
    """The sessions of the kit that is asked for, as far as the key reaches them; None where none is."""
    if "kit" not in request.query:
        return None
    found = find_sessions_of_kit(log, space, request.query["kit"])
    return frozenset(each for each in found if request.grants.reach(Scope.BELIEF_READ, each))


def _read_status(request: Request, statuses: type[StrEnum] | None) -> StrEnum | None:
    text = request.query.get("status")
    return None if text is None or statuses is None else statuses(text)


def _read_labels(request: Request) -> tuple[tuple[str, str], ...]:
    return tuple(split_label(label) for label in request.query.get(LABEL.name, []))


def _read_moments(query: dict[str, Any]) -> tuple[str, str]:
    since, until = (parse_instant(query[name], name) if name in query else "" for name in ("since", "until"))
    return since, until
