"""What every fault test ends with: nothing acknowledged is missing, nothing forked, and the store is sound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.stores import open_store
from tests.support.fault_summary import PROPERTY, count_faults
from tests.support.http_server import run_cmbs
from tests.support.postgres import fresh_database
from tests.support.store_fixture import verified

CheckFaults = Callable[..., None]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store that processes can share."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'cmbs.db'}"
        return
    with fresh_database() as url:
        yield url


def check_derived(store_url: str) -> None:
    """Every session loads, and its log, its tombstones and its row in the list say the same."""
    store = open_store(store_url)
    with closing(BeliefServer(store=store)) as server:
        for summary in server.list_sessions():
            belief = verified(server, summary.session_id)
            assert server.query_belief(summary.session_id) == belief
            assert store.get_survivors(summary.session_id) == {*belief.survivors}
            assert (summary.head_event_id, summary.n_survivors) == (belief.audit_head_event_id, belief.n_survivors)


@pytest.fixture
def check_faults(record_property: Callable[[str, object], None], tmp_path: Path) -> CheckFaults:
    """Compare what was acknowledged with what is stored, have `cmbs fsck` look at all of it, and keep the figures."""

    def check(
        url: str, acknowledged: Iterable[tuple[str, str]], kills: int = 0, failover_seconds: Iterable[float] = ()
    ) -> None:
        counts = count_faults(url, acknowledged, kills, failover_seconds)
        record_property(PROPERTY, counts._asdict())
        assert (counts.lost, counts.forks) == (0, 0)
        checked = run_cmbs("fsck", url, directory=tmp_path)
        assert checked.returncode == 0, checked.stderr
        assert checked.stdout.endswith(", 0 bad\n")

    return check
