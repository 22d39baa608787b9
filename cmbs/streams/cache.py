"""The streams at hand: loaded from the log on first use, never older than the log, never more than a bound."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock, RLock
from typing import Generic

from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.ledger import Head, check_head
from cmbs.spi.audit_log import AuditLog, Opening, opening_of
from cmbs.streams.checkpoints import Checkpointer, resumed
from cmbs.streams.kinds import Folding, S, verified


class Slot(Generic[S]):
    """One stream at hand. Whoever moves it to its next state holds `lock` meanwhile."""

    __slots__ = ("checkpoint_seq", "contended", "lock", "state", "stream_id")

    def __init__(self, stream_id: str) -> None:
        self.stream_id = stream_id
        self.state: S | None = None
        self.lock = RLock()
        # Whether another process wrote between our last look and our write: then look again first next time.
        self.contended = False
        self.checkpoint_seq = 0

    def advance(self, state: S) -> None:
        """Take over a state that is in the log, unless a newer one is here already."""
        with self.lock:
            if self.state is None or state.head.seq > self.state.head.seq:
                self.state = state


class Streams(Generic[S]):
    """A bounded cache over a log."""

    def __init__(
        self, log: AuditLog, kind: Folding[S], capacity: int, checkpointer: Checkpointer[S] | None = None
    ) -> None:
        self._log = log
        self._kind = kind
        # None where no checkpoints are kept.
        self.checkpointer = checkpointer
        self._capacity = capacity
        self._slots: OrderedDict[str, Slot[S]] = OrderedDict()
        self._lock = Lock()

    def slot(self, stream_id: str) -> Slot[S]:
        """The slot of a stream, empty where it was not loaded yet."""
        with self._lock:
            slot = self._slots.get(stream_id)
            if slot is None:
                slot = self._slots[stream_id] = Slot[S](stream_id)
                if len(self._slots) > self._capacity:
                    self._slots.popitem(last=False)
            else:
                self._slots.move_to_end(stream_id)
            return slot

    def cached(self, stream_id: str) -> Slot[S] | None:
        """The slot of a stream that is at hand; never touches the log."""
        slot = self._slots.get(stream_id)
        if slot is None or slot.state is None:
            return None
        try:  # noqa: SIM105 - `suppress` costs more than all the rest
            self._slots.move_to_end(stream_id)
        except KeyError:  # evicted in this very moment; what we hold is still good
            pass
        return slot

    def loaded(self, stream_id: str) -> Slot[S]:
        """The slot of a stream that exists; the kind's own error otherwise."""
        slot = self.slot(stream_id)
        if slot.state is None:
            self.refresh(slot)
        return slot

    def current(self, stream_id: str) -> S:
        """The state as the log has it now. While the log cannot be asked, as it was when it last could."""
        slot = self.slot(stream_id)
        state = slot.state
        if state is None:
            return self.refresh(slot)
        try:
            if self._log.head(stream_id) != state.head:
                return self.refresh(slot)
        except StoreUnavailable:
            return state
        return state

    def refresh(self, slot: Slot[S]) -> S:
        """Bring a slot up to the log; the kind's own error where the log has no such stream."""
        state = self.peek(slot)
        if state is None:
            raise self._kind.not_found(slot.stream_id)
        return state

    def peek(self, slot: Slot[S]) -> S | None:
        """As `refresh`, but None where the log has no such stream."""
        with slot.lock:
            # Asked for before reading: the log may grow in between, but it must not be shorter than its head says.
            opening, head = None, None
            if self._kind.owns(slot.stream_id):
                opening = self._opening(slot) if slot.state is None else None
                head = self._log.head(slot.stream_id) if opening is None else opening.head
            if head is None:
                self.forget(slot.stream_id)
                slot.state = None
                return None
            state = self._continued(slot, head) or self._read_anew(slot, opening or self._opening(slot))
            if state.head.seq <= head.seq:
                check_head(slot.stream_id, state.head, head)
            slot.state = state
            self.keep_checkpoint(slot)
            return state

    def keep_checkpoint(self, slot: Slot[S]) -> None:
        """Have a checkpoint written if the stream has grown enough since the last one."""
        state = slot.state
        if self.checkpointer is None or state is None:
            return
        if self.checkpointer.is_due(state.head.seq, slot.checkpoint_seq):
            slot.checkpoint_seq = state.head.seq
            self.checkpointer.put(slot.stream_id, state)

    def _continued(self, slot: Slot[S], head: Head) -> S | None:
        """The cached state and what followed it; None where the log is no continuation of it (another file, say)."""
        if slot.state is None or slot.state.head.seq > head.seq:
            return None
        if slot.state.head == head:
            return slot.state
        try:
            following = self._log.read(slot.stream_id, slot.state.head.seq)
            state = self._kind.catch_up(slot.stream_id, slot.state, following)
        except LedgerCorrupt:
            return None
        return state if state is not None and (state.head.seq > head.seq or state.head == head) else None

    def _opening(self, slot: Slot[S]) -> Opening | None:
        """What there is to begin with; None where no checkpoints are kept."""
        return None if self.checkpointer is None else opening_of(self._log, slot.stream_id)

    def _read_anew(self, slot: Slot[S], opening: Opening | None) -> S:
        """The state from its checkpoint and the tail; where these do not fit each other, from the whole log."""
        stream_id = slot.stream_id
        kept = None if opening is None else resumed(self._kind, stream_id, opening)
        if kept is not None:
            state, tail = kept
            slot.checkpoint_seq = state.head.seq
            try:
                return self._kind.catch_up(stream_id, state, tail) or state
            except LedgerCorrupt:
                slot.checkpoint_seq = 0
        return verified(self._kind, stream_id, self._log.read(stream_id))

    def forget(self, stream_id: str) -> None:
        """Drop a stream from the cache."""
        with self._lock:
            self._slots.pop(stream_id, None)
