"""Contradictions over HTTP and on the command line, and the fork that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.stores import SQLiteStore
from cmbs.stores.memory import InMemoryStore
from tests.support.cli import invoke
from tests.support.error_model import check_error
from tests.support.in_process import client_of
from tests.support.store_fixture import declared


@pytest.mark.req("CONTRA-01", "CONTRA-02")
def test_a_contradiction_is_told_and_a_fork_goes_on_without_the_doubted_report() -> None:
    server = BeliefServer(store=InMemoryStore())
    session_id = declared(server, "abc")
    with client_of(create_app(server)) as client:
        path = f"/v1/sessions/{session_id}"
        assert client.get(path).json()["contradiction"] is False
        assert client.get(f"{path}/contradiction").json()["explanations"] == []
        for number, ids in enumerate((["a", "b"], ["b"], ["c"])):
            body = {"source_id": "s", "observation_id": f"{number}", "eliminated": ids}
            client.post(f"{path}/eliminate", body)
        assert client.get(path).json()["contradiction"] is True
        told = client.get(f"{path}/contradiction").json()
        assert (told["smallest"], told["left_none"]["seq"], told["n_alone"]) == (1, 3, 2)
        assert [each["causes"] for each in told["explanations"]] == [["a"], ["c"]]
        assert [each["seq"] for each in told["look_again"]] == [1, 3]
        forked = client.post(f"{path}/fork", {"without": [told["left_none"]["event_id"]]}).json()
        assert (forked["origin"]["without"], forked["snapshot"]["survivors"]) == ([3], ["c"])
        check_error(client.post(f"{path}/fork", {"without": [0]}), 400, "INVALID_REQUEST")
        check_error(client.post(f"{path}/fork", {"without": ["none"]}), 404, "EVENT_NOT_FOUND")
        check_error(client.post(f"{path}/fork", {"without": "3"}), 400, "INVALID_REQUEST")
        check_error(client.get("/v1/sessions/none/contradiction"), 404, "SESSION_NOT_FOUND")


@pytest.mark.req("CONTRA-01", "CONTRA-02")
def test_the_commands_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db"))
    session_id = declared(server, "abc")
    server.eliminate(session_id, "s", "1", ["a", "b"])
    server.close()
    calm = invoke("contradiction", session_id)
    assert (calm.exit_code, calm.stderr) == (0, "no contradiction: something is left\n")
    server = BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db"))
    server.eliminate(session_id, "t", "2", ["c"])
    server.close()
    told = invoke("contradiction", session_id)
    assert told.exit_code == 1
    assert told.stdout.splitlines() == [
        "nothing is left since event 2 (t, 2)",
        "1 report must be wrong at least",
        "  if event 1 (s, 1) is wrong: a, b",
        "  if event 2 (t, 2) is wrong: c",
        "look again at: event 1 (s, 1), event 2 (t, 2)",
    ]
    assert json.loads(invoke("contradiction", session_id, "--json").stdout)["n_explanations"] == 2
    forked = invoke("fork", session_id, "--without", "2")
    assert forked.stderr == f"forked from event 2 of {session_id} without 1 report, 1 survivor\n"
    assert invoke("fork", session_id, "--without", "0").exit_code == 2
