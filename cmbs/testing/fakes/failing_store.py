"""Stores that fail when a test says so, around any store that works.

::

    store = FailingStore(InMemoryStore())
    server = BeliefServer(store=store)
    store.fail("append", call=2)                       # the second append from here on raises, and writes nothing
    store.fail("append", moment=Moment.AFTER)          # the next append writes, and its acknowledgement is lost
    store.fail(call=3)                                 # the third call of whatever method

A fault strikes once. `calls` lists the methods called so far, so that a test can walk through all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from enum import StrEnum
from threading import RLock
from typing import Generic, Protocol, TypeVar

from cmbs.errors import StoreUnavailable
from cmbs.ledger import Head, StoredEntry
from cmbs.spi import (
    Append,
    AuditLog,
    EliminationProvenance,
    EliminationResult,
    EliminationStore,
    RecoveredState,
    SessionSummary,
)


class Moment(StrEnum):
    """When a call fails."""

    BEFORE = "before"
    """Nothing of it happened."""
    AFTER = "after"
    """It took effect in full, and the caller is told that it failed."""


class AnyStore(EliminationStore, AuditLog, Protocol):
    """A store that holds tombstones and events."""


S = TypeVar("S", bound=EliminationStore | AuditLog)
E = TypeVar("E", bound=EliminationStore)
L = TypeVar("L", bound=AuditLog)
B = TypeVar("B", bound=AnyStore)


class _Fault:
    """One failure that is to come."""

    __slots__ = ("calls_left", "error", "method", "moment")

    def __init__(self, method: str | None, calls_left: int, moment: Moment, error: Exception) -> None:
        self.method = method
        self.calls_left = calls_left
        self.moment = moment
        self.error = error


class _Failing(Generic[S]):
    """What failing stores share: the faults to come, and the calls so far."""

    def __init__(self, inner: S) -> None:
        self.inner = inner
        self._faults: list[_Fault] = []
        self._calls: list[str] = []
        self._guard = RLock()

    @property
    def calls(self) -> list[str]:
        """The names of the methods called so far, in order."""
        with self._guard:
            return list(self._calls)

    def fail(
        self,
        method: str | None = None,
        *,
        call: int = 1,
        moment: Moment = Moment.BEFORE,
        error: Exception | None = None,
    ) -> None:
        """Let a call fail once: the `call`-th from now on of `method`, or of all methods where none is named.

        It raises `error`, by default a StoreUnavailable. Faults add up until `heal`.
        """
        if method is not None and not callable(getattr(self, method, None)):
            raise ValueError(f"the store has no method `{method}`")
        if call < 1:
            raise ValueError("calls are counted from 1")
        raised = error or StoreUnavailable(f"told to fail {moment} `{method or 'any call'}`")
        with self._guard:
            self._faults.append(_Fault(method, call, moment, raised))

    def heal(self) -> None:
        """Forget the faults that are still to come."""
        with self._guard:
            self._faults.clear()

    @property
    def pending_faults(self) -> int:
        """How many faults did not strike yet."""
        with self._guard:
            return len(self._faults)

    @contextmanager
    def _call(self, method: str) -> Iterator[None]:
        fault = self._due(method)
        if fault is not None and fault.moment is Moment.BEFORE:
            raise fault.error
        yield
        if fault is not None:
            raise fault.error

    def _due(self, method: str) -> _Fault | None:
        """The fault that strikes this call, if any; where several are due, the one that was asked for first."""
        with self._guard:
            self._calls.append(method)
            concerned = [fault for fault in self._faults if fault.method in {None, method}]
            for fault in concerned:
                fault.calls_left -= 1
            due = next((fault for fault in concerned if fault.calls_left <= 0), None)
            if due is not None:
                self._faults.remove(due)
            return due


class FailingEliminationStore(_Failing[E]):
    """An `EliminationStore`, and nothing more, around another."""

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """As the store within."""
        with self._call("create_session"):
            self.inner.create_session(session_id, hypothesis_ids)

    def eliminate(
        self, session_id: str, eliminated: AbstractSet[str], provenance: EliminationProvenance
    ) -> EliminationResult:
        """As the store within."""
        with self._call("eliminate"):
            return self.inner.eliminate(session_id, eliminated, provenance)

    def get_survivors(self, session_id: str) -> frozenset[str]:
        """As the store within."""
        with self._call("get_survivors"):
            return self.inner.get_survivors(session_id)

    def get_eliminated(self, session_id: str) -> frozenset[str]:
        """As the store within."""
        with self._call("get_eliminated"):
            return self.inner.get_eliminated(session_id)

    def recover(self, session_id: str) -> RecoveredState:
        """As the store within."""
        with self._call("recover"):
            return self.inner.recover(session_id)


class FailingLog(_Failing[L]):
    """An `AuditLog`, and nothing more, around another."""

    @property
    def blocking(self) -> bool:
        """As the log within; never fails."""
        return self.inner.blocking

    def append(self, appends: Sequence[Append]) -> None:
        """As the log within."""
        with self._call("append"):
            self.inner.append(appends)

    @contextmanager
    def exclusive(self, stream_ids: Iterable[str]) -> Iterator[None]:
        """As the log within. `Moment.AFTER` strikes when the block was left, and what was written in it is there."""
        with self._call("exclusive"), self.inner.exclusive(stream_ids):
            yield

    def head(self, stream_id: str) -> Head | None:
        """As the log within."""
        with self._call("head"):
            return self.inner.head(stream_id)

    def read(self, stream_id: str, after: int = -1, limit: int | None = None) -> list[StoredEntry]:
        """As the log within."""
        with self._call("read"):
            return self.inner.read(stream_id, after, limit)

    def sessions(self, after: tuple[str, str] | None, limit: int) -> list[SessionSummary]:
        """As the log within."""
        with self._call("sessions"):
            return self.inner.sessions(after, limit)

    def streams(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """As the log within."""
        with self._call("streams"):
            return self.inner.streams(prefix, after, limit)

    def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None:
        """As the log within."""
        with self._call("put_checkpoint"):
            self.inner.put_checkpoint(stream_id, seq, data)

    def checkpoint(self, stream_id: str) -> tuple[int, bytes] | None:
        """As the log within."""
        with self._call("checkpoint"):
            return self.inner.checkpoint(stream_id)

    def put_intent(self, append: Append) -> None:
        """As the log within."""
        with self._call("put_intent"):
            self.inner.put_intent(append)

    def intent(self, stream_id: str) -> StoredEntry | None:
        """As the log within."""
        with self._call("intent"):
            return self.inner.intent(stream_id)

    def open_intents(self, limit: int) -> list[str]:
        """As the log within."""
        with self._call("open_intents"):
            return self.inner.open_intents(limit)

    def drop_intent(self, stream_id: str, event_hash: bytes) -> None:
        """As the log within."""
        with self._call("drop_intent"):
            self.inner.drop_intent(stream_id, event_hash)

    def close(self) -> None:
        """As the log within."""
        with self._call("close"):
            self.inner.close()


class FailingStore(FailingEliminationStore[B], FailingLog[B]):
    """An `EliminationStore` and `AuditLog` in one, around another."""
