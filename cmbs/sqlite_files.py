"""SQLite files that are marked as ours: an empty one is filled, and any other is refused as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from cmbs.spi.stored_format import (
    StoreRefused,
    refuse_earlier,
    refuse_foreign,
    refuse_format,
    refuse_other_kind,
    refuse_other_marks,
    refuse_unmarked,
)

# In the `user_version` of a file: the number in the name of its format.
VERSION = 1
# What a file is for, by the `application_id` in its header: in ASCII "cmb1" and "cte1", and before the first format was
# fixed "cmbs" and "ctee".
LOG_ID, EARLIER_LOG_ID = 0x636D6231, 0x636D6273
GRAPH_ID, EARLIER_GRAPH_ID = 0x63746531, 0x63746565
_A_LOG, _A_GRAPH = "a log of cmbs", "a graph of a Tee"
_KINDS = {LOG_ID: _A_LOG, EARLIER_LOG_ID: _A_LOG, GRAPH_ID: _A_GRAPH, EARLIER_GRAPH_ID: _A_GRAPH}


class FileKind(NamedTuple):
    """What a file is for, by the `application_id` in its header, and the tables that belong in it."""

    application_id: int
    # What such files had before the first format was fixed.
    earlier_application_id: int
    # Must make a table `format`, which then holds one row.
    script: str
    # Makes the row of `format` out of the script.
    make_marks: Callable[[str], tuple[str, ...]]


def locate_file(path: str, mode: str) -> str:
    """A URI that opens the file in a mode of SQLite: `ro`, `rw`, or `rwc`, which makes the file."""
    return f"{Path(path).absolute().as_uri()}?mode={mode}"


def refuse_other_file(path: str, kind: FileKind, timeout_seconds: float) -> None:
    """StoreRefused for a file that is not of this kind and format, where looking at it otherwise would change it.

    The last connection that is closed moves the write-ahead log into the file, unless it only reads.
    """
    index = Path(f"{path}-shm")
    try:
        if not Path(f"{path}-wal").stat().st_size or not Path(path).exists():
            return
        had_index = index.exists()
    except OSError:
        # There is none, or no longer: another process closed the file.
        return
    try:
        reading = sqlite3.connect(locate_file(path, "ro"), timeout=timeout_seconds, isolation_level=None, uri=True)
        with closing(reading), transaction(reading, "BEGIN"):
            is_marked(reading, kind)
    except StoreRefused:
        # Only of a file that is refused: others of our processes may have begun to use this index of one that is not.
        if not had_index:
            index.unlink(missing_ok=True)
        raise


def prepare_file(
    connection: sqlite3.Connection, kind: FileKind, wait_until_deadline: Callable[[], None] = lambda: None
) -> None:
    """Fill an empty file, safely while other processes do the same; StoreRefused for any other.

    `wait_until_deadline` is called before a lock is waited for.
    """
    with transaction(connection, "BEGIN"):
        if is_marked(connection, kind):
            return
    wait_until_deadline()
    with transaction(connection, "BEGIN EXCLUSIVE"):
        # Another process may have been first.
        if not is_marked(connection, kind):
            fill_file(connection, kind)


def fill_file(connection: sqlite3.Connection, kind: FileKind) -> None:
    """Make the tables and the marks, inside the caller's transaction."""
    for statement in _split_script(kind.script):
        connection.execute(statement)
    marks = kind.make_marks(kind.script)
    connection.execute(f"INSERT INTO format VALUES ({', '.join('?' * len(marks))})", marks)  # noqa: S608 - no input
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute(f"PRAGMA application_id = {kind.application_id}")


def is_marked(connection: sqlite3.Connection, kind: FileKind) -> bool:
    """Whether the file is of this kind and format, inside the caller's transaction; False where it is empty.

    StoreRefused for any other file.
    """
    application_id = read_pragma(connection, "application_id")
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if application_id == kind.application_id:
        version = read_pragma(connection, "user_version")
        if version > VERSION:
            raise refuse_format(f"cmbs/{version}")
        marks = connection.execute("SELECT * FROM format").fetchall() if "format" in names else []
        if version != VERSION or len(marks) != 1:
            raise refuse_unmarked()
        refuse_other_marks(marks[0], kind.make_marks(kind.script))
        return True
    if application_id == kind.earlier_application_id:
        raise refuse_earlier()
    if application_id in _KINDS:
        raise refuse_other_kind(_KINDS[application_id], _KINDS[kind.application_id])
    if application_id != 0 or names or read_pragma(connection, "user_version") != 0:
        raise refuse_foreign()
    return False


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """Commit what the block does, or roll it back where the block raises."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite rolls back by itself after some errors.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def read_pragma(connection: sqlite3.Connection, name: str) -> int:
    """The number that a PRAGMA gives."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _split_script(script: str) -> list[str]:
    """Single statements: `executescript` would commit our transaction first."""
    found, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found
