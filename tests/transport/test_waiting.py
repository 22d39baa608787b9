"""Long polls: answered at once when there is news, in time when there is none, and never in the way of others."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.stores import SQLiteStore
from cmbs.stores.memory import InMemoryStore
from tests.support.error_model import check_error
from tests.support.http_server import TIMEOUT_SECONDS, serving
from tests.support.in_process import scope_of
from tests.support.space_client import OPS, PLANNER, POLICY
from tests.support.transports import DECLARATION

# Longer than any test takes: what ends, ended because of something.
LONG = "3600"
ACTOR = {"x-cmbs-actor": OPS}
Story = Callable[[httpx2.AsyncClient], Awaitable[None]]


def client_of(app: BeliefApp) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost", timeout=TIMEOUT_SECONDS)


def tell(story: Story, app: BeliefApp | None = None) -> None:
    served = app or BeliefApp(Service(BeliefServer(), max_wait_seconds=3600))

    async def run() -> None:
        async with client_of(served) as client:
            await asyncio.wait_for(story(client), TIMEOUT_SECONDS)

    asyncio.run(run())
    served.close()


async def open_session(client: httpx2.AsyncClient) -> str:
    return f"/v1/sessions/{(await client.post('/v1/sessions', json=DECLARATION)).json()['session_id']}"


async def waiting(app: BeliefApp, count: int = 1) -> None:
    """Until so many requests wait."""
    while app.service.waiting._count < count:  # noqa: ASYNC110 - a request begins to wait in the midst of an exchange
        await asyncio.sleep(0)


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("HTTP-EXT-24")
@pytest.mark.parametrize("after", [{}, {"after": "0"}])
def test_a_read_that_waits_is_answered_by_the_next_event(after: dict[str, str]) -> None:
    app = BeliefApp(Service(BeliefServer(), max_wait_seconds=3600))

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        reading = asyncio.create_task(client.get(path, params={"wait": LONG, **after}))
        await waiting(app)
        body = {"source_id": "s", "observation_id": "o", "eliminated": ["a"]}
        await client.post(f"{path}/eliminate", json=body)
        assert (await reading).json()["n_survivors"] == 3

    tell(story, app)


@pytest.mark.req("HTTP-EXT-24")
def test_news_that_are_there_already_are_not_waited_for() -> None:
    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        first = (await client.get(f"{path}/audit")).json()["events"][0]["event_id"]
        await client.post(f"{path}/conclusions", json={"conclusion_id": "a"})
        for after in ("0", first):
            assert (await client.get(path, params={"wait": LONG, "after": after})).status_code == 200
        assert (await client.get(path, params={"wait": "0"})).json()["n_survivors"] == 4

    tell(story)


@pytest.mark.req("HTTP-EXT-24")
def test_what_another_process_writes_is_seen(tmp_path: Path) -> None:
    mine, theirs = [BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db")) for _ in range(2)]
    app, other = BeliefApp(Service(mine, max_wait_seconds=3600)), create_app(theirs)

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        reading = asyncio.create_task(client.get(path, params={"wait": LONG}))
        await waiting(app)
        async with client_of(other) as elsewhere:
            await elsewhere.post(f"{path}/conclusions", json={"conclusion_id": "a"})
        assert (await reading).status_code == 200

    tell(story, app)
    other.close()


@pytest.mark.req("HTTP-EXT-24")
def test_a_wait_ends_with_its_time_and_the_server_sets_the_longest() -> None:
    app = BeliefApp(Service(BeliefServer(), max_wait_seconds=0))

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        assert (await client.get(path, params={"wait": LONG})).json()["n_survivors"] == 4

    tell(story, app)


@pytest.mark.req("HTTP-EXT-24")
def test_what_cannot_be_waited_for_is_said() -> None:
    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        for query in ({"wait": "soon"}, {"wait": "3601"}, {"wait": "1", "at": "0"}, {"after": "0"}, {"wait": "-1"}):
            check_error(await client.get(path, params=query), 400, "INVALID_REQUEST")
        check_error(await client.get(path, params={"wait": LONG, "after": "nope"}), 404, "EVENT_NOT_FOUND")
        check_error(await client.get("/v1/sessions/nope", params={"wait": LONG}), 404, "SESSION_NOT_FOUND")

    tell(story)


# --- proposals --------------------------------------------------------------------------------------------------------


async def propose(client: httpx2.AsyncClient, tool_id: str = "risky") -> dict[str, Any]:
    await client.post("/v1/spaces", json={"space_id": "s", "policy": POLICY}, headers=ACTOR)
    tool = {"tool_id": tool_id, "kind": "caller", "args_schema": {"type": "object"}}
    await client.post("/v1/spaces/s/tools", json=tool, headers=ACTOR)
    token = {"token_id": "token", "agent_id": "planner", "tool_ids": [tool_id]}
    await client.post("/v1/spaces/s/capabilities", json=token, headers=ACTOR)
    call = {"type": "tool_call", "tool_id": tool_id, "args": {}, "capability_token_id": "token", "idempotency_key": "k"}
    snapshot_id = (await client.get("/v1/spaces/s", headers=ACTOR)).json()["state_snapshot_id"]
    body = {
        "proposal_id": "p",
        "state_snapshot_id": snapshot_id,
        "provenance": {"source": "planner", "timestamp": "2026-01-01T00:00:00Z"},
        "candidates": [call],
    }
    answer = await client.post("/v1/spaces/s/proposals", json=body, headers={"x-cmbs-actor": PLANNER})
    proposed: dict[str, Any] = answer.json()
    return proposed


@pytest.mark.req("HTTP-EXT-24")
def test_a_proposal_is_waited_for_until_it_is_settled() -> None:
    app = BeliefApp(Service(BeliefServer(), max_wait_seconds=3600))

    async def story(client: httpx2.AsyncClient) -> None:
        proposed = await propose(client)
        assert proposed["status"] == "asked"
        reading = asyncio.create_task(client.get("/v1/spaces/s/proposals/p", params={"wait": LONG}, headers=ACTOR))
        await waiting(app)
        # Events that settle nothing of it do not end the wait.
        await client.post("/v1/spaces/s/mode", json={"mode": "enforce"}, headers=ACTOR)
        assert not reading.done()
        await client.post(f"/v1/spaces/s/approvals/{proposed['approval_ids'][0]}/reject", json={}, headers=ACTOR)
        assert (await reading).json()["status"] == "rejected"
        settled = await client.get("/v1/spaces/s/proposals/p", params={"wait": LONG}, headers=ACTOR)
        assert settled.json()["status"] == "rejected"
        gone = await client.get("/v1/spaces/s/proposals/q", params={"wait": LONG}, headers=ACTOR)
        check_error(gone, 404, "RECORD_NOT_FOUND")
        other = await client.get("/v1/spaces/s/tools/risky", params={"wait": LONG}, headers=ACTOR)
        check_error(other, 400, "INVALID_REQUEST")

    tell(story, app)


# --- others -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("HTTP-EXT-25")
def test_a_caller_that_goes_away_no_longer_waits() -> None:
    app = BeliefApp(Service(BeliefServer(), max_wait_seconds=3600))

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        left = asyncio.Event()
        coming = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> dict[str, Any]:
            for event in coming:
                return event
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(_: Any) -> None:
            pass

        asked = asyncio.create_task(app(scope_of("GET", f"{path}?wait={LONG}".encode()), receive, send))
        await waiting(app)
        left.set()
        await asked
        assert app.service.waiting._count == 0

    tell(story, app)


@pytest.mark.req("HTTP-EXT-25")
def test_those_who_wait_are_bounded_and_leave_room_for_others() -> None:
    app = BeliefApp(Service(BeliefServer(), max_wait_seconds=3600, max_waiters=2), 4)

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        reading = [asyncio.create_task(client.get(path, params={"wait": LONG})) for _ in range(2)]
        await waiting(app, 2)
        busy = await client.get(path, params={"wait": LONG})
        assert check_error(busy, 503, "BUSY")["limit"] == "waiting_requests"
        await client.post(f"{path}/conclusions", json={"conclusion_id": "a"})
        assert [(await each).status_code for each in reading] == [200, 200]

    tell(story, app)


@pytest.mark.req("HTTP-EXT-25")
def test_many_wait_without_a_thread_each() -> None:
    app = BeliefApp(Service(BeliefServer(store=InMemoryStore()), max_wait_seconds=3600))

    async def story(client: httpx2.AsyncClient) -> None:
        path = await open_session(client)
        reading = [asyncio.create_task(client.get(path, params={"wait": LONG})) for _ in range(300)]
        await waiting(app, 300)
        await client.post(f"{path}/conclusions", json={"conclusion_id": "a"})
        assert {(await each).status_code for each in reading} == {200}
        assert app.service.waiting._waiters == {}

    tell(story, app)


@pytest.mark.slow
@pytest.mark.req("HTTP-EXT-25")
def test_a_server_that_stops_answers_those_who_wait(tmp_path: Path) -> None:
    answers: list[httpx2.Response] = []
    # Of two requests at a time, one may wait.
    with serving(tmp_path, "--stop-seconds", "3600", "--max-requests", "2") as server, server.client() as client:
        opened = client.post("/v1/sessions", json=DECLARATION).json()["session_id"]
        path = f"/v1/sessions/{opened}"

        def read() -> None:
            # The one place may be taken by the request that looks whether it is taken.
            with server.client() as other:
                while (answer := other.get(path, params={"wait": "30"})).status_code == 503:
                    pass
                answers.append(answer)

        reader = Thread(target=read)
        reader.start()
        while client.get(path, params={"wait": "0"}).status_code != 503:
            assert reader.is_alive()
        assert server.stop() == 0
        reader.join(TIMEOUT_SECONDS)
    assert [answer.status_code for answer in answers] == [200]
