"""A cache of states is bounded by the bytes that they take, and the estimate of these is an honest one."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.kernel.sizes import weigh
from cmbs.belief.server import BeliefServer
from cmbs.stores import SQLiteStore
from cmbs.substrate.kernel.sizes import weigh_space
from cmbs.substrate.past_states import space_at
from tests.support.spaces import ANY, World, delta
from tests.support.store_fixture import ONTOLOGY

MANY = 10_000
MEBIBYTE = 1 << 20


def ids(count: int, prefix: str = "hypothesis") -> list[str]:
    return [f"{prefix}-{number:08}" for number in range(count)]


def take(make: Callable[[], object]) -> tuple[object, int]:
    """What is made, and how many bytes it holds."""
    gc.collect()
    tracemalloc.start()
    made = make()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return made, held


@pytest.mark.slow
@pytest.mark.req("CACHE-01")
@pytest.mark.parametrize(("size", "events", "listed"), [(MANY, 0, 0), (100, 300, 1), (MANY, 10, 500), (10, 50, 200)])
def test_the_estimate_of_a_session_is_near_what_it_takes(size: int, events: int, listed: int, tmp_path: Path) -> None:
    store = SQLiteStore(str(tmp_path / "cmbs.db"))
    server = BeliefServer(store=store)
    session_id = server.declare_session(ONTOLOGY, ids(size)).session_id
    for number in range(events):
        server.eliminate(session_id, "source", f"observation-{number}", ids(listed, f"hypothesis-{number}"))
    fresh = BeliefServer(store=store)
    fresh.query_belief(server.declare_session(ONTOLOGY, ["a"]).session_id)
    session, held = take(lambda: fresh.current_session(session_id))
    assert 0.6 < weigh(session) / held < 1.6  # type: ignore[arg-type]
    fresh.close()


@pytest.mark.slow
def test_the_estimate_of_a_space_is_near_what_it_takes() -> None:
    world = World()
    world.open(policy={"constraint.any": ANY})
    for number in range(300):
        world.propose(delta(**{f"k{number % 100}": "v" * (number % 50)}))
    space, held = take(lambda: space_at(world.log, world.space, 300))
    assert 0.6 < weigh_space(space) / held < 1.6  # type: ignore[arg-type]
    world.close()


@pytest.mark.deep
@pytest.mark.req("CACHE-01")
def test_large_sessions_leave_the_cache_before_it_is_too_large_and_come_back(tmp_path: Path) -> None:
    store = SQLiteStore(str(tmp_path / "cmbs.db"))
    server = BeliefServer(store=store, limits=Limits(cached_session_bytes=4 * MEBIBYTE))
    universe = ids(MANY)
    gc.collect()
    tracemalloc.start()
    sessions = [server.declare_session(ONTOLOGY, universe).session_id for _ in range(10)]
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    for session_id in (*sessions, *sessions):
        assert server.query_belief(session_id).n_survivors == MANY
    gc.collect()
    again, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Each takes 1.5 MiB: two of them fit, and what is being written or read may be there beside them.
    assert max(held, again) < 8 * MEBIBYTE
    assert 0 < len(server._sessions.streams._slots) <= 3
    server.eliminate(sessions[0], "s", "1", universe[:1])
    assert server.query_belief(sessions[0]).n_survivors == MANY - 1
    server.close()


@pytest.mark.req("CACHE-01")
def test_a_state_larger_than_the_whole_budget_is_still_served_and_small_ones_stay_by_number(tmp_path: Path) -> None:
    store = SQLiteStore(str(tmp_path / "cmbs.db"))
    server = BeliefServer(store=store, limits=Limits(cached_session_bytes=1, cached_sessions=3))
    opened = [server.declare_session(ONTOLOGY, ["a", "b"]).session_id for _ in range(5)]
    for session_id in opened:
        server.eliminate(session_id, "s", "1", ["a"])
        assert server.query_belief(session_id).survivors == ["b"]
    assert len(server._sessions.streams._slots) == 1
    server.close()
    roomy = BeliefServer(store=SQLiteStore(str(tmp_path / "cmbs.db")), limits=Limits(cached_sessions=3))
    for session_id in opened:
        roomy.query_belief(session_id)
    assert len(roomy._sessions.streams._slots) == 3
    roomy.close()
