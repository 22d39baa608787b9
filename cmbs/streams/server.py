"""Streams of one kind over a log: every plane's server is built on this.

Every method returns when what it did is durable. Event loops use `perform_async`, which holds no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, NamedTuple

from cmbs.errors import BeliefServerError, CmbsError, LedgerCorrupt, StoreUnavailable
from cmbs.ledger import Head, StoredEntry
from cmbs.spi.audit_log import Append, AuditLog
from cmbs.streams.cache import ByteBudget, Streams
from cmbs.streams.checkpoints import Checkpointer
from cmbs.streams.group_commit import GroupWriter
from cmbs.streams.kinds import A, C, CheckpointCodec, S, StreamKind
from cmbs.streams.writer import RemoteStore, Writer


class Preparation(NamedTuple, Generic[S, C]):
    """What is looked up outside the log before a command is decided.

    `is_needed` is quick; `prepare` may block, and gives the command with what was found. A decision raises `missing`
    where the state has changed so that more must be looked up: the command is then prepared and decided again.
    """

    is_needed: Callable[[S, C], bool]
    prepare: Callable[[S, C], C]
    missing: type[BeliefServerError]


class StreamServer(Generic[S, C, A]):
    """Carries out commands on streams, and caches at most `capacity` of their states, within `budget`.

    `codec` keeps checkpoints of long streams, `remote` carries entries out elsewhere before they are in the log. With
    `grouped`, commands of many callers share a write where the log is a blocking one.
    """

    def __init__(
        self,
        log: AuditLog,
        kind: StreamKind[S, C, A],
        capacity: int,
        *,
        codec: CheckpointCodec[S] | None = None,
        remote: RemoteStore[S] | None = None,
        preparation: Preparation[S, C] | None = None,
        grouped: bool = True,
        budget: ByteBudget[S] | None = None,
    ) -> None:
        self._kind = kind
        self._remote = remote
        self._preparation = preparation
        # A log in memory ends with its process: there is no start to shorten.
        self._checkpointer = Checkpointer(log, codec) if codec is not None and log.blocking else None
        self.streams = Streams(log, kind, capacity, self._checkpointer, budget)
        self._writer = Writer(log, kind, self.streams)
        # A remote store may take its time: its writes run in the caller's thread, not in the one that all share.
        self._group = GroupWriter(self._writer) if grouped and log.blocking and remote is None else None

    def perform(self, command: C) -> A:
        """Carry out a command."""
        while True:
            known = self.streams.find(command.stream_id)
            try:
                prepared = self._prepare(command)
                if self._remote is not None:
                    return self._writer.run_remote(self._remote, prepared)
                if self._group is not None:
                    return self._group.submit(prepared).result()
                (result,) = self._writer.run([prepared])
                if isinstance(result, Exception):
                    raise result
            except BeliefServerError as exc:
                if not self._has_conflict(command, known, exc):
                    raise
            else:
                return result

    async def perform_async(self, command: C) -> A:
        """Carry out a command without holding a thread, unless a remote store must be waited for in one."""
        if self._remote is not None:
            return await asyncio.to_thread(self.perform, command)
        if self._group is None:
            return self.perform(command)
        while True:
            known, prepared = self.streams.find(command.stream_id), command
            try:
                # Reading a log, or looking something up, would hold up every other task of the loop.
                if known is None or (self._preparation is not None and self._preparation.is_needed(known, command)):
                    prepared = await asyncio.to_thread(self._prepare, command)
                return await asyncio.wrap_future(self._group.submit(prepared))
            except BeliefServerError as exc:
                if not await asyncio.to_thread(self._has_conflict, command, known, exc):
                    raise

    def perform_all(self, commands: Sequence[C]) -> list[A | CmbsError]:
        """Carry out commands in their order, with as few writes as the log takes; what each of them came to."""
        if self._group is None or len(commands) == 1:
            return [self._attempt(command) for command in commands]
        known = {command.stream_id: self.streams.find(command.stream_id) for command in commands}
        futures = [self._submit(self._group, command) for command in commands]
        results: list[A | CmbsError] = []
        for command, future in zip(commands, futures, strict=True):
            try:
                results.append(future.result())
            except CmbsError as exc:
                has_changed = self.streams.find(command.stream_id) is not known[command.stream_id]
                retry = has_changed and isinstance(exc, BeliefServerError)
                results.append(self._attempt(command) if retry else exc)
        return results

    def current(self, stream_id: str) -> S:
        """The state as the log has it now; the kind's own error where there is no such stream."""
        return self.streams.current(stream_id)

    def refresh(self, stream_id: str) -> S:
        """As `current`, but an error while the log cannot be asked."""
        return self.streams.refresh(stream_id)

    def peek(self, stream_id: str) -> S | None:
        """As `refresh`, but None where there is no such stream."""
        return self.streams.peek(self.streams.slot(stream_id))

    def find_cached(self, stream_id: str) -> S | None:
        """The cached state, which may be older than the log; never touches the log."""
        return self.streams.find(stream_id)

    def adopt(self, stream_id: str, entries: Sequence[StoredEntry]) -> S:
        """Write a verified log that comes from elsewhere, as it is; Conflict where another log is here already."""
        self._writer.adopt(stream_id, entries)
        return self.refresh(stream_id)

    def find_behind(self) -> list[str]:
        """The first few streams of which the log lacks what this server has seen of them."""
        return self.streams.find_damaged()

    def expect_head(self, stream_id: str, head: Head) -> None:
        """Refuse a stream until the log contains this head, which was recorded of it and which the log lacks.

        Streams of other kinds are not this server's, and are left alone.
        """
        if self._kind.owns(stream_id):
            self.streams.expect(stream_id, head)

    def refuse_writes(self, reason: str | None) -> None:
        """Carry out no command, because the database as a whole was put back or cut; None takes them again.

        What is there is read as before.
        """
        self._writer.refusal = reason

    def observe(self, observer: Callable[[str, S], None]) -> None:
        """Tell `observer` of every state that this server writes, once that is durable. From the writing thread.

        It must be quick, and must not raise.
        """
        self._writer.observers.append(observer)

    def observe_appends(self, observer: Callable[[Sequence[Append]], None]) -> None:
        """As `observe`, but tell of the entries that were written, each time of one stream, in their order."""
        self._writer.append_observers.append(observer)

    def close(self) -> None:
        """Write what waits, then stop the threads. The log stays open."""
        self.streams.self_check.close()
        if self._group is not None:
            self._group.close()
        if self._checkpointer is not None:
            self._checkpointer.close()

    def _attempt(self, command: C) -> A | CmbsError:
        try:
            return self.perform(command)
        except CmbsError as exc:
            return exc

    def _submit(self, group: GroupWriter[S, C, A], command: C) -> Future[A]:
        try:
            return group.submit(self._prepare(command))
        except CmbsError as exc:
            failed: Future[A] = Future()
            failed.set_exception(exc)
            return failed

    def _prepare(self, command: C) -> C:
        """Load the stream, here and not in the writer that all streams share, and look up what is needed outside."""
        if self._kind.opens(command):
            return command
        state = self.streams.load(command.stream_id)
        if self._preparation is None or not self._preparation.is_needed(state, command):
            return command
        return self._preparation.prepare(state, command)

    def _has_conflict(self, command: C, known: S | None, error: BeliefServerError) -> bool:
        """Whether a refusal is an optimistic concurrency conflict: it rests on a state that others had left behind.

        What is written is compared with the log's head by the log. A refusal writes nothing, so it is compared here.
        `known` is the state that this process had in its cache before: what was decided on is no older.
        """
        missing = self._preparation is not None and isinstance(error, self._preparation.missing)
        if not missing and (known is None or isinstance(error, (StoreUnavailable, LedgerCorrupt))):
            return False
        newest = self.refresh(command.stream_id)
        return missing or known is None or newest.head != known.head
