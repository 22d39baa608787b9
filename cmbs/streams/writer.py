"""From decision to log: decide on the newest state, write, and only then let the new state be seen.

A write that fails has changed nothing, in memory or in the log. Locks are taken in one order, slots before the log, so
that writers cannot wait for each other in a circle.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Generic, Protocol, TypeAlias, TypeVar

from cmbs.errors import CmbsError, Conflict, LedgerCorrupt, StoreUnavailable
from cmbs.ledger import StoredEntry
from cmbs.spi.audit_log import Append, AuditLog, StaleHead
from cmbs.streams.cache import Slot, Streams
from cmbs.streams.kinds import Addressed, S, StreamKind

_log = logging.getLogger("cmbs.streams")
_LARGEST_GROUP = 256
# How long a turn on a session that other processes want too is put off for more to join it.
_LINGER_SECONDS = 0.005
# How often a write is decided anew because others wrote first, before the caller is told to try again.
_ATTEMPTS = 16
_NOT_ATTEMPTED = StoreUnavailable("not attempted")


C = TypeVar("C", bound=Addressed)
A = TypeVar("A")
Settle: TypeAlias = Callable[[A | Exception], None]


class Carrier(Protocol[S]):
    """Carries entries out elsewhere before they are in the log."""

    def settle(self, slot: Slot[S]) -> None:
        """Drive forward what was begun before."""
        ...

    def carry_out(self, after: S, append: Append) -> None:
        """Carry out one entry. `StaleHead` where somebody else wrote first."""
        ...


class _Plan(Generic[S, C, A]):
    """What one stream's commands come to, before anything is written."""

    __slots__ = ("appends", "results", "slot", "state")

    def __init__(self, slot: Slot[S]) -> None:
        self.slot = slot
        self.state = slot.state
        self.appends: list[Append] = []
        self.results: list[A | Exception] = []


# A slot, the commands for it, and where their results go.
_Work: TypeAlias = tuple[Slot[S], list[C], list[int]]


class Writer(Generic[S, C, A]):
    """Takes commands to the log."""

    def __init__(
        self,
        log: AuditLog,
        kind: StreamKind[S, C, A],
        streams: Streams[S],
        carrier: Carrier[S] | None = None,
    ) -> None:
        self._log = log
        self._kind = kind
        self._streams = streams
        self._carrier = carrier
        # Whether the last group met other writers of its streams.
        self.collided = False
        # Told of every new state once it is durable, from the writing thread: it must be quick, and must not raise.
        self.observer: Callable[[str, S], None] | None = None

    def run_one(self, command: C, slot: Slot[S] | None = None) -> A:
        """Carry out one command; `slot` is its stream's, where the caller has that at hand."""
        slot = slot or self._streams.cached(command.stream_id) or self._slot([command])
        with slot.lock:
            if self._carrier is not None:
                return self._carried_out(self._carrier, slot, command)
            # What `_written` does, for the one command that there mostly is.
            answer, after, append = self._kind.decided(slot.state, command)
            if append is not None and after is not None:
                try:
                    self._log.append((append,))
                except StaleHead:
                    return unwrap(self._written([(slot, [command], [0])])[0].results[0])
                slot.state = after
                self._seen(slot, after)
            return answer

    def _carried_out(self, carrier: Carrier[S], slot: Slot[S], command: C) -> A:
        """Carry out a command that is carried out elsewhere too."""
        for _ in range(_ATTEMPTS):
            try:
                carrier.settle(slot)
                answer, after, append = self._kind.decided(self._streams.peek(slot), command)
                if append is not None and after is not None:
                    carrier.carry_out(after, append)
                    slot.advance(after)
                    self._seen(slot, after)
            except StaleHead:
                continue  # somebody else wrote first: look again, decide again
            return answer
        raise _unavailable(StaleHead())

    def _seen(self, slot: Slot[S], after: S) -> None:
        """What follows a write that is done for good."""
        if self._streams.checkpointer is not None:
            self._streams.keep_checkpoint(slot)
        if self.observer is not None:
            self.observer(slot.stream_id, after)

    def run(self, commands: Sequence[C]) -> list[A | Exception]:
        """Carry out all commands with one write. One that is refused does not keep the others from being written."""
        by_stream: dict[str, list[int]] = {}
        for number, command in enumerate(commands):
            by_stream.setdefault(command.stream_id, []).append(number)
        results: list[A | Exception] = [_NOT_ATTEMPTED] * len(commands)
        work: list[_Work[S, C]] = []
        for stream_id, numbers in by_stream.items():
            mine = [commands[number] for number in numbers]
            try:
                work.append((self._streams.cached(stream_id) or self._slot(mine), mine, numbers))
            except CmbsError as exc:
                for number in numbers:
                    results[number] = exc
        held: list[Slot[S]] = []
        try:
            for slot, _, _ in work:
                slot.lock.acquire()
                held.append(slot)
            plans = self._written(work)
        finally:
            for slot in held:
                slot.lock.release()
        for plan, (_, _, numbers) in zip(plans, work, strict=True):
            for number, result in zip(numbers, plan.results, strict=True):
                results[number] = result
        return results

    def adopt(self, stream_id: str, entries: Sequence[StoredEntry]) -> None:
        """Write a verified log that comes from elsewhere, as it is; Conflict where another log is here already."""
        slot = self._streams.slot(stream_id)
        with slot.lock, self._log.exclusive([stream_id]):
            known = self._log.read(stream_id)
            if known[: len(entries)] != list(entries[: len(known)]):
                raise Conflict(f"another log of `{stream_id}` is here already", {"stream_id": stream_id})
            state = self._kind.catch_up(stream_id, None, known)
            appends: list[Append] = []
            for stored in entries[len(known) :]:
                state, append = self._kind.appended(state, stored)
                appends.append(append)
            if appends:
                try:
                    self._log.append(appends)
                except StaleHead as exc:  # pragma: no cover - others are held off
                    raise _unavailable(exc) from exc

    def _slot(self, commands: list[C]) -> Slot[S]:
        stream_id = commands[0].stream_id
        slot = self._streams.slot(stream_id)
        if slot.state is None and self._streams.peek(slot) is None:
            if not any(self._kind.opens(command) for command in commands):
                raise self._kind.not_found(stream_id)
            slot = self._streams.slot(stream_id)
        return slot

    def _written(self, work: list[_Work[S, C]]) -> list[_Plan[S, C, A]]:
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
            plans = [_failed(item, exc) for item in work]
        for plan in plans:
            if plan.appends and plan.state is not None:
                plan.slot.state = plan.state
                self._seen(plan.slot, plan.state)
        return plans

    def _alone(self, work: list[_Work[S, C]]) -> list[_Plan[S, C, A]]:
        try:
            with self._log.exclusive([slot.stream_id for slot, _, _ in work]):
                return self._attempt(work, fresh=True)
        except (StaleHead, StoreUnavailable) as exc:
            return [_failed(item, _unavailable(exc)) for item in work]

    def _attempt(self, work: list[_Work[S, C]], *, fresh: bool = False) -> list[_Plan[S, C, A]]:
        plans: list[_Plan[S, C, A]] = []
        for item in work:
            slot, commands, _ = item
            try:
                if fresh:
                    self._refresh(slot)
                plans.append(self._planned(slot, commands))
            except LedgerCorrupt as exc:
                plans.append(_failed(item, exc))
        appends = [append for plan in plans for append in plan.appends]
        if appends:
            self._log.append(appends)
        return plans

    def _refresh(self, slot: Slot[S]) -> None:
        seen = slot.state
        state = self._streams.peek(slot)
        slot.contended = state is not seen

    def _planned(self, slot: Slot[S], commands: list[C]) -> _Plan[S, C, A]:
        plan: _Plan[S, C, A] = _Plan(slot)
        for command in commands:
            try:
                answer, after, append = self._kind.decided(plan.state, command)
                if append is not None:
                    plan.appends.append(append)
                    plan.state = after
                plan.results.append(answer)
            except Exception as exc:  # noqa: BLE001 - it is this command's answer, and the others go on
                plan.results.append(exc)
        return plan


class GroupWriter(Generic[S, C, A]):
    """One thread that writes what has come together while it wrote."""

    def __init__(self, writer: Writer[S, C, A]) -> None:
        self._writer = writer
        self._waiting: SimpleQueue[tuple[C, Settle[A]] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        # How many come together, forgotten slowly: a group may miss a few.
        self._usual_size = 0
        self._closed = False

    def submit(self, command: C, settle: Settle[A]) -> None:
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

    def _gather(self) -> tuple[list[tuple[C, Settle[A]]], bool]:
        item = self._waiting.get()
        group: list[tuple[C, Settle[A]]] = []
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

    def _settle(self, group: list[tuple[C, Settle[A]]]) -> None:
        try:
            results = self._writer.run([command for command, _ in group])
        except Exception as exc:  # noqa: BLE001 - the callers get it; the thread must live on for the next group
            results = [exc for _ in group]
        for (_, settle), result in zip(group, results, strict=True):
            try:
                settle(result)
            except Exception:  # noqa: BLE001
                # A caller that can no longer be reached must not take the writer, and with it everybody else, along.
                _log.exception("a result could not be delivered")


def unwrap(result: A | Exception) -> A:
    """The answer, or raise the error in its place."""
    if isinstance(result, Exception):
        raise result
    return result


def _failed(work: _Work[S, C], exc: Exception) -> _Plan[S, C, A]:
    slot, commands, _ = work
    plan: _Plan[S, C, A] = _Plan(slot)
    plan.results = [exc for _ in commands]
    return plan


def _unavailable(exc: Exception) -> StoreUnavailable:
    return (
        exc
        if isinstance(exc, StoreUnavailable)
        else StoreUnavailable("the log kept changing under this write; try again")
    )
