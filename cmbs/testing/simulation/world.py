"""What surrounds the simulated processes: a log, perhaps a store beside it, and all that can go wrong with a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar

from cmbs.errors import Conflict, StoreUnavailable
from cmbs.spi import Append, EliminationProvenance, EliminationResult, EliminationStore, RecoveredState
from cmbs.testing.fakes.failing_store import AnyStore, FailingLog, FailingStore
from cmbs.testing.simulation.model import Disagreement

T = TypeVar("T")

_WRITES = frozenset({"append", "exclusive", "put_intent", "drop_intent", "create_session", "eliminate"})


class Crash(BaseException):
    """The process is gone in the middle of a call. No ordinary exception: a dead process handles nothing."""


class Fault(StrEnum):
    """How a call goes wrong."""

    FAILS = "fails"
    """Nothing happened, and the caller is told so."""
    LOSES_REPLY = "loses its reply"
    """It took effect, and the caller is told that it failed."""
    CRASHES_BEFORE = "crashes before"
    CRASHES_AFTER = "crashes after"
    ANSWERS_LATE = "takes effect after the time-out"
    """Only in a store beside the log: the caller gave up, and the effect comes at some later moment."""
    REFUSES = "refuses"
    """Only in a store beside the log: understood and not wanted; nothing happened."""


_OF_READS = (Fault.FAILS, Fault.CRASHES_BEFORE)
_OF_WRITES = (Fault.FAILS, Fault.LOSES_REPLY, Fault.CRASHES_BEFORE, Fault.CRASHES_AFTER)
_OF_REMOTE_WRITES = (*_OF_WRITES, Fault.ANSWERS_LATE, Fault.ANSWERS_LATE, Fault.REFUSES)


class Process(Protocol):
    """The part of a simulated process that the world needs to know."""

    name: str
    alive: bool


class World:
    """Draws faults, remembers what is still under way, and lets other processes in between two steps of a call."""

    def __init__(self, random: Random, rate: float, trace: Callable[[str], None]) -> None:
        self.random = random
        self.rate = rate
        self.trace = trace
        self.struck = 0
        self.late: list[Callable[[], object]] = []
        # What a store beside the log has been sent: such a call may have left its mark, so it is not refused any more.
        self.sent: set[tuple[str, ...]] = set()
        self.interrupt: Callable[[Process, str], None] = lambda _process, _method: None
        self.sending: Callable[[tuple[str, ...]], None] = lambda _key: None

    def fault(self, process: Process, method: str, kinds: Sequence[Fault]) -> Fault | None:
        """How this call goes wrong, if it does."""
        if self.random.random() >= self.rate:
            return None
        fault = self.random.choice(kinds)
        self.struck += 1
        self.trace(f"  {process.name}: {method} {fault}")
        return fault

    @contextmanager
    def around(self, process: Process, method: str) -> Iterator[None]:
        """One call of a process to the log."""
        self._enter(process, method)
        fault = self.fault(process, method, _OF_WRITES if method in _WRITES else _OF_READS)
        self._before(process, fault)
        yield
        self._after(process, fault)

    def remote(self, process: Process, method: str, key: tuple[str, ...], call: Callable[[], T]) -> T:
        """One call of a process to the store beside the log. A time-out is told, not waited for."""
        self._enter(process, method)
        self.sending(key)
        first = key not in self.sent
        self.sent.add(key)
        fault = self.fault(process, method, _OF_REMOTE_WRITES)
        if fault is Fault.ANSWERS_LATE:
            self.late.append(call)
            raise StoreUnavailable("simulated: no answer in time")
        if fault is Fault.REFUSES and first:
            self.sent.discard(key)
            raise Conflict("simulated: refused")
        self._before(process, fault)
        answer = call()
        self._after(process, fault)
        return answer

    def arrive(self) -> None:
        """Let something that was given up long ago take effect now."""
        if self.late:
            self.late.pop(self.random.randrange(len(self.late)))()

    def _enter(self, process: Process, method: str) -> None:
        if not process.alive:
            raise Crash
        self.interrupt(process, method)

    def _before(self, process: Process, fault: Fault | None) -> None:
        if fault is Fault.CRASHES_BEFORE:
            self._crash(process)
        if fault is Fault.FAILS or fault is Fault.REFUSES:
            raise StoreUnavailable("simulated: failed")

    def _after(self, process: Process, fault: Fault | None) -> None:
        if fault is Fault.CRASHES_AFTER:
            self._crash(process)
        if fault is Fault.LOSES_REPLY:
            raise StoreUnavailable("simulated: the reply was lost")

    @staticmethod
    def _crash(process: Process) -> None:
        process.alive = False
        raise Crash


class _SimulatedLog(FailingLog[AnyStore]):
    """The log as one process sees it."""

    def __init__(self, inner: AnyStore, world: World, process: Process) -> None:
        super().__init__(inner)
        self._world = world
        self._process = process
        self._transaction: list[Append] | None = None

    @contextmanager
    def _call(self, method: str) -> Iterator[None]:
        with self._world.around(self._process, method):
            yield

    @property
    def exclusive_now(self) -> bool:
        """Whether other writers are held off."""
        return self._transaction is not None

    @contextmanager
    def exclusive(self, stream_ids: Iterable[str]) -> Iterator[None]:
        """A transaction: what is appended in it is there when it was left in good order, and otherwise not."""
        if not self._process.alive:
            raise Crash
        with self.inner.exclusive(stream_ids):
            self._transaction = []
            try:
                yield
                with self._call("exclusive"):
                    if self._transaction:
                        self.inner.append(self._transaction)
            finally:
                self._transaction = None

    def append(self, appends: Sequence[Append]) -> None:
        """Write, or in a transaction take down what to write."""
        if self._transaction is None:
            super().append(appends)
        else:
            with self._call("append"):
                self._transaction.extend(appends)


class SimulatedLog(_SimulatedLog):
    """A log whose tombstones are in a store beside it."""


class SimulatedStore(_SimulatedLog, FailingStore[AnyStore]):
    """A log that holds the tombstones too."""


class SimulatedRemote:
    """A store beside the log, as one process sees it."""

    def __init__(self, inner: EliminationStore, world: World, process: Process) -> None:
        self.inner = inner
        self._world = world
        self._process = process

    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        """As the store within."""
        call = partial(self.inner.create_session, session_id, hypothesis_ids)
        self._world.remote(self._process, "create_session", (session_id,), call)

    def eliminate(
        self, session_id: str, eliminated: AbstractSet[str], provenance: EliminationProvenance
    ) -> EliminationResult:
        """As the store within."""
        call = partial(self.inner.eliminate, session_id, eliminated, provenance)
        key = (session_id, provenance.source_id, provenance.trigger)
        return self._world.remote(self._process, "eliminate", key, call)

    def get_survivors(self, session_id: str) -> frozenset[str]:
        """As the store within."""
        return self.inner.get_survivors(session_id)

    def get_eliminated(self, session_id: str) -> frozenset[str]:
        """As the store within."""
        return self.inner.get_eliminated(session_id)

    def recover(self, session_id: str) -> RecoveredState:
        """As the store within."""
        return self.inner.recover(session_id)


def require(holds: object, what: str, *details: Any) -> None:
    """Raise a Disagreement where something does not hold."""
    if not holds:
        raise Disagreement(what.format(*details))
