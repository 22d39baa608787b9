"""The keeper: what happens by itself, because time passes or because something that is waited for has changed.

It decides nothing. It finds what is due, sends the message, and the rules say what comes of it: several keepers over
one log do no more than one. What it knows is derived from the spaces, so that a restart loses nothing.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from threading import Condition, Lock, Thread
from typing import NamedTuple, Protocol

import msgspec

from cmbs.errors import CmbsError, StoreUnavailable
from cmbs.messages import Actor, ActorKind
from cmbs.spi import Clock
from cmbs.substrate.belief_source import BeliefSource
from cmbs.substrate.kernel.events import (
    Expire,
    ExpiryOf,
    MarkInDoubt,
    PutMemory,
    SpaceEvent,
    SpaceMessage,
    Start,
    StepResult,
    Wake,
)
from cmbs.substrate.kernel.executions import is_still_permitted, may_start_again
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import BeliefReading
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.state import ApprovalStatus, ExecutionStatus, MemoryEntry, Parked, Space

_log = logging.getLogger("cmbs.substrate")
_BELIEF = "$belief."
_ENGINE = Actor(ActorKind.POLICY_ENGINE, "policy_engine", authenticated=True)
# Every space is looked at, for what other processes did or left undone, once in so many rounds.
_ROUNDS_BETWEEN_SURVEYS = 4
_SPACES_AT_ONCE = 500
# Of those that have to be read, so many at a time: what is due in the others does not wait for all of them.
_READ_AT_ONCE = 100
_HEARD_AT_MOST = 100_000
# How much is sent at a time, to be written together. A space where more is to be woken has its next turn after others.
_SENT_AT_ONCE = 500


class Kept(Protocol):
    """What a keeper needs of a server."""

    def perform_all(self, commands: Sequence[SpaceCommand]) -> list[SpaceAnswer | CmbsError]:
        """Carry out commands in their order, and say what each came to."""
        ...

    def current(self, space_id: str) -> Space:
        """The space as the log has it now."""
        ...

    def heads(self, after: str | None = None, limit: int = 100) -> list[tuple[str, int]]:
        """The ids of spaces and where their streams end, without loading them."""
        ...


class _What(StrEnum):
    """What comes due at a moment."""

    EXECUTION = "execution"
    APPROVAL = "approval"
    PARKED = "parked"
    MEMORY = "memory"


class _Due(NamedTuple):
    moment: str
    space_id: str
    what: _What
    record_id: str


class _Heard(msgspec.Struct, frozen=True):
    """A step that was taken here. Unlike a tuple, none of so many is looked at for garbage."""

    space_id: str
    seq: int


class _Noted:
    """How much of a space's stream the keeper has heard of, one step after the other."""

    __slots__ = ("ahead", "seq")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        # Steps that were heard of before those in front of them.
        self.ahead: set[int] = set()

    def heard(self, seq: int) -> None:
        if seq > self.seq:
            self.ahead.add(seq)
        while self.seq + 1 in self.ahead:
            self.seq += 1
            self.ahead.discard(self.seq)


class Keeper:
    """Looks after spaces, in a thread of its own or whenever it is told to."""

    def __init__(self, server: Kept, clock: Clock, belief: BeliefSource | None) -> None:
        self._server = server
        self._clock = clock
        self._belief = belief
        self._due: list[_Due] = []
        self._known: set[_Due] = set()
        self._noted: dict[str, _Noted] = {}
        # Steps that were taken here and not yet counted; one that is forgotten only means to look again.
        self._heard: deque[_Heard] = deque(maxlen=_HEARD_AT_MOST)
        # Spaces in which something moved that somebody may wait for, and those where the belief plane is waited for.
        self._moved: set[str] = set()
        self._watching: set[str] = set()
        self._rounds = 0
        # The space at which a survey stopped to let others have their turn.
        self._surveyed: str | None = None
        self._bell = Condition()
        self._turn = Lock()
        self._stopping = False
        self._thread: Thread | None = None
        if belief is not None:
            belief.subscribe(self._session_moved)

    # --- the thread ---

    def start(self, seconds: float) -> None:
        """Look every so many seconds, and whenever something moves."""
        if self._thread is not None:
            return
        self._thread = Thread(target=self._work, args=(seconds,), name="cmbs-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish what is being done, then stop."""
        with self._bell:
            self._stopping = True
            self._bell.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self, seconds: float) -> None:
        while not self._is_stopping():
            try:
                self.tick()
            except Exception:  # noqa: BLE001
                # Whatever it is, the next round must come.
                _log.exception("a round of the keeper failed")
            with self._bell:
                if not self._is_stopping() and not self._moved and self._surveyed is None:
                    self._bell.wait(seconds)

    def _is_stopping(self) -> bool:
        return self._stopping

    # --- what it hears ---

    def note(self, space: Space, event: SpaceEvent) -> None:
        """A step that this process took: what will come due because of it, and whom it may wake."""
        space_id, result = space.space_id, event.result
        # Without the lock: this is on the way of every answer, and mostly there is nothing else to say.
        self._heard.append(_Heard(space_id, event.body.seq))
        if not (result.intents or result.asked or space.parked or type(event.message) is PutMemory):
            return
        found = [_Due(each.deadline, space_id, _What.EXECUTION, each.execution_id) for each in result.intents]
        found += [_Due(each.expires_at, space_id, _What.APPROVAL, each.approval_id) for each in result.asked]
        if result.parked_until is not None:
            found += [_Due(result.parked_until, space_id, _What.PARKED, each) for each in result.statuses]
        if isinstance(event.message, PutMemory) and result.granted:
            found += _expiry(space_id, space.memory[event.message.entry_id])
        moves = bool(space.parked) and _may_wake(space, result)
        if not found and not moves:
            return
        with self._bell:
            for due in found:
                self._push(due)
            if moves:
                self._moved.add(space_id)
                self._bell.notify_all()

    def _session_moved(self, _: str) -> None:
        if self._watching:
            with self._bell:
                self._moved |= self._watching
                self._bell.notify_all()

    def _push(self, due: _Due) -> None:
        if due not in self._known:
            self._known.add(due)
            heapq.heappush(self._due, due)

    # --- a round ---

    def tick(self) -> None:
        """Send everything that is due by now."""
        with self._turn:
            if self._surveyed is not None or self._rounds % _ROUNDS_BETWEEN_SURVEYS == 0:
                self._survey_some()
            self._rounds += 1
            with self._bell:
                moved, self._moved = self._moved | self._watching, set()
            for space_id in sorted(moved):
                self._guarded(space_id, self._wake)
            self._send_due()

    def _guarded(self, space_id: str, look_after: Callable[[str], None]) -> None:
        try:
            look_after(space_id)
        except CmbsError as exc:
            _log.warning("space `%s` could not be looked after: %s", space_id, exc)

    def _count_heard(self) -> None:
        while self._heard:
            step = self._heard.popleft()
            noted = self._noted.get(step.space_id)
            if noted is not None:
                noted.heard(step.seq)

    def _survey_some(self) -> None:
        """Find spaces that have moved without being heard of: those of an earlier life, and those of others."""
        self._count_heard()
        left = _READ_AT_ONCE
        while page := self._server.heads(self._surveyed, _SPACES_AT_ONCE):
            for space_id, seq in page:
                self._surveyed = space_id
                noted = self._noted.get(space_id)
                if noted is not None and noted.seq >= seq:
                    continue
                self._survey(space_id, seq)
                left -= 1
                if not left:
                    return
        self._surveyed = None

    def _survey(self, space_id: str, seq: int) -> None:
        first = space_id not in self._noted
        try:
            space = self._server.current(space_id)
        except StoreUnavailable as exc:
            _log.warning("space `%s` could not be looked after: %s", space_id, exc)
            return
        except CmbsError as exc:
            # Said once. It is not read again before it has moved.
            _log.warning("space `%s` cannot be looked after: %s", space_id, exc)
            self._noted[space_id] = _Noted(seq)
            return
        found = list(_dues(space, everything=first))
        self._noted[space_id] = _Noted(space.head.seq)
        with self._bell:
            for due in found:
                self._push(due)
            if space.parked:
                self._moved.add(space_id)

    # --- wakes ---

    def _wake(self, space_id: str) -> None:
        """Have parked proposals decided again for which something has changed."""
        space = self._server.current(space_id)
        # Thousands may wait for the same session: it is asked once.
        said: dict[str, BeliefReading] = {}
        watched = False
        wakes: list[SpaceMessage] = []
        for proposal_id, parked in sorted(space.parked.items()):
            watched = watched or any(key.startswith(_BELIEF) for key in parked.waits_for)
            because = self._because(space, parked, said)
            if because:
                wakes.append(Wake(proposal_id, because))
        with self._bell:
            (self._watching.add if watched else self._watching.discard)(space_id)
            if len(wakes) > _SENT_AT_ONCE:
                self._moved.add(space_id)
        self._send([(space_id, wake) for wake in wakes[:_SENT_AT_ONCE]])

    def _because(self, space: Space, parked: Parked, said: dict[str, BeliefReading]) -> list[str]:
        """What has changed, of all that a proposal waits for, since it was last decided."""
        decided_seq = space.proposals[parked.proposal_id].decided_seq
        because = []
        for key in parked.waits_for:
            if not key.startswith(_BELIEF):
                if space.changed.get(key, -1) > decided_seq:
                    because.append(key)
            elif self._belief is not None:
                session_id = key.removeprefix(_BELIEF)
                if session_id not in said:
                    said[session_id] = self._belief.read(session_id)
                if said[session_id] not in parked.belief:
                    because.append(key)
        return because

    # --- what is due ---

    def _send_due(self) -> None:
        now = self._clock.now()
        while dues := self._taken(now):
            try:
                self._send([(due.space_id, message) for due in dues for message in self._messages(due, now)])
            except StoreUnavailable as exc:
                _log.warning("what is due could not be looked after: %s", exc)
                with self._bell:
                    for due in dues:
                        self._push(due)
                return

    def _messages(self, due: _Due, now: str) -> list[SpaceMessage]:
        try:
            return _MESSAGES[due.what](self._server.current(due.space_id), due.record_id, now)
        except StoreUnavailable:
            raise
        except CmbsError as exc:
            # One space that cannot be read must not keep the others waiting. It is looked at again in the next survey.
            _log.warning("space `%s` could not be looked after: %s", due.space_id, exc)
            self._noted.pop(due.space_id, None)
            return []

    def _taken(self, now: str) -> list[_Due]:
        """Some of what is due by now, which is then taken for sent."""
        taken: list[_Due] = []
        with self._bell:
            while self._due and self._due[0].moment <= now and len(taken) < _SENT_AT_ONCE:
                taken.append(heapq.heappop(self._due))
                self._known.discard(taken[-1])
        return taken

    def _send(self, messages: Sequence[tuple[str, SpaceMessage]]) -> None:
        answers = self._server.perform_all([SpaceCommand(space_id, _ENGINE, message) for space_id, message in messages])
        for (space_id, message), answer in zip(messages, answers, strict=True):
            if isinstance(answer, StoreUnavailable):
                raise answer
            if isinstance(answer, CmbsError):
                # Somebody else was first, mostly: another process, or the answer that came in this very moment. Or a
                # clock went back, and it is too early: so the space is looked through again.
                self._noted.pop(space_id, None)
                _log.info("%s in space `%s` is not needed any more: %s", type(message).__name__, space_id, answer)


def _may_wake(space: Space, result: StepResult) -> bool:
    """Whether a step changed what somebody waits for, or waits itself for the belief plane, which may have moved."""
    changed = any(key in space.waiting for each in (result.changes.set, result.changes.unset) for key in each)
    return changed or (result.parked_until is not None and any(key.startswith(_BELIEF) for key in result.waits_for))


def _dues(space: Space, *, everything: bool) -> Iterator[_Due]:
    """What comes due in a space. What is in doubt already is only looked for once, the first time."""
    space_id = space.space_id
    for execution_id, deadline in space.running.items():
        yield _Due(deadline, space_id, _What.EXECUTION, execution_id)
    for proposal_id, parked in space.parked.items():
        yield _Due(parked.until, space_id, _What.PARKED, proposal_id)
    for approval_id, approval in space.approvals.items():
        if approval.status is ApprovalStatus.PENDING:
            yield _Due(approval.asked.expires_at, space_id, _What.APPROVAL, approval_id)
    for entry in space.memory.values():
        yield from _expiry(space_id, entry)
    if everything:
        for execution_id, execution in space.executions.items():
            if may_start_again(execution):
                yield _Due(execution.intent.deadline, space_id, _What.EXECUTION, execution_id)


def _expiry(space_id: str, entry: MemoryEntry) -> list[_Due]:
    if entry.expires_at is None or entry.expired:
        return []
    return [_Due(entry.expires_at, space_id, _What.MEMORY, entry.entry_id)]


def _of_execution(space: Space, execution_id: str, now: str) -> list[SpaceMessage]:
    execution = space.executions.get(execution_id)
    if execution is None or execution.intent.deadline > now:
        return []
    messages: list[SpaceMessage] = []
    if execution.status is ExecutionStatus.RUNNING:
        messages.append(MarkInDoubt(execution_id))
        execution = msgspec.structs.replace(execution, status=ExecutionStatus.IN_DOUBT)
    if may_start_again(execution) and is_still_permitted(space, execution, now):
        messages.append(Start(execution_id))
    return messages


def _of_approval(space: Space, approval_id: str, _: str) -> list[SpaceMessage]:
    approval = space.approvals.get(approval_id)
    pending = approval is not None and approval.status is ApprovalStatus.PENDING
    return [Expire(ExpiryOf.APPROVAL, approval_id)] if pending else []


def _of_parked(space: Space, proposal_id: str, now: str) -> list[SpaceMessage]:
    parked = space.parked.get(proposal_id)
    return [] if parked is None or parked.until > now else [Expire(ExpiryOf.PARKED, proposal_id)]


def _of_memory(space: Space, entry_id: str, now: str) -> list[SpaceMessage]:
    entry = space.memory.get(entry_id)
    if entry is None or entry.expired or entry.expires_at is None or entry.expires_at > now:
        return []
    return [Expire(ExpiryOf.MEMORY, entry_id)]


_MESSAGES: dict[_What, Callable[[Space, str, str], list[SpaceMessage]]] = {
    _What.EXECUTION: _of_execution,
    _What.APPROVAL: _of_approval,
    _What.PARKED: _of_parked,
    _What.MEMORY: _of_memory,
}
