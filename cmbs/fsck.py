"""Checking a store: every byte of every session is read again, and what is derived is compared with it.

The library behind `cmbs fsck`. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from cmbs.belief_checkpoint import freeze, thaw
from cmbs.belief_replay import catch_up, verify_session
from cmbs.belief_session import Session
from cmbs.errors import LedgerCorrupt, SessionNotFound
from cmbs.ledger import StoredEntry
from cmbs.spi import AuditLog, EliminationStore, SessionSummary

_PAGE = 500


class CheckedStore(AuditLog, EliminationStore, Protocol):
    """What can be checked: a log that holds its tombstones itself."""


class Report(NamedTuple):
    """What was found of one session: each finding says what is wrong, and where."""

    session_id: str
    events: int
    findings: list[str]


def all_sessions(store: AuditLog) -> Iterator[SessionSummary]:
    """Every session of a store, the oldest first."""
    after: tuple[str, str] | None = None
    while page := store.sessions(after, _PAGE):
        yield from page
        after = (page[-1].created_ts, page[-1].session_id)


def check_session(store: CheckedStore, session_id: str) -> Report:
    """Read a session's log again, decide every message again, and compare all that is derived from it."""
    head = store.head(session_id)
    if head is None:
        return Report(session_id, 0, [str(SessionNotFound(session_id))])
    entries = store.read(session_id)
    try:
        session = verify_session(session_id, entries, head)
    except LedgerCorrupt as exc:
        return Report(session_id, len(entries), [str(exc)])
    findings = [
        *_tombstones(store, session),
        *_checkpoint(store, session, entries),
        *_intent(store, session),
    ]
    return Report(session_id, len(entries), findings)


def _tombstones(store: CheckedStore, session: Session) -> Iterator[str]:
    kept = store.recover(session.session_id)
    gone = frozenset(session.universe.ids).difference(session.survivors)
    if kept.hypothesis_ids != frozenset(session.universe.ids):
        yield "the stored universe is not the declared one"
    for hypothesis_id in sorted(kept.eliminated - gone):
        yield f"`{hypothesis_id}` has a tombstone, and no event eliminated it"
    for hypothesis_id in sorted(gone - kept.eliminated):
        yield f"`{hypothesis_id}` was eliminated, and has no tombstone"


def _checkpoint(store: CheckedStore, session: Session, entries: list[StoredEntry]) -> Iterator[str]:
    kept = store.checkpoint(session.session_id)
    if kept is None:
        return
    seq, data = kept
    if not 0 <= seq < len(entries):
        yield f"the checkpoint is of seq {seq}, beyond the log"
        return
    thawed = thaw(data, entries[0], entries[seq])
    if thawed is None:
        yield f"the checkpoint of seq {seq} does not fit the log"
        return
    replayed = catch_up(session.session_id, None, entries[: seq + 1])
    if replayed is None or freeze(replayed) != freeze(thawed):
        yield f"the checkpoint of seq {seq} is not what the log leads to"


def _intent(store: CheckedStore, session: Session) -> Iterator[str]:
    stored = store.intent(session.session_id)
    if stored is None:
        return
    try:
        catch_up(session.session_id, session, [stored])
    except LedgerCorrupt as exc:
        yield f"the open intent does not continue the log: {exc.message}"
