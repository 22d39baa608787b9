"""An intruder with the database open: whatever is taken from the register of keys, the gate shuts and never opens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.errors import LedgerCorrupt
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.kernel.model import KEYS_STREAM
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.spi.audit_log import HEADS_STREAM
from cmbs.stores import open_store
from cmbs.streams import recorded_heads
from tests.support.error_model import check_error
from tests.support.http_server import free_port, run_cmbs
from tests.support.in_process import Client, client_of
from tests.support.set_back import PutBack, execute_unguarded, take_snapshot
from tests.support.signing import notary_of
from tests.support.store_fixture import StoreFixture
from tests.support.transports import DECLARATION

pytestmark = pytest.mark.slow

OF_KEYS = f"stream_id = '{KEYS_STREAM}'"
HEAD_OF_KEYS = f"session_id = '{KEYS_STREAM}'"
NEW_HEAD = (
    "UPDATE sessions SET head_seq = 1,"
    f" head_hash = (SELECT event_hash FROM audit_events WHERE {OF_KEYS} AND seq = 1),"
    f" head_event_id = (SELECT event_id FROM audit_events WHERE {OF_KEYS} AND seq = 1) WHERE {HEAD_OF_KEYS}"
)
DELETE_LAST = f"DELETE FROM audit_events WHERE {OF_KEYS} AND seq = 2"
CHANGE_LAST = (
    f"UPDATE audit_events SET entry = (SELECT entry FROM audit_events WHERE {OF_KEYS} AND seq = 1)"
    f" WHERE {OF_KEYS} AND seq = 2"
)
DELETE_ALL = f"DELETE FROM audit_events WHERE {OF_KEYS}"
DELETE_HEAD = f"DELETE FROM sessions WHERE {HEAD_OF_KEYS}"
# The last entry is the revocation of a key.
INTRUSIONS: dict[str, tuple[str, ...]] = {
    "the revocation is deleted": (DELETE_LAST,),
    "the revocation is deleted and the head forged to fit": (DELETE_LAST, NEW_HEAD),
    "the revocation is another entry": (CHANGE_LAST,),
    "every entry is deleted": (DELETE_ALL,),
    "the head is forged": (NEW_HEAD,),
    "the row of the head is deleted": (DELETE_HEAD,),
    "everything is deleted": (DELETE_ALL, DELETE_HEAD),
}
# Of these, a process that has seen nothing before cannot know: only a head that is recorded, or kept elsewhere, tells.
UNKNOWABLE = {"the revocation is deleted and the head forged to fit"}


class Intruded(NamedTuple):
    """A store with two keys, one of them revoked, and a session that was written with the other."""

    fixture: StoreFixture
    good: str
    revoked: str
    before: PutBack
    whole: PutBack


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.deep)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Intruded]:
    with StoreFixture.at(request.param, tmp_path) as fixture:
        registry = KeyRegistry(fixture.store())
        good, revoked = [registry.create(ActorKind.AGENT, name, roles=[Role.AGENT]) for name in ("one", "two")]
        app = create_app(BeliefServer(store=open_store(fixture.url)))
        with client_of(app) as client:
            assert client.post("/v1/sessions", DECLARATION, headers=bearing(good.text)).status_code == 201
        app.close()
        before = take_snapshot(fixture.url)
        registry.revoke(revoked.key.key_id)
        yield Intruded(fixture, good.text, revoked.text, before, take_snapshot(fixture.url))


def bearing(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


class Watch:
    """A clock that tests move on: what a gate knows of the keys is too old whenever they say so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def watch() -> Watch:
    return Watch()


def serve(store: Intruded, watch: Watch) -> BeliefApp:
    server = BeliefServer(store=open_store(store.fixture.url))
    return BeliefApp(Service(server, Gate(KeyRegistry(server.log, elapsed=watch))))


def check_shut(client: Client, store: Intruded) -> None:
    """No caller is let in: with a good key, the revoked one, or none."""
    for headers in (bearing(store.good), bearing(store.revoked), {}):
        check_error(client.get("/v1/sessions", headers=headers), 500, "LEDGER_CORRUPT")
        check_error(client.post("/v1/sessions", DECLARATION, headers=headers), 500, "LEDGER_CORRUPT")
    check_error(client.get("/readyz"), 503, "STORE_UNAVAILABLE")
    assert client.get("/healthz").status_code == 200


def check_open(client: Client, store: Intruded) -> None:
    assert client.get("/v1/sessions", headers=bearing(store.good)).status_code == 200
    check_error(client.get("/v1/sessions", headers=bearing(store.revoked)), 401, "UNAUTHENTICATED")
    check_error(client.get("/v1/sessions"), 401, "UNAUTHENTICATED")
    assert client.get("/readyz").status_code == 200


@pytest.mark.req("ID-KEY-08")
@pytest.mark.parametrize("statements", [*INTRUSIONS.values(), None], ids=[*INTRUSIONS, "an older backup is put back"])
def test_a_register_that_lost_something_under_a_running_server_lets_no_request_in(
    store: Intruded, watch: Watch, statements: tuple[str, ...] | None, caplog: pytest.LogCaptureFixture
) -> None:
    app = serve(store, watch)
    with client_of(app) as client:
        check_open(client, store)
        intrude(store, statements)
        watch.seconds += 1
        with caplog.at_level(logging.ERROR, "cmbs.identity"):
            check_shut(client, store)
        assert [record.message.partition(":")[0] for record in caplog.records if record.name == "cmbs.identity"] == [
            "no request is admitted, because the register of keys cannot be trusted"
        ]
        store.whole()
        watch.seconds += 1
        check_open(client, store)
    app.close()


@pytest.mark.req("ID-KEY-08")
@pytest.mark.parametrize("name", [name for name in INTRUSIONS if name not in UNKNOWABLE])
def test_a_register_that_lost_something_before_the_start_lets_no_request_in(
    store: Intruded, watch: Watch, name: str
) -> None:
    intrude(store, INTRUSIONS[name])
    app = serve(store, watch)
    with client_of(app) as client:
        check_shut(client, store)
        store.whole()
        watch.seconds += 1
        check_open(client, store)
    app.close()


def intrude(store: Intruded, statements: tuple[str, ...] | None) -> None:
    if statements is None:
        store.before()
    else:
        execute_unguarded(store.fixture.url, *statements)


@pytest.mark.slow
@pytest.mark.req("ID-KEY-08")
@pytest.mark.parametrize("name", [name for name in INTRUSIONS if name not in UNKNOWABLE])
def test_a_server_does_not_start_on_a_store_whose_register_lost_something(
    store: Intruded, name: str, tmp_path: Path
) -> None:
    intrude(store, INTRUSIONS[name])
    ended = run_cmbs("serve", "--port", str(free_port()), "--store", store.fixture.url, directory=tmp_path)
    assert ended.returncode == 2
    assert f"LEDGER_CORRUPT: ledger of `{KEYS_STREAM}` is bad" in ended.stderr
    assert "none: only this machine is served" not in ended.stdout


@pytest.mark.req("ID-KEY-08")
def test_a_register_that_is_gone_may_be_begun_again_and_then_its_keys_count(store: Intruded, watch: Watch) -> None:
    intrude(store, INTRUSIONS["everything is deleted"])
    app = serve(store, watch)
    with client_of(app) as client:
        check_shut(client, store)
        made = KeyRegistry(store.fixture.store()).create(ActorKind.AGENT, "three", roles=[Role.AGENT])
        watch.seconds += 1
        assert client.get("/v1/sessions", headers=bearing(made.text)).status_code == 200
        check_error(client.get("/v1/sessions", headers=bearing(store.good)), 401, "UNAUTHENTICATED")
    app.close()


@pytest.mark.req("ID-KEY-08")
@pytest.mark.parametrize("write", ["create", "revoke"])
def test_nothing_is_written_to_a_register_that_lost_its_tail(store: Intruded, write: str) -> None:
    intrude(store, INTRUSIONS["the revocation is deleted"])
    registry = KeyRegistry(store.fixture.store())
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: registry.create(ActorKind.AGENT, "x", roles=[Role.AGENT]),
        "revoke": lambda: registry.revoke(store.good.split("_")[1]),
    }
    with pytest.raises(LedgerCorrupt, match="recorded head"):
        calls[write]()


@pytest.mark.req("ID-KEY-08")
def test_a_caller_of_an_open_server_cannot_shut_it_by_naming_keys(tmp_path: Path) -> None:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        for _ in range(2):
            app = create_app(fixture.open())
            with client_of(app) as client:
                metadata = {"actor": {"authenticated": True, "key_id": "0" * 16}}
                answer = client.post("/v1/sessions", {**DECLARATION, "metadata": metadata})
                assert answer.status_code == 201
                assert client.get("/v1/sessions").status_code == 200
            app.close()


# --- with a record of the register in the log of heads ---


def record_register(store: Intruded, directory: Path) -> PutBack:
    """Record the heads of all streams and sign that; what the store is then."""
    server = store.fixture.open()
    notary = notary_of(server, directory)
    for stream_id in (KEYS_STREAM, *(each.session_id for each in server.list_sessions())):
        notary.note_change(stream_id)
        notary.publish()
    server.close()
    return take_snapshot(store.fixture.url)


@pytest.mark.req("ID-KEY-08")
@pytest.mark.parametrize("name", INTRUSIONS)
@pytest.mark.parametrize("page", [1, 1_000])
def test_a_register_that_lost_what_was_recorded_of_it_lets_no_request_in_after_a_restart(
    store: Intruded, watch: Watch, name: str, page: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_heads, "_RECORDS_AT_ONCE", page)
    whole = record_register(store, tmp_path)
    intrude(store, INTRUSIONS[name])
    app = serve(store, watch)
    with client_of(app) as client:
        check_shut(client, store)
        whole()
        watch.seconds += 1
        check_open(client, store)
    app.close()


@pytest.mark.req("ID-KEY-08")
def test_a_register_without_a_key_ever_used_is_not_taken_for_an_open_server(tmp_path: Path, watch: Watch) -> None:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        made = KeyRegistry(fixture.store()).create(ActorKind.AGENT, "one", roles=[Role.AGENT])
        whole = take_snapshot(fixture.url)
        store = Intruded(fixture, made.text, made.text, whole, whole)
        record_register(store, tmp_path)
        intrude(store, INTRUSIONS["everything is deleted"])
        app = serve(store, watch)
        with client_of(app) as client:
            check_shut(client, store)
        app.close()
        with pytest.raises(LedgerCorrupt, match="there is no such stream"):
            KeyRegistry(fixture.store()).create(ActorKind.AGENT, "x", roles=[Role.AGENT])


@pytest.mark.req("ID-KEY-08")
@pytest.mark.parametrize(
    "statement",
    [
        f"DELETE FROM audit_events WHERE stream_id = '{HEADS_STREAM}' AND seq = 0",
        f"UPDATE audit_events SET entry = prev_event_hash WHERE stream_id = '{HEADS_STREAM}' AND seq = 0",
        f"DELETE FROM audit_events WHERE stream_id = '{HEADS_STREAM}'",
    ],
    ids=["deleted", "another entry", "all deleted"],
)
def test_a_record_that_was_removed_does_not_open_the_gate(
    store: Intruded, watch: Watch, statement: str, tmp_path: Path
) -> None:
    record_register(store, tmp_path)
    execute_unguarded(store.fixture.url, statement)
    app = serve(store, watch)
    with client_of(app) as client:
        check_shut(client, store)
    app.close()


@pytest.mark.req("ID-KEY-08")
def test_what_was_recorded_longer_ago_than_is_searched_is_left_to_the_notary(
    store: Intruded, watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_heads, "MAX_RECORDS_SEARCHED", 1)
    record_register(store, tmp_path)
    intrude(store, INTRUSIONS["the revocation is deleted and the head forged to fit"])
    server = BeliefServer(store=open_store(store.fixture.url))
    notary = notary_of(server, tmp_path)
    app = BeliefApp(Service(server, Gate(KeyRegistry(server.log, elapsed=watch)), notary=notary))
    with client_of(app) as client:
        assert client.get("/v1/sessions", headers=bearing(store.revoked)).status_code == 200
        notary.note_change(KEYS_STREAM)
        with pytest.raises(LedgerCorrupt, match="truncated: identity:keys"):
            notary.publish()
        watch.seconds += 1
        check_shut(client, store)
    app.close()
