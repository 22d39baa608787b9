"""SQLite files whose last process did not close them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def leave_log_behind(path: Path, script: str, *, with_index: bool = False) -> None:
    """A file in which all that the script does is in its write-ahead log, as a process that was killed leaves it."""
    source = path.with_name("source.db")
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(script)
        for end in ("", "-wal", *(["-shm"] if with_index else [])):
            Path(f"{path}{end}").write_bytes(Path(f"{source}{end}").read_bytes())
    source.unlink()
