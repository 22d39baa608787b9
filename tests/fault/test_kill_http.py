"""Kill -9 of `cmbs serve` in the middle of load, again and again on one file: nothing acknowledged is missing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from cmbs.belief_server import BeliefServer
from cmbs.stores import SQLiteStore
from tests.support.homes import verified
from tests.support.http_server import PATIENCE, ServerProcess, free_port, run_cmbs, serving
from tests.support.transports import ONTOLOGY

ROUNDS = 4
CALLERS = 8
UNIVERSE = [f"h{number:04}" for number in range(200)]


class Load:
    """Callers that write as fast as they can, until their server is gone."""

    def __init__(self, server: ServerProcess, round_number: int) -> None:
        self._server = server
        # Two callers share a session.
        self._session_ids = [declared(server, f"{round_number}.{number}") for number in range(CALLERS // 2)]
        self._changed = threading.Condition()
        # Event ids by session, as they were answered.
        self.acknowledged: list[tuple[str, str]] = []
        # What each caller had sent when the server went away: nobody knows what became of it.
        self.in_doubt: list[tuple[str, dict[str, Any]]] = []
        self._threads = [threading.Thread(target=self._call, args=(number,)) for number in range(CALLERS)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def wait_for(self, acknowledged: int) -> None:
        """Return once so many writes were answered."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= acknowledged, PATIENCE)

    def join(self) -> None:
        """Return once every caller has noticed that the server is gone."""
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def _call(self, number: int) -> None:
        with httpx.Client(base_url=self._server.url, timeout=PATIENCE) as client:
            for path, body in self._requests(number):
                try:
                    answer = client.post(path, json=body)
                except httpx.TransportError:
                    self.in_doubt.append((path, body))
                    return
                assert answer.status_code == 200, answer.text
                with self._changed:
                    self.acknowledged.append((answer.json()["snapshot"]["session_id"], answer.json()["audit_event_id"]))
                    self._changed.notify_all()

    def _requests(self, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        path = f"/v1/sessions/{self._session_ids[number // 2]}"
        for step in count():
            if step % 6 == 5:
                yield f"{path}/obligations", {"obligation_id": f"{number}.{step}", "min_total_eliminations": 1}
            else:
                gone = UNIVERSE[(step * CALLERS + number) % len(UNIVERSE)]
                yield (
                    f"{path}/eliminate",
                    {"source_id": str(number), "observation_id": str(step), "eliminated": [gone]},
                )


def declared(server: ServerProcess, key: str) -> str:
    body, headers = {"ontology": ONTOLOGY, "hypotheses": UNIVERSE}, {"Idempotency-Key": key}
    answer = httpx.post(f"{server.url}/v1/sessions", json=body, headers=headers, timeout=PATIENCE)
    session_id: str = answer.json()["session_id"]
    return session_id


def killed_in_the_middle(directory: Path, port: int, round_number: int, after: int) -> Load:
    workers = "1" if round_number % 2 else "2"
    server = ServerProcess(directory, "--workers", workers, port=port)
    try:
        server.wait_until_ready()
        load = Load(server, round_number)
        load.start()
        load.wait_for(after)
        server.kill()
        load.join()
    finally:
        server.discard()
    return load


def tombstones(path: Path, session_id: str) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT hypothesis_id FROM tombstones WHERE session_id = ?", (session_id,))
        return {row[0] for row in rows}


@pytest.mark.req("ARCH-4-01", "BS-5.1-STORE-05")
def test_everything_that_was_answered_survives_kill_9_of_the_server(tmp_path: Path) -> None:
    port, random = free_port(), Random(9)
    acknowledged: list[tuple[str, str]] = []
    in_doubt: list[tuple[str, dict[str, Any]]] = []
    for round_number in range(ROUNDS):
        load = killed_in_the_middle(tmp_path, port, round_number, random.randint(40, 250))
        acknowledged += load.acknowledged
        in_doubt += load.in_doubt
        verdict = run_cmbs("verify", directory=tmp_path)
        assert (verdict.returncode, verdict.stderr) == (0, "")
        logged = events_of(tmp_path / "cmbs.db")
        assert set(acknowledged) <= {(session_id, event_id) for session_id in logged for event_id in logged[session_id]}
    assert len(in_doubt) == ROUNDS * CALLERS
    with serving(tmp_path, port=port) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        # Whether they were written or not, sending them again gives one event for each, and never two.
        for path, body in in_doubt:
            answer = client.post(path, json=body)
            entered_before = path.endswith("/obligations") and answer.status_code == 409
            assert answer.status_code == 200 or entered_before, answer.text
        for session_id in {session_id for session_id, _ in acknowledged}:
            events = client.get(f"/v1/sessions/{session_id}/audit").json()["events"]
            messages = [str(event["payload"]) for event in events]
            assert len(messages) == len(set(messages))
    assert run_cmbs("verify", directory=tmp_path).returncode == 0


def events_of(path: Path) -> dict[str, list[str]]:
    """The events of every session, after checking that its log, its tombstones and its row in the list agree."""
    server = BeliefServer(store=SQLiteStore(path))
    found: dict[str, list[str]] = {}
    for summary in server.list_sessions():
        belief = verified(server, summary.session_id)
        events = [entry.event_id for entry in server.audit_trace(summary.session_id)]
        assert set(UNIVERSE) - set(belief.survivors) == tombstones(path, summary.session_id)
        assert (summary.head_seq, summary.head_event_id) == (len(events) - 1, events[-1])
        assert summary.n_survivors == belief.n_survivors
        found[summary.session_id] = events
    server.close()
    return found
