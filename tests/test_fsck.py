"""Checking a store: all that is derived is compared with the log, and each thing that is wrong is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from cmbs import fsck
from cmbs.belief_checkpoint import freeze
from cmbs.belief_replay import verify_session
from cmbs.belief_server import BeliefServer
from cmbs.fsck import all_sessions, check_session
from cmbs.ledger import StoredEntry
from cmbs.spi import InMemoryStore
from cmbs.testing import ManualClock, SequentialIds
from cmbs.testing.streams import stream
from tests.support.homes import BACKENDS, NO_SUCH_SESSION, Home, declared


@pytest.fixture(params=BACKENDS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with Home.at(request.param, tmp_path) as home:
        yield home


def lived(server: BeliefServer) -> str:
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["a"])
    server.eliminate(session_id, "s", "2", ["b"])
    return session_id


@pytest.mark.req("FSCK-01")
def test_a_store_that_is_well_has_nothing_wrong(home: Home) -> None:
    store = home.store()
    sessions = [lived(home.open(store=store)) for _ in range(2)]
    entries = store.read(sessions[0])
    store.put_checkpoint(sessions[0], 1, freeze(verify_session(sessions[0], entries[:2])))
    assert [summary.session_id for summary in all_sessions(store)] == sessions
    assert [check_session(store, session_id) for session_id in sessions] == [(each, 3, []) for each in sessions]


@pytest.mark.req("FSCK-01")
def test_an_intent_that_continues_the_log_is_not_wrong(home: Home) -> None:
    store, items = home.store(), stream()
    store.append(items[:2])
    store.put_intent(items[2])
    assert check_session(store, items[0].stream_id) == (items[0].stream_id, 2, [])


def test_all_sessions_are_listed_whatever_the_size_of_a_page(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [declared(home.open()) for _ in range(3)]
    monkeypatch.setattr(fsck, "_PAGE", 2)
    assert [summary.session_id for summary in all_sessions(home.store())] == sessions


@pytest.mark.req("FSCK-01")
def test_a_session_that_is_not_there_is_a_finding(home: Home) -> None:
    (what,) = check_session(home.store(), NO_SUCH_SESSION).findings
    assert NO_SUCH_SESSION in what


# --- with the store in hands, and no guards ---


def edit_an_entry(store: InMemoryStore, session_id: str) -> None:
    entries = store._streams[session_id].entries
    entries[1] = StoredEntry(entries[1].raw.replace(b'["a"]', b'["c"]'), entries[1].event_hash)


def cut_the_tail(store: InMemoryStore, session_id: str) -> None:
    del store._streams[session_id].entries[2]


def change_the_universe(store: InMemoryStore, session_id: str) -> None:
    store._streams[session_id].universe = ("a", "b", "c")


def add_a_tombstone(store: InMemoryStore, session_id: str) -> None:
    store._streams[session_id].tombstones.add("d")


def remove_a_tombstone(store: InMemoryStore, session_id: str) -> None:
    store._streams[session_id].tombstones.discard("b")


def keep_nonsense(store: InMemoryStore, session_id: str) -> None:
    store.put_checkpoint(session_id, 1, b"nonsense")


def keep_what_is_to_come(store: InMemoryStore, session_id: str) -> None:
    store.put_checkpoint(session_id, 3, b"")


def keep_another_state(store: InMemoryStore, session_id: str) -> None:
    session = verify_session(session_id, store.read(session_id))
    store.put_checkpoint(session_id, 2, freeze(structs.replace(session, active=("gate",))))


def intend_nonsense(store: InMemoryStore, session_id: str) -> None:
    store._intents[session_id] = store.read(session_id)[1]


FAULTS: dict[Callable[[InMemoryStore, str], None], str] = {
    edit_an_entry: "bad at seq 1",
    cut_the_tail: "bad at seq",
    change_the_universe: "the stored universe is not the declared one",
    add_a_tombstone: "`d` has a tombstone, and no event eliminated it",
    remove_a_tombstone: "`b` was eliminated, and has no tombstone",
    keep_nonsense: "the checkpoint of seq 1 does not fit the log",
    keep_what_is_to_come: "the checkpoint is of seq 3, beyond the log",
    keep_another_state: "the checkpoint of seq 2 is not what the log leads to",
    intend_nonsense: "the open intent does not continue the log",
}


@pytest.mark.req("FSCK-01")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_is_wrong_is_named_and_the_other_session_is_well(fault: Callable[[InMemoryStore, str], None]) -> None:
    store = InMemoryStore()
    server = BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds())
    session_id, other = lived(server), lived(server)
    fault(store, session_id)
    (what,) = check_session(store, session_id).findings
    assert FAULTS[fault] in what
    assert check_session(store, other).findings == []
