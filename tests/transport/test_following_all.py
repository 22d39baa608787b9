"""Live follow of all streams: each that a key may read, by filters, at whichever process."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores import SQLiteStore
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import FailingStore
from tests.support.effort import EFFORT
from tests.support.error_model import check_error
from tests.support.following import Told, client_of, following, following_sync
from tests.support.http_server import TIMEOUT_SECONDS, serving
from tests.support.postgres import fresh_database
from tests.support.space_client import OPS, POLICY
from tests.support.transports import DECLARATION

QUIET = 3600.0
OPERATOR = {"x-cmbs-actor": OPS}
ALL = "/v1/events"


def application(store: Any = None, gate: Gate | None = None) -> BeliefApp:
    return BeliefApp(Service(BeliefServer(store=store), gate, heartbeat_seconds=QUIET))


async def declare(client: httpx2.AsyncClient) -> str:
    return str((await client.post("/v1/sessions", json=DECLARATION)).json()["session_id"])


async def conclude(client: httpx2.AsyncClient, session_id: str, name: str) -> None:
    await client.post(f"/v1/sessions/{session_id}/conclusions", json={"conclusion_id": name})


async def take(events: AsyncIterator[Told], count: int) -> list[Told]:
    found: list[Told] = []
    while len(found) < count:
        event = await anext(events)
        assert event.name != "end", event
        found += [event] if event.name in {"entry", "corrupt"} else []
    return found


def run(story: Any) -> None:
    asyncio.run(asyncio.wait_for(story(), TIMEOUT_SECONDS))


@pytest.mark.req("LIVE-09")
def test_entries_of_sessions_and_spaces_come_with_the_name_of_their_stream() -> None:
    async def story() -> None:
        async with client_of(application()) as client, following(client, ALL, headers=OPERATOR) as events:
            head = await anext(events)
            assert (head.name, head.data) == ("head", {"cursor": head.id})
            session_id = await declare(client)
            await client.post("/v1/spaces", json={"space_id": "s", "policy": POLICY}, headers=OPERATOR)
            told = await take(events, 2)
            audits = [
                (await client.get(f"/v1/{path}/audit", headers=OPERATOR)).json()["events"][0]
                for path in (f"sessions/{session_id}", "spaces/s")
            ]
            assert [each.data for each in told] == [
                {"stream_kind": "session", "stream_id": session_id, "entry": audits[0]},
                {"stream_kind": "space", "stream_id": "s", "entry": audits[1]},
            ]

    run(story)


@pytest.mark.req("LIVE-09")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["one 0", "two 0", "one 1", "one 2", "s 0", "two 1"]),
        ({"kind": "space"}, ["s 0"]),
        ({"kind": ["space", "session"], "verb": "DECLARE_SESSION"}, ["one 0", "two 0"]),
        ({"stream_id": ["one", "s"]}, ["one 0", "one 1", "one 2", "s 0"]),
        ({"verb": ["DECLARE_CONCLUSION", "CREATE_SPACE"]}, ["one 2", "s 0", "two 1"]),
        ({"refused": "true"}, ["one 2"]),
        ({"refused": "false", "kind": "space"}, ["s 0"]),
    ],
)
def test_a_filter_leaves_out_what_is_not_wanted(query: dict[str, Any], expected: list[str]) -> None:
    async def story() -> None:
        async with client_of(application()) as client:
            one, two = await declare(client), await declare(client)
            names = {one: "one", two: "two", "s": "s"}
            entering = {"obligation_id": "o", "min_total_eliminations": 1}
            await client.post(f"/v1/sessions/{one}/obligations", json=entering)
            await conclude(client, one, "refused")
            await client.post("/v1/spaces", json={"space_id": "s", "policy": POLICY}, headers=OPERATOR)
            await conclude(client, two, "taken")
            params = {"from": "0", **query}
            if "stream_id" in query:
                params["stream_id"] = [one, "s"]
            async with following(client, ALL, params=params, headers=OPERATOR) as events:
                told = [each.data for each in await take(events, len(expected))]
            assert [f"{names[each['stream_id']]} {each['entry']['seq']}" for each in told] == expected

    run(story)


@pytest.mark.req("LIVE-09")
def test_what_cannot_be_asked_is_refused() -> None:
    async def story() -> None:
        async with client_of(application()) as client:
            refused: list[Any] = [
                {"from": "1"},
                {"kind": "keys"},
                {"refused": "yes"},
                {"from": ["0", "0"]},
                {"after": "x"},
            ]
            for query in (*refused, {"from": "0", "after": "x"}, {"verbs": "x"}, {"after": "WyJhIl0"}):
                check_error(await client.get(ALL, params=query), 400, "INVALID_REQUEST")
            check_error(await client.get(ALL, params={"after": "WyI5OTkiLCAiIiwgIjAiXQ"}), 404, "EVENT_NOT_FOUND")
        async with client_of(application(FailingStore(InMemoryStore()))) as client:
            check_error(await client.get(ALL), 400, "INVALID_REQUEST")

    run(story)


@pytest.mark.req("LIVE-09")
def test_a_key_sees_only_the_streams_that_it_may_read() -> None:
    store = InMemoryStore()
    registry = KeyRegistry(store)
    operator = registry.create(None, "ops", roles=[Role.OPERATOR])
    agent = registry.create(ActorKind.AGENT, "planner", roles=[Role.AGENT])
    app = application(store, Gate(registry))

    async def story() -> None:
        async with client_of(app) as client:
            client.headers["authorization"] = f"Bearer {operator.text}"
            one, two = await declare(client), await declare(client)
            body = {"space_id": "s", "policy": POLICY}
            await client.post("/v1/spaces", json=body)
            single = registry.create(ActorKind.AGENT, "single", scopes=[f"belief:read@{two}"])
            blind = registry.create(ActorKind.AGENT, "blind", scopes=["spaces:read"])
            await conclude(client, two, "last")
            for key, ids in ((operator, [one, two, "s", two]), (agent, [one, two, two]), (single, [two, two])):
                headers = {"authorization": f"Bearer {key.text}"}
                async with following(client, ALL, params={"from": "0"}, headers=headers) as events:
                    # The last is of a stream that all may read: nothing before it was told to those who may not.
                    assert [each.data["stream_id"] for each in await take(events, len(ids))] == ids
            refused = await client.get(ALL, headers={"authorization": f"Bearer {blind.text}"})
            check_error(refused, 403, "FORBIDDEN")

    run(story)


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2)), max_size=10)


@pytest.mark.req("LIVE-09")
@given(steps=STEPS)
@settings(max_examples=EFFORT.examples_for(25), deadline=None)
def test_wherever_a_stream_of_all_is_cut_the_parts_are_the_log(
    steps: list[tuple[int, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "cmbs.db"
    apps = [application(SQLiteStore(path)) for _ in range(2)]

    async def story() -> None:
        async with client_of(apps[0]) as first, client_of(apps[1]) as second:
            clients = [first, second]
            sessions = [await declare(clients[number % 2]) for number in range(3)]
            received: list[Any] = []
            place: dict[str, Any] = {"params": {"from": "0"}}
            n_written = len(sessions)
            for number, (session, writer, n_read) in enumerate(steps):
                await conclude(clients[writer], sessions[session], f"c{number}")
                n_written += 1
                # Read at the other process, and cut there.
                async with following(clients[1 - writer], ALL, **place) as events:
                    for told in await take(events, min(n_read, n_written - len(received))):
                        received.append(told.data)
                        place = {"headers": {"last-event-id": told.id}}
            async with following(first, ALL, **place) as events:
                received.extend(each.data for each in await take(events, n_written - len(received)))
            for session_id in sessions:
                mine = [each["entry"] for each in received if each["stream_id"] == session_id]
                assert mine == (await first.get(f"/v1/sessions/{session_id}/audit")).json()["events"]

    run(story)
    for app in apps:
        app.close()


@pytest.mark.req("LIVE-09")
def test_a_stream_that_does_not_verify_is_said_so_and_others_go_on(tmp_path: Path) -> None:
    writing = application(SQLiteStore(tmp_path / "cmbs.db"))

    async def write() -> None:
        async with client_of(writing) as client:
            for _ in range(2):
                await conclude(client, await declare(client), "a")

    run(write)
    writing.close()
    with sqlite3.connect(tmp_path / "cmbs.db") as database:
        (guard,) = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'audit_events_no_update'").fetchone()
        database.execute("DROP TRIGGER audit_events_no_update")
        (broken,) = database.execute("SELECT stream_id FROM audit_events WHERE rowid = 1").fetchone()
        database.execute("UPDATE audit_events SET entry = replace(entry, '\"a\"', '\"x\"') WHERE rowid = 2")
        database.execute(guard)
    database.close()
    app = application(SQLiteStore(tmp_path / "cmbs.db"))

    async def story() -> None:
        async with client_of(app) as client, following(client, ALL, params={"from": "0"}) as events:
            told = await take(events, 3)
            names = [(each.name, each.data["stream_id"] == broken) for each in told]
            assert names == [("corrupt", True), ("entry", False), ("entry", False)]
            assert told[0].data["code"] == "LEDGER_CORRUPT"

    run(story)
    app.close()


@pytest.mark.deep
@pytest.mark.req("LIVE-08", "LIVE-09")
@pytest.mark.postgres
def test_two_servers_over_postgresql_tell_every_entry_of_all_writers(tmp_path: Path) -> None:
    n_writers, rounds = 4, 25
    with (
        fresh_database() as url,
        serving(tmp_path, "--store", url) as one,
        serving(tmp_path, "--store", url) as two,
        one.client() as client,
        two.client() as other,
    ):
        servers = (one, two)

        def write(number: int) -> None:
            with servers[number % 2].client() as writer:
                session_id = writer.post("/v1/sessions", json=DECLARATION).json()["session_id"]
                for each in range(rounds):
                    # At the one server and at the other, so that both write to every stream; until one is killed.
                    with servers[each % 2].client() as sender, suppress(httpx2.TransportError):
                        sender.post(f"/v1/sessions/{session_id}/conclusions", json={"conclusion_id": f"c{each}"})

        threads = [Thread(target=write, args=(number,)) for number in range(n_writers)]
        received: list[Told] = []
        with following_sync(client, ALL, params={"from": "0"}) as events:
            for thread in threads:
                thread.start()
            while len(received) < n_writers * rounds // 2:
                received += [event for event in [next(events)] if event.name == "entry"]
        one.kill()
        with following_sync(other, ALL, headers={"last-event-id": received[-1].id}) as events:
            for thread in threads:
                thread.join(TIMEOUT_SECONDS)
            sessions = [each["session_id"] for each in other.get("/v1/sessions").json()["sessions"]]
            logs = {each: json.loads(other.get(f"/v1/sessions/{each}/audit").content)["events"] for each in sessions}
            while len(received) < sum(map(len, logs.values())):
                received += [event for event in [next(events)] if event.name == "entry"]
        for session_id, log in logs.items():
            assert [each.data["entry"] for each in received if each.data["stream_id"] == session_id] == log
