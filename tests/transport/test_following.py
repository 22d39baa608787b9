"""Live follow of a session or a space: every entry once and in order, wherever a stream is cut."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmbs.api.operations import EVENT_OPERATIONS
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.http import BeliefApp
from cmbs.http.live import feed, followers
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.kernel.scopes import Scope
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores import SQLiteStore
from cmbs.stores.memory import InMemoryStore
from tests.support.carriers import CARRIERS, carry
from tests.support.effort import EFFORT
from tests.support.error_model import check_error
from tests.support.following import Told, client_of, following, following_sync, take_entries
from tests.support.http_server import TIMEOUT_SECONDS, serving
from tests.support.space_client import OPS, PLANNER, POLICY
from tests.support.transports import DECLARATION

pytestmark = pytest.mark.slow

Story = Callable[[httpx2.AsyncClient], Awaitable[None]]
# No test waits for one that it does not want.
QUIET = 3600.0


def tell(story: Story, app: BeliefApp | None = None) -> None:
    served = app or BeliefApp(Service(BeliefServer(), heartbeat_seconds=QUIET))

    async def run() -> None:
        async with client_of(served) as client:
            await asyncio.wait_for(story(client), TIMEOUT_SECONDS)
        assert served.service.followers.count == 0
        assert served.service.followers._feeds == {}

    asyncio.run(run())
    served.close()


async def open_session(client: httpx2.AsyncClient) -> str:
    return f"/v1/sessions/{(await client.post('/v1/sessions', json=DECLARATION)).json()['session_id']}"


async def conclude(client: httpx2.AsyncClient, path: str, *names: str) -> None:
    for name in names:
        assert (await client.post(f"{path}/conclusions", json={"conclusion_id": name})).status_code == 200


async def read_audit(client: httpx2.AsyncClient, path: str, **options: Any) -> list[Any]:
    return list((await client.get(f"{path}/audit", **options)).json()["events"])


# --- what comes -------------------------------------------------------------------------------------------------------


@pytest.mark.req("LIVE-01")
def test_a_follower_is_told_the_head_and_then_what_is_written_from_now_on() -> None:
    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        await conclude(client, path, "a")
        async with following(client, f"{path}/events") as events:
            last = (await read_audit(client, path))[-1]
            head = {"seq": 1, "event_id": last["event_id"], "event_hash": last["event_hash"]}
            assert await anext(events) == Told("head", "1", head)
            await conclude(client, path, "b", "c")
            entries = await take_entries(events, 2)
        written = (await read_audit(client, path))[2:]
        assert entries == [Told("entry", str(each["seq"]), each) for each in written]

    tell(story)


@pytest.mark.req("LIVE-01")
def test_the_data_of_an_entry_is_what_the_audit_gives_byte_for_byte() -> None:
    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        await conclude(client, path, "ü", "line\nend\u2028")
        audit = (await client.get(f"{path}/audit")).content
        async with client.stream("GET", f"{path}/events", params={"from": "0"}) as answer:
            received = b""
            async for piece in answer.aiter_raw():
                received += piece
                if b"id: 2\n" in received and received.endswith(b"\n\n"):
                    break
        lines = [line.removeprefix(b"data: ") for line in received.split(b"\n") if line.startswith(b"data: ")]
        assert b'{"events":[' + b",".join(lines[1:4]) + b'],"next_cursor":null}' == audit
        assert received.startswith(b"retry: 1000\n")

    tell(story)


@pytest.mark.req("LIVE-02")
@pytest.mark.parametrize(
    ("headers", "query", "first"),
    [
        ({}, {"from": "0"}, 0),
        ({}, {"from": "2"}, 2),
        ({}, {"after": "0"}, 1),
        ({"last-event-id": "1"}, {}, 2),
        # A browser that connects again sends the address as it was.
        ({"last-event-id": "1"}, {"from": "0"}, 2),
        ({"last-event-id": "1"}, {"after": "0"}, 2),
        ({"last-event-id": " "}, {"from": "1"}, 1),
    ],
)
def test_a_stream_begins_where_it_is_told_to(headers: dict[str, str], query: dict[str, str], first: int) -> None:
    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        await conclude(client, path, "a", "b", "c")
        async with following(client, f"{path}/events", headers=headers, params=query) as events:
            head = await anext(events)
            assert (head.name, head.data["seq"]) == ("head", 3)
            # Where it goes on if it is cut right here.
            assert head.id == ("" if first == 0 else str(first - 1))
            assert [each.data["seq"] for each in await take_entries(events, 4 - first)] == list(range(first, 4))

    tell(story)


@pytest.mark.req("LIVE-02")
def test_a_place_that_is_none_is_refused_before_anything_is_sent() -> None:
    async def story(client: httpx2.AsyncClient) -> None:
        path = f"{await open_session(client)}/events"
        for query in ({"from": "x"}, {"after": "-1"}, {"from": "0", "after": "0"}, {"to": "1"}, {"from": "1" * 30}):
            check_error(await client.get(path, params=query), 400, "INVALID_REQUEST")
        check_error(await client.get(path, headers={"last-event-id": "x"}), 400, "INVALID_REQUEST")
        check_error(await client.get(path, headers={"last-event-id": "7"}), 404, "EVENT_NOT_FOUND")
        check_error(await client.get(path, params={"from": "2"}), 404, "EVENT_NOT_FOUND")
        check_error(await client.get("/v1/sessions/nope/events"), 404, "SESSION_NOT_FOUND")
        check_error(await client.get("/v1/spaces/nope/events", headers={"x-cmbs-actor": OPS}), 404, "SPACE_NOT_FOUND")
        check_error(await client.post(path), 405, "METHOD_NOT_ALLOWED")

    tell(story)


# Writes, and how many entries are read before a cut.
STEPS = st.lists(st.one_of(st.just("write"), st.integers(0, 3)), max_size=12)


@pytest.mark.req("LIVE-02")
@given(steps=STEPS)
@settings(max_examples=EFFORT.examples_for(40), deadline=None)
def test_wherever_a_stream_is_cut_the_parts_are_the_log(steps: list[Any]) -> None:
    received: list[Any] = []

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        seen, n_written = -1, 1
        for number, step in enumerate([*steps, "write"]):
            if step == "write":
                await conclude(client, path, f"c{number}")
                n_written += 1
                continue
            place = {"headers": {"last-event-id": str(seen)}} if seen >= 0 else {"params": {"from": "0"}}
            async with following(client, f"{path}/events", **place) as events:
                for told in await take_entries(events, min(step, n_written - 1 - seen)):
                    received.append(told.data)
                    seen = int(told.id)
        async with following(client, f"{path}/events", params={"from": str(seen + 1)}) as events:
            received.extend(each.data for each in await take_entries(events, n_written - 1 - seen))
        assert received == await read_audit(client, path)

    tell(story, BeliefApp(Service(BeliefServer(store=InMemoryStore()), heartbeat_seconds=QUIET)))


@pytest.mark.req("LIVE-03")
def test_a_heartbeat_says_what_the_time_is_and_where_the_log_ends() -> None:
    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        async with following(client, f"{path}/events") as events:
            await anext(events)
            for _ in range(2):
                beat = await anext(events)
                assert (beat.name, beat.id, beat.data["seq"]) == ("heartbeat", "0", 0)
                assert beat.data["at"].endswith("Z")

    tell(story, BeliefApp(Service(BeliefServer(), heartbeat_seconds=0.01)))


@pytest.mark.req("LIVE-01")
def test_a_space_is_followed_by_operators_alone() -> None:
    operator = {"x-cmbs-actor": OPS}

    async def story(client: httpx2.AsyncClient) -> None:
        await client.post("/v1/spaces", json={"space_id": "s", "policy": POLICY}, headers=operator)
        async with following(client, "/v1/spaces/s/events", headers=operator, params={"from": "0"}) as events:
            await client.post("/v1/spaces/s/mode", json={"mode": "observe"}, headers=operator)
            entries = await take_entries(events, 2)
        assert [each.data for each in entries] == await read_audit(client, "/v1/spaces/s", headers=operator)
        refused = await client.get("/v1/spaces/s/events", headers={"x-cmbs-actor": PLANNER})
        assert check_error(refused, 403, "FORBIDDEN")["reason"] == "operators_only"

    tell(story)


# --- slow readers, many readers ---------------------------------------------------------------------------------------


@pytest.mark.req("LIVE-04")
def test_a_reader_that_stops_reading_holds_up_no_writer_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = BeliefApp(Service(BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db")), heartbeat_seconds=QUIET))
    monkeypatch.setattr(feed, "MAX_TAIL_BYTES", 4_000)
    monkeypatch.setattr(feed, "MIN_TAIL_BYTES", 1)
    monkeypatch.setattr(followers, "MAX_CHUNK_BYTES", 2_000)
    count = 200

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        async with following(client, f"{path}/events") as slow, following(client, f"{path}/events") as fast:
            for number in range(count):
                await conclude(client, path, f"c{number}")
            assert [each.data["seq"] for each in await take_entries(fast, count)] == list(range(1, count + 1))
            (kept,) = app.service.followers._feeds.values()
            assert sum(len(item.frame) for item in kept._items) <= 4_000
            assert [each.data["seq"] for each in await take_entries(slow, count)] == list(range(1, count + 1))

    tell(story, app)


@pytest.mark.req("LIVE-04")
def test_an_entry_that_is_larger_than_what_is_kept_comes_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_TAIL_BYTES", 1)
    monkeypatch.setattr(feed, "MIN_TAIL_BYTES", 1)
    monkeypatch.setattr(followers, "MAX_CHUNK_BYTES", 1)

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        async with following(client, f"{path}/events") as events:
            await conclude(client, path, "a", "b")
            assert [each.data["seq"] for each in await take_entries(events, 2)] == [1, 2]

    tell(story)


@pytest.mark.req("LIVE-05")
def test_followers_are_bounded_and_leave_room_for_requests() -> None:
    app = BeliefApp(Service(BeliefServer(), max_followers=2, heartbeat_seconds=QUIET), 2)

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        async with following(client, f"{path}/events") as first:
            await anext(first)
            async with following(client, f"{path}/events"):
                busy = check_error(await client.get(f"{path}/events"), 503, "BUSY")
                assert (busy["limit"], busy["maximum"]) == ("max_followers", 2)
                await conclude(client, path, "a")
            # One that went away leaves its place to another.
            async with following(client, f"{path}/events"):
                assert app.service.followers.count == 2

    tell(story, app)


@pytest.mark.req("LIVE-05")
def test_many_follow_one_session_and_each_is_told_everything() -> None:
    app = BeliefApp(Service(BeliefServer(), max_followers=200, heartbeat_seconds=QUIET))

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)

        async def follow() -> list[int]:
            async with following(client, f"{path}/events", params={"from": "0"}) as events:
                return [each.data["seq"] for each in await take_entries(events, 4)]

        reading = [asyncio.create_task(follow()) for _ in range(200)]
        await conclude(client, path, "a", "b", "c")
        assert [await each for each in reading] == [[0, 1, 2, 3]] * 200

    tell(story, app)


# --- how a stream ends ------------------------------------------------------------------------------------------------


@pytest.mark.req("LIVE-06")
def test_a_server_that_stops_says_so_to_its_followers() -> None:
    app = BeliefApp(Service(BeliefServer(), heartbeat_seconds=QUIET))

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        async with following(client, f"{path}/events") as events:
            await anext(events)
            app.drain()
            assert [each async for each in events] == [Told("end", "0", {"reason": "shutdown"})]
        check_error(await client.get(f"{path}/events"), 503, "BUSY")

    tell(story, app)


@pytest.mark.req("LIVE-06")
def test_a_key_that_is_revoked_ends_its_stream_before_another_entry() -> None:
    store = InMemoryStore()
    registry = KeyRegistry(store)
    made = registry.create(ActorKind.AGENT, "planner", scopes=[Scope.BELIEF_READ, Scope.BELIEF_WRITE])
    other = registry.create(ActorKind.AGENT, "other", scopes=[Scope.BELIEF_WRITE])
    app = BeliefApp(Service(BeliefServer(store=store), Gate(registry), heartbeat_seconds=QUIET))

    async def story(client: httpx2.AsyncClient) -> None:
        client.headers["authorization"] = f"Bearer {made.text}"
        path = await open_session(client)
        async with following(client, f"{path}/events") as events:
            await anext(events)
            registry.revoke(made.key.key_id)
            written = await client.post(
                f"{path}/conclusions", json={"conclusion_id": "a"}, headers={"authorization": f"Bearer {other.text}"}
            )
            assert written.status_code == 200
            (end,) = [each async for each in events]
            assert (end.name, end.data["reason"], end.data["code"]) == ("end", "permission_lost", "UNAUTHENTICATED")

    tell(story, app)


@pytest.mark.req("LIVE-06")
def test_a_log_that_was_changed_ends_the_streams_that_read_it(tmp_path: Path) -> None:
    app = BeliefApp(Service(BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db")), heartbeat_seconds=QUIET))

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        await conclude(client, path, "a", "b")
        with sqlite3.connect(tmp_path / "cmbs.db") as database:
            database.execute("DROP TRIGGER audit_events_no_update")
            database.execute("UPDATE audit_events SET entry = replace(entry, '\"a\"', '\"x\"') WHERE seq = 1")
        database.close()
        async with following(client, f"{path}/events", params={"from": "0"}) as events:
            end = [each async for each in events][-1]
            assert (end.name, end.data["reason"], end.data["code"]) == ("end", "ledger_corrupt", "LEDGER_CORRUPT")

    tell(story, app)


@pytest.mark.req("LIVE-06")
def test_a_store_that_cannot_be_read_any_more_ends_the_stream(tmp_path: Path) -> None:
    app = BeliefApp(Service(BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db")), heartbeat_seconds=QUIET))

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        await conclude(client, path, "a")
        async with following(client, f"{path}/events") as events:
            await anext(events)
            (tmp_path / "cmbs.db").rename(tmp_path / "away.db")
            again = following(client, f"{path}/events", params={"from": "0"})
            async with again as reading:
                end = [each async for each in reading][-1]
            assert (end.name, end.data["reason"]) == ("end", "store_unavailable")
            (tmp_path / "away.db").rename(tmp_path / "cmbs.db")

    tell(story, app)


# --- over the network, and across processes ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("LIVE-07")
@pytest.mark.parametrize("carrier", [each for each in CARRIERS if each != "asgi"])
def test_streams_come_over_every_transport_as_they_are_written(carrier: str, tmp_path: Path) -> None:
    with carry(carrier, tmp_path) as send:
        client: httpx2.Client = send.__self__  # type: ignore[attr-defined]
        path = f"/v1/sessions/{client.post('/v1/sessions', json=DECLARATION).json()['session_id']}"
        # Compression would hold back what is small.
        headers = {"accept-encoding": "gzip"}
        with following_sync(client, f"{path}/events", headers=headers, params={"from": "0"}) as events:
            assert [next(events).name for _ in range(2)] == ["head", "entry"]
            for number in range(3):
                client.post(f"{path}/conclusions", json={"conclusion_id": f"c{number}"})
                assert next(event for event in events if event.name == "entry").data["seq"] == number + 1
        bare = client.head(f"{path}/events")
        assert (bare.status_code, bare.headers["content-type"]) == (200, "text/event-stream")
        assert "content-encoding" not in bare.headers


@pytest.mark.req("LIVE-07")
def test_what_another_process_writes_is_told(tmp_path: Path) -> None:
    mine, theirs = [BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db")) for _ in range(2)]
    app, other = BeliefApp(Service(mine, heartbeat_seconds=QUIET)), create_app(theirs)

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        async with following(client, f"{path}/events") as events, client_of(other) as elsewhere:
            await conclude(elsewhere, path, "a", "b")
            await conclude(client, path, "c")
            assert [each.data["seq"] for each in await take_entries(events, 3)] == [1, 2, 3]

    tell(story, app)
    other.close()


@pytest.mark.slow
@pytest.mark.req("LIVE-06", "LIVE-07")
def test_a_stream_goes_on_at_another_worker_after_a_kill_and_ends_with_a_stop(tmp_path: Path) -> None:
    received: list[Told] = []
    with serving(tmp_path, "--workers", "2") as server, server.client() as client:
        path = f"/v1/sessions/{client.post('/v1/sessions', json=DECLARATION).json()['session_id']}"
        with following_sync(client, f"{path}/events", params={"from": "0"}) as events:
            received += [next(event for event in events if event.name == "entry")]
            for worker in server.workers():
                worker.kill()
            with pytest.raises(httpx2.TransportError):
                for _ in events:
                    pass
        server.wait_until_ready()
        with server.client() as writer:
            for number in range(3):
                writer.post(f"{path}/conclusions", json={"conclusion_id": f"c{number}"})
            headers = {"last-event-id": received[-1].id}
            with server.client() as again, following_sync(again, f"{path}/events", headers=headers) as events:
                while len(received) < 4:
                    received += [event for event in [next(events)] if event.name == "entry"]
                assert [each.data for each in received] == json.loads(writer.get(f"{path}/audit").content)["events"]
                server.process.terminate()
                assert list(events)[-1] == Told("end", "3", {"reason": "shutdown"})
        assert server.process.wait(TIMEOUT_SECONDS) == 0


def test_what_is_followed_is_not_a_document_and_says_so_in_the_table() -> None:
    for operation in EVENT_OPERATIONS:
        assert operation.is_followed
        assert (operation.takes_fields, operation.is_tagged, operation.takes_preference) == (False, False, False)
