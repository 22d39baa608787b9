"""Finding sessions: by where they stand, what they were declared with, who reported in them, when, and by text."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from cmbs.ledger.listing import Indexed, Listing, SessionStanding, index_session, search_text
from cmbs.spi.audit_log import AuditLog, SessionSummary

_PAGE = 500
# So many sessions can be named by a query.
MAX_IDS = 500


class SessionQuery(msgspec.Struct, frozen=True):
    """Which sessions are looked for, and in which order: all that are given must hold.

    `terms` are of `find_term`, and `text`, in any case, is looked for in ids and titles. A session was declared at
    `since` or later, and before `until`. It is one of `session_ids`, if they are given: `MAX_IDS` of them at most.
    One of `named`, as many at most, has the text in its name.
    """

    newest_first: bool = False
    standing: SessionStanding | None = None
    terms: tuple[bytes, ...] = ()
    text: str = ""
    since: str = ""
    until: str = ""
    session_ids: tuple[str, ...] | None = None
    named: tuple[str, ...] = ()

    def takes(self, session_id: str, indexed: Indexed) -> bool:
        """Whether a session is one of those that are looked for."""
        listing = indexed.listing
        return (
            (self.session_ids is None or session_id in self.session_ids)
            and self.standing in (None, listing.standing)
            and indexed.terms >= set(self.terms)
            and (self.text.casefold() in search_text(session_id, listing.title) or session_id in self.named)
            and self.since <= listing.created_ts
            and (not self.until or listing.created_ts < self.until)
        )


ANY_SESSION = SessionQuery()


class ListedSession(NamedTuple):
    """A session that was found, and what a list says of it."""

    summary: SessionSummary
    listing: Listing


@runtime_checkable
class ListingLog(Protocol):
    """A log that finds sessions without reading them.

    What MUST hold: the answers are what `find_sessions` puts together from `sessions` and `read`. What is kept for it
    is what an `Append` has of it (`listing` and `terms`), and is written with the entry or not at all.
    """

    def find_sessions(self, query: SessionQuery, after: tuple[str, str] | None, limit: int) -> list[ListedSession]:
        """Sessions by (created_ts, session_id), or the other way round, from the first beyond `after` on."""
        ...


def find_sessions(log: AuditLog, query: SessionQuery, after: tuple[str, str] | None, limit: int) -> list[ListedSession]:
    """Sessions by (created_ts, session_id), or the other way round, from the first beyond `after` on; of any log."""
    if query.session_ids == ():
        return []
    if isinstance(log, ListingLog):
        return log.find_sessions(query, after, limit)
    found: list[ListedSession] = []
    for summary in sorted(_read_summaries(log), reverse=query.newest_first, key=_place_of):
        if after is not None and (_place_of(summary) >= after if query.newest_first else _place_of(summary) <= after):
            continue
        indexed = index_session(stored.raw for stored in log.read(summary.session_id))
        if indexed is not None and query.takes(summary.session_id, indexed):
            found.append(ListedSession(summary, indexed.listing))
            if len(found) == limit:
                break
    return found


def find_among(log: AuditLog, query: SessionQuery, session_ids: Collection[str]) -> set[str]:
    """Those of these sessions that a query takes."""
    left, found = sorted(session_ids), set[str]()
    while left:
        ids, left = tuple(left[:MAX_IDS]), left[MAX_IDS:]
        named = find_sessions(log, msgspec.structs.replace(query, session_ids=ids), None, len(ids))
        found.update(each.summary.session_id for each in named)
    return found


def _read_summaries(log: AuditLog) -> list[SessionSummary]:
    found: list[SessionSummary] = []
    while page := log.sessions(_place_of(found[-1]) if found else None, _PAGE):
        found += page
    return found


def _place_of(summary: SessionSummary) -> tuple[str, str]:
    return summary.created_ts, summary.session_id
