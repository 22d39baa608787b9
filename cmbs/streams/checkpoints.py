"""Keeping checkpoints of long streams, so that the next process need not replay all of them.

They are written in the background and may fail or be lost: nothing depends on them but time.
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
# A stream is worth a checkpoint once so many events, and a good part of its length, have come since the last one: the
# work of writing them stays in proportion to the work of the events themselves.
_FEWEST_EVENTS = 1000
_SHARE = 4


def resume(codec: CheckpointCodec[S], stream_id: str, opening: Opening) -> tuple[S, list[StoredEntry]] | None:
    """The state as of its checkpoint, and what followed; None where there is none that fits the log."""
    if opening.checkpoint is None or not opening.declaration or not opening.entries:
        return None
    at, *tail = opening.entries
    state = codec.thaw(stream_id, opening.checkpoint, opening.declaration[0], at)
    return None if state is None else (state, tail)


class Checkpointer(Generic[S]):
    """Writes checkpoints in a thread of its own."""

    def __init__(self, log: AuditLog, codec: CheckpointCodec[S]) -> None:
        self.codec = codec
        self._log = log
        self._executor = ThreadPoolExecutor(1, "cmbs-checkpoints")
        self._lock = Lock()
        self._closed = False

    @staticmethod
    def is_due(seq: int, last_seq: int) -> bool:
        """Whether a stream at `seq` deserves a checkpoint, the last one being at `last_seq`."""
        return seq - last_seq >= max(_FEWEST_EVENTS, last_seq // _SHARE)

    def put(self, stream_id: str, state: S) -> None:
        """Keep a checkpoint of this state soon."""
        with self._lock:
            if not self._closed:
                self._executor.submit(self._write, stream_id, state)

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._lock:
            self._closed = True
        self._executor.shutdown()

    def _write(self, stream_id: str, state: S) -> None:
        try:
            self._log.put_checkpoint(stream_id, state.head.seq, self.codec.freeze(state))
        except Exception as exc:  # noqa: BLE001 - the next start takes longer, and nothing else comes of it
            _log.warning("no checkpoint of `%s`: %s", stream_id, exc)
