"""Keeping checkpoints of long streams, so that the next process need not replay all of them.

They are written in the background and may fail or be lost: nothing depends on them but time.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Generic

from cmbs.errors import CmbsError
from cmbs.ledger import StoredEntry
from cmbs.spi.audit_log import AuditLog, Opening, opening_of
from cmbs.streams.kinds import Folding, S

_log = logging.getLogger("cmbs.streams")
# A stream is worth a checkpoint once so many events, and a good part of its length, have come since the last one: the
# work of writing them stays in proportion to the work of the events themselves.
_FEWEST_EVENTS = 1000
_SHARE = 4


def load(log: AuditLog, kind: Folding[S], stream_id: str) -> tuple[S, list[StoredEntry]] | None:
    """The state as of its checkpoint, and what followed; None where there is none that fits the log."""
    return resumed(kind, stream_id, opening_of(log, stream_id))


def resumed(kind: Folding[S], stream_id: str, opening: Opening) -> tuple[S, list[StoredEntry]] | None:
    """As `load`, of what was read already."""
    if opening.checkpoint is None or not opening.declaration or not opening.entries:
        return None
    at, *tail = opening.entries
    with _collector_paused():
        state = kind.thaw(stream_id, opening.checkpoint, opening.declaration[0], at)
    return None if state is None else (state, tail)


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


class Checkpointer(Generic[S]):
    """Writes checkpoints in a thread of its own."""

    def __init__(self, log: AuditLog, kind: Folding[S]) -> None:
        self._log = log
        self._kind = kind
        self._queue: SimpleQueue[tuple[str, S] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    @staticmethod
    def is_due(seq: int, last_seq: int) -> bool:
        """Whether a stream at `seq` deserves a checkpoint, the last one being at `last_seq`."""
        return seq - last_seq >= max(_FEWEST_EVENTS, last_seq // _SHARE)

    def put(self, stream_id: str, state: S) -> None:
        """Keep a checkpoint of this state soon."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = Thread(target=self._work, name="cmbs-checkpoints", daemon=True)
                self._thread.start()
            self._queue.put((stream_id, state))

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._queue.put(None)
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while (kept := self._queue.get()) is not None:
            stream_id, state = kept
            try:
                self._log.put_checkpoint(stream_id, state.head.seq, self._kind.freeze(state))
            except CmbsError as exc:
                _log.warning("no checkpoint of `%s`: %s", stream_id, exc)
