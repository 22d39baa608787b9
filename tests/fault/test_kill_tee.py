"""Kill -9 of the belief server, of Tee and of Neo4j under load: nothing acknowledged is lost, log and Tee agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from cmbs.audit.plain_rows import all_sessions
from cmbs.belief.server import BeliefServer
from cmbs.stores import open_store
from cmbs.stores.tee import TeeStore
from tests.fault.conftest import CheckFaults
from tests.support.http_server import TIMEOUT_SECONDS, free_port, serving
from tests.support.load import CALLERS, UNIVERSE, Load, kill_under_load, resend
from tests.support.neo4j import own_server
from tests.support.store_fixture import verified
from tests.support.tee_process import TeeProcess, tee_serving

# So that a caller whose Tee is gone is refused soon.
SHORT_TIMEOUT = {"CMBS_STORE_TIMEOUT_SECONDS": "2"}


class Backend(NamedTuple):
    """A Tee, and what may be killed beneath it: ends it and starts it again."""

    tee: TeeProcess
    kill: Callable[[], None]
    restart: Callable[[], object]


@pytest.fixture
def tee(tmp_path: Path) -> Iterator[TeeProcess]:
    with tee_serving(tmp_path, f"sqlite:///{tmp_path / 'tee.db'}") as tee:
        tee.grow([*UNIVERSE, "never declared"])
        yield tee


@pytest.fixture(params=["tee", pytest.param("neo4j", marks=pytest.mark.deep)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "tee":
        tee = request.getfixturevalue("tee")
        yield Backend(tee, tee.kill, tee.start)
        return
    with ExitStack() as stack:
        directory = tmp_path / "neo4j"
        directory.mkdir()
        server = stack.enter_context(own_server(directory))
        port = int(server.url.rpartition(":")[2])
        tee = stack.enter_context(tee_serving(tmp_path, server.url))
        tee.grow([*UNIVERSE, "never declared"])
        yield Backend(tee, server.kill, lambda: stack.enter_context(own_server(directory, port)))


def check_that_log_and_tee_agree(store_url: str, endpoint: str) -> None:
    """Nothing is in doubt any more once a server has started, and every session has the survivors that Tee has."""
    log = open_store(store_url)
    with closing(BeliefServer(store=TeeStore(endpoint), audit_log=log)) as server, closing(TeeStore(endpoint)) as tee:
        assert log.open_intents(10) == []
        for summary in all_sessions(log):
            belief = verified(server, summary.session_id)
            assert tee.recover(summary.session_id).survivors == frozenset(belief.survivors)


@pytest.mark.slow
@pytest.mark.req("TEE-SESSION-04")
def test_everything_that_was_answered_survives_kill_9_of_a_server_over_tee(
    tmp_path: Path, tee: TeeProcess, check_faults: CheckFaults
) -> None:
    store_url, port = f"sqlite:///{tmp_path / 'cmbs.db'}", free_port()
    options = ("--store", store_url, "--tee", tee.endpoint, "--workers", "2")
    load = kill_under_load(tmp_path, port, "load", 80, *options)
    assert len(load.in_doubt) == CALLERS
    check_that_log_and_tee_agree(store_url, tee.endpoint)
    with serving(tmp_path, *options, port=port) as server, server.client() as client:
        acknowledged = load.acknowledged + resend(client, load.in_doubt)
    check_that_log_and_tee_agree(store_url, tee.endpoint)
    check_faults(store_url, acknowledged, kills=1)


@pytest.mark.slow
@pytest.mark.req("TEE-SESSION-04")
def test_everything_that_was_answered_survives_kill_9_beneath_the_server_which_goes_on(
    tmp_path: Path, backend: Backend, check_faults: CheckFaults
) -> None:
    store_url = f"sqlite:///{tmp_path / 'cmbs.db'}"
    options = ("--store", store_url, "--tee", backend.tee.endpoint)
    with serving(tmp_path, *options, variables=SHORT_TIMEOUT) as server:
        load = Load(server.url, "load")
        load.start()
        load.wait_for(40)
        backend.kill()
        # Refused, and readable meanwhile.
        load.wait_for(refused=CALLERS)
        session_id = load.acknowledged[0][0]
        assert httpx2.get(f"{server.url}/v1/sessions/{session_id}", timeout=TIMEOUT_SECONDS).status_code == 200
        backend.restart()
        load.wait_for(40)
        load.stop()
    check_that_log_and_tee_agree(store_url, backend.tee.endpoint)
    check_faults(store_url, load.acknowledged, kills=1)
