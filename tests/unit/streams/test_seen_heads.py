"""A server never goes back behind a head that it has seen: the log is refused, and served again once it is whole."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.bootstrap import Settings
from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.ledger import Head
from cmbs.stores import open_store
from cmbs.stores.memory import InMemoryStore
from cmbs.streams.seen_heads import SeenHeads
from cmbs.testing.streams import stream
from tests.support.error_model import check_error
from tests.support.in_process import client_of
from tests.support.set_back import PutBack, execute_unguarded, take_snapshot
from tests.support.signing import notary_of
from tests.support.spaces import eventually
from tests.support.store_fixture import StoreFixture, declared, verified
from tests.support.transports import DECLARATION

pytestmark = pytest.mark.slow

OPERATOR = {"x-cmbs-actor": "operator:alice"}
SetBack = Callable[[StoreFixture, str, PutBack], None]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at(request.param, tmp_path) as opened:
        yield opened


def restore_older(_: StoreFixture, __: str, put_back: PutBack) -> None:
    put_back()


def cut_tail(fixture: StoreFixture, session_id: str, _: PutBack) -> None:
    earlier = "(SELECT {} FROM audit_events WHERE stream_id = session_id AND seq = head_seq - 1)"
    execute_unguarded(
        fixture.url,
        f"UPDATE sessions SET head_hash = {earlier.format('event_hash')}, head_event_id = {earlier.format('event_id')},"
        f" head_seq = head_seq - 1 WHERE session_id = '{session_id}'",
        f"DELETE FROM audit_events WHERE stream_id = '{session_id}'"
        f" AND seq > (SELECT head_seq FROM sessions WHERE session_id = '{session_id}')",
    )


def delete_stream(fixture: StoreFixture, session_id: str, _: PutBack) -> None:
    execute_unguarded(
        fixture.url,
        f"DELETE FROM audit_events WHERE stream_id = '{session_id}'",
        f"DELETE FROM sessions WHERE session_id = '{session_id}'",
    )


def go_on_without(fixture: StoreFixture, session_id: str, put_back: PutBack) -> None:
    """Put the older log back, and let a process that never saw more write on: as long, and longer."""
    put_back()
    other = fixture.open()
    for number in range(3):
        other.eliminate(session_id, "other", str(number), ["b"])
        verified(other, session_id)


SET_BACKS: dict[str, SetBack] = {
    "an older backup": restore_older,
    "a tail that is cut off": cut_tail,
    "a stream that is deleted": delete_stream,
    "another history": go_on_without,
}


@pytest.mark.req("SEEN-01")
@pytest.mark.parametrize("cached", [True, False], ids=["cached", "evicted"])
@pytest.mark.parametrize("set_back", SET_BACKS.values(), ids=SET_BACKS)
def test_a_log_that_is_behind_is_refused_by_every_route_until_it_is_whole_again(
    fixture: StoreFixture, set_back: SetBack, cached: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = fixture.open(limits=Limits(cached_sessions=4 if cached else 1))
    session_id = declared(server)
    exported, head = server.log.read(session_id), server.log.head(session_id)
    assert head is not None
    older = take_snapshot(fixture.url)
    server.eliminate(session_id, "s", "1", ["a"])
    belief = server.query_belief(session_id)
    declared(server)
    newest = take_snapshot(fixture.url)
    set_back(fixture, session_id, older)
    routes: list[Callable[[], object]] = [
        lambda: server.query_belief(session_id),
        lambda: server.survivors(session_id),
        lambda: server.audit_trace(session_id),
        lambda: server.eliminate(session_id, "s", "2", ["b"]),
        # The same again, which would otherwise be answered from memory; and the same with another content.
        lambda: server.eliminate(session_id, "s", "1", ["a"]),
        lambda: server.eliminate(session_id, "s", "1", ["b"]),
        lambda: server.request_termination(session_id),
        lambda: server.import_session(session_id, exported, head),
    ]
    with caplog.at_level(logging.ERROR, "cmbs.streams"):
        for route in [*routes, *routes]:
            with pytest.raises(LedgerCorrupt, match="behind what this process has seen") as caught:
                route()
            assert caught.value.stream_id == session_id
            assert belief.audit_head_event_id is not None
        assert session_id in server.find_behind()
    assert sum(f"`{session_id}`" in record.message for record in caplog.records) == 1
    # Nothing came of what was refused, and a process that has seen nothing takes the log for what it is.
    if set_back is not delete_stream:
        verified(fixture.open(), session_id)
    newest()
    assert server.query_belief(session_id) == belief
    assert server.find_behind() == []
    assert server.eliminate(session_id, "s", "2", ["b"]).applied_eliminated == ["b"]
    assert verified(server, session_id) == server.query_belief(session_id)


@pytest.mark.req("SEEN-01")
def test_the_whole_log_of_a_stream_that_is_behind_can_be_imported_again(fixture: StoreFixture) -> None:
    server = fixture.open()
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["a"])
    entries, head = server.log.read(session_id), server.log.head(session_id)
    assert head is not None
    cut_tail(fixture, session_id, lambda: None)
    with pytest.raises(LedgerCorrupt, match="behind"):
        server.query_belief(session_id)
    server.import_session(session_id, entries, head)
    assert server.query_belief(session_id).survivors == ["b", "c", "d"]
    assert server.find_behind() == []


@pytest.mark.req("SEEN-02")
def test_readiness_names_the_streams_that_are_behind_and_comes_back_by_itself(fixture: StoreFixture) -> None:
    server = fixture.open()
    app = create_app(server)
    with client_of(app) as client:
        created = [client.post("/v1/sessions", DECLARATION).json()["session_id"] for _ in range(12)]
        older = take_snapshot(fixture.url)
        eliminated = {"source_id": "s", "observation_id": "1", "eliminated": ["a"]}
        for session_id in created:
            assert client.post(f"/v1/sessions/{session_id}/eliminate", eliminated).status_code == 200
        newest = take_snapshot(fixture.url)
        assert client.get("/readyz").status_code == 200
        older()
        # Without a request for any of them.
        details = check_error(client.get("/readyz"), 503, "STORE_UNAVAILABLE")
        assert len(details["behind"]) == 8
        assert set(details["behind"]) < set(created)
        for session_id in created:
            answer = client.get(f"/v1/sessions/{session_id}")
            assert "behind" in check_error(answer, 500, "LEDGER_CORRUPT")["reason"]
            answer = client.post(f"/v1/sessions/{session_id}/eliminate", {**eliminated, "observation_id": "2"})
            check_error(answer, 500, "LEDGER_CORRUPT")
        assert client.get("/healthz").status_code == 200
        newest()
        assert client.get("/readyz").json() == {"status": "ok"}
        assert client.get(f"/v1/sessions/{created[0]}").json()["n_survivors"] == len(DECLARATION["hypotheses"]) - 1
    app.close()


@pytest.mark.req("SEEN-02")
def test_a_space_that_is_behind_is_refused_and_named(fixture: StoreFixture) -> None:
    server = fixture.open()
    app = create_app(server)
    with client_of(app) as client:
        nothing = take_snapshot(fixture.url)
        assert client.post("/v1/spaces", {"space_id": "ops"}, headers=OPERATOR).status_code == 201
        whole = take_snapshot(fixture.url)
        nothing()
        assert check_error(client.get("/readyz"), 503, "STORE_UNAVAILABLE")["behind"] == ["space:ops"]
        check_error(client.get("/v1/spaces/ops"), 500, "LEDGER_CORRUPT")
        check_error(client.post("/v1/spaces", {"space_id": "ops"}, headers=OPERATOR), 500, "LEDGER_CORRUPT")
        whole()
        assert client.get("/readyz").status_code == 200
        assert client.get("/v1/spaces/ops").status_code == 200
    app.close()


# --- another file in the place of ours ---


def test_a_file_that_is_replaced_or_deleted_takes_nothing_in_until_it_is_back(tmp_path: Path) -> None:
    path, aside = tmp_path / "cmbs.db", tmp_path / "aside.db"
    server = BeliefServer(store=open_store(f"sqlite:///{path}"))
    session_id = declared(server)
    belief = server.query_belief(session_id)
    with closing(sqlite3.connect(path)) as connection:
        # Into the file itself: another one at its place would take over what stands beside it.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.rename(aside)
    for recreate in (False, True):
        if recreate:
            open_store(f"sqlite:///{path}").close()
        for write in (
            lambda: declared(server),
            lambda: server.eliminate(session_id, "s", "1", ["a"]),
            server.list_sessions,
        ):
            with pytest.raises(StoreUnavailable, match="another file" if recreate else "is gone"):
                write()
        # As while any store is away: what is in memory is read.
        assert server.query_belief(session_id) == belief
    aside.rename(path)
    assert server.eliminate(session_id, "s", "1", ["a"]).applied_eliminated == ["a"]
    assert verified(server, session_id) == server.query_belief(session_id)
    server.close()


# --- the bound ---


def test_what_was_seen_is_bounded_and_the_oldest_goes_first() -> None:
    seen = SeenHeads(InMemoryStore(), capacity=2)
    for name in ("a", "b", "a", "c"):
        seen.note(name, Head(0, bytes(32)))
    assert [seen.find(name) is not None for name in "abc"] == [True, False, True]


def test_a_head_that_was_seen_is_never_replaced_by_an_earlier_one() -> None:
    appends = stream()
    log = InMemoryStore()
    seen = SeenHeads(log)
    heads = [Head(item.seq, item.entry.event_hash) for item in appends]
    log.append(appends)
    for head in reversed(heads):
        seen.note(appends[0].stream_id, head)
    assert seen.find(appends[0].stream_id) == heads[-1]
    assert seen.find_behind() == []


def write_on_without(fixture: StoreFixture, session_id: str, put_back: PutBack) -> None:
    """Cut the tail off, and let a process that never saw it write on."""
    cut_tail(fixture, session_id, put_back)
    other = fixture.open()
    for number in range(3):
        other.eliminate(session_id, "other", str(number), ["b"])
    other.close()


LOSSES: dict[str, SetBack] = {
    "truncated": cut_tail,
    "deleted": delete_stream,
    "forked": write_on_without,
}


@pytest.mark.req("SEEN-01")
@pytest.mark.parametrize("cached", [True, False], ids=["cached", "not cached"])
@pytest.mark.parametrize("kind", LOSSES)
def test_a_session_that_a_notary_knows_to_be_lost_is_neither_served_nor_written(
    fixture: StoreFixture, tmp_path: Path, kind: str, cached: bool
) -> None:
    first = fixture.open()
    notary = notary_of(first, tmp_path)
    lost, whole = declared(first), declared(first)
    first.eliminate(lost, "s", "1", ["a"])
    notary.publish()
    first.close()
    good = take_snapshot(fixture.url)
    LOSSES[kind](fixture, lost, good)

    server = BeliefServer(store=open_store(fixture.url))
    notary = notary_of(server, tmp_path)
    app = BeliefApp(Service(server, notary=notary))
    with client_of(app) as client:
        if cached and kind != "deleted":
            assert client.get(f"/v1/sessions/{lost}").status_code == 200
        notary.note_change(lost)
        with pytest.raises(LedgerCorrupt, match=f"{kind}: {lost}"):
            notary.publish()
        before = server.log.read(lost)
        elimination = {"source_id": "s", "observation_id": "9", "eliminated": ["c"]}
        for _ in range(2):
            check_error(client.get(f"/v1/sessions/{lost}"), 500, "LEDGER_CORRUPT")
            check_error(client.post(f"/v1/sessions/{lost}/eliminate", elimination), 500, "LEDGER_CORRUPT")
            assert check_error(client.get("/readyz"), 503, "STORE_UNAVAILABLE")["behind"] == [lost]
        assert server.log.read(lost) == before
        assert client.get(f"/v1/sessions/{whole}").status_code == 200
        assert client.post(f"/v1/sessions/{whole}/eliminate", elimination).status_code == 200
        good()
        assert client.post(f"/v1/sessions/{lost}/eliminate", elimination).status_code == 200
    app.close()


@pytest.mark.req("SEEN-01")
def test_a_server_that_signs_refuses_a_space_that_was_lost_before_it_began(
    fixture: StoreFixture, tmp_path: Path
) -> None:
    settings = Settings(store=fixture.url, signing_key=str(tmp_path / "signing.key"), checkpoint_interval=1)
    app = create_app(settings=settings)
    with client_of(app) as client:
        assert client.post("/v1/spaces", {"space_id": "ops"}, headers=OPERATOR).status_code == 201
    app.close()
    delete_stream(fixture, "space:ops", take_snapshot(fixture.url))
    app = create_app(settings=settings)
    with client_of(app) as client:
        assert eventually(lambda: client.get("/v1/spaces/ops").status_code == 500)
        check_error(client.get("/v1/spaces/ops"), 500, "LEDGER_CORRUPT")
        check_error(client.post("/v1/spaces", {"space_id": "ops"}, headers=OPERATOR), 500, "LEDGER_CORRUPT")
    app.close()
