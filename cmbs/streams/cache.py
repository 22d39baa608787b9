"""A bounded cache of stream states: loaded from the log on first use, and never older than the log on a read."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock, RLock
from typing import Generic

from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.ledger import Head, check_head
from cmbs.spi.audit_log import AuditLog, Opening, opening_of
from cmbs.streams.checkpoints import Checkpointer, resume
from cmbs.streams.kinds import Folding, S


class Slot(Generic[S]):
    """One cached stream and its lock. A thread holds `lock` while it moves the stream to its next state."""

    __slots__ = ("checkpoint_seq", "contended", "lock", "state", "stream_id")

    def __init__(self, stream_id: str) -> None:
        self.stream_id = stream_id
        self.state: S | None = None
        self.lock = RLock()
        # Whether another process wrote between our last look and our write: then look again first next time.
        self.contended = False
        self.checkpoint_seq = 0


class Streams(Generic[S]):
    """Bounded cache of stream states, the least recently used evicted first."""

    def __init__(
        self, log: AuditLog, kind: Folding[S], capacity: int, checkpointer: Checkpointer[S] | None = None
    ) -> None:
        self._log = log
        self._kind = kind
        # None where no checkpoints are kept.
        self._checkpointer = checkpointer
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

    def find(self, stream_id: str) -> S | None:
        """The state of a stream that is in the cache; never touches the log."""
        with self._lock:
            slot = self._slots.get(stream_id)
            if slot is None:
                return None
            self._slots.move_to_end(stream_id)
            return slot.state

    def load(self, stream_id: str) -> S:
        """The cached state of a stream, read from the log where there is none; the kind's own error otherwise."""
        state = self.slot(stream_id).state
        return self.refresh(stream_id) if state is None else state

    def current(self, stream_id: str) -> S:
        """The state as the log has it now. While the log cannot be asked, as it was when it last could."""
        state = self.slot(stream_id).state
        if state is None:
            return self.refresh(stream_id)
        try:
            if self._log.head(stream_id) != state.head:
                return self.refresh(stream_id)
        except StoreUnavailable:
            return state
        return state

    def refresh(self, stream_id: str) -> S:
        """Bring a stream up to the log; the kind's own error where the log has no such stream."""
        state = self.peek(self.slot(stream_id))
        if state is None:
            raise self._kind.not_found(stream_id)
        return state

    def peek(self, slot: Slot[S]) -> S | None:
        """As `refresh`, but None where the log has no such stream."""
        with slot.lock:
            # Asked for before reading: the log may grow in between, but it must not be shorter than its head says.
            opening, head = None, None
            if self._kind.owns(slot.stream_id):
                opening = self._open(slot.stream_id) if slot.state is None else None
                head = self._log.head(slot.stream_id) if opening is None else opening.head
            if head is None:
                with self._lock:
                    self._slots.pop(slot.stream_id, None)
                slot.state = None
                return None
            state = self._continue(slot, head) or self._read_whole(slot, opening or self._open(slot.stream_id))
            if state.head.seq <= head.seq:
                check_head(slot.stream_id, state.head, head)
            self.publish(slot, state)
            return state

    def publish(self, slot: Slot[S], state: S) -> None:
        """Take over a state that is in the log; have a checkpoint written if the stream has grown enough."""
        slot.state = state
        if self._checkpointer is not None and self._checkpointer.is_due(state.head.seq, slot.checkpoint_seq):
            slot.checkpoint_seq = state.head.seq
            self._checkpointer.put(slot.stream_id, state)

    def _continue(self, slot: Slot[S], head: Head) -> S | None:
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

    def _open(self, stream_id: str) -> Opening | None:
        """What there is to begin with; None where no checkpoints are kept."""
        return None if self._checkpointer is None else opening_of(self._log, stream_id)

    def _read_whole(self, slot: Slot[S], opening: Opening | None) -> S:
        """The state from its checkpoint and the tail; where these do not fit each other, from the whole log."""
        stream_id, checkpointer = slot.stream_id, self._checkpointer
        resumed = None if opening is None or checkpointer is None else resume(checkpointer.codec, stream_id, opening)
        if resumed is not None:
            state, tail = resumed
            slot.checkpoint_seq = state.head.seq
            try:
                return self._kind.catch_up(stream_id, state, tail) or state
            except LedgerCorrupt:
                slot.checkpoint_seq = 0
        read = self._kind.catch_up(stream_id, None, self._log.read(stream_id))
        if read is None:
            raise LedgerCorrupt(stream_id, 0, "the log is empty")
        return read
