"""The sessions at hand: loaded from the log on first use, never older than the log, never more than a bound."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock, RLock

from cmbs.belief_replay import catch_up, verify_session
from cmbs.belief_session import Session
from cmbs.errors import LedgerCorrupt, SessionNotFound, StoreUnavailable
from cmbs.ledger import Head, check_head
from cmbs.serving.checkpoints import Checkpointer, resumed
from cmbs.spi.audit_log import AuditLog, Opening, opening_of


class Slot:
    """One session at hand. Whoever moves it to its next state holds `lock` meanwhile."""

    __slots__ = ("checkpoint_seq", "contended", "lock", "session", "session_id")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.session: Session | None = None
        self.lock = RLock()
        # Whether another process wrote between our last look and our write: then look again first next time.
        self.contended = False
        self.checkpoint_seq = 0

    def advance(self, session: Session) -> None:
        """Take over a state that is in the log, unless a newer one is here already."""
        with self.lock:
            if self.session is None or session.head.seq > self.session.head.seq:
                self.session = session


class Sessions:
    """A bounded cache over a log."""

    def __init__(self, log: AuditLog, capacity: int, checkpointer: Checkpointer | None = None) -> None:
        self._log = log
        self._checkpointer = checkpointer
        self._capacity = capacity
        self._slots: OrderedDict[str, Slot] = OrderedDict()
        self._lock = Lock()

    def slot(self, session_id: str) -> Slot:
        """The slot of a session, empty where it was not loaded yet."""
        with self._lock:
            slot = self._slots.get(session_id)
            if slot is None:
                slot = self._slots[session_id] = Slot(session_id)
                if len(self._slots) > self._capacity:
                    self._slots.popitem(last=False)
            else:
                self._slots.move_to_end(session_id)
            return slot

    def cached(self, session_id: str) -> Slot | None:
        """The slot of a session that is at hand; never touches the log."""
        slot = self._slots.get(session_id)
        if slot is None or slot.session is None:
            return None
        try:  # noqa: SIM105 - `suppress` costs more than all the rest
            self._slots.move_to_end(session_id)
        except KeyError:  # evicted in this very moment; what we hold is still good
            pass
        return slot

    def loaded(self, session_id: str) -> Slot:
        """The slot of a session that exists; SessionNotFound otherwise."""
        slot = self.slot(session_id)
        if slot.session is None:
            self.refresh(slot)
        return slot

    def current(self, session_id: str) -> Session:
        """The session as the log has it now. While the log cannot be asked, as it was when it last could."""
        slot = self.slot(session_id)
        session = slot.session
        if session is None:
            return self.refresh(slot)
        try:
            if self._log.head(session_id) != session.head:
                return self.refresh(slot)
        except StoreUnavailable:
            return session
        return session

    def refresh(self, slot: Slot) -> Session:
        """Bring a slot up to the log; SessionNotFound where the log has no such session."""
        with slot.lock:
            # Asked for before reading: the log may grow in between, but it must not be shorter than its head says.
            opening = self._opening(slot) if slot.session is None else None
            head = self._log.head(slot.session_id) if opening is None else opening.head
            if head is None:
                self.forget(slot.session_id)
                raise SessionNotFound(slot.session_id)
            session = self._continued(slot, head) or self._read_anew(slot, opening or self._opening(slot))
            if session.head.seq <= head.seq:
                check_head(slot.session_id, session.head, head)
            slot.session = session
            self.keep_checkpoint(slot)
            return session

    def peek(self, slot: Slot) -> Session | None:
        """As `refresh`, but None where the log has no such session."""
        try:
            return self.refresh(slot)
        except SessionNotFound:
            slot.session = None
            return None

    def keep_checkpoint(self, slot: Slot) -> None:
        """Have a checkpoint written if the session has grown enough since the last one."""
        session = slot.session
        if self._checkpointer is None or session is None:
            return
        if self._checkpointer.is_due(session.head.seq, slot.checkpoint_seq):
            slot.checkpoint_seq = session.head.seq
            self._checkpointer.put(session)

    def _continued(self, slot: Slot, head: Head) -> Session | None:
        """The cached session and what followed it; None where the log is no continuation of it (another file, say)."""
        if slot.session is None or slot.session.head.seq > head.seq:
            return None
        if slot.session.head == head:
            return slot.session
        try:
            session = catch_up(slot.session_id, slot.session, self._log.read(slot.session_id, slot.session.head.seq))
        except LedgerCorrupt:
            return None
        return session if session is not None and (session.head.seq > head.seq or session.head == head) else None

    def _opening(self, slot: Slot) -> Opening | None:
        """What there is to begin with; None where no checkpoints are kept."""
        return None if self._checkpointer is None else opening_of(self._log, slot.session_id)

    def _read_anew(self, slot: Slot, opening: Opening | None) -> Session:
        """The session from its checkpoint and the tail; where these do not fit each other, from the whole log."""
        session_id = slot.session_id
        kept = None if opening is None else resumed(session_id, opening)
        if kept is not None:
            session, tail = kept
            slot.checkpoint_seq = session.head.seq
            try:
                return catch_up(session_id, session, tail) or session
            except LedgerCorrupt:
                slot.checkpoint_seq = 0
        return verify_session(session_id, self._log.read(session_id))

    def forget(self, session_id: str) -> None:
        """Drop a session from the cache."""
        with self._lock:
            self._slots.pop(session_id, None)
