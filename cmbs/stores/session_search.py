"""The search for sessions as SQL, which SQLite and PostgreSQL read alike, and the rows that it goes by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from cmbs.ledger import StoredEntry
from cmbs.ledger.listing import Listing, decode_listing, encode_listing, index_session, search_text
from cmbs.spi.audit_log import RESERVED_PREFIXES, Append, SessionSummary, beyond
from cmbs.spi.session_search import ListedSession, SessionQuery

# Streams of other kinds are no sessions.
NO_OTHER_KIND = "".join(
    f" AND NOT ({{column}} >= '{prefix}' AND {{column}} < '{beyond(prefix)}')" for prefix in RESERVED_PREFIXES
)


class ListingRow(NamedTuple):
    """A row of `listings`."""

    session_id: str
    created_ts: str
    state: str
    search: str
    summary: bytes


class TermRow(NamedTuple):
    """A row of `listing_terms`."""

    session_id: str
    term: bytes
    created_ts: str


def make_listing_row(session_id: str, listing: Listing) -> ListingRow:
    """The row of a session."""
    text = search_text(session_id, listing.title)
    return ListingRow(session_id, listing.created_ts, listing.standing.value, text, encode_listing(listing))


def listing_row(item: Append) -> ListingRow | None:
    """The row of a session after an entry; None for a stream of another kind."""
    return next(iter(newest_listings([item])), None)


def newest_listings(appends: Iterable[Append]) -> list[ListingRow]:
    """The rows of the sessions that these entries are of, each once, as they are after the last of them."""
    newest = {
        item.stream_id: item.session.listing
        for item in appends
        if item.session is not None and item.session.listing is not None
    }
    return [make_listing_row(session_id, listing) for session_id, listing in newest.items()]


class ChangedTerms(NamedTuple):
    """Rows by which sessions are found since some entries, and rows by which they no longer are; each once.

    The first may be there already, the second may never have been there.
    """

    found: list[TermRow]
    lost: list[TermRow]


def sort_terms(appends: Iterable[Append]) -> ChangedTerms:
    """What becomes of the rows by which sessions are found, after the last of these entries."""
    rows: dict[TermRow, bool] = {}
    for item in appends:
        session = item.session
        if session is not None and session.listing is not None:
            for terms, is_found in ((session.lost_terms, False), (session.terms, True)):
                rows.update((TermRow(item.stream_id, term, session.listing.created_ts), is_found) for term in terms)
    return ChangedTerms([row for row, is_found in rows.items() if is_found], [row for row in rows if not rows[row]])


def build_search(
    query: SessionQuery, after: tuple[str, str] | None, limit: int, *, mark: str, schema: str, contains: str
) -> tuple[str, list[Any]]:
    """The statement and its parameters. `mark` stands for a parameter, `contains` is the test for text in text.

    The places of a page are found in an index; only the rows of the page itself are then read.
    """
    source, place = f"{schema}listings AS l", "l"
    parts: list[tuple[str, tuple[object, ...]]] = []
    if query.terms:
        source, place = f"{schema}listing_terms AS t CROSS JOIN {source}", "t"
        parts.append((f"l.session_id = t.session_id AND t.term = {mark}", query.terms[:1]))
    # All terms of a session are of one moment: said here, PostgreSQL can read both terms side by side, in one order.
    same_session = "x.session_id = t.session_id AND x.created_ts = t.created_ts"
    has_term = f"EXISTS (SELECT 1 FROM {schema}listing_terms AS x WHERE {same_session} AND x.term = {mark})"  # noqa: S608
    parts += [(has_term, (term,)) for term in query.terms[1:]]
    if query.session_ids is not None:
        marks = ", ".join([mark] * len(query.session_ids))
        parts.append((f"{place}.session_id IN ({marks})", query.session_ids))
    if query.standing is not None:
        parts.append((f"l.state = {mark}", (query.standing.value,)))
    if query.text:
        marks = ", ".join([mark] * len(query.named))
        named = f" OR {place}.session_id IN ({marks})" if query.named else ""
        parts.append((f"({contains}{named})", (query.text.casefold(), *query.named)))
    if after is not None:
        comparison = "<" if query.newest_first else ">"
        parts.append((f"({place}.created_ts, {place}.session_id) {comparison} ({mark}, {mark})", after))
    moments = ((query.since, ">="), (query.until, "<"))
    parts += [(f"{place}.created_ts {comparison} {mark}", (moment,)) for moment, comparison in moments if moment]
    where = f" WHERE {' AND '.join(condition for condition, _ in parts)}" if parts else ""
    ordering = "DESC" if query.newest_first else "ASC"
    order = f"ORDER BY {{0}}.created_ts {ordering}, {{0}}.session_id {ordering}"
    statement = (
        "SELECT s.session_id, p.created_ts, s.universe_size, s.n_survivors, s.terminated, s.head_seq, s.head_event_id,"  # noqa: S608
        f" l.summary FROM (SELECT {place}.session_id, {place}.created_ts FROM {source}{where}"
        f" {order.format(place)} LIMIT {mark}) AS p"
        # A row that is not there is noticed, so that it does not end the list.
        f" LEFT JOIN {schema}listings AS l ON l.session_id = p.session_id"
        f" LEFT JOIN {schema}sessions AS s ON s.session_id = p.session_id {order.format('p')}"
    )
    return statement, [*(value for _, values in parts for value in values), limit]


def read_found(rows: Iterable[Any], read: Callable[[str], Sequence[StoredEntry]]) -> list[ListedSession]:
    """The sessions of the rows that the statement gives.

    One whose row cannot be read, or whose two rows say different things of it, is read from its log instead.
    """
    found: list[ListedSession] = []
    for *columns, raw in rows:
        if columns[0] is None:
            # There is no such session.
            continue
        summary = SessionSummary(*columns)
        try:
            listing: Listing | None = decode_listing(raw)
        except (msgspec.DecodeError, TypeError, UnicodeDecodeError):
            listing = None
        if listing is None or _outline(listing) != (summary.universe_size, summary.n_survivors, summary.terminated):
            indexed = index_session(stored.raw for stored in read(summary.session_id))
            if indexed is None:
                continue
            listing = indexed.listing
            universe_size, n_survivors, _ = _outline(listing)
            summary = summary._replace(
                universe_size=universe_size, n_survivors=n_survivors, terminated=listing.terminated
            )
        found.append(ListedSession(summary._replace(terminated=bool(summary.terminated)), listing))
    return found


def _outline(listing: Listing) -> tuple[int, int, bool]:
    """What the table of sessions says of a session too."""
    return listing.n_universe, listing.n_survivors, listing.terminated
