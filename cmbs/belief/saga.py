"""Writing to an elimination store that is not in the log's transaction.

The intent is in the log before the call, the entry after it. A crash in between leaves the intent open; the next
writer of the stream drives it forward: the call is repeated (merges are idempotent), the entry appended. An entry in
the log was settled, and is never sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cmbs.belief.kernel.events import read_event
from cmbs.belief.kernel.kind import append_of
from cmbs.belief.kernel.replay import catch_up
from cmbs.belief.kernel.session import Session, evolve
from cmbs.errors import BeliefServerError, LedgerCorrupt, SessionNotFound, StoreUnavailable
from cmbs.spi.audit_log import Append, AuditLog, StaleHead
from cmbs.spi.elimination_store import EliminationStore
from cmbs.streams.cache import Slot, Streams

_MAX_SWEPT = 1000
# Beyond, calls wait for a free thread, and their time-out runs meanwhile.
_MAX_CALLS = 64


class Saga:
    """Carries entries out in a store of its own."""

    def __init__(self, log: AuditLog, store: EliminationStore, timeout_seconds: float) -> None:
        self._log = log
        self._store = store
        self._timeout_seconds = timeout_seconds
        self._calls = ThreadPoolExecutor(_MAX_CALLS, "cmbs-remote")

    def carry_out(self, after: Session, append: Append) -> None:
        """Intent, call, entry. `StaleHead` where another writer was first; the caller decides again."""
        call = self._call(after, append)
        if call is None:
            self._log.append([append])
            return
        self._log.put_intent(append)
        self._send(append, call)
        self._conclude(append)

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
        # What was recorded is decided again, like anything that is read from a log.
        catch_up(slot.stream_id, session, [stored])
        after = evolve(session, event)
        append = append_of(after, event)
        call = self._call(after, append)
        if call is not None:
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
                except StoreUnavailable:
                    return
                except BeliefServerError:
                    continue

    def close(self) -> None:
        """Begin no further calls."""
        self._calls.shutdown(wait=False, cancel_futures=True)

    def _call(self, after: Session, append: Append) -> Callable[[], object] | None:
        """What the store must be told; None where it need not hear of this event."""
        session_id, store = after.session_id, self._store
        if after.provider is not None:
            return None
        if append.seq == 0:
            universe = frozenset(after.universe.ids)
            return lambda: store.create_session(session_id, universe)
        tombstones = append.tombstones
        if tombstones is None:
            return None
        return lambda: store.eliminate(session_id, frozenset(tombstones.ids), tombstones.provenance)

    def _send(self, append: Append, call: Callable[[], object]) -> None:
        try:
            # One that hangs is left to itself; its outcome is in doubt.
            self._calls.submit(call).result(self._timeout_seconds)
        except TimeoutError as exc:
            seconds = self._timeout_seconds
            raise StoreUnavailable(f"the elimination store did not answer in {seconds:g} seconds") from exc
        except StoreUnavailable:
            raise
        except SessionNotFound as exc:
            # The log has the session. A store that lost it, or was restored older, must not make it look unknown.
            self._log.drop_intent(append.stream_id, append.entry.event_hash)
            raise StoreUnavailable(f"the elimination store does not know session `{append.stream_id}`") from exc
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
