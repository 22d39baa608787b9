"""Keeping checkpoints of long sessions, so that the next process need not replay all of them.

They are written in the background and may fail or be lost: nothing depends on them but time.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock, Thread

from cmbs.belief_checkpoint import freeze, thaw
from cmbs.belief_session import Session
from cmbs.errors import CmbsError
from cmbs.ledger import StoredEntry
from cmbs.spi.audit_log import AuditLog, Opening, opening_of

_log = logging.getLogger("cmbs.serving")
# A session is worth a checkpoint once so many events, and a good part of its length, have come since the last one: the
# work of writing them stays in proportion to the work of the events themselves.
_FEWEST_EVENTS = 1000
_SHARE = 4


def load(log: AuditLog, session_id: str) -> tuple[Session, list[StoredEntry]] | None:
    """The session as of its checkpoint, and what followed; None where there is none that fits the log."""
    return resumed(session_id, opening_of(log, session_id))


def resumed(session_id: str, opening: Opening) -> tuple[Session, list[StoredEntry]] | None:
    """As `load`, of what was read already."""
    if opening.checkpoint is None or not opening.declaration or not opening.entries:
        return None
    at, *tail = opening.entries
    with _collector_paused():
        session = thaw(opening.checkpoint, opening.declaration[0], at)
    return (session, tail) if session is not None and session.session_id == session_id else None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector out of a moment in which much is made and nothing dropped: a third of the time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


class Checkpointer:
    """Writes checkpoints in a thread of its own."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._queue: SimpleQueue[Session | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    @staticmethod
    def is_due(seq: int, last_seq: int) -> bool:
        """Whether a session at `seq` deserves a checkpoint, the last one being at `last_seq`."""
        return seq - last_seq >= max(_FEWEST_EVENTS, last_seq // _SHARE)

    def put(self, session: Session) -> None:
        """Keep a checkpoint of this state soon."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = Thread(target=self._work, name="cmbs-checkpoints", daemon=True)
                self._thread.start()
            self._queue.put(session)

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._queue.put(None)
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while (session := self._queue.get()) is not None:
            try:
                self._log.put_checkpoint(session.session_id, session.head.seq, freeze(session))
            except CmbsError as exc:
                _log.warning("no checkpoint of `%s`: %s", session.session_id, exc)
