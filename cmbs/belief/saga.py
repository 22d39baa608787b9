"""Writing to an elimination store that is not in the log's transaction.

The intent is in the log before the call, the entry after it. A crash in between leaves the intent open; the next
writer of the stream drives it forward: the call is repeated (merges are idempotent), the entry appended. An entry in
the log was settled, and is never sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cmbs.belief.agreement import UNKNOWN_SESSION, Agreement
from cmbs.belief.kernel.agreement import name_some
from cmbs.belief.kernel.events import Event, read_event
from cmbs.belief.kernel.kind import append_of
from cmbs.belief.kernel.replay import catch_up
from cmbs.belief.kernel.session import Session
from cmbs.belief.remote_calls import RemoteCalls
from cmbs.errors import BeliefServerError, LedgerCorrupt, SessionNotFound, StoreDisagrees, StoreUnavailable
from cmbs.spi.audit_log import Append, AuditLog, StaleHead
from cmbs.spi.elimination_store import EliminationProvenance, EliminationStore
from cmbs.spi.graph_search import GraphReader
from cmbs.spi.universe import AnchoringStore
from cmbs.stores.memory import InMemoryStore
from cmbs.streams.cache import Slot, Streams

_MAX_SWEPT = 1000


class Saga:
    """Carries entries out in a store of its own."""

    def __init__(self, log: AuditLog, store: EliminationStore, calls: RemoteCalls, agreement: Agreement) -> None:
        self._log = log
        self._store = store
        self._calls = calls
        self._agreement = agreement

    def admit(self, session: Session, event: Event) -> None:
        """Refuse an event of a session that the store does not agree with; nothing is in doubt yet."""
        if session.is_in_store:
            self._agreement.require(session, sends=bool(event.body.delta.eliminated))

    def carry_out(self, after: Session, append: Append) -> None:
        """Intent, call, entry. `StaleHead` where another writer was first; the caller decides again."""
        call = self._call(after, append)
        if call is None:
            self._log.append([append])
            return
        self._log.put_intent(append)
        self._send(append, call)
        self._conclude(append)
        if append.seq == 0:
            self._agreement.trust(after)

    def settle(self, sessions: Streams[Session], slot: Slot[Session]) -> None:
        """Drive the open intent of a session forward, if there is one. The caller holds the slot's lock."""
        stored = self._log.intent(slot.stream_id)
        if stored is None:
            return
        try:
            event = read_event(stored)
        except ValueError as exc:
            raise LedgerCorrupt(slot.stream_id, 0, f"its open intent cannot be read: {exc}") from exc
        session = sessions.peek(slot)
        if session is not None and event.body.seq <= session.head.seq:
            # Settled by another process in this moment, or beaten by another entry: nothing can come of it any more.
            self._log.drop_intent(slot.stream_id, stored.event_hash)
            return
        # It may have been sent before: what is refused here stays in doubt until log and store agree.
        if session is not None and event.body.delta.eliminated:
            self.admit(session, event)
        # What was recorded is decided again, like anything that is read from a log.
        after = catch_up(slot.stream_id, session, [stored])
        if after is None:  # pragma: no cover - there is one entry at least
            raise SessionNotFound(slot.stream_id)
        append = append_of(session, after, event)
        call = self._call(after, append)
        if call is not None:
            if session is None:
                self._agreement.require_home(after)
            self._send(append, call)
        self._conclude(append)

    def sweep(self, sessions: Streams[Session]) -> None:
        """Drive forward what an earlier life left open. What cannot be now waits for its session's next use.

        A store that is away is waited for once, not once for each session: a server must start without it.
        """
        for session_id in self._log.open_intents(_MAX_SWEPT):
            slot = sessions.slot(session_id)
            with slot.lock:
                try:
                    self.settle(sessions, slot)
                except StoreDisagrees:
                    continue
                except StoreUnavailable:
                    return
                except BeliefServerError:
                    continue

    def _call(self, after: Session, append: Append) -> Callable[[], object] | None:
        """What the store must be told; None where it need not hear of this event."""
        session_id, store = after.session_id, self._store
        if not after.is_in_store:
            return None
        if append.seq == 0:
            universe, version = frozenset(after.universe.ids), after.ontology.causal_graph_version
            if after.symptoms and isinstance(store, GraphReader):
                return lambda: store.create_anchored(session_id, universe, version)
            if isinstance(store, AnchoringStore):
                return lambda: store.create_session_at(session_id, universe, version)
            return lambda: store.create_session(session_id, universe)
        tombstones = append.tombstones
        if tombstones is None:
            return None
        return lambda: self._eliminate(after, frozenset(tombstones.ids), tombstones.provenance)

    def _eliminate(self, after: Session, ids: frozenset[str], provenance: EliminationProvenance) -> None:
        """The answer of the store is authoritative: what it neither applied nor had before is not eliminated."""
        result = self._store.eliminate(after.session_id, ids, provenance)
        lost = ids - result.applied - result.already_eliminated
        if lost:
            reason = f"the elimination store did not take tombstones for {name_some(lost)}"
            raise self._agreement.distrust(after.session_id, reason)
        if result.total is not None and result.total < after.eliminated_total:
            counts = f"{result.total}, and the log has {after.eliminated_total}"
            raise self._agreement.distrust(after.session_id, f"the elimination store lacks tombstones: it has {counts}")

    def _send(self, append: Append, call: Callable[[], object]) -> None:
        try:
            # One that hangs is left to itself; its outcome is in doubt.
            self._calls.ask(call)
        except StoreUnavailable:
            raise
        except SessionNotFound as exc:
            # The log has the session. A store that lost it, or was restored older, must not make it look unknown.
            self._log.drop_intent(append.stream_id, append.entry.event_hash)
            raise self._agreement.distrust(append.stream_id, UNKNOWN_SESSION) from exc
        except BeliefServerError:
            # The store understood and refused: nothing came of it, and nothing is in doubt.
            self._log.drop_intent(append.stream_id, append.entry.event_hash)
            raise
        except Exception as exc:
            raise StoreUnavailable(f"the elimination store failed: {exc}") from exc

    def _conclude(self, append: Append) -> None:
        try:
            self._log.append([append])
        except StaleHead:
            # Another process may have driven our intent forward meanwhile: then the entry is in the log already.
            stored = self._log.read(append.stream_id, append.seq - 1, 1)
            if not stored or stored[0] != append.entry:
                raise


def split_store(store: Any, audit_log: AuditLog | None) -> tuple[AuditLog, EliminationStore | None]:
    """Where events go, and the store of tombstones where that is another."""
    if audit_log is None:
        audit_log = store if isinstance(store, AuditLog) else InMemoryStore()
    return audit_log, None if store is audit_log else store
