"""Kill -9 of the database itself under load: servers stay up, go on without a restart, and nothing is missing."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from tests.fault.conftest import CheckFaults
from tests.support.effort import EFFORT
from tests.support.http_server import ServerProcess, serving
from tests.support.load import Load
from tests.support.restartable_postgres import restartable_postgres

# So that a caller whose database is gone is refused soon.
SHORT_TIMEOUT = {"CMBS_STORE_TIMEOUT_SECONDS": "2"}


def read_events(server: ServerProcess, client: httpx2.Client, session_id: str) -> list[dict[str, Any]]:
    """Those of a session. A worker that was not asked since the database came back may still refuse at first."""
    answers: list[httpx2.Response] = []

    def is_answered() -> bool:
        answers.append(client.get(f"/v1/sessions/{session_id}/audit"))
        return answers[-1].status_code != httpx2.codes.SERVICE_UNAVAILABLE

    server.wait_until(is_answered)
    assert answers[-1].is_success, answers[-1].text
    events: list[dict[str, Any]] = answers[-1].json()["events"]
    return events


@pytest.mark.postgres
@pytest.mark.req("ARCH-4-01", "STORE-PG-04")
def test_everything_that_was_answered_survives_kill_9_of_the_database_and_servers_go_on(
    tmp_path: Path, check_faults: CheckFaults
) -> None:
    random = Random(13)
    with restartable_postgres() as database:
        arguments = ("--store", database.url, "--workers", "2")
        with serving(tmp_path, *arguments, variables=SHORT_TIMEOUT) as server:
            workers = server.workers()
            load = Load(server.url, "load")
            load.start()
            for _ in range(EFFORT.kills):
                load.wait_for(acknowledged=random.randint(40, 200))
                database.kill()
                load.wait_for(refused=1)
                database.start()
            load.wait_for(acknowledged=40)
            load.stop()
            assert load.in_doubt == []
            with server.client() as client:
                for session_id in {session_id for session_id, _ in load.acknowledged}:
                    events = read_events(server, client, session_id)
                    answered = [event_id for owner, event_id in load.acknowledged if owner == session_id]
                    # Every caller sent each write until it was answered: one event for each, and no other.
                    assert sorted(event["event_id"] for event in events[1:]) == sorted(answered)
            assert server.workers() == workers
        check_faults(database.url, load.acknowledged, kills=EFFORT.kills)
