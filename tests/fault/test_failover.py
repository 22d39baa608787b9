"""The primary of two databases is killed under load and the other takes over: nothing is missing, and servers go on."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random

import httpx2
import pytest

from cmbs.errors import StoreUnavailable
from cmbs.ledger import Head
from cmbs.spi import Append
from cmbs.stores import Store, open_store
from cmbs.testing.streams import stream
from tests.fault.conftest import CheckFaults, check_derived
from tests.support.effort import EFFORT
from tests.support.error_model import check_error
from tests.support.http_server import TIMEOUT_SECONDS, serving
from tests.support.load import Load, declare_session
from tests.support.spaces import SPACE
from tests.support.standby_postgres import StandbyPostgres, standby_postgres
from tests.support.warm import start

SHORT_TIMEOUT = {"CMBS_STORE_TIMEOUT_SECONDS": "2"}
SERVERS = 2
MANY = "1000000"
WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


class SpaceWriter:
    """A process that proposes to a space over the same URL, and prints what was acknowledged."""

    def __init__(self, url: str, name: str) -> None:
        self.acknowledged: list[tuple[str, str]] = []
        words = ("tests.support.space_process", "propose", url, name, MANY)
        self._process = start(*words, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as printed:
            for line in printed:
                if line.endswith("\n"):
                    self.acknowledged.append((f"space:{SPACE}", line.split()[0]))

    def stop(self) -> None:
        """End it without warning; it must have lived until now."""
        assert self._process.poll() is None
        self._process.kill()
        self._process.wait()
        self._reader.join()


@contextmanager
def loads_on(tmp_path: Path, cluster: StandbyPostgres) -> Iterator[tuple[list[Load], list[SpaceWriter]]]:
    """Servers and processes that write to the same sessions and the same space; none may end, none may be wrong."""
    with ExitStack() as stack:
        options = ("--store", cluster.url, "--workers", "2")
        servers = [stack.enter_context(serving(tmp_path, *options, variables=SHORT_TIMEOUT)) for _ in range(SERVERS)]
        workers = [server.workers() for server in servers]
        loads = [Load(server.url, "shared", f"{number}.") for number, server in enumerate(servers)]
        writers = [SpaceWriter(cluster.url, f"process{number}") for number in range(SERVERS)]
        for load in loads:
            load.start()
        try:
            yield loads, writers
        finally:
            for load in loads:
                load.stop()
            for writer in writers:
                writer.stop()
        assert [server.workers() for server in servers] == workers
        for server in servers:
            assert httpx2.get(f"{server.url}/readyz").status_code == httpx2.codes.OK


@pytest.mark.deep
@pytest.mark.postgres
@pytest.mark.req("STORE-PG-05", "ARCH-4-01")
def test_a_standby_takes_over_under_load_and_nothing_is_lost_or_forks(
    tmp_path: Path, check_faults: CheckFaults
) -> None:
    random, seconds = Random(16), []
    with standby_postgres() as cluster:
        cluster.become_synchronous()
        with loads_on(tmp_path, cluster) as (loads, writers):
            for _ in range(EFFORT.kills):
                for load in loads:
                    load.wait_for(acknowledged=random.randint(40, 200))
                began = time.monotonic()
                cluster.primary.kill()
                cluster.promote()
                for load in loads:
                    load.wait_for(acknowledged=1)
                seconds.append(time.monotonic() - began)
                cluster.rejoin()
            for load in loads:
                load.wait_for(acknowledged=40)
        journals = [*(load.acknowledged for load in loads), *(writer.acknowledged for writer in writers)]
        acknowledged = [pair for journal in journals for pair in journal]
        assert all(writer.acknowledged for writer in writers)
        assert [load.in_doubt for load in loads] == [[]] * SERVERS
        check_derived(cluster.url)
        check_one_event_each(cluster.url, loads)
        check_faults(cluster.url, acknowledged, EFFORT.kills, seconds)


def check_one_event_each(url: str, loads: list[Load]) -> None:
    """A write that was in doubt was found when it was sent again: one event for each answer, and no other."""
    answered = [pair for load in loads for pair in load.acknowledged]
    assert len(answered) == len(set(answered))
    store = open_store(url)
    stored = sum(len(store.read(session_id)) - 1 for session_id in {session_id for session_id, _ in answered})
    store.close()
    assert stored == len(answered)


@pytest.mark.deep
@pytest.mark.postgres
@pytest.mark.req("STORE-PG-05", "SEEN-01", "SEEN-02")
def test_a_standby_that_lags_is_noticed_when_it_takes_over_and_the_old_primary_is_served_again(
    tmp_path: Path, check_faults: CheckFaults
) -> None:
    with standby_postgres() as cluster:
        options = ("--store", cluster.url)
        with serving(tmp_path, *options, variables=SHORT_TIMEOUT) as server, server.client() as client:
            path = f"/v1/sessions/{declare_session(server.url, 'one')}"

            def eliminate(number: int) -> httpx2.Response:
                body = {"source_id": "s", "observation_id": str(number), "eliminated": [f"h{number:04}"]}
                return client.post(f"{path}/eliminate", json=body)

            acknowledged = [eliminate(0).json()["audit_event_id"]]
            cluster.wait_until_streaming()
            receiver = cluster.standby.freeze_receiver()
            acknowledged.append(eliminate(1).json()["audit_event_id"])
            belief = client.get(path).json()
            old = cluster.primary
            old.kill()
            receiver.kill()
            cluster.promote()
            server.wait_until(lambda: client.get(path).status_code == httpx2.codes.INTERNAL_SERVER_ERROR)
            for answer in (client.get(path), eliminate(1), eliminate(2), client.get(f"{path}/audit")):
                assert "behind" in check_error(answer, 500, "LEDGER_CORRUPT")["reason"]
            session_id = belief["session_id"]
            assert check_error(client.get("/readyz"), 503, "STORE_UNAVAILABLE")["behind"] == [session_id]
            assert server.output.count(f"ledger of `{session_id}` is bad") == 1
            # The node that has everything comes back; the one that lagged must not be served beside it.
            cluster.primary.kill()
            old.start()
            server.wait_until_ready()
            assert client.get(path).json() == belief
            acknowledged.append(eliminate(2).json()["audit_event_id"])
        check_faults(cluster.url, [(session_id, event_id) for event_id in acknowledged], kills=2)


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.req("STORE-PG-05")
def test_a_commit_that_no_standby_has_is_never_acknowledged() -> None:
    """An administrator may cancel the wait for a standby; PostgreSQL then reports the commit, with a warning."""
    with standby_postgres() as cluster:
        cluster.become_synchronous()
        with closing(open_store(cluster.url)) as store, ThreadPoolExecutor(2) as threads:
            (first, second, *_) = stream()
            store.append([first])
            cluster.standby.kill()
            for attempt in (
                lambda: store.append([second]),
                lambda: append_alone(store, stream(1)[0]),
            ):
                waiting = threads.submit(attempt)
                cluster.wait_for(f"SELECT 1 {WAITING}")
                cluster.primary.execute(f"SELECT pg_cancel_backend(pid) {WAITING}")
                with pytest.raises(StoreUnavailable, match="before a standby had it"):
                    waiting.result(TIMEOUT_SECONDS)
            # It is there, on one node: what came of it is known when the standby is back.
            assert store.head(first.stream_id) == Head(second.seq, second.entry.event_hash)


def append_alone(store: Store, append: Append) -> None:
    with store.exclusive([append.stream_id]):
        store.append([append])
