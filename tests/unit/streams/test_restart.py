"""A restart changes nothing: for any history, what a new server over the same store says and does is the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmbs.belief.kernel.checkpoint import freeze
from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError
from cmbs.messages import SessionPolicy, Verb
from cmbs.spi import EliminationStore, opening_of
from cmbs.stores.memory import InMemoryStore
from cmbs.streams.checkpoints import resume
from cmbs.testing import Call, History, ManualClock, SequentialIds, declare, perform
from cmbs.testing.strategies import belief as strategies
from tests.support.lasting import LastingStore
from tests.support.store_fixture import BACKENDS, ONTOLOGY, StoreFixture, declared

SPACES = count(1)
# Whether conclusions came back shows only where a stable one lets the session end, which a short life rarely gets to.
CONCLUDED = History(
    ONTOLOGY,
    ["a", "b"],
    None,
    SessionPolicy(stability_window=2),
    [
        Call(Verb.ELIMINATE, {"source_id": "s", "observation_id": "o", "eliminated": ["b"]}),
        Call(Verb.DECLARE_CONCLUSION, {"conclusion_id": "x"}, "first"),
        Call(Verb.DECLARE_CONCLUSION, {"conclusion_id": "x"}, "second"),
        Call(Verb.REQUEST_TERMINATION, {}),
    ],
)


class Two(NamedTuple):
    """Two handles on one store: what one server wrote through the first, the next reads through the second."""

    first: Any
    second: Any


@pytest.fixture(scope="module", params=BACKENDS)
def handles(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """One store for all examples; each takes a session of its own."""
    with StoreFixture.at(request.param, tmp_path_factory.mktemp("restart")) as fixture:
        yield Two(fixture.store(), fixture.store())


class World:
    """The clock and the ids of one life, the same for two servers that are to be compared."""

    def __init__(self, space: int) -> None:
        self._clock, self._ids = ManualClock(), SequentialIds(space)

    def server(self, store: Any) -> BeliefServer:
        return BeliefServer(store=LastingStore(store), clock=self._clock, ids=self._ids)


def answers(server: BeliefServer, session_id: str, calls: list[Call]) -> list[Any]:
    """What was answered, errors by what they say."""
    made = [perform(server, session_id, call) for call in calls]
    return [str(each) if isinstance(each, BeliefServerError) else each for each in made]


def state(server: BeliefServer, session_id: str, store: EliminationStore) -> dict[str, Any]:
    """All that can be asked of a session, at every moment of its life."""
    trace = server.audit_trace(session_id)
    return {
        "snapshots": [server.query_belief(session_id, at=entry.seq) for entry in trace],
        "now": server.query_belief(session_id),
        "obligations": server.obligations(session_id),
        "survivors": server.survivors(session_id),
        "trace": trace,
        "bytes": server.stored_entries(session_id),
        "tombstones": store.recover(session_id),
    }


def keep_checkpoint(store: Any, session_id: str, at: int) -> None:
    entries = store.read(session_id)
    seq = min(at, len(entries) - 1)
    if seq:
        store.put_checkpoint(session_id, seq, freeze(verify_session(session_id, entries[:seq])))


@pytest.mark.usefixtures("digests_in_module")
@pytest.mark.req("BS-5.1-STORE-01", "ARCH-2-02", "ARCH-4-CHECKPOINT-01")
@given(history=strategies.histories(), restart_at=st.integers(0, 16), checkpoint_at=st.none() | st.integers(0, 16))
@example(history=CONCLUDED, restart_at=3, checkpoint_at=None)
@example(history=CONCLUDED, restart_at=3, checkpoint_at=3)
def test_after_a_restart_everything_is_said_and_decided_as_if_there_had_been_none(
    handles: Two, history: History, restart_at: int, checkpoint_at: int | None
) -> None:
    space, reference = next(SPACES), InMemoryStore()
    before, after = history.calls[:restart_at], history.calls[restart_at:]
    undisturbed, world = World(space), World(space)
    with closing(undisturbed.server(reference)) as one, closing(world.server(handles.first)) as first:
        session_id = declare(one, history)
        assert declare(first, history) == session_id
        assert answers(first, session_id, before) == answers(one, session_id, before)
        expected = state(first, session_id, handles.first)
        assert expected == state(one, session_id, reference)
        if checkpoint_at is not None:
            keep_checkpoint(handles.first, session_id, checkpoint_at)
        with closing(world.server(handles.second)) as second:
            assert state(second, session_id, handles.second) == expected
            # Repeats of all that was asked find the same observations consumed, the same keys used, the same reasons;
            # and then life goes on.
            assert answers(second, session_id, before) == answers(one, session_id, before)
            assert answers(second, session_id, after) == answers(one, session_id, after)
            assert state(second, session_id, handles.second) == state(one, session_id, reference)


@pytest.mark.usefixtures("digests_in_module")
@pytest.mark.req("ARCH-4-CHECKPOINT-01")
def test_the_checkpoints_of_the_property_are_used(handles: Two) -> None:
    world = World(next(SPACES))
    with closing(world.server(handles.first)) as server:
        session_id = declared(server)
        server.eliminate(session_id, "s", "1", ["a"])
    keep_checkpoint(handles.first, session_id, 1)
    loaded = resume(BeliefFolding(), session_id, opening_of(handles.second, session_id))
    assert loaded is not None
    assert loaded[0].head.seq == 0
