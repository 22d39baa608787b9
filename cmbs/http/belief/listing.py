"""What the list of sessions can be asked for."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from cmbs.api.parameters import LABEL
from cmbs.belief.kernel.queries import build_session_query
from cmbs.belief.names import NameRegistry
from cmbs.http.exchange import Request
from cmbs.spi.session_search import SessionQuery

_OF_PAGE = ("cursor", "limit", "include", "name")


class SessionRequest(NamedTuple):
    """Which sessions are asked for, and whether each comes with its trail."""

    query: SessionQuery
    with_trail: bool


def read_session_request(request: Request, names: NameRegistry) -> SessionRequest:
    """What a request asks of the list of sessions: a text is looked for in names too."""
    given = {name: value for name, value in request.query.items() if name not in _OF_PAGE}
    query = build_session_query(labels=given.pop(LABEL.name, []), **given)
    if query.text:
        query = msgspec.structs.replace(query, named=names.search(query.text))
    if "name" in request.query:
        found = names.find(request.query["name"])
        query = msgspec.structs.replace(query, session_ids=() if found is None else (found,))
    return SessionRequest(query, "include" in request.query)
