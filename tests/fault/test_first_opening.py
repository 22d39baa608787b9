"""Eight processes open an empty store at the same moment: one makes the schema, and all of them find it ready."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from cmbs.stores import open_store
from cmbs.tee.stores import open_graph_store
from cmbs.testing.streams import stream
from tests.support.http_server import TIMEOUT_SECONDS
from tests.support.mutations import check_everything
from tests.support.postgres import empty_database

pytestmark = pytest.mark.slow

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
OPENING_GRAPH = """
import sys
from cmbs.tee.stores import open_graph_store
print("ready", flush=True)
sys.stdin.readline()
store = open_graph_store(sys.argv[1])
print(store.identity().tee_id, flush=True)
store.close()
"""


def open_at_once(program: str, url: str) -> list[str]:
    """What each of the processes printed that ran the program at the same moment."""
    with ExitStack() as running:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", program, url],
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
        assert [said for _, said in printed] == [""] * PROCESSES
        assert [process.returncode for process in processes] == [0] * PROCESSES
        return [line for line, _ in printed]


def check_ready(url: str) -> None:
    assert check_everything(url) == []
    with closing(open_store(url)) as store:
        store.append(stream())
        assert len(store.read(stream()[0].stream_id)) == 3


@pytest.mark.postgres
@pytest.mark.req("STORE-PG-01", "STORE-FORMAT-01")
def test_eight_processes_may_open_an_empty_database_at_the_same_moment() -> None:
    with empty_database() as url:
        assert open_at_once(OPENING, url) == ["[]\n"] * PROCESSES
        check_ready(url)


@pytest.mark.req("STORE-FORMAT-01")
def test_eight_processes_may_open_a_new_file_at_the_same_moment(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cmbs.db'}"
    assert open_at_once(OPENING, url) == ["[]\n"] * PROCESSES
    check_ready(url)


@pytest.mark.req("STORE-FORMAT-01")
def test_eight_processes_may_open_a_new_graph_at_the_same_moment(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tee.db'}"
    (tee_id,) = set(open_at_once(OPENING_GRAPH, url))
    with closing(open_graph_store(url)) as store:
        assert store.identity() == (tee_id.strip(), ())
