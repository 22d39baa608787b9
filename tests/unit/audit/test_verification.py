"""Verification of many sessions at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from cmbs.audit.verify import Log, every_core, verify_log, verify_logs
from cmbs.belief.server import BeliefServer
from cmbs.ledger import Head, StoredEntry
from cmbs.messages import OntologyBundle
from cmbs.stores import open_store
from tests.support.http_server import run_cmbs

ONTOLOGY = OntologyBundle("space", "1", "graph", "v1")


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with every_core(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def logs() -> list[Log]:
    """Sessions of several lengths, the longest of more events than are handed over at once."""
    server = BeliefServer()
    found: list[Log] = []
    for events in (1, 5, 2500, 3, 40):
        session_id = server.declare_session(ONTOLOGY, [f"h{number}" for number in range(20)]).session_id
        for number in range(events - 1):
            server.eliminate(session_id, "source", f"observation {number}", [f"h{number % 19}"])
        found.append((session_id, server.stored_entries(session_id), server.log.head(session_id)))
    return found


def test_a_good_log_is_told_with_what_survives(logs: list[Log]) -> None:
    session_id, entries, head = logs[1]
    verified = verify_log(logs[1])
    assert head is not None
    assert verified == (session_id, len(entries), 16, 20, head.event_hash.hex(), None)


def test_a_bad_log_is_told_with_what_is_wrong(logs: list[Log]) -> None:
    session_id, entries, head = logs[1]
    verified = verify_log((session_id, entries[:-1], head))
    assert verified.events == len(entries) - 1
    assert verified.problem is not None
    assert "the recorded head is seq 4" in verified.problem


def test_other_processes_find_the_same_in_the_same_order(logs: list[Log], executor: Executor) -> None:
    session_id, entries, _ = logs[0]
    forged = [StoredEntry(entries[0].raw, bytes(32)), *entries[1:]]
    many = [*logs, (session_id, forged, None), *logs, ("none-such", [], Head(0, bytes(32)))]
    found = list(verify_logs(iter(many), executor))
    assert found == [verify_log(log) for log in many]
    assert [verified.problem is None for verified in found] == [True] * 5 + [False] + [True] * 5 + [False]


def test_nothing_to_verify_is_nothing_found(executor: Executor) -> None:
    assert list(verify_logs(iter([]), executor)) == []


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
