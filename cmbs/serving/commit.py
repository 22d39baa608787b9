"""From decision to log: decide on the newest state, write, and only then let the new state be seen.

A write that fails has changed nothing, in memory or in the log. Locks are taken in one order, slots before the log, so
that writers cannot wait for each other in a circle.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TypeAlias, cast

import msgspec

from cmbs.belief_events import EnterObligation, Event, Message, Repeat, Stamp, read_event
from cmbs.belief_replay import catch_up
from cmbs.belief_session import Session, decide, evolve
from cmbs.errors import (
    CmbsError,
    Conflict,
    HeadMismatch,
    LedgerCorrupt,
    LimitExceeded,
    SessionNotFound,
    StoreUnavailable,
)
from cmbs.ledger import StoredEntry
from cmbs.ledger.entry import read_body
from cmbs.messages import Actor
from cmbs.serving.appends import append_of
from cmbs.serving.door import Command, Limits
from cmbs.serving.saga import Saga
from cmbs.serving.sessions import Sessions, Slot
from cmbs.spi.audit_log import Append, AuditLog, StaleHead

_log = logging.getLogger("cmbs.serving")
_LARGEST_GROUP = 256
# How long a turn on a session that other processes want too is put off for more to join it.
_LINGER_SECONDS = 0.005
# How often a write is decided anew because others wrote first, before the caller is told to try again.
_ATTEMPTS = 16
_NOT_ATTEMPTED = StoreUnavailable("not attempted")


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Where a message stands in the log, and the session right after it."""

    session: Session
    message: Message
    seq: int


Result: TypeAlias = Answer | Exception
Settle: TypeAlias = Callable[[Result], None]


class _Plan:
    """What one session's commands come to, before anything is written."""

    __slots__ = ("appends", "results", "session", "slot")

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.session = slot.session
        self.appends: list[Append] = []
        self.results: list[Result] = []


# A slot, the commands for it, and where their results go.
_Work: TypeAlias = tuple[Slot, list[Command], list[int]]


class Writer:
    """Takes commands to the log."""

    def __init__(
        self,
        log: AuditLog,
        sessions: Sessions,
        stamp: Callable[[str | None, Actor | None], Stamp],
        limits: Limits,
        saga: Saga | None = None,
    ) -> None:
        self._log = log
        self._limits = limits
        self._sessions = sessions
        self._stamp = stamp
        self._saga = saga
        # Whether the last group met other writers of its sessions.
        self.collided = False

    def run_one(self, command: Command) -> Result:
        """Carry out one command."""
        slot = self._sessions.cached(command.session_id)
        try:
            slot = slot or self._slot([command])
            with slot.lock:
                if self._saga is not None:
                    return self._carried_out(self._saga, slot, command)
                return self._written_alone(slot, command)
        except Exception as exc:  # noqa: BLE001 - it is the command's answer
            return exc

    def _written_alone(self, slot: Slot, command: Command) -> Result:
        """What `_written` does, for the one command that there mostly is."""
        answer, append = self._decided(slot.session, command)
        if append is not None:
            try:
                self._log.append((append,))
            except StaleHead:
                return self._written([(slot, [command], [0])])[0].results[0]
            slot.session = answer.session
            self._sessions.keep_checkpoint(slot)
        return answer

    def _carried_out(self, saga: Saga, slot: Slot, command: Command) -> Result:
        """Carry out a command whose tombstones live in a store of their own."""
        for _ in range(_ATTEMPTS):
            try:
                saga.settle(slot)
                answer, append = self._decided(self._sessions.peek(slot), command)
                if append is not None:
                    saga.carry_out(answer.session, append)
                    slot.advance(answer.session)
                    self._sessions.keep_checkpoint(slot)
            except StaleHead:
                continue  # somebody else wrote first: look again, decide again
            return answer
        return _unavailable(StaleHead())

    def run(self, commands: Sequence[Command]) -> list[Result]:
        """Carry out all commands with one write. One that is refused does not keep the others from being written."""
        by_session: dict[str, list[int]] = {}
        for number, command in enumerate(commands):
            by_session.setdefault(command.session_id, []).append(number)
        results: list[Result] = [_NOT_ATTEMPTED] * len(commands)
        work: list[_Work] = []
        for numbers in by_session.values():
            mine = [commands[number] for number in numbers]
            try:
                work.append((self._slot(mine), mine, numbers))
            except CmbsError as exc:
                for number in numbers:
                    results[number] = exc
        with ExitStack() as locks:
            for slot, _, _ in work:
                locks.enter_context(slot.lock)
            plans = self._written(work)
        for plan, (_, _, numbers) in zip(plans, work, strict=True):
            for number, result in zip(numbers, plan.results, strict=True):
                results[number] = result
        return results

    def adopt(self, session_id: str, entries: Sequence[StoredEntry]) -> None:
        """Write a verified log that comes from elsewhere, as it is; Conflict where another log is here already."""
        slot = self._sessions.slot(session_id)
        with slot.lock, self._log.exclusive([session_id]):
            known = self._log.read(session_id)
            if known[: len(entries)] != list(entries[: len(known)]):
                raise Conflict(f"another log of session `{session_id}` is here already", {"session_id": session_id})
            session = catch_up(session_id, None, known)
            appends: list[Append] = []
            for stored in entries[len(known) :]:
                event = read_event(read_body(stored.raw), stored)
                session = evolve(session, event)
                appends.append(append_of(session, event))
            if appends:
                try:
                    self._log.append(appends)
                except StaleHead as exc:  # pragma: no cover - others are held off
                    raise _unavailable(exc) from exc

    def _slot(self, commands: list[Command]) -> Slot:
        session_id = commands[0].session_id
        slot = self._sessions.slot(session_id)
        if slot.session is None:
            try:
                self._sessions.refresh(slot)
            except SessionNotFound:
                if not any(command.declared for command in commands):
                    raise
                slot = self._sessions.slot(session_id)
        return slot

    def _written(self, work: list[_Work]) -> list[_Plan]:
        """Decide, write, and only when the write is done for good let the new states be seen."""
        if not work:
            return []
        try:
            self.collided = any(slot.contended for slot, _, _ in work)
            plans = self._alone(work) if self.collided else self._attempt(work)
        except StaleHead:
            # Somebody else wrote first. Hold the others off, look again, and decide on what is there now.
            for slot, _, _ in work:
                slot.contended = True
            plans = self._alone(work)
        except StoreUnavailable as exc:
            plans = [_failed(slot, commands, exc) for slot, commands, _ in work]
        for plan in plans:
            if plan.appends and plan.session is not None:
                plan.slot.advance(plan.session)
                self._sessions.keep_checkpoint(plan.slot)
        return plans

    def _alone(self, work: list[_Work]) -> list[_Plan]:
        try:
            with self._log.exclusive([slot.session_id for slot, _, _ in work]):
                return self._attempt(work, fresh=True)
        except (StaleHead, StoreUnavailable) as exc:
            return [_failed(slot, commands, _unavailable(exc)) for slot, commands, _ in work]

    def _attempt(self, work: list[_Work], *, fresh: bool = False) -> list[_Plan]:
        plans: list[_Plan] = []
        for slot, commands, _ in work:
            try:
                if fresh:
                    self._refresh(slot)
                plans.append(self._planned(slot, commands))
            except LedgerCorrupt as exc:
                plans.append(_failed(slot, commands, exc))
        appends = [item for plan in plans for item in plan.appends]
        if appends:
            self._log.append(appends)
        return plans

    def _refresh(self, slot: Slot) -> None:
        seen = slot.session
        session = self._sessions.peek(slot)
        slot.contended = session is not seen

    def _planned(self, slot: Slot, commands: list[Command]) -> _Plan:
        plan = _Plan(slot)
        for command in commands:
            try:
                answer, append = self._decided(plan.session, command)
                if append is not None:
                    plan.appends.append(append)
                    plan.session = answer.session
                plan.results.append(answer)
            except Exception as exc:  # noqa: BLE001 - it is this command's answer, and the others go on
                plan.results.append(exc)
        return plan

    def _decided(self, session: Session | None, command: Command) -> tuple[Answer, Append | None]:
        """The answer to a command, and the entry to write before it may be given; None for a repeat."""
        message = command.message
        if session is None:
            if command.declared is None:
                raise SessionNotFound(command.session_id)
            decided: Event = command.declared
        else:
            event = decide(session, message, self._stamp(command.idempotency_key, command.actor))
            if type(event) is Repeat:
                return Answer(session, message, event.seq), None
            decided = cast("Event", event)
            if command.if_match is not None and session.head_event_id != command.if_match:
                raise HeadMismatch(command.if_match, session.head_event_id)
        after = evolve(session, decided)
        if type(message) is EnterObligation and len(after.obligations) > self._limits.obligations_per_session:
            raise LimitExceeded("obligations_per_session", self._limits.obligations_per_session, len(after.obligations))
        return Answer(after, message, after.head.seq), append_of(after, decided)


class GroupWriter:
    """One thread that writes what has come together while it wrote."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._waiting: SimpleQueue[tuple[Command, Settle] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        # How many come together, forgotten slowly: a group may miss a few.
        self._usual_size = 0
        self._closed = False

    def submit(self, command: Command, settle: Settle) -> None:
        """Queue a command; `settle` is called with its result, from the writing thread."""
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the server is closed")
            if self._thread is None:
                self._thread = Thread(target=self._work, name="cmbs-writer", daemon=True)
                self._thread.start()
            self._waiting.put((command, settle))

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._waiting.put(None)
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            group, ended = self._gather()
            if group:
                self._usual_size = max(len(group), self._usual_size * 7 // 8)
                self._settle(group)
            if ended:
                return

    def _gather(self) -> tuple[list[tuple[Command, Settle]], bool]:
        item = self._waiting.get()
        group: list[tuple[Command, Settle]] = []
        until = time.monotonic() + _LINGER_SECONDS if self._writer.collided else 0.0
        while item is not None:
            group.append(item)
            if len(group) == _LARGEST_GROUP:
                return group, False
            # Other processes want the same session, so turns are rare: wait a moment for those who have just had their
            # answers and are about to come back.
            left = until - time.monotonic() if until and len(group) < self._usual_size else 0.0
            try:
                item = self._waiting.get(timeout=left) if left > 0 else self._waiting.get_nowait()
            except Empty:
                return group, False
        return group, True

    def _settle(self, group: list[tuple[Command, Settle]]) -> None:
        try:
            results = self._writer.run([command for command, _ in group])
        except Exception as exc:  # noqa: BLE001 - the callers get it; the thread must live on for the next group
            results = [exc] * len(group)
        for (_, settle), result in zip(group, results, strict=True):
            try:
                settle(result)
            except Exception:  # noqa: BLE001
                # A caller that can no longer be reached must not take the writer, and with it everybody else, along.
                _log.exception("a result could not be delivered")


def _failed(slot: Slot, commands: list[Command], exc: Exception) -> _Plan:
    plan = _Plan(slot)
    plan.results = [exc] * len(commands)
    return plan


def _unavailable(exc: Exception) -> StoreUnavailable:
    return (
        exc
        if isinstance(exc, StoreUnavailable)
        else StoreUnavailable("the log kept changing under this write; try again")
    )
