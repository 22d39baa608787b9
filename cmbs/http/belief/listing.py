"""What the list of sessions can be asked for."""

from __future__ import annotations

from typing import NamedTuple

from cmbs.api.parameters import LABEL
from cmbs.belief.kernel.queries import build_session_query
from cmbs.http.exchange import Request
from cmbs.spi.session_search import SessionQuery

_OF_PAGE = ("cursor", "limit", "include")


class SessionRequest(NamedTuple):
    """Which sessions are asked for, and whether each comes with its trail."""

    query: SessionQuery
    with_trail: bool


def read_session_request(request: Request) -> SessionRequest:
    """What a request asks of the list of sessions."""
    given = {name: value for name, value in request.query.items() if name not in _OF_PAGE}
    return SessionRequest(build_session_query(labels=given.pop(LABEL.name, []), **given), "include" in request.query)
