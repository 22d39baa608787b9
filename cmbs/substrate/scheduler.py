"""What happens by itself, because time passes or because something that is waited for has changed.

The scheduler decides nothing. It finds what is due, sends the message, and the rules say what comes of it: several
schedulers over one log do no more than one. What it knows is derived from the spaces, so that a restart loses nothing.
"""

from __future__ import annotations

import heapq
import logging
import time
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
from cmbs.substrate.kernel.calls import is_run_by_server
from cmbs.substrate.kernel.events import (
    Approve,
    Expire,
    ExpiryOf,
    MarkInDoubt,
    ProposePolicy,
    PutMemory,
    RegisterTool,
    RetireTool,
    RevokeCapability,
    SettlePolicy,
    SpaceEvent,
    SpaceMessage,
    Start,
)
from cmbs.substrate.kernel.executions import may_start_again
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import BeliefReading
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.state import MemoryEntry, ProposalRecord, Space
from cmbs.substrate.kernel.waiting import OutcomeUnchanged
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus
from cmbs.substrate.looking import BELIEF, SharedReadings, WaitingWatch

_log = logging.getLogger("cmbs.substrate")
_ENGINE = Actor(ActorKind.POLICY_ENGINE, "policy_engine", authenticated=True)
# Every space is looked at, for what other processes did or left undone, once in so many rounds.
_ROUNDS_BETWEEN_SURVEYS = 4
_HEADS_PER_PAGE = 500
# So many spaces are read in one round: what is due in the others does not wait for all of them.
_MAX_SPACES_READ = 100
_MAX_STEPS_QUEUED = 100_000
# How much is sent at a time, to be written together. A space where more is to be woken has its next turn after others.
_MAX_MESSAGES_SENT = 500
_YIELD_SECONDS = 0.00005
# Steps that may concern every proposal that waits.
_CONCERN_ALL = (SettlePolicy, ProposePolicy, RegisterTool, RetireTool, Approve)
# Steps that may take away what a call was let through for, before its runner has claimed it.
_TAKE_AWAY = (SettlePolicy, ProposePolicy, RegisterTool, RetireTool, RevokeCapability)


class SpaceServer(Protocol):
    """What the scheduler needs of a server."""

    def perform_all(self, commands: Sequence[SpaceCommand]) -> list[SpaceAnswer | CmbsError]:
        """Carry out commands in their order, and say what each came to."""
        ...

    def current(self, space_id: str) -> Space:
        """The space as the log has it now."""
        ...

    def heads(self, after: str | None = None, limit: int = 100) -> list[tuple[str, int]]:
        """The ids of spaces and where their streams end, without loading them."""
        ...

    def resume(self, space: Space) -> None:
        """Have started what waits for its turn in a space."""
        ...

    def read_for(self, space: Space, record: ProposalRecord, readings: SharedReadings) -> list[BeliefReading]:
        """What the belief plane says, of all that a recorded proposal may be decided by."""
        ...


class _Kind(StrEnum):
    """What comes due at a moment."""

    EXECUTION = "execution"
    APPROVAL = "approval"
    PARKED = "parked"
    MEMORY = "memory"


class _Due(NamedTuple):
    moment: str
    space_id: str
    kind: _Kind
    record_id: str


class _Step(NamedTuple):
    """A step that this process took."""

    space_id: str
    seq: int


class _SeenPrefix:
    """How much of a space's stream the scheduler knows, one step after the other."""

    __slots__ = ("ahead", "seq")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        # Steps that came to be known before those in front of them.
        self.ahead: set[int] = set()

    def add(self, seq: int) -> None:
        if seq > self.seq:
            self.ahead.add(seq)
        while self.seq + 1 in self.ahead:
            self.seq += 1
            self.ahead.discard(self.seq)


class DeadlineScheduler:
    """Sends what is due in spaces, in a thread of its own or whenever `tick` is called."""

    def __init__(self, server: SpaceServer, clock: Clock, belief: BeliefSource | None) -> None:
        self._server = server
        self._clock = clock
        self._belief = belief
        self._due: list[_Due] = []
        self._known: set[_Due] = set()
        self._seen: dict[str, _SeenPrefix] = {}
        # Steps of this process that are not counted yet; one that is lost only means to look again.
        self._steps: deque[_Step] = deque(maxlen=_MAX_STEPS_QUEUED)
        # Spaces in which something moved that a proposal may wait for, and those that wait for the belief plane.
        self._moved: set[str] = set()
        self._watching: set[str] = set()
        # What was looked at in spaces where something waits.
        self._watches: dict[str, WaitingWatch] = {}
        self._rounds = 0
        # The space at which a survey stopped to let others have their turn.
        self._surveyed: str | None = None
        self._wakeup = Condition()
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
        self._thread = Thread(target=self._work, args=(seconds,), name="cmbs-scheduler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish what is being done, then stop."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self, seconds: float) -> None:
        while not self._is_stopping():
            try:
                self.tick()
            except Exception:  # noqa: BLE001
                # Whatever it is, the next round must come.
                _log.exception("a round of the scheduler failed")
            with self._wakeup:
                if not self._is_stopping() and not self._moved and self._surveyed is None:
                    self._wakeup.wait(seconds)

    def _is_stopping(self) -> bool:
        return self._stopping

    # --- what moves ---

    def note(self, space: Space, event: SpaceEvent) -> None:
        """A step that this process took: what will come due because of it, and whom it may wake."""
        space_id, result = space.space_id, event.result
        # A deque needs no lock, and most steps need no more than this.
        self._steps.append(_Step(space_id, event.body.seq))
        found = [_Due(each.deadline, space_id, _Kind.EXECUTION, each.execution_id) for each in result.intents]
        found += [_Due(each.expires_at, space_id, _Kind.APPROVAL, each.approval_id) for each in result.asked]
        if result.parked_until is not None:
            found += [_Due(result.parked_until, space_id, _Kind.PARKED, each) for each in result.statuses]
        if isinstance(event.message, PutMemory) and result.granted:
            found += _expiry(space_id, space.memory[event.message.entry_id])
        if isinstance(event.message, _TAKE_AWAY) and result.granted:
            found += _list_unclaimed(space, event.body.ts)
        moves = _may_wake(space, event)
        if not found and not moves:
            return
        with self._wakeup:
            for due in found:
                self._push(due)
            if moves:
                self._moved.add(space_id)
                self._wakeup.notify_all()

    def _session_moved(self, _: str) -> None:
        if self._watching:
            with self._wakeup:
                self._moved |= self._watching
                self._wakeup.notify_all()

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
            with self._wakeup:
                moved, self._moved = self._moved | self._watching, set()
            for space_id in sorted(moved):
                self._attempt(space_id, self._wake)
            self._send_due()

    def _attempt(self, space_id: str, look_after: Callable[[str], None]) -> None:
        try:
            look_after(space_id)
        except CmbsError as exc:
            _log.warning("space `%s` could not be looked after: %s", space_id, exc)
        except Exception:  # noqa: BLE001 - whatever is wrong with one space, the others are looked after
            _log.exception("space `%s` could not be looked after", space_id)

    def _count_steps(self) -> None:
        while self._steps:
            step = self._steps.popleft()
            seen = self._seen.get(step.space_id)
            if seen is not None:
                seen.add(step.seq)

    def _survey_some(self) -> None:
        """Find spaces that have moved without a step of this process: before it started, or by another one."""
        self._count_steps()
        left = _MAX_SPACES_READ
        while page := self._server.heads(self._surveyed, _HEADS_PER_PAGE):
            for space_id, seq in page:
                self._surveyed = space_id
                seen = self._seen.get(space_id)
                if seen is not None and seen.seq >= seq:
                    continue
                self._survey(space_id, seq)
                left -= 1
                if not left:
                    return
        self._surveyed = None

    def _survey(self, space_id: str, seq: int) -> None:
        first = space_id not in self._seen
        try:
            space = self._server.current(space_id)
        except StoreUnavailable as exc:
            _log.warning("space `%s` could not be looked after: %s", space_id, exc)
            return
        except CmbsError as exc:
            # Said once. It is not read again before it has moved.
            _log.warning("space `%s` cannot be looked after: %s", space_id, exc)
            self._seen[space_id] = _SeenPrefix(seq)
            return
        found = list(_dues(space, everything=first))
        self._seen[space_id] = _SeenPrefix(space.head.seq)
        with self._wakeup:
            for due in found:
                self._push(due)
            if _has_waiting(space):
                self._moved.add(space_id)
        self._server.resume(space)

    # --- wakes ---

    def _wake(self, space_id: str) -> None:
        """Look again at waiting proposals for which something has changed, and wake those that would end otherwise."""
        space = self._server.current(space_id)
        if not _has_waiting(space):
            self._watches.pop(space_id, None)
            with self._wakeup:
                self._watching.discard(space_id)
            return
        watch = self._watches.setdefault(space_id, WaitingWatch())
        # Thousands may wait for the same session: it is asked once.
        readings = SharedReadings(self._belief)
        if not watch.has_more:
            watch.search(space, readings)
        now = self._clock.now()
        wakes = watch.look(space, self._server.read_for, readings, now, _MAX_MESSAGES_SENT, _yield_turn)
        watched = self._belief is not None and any(key.startswith(BELIEF) for key in space.waiting)
        with self._wakeup:
            (self._watching.add if watched else self._watching.discard)(space_id)
            # What moved while these were looked at is searched for when they are through.
            if watch.has_more or wakes:
                self._moved.add(space_id)
        try:
            self._send([(space_id, wake) for wake in wakes])
        except StoreUnavailable:
            watch.put_back(wakes)
            raise

    # --- what is due ---

    def _send_due(self) -> None:
        now = self._clock.now()
        while dues := self._take_due(now):
            try:
                self._send([(due.space_id, message) for due in dues for message in self._messages(due, now)])
            except StoreUnavailable as exc:
                _log.warning("what is due could not be looked after: %s", exc)
                with self._wakeup:
                    for due in dues:
                        self._push(due)
                return

    def _messages(self, due: _Due, now: str) -> list[SpaceMessage]:
        try:
            return _MESSAGES[due.kind](self._server.current(due.space_id), due.record_id, now)
        except StoreUnavailable:
            raise
        except CmbsError as exc:
            # One space that cannot be read must not keep the others waiting. It is looked at again in the next survey.
            _log.warning("space `%s` could not be looked after: %s", due.space_id, exc)
            self._seen.pop(due.space_id, None)
            return []

    def _take_due(self, now: str) -> list[_Due]:
        """Some of what is due by now, which then counts as sent."""
        taken: list[_Due] = []
        with self._wakeup:
            while self._due and self._due[0].moment <= now and len(taken) < _MAX_MESSAGES_SENT:
                taken.append(heapq.heappop(self._due))
                self._known.discard(taken[-1])
        return taken

    def _send(self, messages: Sequence[tuple[str, SpaceMessage]]) -> None:
        answers = self._server.perform_all([SpaceCommand(space_id, _ENGINE, message) for space_id, message in messages])
        for (space_id, message), answer in zip(messages, answers, strict=True):
            if isinstance(answer, StoreUnavailable):
                raise answer
            if isinstance(answer, OutcomeUnchanged):
                # Something moved back since it was looked at.
                continue
            if isinstance(answer, CmbsError):
                # Another process was first, mostly, or the answer came in this very moment. Or a clock went
                # back, and it is too early: so the space is looked through again.
                self._seen.pop(space_id, None)
                _log.info("%s in space `%s` is not needed any more: %s", type(message).__name__, space_id, answer)


def _yield_turn() -> None:
    """Release the interpreter lock for as long as another thread takes to notice; a sleep of 0 gives it no turn."""
    time.sleep(_YIELD_SECONDS)


def _may_wake(space: Space, event: SpaceEvent) -> bool:
    """Whether a step changed what a proposal waits for, or waits itself for the belief plane, which may have moved."""
    result = event.result
    if isinstance(event.message, _CONCERN_ALL) and result.granted:
        return _has_waiting(space)
    if not space.parked:
        return False
    changed = any(key in space.waiting for each in (result.changes.set, result.changes.unset) for key in each)
    return changed or (result.parked_until is not None and any(key.startswith(BELIEF) for key in result.waits_for))


def _has_waiting(space: Space) -> bool:
    return any(load.parked or load.asked for load in space.loads.values())


def _dues(space: Space, *, everything: bool) -> Iterator[_Due]:
    """What comes due in a space. What is in doubt already, or may have lost its permission before, is only looked for
    once, the first time.
    """
    space_id = space.space_id
    for execution_id, deadline in space.running.items():
        yield _Due(deadline, space_id, _Kind.EXECUTION, execution_id)
    for proposal_id, parked in space.parked.items():
        yield _Due(parked.until, space_id, _Kind.PARKED, proposal_id)
    for approval_id, approval in space.approvals.items():
        if approval.status is ApprovalStatus.PENDING:
            yield _Due(approval.asked.expires_at, space_id, _Kind.APPROVAL, approval_id)
    for entry in space.memory.values():
        yield from _expiry(space_id, entry)
    if everything:
        yield from _list_unclaimed(space, "")
        for execution_id, execution in space.executions.items():
            if may_start_again(execution):
                yield _Due(execution.intent.deadline, space_id, _Kind.EXECUTION, execution_id)


def _list_unclaimed(space: Space, now: str) -> list[_Due]:
    """Calls that others run and have not claimed, to be decided again now: one that may not start any more ends."""
    running = map(space.executions.__getitem__, space.running)
    found = [each for each in running if each.status is ExecutionStatus.READY and not is_run_by_server(each.tool)]
    return [_Due(now, space.space_id, _Kind.EXECUTION, each.intent.execution_id) for each in found]


def _expiry(space_id: str, entry: MemoryEntry) -> list[_Due]:
    if entry.expires_at is None or entry.expired:
        return []
    return [_Due(entry.expires_at, space_id, _Kind.MEMORY, entry.entry_id)]


def _of_execution(space: Space, execution_id: str, now: str) -> list[SpaceMessage]:
    execution = space.executions.get(execution_id)
    if execution is None:
        return []
    is_over = execution.intent.deadline <= now
    if execution.status is ExecutionStatus.READY and (is_over or not is_run_by_server(execution.tool)):
        return [Expire(ExpiryOf.EXECUTION, execution_id) if is_over else Start(execution_id)]
    if not is_over:
        return []
    messages: list[SpaceMessage] = []
    if execution.status is ExecutionStatus.RUNNING:
        messages.append(MarkInDoubt(execution_id))
        execution = msgspec.structs.replace(execution, status=ExecutionStatus.IN_DOUBT)
    if may_start_again(execution):
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


_MESSAGES: dict[_Kind, Callable[[Space, str, str], list[SpaceMessage]]] = {
    _Kind.EXECUTION: _of_execution,
    _Kind.APPROVAL: _of_approval,
    _Kind.PARKED: _of_parked,
    _Kind.MEMORY: _of_memory,
}
