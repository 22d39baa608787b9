"""Sessions of a log held against the elimination store that their tombstones are in, and put right there.

The library behind `cmbs fsck --tee` and `cmbs tee repair`. The log is read, never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from cmbs.audit.plain_rows import all_sessions
from cmbs.belief.agreement import examine
from cmbs.belief.kernel.agreement import StoreReport, find_difference, name_some
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.session import Session
from cmbs.errors import Conflict, InvalidHypothesisId, LedgerCorrupt, SessionNotFound
from cmbs.spi import AuditLog, EliminationProvenance, EliminationStore, RecoveredState


class RepairableStore(EliminationStore, Protocol):
    """An elimination store that sessions can be rebuilt in."""

    def create_session_at(self, session_id: str, hypothesis_ids: frozenset[str], version: str) -> None:
        """As of an `AnchoringStore`."""
        ...

    def find_lacking(self, hypothesis_ids: frozenset[str]) -> frozenset[str]:
        """Those of the hypotheses that the store cannot create a session over."""
        ...


class Repair(NamedTuple):
    """What was done for a session, or would be; `left` is why it still does not agree, empty where it does."""

    session_id: str
    created: bool = False
    tombstones: int = 0
    left: str = ""


# Puts hypotheses into the graph of a store, where it can; those that are still missing.
Complete = Callable[[frozenset[str]], frozenset[str]]


def sessions_in(log: AuditLog, names: Iterable[str] | None = None) -> Iterator[Session | LedgerCorrupt]:
    """The sessions of a log whose tombstones are in a store of their own; for a bad log, what is wrong with it."""
    for session_id in [summary.session_id for summary in all_sessions(log)] if names is None else names:
        entries = log.read(session_id)
        if not entries:
            raise SessionNotFound(session_id)
        try:
            session = verify_session(session_id, entries)
        except LedgerCorrupt as exc:
            yield exc
            continue
        if session.is_in_store:
            yield session


def compare_session(log: AuditLog, session: Session, store: EliminationStore) -> StoreReport:
    """Whether a store agrees with the log of a session."""

    def look_again() -> Session | None:
        if log.intent(session.session_id) is not None:
            return None
        return verify_session(session.session_id, log.read(session.session_id))

    return examine(session, store, look_again)


def repair_session(session: Session, store: RepairableStore, complete: Complete, *, dry_run: bool) -> Repair:
    """Give a store what it lacks of a session. Merges are idempotent: it may be repeated, also beside a server."""
    session_id, universe = session.session_id, frozenset(session.universe.ids)
    created = False
    try:
        recovered = store.recover(session_id)
    except SessionNotFound:
        created = True
        left = _create(session, store, complete, dry_run=dry_run)
        if left:
            return Repair(session_id, left=left)
        recovered = RecoveredState(universe, frozenset(), universe)
    difference = find_difference(session, session, recovered)
    if difference.misplaced:
        return Repair(session_id, left=difference.reason)
    sent: set[str] = set()
    for observation, record in session.observations:
        lacking = difference.missing.intersection(record.applied)
        if lacking and not dry_run:
            result = store.eliminate(session_id, lacking, EliminationProvenance(*observation))
            lacking &= result.applied | result.already_eliminated
        sent |= lacking
    lost = difference.missing - sent
    why = f"the elimination store did not take tombstones for {name_some(lost)}" if lost else ""
    return Repair(session_id, created, len(sent), why)


def _create(session: Session, store: RepairableStore, complete: Complete, *, dry_run: bool) -> str:
    """Create a session in a store, as far as it can be; why it cannot."""
    universe = frozenset(session.universe.ids)
    lacking = store.find_lacking(universe)
    if lacking:
        lacking = complete(lacking)
    if lacking:
        return f"the graph lacks {name_some(lacking)}"
    if dry_run:
        return ""
    try:
        store.create_session_at(session.session_id, universe, session.ontology.causal_graph_version)
    except InvalidHypothesisId as exc:
        return f"the graph lacks {name_some(exc.unknown)}"
    except Conflict as exc:
        return exc.message
    return ""
