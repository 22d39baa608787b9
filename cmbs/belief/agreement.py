"""Log and elimination store agree, or an operator is told.

A session is held against its store before this process first sends something to the store for it, soon after it is
first read, and from time to time in the background. One that the store does not agree with is named, and takes no
writes until it does: `cmbs tee repair` makes it so.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import NamedTuple

from msgspec import UnsetType

from cmbs.belief.kernel.agreement import (
    ForeignTombstones,
    StoreReport,
    StoreState,
    find_difference,
    group_foreign,
    takes_foreign,
)
from cmbs.belief.kernel.events import Declare, read_event
from cmbs.belief.kernel.session import Session
from cmbs.belief.remote_calls import RemoteCalls
from cmbs.errors import BeliefServerError, LedgerCorrupt, SessionNotFound, StoreDisagrees, StoreUnavailable
from cmbs.spi.audit_log import AuditLog
from cmbs.spi.elimination_store import EliminationProvenance, EliminationStore
from cmbs.spi.store_identity import ConnectedStore, IdentifiedStore, SourcedStore, StoreIdentity

_log = logging.getLogger("cmbs.agreement")
# Between two checks in the background; and for the size of what was compared.
_PAUSE_SECONDS = 1.0
_IDS_PER_SECOND = 100_000
# How soon a session is looked at again.
_AGAIN_SECONDS = 600.0
_SOON_SECONDS = 5.0
# Beyond, the session that was checked the longest ago is checked anew at its next use.
_MAX_REPORTS = 100_000
_MAX_NAMED = 100
UNKNOWN_SESSION = "the elimination store does not know the session"
_WAY_OUT = "see `cmbs tee repair`"


def examine(session: Session, store: EliminationStore, now: Callable[[], Session | None]) -> StoreReport:
    """Hold a session against its store; `now` is asked for the session as it is after the store has answered.

    None of it leaves foreign tombstones for another time, because writes are under way that may explain them.
    """
    stranger = find_stranger(session, store)
    if stranger:
        return StoreReport(StoreState.DISAGREES, stranger)
    try:
        recovered = store.recover(session.session_id)
    except SessionNotFound:
        return StoreReport(StoreState.DISAGREES, UNKNOWN_SESSION)
    after = now()
    difference = find_difference(session, after or session, recovered)
    foreign: tuple[ForeignTombstones, ...] = ()
    if difference.foreign and after is not None:
        foreign = group_foreign(difference.foreign, _sources(store, session.session_id))
    state = StoreState.DISAGREES if difference.reason else StoreState.AGREES
    return StoreReport(state, difference.reason, foreign)


def find_stranger(session: Session, store: object) -> str:
    """Why a store cannot be the one that a session was declared in; empty where it can."""
    if session.store_id is None:
        return ""
    identity = store.identity() if isinstance(store, IdentifiedStore) else None
    if identity is None:
        return f"it was declared in the elimination store `{session.store_id}`, and this one has no identity"
    if not identity.is_home_of(session.store_id):
        return f"it was declared in the elimination store `{session.store_id}`, and this is `{identity.store_id}`"
    return ""


def _sources(store: EliminationStore, session_id: str) -> Mapping[EliminationProvenance, frozenset[str]]:
    return store.group_eliminated(session_id) if isinstance(store, SourcedStore) else {}


class _Kept(NamedTuple):
    """A report, and how often there had been a reason to doubt all reports when it was asked."""

    report: StoreReport
    losses: int


class Agreement:
    """What is known of sessions in a store of their own, and the thread that keeps it so.

    `read` gives a session as the log has it now, `is_cached` says whether that is cheap; `absorb` records foreign
    tombstones as eliminations. Without `in_background` there is no thread: only writes and `check` ask the store.
    """

    in_background = True

    def __init__(
        self,
        log: AuditLog,
        store: EliminationStore,
        calls: RemoteCalls,
        read: Callable[[str], Session],
        is_cached: Callable[[str], bool],
        absorb: Callable[[str, ForeignTombstones], None],
    ) -> None:
        self._log = log
        self._store = store
        self._calls = calls
        self._read = read
        self._is_cached = is_cached
        self._absorb = absorb
        self._lock = Lock()
        self._reports: OrderedDict[str, _Kept] = OrderedDict()
        # When each session is to be looked at again.
        self._due: OrderedDict[str, float] = OrderedDict()
        self._waiting: SimpleQueue[str] = SimpleQueue()
        self._submitted: set[str] = set()
        self._homes: set[str] = set()
        # How often an answer of the store could not be.
        self._surprises = 0
        self._stop = Event()
        self._thread: Thread | None = None

    # --- for writes ---

    def identify(self) -> str | None:
        """The id of the store, for a session that is about to be declared; None of a store without.

        `StoreDisagrees` where this process knows of sessions whose store is another one.
        """
        identity = self.require_home_of_known()
        if identity is None:
            return None
        with self._lock:
            self._homes.add(identity.store_id)
        return identity.store_id

    def require_home_of_known(self) -> StoreIdentity | None:
        """Ask the store which one it is. Raises `StoreUnavailable`, and `StoreDisagrees` as `identify` does."""
        store = self._store
        if not isinstance(store, IdentifiedStore):
            return None
        identity: StoreIdentity | None = self._calls.ask(store.identity)
        if not self._homes:
            self._find_home()
        with self._lock:
            elsewhere = sorted(each for each in self._homes if identity is None or not identity.is_home_of(each))
        if elsewhere:
            here = "has no identity" if identity is None else f"is `{identity.store_id}`"
            raise StoreDisagrees(
                f"sessions are in the elimination store `{elsewhere[0]}`, and this one {here}; {_WAY_OUT}",
                {"expected": elsewhere[0]},
            )
        return identity

    def _find_home(self) -> None:
        """Learn from the oldest sessions of the log which store they are in."""
        for summary in self._log.sessions(None, _MAX_NAMED):
            entries = self._log.read(summary.session_id, -1, 1)
            message = read_event(entries[0]).message if entries else None
            if isinstance(message, Declare) and not isinstance(message.store_id, UnsetType):
                with self._lock:
                    self._homes.add(message.store_id)
                return

    def require(self, before: Session, *, sends: bool) -> None:
        """Refuse a write to a session that the store does not agree with. The caller holds the lock of the session.

        What is to be sent to the store is not sent before the session was checked; other writes wait for no store.
        """
        known = self.find(before.session_id)
        if known.state is StoreState.AGREES:
            return
        if known.state is StoreState.UNCHECKED and not sends:
            self.submit(before.session_id)
            return
        losses = self._losses()
        try:
            # The lock keeps this process from writing meanwhile; another one may, so foreign is left for later.
            report = self._calls.ask(lambda: examine(before, self._store, lambda: before))
        except StoreUnavailable:
            if known.state is StoreState.UNCHECKED:
                raise
            report = known
        self._keep(before.session_id, report, losses, before.store_id)
        if report.foreign:
            self.submit(before.session_id)
        if report.state is StoreState.DISAGREES:
            raise refusal(before.session_id, report.reason)

    def require_home(self, session: Session) -> None:
        """Refuse to go on with a declaration that was begun in another store."""
        stranger = self._calls.ask(lambda: find_stranger(session, self._store))
        if stranger:
            raise refusal(session.session_id, stranger)

    def trust(self, session: Session) -> None:
        """Take note of a session that was just created in the store."""
        self._keep(session.session_id, StoreReport(StoreState.AGREES), self._losses(), session.store_id)

    def distrust(self, session_id: str, reason: str) -> StoreDisagrees:
        """Take note of an answer of the store that cannot be; the error that says so.

        What lost something of one session may have lost something of any, so all of them are checked anew.
        """
        with self._lock:
            self._surprises += 1
        self._keep(session_id, StoreReport(StoreState.DISAGREES, reason), self._losses())
        return refusal(session_id, reason)

    # --- for readers ---

    def find(self, session_id: str) -> StoreReport:
        """What is known of a session; asks no store."""
        losses = self._losses()
        with self._lock:
            kept = self._reports.get(session_id)
        if kept is None:
            return StoreReport(StoreState.UNCHECKED)
        if kept.report.state is StoreState.AGREES and kept.losses != losses:
            return kept.report._replace(state=StoreState.UNCHECKED)
        return kept.report

    def find_disagreeing(self) -> list[str]:
        """The first few sessions that the store does not agree with."""
        with self._lock:
            found = (name for name, kept in self._reports.items() if kept.report.state is StoreState.DISAGREES)
            return sorted(found)[:_MAX_NAMED]

    def check(self, session_id: str) -> StoreReport:
        """Hold a session against the store now; what is foreign becomes eliminations where its policy says so."""
        session, losses = self._read(session_id), self._losses()
        report = self._compare(session, losses)
        if report.foreign and takes_foreign(session) and report.state is StoreState.AGREES:
            for each in report.foreign:
                self._absorb(session_id, each)
            report = report._replace(foreign=())
            self._keep(session_id, report, losses)
        return report

    def require_agreement(self, session: Session) -> None:
        """StoreDisagrees for a reader of what only the store has. Writes nothing: what is foreign is left for later."""
        report = self.find(session.session_id)
        if report.state is StoreState.UNCHECKED:
            report = self._compare(session, self._losses())
            if report.foreign:
                self.submit(session.session_id)
        if report.state is StoreState.DISAGREES:
            raise StoreDisagrees(
                f"the graph of session `{session.session_id}` cannot be read: {report.reason}; {_WAY_OUT}",
                {"session_id": session.session_id, "reason": report.reason},
            )

    def _compare(self, session: Session, losses: int) -> StoreReport:
        session_id = session.session_id
        report = self._calls.ask(lambda: examine(session, self._store, lambda: self._look_again(session_id)))
        self._keep(session_id, report, losses, session.store_id)
        return report

    def note(self, session_id: str) -> None:
        """Have a session checked soon that is used for the first time."""
        if session_id not in self._submitted or self.find(session_id).state is StoreState.UNCHECKED:
            self.submit(session_id)

    # --- in the background ---

    def submit(self, session_id: str) -> None:
        """Have a session checked soon."""
        if not self.in_background:
            return
        with self._lock:
            if session_id in self._submitted and session_id not in self._due:
                return
            self._submitted.add(session_id)
            self._due.pop(session_id, None)
            self._waiting.put(session_id)
            self._start()

    def _start(self) -> None:
        """Have the thread run: there is something to look at, now or later. The caller holds the lock."""
        if self.in_background and self._thread is None and not self._stop.is_set():
            work = partial(_work, weakref.ref(self), self._stop)
            self._thread = Thread(target=work, name="cmbs-agreement", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop; what waits is left unchecked."""
        with self._lock:
            self._stop.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def take_turn(self) -> float:
        """Check the next session that waits; how long to rest after it."""
        self._renew()
        try:
            session_id = self._waiting.get_nowait()
        except Empty:
            return 0
        return self._check_quietly(session_id) / _IDS_PER_SECOND

    def _check_quietly(self, session_id: str) -> int:
        """Check a session, and say in the log what keeps it from being checked; the size of its universe."""
        size = 0
        try:
            session = self._read(session_id)
            size = len(session.universe)
            if session.is_in_store:
                self.check(session_id)
        except (StoreUnavailable, LedgerCorrupt, SessionNotFound) as exc:
            _log.warning("session `%s` was not held against its elimination store: %s", session_id, exc.message)
        except BeliefServerError as exc:
            _log.warning("foreign tombstones of session `%s` were not recorded: %s", session_id, exc.message)
        with self._lock:
            if session_id not in self._due:
                self._due[session_id] = time.monotonic() + _SOON_SECONDS
        return size

    def _renew(self) -> None:
        """Submit what is due; what agreed, and is not in use any more, is checked at its next use."""
        now = time.monotonic()
        with self._lock:
            due = [name for name, moment in self._due.items() if moment <= now]
        for session_id in due:
            if self.find(session_id).state is StoreState.AGREES and not self._is_cached(session_id):
                with self._lock:
                    self._forget(session_id)
            else:
                self.submit(session_id)

    def _forget(self, session_id: str) -> None:
        self._reports.pop(session_id, None)
        self._due.pop(session_id, None)
        self._submitted.discard(session_id)

    def _look_again(self, session_id: str) -> Session | None:
        """The session as it is now; None while a write is under way that the log does not have yet."""
        return None if self._log.intent(session_id) is not None else self._read(session_id)

    def _losses(self) -> int:
        """How often there was a reason to check every session anew."""
        lost = self._store.losses() if isinstance(self._store, ConnectedStore) else 0
        return lost + self._surprises

    def _keep(self, session_id: str, report: StoreReport, losses: int, store_id: str | None = None) -> None:
        with self._lock:
            known = self._reports.pop(session_id, None)
            self._reports[session_id] = _Kept(report, losses)
            agrees = report.state is StoreState.AGREES
            self._submitted.add(session_id)
            self._due[session_id] = time.monotonic() + (_AGAIN_SECONDS if agrees else _SOON_SECONDS)
            self._start()
            if store_id is not None:
                self._homes.add(store_id)
            if len(self._reports) > _MAX_REPORTS:
                self._forget(next(iter(self._reports)))
        if known is None or known.report[:2] != report[:2]:
            self._tell(session_id, None if known is None else known.report, report)

    def _tell(self, session_id: str, known: StoreReport | None, report: StoreReport) -> None:
        if report.state is StoreState.DISAGREES:
            _log.error("session `%s` takes no writes: %s; %s", session_id, report.reason, _WAY_OUT)
        elif known is not None and known.state is StoreState.DISAGREES:
            _log.warning("session `%s` agrees with its elimination store again", session_id)


def refusal(session_id: str, reason: str) -> StoreDisagrees:
    """The error for a write to a session that its store does not agree with."""
    return StoreDisagrees(
        f"session `{session_id}` takes no writes: {reason}; {_WAY_OUT}", {"session_id": session_id, "reason": reason}
    )


def _work(reference: weakref.ref[Agreement], stop: Event) -> None:
    """Check what waits, for as long as there is a server to do it for: one that was never closed ends all the same."""
    while not stop.wait(_PAUSE_SECONDS):
        agreement = reference()
        if agreement is None:
            return
        rest = agreement.take_turn()
        del agreement
        stop.wait(rest)
