"""A bounded cache of stream states: loaded from the log on first use, and never older than the log on a read.

Nor is the log ever older than what this process has seen of it: such a log is refused, however it is asked.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock, RLock
from typing import Generic, NamedTuple

from cmbs.errors import BeliefServerError, LedgerCorrupt, StoreUnavailable
from cmbs.ledger import Head, check_head
from cmbs.ledger.state_digest import find_binding, last_digest_point
from cmbs.spi.audit_log import Append, AuditLog, Opening, opening_of
from cmbs.streams.checkpoints import Checkpointer, resume
from cmbs.streams.kinds import Folding, S
from cmbs.streams.reading import read_pages
from cmbs.streams.seen_heads import SeenHeads
from cmbs.streams.self_check import SelfCheck

_log = logging.getLogger("cmbs.streams")
# A state is weighed again once its stream has grown by so many events and by this share: weighing goes through it all.
_EVENTS_BEFORE_WEIGHING = 16
_SHARE_BEFORE_WEIGHING = 8


class ByteBudget(NamedTuple, Generic[S]):
    """How much memory cached states may take together; `weigh` estimates the bytes that one takes."""

    max_bytes: int
    weigh: Callable[[S], int]


class Slot(Generic[S]):
    """One cached stream and its lock. A thread holds `lock` while it moves the stream to its next state."""

    __slots__ = ("contended", "lock", "state", "stream_id", "weighed_seq", "weight")

    def __init__(self, stream_id: str) -> None:
        self.stream_id = stream_id
        self.state: S | None = None
        self.lock = RLock()
        # Whether another process wrote between our last look and our write: then look again first next time.
        self.contended = False
        self.weight = 0
        self.weighed_seq = -1


class Streams(Generic[S]):
    """Bounded cache of stream states, the least recently used evicted first.

    It holds at most `capacity` of them, and with a `budget` no more than its bytes; the newest one is held in any case.
    """

    def __init__(
        self,
        log: AuditLog,
        kind: Folding[S],
        capacity: int,
        checkpointer: Checkpointer[S] | None = None,
        budget: ByteBudget[S] | None = None,
    ) -> None:
        self.seen = SeenHeads(log)
        self._log = log
        self._kind = kind
        # None where no checkpoints are kept.
        self._checkpointer = checkpointer
        self.self_check = SelfCheck(log, kind, self._distrust)
        # Streams whose checkpoint passed for their past, and whose past did not verify: replayed whole until it does.
        self._distrusted: set[str] = set()
        self._capacity = capacity
        self._budget = budget
        self._weight = 0
        self._slots: OrderedDict[str, Slot[S]] = OrderedDict()
        self._lock = Lock()

    def slot(self, stream_id: str) -> Slot[S]:
        """The slot of a stream, empty where it was not loaded yet."""
        with self._lock:
            slot = self._slots.get(stream_id)
            if slot is None:
                slot = self._slots[stream_id] = Slot[S](stream_id)
                if len(self._slots) > self._capacity:
                    self._evict_oldest()
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
            raise self.find_reason(stream_id)
        return state

    def find_reason(self, stream_id: str) -> BeliefServerError:
        """Why a stream without a head is not there: the kind's own error, unless it has entries."""
        if (
            self._kind.owns(stream_id)
            and self._log.read(stream_id, limit=1)
            # Otherwise it was begun since.
            and self._log.head(stream_id) is None
        ):
            return LedgerCorrupt(stream_id, 0, "it is there, and no head of its stream is recorded")
        return self._kind.not_found(stream_id)

    def peek(self, slot: Slot[S]) -> S | None:
        """As `refresh`, but None where the log has no such stream."""
        with slot.lock:
            # Asked for before the log is: what is durable by then must be in its answer.
            seen = self.seen.find(slot.stream_id) or (None if slot.state is None else slot.state.head)
            # Asked for before reading: the log may grow in between, but it must not be shorter than its head says.
            opening, head = None, None
            if self._kind.owns(slot.stream_id):
                opening = self._open(slot.stream_id) if slot.state is None else None
                head = self._log.head(slot.stream_id) if opening is None else opening.head
            if seen is not None:
                self.seen.check(slot.stream_id, seen, head)
            if head is None:
                with self._lock:
                    gone = self._slots.pop(slot.stream_id, None)
                    self._weight -= 0 if gone is None else gone.weight
                return None
            if slot.state is None:
                state = self._read_whole(slot, opening or self._open(slot.stream_id), head)
            else:
                state = self._continue(slot.stream_id, slot.state, head)
            if state.head.seq <= head.seq:
                check_head(slot.stream_id, state.head, head)
            else:
                # It has grown since, and then so has its head.
                self.seen.check(slot.stream_id, state.head, self._log.head(slot.stream_id))
            if seen is not None and (slot.state is None or slot.state.head != seen):
                self.seen.check_links(slot.stream_id, seen, state.head)
            self.publish(slot, state)
            return state

    def expect(self, stream_id: str, head: Head) -> None:
        """Refuse a stream, whatever is cached of it, until the log contains this head, which was recorded of it."""
        slot = self.slot(stream_id)
        with slot.lock:
            self.seen.expect(stream_id, head)
            # A writer that waits for this slot must look at the log again, and so must the next reader.
            slot.contended = True
            with self._lock:
                if self._slots.get(stream_id) is slot:
                    del self._slots[stream_id]
                    self._weight -= slot.weight

    def publish(self, slot: Slot[S], state: S, appends: Sequence[Append] = ()) -> None:
        """Take over a state that is in the log, with the appends that led to it: their newest checkpoint is kept."""
        slot.state = state
        self.seen.note(slot.stream_id, state.head)
        budget, grown = self._budget, state.head.seq - slot.weighed_seq
        if budget is not None and (
            slot.weighed_seq < 0 or grown >= max(_EVENTS_BEFORE_WEIGHING, slot.weighed_seq // _SHARE_BEFORE_WEIGHING)
        ):
            self._weigh(slot, state, budget)
        newest = next((append for append in reversed(appends) if append.checkpoint is not None), None)
        if self._checkpointer is not None and newest is not None and newest.checkpoint is not None:
            self._checkpointer.put(slot.stream_id, newest.seq, newest.checkpoint)

    def _weigh(self, slot: Slot[S], state: S, budget: ByteBudget[S]) -> None:
        """Note how large a state has become, and evict others where all together are too large."""
        weight = budget.weigh(state)
        with self._lock:
            slot.weighed_seq = state.head.seq
            if self._slots.get(slot.stream_id) is not slot:
                return
            self._weight += weight - slot.weight
            slot.weight = weight
            self._slots.move_to_end(slot.stream_id)
            while self._weight > budget.max_bytes and len(self._slots) > 1:
                self._evict_oldest()

    def _evict_oldest(self) -> None:
        _, oldest = self._slots.popitem(last=False)
        self._weight -= oldest.weight

    def _continue(self, stream_id: str, state: S, head: Head) -> S:
        """The cached state and what followed it."""
        known = state.head
        if known == head:
            return state
        try:
            for page in read_pages(self._log, stream_id, known.seq):
                state = self._kind.catch_up(stream_id, state, page) or state
        except LedgerCorrupt:
            if not self.seen.is_stored(stream_id, known):
                raise self.seen.refuse(stream_id, known, head) from None
            raise
        return state

    def _open(self, stream_id: str) -> Opening | None:
        """What there is to begin with; None where no checkpoints are kept."""
        return None if self._checkpointer is None else opening_of(self._log, stream_id)

    def _read_whole(self, slot: Slot[S], opening: Opening | None, head: Head) -> S:
        """The state from its checkpoint and the tail; where these do not fit each other, from the whole log."""
        stream_id, checkpointer = slot.stream_id, self._checkpointer
        if opening is not None and checkpointer is not None and stream_id not in self._distrusted:
            resumed = resume(checkpointer.codec, stream_id, opening)
            if resumed is not None:
                state, tail = resumed
                try:
                    state = self._kind.catch_up(stream_id, state, tail) or state
                    if opening.head is not None and state.head.seq < opening.head.seq:
                        # The tail is longer than a page.
                        for page in read_pages(self._log, stream_id, state.head.seq):
                            state = self._kind.catch_up(stream_id, state, page) or state
                except LedgerCorrupt:
                    # Named by the replay of the whole log, which may find more.
                    return self._replay(stream_id, head)
                # With the entry that carries the digest, which is decided on what the others lead to.
                self.self_check.submit(stream_id, resumed[0].head.seq + 1)
                return state
            if opening.checkpoint is not None:
                _log.warning(
                    "the chain of `%s` vouches for no checkpoint of the present form; all of it is read", stream_id
                )
        return self._replay(stream_id, head)

    def _distrust(self, stream_id: str) -> None:
        """Let go of a state that rests on a checkpoint, which its log does not lead to."""
        with self._lock:
            self._distrusted.add(stream_id)
            slot = self._slots.pop(stream_id, None)
            self._weight -= 0 if slot is None else slot.weight
        if slot is not None:
            with slot.lock:
                slot.state = None

    def find_damaged(self) -> list[str]:
        """Streams that are refused: the log lacks what was seen of them, or their past did not verify."""
        behind = self.seen.find_behind()
        with self._lock:
            return [*behind, *sorted(self._distrusted - set(behind))]

    def _replay(self, stream_id: str, head: Head) -> S:
        """The state from the whole log; the checkpoint that is missing, or was not believed, is made again."""
        checkpointer = self._checkpointer
        at = None if checkpointer is None else last_digest_point(head.seq, checkpointer.codec.spacing)
        state: S | None = None
        seq = -1
        for page in read_pages(self._log, stream_id):
            rest = page
            if checkpointer is not None and at is not None and seq < at <= seq + len(page):
                before, rest = page[: at - seq - 1], page[at - seq - 1 :]
                state = self._kind.catch_up(stream_id, state, before) if before else state
                frozen = b"" if state is None else checkpointer.codec.freeze(state)
                if find_binding(frozen, rest[0]) is not None:
                    checkpointer.put(stream_id, at, frozen)
            state = self._kind.catch_up(stream_id, state, rest)
            seq += len(page)
        if state is None:
            raise LedgerCorrupt(stream_id, 0, "the log is empty")
        with self._lock:
            self._distrusted.discard(stream_id)
        return state
