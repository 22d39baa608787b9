"""Verification of many streams at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path

import pytest

from cmbs.audit.fsck import check_stream
from cmbs.audit.verify import check_streams, every_core
from cmbs.belief.server import BeliefServer
from cmbs.messages import OntologyBundle
from cmbs.stores import open_store
from tests.support.http_server import run_cmbs
from tests.support.store_fixture import tampering

ONTOLOGY = OntologyBundle("space", "1", "graph", "v1")


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with every_core(2) as executor:
        yield executor


@pytest.mark.slow
def test_other_processes_find_the_same_in_the_same_order(tmp_path: Path, executor: Executor) -> None:
    path = tmp_path / "cmbs.db"
    url = f"sqlite:///{path}"
    server = BeliefServer(store=open_store(url))
    sessions = []
    for events in (1, 5, 1200, 3, *([1] * 40)):
        sessions.append(server.declare_session(ONTOLOGY, [f"h{number}" for number in range(20)]).session_id)
        for number in range(events - 1):
            server.eliminate(sessions[-1], "source", f"observation {number}", [f"h{number % 19}"])
    server.close()
    with tampering(path, "audit_events_no_update") as database:
        database.execute("UPDATE audit_events SET ts = 'x' WHERE stream_id = ? AND seq = 3", (sessions[1],))
    wanted = [*sessions, "none-such"]
    found = list(check_streams(url, wanted, executor))
    with closing(open_store(url)) as store:
        assert found == [check_stream(store, session_id) for session_id in wanted]
    assert [report.stream_id for report in found] == wanted
    assert [report.stream_id for report in found if report.findings] == [sessions[1], "none-such"]
    assert (found[2].events, found[2].summary) == (1200, "1 of 20 survive")
    assert list(check_streams(url, [], executor)) == []


@pytest.mark.slow
def test_the_command_verifies_a_store_of_many_sessions(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'many.db'}"
    server = BeliefServer(store=open_store(url))
    for _ in range(230):
        server.declare_session(ONTOLOGY, ["a", "b"])
    server.close()
    finished = run_cmbs("verify", "--store", url, directory=tmp_path)
    assert finished.returncode == 0
    assert finished.stdout.count("good ") == 230
    assert finished.stdout.endswith("230 sessions, 0 bad\n")
