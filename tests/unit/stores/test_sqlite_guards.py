"""An SQLite file that lost a guard, or that another process has locked: nothing is acknowledged, and soon."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from cmbs.errors import StoreUnavailable
from cmbs.spi import EliminationProvenance
from cmbs.stores.sqlite import InspectedSQLiteStore, SQLiteStore
from cmbs.testing.streams import stream

TIMEOUT_SECONDS = 0.4
SEEN = EliminationProvenance("source", "observation")


def triggers_of_a_file() -> list[str]:
    from cmbs.stores._sqlite_schema import expect_schema

    return sorted(name for kind, name in expect_schema() if kind == "trigger")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cmbs.db"


@contextmanager
def without_trigger(path: Path, trigger: str) -> Iterator[None]:
    """Another connection drops a trigger, and puts it back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        ((text,),) = other.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (trigger,)).fetchall()
        other.execute(f"DROP TRIGGER {trigger}")
        yield
        other.execute(text)


@pytest.mark.req("STORE-GUARD-01")
@pytest.mark.parametrize("trigger", triggers_of_a_file())
def test_without_a_trigger_nothing_is_acknowledged(path: Path, trigger: str) -> None:
    declaration, first, second = stream()
    store = SQLiteStore(path)
    store.append([declaration])
    with without_trigger(path, trigger):
        writes: tuple[Callable[[], object], ...] = (
            lambda: store.append([first]),
            lambda: store.append(stream(1)),
            lambda: store.put_intent(first),
            lambda: store.create_session("apart", frozenset("ab")),
        )
        for write in writes:
            with pytest.raises(StoreUnavailable, match=f"the trigger `{trigger}` is missing; nothing was written"):
                write()
        with pytest.raises(StoreUnavailable, match="`cmbs fsck` says what else differs"):
            SQLiteStore(path)
        assert store.read(declaration.stream_id) == [declaration.entry]
    store.append([first])
    store.close()
    with closing(SQLiteStore(path)) as again:
        again.append([second])
        assert again.read(declaration.stream_id) == [each.entry for each in (declaration, first, second)]


@pytest.mark.req("STORE-GUARD-01")
def test_a_trigger_that_was_changed_or_added_is_refused_and_what_does_no_harm_is_not(path: Path) -> None:
    declaration, first, second = stream()
    store = SQLiteStore(path)
    store.append([declaration])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for name in ("forget", "sqliteXstat_forget"):
            other.execute(f"CREATE TRIGGER {name} BEFORE INSERT ON audit_events BEGIN SELECT RAISE(IGNORE); END")
            with pytest.raises(StoreUnavailable, match=f"`{name}` on `audit_events` does not belong here"):
                store.append([first])
            other.execute(f"DROP TRIGGER {name}")
        other.execute("CREATE VIEW names AS SELECT session_id FROM sessions")
        other.execute("ANALYZE")
        other.execute("VACUUM")
        store.append([first])
        with closing(SQLiteStore(path)) as again:
            again.append([second])
    assert store.read(declaration.stream_id) == [each.entry for each in (declaration, first, second)]
    store.close()


@pytest.mark.req("STORE-GUARD-01")
def test_entries_that_the_file_did_not_take_are_not_acknowledged(path: Path) -> None:
    declaration, first, _ = stream()
    with closing(SQLiteStore(path)) as store:
        store.append([declaration])
        store._writer.execute(
            "CREATE TEMP TRIGGER forget BEFORE INSERT ON main.audit_events BEGIN SELECT RAISE(IGNORE); END"
        )
        with pytest.raises(StoreUnavailable, match="0 of 1 entries were taken; nothing was written"):
            store.append([first])
        store._writer.execute("DROP TRIGGER forget")
        store.append([first])
        assert store.read(declaration.stream_id) == [declaration.entry, first.entry]


# --- a file that another process has locked ---

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    connection.execute(statement)
print("locked", flush=True)
sys.stdin.readline()
"""


@contextmanager
def holding_lock(path: Path, *statements: str) -> Iterator[None]:
    """Another process holds the file."""
    command = [sys.executable, "-c", HOLDER, str(path), *(statements or ("BEGIN EXCLUSIVE",))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        try:
            yield
        finally:
            holder.communicate("\n")


def check_refused_in_time(use: Callable[[], object]) -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"is locked by another process, and was for the 0\.4 seconds"):
        use()
    assert time.monotonic() - began < TIMEOUT_SECONDS + 1


@pytest.mark.slow
@pytest.mark.req("STORE-LOCK-01")
def test_every_write_to_a_locked_file_answers_in_time_and_reads_go_on(path: Path) -> None:
    declaration, first, _ = stream()
    with closing(SQLiteStore(path, TIMEOUT_SECONDS)) as store:
        store.append([declaration])
        store.create_session("apart", frozenset("ab"))
        with holding_lock(path):
            for use in (
                lambda: store.append([first]),
                lambda: store.exclusive(["x"]).__enter__(),
                lambda: store.put_checkpoint(declaration.stream_id, 0, b"data"),
                lambda: store.put_intent(first),
                lambda: store.drop_intent(declaration.stream_id, b""),
                lambda: store.create_session("other", frozenset("ab")),
                lambda: store.eliminate("apart", {"a"}, SEEN),
            ):
                check_refused_in_time(use)
            assert store.read(declaration.stream_id) == [declaration.entry]
            SQLiteStore(path, TIMEOUT_SECONDS).close()
        store.append([first])


@pytest.mark.req("STORE-LOCK-01")
def test_threads_that_wait_for_each_other_and_for_a_lock_all_answer_in_time(path: Path) -> None:
    with closing(SQLiteStore(path, TIMEOUT_SECONDS)) as store, holding_lock(path):
        waited: list[float] = []

        def write(number: int) -> None:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="is locked by another"):
                store.append(stream(number))
            waited.append(time.monotonic() - began)

        threads = [Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(waited) == 4
        assert max(waited) < TIMEOUT_SECONDS + 1


@pytest.mark.slow
@pytest.mark.req("STORE-LOCK-01")
def test_opening_a_locked_file_answers_in_time(path: Path) -> None:
    states: tuple[Callable[[], object], ...] = (
        lambda: None,
        lambda: SQLiteStore(path).close(),
    )
    for write in states:
        path.unlink(missing_ok=True)
        write()
        with holding_lock(path, "PRAGMA journal_mode = DELETE", "BEGIN EXCLUSIVE"):
            check_refused_in_time(lambda: SQLiteStore(path, TIMEOUT_SECONDS))
        SQLiteStore(path, TIMEOUT_SECONDS).close()


@pytest.mark.req("STORE-LOCK-01")
def test_a_reader_in_the_way_of_wal_mode_is_not_waited_for_longer_than_promised(path: Path) -> None:
    SQLiteStore(path).close()
    reading = ("PRAGMA journal_mode = DELETE", "BEGIN", "SELECT count(*) FROM sessions")
    with holding_lock(path, *reading):
        check_refused_in_time(lambda: SQLiteStore(path, TIMEOUT_SECONDS))


@pytest.mark.slow
@pytest.mark.req("STORE-LOCK-01")
def test_every_read_of_a_locked_file_answers_in_time(path: Path) -> None:
    with closing(SQLiteStore(path)) as written:
        written.append(stream())
    with closing(sqlite3.connect(path)) as connection:
        # Readers of a file in WAL mode never wait.
        connection.execute("PRAGMA journal_mode = DELETE")
    name = stream()[0].stream_id
    with closing(InspectedSQLiteStore(path, TIMEOUT_SECONDS)) as store, holding_lock(path):
        for use in (
            lambda: store.head(name),
            lambda: store.read(name),
            lambda: store.sessions(None, 1),
            lambda: store.streams("space:", None, 1),
            lambda: store.checkpoint(name),
            lambda: store.intent(name),
            lambda: store.open_intents(1),
            lambda: store.recover(name),
            lambda: store.rows(name, None, 1),
        ):
            check_refused_in_time(use)
