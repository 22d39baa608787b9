"""Keeping checkpoints of long streams, so that the next process need not replay all of them.

A checkpoint is the state whose digest an entry carries. It is written in the background, and may fail or be lost:
nothing depends on it but time.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Generic

from cmbs.ledger import StoredEntry
from cmbs.spi.audit_log import AuditLog, Opening
from cmbs.streams.kinds import CheckpointCodec, S

_log = logging.getLogger("cmbs.streams")


def resume(codec: CheckpointCodec[S], stream_id: str, opening: Opening) -> tuple[S, list[StoredEntry]] | None:
    """The state of the checkpoint, and the entries that follow it; None where the chain does not vouch for one."""
    if opening.checkpoint is None or not opening.declaration or not opening.entries:
        return None
    state = codec.thaw(stream_id, opening.checkpoint, opening.declaration[0], opening.entries[0])
    return None if state is None else (state, opening.entries)


class Checkpointer(Generic[S]):
    """Writes checkpoints in a thread of its own."""

    def __init__(self, log: AuditLog, codec: CheckpointCodec[S]) -> None:
        self.codec = codec
        self._log = log
        self._executor = ThreadPoolExecutor(1, "cmbs-checkpoints")
        self._lock = Lock()
        self._closed = False

    def put(self, stream_id: str, seq: int, data: bytes) -> None:
        """Keep this checkpoint, whose digest the entry `seq` carries, soon."""
        with self._lock:
            if not self._closed:
                self._executor.submit(self._write, stream_id, seq, data)

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._lock:
            self._closed = True
        self._executor.shutdown()

    def _write(self, stream_id: str, seq: int, data: bytes) -> None:
        try:
            self._log.put_checkpoint(stream_id, seq, data)
        except Exception as exc:  # noqa: BLE001 - the next start takes longer, and nothing else comes of it
            _log.warning("no checkpoint of `%s`: %s", stream_id, exc)
