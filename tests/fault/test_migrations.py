"""Eight processes open a database without a schema at the same moment: all of them find it ready."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import psycopg
import pytest

from cmbs.stores import open_store
from cmbs.stores._postgres_schema import MIGRATIONS
from cmbs.testing.streams import stream
from tests.support.http_server import TIMEOUT_SECONDS
from tests.support.postgres import empty_database

PROCESSES = 8
# Everything is imported before the line that starts it is read: what follows is the opening alone.
OPENING = """
import sys
from cmbs.stores import open_store
import cmbs.stores.postgres
print("ready", flush=True)
sys.stdin.readline()
store = open_store(sys.argv[1])
print(store.sessions(None, 1), flush=True)
store.close()
"""


@pytest.mark.postgres
@pytest.mark.req("STORE-PG-01")
def test_eight_processes_may_open_a_fresh_database_at_the_same_moment() -> None:
    with empty_database() as url, ExitStack() as running:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", OPENING, url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(PROCESSES)
        ]
        for process in processes:
            running.enter_context(process)
            running.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        printed = [process.communicate(timeout=TIMEOUT_SECONDS) for process in processes]
        assert printed == [("[]\n", "")] * PROCESSES
        assert [process.returncode for process in processes] == [0] * PROCESSES
        with psycopg.connect(url) as connection:
            versions = connection.execute("SELECT version FROM cmbs.migrations ORDER BY version").fetchall()
        assert versions == [(number,) for number in range(1, len(MIGRATIONS) + 1)]
        store = open_store(url)
        store.append(stream())
        assert len(store.read(stream()[0].stream_id)) == 3
        store.close()
