"""The store is gone while the server runs: writes are refused cleanly, known sessions are read, and it all comes back.

Every request here has a time to be answered in; nothing may hang.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.stores import open_store
from tests.fault.conftest import CheckFaults
from tests.support.error_model import check_error
from tests.support.http_server import TIMEOUT_SECONDS, ServerProcess, serving
from tests.support.load import declare_session
from tests.support.restartable_postgres import RestartablePostgres, restartable_postgres
from tests.support.store_fixture import declared

pytestmark = pytest.mark.slow

STORE_TIMEOUT_SECONDS = 2
# One thread for each that waits would be too many: so many requests must not add up their waits.
CONCURRENT_READS = 120


class Running:
    """A server over a store that is about to go, with one session that it knows, and some that it never read."""

    def __init__(self, server: ServerProcess, client: httpx2.Client, known: str, unread: list[str]) -> None:
        self.server = server
        self.client = client
        self.known = f"/v1/sessions/{known}"
        self.unread = [f"/v1/sessions/{session_id}" for session_id in unread]
        self.workers = server.workers()
        self.acknowledged = [(known, self.eliminate("before").json()["audit_event_id"])]
        self.belief = client.get(self.known).json()

    def eliminate(self, observation_id: str | None = None) -> httpx2.Response:
        """By default the observation that comes next: the same one until it is acknowledged."""
        observed = observation_id or f"after {len(self.acknowledged)}"
        body = {"source_id": "s", "observation_id": observed, "eliminated": ["h0000"]}
        return self.client.post(f"{self.known}/eliminate", json=body)

    def check_that_writes_are_refused(self) -> None:
        for _ in range(2):
            answer = self.eliminate()
            check_error(answer, 503, "STORE_UNAVAILABLE")
            assert answer.headers["retry-after"] == "1"

    def check_that_known_sessions_are_read(self) -> None:
        assert self.client.get(self.known).json() == self.belief
        assert self.client.get(f"{self.known}/survivors").json()["n_survivors"] == self.belief["n_survivors"]
        assert self.client.get(f"{self.known}/obligations").json() == {"obligations": []}
        assert self.client.get("/healthz").json() == {"status": "ok"}

    def check_that_it_is_not_ready(self) -> None:
        check_error(self.client.get("/readyz"), 503, "STORE_UNAVAILABLE")
        check_error(self.client.get(self.unread[-1]), 503, "STORE_UNAVAILABLE")
        check_error(self.client.get("/v1/sessions"), 503, "STORE_UNAVAILABLE")

    def check_that_it_goes_on(self) -> None:
        """The same processes take the write that they refused, once."""
        self.server.wait_until_ready()
        answers = [self.eliminate() for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        first, again = (answer.json() for answer in answers)
        assert again == {**first, "replayed": True, "current": again["current"]}
        self.acknowledged.append((self.belief["session_id"], answers[0].json()["audit_event_id"]))
        events = self.client.get(f"{self.known}/audit").json()["events"]
        assert [event["event_id"] for event in events[1:]] == [event_id for _, event_id in self.acknowledged]
        self.belief = self.client.get(self.known).json()
        assert self.client.get(self.unread.pop()).status_code == 200
        assert self.server.workers() == self.workers


@contextmanager
def running(directory: Path, url: str) -> Iterator[Running]:
    with closing(BeliefServer(store=open_store(url))) as server:
        unread = [declared(server) for _ in range(2)]
    variables = {"CMBS_STORE_TIMEOUT_SECONDS": str(STORE_TIMEOUT_SECONDS)}
    with serving(directory, "--store", url, variables=variables) as process, process.client() as client:
        yield Running(process, client, declare_session(process.url, "known"), unread)


# --- PostgreSQL ---


def stop(database: RestartablePostgres) -> Callable[[], None]:
    database.stop()
    return database.start


def freeze(database: RestartablePostgres) -> Callable[[], None]:
    database.freeze()
    return database.thaw


async def ask_at_once(url: str, path: str) -> list[Any]:
    limits = httpx2.Limits(max_connections=CONCURRENT_READS)
    async with httpx2.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS, limits=limits) as client:
        answers = await asyncio.gather(*(client.get(path) for _ in range(CONCURRENT_READS)))
    return [answer.json() for answer in answers]


@pytest.mark.postgres
@pytest.mark.req("STORE-PG-04", "FAULT-01")
def test_a_database_that_is_gone_is_a_clean_503_and_comes_back_without_a_restart(
    tmp_path: Path, check_faults: CheckFaults
) -> None:
    with restartable_postgres() as database:
        with running(tmp_path, database.url) as server:
            for take_away in (stop, freeze):
                restore = take_away(database)
                answers = asyncio.run(ask_at_once(server.server.url, server.known))
                assert all(answer == server.belief for answer in answers)
                server.check_that_writes_are_refused()
                server.check_that_known_sessions_are_read()
                server.check_that_it_is_not_ready()
                restore()
                server.check_that_it_goes_on()
        check_faults(database.url, server.acknowledged)


# --- SQLite ---


@contextmanager
def no_space_left(server: Running, path: Path) -> Iterator[None]:
    """No process of the server may write another byte to any file."""
    limits = [(worker, worker.rlimit(psutil.RLIMIT_FSIZE)) for worker in server.workers]
    for worker, (_, most) in limits:
        worker.rlimit(psutil.RLIMIT_FSIZE, (0, most))
    yield
    for worker, limit in limits:
        worker.rlimit(psutil.RLIMIT_FSIZE, limit)


@contextmanager
def another_writer_that_never_ends(server: Running, path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.req("FAULT-01")
@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process can be set on Linux only")
def test_a_file_that_cannot_be_written_is_a_clean_503_and_comes_back_without_a_restart(
    tmp_path: Path, check_faults: CheckFaults
) -> None:
    path = tmp_path / "cmbs.db"
    url = f"sqlite:///{path}"
    with running(tmp_path, url) as server:
        for number, trouble in enumerate((no_space_left, another_writer_that_never_ends)):
            with ExitStack() as troubled:
                troubled.enter_context(trouble(server, path))
                server.check_that_writes_are_refused()
                server.check_that_known_sessions_are_read()
                # What can be read is served: no other server could do better.
                assert server.client.get("/readyz").status_code == 200
                assert server.client.get(server.unread[-1]).status_code == 200
            server.check_that_it_goes_on()
            assert len(server.acknowledged) == number + 2
    check_faults(url, server.acknowledged)
