"""A real Neo4j for tests: one server for the whole test run, and the graph in it for one test at a time.

`CMBS_TEST_NEO4J_URL` names a server to use instead; every node in its database is deleted. Where no server can be had
the tests are skipped and say why, unless `CMBS_REQUIRE_BACKENDS=1`: then they fail.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cmbs.tee.stores.neo4j import connect
from scripts import neo4j_server
from tests.support.effort import REQUIRED, require_marker
from tests.support.postgres import RUN

NEO4J_URL = "CMBS_TEST_NEO4J_URL"

_starters: list[subprocess.Popen[str]] = []


@cache
def _run_directory() -> Path:
    """The directory that the processes of this test run share."""
    name = os.environ.get(RUN)
    if name is None:
        return Path(tempfile.mkdtemp(prefix="cmbs-neo4j-run-"))
    directory = Path(tempfile.gettempdir()) / f"cmbs-neo4j-run-{name}"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


@cache
def _server_url() -> str | Exception:
    """Where the server is, started by the first process that needs it; or why there is none."""
    given = os.environ.get(NEO4J_URL)
    if given:
        return given
    known = _run_directory() / "url"
    with neo4j_server.hold_lock(_run_directory() / "start.lock"):
        if known.exists():
            url, _, missing = known.read_text("utf-8").partition("\n")
        else:
            url, missing = _start_server()
            known.write_text(f"{url}\n{missing}", "utf-8")
    return url or neo4j_server.Neo4jMissing(missing)


def _start_server() -> tuple[str, str]:
    """The URL of a server that runs as long as this test run; or nothing, and why."""
    # A worker may end before the others do, and the process that started it never does.
    whole_run = os.getppid() if RUN in os.environ else os.getpid()
    command = [sys.executable, neo4j_server.__file__, "--port", "0", "--short-lived", "--while-pid", str(whole_run)]
    command += ["--scratch", str(_run_directory())]
    # It outlives the measuring of coverage, and has nothing to tell it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    starter = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    _starters.append(starter)
    assert starter.stdout
    assert starter.stderr
    with starter.stdout, starter.stderr:
        url = starter.stdout.readline().strip()
        if url:
            return url, ""
        # What serves removes its directory at the end; nothing else does it.
        atexit.register(shutil.rmtree, _run_directory(), ignore_errors=True)
        return "", starter.stderr.read().strip()


def start_early() -> None:
    """Start the server that tests are going to need, beside what runs now."""
    threading.Thread(target=_server_url, name="neo4j", daemon=True).start()


def server_url() -> str:
    """The server's URL; skips the test where there is no server, or fails it where there has to be one."""
    require_marker("neo4j")
    url = _server_url()
    if isinstance(url, Exception):
        _do_without(url)
    return url


def _do_without(reason: Exception) -> NoReturn:
    missing = f"no Neo4j could be started: {reason}"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(missing)
    pytest.skip(missing)


@contextmanager
def obtainable() -> Iterator[None]:
    """Where what is started here cannot be had, the test is skipped, or fails."""
    require_marker("neo4j")
    try:
        yield
    except neo4j_server.Neo4jMissing as exc:
        _do_without(exc)


@contextmanager
def own_server(directory: Path, port: int = 0) -> Iterator[neo4j_server.Neo4jServer]:
    """A server for one test that does to it what others must not see; skipped, or failed, as by `server_url`."""
    with obtainable():
        server = neo4j_server.start(directory, port, neo4j_server.SHORT_LIVED)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def fresh_graph() -> Iterator[str]:
    """The URL of an empty database. It is the only one that a Community server has, so other processes wait."""
    with neo4j_server.hold_lock(_graph_lock(url := server_url())):
        run(url, "MATCH (x) DETACH DELETE x")
        yield url


def _graph_lock(url: str) -> Path:
    if NEO4J_URL not in os.environ:
        return _run_directory() / "graph.lock"
    # Other test runs may use the same server.
    return Path(tempfile.gettempdir()) / f"cmbs-neo4j-{hashlib.sha256(url.encode()).hexdigest()[:16]}.lock"


def run(url: str, statement: str, **parameters: Any) -> list[list[Any]]:
    """What the database itself answers, without cmbs."""
    driver, database = connect(url)
    with driver:
        return [record.values() for record in driver.execute_query(statement, parameters, database_=database).records]
