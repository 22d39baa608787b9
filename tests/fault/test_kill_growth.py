"""Kill loops while the graph grows and sessions are declared over it: the server, Tee, or Neo4j beneath it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from cmbs.audit.plain_rows import all_sessions
from cmbs.stores import open_store
from cmbs.tee.kernel.wire import decode
from cmbs.tee.stores import open_graph_store
from tests.fault.conftest import CheckFaults
from tests.fault.test_kill_tee import SHORT_TIMEOUT, check_that_log_and_tee_agree
from tests.support.effort import EFFORT
from tests.support.growth import GrowingIncidents
from tests.support.http_server import ServerProcess, free_port, run_cmbs
from tests.support.neo4j import own_server, run
from tests.support.tee_process import TeeProcess, tee_serving

# Between two kills.
DECLARED, MERGED = 3, 10


class Deployment(NamedTuple):
    """Everything that runs: what may be killed, and where the graph and the log are."""

    server_url: str
    tee: TeeProcess
    graph_url: str
    store_url: str
    kill: Callable[[], None]
    restart: Callable[[], None]
    stop_server: Callable[[], None]


class Victim(Protocol):
    """What is killed, and comes back."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


class RestartableServer:
    """A belief server that comes back on the same port."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._options = options
        self.port = free_port()
        self.start()

    def start(self) -> None:
        """Serve; returns once it is ready."""
        self._process = ServerProcess(self._directory, *self._options, port=self.port, variables=SHORT_TIMEOUT)
        self._process.wait_until_ready()

    def kill(self) -> None:
        """End it without any warning."""
        self._process.kill()

    def discard(self) -> None:
        """End it if it runs."""
        self._process.discard()


class RestartableNeo4j:
    """A Neo4j that comes back over the same files, on the same port."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._port = 0
        directory.mkdir()
        self.start()
        self.url = self._server.url
        self._port = int(self.url.rpartition(":")[2])

    def start(self) -> None:
        """Serve; returns once it is ready."""
        self._server = self._stack.enter_context(own_server(self._directory, self._port))

    def kill(self) -> None:
        """End it without any warning."""
        self._server.kill()


@pytest.fixture(params=["server", "tee", pytest.param("neo4j", marks=pytest.mark.deep)])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    with ExitStack() as stack:
        neo4j = RestartableNeo4j(tmp_path / "neo4j", stack) if request.param == "neo4j" else None
        graph_url = neo4j.url if neo4j else f"sqlite:///{tmp_path / 'tee.db'}"
        tee = stack.enter_context(tee_serving(tmp_path, graph_url))
        tee.grow(["first", *(f"node {number}" for number in range(50))])
        store_url = f"sqlite:///{tmp_path / 'cmbs.db'}"
        server = RestartableServer(tmp_path, "--store", store_url, "--tee", tee.endpoint)
        stack.callback(server.discard)
        victims: dict[str, Victim | None] = {"server": server, "tee": tee, "neo4j": neo4j}
        victim = victims[request.param]
        assert victim is not None
        url = f"http://127.0.0.1:{server.port}"
        yield Deployment(url, tee, graph_url, store_url, victim.kill, victim.start, server.discard)


def list_incidents(graph_url: str) -> set[str]:
    """What the graph store itself has, without cmbs."""
    if graph_url.startswith("sqlite"):
        with closing(sqlite3.connect(graph_url.removeprefix("sqlite:///"))) as connection:
            return {row[0] for row in connection.execute("SELECT incident_id FROM incidents")}
    return {row[0] for row in run(graph_url, "MATCH (i:TeeIncident) RETURN i.id")}


@pytest.mark.slow
@pytest.mark.req("TEE-SESSION-04", "TEE-SESSION-05")
def test_sessions_declared_over_a_growing_graph_outlive_kills(
    tmp_path: Path, deployment: Deployment, check_faults: CheckFaults
) -> None:
    # A start of Neo4j costs as much as several of the others.
    kills = max(1, EFFORT.kills // 3) if deployment.graph_url.startswith("bolt") else EFFORT.kills
    incidents = GrowingIncidents(deployment.server_url, deployment.tee.port)
    with incidents.running():
        for _ in range(kills):
            incidents.wait_for(DECLARED, MERGED)
            deployment.kill()
            deployment.restart()
        incidents.wait_for(DECLARED, MERGED)
    deployment.stop_server()
    # Drives what was in doubt to its end.
    check_that_log_and_tee_agree(deployment.store_url, deployment.tee.endpoint)
    with closing(open_store(deployment.store_url)) as log:
        sessions = {summary.session_id for summary in all_sessions(log)}
    assert sessions >= set(incidents.session_ids)
    # No declaration left an incident behind that is no session.
    assert list_incidents(deployment.graph_url) == sessions
    checked = run_cmbs("fsck", deployment.store_url, "--tee", deployment.tee.endpoint, directory=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with closing(open_graph_store(deployment.graph_url)) as graph:
        nodes, edges = decode([*graph.main_graph().nodes, *graph.main_graph().edges])
    assert {node.id for node in nodes} >= set(incidents.merged)
    assert {edge.key.target for edge in edges} >= set(incidents.merged)
    check_faults(deployment.store_url, incidents.acknowledged, kills=kills)
