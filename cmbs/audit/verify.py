"""Verifying many sessions, on every core: sessions are independent of each other, and so is their verification."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple, TypeAlias

from cmbs.belief.kernel.replay import verify_session
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import Head, StoredEntry

# A log to verify: the session, its entries, and the head that was recorded beside them.
Log: TypeAlias = tuple[str, list[StoredEntry], Head | None]

# A log on its way to another process: lists of bytes are packed and unpacked much faster than lists of records.
_Packed: TypeAlias = tuple[str, list[bytes], list[bytes], Head | None]

# Logs are handed over in batches of about so many events: enough to be worth the trip, few enough to share out evenly.
_EVENTS_PER_BATCH = 2000
_BATCHES_AHEAD = 4


class Verified(NamedTuple):
    """What verification found of one session; `problem` is None for a good one."""

    session_id: str
    events: int
    n_survivors: int = 0
    universe_size: int = 0
    head_hash: str = ""
    problem: str | None = None


def verify_log(log: Log) -> Verified:
    """Verify one session: every message is decided again and must give the recorded bytes."""
    session_id, entries, head = log
    try:
        session = verify_session(session_id, entries, head)
    except LedgerCorrupt as exc:
        return Verified(session_id, len(entries), problem=str(exc))
    head_hash = session.head.event_hash.hex()
    return Verified(session_id, len(entries), len(session.survivors), len(session.universe), head_hash)


def verify_logs(logs: Iterable[Log], executor: Executor) -> Iterator[Verified]:
    """Verify many sessions, in the order given, while the next ones are being read."""
    batches = _batch(logs)
    waiting = [executor.submit(_verify_batch, batch) for batch in islice(batches, _BATCHES_AHEAD)]
    while waiting:
        yield from waiting.pop(0).result()
        waiting.extend(executor.submit(_verify_batch, batch) for batch in islice(batches, 1))


@contextmanager
def every_core(processes: int | None = None) -> Iterator[Executor]:
    """A process for each core."""
    # Not forked: the caller may hold threads and database connections.
    with ProcessPoolExecutor(processes or os.cpu_count() or 1, mp_context=get_context("spawn")) as executor:
        yield executor


def _verify_batch(batch: list[_Packed]) -> list[Verified]:
    return [
        verify_log((session_id, list(map(StoredEntry, raws, hashes)), head)) for session_id, raws, hashes, head in batch
    ]


def _batch(logs: Iterable[Log]) -> Iterator[list[_Packed]]:
    batch: list[_Packed] = []
    events = 0
    for session_id, entries, head in logs:
        batch.append((session_id, [entry.raw for entry in entries], [entry.event_hash for entry in entries], head))
        events += len(entries)
        if events >= _EVENTS_PER_BATCH:
            yield batch
            batch, events = [], 0
    if batch:
        yield batch
