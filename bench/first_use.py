"""The first use of a long session: from its checkpoint and the tail, and by replay of the whole log.

The checkpoint is the one that a server would have kept last, so there is a tail to replay as well.
"""

from __future__ import annotations

import gc
import time
from contextlib import closing, suppress
from typing import Any

from bench.harness import Effort, Result, at_least, interleaved, microseconds
from bench.postgres import database
from bench.servers import disk_directory
from bench.stored import store_long_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import SessionNotFound
from cmbs.spi import Opening
from cmbs.stores.postgres import PostgresStore
from cmbs.stores.sqlite import SQLiteStore

NAME = "first_use"
EVENTS = 10_000
SESSION_SIZE = 1_000


class _WithoutCheckpoints:
    """A log that never has a checkpoint, and keeps none."""

    def checkpoint(self, stream_id: str) -> tuple[int, bytes] | None:  # noqa: ARG002
        return None

    def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None: ...


class _ReplayedSQLite(_WithoutCheckpoints, SQLiteStore): ...


class _ReplayedPostgres(_WithoutCheckpoints, PostgresStore):
    def opening(self, stream_id: str) -> Opening:
        return Opening(self.head(stream_id), None, [], [])


def run(effort: Effort) -> list[Result]:
    """Compare both ways, on SQLite and on PostgreSQL."""
    with disk_directory() as directory, database() as url:
        path = f"{directory}/bench.db"
        return [
            _compared("SQLite", effort, path, SQLiteStore, _ReplayedSQLite),
            _compared("PostgreSQL", effort, url, PostgresStore, _ReplayedPostgres),
        ]


def _compared(kind: str, effort: Effort, place: str, kept: Any, replayed: Any) -> Result:
    with closing(kept(place)) as log:
        session_id = store_long_session(log, EVENTS, SESSION_SIZE)
    seconds = interleaved(
        {"kept": lambda: _seconds(kept(place), session_id), "replayed": lambda: _seconds(replayed(place), session_id)},
        effort.rounds,
    )
    return Result(
        NAME,
        f"{kind}, first query of a session of {EVENTS:,} events, with a checkpoint: {microseconds(seconds['kept'])}",
        f"by replay of all of them: {microseconds(seconds['replayed'])}",
        seconds["replayed"] / seconds["kept"],
        at_least(10),
    )


def _seconds(log: Any, session_id: str) -> float:
    with closing(BeliefServer(store=log)) as server:
        # A fresh connection reads its catalogue on the first statements of each kind: that is not what is measured.
        with suppress(SessionNotFound):
            server.query_belief("nobody")
        log.read("nobody")
        # The session of the round before is in a reference cycle with its closed server: it is not what is measured.
        gc.collect()
        start = time.perf_counter()
        server.query_belief(session_id)
        return time.perf_counter() - start
