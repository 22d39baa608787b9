"""How connections to an SQLite file wait for each other."""

from __future__ import annotations

import sqlite3
import time

_WAL_PAUSE_SECONDS = 0.01


def wait_until(connection: sqlite3.Connection, deadline: float) -> None:
    """Let statements wait for locks until then, and no longer."""
    milliseconds = max(0, round((deadline - time.monotonic()) * 1000))
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}")


def enter_wal(connection: sqlite3.Connection, deadline: float) -> None:
    """Switch the file to WAL. That needs the file alone, and SQLite does not wait for it as it waits for a lock.

    So where another connection is in the way, queue up as a writer, which does wait, and then try again.
    """
    while True:
        wait_until(connection, deadline)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() >= deadline:
                raise
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            # A reader is in the way of the mode, and not of a writer.
            time.sleep(_WAL_PAUSE_SECONDS)
        else:
            return
