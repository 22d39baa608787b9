"""From decision to log: decide on the newest state, write, and only then let the new state be seen.

A write that fails has changed nothing, in memory or in the log. Locks are taken in one order, slots before the log, so
that writers cannot wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Generic, Protocol

from cmbs.errors import CmbsError, Conflict, LedgerCorrupt, StoreRolledBack, StoreUnavailable
from cmbs.ledger import StoredEntry
from cmbs.spi.audit_log import Append, AuditLog, StaleHead
from cmbs.streams.cache import Slot, Streams
from cmbs.streams.kinds import A, C, S, StreamKind

# How often a command is decided anew because of concurrency conflicts, before the caller is told to try again.
_MAX_ATTEMPTS = 16


class RemoteStore(Protocol[S]):
    """Carries entries out elsewhere before they are in the log."""

    def settle(self, streams: Streams[S], slot: Slot[S]) -> None:
        """Drive forward what was begun before."""
        ...

    def carry_out(self, after: S, append: Append) -> None:
        """Carry out one entry. `StaleHead` where another writer was first."""
        ...


class _Batch(Generic[S, C, A]):
    """The commands of one group for one stream, and what they come to before anything is written."""

    def __init__(self, slot: Slot[S], commands: list[C], numbers: list[int]) -> None:
        self.slot = slot
        self.commands = commands
        # Where the results go.
        self.numbers = numbers
        self.state = slot.state
        self.appends: list[Append] = []
        self.results: list[A | Exception] = []

    def decide(self, kind: StreamKind[S, C, A]) -> None:
        """Decide every command on the state that the ones before it lead to."""
        self.state, self.appends, self.results = self.slot.state, [], []
        for command in self.commands:
            try:
                answer, step = kind.decide(self.state, command)
            except Exception as exc:  # noqa: BLE001 - it is this command's answer, and the others go on
                self.results.append(exc)
                continue
            if step is not None:
                self.state, append = step
                self.appends.append(append)
            self.results.append(answer)

    def fail(self, exc: Exception) -> None:
        """Make an error the answer to every command."""
        self.appends, self.results = [], [exc for _ in self.commands]


class Writer(Generic[S, C, A]):
    """Takes commands to the log."""

    def __init__(self, log: AuditLog, kind: StreamKind[S, C, A], streams: Streams[S]) -> None:
        self._log = log
        self._kind = kind
        self._streams = streams
        # Why nothing may be written to this database; None where all is well.
        self.refusal: str | None = None
        # Whether the last group met other writers of its streams.
        self.collided = False
        # Told of every new state once it is durable, from the writing thread: they must be quick, and must not raise.
        self.observers: list[Callable[[str, S], None]] = []
        # Told of the entries that led there, under the same terms.
        self.append_observers: list[Callable[[Sequence[Append]], None]] = []

    def run(self, commands: Sequence[C]) -> list[A | Exception]:
        """Carry out all commands with one write. One that is refused does not keep the others from being written."""
        by_stream: dict[str, list[int]] = {}
        for number, command in enumerate(commands):
            by_stream.setdefault(command.stream_id, []).append(number)
        results: dict[int, A | Exception] = {}
        batches: list[_Batch[S, C, A]] = []
        for numbers in by_stream.values():
            own = [commands[number] for number in numbers]
            try:
                batches.append(_Batch(self._find_slot(own), own, numbers))
            except CmbsError as exc:
                results.update(dict.fromkeys(numbers, exc))
        with ExitStack() as held:
            for batch in batches:
                held.enter_context(batch.slot.lock)
            try:
                self._write(batches)
            except (StaleHead, StoreUnavailable) as exc:
                for batch in batches:
                    batch.fail(exc if isinstance(exc, StoreUnavailable) else _still_stale())
            for batch in batches:
                if batch.appends and batch.state is not None:
                    self._publish(batch.slot, batch.state, batch.appends)
                results.update(zip(batch.numbers, batch.results, strict=True))
        return [results[number] for number in range(len(commands))]

    def run_remote(self, remote: RemoteStore[S], command: C) -> A:
        """Carry out one command that a remote store has to carry out too, in the caller's thread."""
        slot = self._find_slot([command])
        if self.refusal is not None:
            # Before anything is driven forward: that would be written as well.
            raise StoreRolledBack(self.refusal)
        with slot.lock:
            for _ in range(_MAX_ATTEMPTS):
                try:
                    remote.settle(self._streams, slot)
                    answer, step = self._kind.decide(self._streams.peek(slot), command)
                    if step is not None:
                        remote.carry_out(*step)
                        self._publish(slot, step[0], [step[1]])
                except StaleHead:
                    continue
                return answer
        raise _still_stale()

    def adopt(self, stream_id: str, entries: Sequence[StoredEntry]) -> None:
        """Write a verified log that comes from elsewhere, as it is; Conflict where another log is here already."""
        slot = self._streams.slot(stream_id)
        with slot.lock:
            for _ in range(_MAX_ATTEMPTS):
                try:
                    self._continue_with(stream_id, entries)
                except StaleHead:  # another process began the stream in the same moment, or an intent is open
                    continue
                return
        raise _still_stale()

    def _continue_with(self, stream_id: str, entries: Sequence[StoredEntry]) -> None:
        seen = self._streams.seen.find(stream_id)
        with self._log.exclusive([stream_id]):
            known = self._log.read(stream_id)
            if known[: len(entries)] != list(entries[: len(known)]):
                raise Conflict(f"another log of `{stream_id}` is here already", {"stream_id": stream_id})
            after = entries if len(entries) > len(known) else known
            if seen is not None and (len(after) <= seen.seq or after[seen.seq].event_hash != seen.event_hash):
                raise self._streams.seen.refuse(stream_id, seen, self._log.head(stream_id))
            state = self._kind.catch_up(stream_id, None, known)
            appends: list[Append] = []
            for stored in entries[len(known) :]:
                state, append = self._kind.fold(state, stored)
                appends.append(append)
            if appends and self.refusal is not None:
                raise StoreRolledBack(self.refusal)
            self._log.append(appends)

    def _find_slot(self, commands: Sequence[C]) -> Slot[S]:
        stream_id = commands[0].stream_id
        slot = self._streams.slot(stream_id)
        if slot.state is None and self._streams.peek(slot) is None:
            if not any(self._kind.opens(command) for command in commands):
                raise self._streams.find_reason(stream_id)
            slot = self._streams.slot(stream_id)
        return slot

    def _write(self, batches: list[_Batch[S, C, A]]) -> None:
        """Decide on the cached states and write; where another process has written since, hold it off and repeat."""
        if self.refusal is not None:
            # Before anything is decided: a state that is dropped is copied by the next write.
            raise StoreRolledBack(self.refusal)
        self.collided = any(batch.slot.contended for batch in batches)
        if not self.collided:
            for batch in batches:
                batch.decide(self._kind)
            try:
                if not all(batch.appends for batch in batches):
                    self._check_repeats(batches)
                self._append(batches)
            except StaleHead:
                for batch in batches:
                    batch.slot.contended = True
            else:
                return
        self._write_alone(batches)

    def _check_repeats(self, batches: list[_Batch[S, C, A]]) -> None:
        """StaleHead where an answer that writes nothing rests on a state that the log is not at any more.

        What is written is compared with the log's head by the log. While the log cannot be asked, what was answered
        before is answered again.
        """
        for batch in batches:
            state = batch.slot.state
            if state is None or batch.appends or all(isinstance(result, Exception) for result in batch.results):
                continue
            with suppress(StoreUnavailable):
                if self._log.head(batch.slot.stream_id) != state.head:
                    raise StaleHead(batch.slot.stream_id)

    def _write_alone(self, batches: list[_Batch[S, C, A]]) -> None:
        """Hold other writers off, look again, and decide on what is there now."""
        with self._log.exclusive([batch.slot.stream_id for batch in batches]):
            for batch in batches:
                before = batch.slot.state
                try:
                    batch.slot.contended = self._streams.peek(batch.slot) is not before
                    batch.decide(self._kind)
                except LedgerCorrupt as exc:
                    batch.fail(exc)
            self._append(batches)

    def _append(self, batches: list[_Batch[S, C, A]]) -> None:
        appends = [append for batch in batches for append in batch.appends]
        if appends:
            self._log.append(appends)

    def _publish(self, slot: Slot[S], state: S, appends: Sequence[Append]) -> None:
        self._streams.publish(slot, state, appends)
        for observer in self.observers:
            observer(slot.stream_id, state)
        for append_observer in self.append_observers:
            append_observer(appends)


def _still_stale() -> StoreUnavailable:
    return StoreUnavailable("the log kept changing under this write; try again")
