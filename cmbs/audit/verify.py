"""Checking many streams, on every core: streams are independent of each other, and so are their checks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing, contextmanager
from itertools import islice
from multiprocessing import get_context

from cmbs.audit.actors import ActorCheck
from cmbs.audit.fsck import Report, check_stream
from cmbs.stores import inspect_store

# Enough to be worth opening the store for, few enough to share out evenly.
_STREAMS_PER_BATCH = 32
_BATCHES_AHEAD = 4


def check_streams(
    url: str, stream_ids: Iterable[str], executor: Executor, *, imported: bool = False
) -> Iterator[Report]:
    """Check streams of the store at `url`, in the order given, in the processes of `executor`."""
    names = iter(stream_ids)
    batches = iter(lambda: tuple(islice(names, _STREAMS_PER_BATCH)), ())
    waiting = [executor.submit(_check_batch, url, batch, imported) for batch in islice(batches, _BATCHES_AHEAD)]
    while waiting:
        yield from waiting.pop(0).result()
        waiting.extend(executor.submit(_check_batch, url, batch, imported) for batch in islice(batches, 1))


@contextmanager
def every_core(processes: int | None = None) -> Iterator[Executor]:
    """A process for each core."""
    # Not forked: the caller may hold threads and database connections.
    with ProcessPoolExecutor(processes or os.cpu_count() or 1, mp_context=get_context("spawn")) as executor:
        yield executor


def _check_batch(url: str, stream_ids: tuple[str, ...], imported: bool) -> list[Report]:  # noqa: FBT001 - over a pickle
    with closing(inspect_store(url)) as store:
        actors = ActorCheck(store, imported=imported)
        return [check_stream(store, stream_id, actors) for stream_id in stream_ids]
