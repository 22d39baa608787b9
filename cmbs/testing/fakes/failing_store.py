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

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar, cast

from cmbs.errors import StoreUnavailable
from cmbs.spi import AuditLog, EliminationStore


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
F = TypeVar("F", bound=Callable[..., Any])


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


def _pass_on(method: F) -> F:
    """A method as the store within has it, with the faults that were asked for."""

    @wraps(method)
    def call(self: _Failing[Any], *args: Any, **named: Any) -> Any:
        with self._call(method.__name__):
            return getattr(self.inner, method.__name__)(*args, **named)

    return cast("F", call)


class FailingEliminationStore(_Failing[E]):
    """An `EliminationStore`, and nothing more, around another."""

    create_session = _pass_on(EliminationStore.create_session)
    eliminate = _pass_on(EliminationStore.eliminate)
    get_survivors = _pass_on(EliminationStore.get_survivors)
    get_eliminated = _pass_on(EliminationStore.get_eliminated)
    recover = _pass_on(EliminationStore.recover)


class FailingLog(_Failing[L]):
    """An `AuditLog`, and nothing more, around another."""

    @property
    def blocking(self) -> bool:
        """As the log within; never fails."""
        return self.inner.blocking

    @contextmanager
    def exclusive(self, stream_ids: Iterable[str]) -> Iterator[None]:
        """As the log within. `Moment.AFTER` strikes when the block was left, and what was written in it is there."""
        with self._call("exclusive"), self.inner.exclusive(stream_ids):
            yield

    append = _pass_on(AuditLog.append)
    head = _pass_on(AuditLog.head)
    read = _pass_on(AuditLog.read)
    hashes = _pass_on(AuditLog.hashes)
    sessions = _pass_on(AuditLog.sessions)
    streams = _pass_on(AuditLog.streams)
    put_checkpoint = _pass_on(AuditLog.put_checkpoint)
    checkpoint = _pass_on(AuditLog.checkpoint)
    put_intent = _pass_on(AuditLog.put_intent)
    intent = _pass_on(AuditLog.intent)
    open_intents = _pass_on(AuditLog.open_intents)
    drop_intent = _pass_on(AuditLog.drop_intent)
    close = _pass_on(AuditLog.close)


class FailingStore(FailingEliminationStore[B], FailingLog[B]):
    """An `EliminationStore` and `AuditLog` in one, around another."""
