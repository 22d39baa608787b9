"""What a refused request costs the next one: nothing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import closing

import pytest

from cmbs.belief.kernel.events import EnterObligation, Stamp
from cmbs.belief.kernel.kind import BeliefKind
from cmbs.belief.kernel.requests import Limits
from cmbs.belief_server import BeliefServer, OntologyBundle
from cmbs.errors import BeliefServerError, SessionNotFound, StoreDisagrees
from tests.support.plain_store import PlainStore

EVENTS = 3_000
# A copy of one index of so many events is larger than everything that one elimination allocates.
MOST_BYTES = 100_000
LIMITS = Limits(obligations_per_session=1)
REFUSED: dict[str, Callable[[BeliefServer, str], object]] = {
    "an obligation beyond the limit": lambda server, session_id: server.enter_obligation(session_id, "second", 1),
    "an obligation that was entered before": lambda server, session_id: server.enter_obligation(session_id, "first", 1),
    "an elimination under a key that stands for another": lambda server, session_id: server.eliminate(
        session_id, "source", "0", ["h1"]
    ),
    "another head than the caller saw": lambda server, session_id: server.eliminate(
        session_id, "source", "new", [], if_match="00000000-0000-4000-8000-000000000000"
    ),
}


def measure_elimination(server: BeliefServer, session_id: str, observation_id: str) -> int:
    """The bytes that one elimination holds at most while it is decided and recorded."""
    tracemalloc.start()
    server.eliminate(session_id, "source", observation_id, [])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.req("ARCH-5-LIMIT-06")
def test_a_refused_request_does_not_make_the_next_one_copy_the_history(subtests: pytest.Subtests) -> None:
    server = BeliefServer(limits=LIMITS)
    session_id, _ = server.declare_session(OntologyBundle("s", "1", "g", "1"), [f"h{n}" for n in range(10)])
    server.enter_obligation(session_id, "first", 1)
    for number in range(EVENTS):
        server.eliminate(session_id, "source", str(number), [])
    assert measure_elimination(server, session_id, "before") < MOST_BYTES
    for name, act in REFUSED.items():
        with subtests.test(refused=name):
            with pytest.raises(BeliefServerError):
                act(server, session_id)
            assert measure_elimination(server, session_id, f"after {name}") < MOST_BYTES


@pytest.mark.req("ARCH-5-LIMIT-06")
def test_a_write_that_a_remote_store_does_not_agree_with_does_not_make_the_next_one_copy_the_history() -> None:
    store = PlainStore()
    with closing(BeliefServer(store=store, checks_in_background=False)) as server:
        session_id, _ = server.declare_session(OntologyBundle("s", "1", "g", "1"), [f"h{n}" for n in range(10)])
        for number in range(EVENTS):
            server.eliminate(session_id, "source", str(number), [])
        assert measure_elimination(server, session_id, "before") < MOST_BYTES
        universe = store._universes.pop(session_id)
        server.check_store(session_id)
        for observation_id, eliminated in (("sent", ["h1"]), ("not sent", [])):
            with pytest.raises(StoreDisagrees):
                server.eliminate(session_id, "source", observation_id, eliminated)
        store._universes[session_id] = universe
        assert measure_elimination(server, session_id, "after") < MOST_BYTES


def test_the_kernel_finds_no_session_where_none_was_declared() -> None:
    server = BeliefServer()
    command = server.requests.command("s", EnterObligation("o", 1))
    with pytest.raises(SessionNotFound):
        BeliefKind(lambda key, actor: Stamp("e", "t", key, actor), LIMITS).decide(None, command)
