"""Keeping checkpoints of long streams, so that the next process need not replay all of them.

A checkpoint is the state whose digest an entry carries. It is written in the background, for a small share of the time,
and may fail or be lost: nothing depends on it but time.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from threading import Condition, Thread
from typing import Generic, NamedTuple

from cmbs.ledger import StoredEntry
from cmbs.spi.audit_log import AuditLog, Opening
from cmbs.streams.kinds import CheckpointCodec, S

_log = logging.getLogger("cmbs.streams")
# A write of a large state keeps appends waiting. After each, the thread rests so many times as long.
_REST = 100
# Of what waits beyond this, the oldest is dropped.
_MAX_BYTES_WAITING = 64 * 1024 * 1024


def resume(codec: CheckpointCodec[S], stream_id: str, opening: Opening) -> tuple[S, list[StoredEntry]] | None:
    """The state of the checkpoint, and the entries that follow it; None where the chain does not vouch for one."""
    if opening.checkpoint is None or not opening.declaration or not opening.entries:
        return None
    state = codec.thaw(stream_id, opening.checkpoint, opening.declaration[0], opening.entries[0])
    return None if state is None else (state, opening.entries)


class _Checkpoint(NamedTuple):
    seq: int
    data: bytes


class Checkpointer(Generic[S]):
    """Writes checkpoints in a thread of its own, which starts with the first one. Of each stream, the newest waits."""

    def __init__(self, log: AuditLog, codec: CheckpointCodec[S]) -> None:
        self.codec = codec
        self._log = log
        self._waiting: OrderedDict[str, _Checkpoint] = OrderedDict()
        self._bytes_waiting = 0
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    def put(self, stream_id: str, seq: int, data: bytes) -> None:
        """Keep this checkpoint, whose digest the entry `seq` carries, soon."""
        with self._changed:
            if self._closed:
                return
            if stream_id in self._waiting:
                self._take(stream_id)
            self._waiting[stream_id] = _Checkpoint(seq, data)
            self._bytes_waiting += len(data)
            while self._bytes_waiting > _MAX_BYTES_WAITING and len(self._waiting) > 1:
                self._take(next(iter(self._waiting)))
            if self._thread is None:
                self._thread = Thread(target=self._work, name="cmbs-checkpoints", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _take(self, stream_id: str) -> _Checkpoint:
        checkpoint = self._waiting.pop(stream_id)
        self._bytes_waiting -= len(checkpoint.data)
        return checkpoint

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                stream_id = next(iter(self._waiting))
                checkpoint = self._take(stream_id)
            began = time.monotonic()
            self._write(stream_id, checkpoint)
            taken = time.monotonic() - began
            with self._changed:
                self._changed.wait_for(lambda: self._closed, _REST * taken)

    def _write(self, stream_id: str, checkpoint: _Checkpoint) -> None:
        try:
            self._log.put_checkpoint(stream_id, checkpoint.seq, checkpoint.data)
        except Exception as exc:  # noqa: BLE001 - the next start takes longer, and nothing else comes of it
            _log.warning("no checkpoint of `%s`: %s", stream_id, exc)
