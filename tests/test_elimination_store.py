"""The Elimination Store contract, T-STORE-01 to 10, for every store, used alone and under a belief server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given

from cmbs.belief.server import BeliefServer
from cmbs.spi import RecoveredState
from cmbs.stores import InMemoryStore, SQLiteStore, Store
from cmbs.stores.postgres import PostgresStore
from cmbs.testing.contracts.elimination_store import EliminationStoreContract
from cmbs.testing.strategies import belief as strategies
from tests.support.postgres import fresh_database
from tests.support.store_fixture import BACKENDS, PLACES, StoreFixture, declared

UNIVERSE = frozenset("abcd")


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with fresh_database() as url:
        yield url


@pytest.mark.req("BS-5.1-STORE-08")
class TestMemory(EliminationStoreContract):
    @pytest.fixture
    def open_store(self) -> Callable[[], InMemoryStore]:
        store = InMemoryStore()
        return lambda: store


@pytest.mark.req("BS-5.1-STORE-08")
class TestSQLite(EliminationStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], SQLiteStore]:
        return lambda: SQLiteStore(tmp_path / "cmbs.db")


@pytest.mark.postgres
@pytest.mark.req("BS-5.1-STORE-08")
class TestPostgres(EliminationStoreContract):
    @pytest.fixture
    def open_store(self, database: str) -> Callable[[], PostgresStore]:
        return lambda: PostgresStore(database)


@pytest.fixture(scope="module", params=BACKENDS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for all examples of a property; each takes a session of its own."""
    with StoreFixture.at(request.param, tmp_path_factory.mktemp("shared")) as fixture:
        yield fixture.store()


# --- under a belief server ---


@pytest.fixture(params=BACKENDS)
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at(request.param, tmp_path) as fixture:
        yield fixture


@pytest.mark.req("BS-5.1-STORE-05")
@given(universe=strategies.hypotheses(min_size=2))
@example(universe=["a\x00b", "a\x00c", "a", "\\u0000", "z"])
def test_tombstones_follow_the_log_for_any_ids(shared: Store, universe: list[str]) -> None:
    server = BeliefServer(store=shared)
    session_id = declared(server, universe)
    server.eliminate(session_id, "s", "1", universe[:1])
    server.eliminate(session_id, "s", "2", universe[:-1])
    assert server.query_belief(session_id).survivors == universe[-1:]
    expected = RecoveredState(frozenset(universe), frozenset(universe[:-1]), frozenset(universe[-1:]))
    assert shared.recover(session_id) == expected


@pytest.mark.req("BS-6.5-SERVER-03")
@pytest.mark.parametrize("place", PLACES)
def test_one_store_may_hold_tombstones_and_another_the_log(place: str, tmp_path: Path) -> None:
    memory = InMemoryStore()

    def open_tombstones() -> InMemoryStore | SQLiteStore:
        return memory if place == "memory" else SQLiteStore(tmp_path / "tombstones.db")

    tombstones = open_tombstones()
    log = SQLiteStore(tmp_path / "log.db")
    server = BeliefServer(store=tombstones, audit_log=log)
    session_id = declared(server)
    server.eliminate(session_id, "s", "o", ["a", "z"])
    assert tombstones.recover(session_id) == RecoveredState(UNIVERSE, frozenset("a"), frozenset("bcd"))
    assert tombstones.head(session_id) is None
    entries = server.audit_trace(session_id)
    server.close()
    tombstones = open_tombstones()
    restored = BeliefServer(store=tombstones)
    restored.restore_session(session_id, tombstones.recover(session_id), entries)
    assert restored.eliminate(session_id, "s", "2", ["a", "b"]).applied_eliminated == ["b"]
    tombstones.close()
