"""One gate before every route of both interfaces: the actor comes from the key, or is unauthenticated."""

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cmbs.addresses import is_remote
from cmbs.api.operation import Operation
from cmbs.api.operations import OPERATIONS
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.errors import KeyRefused, StoreUnavailable, Unauthenticated
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.kernel.model import KEYS_STREAM
from cmbs.identity.kernel.scopes import SCOPES_OF, Need, Role, Scope
from cmbs.identity.registry import KeyRegistry, Made
from cmbs.identity.tokens import new_key
from cmbs.ledger import StoredEntry
from cmbs.messages import Actor, ActorKind
from cmbs.stores import SQLiteStore
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import ManualClock
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.subtests import for_each
from tests.support.transports import DECLARATION

KEYED = [operation for operation in OPERATIONS if not operation.is_open]
GUARDED = [operation for operation in KEYED if operation.scope is not None]
OPEN = [*(operation.path for operation in OPERATIONS if operation.is_open), "/docs", "/openapi.json"]


def name_of(operation: Operation) -> str:
    return operation.operation_id


NOW = "2026-05-01T00:00:00.000000Z"
LATER = "2026-06-01T00:00:00.000000Z"


def bearing(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


class Guarded:
    """A server with keys, and the registry that makes them."""

    def __init__(self, client: Client, registry: KeyRegistry, server: BeliefServer) -> None:
        self.client = client
        self.registry = registry
        self.server = server

    def key(self, *scopes: Scope, kind: ActorKind = ActorKind.AGENT, **options: Any) -> Made:
        return self.registry.create(kind, "planner", scopes=scopes or list(Scope), **options)


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    log = InMemoryStore()
    registry = KeyRegistry(log, clock=ManualClock(NOW))
    server = BeliefServer(store=log)
    app = BeliefApp(Service(server, Gate(registry)))
    with client_of(app) as client:
        yield Guarded(client, registry, server)
    app.close()


def path_of(operation: Operation) -> str:
    return re.sub(r"{\w+}", "x", operation.path)


# --- keys are needed --------------------------------------------------------------------------------------------------


@pytest.mark.req("ID-HTTP-01")
@for_each("operation", KEYED, ids=name_of)
def test_with_keys_every_route_needs_one(guarded: Guarded, operation: Operation) -> None:
    guarded.key()
    answer = guarded.client.request(operation.method, path_of(operation))
    assert check_error(answer, 401, "UNAUTHENTICATED")["reason"] == "missing"
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.req("ID-HTTP-02")
@for_each("operation", GUARDED, ids=name_of)
def test_a_key_without_the_scope_of_a_route_is_turned_away(guarded: Guarded, operation: Operation) -> None:
    assert operation.scope is not None
    lacking = guarded.key(*[scope for scope in Scope if scope is not operation.scope])
    answer = guarded.client.request(operation.method, path_of(operation), headers=bearing(lacking.text))
    details = check_error(answer, 403, "FORBIDDEN")
    assert (details["reason"], details["scope"]) == ("missing_scope", operation.scope.value)
    # An operator who proposes, reports or passes a token on needs more: see test_single_scopes.
    kind = ActorKind.AGENT if operation.scope is Scope.SPACES_PROPOSE else ActorKind.OPERATOR
    sufficient = guarded.key(operation.scope, kind=kind)
    answer = guarded.client.request(operation.method, path_of(operation), headers=bearing(sufficient.text))
    assert answer.status_code not in (401, 403)


@pytest.mark.req("ID-HTTP-04")
@pytest.mark.parametrize("path", OPEN)
def test_health_and_the_description_of_the_api_need_no_key(guarded: Guarded, path: str) -> None:
    guarded.key()
    assert guarded.client.get(path).status_code == 200


@pytest.mark.req("ID-HTTP-03")
def test_a_key_that_is_not_good_is_refused_with_the_reason(guarded: Guarded) -> None:
    good = guarded.key()
    revoked = guarded.key()
    guarded.registry.revoke(revoked.key.key_id)
    expired = guarded.key(expires_at="2026-05-01T00:00:00.500000Z")
    clock = guarded.registry.clock
    assert isinstance(clock, ManualClock)
    clock.set(LATER)
    forged = good.text[:-1] + ("0" if good.text[-1] != "0" else "1")
    renamed = good.text.replace(good.key.key_id, revoked.key.key_id)
    said = {
        "Bearer " + good.text: None,
        "bearer  " + good.text: None,
        "Bearer " + revoked.text: KeyRefused.REVOKED,
        "Bearer " + expired.text: KeyRefused.EXPIRED,
        "Bearer " + forged: KeyRefused.UNKNOWN,
        # A caller that knows an id and not the key does not learn that the key was revoked.
        "Bearer " + renamed: KeyRefused.UNKNOWN,
        "Bearer " + new_key().text: KeyRefused.UNKNOWN,
        "Bearer": KeyRefused.MALFORMED,
        "Bearer x": KeyRefused.MALFORMED,
        "Bearer " + good.text.upper(): KeyRefused.MALFORMED,
        "Bearer " + good.text + good.text: KeyRefused.MALFORMED,
        "Basic " + good.text: KeyRefused.MALFORMED,
        good.text: KeyRefused.MALFORMED,
    }
    for authorization, reason in said.items():
        answer = guarded.client.get("/v1/sessions", headers={"authorization": authorization})
        if reason is None:
            assert answer.status_code == 200, authorization
        else:
            assert check_error(answer, 401, "UNAUTHENTICATED")["reason"] == reason, authorization
        for key in (good, revoked, expired):
            assert key.text not in answer.text


def test_two_keys_in_one_request_are_one_too_many(guarded: Guarded) -> None:
    first, second = guarded.key(), guarded.key()
    headers = [(b"authorization", f"Bearer {key.text}".encode()) for key in (first, second)]
    answer = guarded.client.exchange("GET", b"/v1/sessions", headers)
    check_error(answer, 400, "INVALID_REQUEST")
    assert first.text.encode() not in answer.body


@pytest.mark.req("ID-HTTP-06")
def test_an_unauthenticated_caller_is_refused_before_the_body_is_read(guarded: Guarded) -> None:
    guarded.key()
    read: list[str] = []

    def events() -> Iterator[dict[str, Any]]:
        read.append("body")
        yield {"type": "http.request", "body": b"{}", "more_body": False}

    answer = guarded.client.exchange("POST", b"/v1/sessions", (), events())
    assert (answer.status, read) == (401, [])


# --- who asked --------------------------------------------------------------------------------------------------------


@pytest.mark.req("ID-BELIEF-01")
def test_the_actor_of_the_key_is_recorded_with_every_event_and_the_log_verifies(guarded: Guarded) -> None:
    key, text = guarded.key(kind=ActorKind.ENCODER)
    headers = bearing(text)
    session_id = guarded.client.post("/v1/sessions", DECLARATION, headers=headers).json()["session_id"]
    path = f"/v1/sessions/{session_id}"
    body = {"source_id": "s", "observation_id": "o", "eliminated": ["a"]}
    for _ in range(2):
        assert guarded.client.post(f"{path}/eliminate", body, headers=headers).status_code == 200
    guarded.client.post(f"{path}/terminate", headers=headers)
    events = guarded.client.get(f"{path}/audit", headers=headers).json()["events"]
    actor = {"kind": "encoder", "id": "planner", "authenticated": True, "key_id": key.key_id, "scopes": sorted(Scope)}
    assert [event["actor"] for event in events] == [actor] * 3
    assert [entry.actor for entry in guarded.server.audit_trace(session_id)] == [actor] * 3
    moved = BeliefServer(store=InMemoryStore())
    head = guarded.server.log.head(session_id)
    assert head is not None
    moved.import_session(session_id, guarded.server.log.read(session_id), head)
    assert moved.audit_trace(session_id) == guarded.server.audit_trace(session_id)


@pytest.mark.req("ID-BELIEF-01")
def test_an_actor_in_the_body_is_an_unknown_field(guarded: Guarded) -> None:
    headers = bearing(guarded.key().text)
    answer = guarded.client.post("/v1/sessions", {**DECLARATION, "actor": {"kind": "operator"}}, headers=headers)
    check_error(answer, 400, "INVALID_REQUEST")


@pytest.mark.req("ID-HTTP-07")
def test_a_caller_with_a_key_cannot_claim_another_identity(guarded: Guarded) -> None:
    headers = bearing(guarded.key().text)
    answer = guarded.client.get("/v1/sessions", headers={**headers, "x-cmbs-actor": "operator:root"})
    assert check_error(answer, 403, "FORBIDDEN")["reason"] == "forged_actor"
    same = guarded.client.get("/v1/sessions", headers={**headers, "x-cmbs-actor": "agent:planner"})
    assert same.status_code == 200


@pytest.mark.req("ID-HTTP-08")
def test_a_key_that_is_put_elsewhere_does_not_get_into_the_ledger_or_an_error(guarded: Guarded) -> None:
    text = guarded.key().text
    headers = bearing(text)
    session_id = guarded.client.post("/v1/sessions", DECLARATION, headers=headers).json()["session_id"]
    path = f"/v1/sessions/{session_id}"
    body = {"source_id": text, "observation_id": "o", "eliminated": []}
    misplaced = [
        guarded.client.post(f"{path}/eliminate", body, headers=headers),
        guarded.client.post("/v1/sessions", {**DECLARATION, "metadata": {"key": text}}, headers=headers),
        guarded.client.post(f"{path}/terminate", headers={**headers, "idempotency-key": text}),
        guarded.client.get(f"/v1/sessions/{text}", headers=headers),
        guarded.client.get(f"/v1/sessions?cursor={text}", headers=headers),
        guarded.client.post(f"{path}/obligations/{text}/exit", headers=headers),
    ]
    for answer in misplaced:
        assert "belongs in `Authorization` alone" in check_error(answer, 400, "INVALID_REQUEST")["message"]
        assert text not in answer.text
    lost = guarded.client.get(f"/{text}", headers=headers)
    check_error(lost, 404, "NOT_FOUND")
    assert text not in lost.text
    assert len(guarded.server.log.read(session_id)) == 1


# --- without keys -----------------------------------------------------------------------------------------------------


@pytest.mark.req("ID-OPEN-01")
def test_without_keys_this_machine_is_served_and_callers_are_not_recorded() -> None:
    server = BeliefServer()
    with client_of(create_app(server)) as client:
        said = {"x-cmbs-actor": "operator:alice", "authorization": "Bearer whatever"}
        session_id = client.post("/v1/sessions", DECLARATION, headers=said).json()["session_id"]
        assert "actor" not in client.get(f"/v1/sessions/{session_id}/audit").json()["events"][0]
        check_error(client.get("/v1/sessions", headers={"x-cmbs-actor": "none-such"}), 400, "INVALID_REQUEST")


def from_address(app: BeliefApp, address: str, host: str = "localhost:8080", **headers: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(app, client=(address, 1))

    async def ask() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/v1/sessions", headers={"host": host, **headers})

    return asyncio.run(ask())


@pytest.mark.req("ID-OPEN-01")
def test_without_keys_other_machines_are_refused_unless_a_proxy_vouches_for_them() -> None:
    app = create_app(BeliefServer())
    assert from_address(app, "127.0.0.1").status_code == 200
    assert check_error(from_address(app, "192.0.2.7"), 403, "FORBIDDEN")["reason"] == "remote_without_key"
    assert from_address(create_app(BeliefServer(), anyone=True), "192.0.2.7").status_code == 200


@pytest.mark.req("ID-OPEN-04")
@for_each(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8080", 200),
        ("cmbs.localhost:1", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("", 403),
        ("rebound.example", 403),
        ("rebound.example:8080", 403),
        ("localhost.example", 403),
        ("192.0.2.7", 403),
        ("127.0.0.1.example", 403),
        ("rebound.example/.localhost", 403),
        ("rebound.example#.localhost", 403),
        ("rebound.example@a.localhost", 403),
        ("[[::1]]", 403),
    ],
)
def test_without_keys_no_page_of_another_machine_can_give_us_a_name(host: str, status: int) -> None:
    answer = from_address(create_app(BeliefServer()), "127.0.0.1", host)
    assert answer.status_code == status
    if status == 403:
        assert check_error(answer, 403, "FORBIDDEN")["reason"] == "foreign_host"
    assert from_address(create_app(BeliefServer(), anyone=True), "127.0.0.1", host).status_code == 200
    # Over a unix socket, where the peer has no address, a proxy may forward what a browser sent.
    assert from_address(create_app(BeliefServer()), "", host).status_code == status


@pytest.mark.req("ID-OPEN-04")
@for_each("peer", ["127.0.0.1", ""], ids=["tcp", "unix socket"])
@for_each(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("https://[::1]:1", 200),
        ("https://evil.example", 403),
        ("https://evil.example#.localhost", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_without_keys_no_page_of_another_site_is_answered(peer: str, origin: str, status: int) -> None:
    answer = from_address(create_app(BeliefServer()), peer, origin=origin)
    assert answer.status_code == status
    if status == 403:
        assert check_error(answer, 403, "FORBIDDEN")["reason"] == "foreign_origin"


@for_each(
    ("peer", "remote"),
    [
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("", False),
        ("testclient", False),
        ("0.0.0.0", True),
        ("::", True),
        ("10.0.0.1", True),
        ("::ffff:10.0.0.1", True),
        ("fe80::1%eth0", True),
        ("2001:db8::1", True),
    ],
)
def test_what_counts_as_another_machine(peer: str, remote: bool) -> None:
    assert is_remote(peer) is remote


@pytest.mark.req("ID-OPEN-03")
def test_the_first_key_ends_the_time_without_and_no_revocation_brings_it_back(guarded: Guarded) -> None:
    assert guarded.client.get("/v1/sessions").status_code == 200
    only = guarded.key()
    guarded.registry.look()
    assert guarded.client.get("/v1/sessions").status_code == 401
    guarded.registry.revoke(only.key.key_id)
    assert guarded.client.get("/v1/sessions").status_code == 401
    assert guarded.client.get("/v1/sessions", headers=bearing(only.text)).status_code == 401


# --- what other processes do ------------------------------------------------------------------------------------------


class Time:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def say_nothing(_: str) -> None:
    return None


def says(text: str) -> Callable[[str], str | None]:
    return {"authorization": f"Bearer {text}"}.get


@pytest.mark.req("ID-KEY-06")
def test_what_another_process_does_to_a_key_counts_within_a_second(tmp_path: Path) -> None:
    passing = Time()
    log, elsewhere = SQLiteStore(tmp_path / "keys.db"), SQLiteStore(tmp_path / "keys.db")
    gate, others = Gate(KeyRegistry(log, elapsed=passing)), KeyRegistry(elsewhere)

    async def admitted(header: Callable[[str], str | None]) -> Actor:
        return await gate.admit(header, ("127.0.0.1", 1), Need(Scope.BELIEF_READ))

    async def story() -> None:
        assert await admitted(say_nothing) == Actor(ActorKind.AGENT, "anonymous")
        key, text = others.create(ActorKind.AGENT, "planner", roles=[Role.READER])
        passing.now += 0.95
        with pytest.raises(Unauthenticated):
            await admitted(say_nothing)
        assert await admitted(says(text)) == key.actor
        others.revoke(key.key_id)
        passing.now += 0.95
        with pytest.raises(Unauthenticated, match="revoked"):
            await admitted(says(text))

    asyncio.run(story())
    log.close()
    elsewhere.close()


def test_a_look_goes_on_beside_requests_until_it_is_late(tmp_path: Path) -> None:
    passing = Time()
    log = SQLiteStore(tmp_path / "keys.db")
    registry = KeyRegistry(log, elapsed=passing)
    gate = Gate(registry)

    async def story() -> None:
        await gate._refresh()
        assert registry.age == 0
        passing.now += 0.5
        await gate._refresh()
        looking = gate._looking
        assert looking is not None
        assert not looking.done()
        await gate._refresh()
        assert gate._looking is looking
        await looking
        assert registry.age == 0

    asyncio.run(story())
    log.close()


@pytest.mark.req("ID-KEY-07")
def test_where_the_keys_cannot_be_read_no_caller_is_let_in(tmp_path: Path) -> None:
    passing = Time()
    log = SQLiteStore(tmp_path / "keys.db")
    registry = KeyRegistry(log, elapsed=passing)
    text = registry.create(ActorKind.AGENT, "planner", roles=[Role.READER]).text
    gate = Gate(registry)

    async def story() -> None:
        await gate.admit(says(text), None, Need(Scope.BELIEF_READ))
        log.close()
        passing.now += 0.5
        await gate._refresh()
        await asyncio.wait([gate._looking] if gate._looking else [])
        passing.now += 0.5
        with pytest.raises(StoreUnavailable):
            await gate._refresh()

    asyncio.run(story())


@pytest.mark.req("ID-KEY-05")
def test_a_key_that_was_written_by_hand_shuts_the_gate(guarded: Guarded) -> None:
    text = guarded.key().text
    stream = guarded.server.log._streams[KEYS_STREAM]  # type: ignore[attr-defined]
    kept = stream.entries[0]
    stream.entries[0] = StoredEntry(kept.raw.replace(b"planner", b"owner!!"), kept.event_hash)
    with client_of(create_app(guarded.server)) as client:
        check_error(client.get("/v1/sessions", headers=bearing(text)), 500, "LEDGER_CORRUPT")


def test_every_role_is_a_set_of_scopes_and_an_operator_may_everything() -> None:
    assert SCOPES_OF.keys() == set(Role)
    assert SCOPES_OF[Role.OPERATOR] == set(Scope)
    assert Scope.SPACES_APPROVE not in SCOPES_OF[Role.AGENT]
