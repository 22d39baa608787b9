"""Forks, differences and sources over HTTP."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.stores import InMemoryStore, SQLiteStore
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.plain_store import PlainStore
from tests.support.transports import ONTOLOGY


@pytest.fixture
def client(store: InMemoryStore | SQLiteStore) -> Iterator[Client]:
    server = BeliefServer(store=store, limits=Limits(page_size=10, fork_events=4))
    with client_of(create_app(server)) as client:
        yield client
    server.close()


def lived(client: Client) -> str:
    """A session of five events."""
    opened = client.post("/v1/sessions", {"ontology": ONTOLOGY, "hypotheses": list("abcdef")}).json()["session_id"]
    for source, ids in (("logs", "ab"), ("metrics", "bc"), ("logs", "cd"), ("traces", "")):
        body = {"source_id": source, "observation_id": ids, "eliminated": list(ids)}
        assert client.post(f"/v1/sessions/{opened}/eliminate", body).status_code == 200
    return str(opened)


def events_of(client: Client, session_id: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = client.get(f"/v1/sessions/{session_id}/audit").json()["events"]
    return events


@pytest.mark.req("FORK-01", "FORK-02")
def test_a_fork_is_a_session_of_its_own_that_says_where_it_comes_from(client: Client) -> None:
    opened = lived(client)
    events = events_of(client, opened)
    headers = {"Idempotency-Key": "try", "If-Match": f'"{events[-1]["event_id"]}"'}
    answer = client.post(f"/v1/sessions/{opened}/fork", {"at": events[2]["event_id"]}, headers=headers)
    forked = answer.json()
    assert answer.status_code == 201
    assert forked["origin"] == {
        "session_id": opened,
        "seq": 2,
        "event_hash": events[2]["event_hash"],
        "declared_by": [None],
    }
    assert forked["snapshot"]["survivors"] == ["d", "e", "f"]
    location = answer.request.url.join(answer.headers["location"])
    assert client.get(location.path).json() == forked["snapshot"]
    assert events_of(client, forked["session_id"])[0]["payload"]["origin"] == forked["origin"]
    again = client.post(f"/v1/sessions/{opened}/fork", {"at": 2}, headers=headers)
    assert (again.status_code, again.json()) == (201, forked)
    check_error(client.post(f"/v1/sessions/{opened}/fork", {"at": 1}, headers=headers), 409, "CONFLICT")
    stale = {"If-Match": f'"{events[0]["event_id"]}"'}
    check_error(client.post(f"/v1/sessions/{opened}/fork", {"at": 1}, headers=stale), 412, "CONFLICT")
    minimal = client.post(f"/v1/sessions/{opened}/fork", {"at": 1}, headers={"Prefer": "return=minimal"})
    assert "survivors" not in minimal.json()["snapshot"]


@pytest.mark.req("FORK-02")
def test_what_cannot_be_forked_is_refused(client: Client) -> None:
    opened = lived(client)
    details = check_error(client.post(f"/v1/sessions/{opened}/fork"), 413, "LIMIT_EXCEEDED")
    assert details["limit"] == "fork_events"
    check_error(client.post(f"/v1/sessions/{opened}/fork", {"at": 9}), 404, "EVENT_NOT_FOUND")
    check_error(client.post(f"/v1/sessions/{opened}/fork", {"at": -1}), 404, "EVENT_NOT_FOUND")
    check_error(client.post("/v1/sessions/none-such/fork", {"at": 0}), 404, "SESSION_NOT_FOUND")
    assert len(client.get("/v1/sessions").json()["sessions"]) == 1
    with closing(BeliefServer(store=PlainStore())) as remote, client_of(create_app(remote)) as other:
        opened = lived(other)
        check_error(other.post(f"/v1/sessions/{opened}/fork", {"at": 0}), 400, "INVALID_REQUEST")


@pytest.mark.req("DIFF-01")
def test_a_difference_comes_in_pages(client: Client) -> None:
    opened = lived(client)
    whole = client.get(f"/v1/sessions/{opened}/diff").json()
    assert [(item["id"], item["source_id"]) for item in whole["changes"]] == [
        ("a", "logs"),
        ("b", "logs"),
        ("c", "metrics"),
        ("d", "logs"),
    ]
    assert (whole["n_survivors_before"], whole["n_survivors_after"], whole["next_cursor"]) == (6, 2, None)
    pieces: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get(f"/v1/sessions/{opened}/diff", params={"limit": 1, **cursor}).json()
        pieces += page["changes"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert pieces == whole["changes"]
    events = events_of(client, opened)
    between = {"from": events[1]["event_id"], "to": "2"}
    assert [item["id"] for item in client.get(f"/v1/sessions/{opened}/diff", params=between).json()["changes"]] == ["c"]
    for query, code in (({"from": "3", "to": "1"}, "INVALID_REQUEST"), ({"from": "x"}, "EVENT_NOT_FOUND")):
        status = 400 if code == "INVALID_REQUEST" else 404
        check_error(client.get(f"/v1/sessions/{opened}/diff", params=query), status, code)


@pytest.mark.req("SOURCES-01")
def test_sources_come_in_pages_with_their_agreement(client: Client) -> None:
    opened = lived(client)
    whole = client.get(f"/v1/sessions/{opened}/sources").json()
    assert [each["source_id"] for each in whole["sources"]] == ["logs", "metrics", "traces"]
    assert {(each["source_id"], each["other_source_id"]): each["both"] for each in whole["agreements"]} == {
        ("logs", "metrics"): 2,
        ("logs", "traces"): 0,
        ("metrics", "traces"): 0,
    }
    first = client.get(f"/v1/sessions/{opened}/sources", params={"limit": 2}).json()
    second = client.get(f"/v1/sessions/{opened}/sources", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert first["sources"] + second["sources"] == whole["sources"]
    assert second["next_cursor"] is None


@pytest.mark.req("SEARCH-01")
def test_survivors_and_eliminated_are_found_by_a_text(client: Client) -> None:
    body = {
        "ontology": ONTOLOGY,
        "hypotheses": ["db-1", "db-2", "web-1"],
        "hypothesis_attributes": {"web-1": {"team": "Storage of DBs"}},
    }
    path = f"/v1/sessions/{client.post('/v1/sessions', body).json()['session_id']}"
    gone = {"source_id": "logs", "observation_id": "o", "eliminated": ["db-2", "web-1"]}
    assert client.post(f"{path}/eliminate", gone).is_success
    left = client.get(f"{path}/survivors?text=DB").json()
    assert (left["survivors"], left["n_survivors"], left["next_cursor"]) == (["db-1"], 1, None)
    assert client.get(f"{path}/survivors?text=web").json()["survivors"] == []
    first = client.get(f"{path}/diff?text=db&limit=1").json()
    assert [each["id"] for each in first["changes"]] == ["db-2"]
    rest = client.get(f"{path}/diff?text=db&limit=1&cursor={first['next_cursor']}").json()
    assert [each["id"] for each in rest["changes"]] == ["web-1"]
    assert rest["attributes"] == {"web-1": {"team": "Storage of DBs"}}
    check_error(client.get(f"{path}/survivors?text={'x' * 201}"), 400, "INVALID_REQUEST")
