"""The Elimination Store contract, T-STORE-01 to 10, for every store, used alone and under a belief server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmbs.belief_server import BeliefServer
from cmbs.errors import Conflict, SessionNotFound
from cmbs.spi import EliminationProvenance, EliminationResult, EliminationStore, RecoveredState
from cmbs.stores import InMemoryStore, SQLiteStore
from cmbs.testing import strategies
from tests.support.homes import BACKENDS, PLACES, Home, declared

UNIVERSE = frozenset("abcd")
SEEN = EliminationProvenance("source", "observation")
NOTHING: frozenset[str] = frozenset()


@pytest.fixture(params=BACKENDS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with Home.at(request.param, tmp_path) as home:
        yield home


@pytest.fixture
def store(home: Home) -> EliminationStore:
    store = home.store()
    store.create_session("session", UNIVERSE)
    return store


@pytest.mark.req("BS-5.1-STORE-08")
def test_store_01_everything_survives_at_first(store: EliminationStore) -> None:
    assert isinstance(store, EliminationStore)
    assert store.get_survivors("session") == UNIVERSE
    assert store.get_eliminated("session") == NOTHING


@pytest.mark.req("BS-5.1-STORE-08")
def test_store_02_an_elimination_takes_out_what_it_applied(store: EliminationStore) -> None:
    assert store.eliminate("session", {"a", "b"}, SEEN) == EliminationResult(frozenset("ab"), NOTHING)
    assert store.get_survivors("session") == frozenset("cd")


@pytest.mark.req("BS-5.1-STORE-08")
def test_store_03_the_same_ids_again_were_eliminated_before(store: EliminationStore) -> None:
    store.eliminate("session", {"a", "b"}, SEEN)
    assert store.eliminate("session", {"a", "b"}, SEEN) == EliminationResult(NOTHING, frozenset("ab"))
    assert store.eliminate("session", {"b", "c"}, SEEN) == EliminationResult(frozenset("c"), frozenset("b"))
    assert store.get_survivors("session") == frozenset("d")


@pytest.mark.req("BS-5.1-STORE-08")
def test_store_04_ids_outside_the_universe_change_nothing_and_are_in_neither_set(store: EliminationStore) -> None:
    assert store.eliminate("session", {"y", "z"}, SEEN) == EliminationResult(NOTHING, NOTHING)
    assert store.eliminate("session", {"a", "z"}, SEEN) == EliminationResult(frozenset("a"), NOTHING)
    assert store.recover("session") == RecoveredState(UNIVERSE, frozenset("a"), frozenset("bcd"))


@pytest.mark.req("BS-5.1-STORE-08")
def test_store_05_tombstones_add_up(store: EliminationStore) -> None:
    for hypothesis_id in "abc":
        store.eliminate("session", {hypothesis_id}, SEEN)
    assert store.get_eliminated("session") == frozenset("abc")


@pytest.mark.req("BS-5.1-STORE-08")
@given(
    universe=strategies.hypotheses(min_size=0),
    requests=st.lists(st.frozensets(strategies.ids(2), max_size=4), max_size=6),
    known=st.lists(st.integers(0, 11), max_size=6),
)
@pytest.mark.parametrize("place", PLACES)
def test_store_06_to_08_survivors_and_tombstones_part_the_universe(
    place: str,
    universe: list[str],
    requests: list[frozenset[str]],
    known: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Home.at(place, tmp_path_factory.mktemp("store")) as home:
        store = home.store()
        store.create_session("session", frozenset(universe))
        for number, request in enumerate(requests):
            asked = request | {universe[each] for each in known[number:] if each < len(universe)}
            before = store.get_eliminated("session")
            result = store.eliminate("session", asked, SEEN)
            assert result.applied == (asked & frozenset(universe)) - before
            assert result.already_eliminated == asked & before
        recovered = home.store().recover("session")
        assert recovered.hypothesis_ids == frozenset(universe)
        assert recovered.survivors | recovered.eliminated == recovered.hypothesis_ids
        assert recovered.survivors & recovered.eliminated == NOTHING
        assert recovered.survivors == store.get_survivors("session")
        assert recovered.eliminated == store.get_eliminated("session")


@pytest.mark.req("BS-5.1-STORE-08")
def test_store_09_eliminations_of_several_threads_are_all_applied_once(store: EliminationStore) -> None:
    universe = frozenset(str(number) for number in range(40))
    store.create_session("busy", universe)
    begin = Barrier(4)
    results: list[EliminationResult] = []

    def eliminate(offset: int) -> None:
        begin.wait()
        results.extend(store.eliminate("busy", {str(offset + number)}, SEEN) for number in range(20))

    threads = [Thread(target=eliminate, args=(10 * each // 2,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    applied = [hypothesis_id for result in results for hypothesis_id in result.applied]
    assert len(applied) == len(set(applied)) == 35
    assert store.get_eliminated("busy") == frozenset(applied)


@pytest.mark.req("BS-5.1-STORE-08")
def test_store_10_an_elimination_of_nothing_is_nothing(store: EliminationStore) -> None:
    assert store.eliminate("session", NOTHING, SEEN) == EliminationResult(NOTHING, NOTHING)
    assert store.get_survivors("session") == UNIVERSE


@pytest.mark.req("BS-5.1-STORE-08")
def test_a_session_is_created_once_and_keeps_its_universe(store: EliminationStore) -> None:
    store.eliminate("session", {"a"}, SEEN)
    store.create_session("session", UNIVERSE)
    for other in (NOTHING, frozenset("abc"), frozenset("abcde")):
        with pytest.raises(Conflict):
            store.create_session("session", other)
    assert store.recover("session") == RecoveredState(UNIVERSE, frozenset("a"), frozenset("bcd"))


@pytest.mark.req("BS-5.1-STORE-08")
def test_a_session_that_was_never_created_is_not_found(store: EliminationStore) -> None:
    for use in (store.get_survivors, store.get_eliminated, store.recover):
        with pytest.raises(SessionNotFound):
            use("nobody")
    with pytest.raises(SessionNotFound):
        store.eliminate("nobody", {"a"}, SEEN)


@pytest.mark.req("BS-5.1-STORE-08")
def test_what_a_store_handed_out_does_not_change_later(store: EliminationStore) -> None:
    before = store.recover("session")
    store.eliminate("session", {"a"}, SEEN)
    assert before == RecoveredState(UNIVERSE, NOTHING, UNIVERSE)


# --- under a belief server ---


@pytest.mark.req("BS-5.1-STORE-05", "BS-5.1-STORE-08")
def test_a_store_under_a_server_has_the_same_survivors(home: Home) -> None:
    store = home.store()
    server = home.open(store=store)
    session_id = declared(server)
    for number, hypothesis_ids in enumerate([["a"], ["a", "z"], [], ["b", "c"]]):
        snapshot = server.eliminate(session_id, "s", str(number), hypothesis_ids).snapshot
        assert store.get_survivors(session_id) == frozenset(snapshot.survivors)
    assert home.store().recover(session_id) == RecoveredState(UNIVERSE, frozenset("abc"), frozenset("d"))


@pytest.mark.req("BS-5.1-STORE-05")
@given(universe=strategies.hypotheses(min_size=2))
@example(universe=["a\x00b", "a\x00c", "a", "\\u0000", "z"])
@pytest.mark.parametrize("place", PLACES)
def test_tombstones_follow_the_log_for_any_ids(
    place: str, universe: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Home.at(place, tmp_path_factory.mktemp("ids")) as home:
        server = home.open()
        session_id = declared(server, universe)
        server.eliminate(session_id, "s", "1", universe[:1])
        server.eliminate(session_id, "s", "2", universe[:-1])
        assert server.query_belief(session_id).survivors == universe[-1:]
        expected = RecoveredState(frozenset(universe), frozenset(universe[:-1]), frozenset(universe[-1:]))
        assert home.store().recover(session_id) == expected


@pytest.mark.req("BS-5.1-STORE-08")
def test_tombstones_cannot_be_added_past_the_log_of_a_session(home: Home) -> None:
    store = home.store()
    server = home.open(store=store)
    session_id = declared(server)
    with pytest.raises(Conflict):
        store.eliminate(session_id, {"a"}, SEEN)
    with pytest.raises(Conflict):
        store.create_session(session_id, frozenset("abc"))
    store.create_session(session_id, UNIVERSE)
    assert server.eliminate(session_id, "s", "o", ["a"]).applied_eliminated == ["a"]
    assert store.get_eliminated(session_id) == frozenset("a")


@pytest.mark.req("BS-6.5-SERVER-03")
@pytest.mark.parametrize("place", PLACES)
def test_one_store_may_hold_tombstones_and_another_the_log(place: str, tmp_path: Path) -> None:
    tombstones = InMemoryStore() if place == "memory" else SQLiteStore(tmp_path / "tombstones.db")
    log = SQLiteStore(tmp_path / "log.db")
    server = BeliefServer(store=tombstones, audit_log=log)
    session_id = declared(server)
    server.eliminate(session_id, "s", "o", ["a", "z"])
    assert tombstones.recover(session_id) == RecoveredState(UNIVERSE, frozenset("a"), frozenset("bcd"))
    assert tombstones.head(session_id) is None
    entries = server.audit_trace(session_id)
    server.close()
    restored = BeliefServer(store=tombstones)
    restored.restore_session(session_id, tombstones.recover(session_id), entries)
    assert restored.eliminate(session_id, "s", "2", ["a", "b"]).applied_eliminated == ["b"]
    tombstones.close()
