"""A server that knows that its database was put back serves what it can prove, and acknowledges no write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cmbs.bootstrap import Settings, build_app
from cmbs.http import BeliefApp
from cmbs.spi.journal import JOURNAL_BEGINNING, JournalLog
from cmbs.stores import open_store
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.set_back import take_snapshot
from tests.support.store_fixture import StoreFixture
from tests.support.transports import DECLARATION
from tests.transport.test_observations import KIT, OPERATOR

pytestmark = pytest.mark.slow

WEBHOOK = {"webhook_id": "pager", "url": "https://example.com/hook", "events": ["ledger.corrupt"]}


class World:
    """A signing server over a database, snapshots of that, and what clients wrote."""

    def __init__(self, fixture: StoreFixture, directory: Path) -> None:
        self.fixture = fixture
        self._settings = Settings(
            store=fixture.url,
            signing_key=str(directory / "signing.key"),
            # Signed when a test asks for it.
            checkpoint_interval=3600,
            webhook_key=str(directory / "webhook.key"),
        )
        with self.serve() as (_, client):
            self.first: str = write(client, "/v1/sessions", DECLARATION)["session_id"]
            write(client, "/v1/spaces", {"space_id": "ops"})
            sign(client)
        self.older = take_snapshot(fixture.url)
        with self.serve() as (_, client):
            self.second: str = write(client, "/v1/sessions", DECLARATION)["session_id"]
            write(client, f"/v1/sessions/{self.first}/eliminate", elimination("1"))
            sign(client)
        self.newest = take_snapshot(fixture.url)

    @contextmanager
    def serve(self) -> Iterator[tuple[BeliefApp, Client]]:
        app = build_app(self._settings, {})
        try:
            with client_of(app) as client:
                yield app, client
        finally:
            app.close()

    def count_entries(self) -> int:
        """How many entries there are in the whole database."""
        store = open_store(self.fixture.url)
        try:
            assert isinstance(store, JournalLog)
            return len(store.journal(JOURNAL_BEGINNING, 10_000))
        finally:
            store.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.deep)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with StoreFixture.at(request.param, tmp_path) as fixture:
        yield World(fixture, tmp_path)


def elimination(observation_id: str) -> dict[str, Any]:
    return {"source_id": "source", "observation_id": observation_id, "eliminated": ["a"]}


def post(client: Client, path: str, body: dict[str, Any]) -> httpx2.Response:
    return client.post(path, body, headers=OPERATOR)


def write(client: Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = post(client, path, body)
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


def sign(client: Client) -> httpx2.Response:
    return post(client, "/v1/checkpoint", {})


# What a caller can have written, by what it is written to.
WRITES: dict[str, Callable[[Client, World], httpx2.Response]] = {
    "declare a session": lambda client, _: post(client, "/v1/sessions", DECLARATION),
    "eliminate": lambda client, world: post(client, f"/v1/sessions/{world.first}/eliminate", elimination("9")),
    "create a space": lambda client, _: post(client, "/v1/spaces", {"space_id": "other"}),
    "change the governance of a space": lambda client, _: post(
        client, "/v1/spaces/ops/governance", {"operators_needed": 2}
    ),
    "put a kit on record": lambda client, _: client.request(
        "POST", "/v1/kits", content=KIT.encode(), headers={**OPERATOR, "content-type": "application/yaml"}
    ),
    "register a webhook": lambda client, _: post(client, "/v1/webhooks", WEBHOOK),
}


def check_refused(client: Client, world: World, reason: str) -> None:
    """Everything that writes is refused, with why and what to do, and nothing reaches the database."""
    before = world.count_entries()
    for name, attempt in WRITES.items():
        error = check_error(attempt(client, world), 503, "STORE_UNAVAILABLE")
        assert "nothing is written: the database does not continue" in error["message"], name
        assert reason in error["reason"], name
        assert "put the newest database back" in error["next"], name
    assert world.count_entries() == before
    check_error(client.get("/readyz"), 503, "STORE_UNAVAILABLE")
    assert client.get("/v1/sessions").status_code == 200


def check_well(client: Client, world: World) -> None:
    """The same server, over the newest database again."""
    assert sign(client).status_code == 200
    for name, attempt in WRITES.items():
        assert attempt(client, world).status_code in (200, 201), name
    assert client.get("/readyz").status_code == 200


@pytest.mark.req("TLOG-REFUSE-02")
def test_a_server_that_starts_over_an_older_database_writes_nothing_to_it(world: World) -> None:
    world.older()
    with world.serve() as (_, client):
        check_refused(client, world, "older copy: the database has")
        # What is there is served: the first session as it was.
        assert client.get(f"/v1/sessions/{world.first}").status_code == 200
    world.newest()
    with world.serve() as (_, client):
        check_well(client, world)


@pytest.mark.req("TLOG-REFUSE-02")
def test_a_server_under_which_an_older_database_is_put_back_writes_nothing_until_the_newest_one_is(
    world: World,
) -> None:
    with world.serve() as (_, client):
        assert client.get(f"/v1/sessions/{world.first}").status_code == 200
        world.older()
        # It is noticed when the next checkpoint is due.
        check_error(sign(client), 500, "LEDGER_CORRUPT")
        check_refused(client, world, "older copy: the database has")
        world.newest()
        check_well(client, world)


@pytest.mark.req("TLOG-REFUSE-02")
def test_several_streams_that_lost_what_was_not_recorded_yet_are_an_older_database_and_one_is_damage(
    world: World,
) -> None:
    with world.serve() as (_, client):
        for number, session_id in enumerate((world.first, world.second)):
            write(client, f"/v1/sessions/{session_id}/eliminate", elimination(f"new {number}"))
        world.newest()
        check_error(sign(client), 500, "LEDGER_CORRUPT")
        check_refused(client, world, "2 streams end before what was seen of them")
    with world.serve() as (_, client):
        write(client, f"/v1/sessions/{world.second}/eliminate", elimination("new"))
        world.newest()
        check_error(sign(client), 500, "LEDGER_CORRUPT")
        assert WRITES["declare a session"](client, world).status_code == 201
