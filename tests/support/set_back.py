"""Taking a store back to what it was, under servers that run: as an old backup or an intruder does."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg

from tests.support.postgres import postgres_program

PutBack = Callable[[], None]
_LAST = "coalesce((SELECT max(e.seq) FROM audit_events AS e WHERE e.stream_id = journal.stream_id), -1)"
# What the journal of a PostgreSQL database says of entries at the end of a stream that are gone.
_CUT_JOURNAL = (
    f"DELETE FROM journal WHERE seq > {_LAST}",
    f"UPDATE journal SET last_seq = {_LAST} WHERE last_seq > {_LAST}",
)


def take_snapshot(url: str) -> PutBack:
    """Remember what a store holds now; the function puts all of it back, in place."""
    if url.startswith("sqlite:///"):
        return _snapshot_file(Path(url.removeprefix("sqlite:///")))
    dump = subprocess.run(
        [postgres_program("pg_dump"), "--clean", "--if-exists", url], capture_output=True, text=True, check=True
    ).stdout

    def restore() -> None:
        subprocess.run(
            [postgres_program("psql"), "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", url],
            input=dump,
            capture_output=True,
            text=True,
            check=True,
        )

    return restore


def _snapshot_file(path: Path) -> PutBack:
    copy = sqlite3.connect(":memory:")
    with closing(sqlite3.connect(path)) as live:
        live.backup(copy)

    def restore() -> None:
        with closing(sqlite3.connect(path)) as live:
            copy.backup(live)

    return restore


def execute_unguarded(url: str, *statements: str) -> None:
    """Run SQL with every trigger out of the way; the journal loses what the ends of streams lost.

    Tables are named without a schema, and parameters are in the text.
    """
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
            connection.execute("BEGIN IMMEDIATE")
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.execute(statement)
            for _, definition in triggers:
                connection.execute(definition)
            connection.execute("COMMIT")
        return
    with psycopg.connect(url) as database:
        database.execute("SET LOCAL session_replication_role = replica")
        database.execute("SET LOCAL search_path = cmbs")
        for statement in (*statements, *_CUT_JOURNAL):
            database.execute(statement.encode())
