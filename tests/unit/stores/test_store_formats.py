"""The marks of a store, and stores with other marks: each is refused in a sentence, and stays as it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cmbs.errors import StoreUnavailable
from cmbs.ledger import format as known
from cmbs.spi.stored_format import graph_marks, log_marks
from cmbs.stores import inspect_store, open_store
from cmbs.stores._postgres_schema import SCHEMA
from cmbs.stores._sqlite_schema import LOG_FILE
from cmbs.testing.streams import stream
from tests.support.cli import invoke
from tests.support.http_server import run_cmbs
from tests.support.postgres import empty_database, fresh_database
from tests.support.write_ahead import leave_log_behind

OTHER_FINGERPRINT = "another fingerprint"
EARLIER = "it was written by cmbs before its first format was fixed, and this software does not read it"
OWN_SOFTWARE = "; nothing was changed: start with an empty store, or use the cmbs that wrote it"
NEWER = "it has the format `cmbs/2`, which is newer than this software, which reads `cmbs/1` alone"
NEWER_SOFTWARE = "; nothing was changed: use the version of cmbs that wrote it, or a newer one"
FOREIGN = "it belongs to another application; nothing was changed: name a store of cmbs, or a new one"
UNMARKED = "it does not say which format it has, as every store of cmbs does; nothing was changed: restore a backup"
DEVELOPMENT = (
    "it was written by another development version of cmbs before the first release, with other types of entries"
    f" or other tables (fingerprint `{OTHER_FINGERPRINT}`, and here it is `{{}}`)"
)
IN_FILES = DEVELOPMENT.format(log_marks(LOG_FILE.script)[1])
IN_DATABASES = DEVELOPMENT.format(log_marks(SCHEMA)[1])
UNKNOWN = (
    "it has the unknown format `{}`, and this software reads `cmbs/1` alone; nothing was changed: restore a backup"
)


def run_script(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def write_file(path: Path, script: str) -> None:
    """A file that cmbs did not make."""
    run_script(path, script)


def change_file(path: Path, script: str) -> None:
    """A file of cmbs with something in it, and then changed."""
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.append(stream())
    run_script(path, script)


EARLIER_FILE = """
PRAGMA journal_mode = WAL;
CREATE TABLE sessions (session_id TEXT PRIMARY KEY);
PRAGMA application_id = 0x636D6273;
PRAGMA user_version = 6;
"""
FILES = [
    pytest.param(write_file, EARLIER_FILE, EARLIER + OWN_SOFTWARE, id="earlier"),
    pytest.param(change_file, "PRAGMA user_version = 2; DROP TABLE format;", NEWER + NEWER_SOFTWARE, id="newer header"),
    pytest.param(change_file, "UPDATE format SET format = 'cmbs/2'", NEWER + NEWER_SOFTWARE, id="newer format"),
    pytest.param(
        change_file,
        f"UPDATE format SET fingerprint = '{OTHER_FINGERPRINT}'",
        IN_FILES + OWN_SOFTWARE,
        id="another fingerprint",
    ),
    *(
        pytest.param(
            change_file,
            f"UPDATE format SET format = '{name}'",
            UNKNOWN.format(name) + ", or use the software that wrote it",
            id=f"unknown format {name}",
        )
        for name in ("cmbs/0", "cmbs/1.5", "cmbs/x", "other/2")
    ),
    pytest.param(
        write_file,
        "PRAGMA application_id = 0x63746531; PRAGMA user_version = 1",
        "it is a graph of a Tee, and not a log of cmbs; nothing was changed: name a log of cmbs, or a new one",
        id="a graph",
    ),
    pytest.param(write_file, "CREATE VIEW letters AS SELECT 1", FOREIGN, id="another application, a view alone"),
    pytest.param(write_file, "PRAGMA user_version = 7", FOREIGN, id="another application, a version alone"),
    pytest.param(write_file, "CREATE TABLE letters (body TEXT)", FOREIGN, id="another application"),
    pytest.param(write_file, "PRAGMA application_id = 7", FOREIGN, id="another application, still empty"),
    pytest.param(change_file, "DROP TABLE format", UNMARKED, id="no marks"),
    pytest.param(change_file, "DELETE FROM format", UNMARKED, id="no row of marks"),
    pytest.param(change_file, "INSERT INTO format VALUES ('cmbs/1', '')", UNMARKED, id="two rows of marks"),
    pytest.param(change_file, "PRAGMA user_version = 0", UNMARKED, id="no version"),
]
Write = Callable[[Path, str], None]


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


@pytest.mark.req("STORE-FORMAT-01")
def test_a_new_file_carries_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Read when it is needed: the fingerprint is whatever the types of entries make it.
    monkeypatch.setattr(known, "FINGERPRINT", OTHER_FINGERPRINT)
    path = tmp_path / "cmbs.db"
    open_store(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM format").fetchall() == [log_marks(LOG_FILE.script)]
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("PRAGMA application_id").fetchone() == (int.from_bytes(b"cmb1"),)


@pytest.mark.req("STORE-FORMAT-02")
@pytest.mark.parametrize(("write", "script", "said"), FILES)
def test_a_file_with_other_marks_is_refused_and_left_as_it_was(
    tmp_path: Path, write: Write, script: str, said: str
) -> None:
    path = tmp_path / "cmbs.db"
    write(path, script)
    before = contents(tmp_path)
    for open_it in (open_store, inspect_store):
        with pytest.raises(StoreUnavailable) as refused:
            open_it(f"sqlite:///{path}")
        assert refused.value.message == f"cannot open `{path}`: {said}"
        assert contents(tmp_path) == before


@pytest.mark.req("STORE-FORMAT-01")
def test_marks_say_what_entries_and_tables_are_like(monkeypatch: pytest.MonkeyPatch) -> None:
    before = log_marks("CREATE TABLE t (a)"), graph_marks("CREATE TABLE t (a)")
    assert before == (log_marks("CREATE TABLE t (a)"), graph_marks("CREATE TABLE t (a)"))
    assert log_marks("CREATE TABLE t (b)") != before[0]
    assert graph_marks("CREATE TABLE t (b)") != before[1]
    monkeypatch.setattr(known, "FINGERPRINT", OTHER_FINGERPRINT)
    assert log_marks("CREATE TABLE t (a)") != before[0]
    assert graph_marks("CREATE TABLE t (a)") == before[1]


@pytest.mark.req("STORE-FORMAT-02")
def test_a_file_with_other_tables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cmbs.db"
    open_store(f"sqlite:///{path}").close()
    later = LOG_FILE._replace(script=LOG_FILE.script + "CREATE TABLE later (x);")
    monkeypatch.setattr("cmbs.stores.sqlite.LOG_FILE", later)
    for open_it in (open_store, inspect_store):
        with pytest.raises(StoreUnavailable, match="with other types of entries or other tables"):
            open_it(f"sqlite:///{path}")


@pytest.mark.req("STORE-FORMAT-02")
@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("script", ["PRAGMA application_id = 0x636D6273", "CREATE TABLE letters (body TEXT)"])
def test_a_refused_file_keeps_its_write_ahead_log(tmp_path: Path, script: str, with_index: bool) -> None:
    path = tmp_path / "cmbs.db"
    leave_log_behind(path, script, with_index=with_index)
    before = contents(tmp_path)
    assert before["cmbs.db-wal"]
    for open_it in (open_store, inspect_store):
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            open_it(f"sqlite:///{path}")
        after = contents(tmp_path)
        assert after.keys() == before.keys()
        assert all(after[name] == before[name] for name in ("cmbs.db", "cmbs.db-wal"))


@pytest.mark.req("STORE-FORMAT-02")
def test_a_store_with_a_write_ahead_log_that_was_left_behind_is_opened(tmp_path: Path) -> None:
    path, copy = tmp_path / "cmbs.db", tmp_path / "copy.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.append(stream())
        for end in ("", "-wal"):
            Path(f"{copy}{end}").write_bytes(Path(f"{path}{end}").read_bytes())
        expected = store.sessions(None, 10)
    with closing(open_store(f"sqlite:///{copy}")) as store:
        assert store.sessions(None, 10) == expected != []


@pytest.mark.req("STORE-FORMAT-02")
def test_a_file_that_is_not_there_is_not_made_to_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot open"):
        inspect_store(f"sqlite:///{tmp_path / 'cmbs.db'}")
    assert contents(tmp_path) == {}


@pytest.mark.req("STORE-FORMAT-02")
def test_commands_show_the_refusal_and_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "cmbs.db"
    write_file(path, EARLIER_FILE)
    before = contents(tmp_path)
    url = f"sqlite:///{path}"
    expected = f"cmbs: STORE_UNAVAILABLE: cannot open `{path}`: {EARLIER}{OWN_SOFTWARE}"
    served = run_cmbs("serve", "--store", url, directory=tmp_path)
    assert (served.returncode, " ".join(served.stderr.split())) == (2, expected)
    for arguments in (["fsck", url], ["verify", "--store", url], ["export", "out.jsonl", "--store", url]):
        printed = invoke(*arguments)
        assert (printed.exit_code, " ".join(printed.stderr.split())) == (2, expected)
    assert contents(tmp_path) == before


@pytest.mark.req("STORE-FORMAT-02")
def test_an_empty_file_has_no_store_to_read(tmp_path: Path) -> None:
    path = tmp_path / "cmbs.db"
    path.touch()
    with pytest.raises(StoreUnavailable, match="there is no cmbs store in this file"):
        inspect_store(f"sqlite:///{path}")
    assert contents(tmp_path) == {"cmbs.db": b""}


# --- PostgreSQL ---


DATABASES = [
    pytest.param(
        "CREATE SCHEMA cmbs; CREATE TABLE cmbs.migrations (version int PRIMARY KEY)",
        EARLIER + OWN_SOFTWARE,
        id="earlier",
    ),
    pytest.param("UPDATE cmbs.format SET format = 'cmbs/2'", NEWER + NEWER_SOFTWARE, id="newer"),
    pytest.param(
        f"UPDATE cmbs.format SET fingerprint = '{OTHER_FINGERPRINT}'",
        IN_DATABASES + OWN_SOFTWARE,
        id="another fingerprint",
    ),
    pytest.param("CREATE SCHEMA cmbs; CREATE TABLE cmbs.letters (body text)", FOREIGN, id="another application"),
    pytest.param("DROP TABLE cmbs.format", UNMARKED, id="no marks"),
    pytest.param("DELETE FROM cmbs.format", UNMARKED, id="no row of marks"),
]
CATALOG = "SELECT oid, relname, relfilenode FROM pg_class WHERE relnamespace = 'cmbs'::regnamespace ORDER BY 1"


def read_catalog(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(CATALOG).fetchall()


@pytest.mark.postgres
@pytest.mark.req("STORE-FORMAT-02")
@pytest.mark.parametrize(("script", "said"), DATABASES)
def test_a_database_with_other_marks_is_refused_and_left_as_it_was(script: str, said: str) -> None:
    make = empty_database if script.startswith("CREATE SCHEMA") else fresh_database
    with make() as url:
        with psycopg.connect(url) as connection:
            connection.execute(script.encode())
        before = read_catalog(url)
        for open_it in (open_store, inspect_store):
            with pytest.raises(StoreUnavailable) as refused:
                open_it(url)
            assert refused.value.message == f"cannot open the database: {said}"
        assert read_catalog(url) == before


@pytest.mark.postgres
@pytest.mark.req("STORE-FORMAT-01")
def test_a_new_database_carries_the_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "FINGERPRINT", OTHER_FINGERPRINT)
    with empty_database() as url:
        open_store(url).close()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT * FROM cmbs.format").fetchall() == [log_marks(SCHEMA)]


@pytest.mark.postgres
@pytest.mark.req("STORE-FORMAT-02")
def test_an_empty_database_has_no_store_to_read() -> None:
    with empty_database() as url:
        with pytest.raises(StoreUnavailable, match="there is no cmbs store in this database"):
            inspect_store(url)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT to_regnamespace('cmbs')").fetchone() == (None,)
