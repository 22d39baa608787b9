"""What waits for a person, across the spaces that a key may act in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from cmbs.api.inbox import InboxItem, InboxPage
from cmbs.http.exchange import Request, cursor_of, whole_number
from cmbs.http.spaces import views
from cmbs.http.spaces.views import Reader
from cmbs.identity.kernel.scopes import Scope
from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.substrate.kernel.inbox import Wait, find_waits
from cmbs.substrate.kernel.state import Approval, Execution, PolicyChange, Space
from cmbs.substrate.listing import title_of
from cmbs.substrate.server import SubstrateServer

# So many spaces are looked into for a page; one that ends earlier says where the next begins.
MAX_SPACES_READ = 200
# A space, and the step, the kind and the id of what waits in it.
_Place: TypeAlias = tuple[str, int, str, str]


def read_inbox(server: SubstrateServer, request: Request, page_size: Callable[[int | None], int]) -> InboxPage:
    """A page of what waits for the caller."""
    query = request.query
    limit = page_size(query.get("limit"))
    kind, parts = query.get("kind"), request.after_of(4)
    place = None if parts is None else (parts[0], whole_number("cursor", parts[1]), parts[2], parts[3])
    found: list[InboxItem] = []
    last: _Place | None = None
    names = _read_names(server, None if place is None else place[0])
    for number, space_id in enumerate([query["space_id"]] if "space_id" in query else names):
        if number == MAX_SPACES_READ and last is not None:
            return InboxPage(found, _cursor_of((*last[:1], MAX_SAFE_INTEGER, "", "")))
        for wait in _find_in_space(server, request, space_id):
            here: _Place = (space_id, wait.seq, wait.kind.value, wait.id)
            if (place is not None and here <= place) or kind not in (None, wait.kind.value):
                continue
            if len(found) == limit and last is not None:
                return InboxPage(found, _cursor_of(last))
            found.append(show_wait(server.current(space_id), wait, request))
            last = here
        last = last if last is not None and last[0] == space_id else (space_id, MAX_SAFE_INTEGER, "", "")
    return InboxPage(found, None)


def _cursor_of(place: _Place) -> str:
    return cursor_of(*map(str, place))


def _read_names(server: SubstrateServer, first: str | None) -> Iterator[str]:
    """The names of spaces in order; the first one again, because more may wait in it."""
    if first is not None:
        yield first
    last = first
    while page := server.heads(last, MAX_SPACES_READ):
        yield from (space_id for space_id, _ in page)
        last = page[-1][0]


def _find_in_space(server: SubstrateServer, request: Request, space_id: str) -> list[Wait]:
    grants = request.grants
    may_approve, may_operate = (grants.reach(scope, space_id) for scope in (Scope.SPACES_APPROVE, Scope.SPACES_OPERATE))
    if not grants.reach(Scope.SPACES_READ, space_id) or not (may_approve or may_operate):
        return []
    return find_waits(server.current(space_id), request.actor, may_approve=may_approve, may_operate=may_operate)


def show_wait(space: Space, wait: Wait, request: Request) -> InboxItem:
    """Show one thing that waits, and its record."""
    reader, record = Reader(request.actor, space.policy), wait.record
    case = None if wait.case_id is None else space.cases.get(wait.case_id)
    return InboxItem(
        space_id=space.space_id,
        kind=wait.kind,
        id=wait.id,
        seq=wait.seq,
        asked_by=wait.asked_by,
        case_id=wait.case_id,
        case_title=None if case is None else title_of(case),
        expires_at=wait.expires_at,
        approval=views.show_approval(space, record, reader) if isinstance(record, Approval) else None,
        execution=views.show_execution(space, record, reader) if isinstance(record, Execution) else None,
        policy_change=views.show_policy_change(space, record, reader) if isinstance(record, PolicyChange) else None,
    )
