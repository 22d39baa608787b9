"""Checking a store: all that is derived is compared with the log, and each thing that is wrong is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cmbs.audit import fsck
from cmbs.audit.fsck import all_sessions, check_session, only_intended
from cmbs.belief.kernel.checkpoint import freeze
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.ledger import StoredEntry
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import ManualClock, SequentialIds
from cmbs.testing.streams import stream
from tests.support.store_fixture import BACKENDS, NO_SUCH_SESSION, StoreFixture, declared, tampering


@pytest.fixture(params=BACKENDS)
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at(request.param, tmp_path) as fixture:
        yield fixture


def lived(server: BeliefServer) -> str:
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["a"])
    server.eliminate(session_id, "s", "2", ["b"])
    return session_id


@pytest.mark.req("FSCK-01")
def test_a_store_that_is_well_has_nothing_wrong(fixture: StoreFixture) -> None:
    store = fixture.store()
    sessions = [lived(fixture.open(store=store)) for _ in range(2)]
    entries = store.read(sessions[0])
    store.put_checkpoint(sessions[0], 1, freeze(verify_session(sessions[0], entries[:2])))
    assert [summary.session_id for summary in all_sessions(store)] == sessions
    assert [check_session(store, session_id) for session_id in sessions] == [(each, 3, []) for each in sessions]


@pytest.mark.req("FSCK-01")
def test_an_intent_that_continues_the_log_is_not_wrong(fixture: StoreFixture) -> None:
    store, items = fixture.store(), stream()
    store.append(items[:2])
    store.put_intent(items[2])
    assert check_session(store, items[0].stream_id) == (items[0].stream_id, 2, [])


def test_all_sessions_are_listed_whatever_the_size_of_a_page(
    fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [declared(fixture.open()) for _ in range(3)]
    monkeypatch.setattr(fsck, "_PAGE", 2)
    assert [summary.session_id for summary in all_sessions(fixture.store())] == sessions


@pytest.mark.req("FSCK-01")
def test_a_session_that_is_not_there_is_a_finding(fixture: StoreFixture) -> None:
    (what,) = check_session(fixture.store(), NO_SUCH_SESSION).findings
    assert NO_SUCH_SESSION in what


# --- with the store in hands, and no guards ---


def edit_an_entry(store: InMemoryStore, session_id: str) -> None:
    entries = store._streams[session_id].entries
    entries[1] = StoredEntry(entries[1].raw.replace(b'["a"]', b'["c"]'), entries[1].event_hash)


def cut_the_tail(store: InMemoryStore, session_id: str) -> None:
    del store._streams[session_id].entries[2]


def change_the_universe(store: InMemoryStore, session_id: str) -> None:
    store._streams[session_id].universe = ("a", "b", "c", "x")


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


def relist(**members: Any) -> Callable[[InMemoryStore, str], None]:
    """Let the derived row of the session say something else."""

    def fault(store: InMemoryStore, session_id: str) -> None:
        newest = store._streams[session_id].newest
        assert newest is not None
        assert newest.session is not None
        session = {name: members.pop(name) for name in [*members] if hasattr(newest.session, name)}
        newest = structs.replace(newest, session=structs.replace(newest.session, **session))
        store._streams[session_id].newest = structs.replace(newest, **members)

    fault.__name__ = f"relist_{'_'.join(members)}"
    return fault


def move_in_the_list(store: InMemoryStore, session_id: str) -> None:
    moved = "2000-01-01T00:00:00.000000Z"
    store._streams[session_id].created_ts = moved
    store._order = sorted((moved if each == session_id else ts, each) for ts, each in store._order)


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
    relist(n_survivors=3): "the list of sessions has `3` as its n_survivors, the log leads to `2`",
    relist(terminated=True): "the list of sessions has `True` as its terminated, the log leads to `False`",
    relist(seq=7): "the list of sessions has `7` as its head_seq, the log leads to `2`",
    relist(event_id="x"): "the list of sessions has `x` as its head_event_id",
    move_in_the_list: "it is not in the list of sessions where it belongs",
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


@pytest.mark.req("FSCK-01")
def test_a_row_that_the_database_derived_wrongly_is_named(tmp_path: Path) -> None:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        session_id, other = lived(fixture.open()), lived(fixture.open())
        with tampering(fixture.path, "sessions_only_forward") as database:
            database.execute("UPDATE sessions SET universe_size = 9 WHERE session_id = ?", (session_id,))
        store = fixture.store()
        (what,) = check_session(store, session_id).findings
        assert what == "the list of sessions has `9` as its universe_size, the log leads to `4`"
        assert check_session(store, other).findings == []


@pytest.mark.req("FSCK-01")
def test_sessions_of_one_moment_are_found_among_each_other(
    fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsck, "_NEIGHBOURS", 2)
    server = BeliefServer(store=fixture.store(), clock=ManualClock(tick=timedelta()), ids=SequentialIds())
    sessions = [declared(server) for _ in range(5)]
    assert [check_session(fixture.store(), session_id).findings for session_id in sessions] == [[]] * 5
    server.close()


@pytest.mark.req("FSCK-01")
def test_a_declaration_in_doubt_is_not_wrong_and_any_other_intent_without_a_session_is(fixture: StoreFixture) -> None:
    store, (declaration, elimination, _) = fixture.store(), stream()
    store.put_intent(declaration)
    # A log takes for a beginning what says that it is one; whether it is shows in its bytes.
    stray = structs.replace(elimination, stream_id=NO_SUCH_SESSION, seq=0, prev_event_hash=bytes(32))
    store.put_intent(stray)
    assert sorted(only_intended(store)) == sorted([declaration.stream_id, NO_SUCH_SESSION])
    assert check_session(store, declaration.stream_id).findings == []
    (what,) = check_session(store, NO_SUCH_SESSION).findings
    assert what.startswith("an intent is open for a session that was never declared")
    assert list(all_sessions(store)) == []
