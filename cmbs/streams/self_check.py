"""Verifying, in the background, the past that a checkpoint spared the first use of a stream.

A checkpoint is believed because an entry carries its digest. An intruder who can rewrite the newest entries of a log
can write such an entry too; only the entries before it tell. They are decided again while the stream is served, in a
bounded share of the time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Generic, NamedTuple

from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.spi.audit_log import PAGE_BYTES, AuditLog
from cmbs.streams.kinds import Folding, S

_log = logging.getLogger("cmbs.streams")
_EVENTS_AT_ONCE = 50
# After each portion the thread rests so many times as long: a tenth of one core at most, whatever an event costs, and
# less where requests keep it waiting.
_REST = 9
# What began the process, or asked for the stream, comes first.
_DELAY_SECONDS = 1.0


class _Past(NamedTuple):
    stream_id: str
    last_seq: int


class SelfCheck(Generic[S]):
    """Decides the past of streams again, one after the other, in a thread of its own.

    `distrust` is told of a stream whose past does not verify. A log that does not answer is not asked again: the next
    first use of the stream has its past checked anew.
    """

    def __init__(self, log: AuditLog, kind: Folding[S], distrust: Callable[[str], None]) -> None:
        self._log = log
        self._kind = kind
        self._distrust = distrust
        self._waiting: SimpleQueue[_Past] = SimpleQueue()
        self._lock = Lock()
        self._stop = Event()
        self._thread: Thread | None = None

    def submit(self, stream_id: str, last_seq: int) -> None:
        """Have the entries up to `last_seq` decided again soon."""
        self._waiting.put(_Past(stream_id, last_seq))
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = Thread(target=self._work, name="cmbs-self-check", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop; what waits is left unchecked."""
        with self._lock:
            self._stop.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while not self._stop.wait(_DELAY_SECONDS):
            try:
                past = self._waiting.get_nowait()
            except Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._thread = None
                        return
                continue
            try:
                self._verify(past)
            except LedgerCorrupt as exc:
                _log.error("%s; its checkpoint is no longer believed", exc)
                self._distrust(past.stream_id)
            except StoreUnavailable as exc:
                _log.warning("the past of `%s` was not checked: %s", past.stream_id, exc)

    def _verify(self, past: _Past) -> None:
        state: S | None = None
        seq = -1
        while seq < past.last_seq and not self._stop.is_set():
            began = time.monotonic()
            entries = self._log.read(past.stream_id, seq, min(_EVENTS_AT_ONCE, past.last_seq - seq), PAGE_BYTES)
            if not entries:
                raise LedgerCorrupt(past.stream_id, seq + 1, "it is not there")
            state = self._kind.catch_up(past.stream_id, state, entries)
            seq += len(entries)
            self._stop.wait(_REST * (time.monotonic() - began))
