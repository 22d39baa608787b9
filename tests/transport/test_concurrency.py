"""Many requests at once: one unbroken chain, each answer its own, no caller held up by the million ids of another."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.stores import InMemoryStore, SQLiteStore
from tests.support.store_fixture import verified
from tests.support.transports import ONTOLOGY

MANY = 48
UNIVERSE = [f"h{number:03}" for number in range(MANY)]

Script = Callable[[httpx2.AsyncClient], Awaitable[Any]]


@pytest.fixture
def server(store: InMemoryStore | SQLiteStore) -> Iterator[BeliefServer]:
    server = BeliefServer(store=store)
    yield server
    server.close()


def run(server: BeliefServer, script: Script) -> Any:
    """Play a script to a server over ASGI, all in one event loop."""

    async def played() -> Any:
        transport = httpx2.ASGITransport(create_app(server))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await script(client)

    return asyncio.run(played())


async def declared(client: httpx2.AsyncClient, hypotheses: list[str]) -> str:
    answer = await client.post("/v1/sessions", json={"ontology": ONTOLOGY, "hypotheses": hypotheses})
    session_id: str = answer.json()["session_id"]
    return session_id


def elimination(number: int, source_id: str = "s") -> dict[str, Any]:
    return {"source_id": source_id, "observation_id": str(number), "eliminated": [UNIVERSE[number]]}


@pytest.mark.req("BS-5.2-CONC-01")
def test_concurrent_writes_to_one_session_make_one_unbroken_chain(server: BeliefServer) -> None:
    async def script(client: httpx2.AsyncClient) -> tuple[str, list[httpx2.Response]]:
        session_id = await declared(client, UNIVERSE)
        path = f"/v1/sessions/{session_id}/eliminate"
        writes = [client.post(path, json=elimination(number)) for number in range(MANY)]
        return session_id, await asyncio.gather(*writes)

    session_id, answers = run(server, script)
    assert Counter(answer.status_code for answer in answers) == {200: MANY}
    acknowledged = {answer.json()["audit_event_id"] for answer in answers}
    events = server.audit_trace(session_id)
    assert {event.event_id for event in events[1:]} == acknowledged
    assert len(events) == MANY + 1
    assert verified(server, session_id).survivors == []
    # Each answer shows the belief right after its own event: as many survivors as were left then.
    assert {answer.json()["snapshot"]["n_survivors"] for answer in answers} == set(range(MANY))


@pytest.mark.req("BS-5.2-CONC-02")
def test_concurrent_repeats_of_one_observation_are_applied_once(server: BeliefServer) -> None:
    async def script(client: httpx2.AsyncClient) -> tuple[str, list[httpx2.Response]]:
        session_id = await declared(client, UNIVERSE)
        path = f"/v1/sessions/{session_id}/eliminate"
        return session_id, await asyncio.gather(*(client.post(path, json=elimination(7)) for _ in range(MANY)))

    session_id, answers = run(server, script)
    assert {answer.status_code for answer in answers} == {200}
    # All but the first say that they are repeats; beside that, they say the same.
    assert sum("replayed" in answer.json() for answer in answers) == MANY - 1
    told = [answer.json() for answer in answers]
    assert all({**told[0], "replayed": 0, "current": 0} == {**each, "replayed": 0, "current": 0} for each in told)
    assert len(server.audit_trace(session_id)) == 2


def test_concurrent_declarations_under_one_key_are_one_session(server: BeliefServer) -> None:
    async def script(client: httpx2.AsyncClient) -> list[httpx2.Response]:
        body, headers = {"ontology": ONTOLOGY, "hypotheses": UNIVERSE}, {"Idempotency-Key": "one"}
        return await asyncio.gather(*(client.post("/v1/sessions", json=body, headers=headers) for _ in range(MANY)))

    answers = run(server, script)
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["session_id"] for answer in answers}) == 1
    assert len(server.list_sessions()) == 1


@pytest.mark.req("HTTP-EXT-09")
def test_of_many_who_saw_the_same_head_one_writes(server: BeliefServer) -> None:
    async def script(client: httpx2.AsyncClient) -> tuple[str, list[httpx2.Response]]:
        session_id = await declared(client, UNIVERSE)
        path = f"/v1/sessions/{session_id}"
        headers = {"If-Match": (await client.get(path)).headers["etag"]}
        writes = [client.post(f"{path}/eliminate", json=elimination(n), headers=headers) for n in range(MANY)]
        return session_id, await asyncio.gather(*writes)

    session_id, answers = run(server, script)
    assert Counter(answer.status_code for answer in answers) == {200: 1, 412: MANY - 1}
    assert len(server.audit_trace(session_id)) == 2


def test_writes_to_many_sessions_and_reads_in_between_stay_apart(server: BeliefServer) -> None:
    async def told(client: httpx2.AsyncClient, number: int) -> tuple[str, list[str]]:
        session_id = await declared(client, UNIVERSE)
        for step in range(5):
            await client.post(f"/v1/sessions/{session_id}/eliminate", json=elimination(number + step))
            belief = await client.get(f"/v1/sessions/{session_id}")
            assert belief.json()["n_survivors"] == MANY - step - 1
        return session_id, UNIVERSE[number : number + 5]

    async def script(client: httpx2.AsyncClient) -> list[tuple[str, list[str]]]:
        return await asyncio.gather(*(told(client, number) for number in range(20)))

    for session_id, gone in run(server, script):
        assert verified(server, session_id).survivors == sorted(set(UNIVERSE) - set(gone))


def test_a_caller_that_is_cancelled_leaves_a_whole_write_or_none(server: BeliefServer) -> None:
    async def script(client: httpx2.AsyncClient) -> str:
        session_id = await declared(client, UNIVERSE)
        path = f"/v1/sessions/{session_id}/eliminate"
        doomed = [asyncio.ensure_future(client.post(path, json=elimination(number))) for number in range(MANY)]
        for number, task in enumerate(doomed):
            for _ in range(number % 7):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*doomed, return_exceptions=True)
        answer = await client.post(path, json={**elimination(0), "source_id": "after"})
        assert answer.status_code == 200
        return session_id

    session_id = run(server, script)
    events = server.audit_trace(session_id)
    gone = {hypothesis_id for event in events for hypothesis_id in event.payload.get("eliminated", [])}
    assert verified(server, session_id).survivors == sorted(set(UNIVERSE) - gone)


@pytest.mark.slow
@pytest.mark.req("BS-5.2-CONC-04")
def test_a_large_declaration_does_not_keep_others_waiting(server: BeliefServer) -> None:
    large = [f"hypothesis-{number:06}" for number in range(200_000)]

    async def script(client: httpx2.AsyncClient) -> tuple[int, httpx2.Response]:
        session_id = await declared(client, UNIVERSE)
        body = httpx2.Request("POST", "http://x", json={"ontology": ONTOLOGY, "hypotheses": large}).read()
        headers = {"content-type": "application/json"}
        declaring = asyncio.ensure_future(client.post("/v1/sessions", content=body, headers=headers))
        served = 0
        while not declaring.done():
            answer = await client.post(f"/v1/sessions/{session_id}/conclusions", json={"conclusion_id": str(served)})
            assert answer.status_code == 200
            served += 1
            await asyncio.sleep(0)
        return served, await declaring

    served, opened = run(server, script)
    assert opened.json()["snapshot"]["survivors"] == large
    assert served > 5
