"""Checking a store: every byte of every session is read again, and what is derived is compared with it.

The library behind `cmbs fsck`. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.replay import catch_up, verify_session
from cmbs.belief.kernel.session import Session
from cmbs.errors import LedgerCorrupt, SessionNotFound
from cmbs.ledger import StoredEntry
from cmbs.ledger.entry import read_body
from cmbs.spi import AuditLog, EliminationStore, SessionSummary
from cmbs.streams.kinds import CheckpointCodec, Folding, S

_PAGE = 500
_ALL = 2**31 - 1
# Sessions that were declared in the same microsecond are few.
_NEIGHBOURS = 10


class CheckedStore(AuditLog, EliminationStore, Protocol):
    """What can be checked: a log that holds its tombstones itself."""


class _Folding(Folding[S], CheckpointCodec[S], Protocol[S]):
    """A kind of stream that has checkpoints."""


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


def only_intended(store: AuditLog) -> Iterator[str]:
    """The ids of sessions that have an open intent and no log: their declaration is in doubt."""
    return (session_id for session_id in store.open_intents(_ALL) if store.head(session_id) is None)


def check_session(store: CheckedStore, session_id: str) -> Report:
    """Read a session's log again, decide every message again, and compare all that is derived from it."""
    head = store.head(session_id)
    if head is None:
        return Report(session_id, 0, list(_check_undeclared(store, session_id)))
    entries = store.read(session_id)
    try:
        session = verify_session(session_id, entries, head)
    except LedgerCorrupt as exc:
        return Report(session_id, len(entries), [str(exc)])
    findings = [
        *_check_summary(store, session, entries[0]),
        *_check_tombstones(store, session),
        *check_checkpoint(store, BeliefFolding(), session_id, entries),
        *_check_intent(store, session),
    ]
    return Report(session_id, len(entries), findings)


def _check_undeclared(store: CheckedStore, session_id: str) -> Iterator[str]:
    """A session without a log is wrong, unless its declaration is on the way."""
    intended = store.intent(session_id)
    if intended is None:
        yield str(SessionNotFound(session_id))
        return
    try:
        catch_up(session_id, None, [intended])
    except LedgerCorrupt as exc:
        yield f"an intent is open for a session that was never declared: {exc.message}"


def _check_summary(store: CheckedStore, session: Session, declaration: StoredEntry) -> Iterator[str]:
    """What the list of sessions says; the hash of its head was compared with the chain before."""
    expected = SessionSummary(
        session.session_id,
        read_body(declaration.raw).ts,
        len(session.universe.ids),
        len(session.survivors),
        session.terminated_seq is not None,
        session.head.seq,
        session.head_event_id,
    )
    found = _find_summary(store, expected)
    if found is None:
        yield f"it is not in the list of sessions where it belongs, at `{expected.created_ts}`"
        return
    for name, listed, true in zip(expected._fields, found, expected, strict=True):
        if listed != true:
            yield f"the list of sessions has `{listed}` as its {name}, the log leads to `{true}`"


def _find_summary(store: CheckedStore, expected: SessionSummary) -> SessionSummary | None:
    """The row of a session, looked for where its declaration says that it is."""
    after = (expected.created_ts, "")
    while page := store.sessions(after, _NEIGHBOURS):
        for row in page:
            if row.session_id == expected.session_id or row.created_ts != expected.created_ts:
                return row if row.session_id == expected.session_id else None
        after = (page[-1].created_ts, page[-1].session_id)
    return None


def _check_tombstones(store: CheckedStore, session: Session) -> Iterator[str]:
    kept = store.recover(session.session_id)
    gone = frozenset(session.universe.ids).difference(session.survivors)
    if kept.hypothesis_ids != frozenset(session.universe.ids):
        yield "the stored universe is not the declared one"
    for hypothesis_id in sorted(kept.eliminated - gone):
        yield f"`{hypothesis_id}` has a tombstone, and no event eliminated it"
    for hypothesis_id in sorted(gone - kept.eliminated):
        yield f"`{hypothesis_id}` was eliminated, and has no tombstone"


def check_checkpoint(log: AuditLog, folding: _Folding[S], stream_id: str, entries: list[StoredEntry]) -> Iterator[str]:
    """What is wrong with the checkpoint of a stream whose entries were verified before."""
    kept = log.checkpoint(stream_id)
    if kept is None:
        return
    seq, data = kept
    if not 0 <= seq < len(entries):
        yield f"the checkpoint is of seq {seq}, beyond the log"
        return
    thawed = folding.thaw(stream_id, data, entries[0], entries[seq])
    if thawed is None:
        yield f"the checkpoint of seq {seq} does not fit the log"
        return
    frozen = folding.freeze(thawed)
    # A long stream may have a large state: one of the two at a time.
    del thawed
    replayed: S | None = None
    for stored in islice(entries, seq + 1):
        replayed, _ = folding.fold(replayed, stored)
    if replayed is None or folding.freeze(replayed) != frozen:
        yield f"the checkpoint of seq {seq} is not what the log leads to"


def _check_intent(store: CheckedStore, session: Session) -> Iterator[str]:
    stored = store.intent(session.session_id)
    if stored is None:
        return
    try:
        catch_up(session.session_id, session, [stored])
    except LedgerCorrupt as exc:
        yield f"the open intent does not continue the log: {exc.message}"
