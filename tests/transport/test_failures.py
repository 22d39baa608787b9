"""When the server or its store fails: the caller learns that it did and whether to try again, and nothing internal."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.stores import InMemoryStore, SQLiteStore
from cmbs.testing import FailingStore
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.requests_of import READS, WRITES, open_session, path_of
from tests.support.store_fixture import tampering
from tests.support.transports import DECLARATION

SECRET = "password=hunter2 in /srv/secrets"

Failing = tuple[Client, FailingStore[InMemoryStore | SQLiteStore], str]


@pytest.fixture
def failing(store: InMemoryStore | SQLiteStore) -> Iterator[Failing]:
    """A client, the store that can be told to fail, and a session with an obligation `gate`."""
    broken = FailingStore(store)
    server = BeliefServer(store=broken)
    with client_of(create_app(server)) as client:
        yield client, broken, open_session(client, 0)
    broken.heal()
    server.close()


@pytest.mark.req("BS-3.2-ERR-01", "ARCH-2-04")
def test_a_write_that_the_store_cannot_take_may_be_tried_again(subtests: pytest.Subtests, failing: Failing) -> None:
    for name in WRITES:
        with subtests.test(name=name):
            client, store, _ = failing
            session_id = open_session(client, 0)
            path, body = path_of(name, session_id), WRITES[name].body
            before = client.get(f"/v1/sessions/{session_id}/audit").json()
            store.fail("append")
            answer = client.post(path, body)
            check_error(answer, 503, "STORE_UNAVAILABLE")
            assert answer.headers["retry-after"] == "1"
            assert client.get(f"/v1/sessions/{session_id}/audit").json() == before
            assert client.post(path, body).is_success


@pytest.mark.req("BS-3.2-ERR-14")
def test_an_unexpected_failure_of_a_write_gives_away_nothing(
    subtests: pytest.Subtests, failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    for name in WRITES:
        with subtests.test(name=name):
            client, store, _ = failing
            session_id = open_session(client, 0)
            caplog.clear()
            path, body = path_of(name, session_id), WRITES[name].body
            store.fail("append", error=RuntimeError(SECRET))
            answer = client.post(path, body)
            details = check_error(answer, 500, "INTERNAL_ERROR")
            assert details.keys() == {"message", "next"}
            assert "hunter2" not in answer.text
            assert "RuntimeError" not in answer.text
            assert SECRET in caplog.text
            assert client.post(path, body).is_success


@pytest.mark.req("BS-3.2-ERR-14")
def test_an_unexpected_failure_of_a_read_gives_away_nothing(
    subtests: pytest.Subtests, failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in READS if name != "healthz"]:
        with subtests.test(name=name):
            client, store, session_id = failing
            caplog.clear()
            path = path_of(name, session_id)
            store.fail(error=RuntimeError(SECRET))
            answer = client.get(path)
            check_error(answer, 500, "INTERNAL_ERROR")
            assert "hunter2" not in answer.text
            assert SECRET in caplog.text
            assert client.get(path).is_success


@pytest.mark.req("HTTP-EXT-06", "HTTP-EXT-07")
def test_readiness_is_that_of_the_store_and_health_that_of_the_process(failing: Failing) -> None:
    client, store, _ = failing
    store.fail()
    assert client.get("/healthz").json() == {"status": "ok"}
    answer = client.get("/readyz")
    check_error(answer, 503, "STORE_UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"
    assert client.get("/readyz").json() == {"status": "ok"}


@pytest.mark.req("HTTP-EXT-07")
def test_a_closed_server_is_not_ready_and_takes_nothing_in(tmp_path: Path) -> None:
    server = BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db"))
    with client_of(create_app(server)) as client:
        assert client.post("/v1/sessions", DECLARATION).status_code == 201
        server.close()
        assert client.get("/healthz").status_code == 200
        check_error(client.get("/readyz"), 503, "STORE_UNAVAILABLE")
        check_error(client.post("/v1/sessions", DECLARATION), 503, "STORE_UNAVAILABLE")
        check_error(client.get("/v1/sessions"), 503, "STORE_UNAVAILABLE")


def test_a_log_that_was_tampered_with_is_not_served(tmp_path: Path) -> None:
    path = tmp_path / "cmbs.db"
    first = BeliefServer(store=SQLiteStore(path))
    with client_of(create_app(first)) as client:
        opened = client.post("/v1/sessions", DECLARATION).json()["session_id"]
        client.post(f"/v1/sessions/{opened}/eliminate", WRITES["eliminate"].body)
    first.close()
    with tampering(path, "audit_events_no_update") as connection:
        connection.execute("UPDATE audit_events SET entry = CAST(entry || ' ' AS BLOB) WHERE seq = 1")
    second = BeliefServer(store=SQLiteStore(path))
    with client_of(create_app(second)) as client:
        for name in ("query_belief", "list_survivors", "audit_trace", "list_obligations"):
            details = check_error(client.get(path_of(name, opened)), 500, "LEDGER_CORRUPT")
            assert (details["stream_id"], details["seq"]) == (opened, 1)
        for name in ("eliminate", "request_termination"):
            check_error(client.post(path_of(name, opened), WRITES[name].body), 500, "LEDGER_CORRUPT")
        assert client.post("/v1/sessions", DECLARATION).status_code == 201
        assert client.get("/readyz").status_code == 200
    second.close()


def test_an_error_that_the_caller_made_is_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "cmbs"), client_of(create_app(BeliefServer())) as client:
        check_error(client.get("/v1/sessions/nowhere"), 404, "SESSION_NOT_FOUND")
        check_error(client.post_raw("/v1/sessions", b"{"), 400, "INVALID_REQUEST")
    assert caplog.records == []
