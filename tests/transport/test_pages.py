"""Lists come in pages: each item once, in order, also while others write."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.stores import InMemoryStore, SQLiteStore
from cmbs.testing import ManualClock, SequentialIds
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.transports import ONTOLOGY


@pytest.fixture
def client(store: InMemoryStore | SQLiteStore) -> Iterator[Client]:
    """A server for which time stands still: only the id tells two sessions apart."""
    clock = ManualClock(tick=timedelta())
    server = BeliefServer(store=store, clock=clock, ids=SequentialIds(), limits=Limits(page_size=10))
    with client_of(create_app(server)) as client:
        yield client
    server.close()


def declared(client: Client, hypotheses: list[str]) -> str:
    session_id: str = client.post("/v1/sessions", {"ontology": ONTOLOGY, "hypotheses": hypotheses}).json()["session_id"]
    return session_id


def pages(client: Client, path: str, **query: Any) -> Iterator[dict[str, Any]]:
    cursor: dict[str, str] = {}
    while True:
        answer = client.get(path, params={**query, **cursor})
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        yield page
        if page["next_cursor"] is None:
            return
        cursor = {"cursor": page["next_cursor"]}


@pytest.mark.req("HTTP-EXT-01")
@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 10])
def test_every_session_is_listed_once_the_oldest_first(client: Client, limit: int) -> None:
    opened = [declared(client, ["a"]) for _ in range(6)]
    listed = list(pages(client, "/v1/sessions", limit=limit))
    assert [item["session_id"] for page in listed for item in page["sessions"]] == opened
    assert all(len(page["sessions"]) == limit for page in listed[:-1])


@pytest.mark.req("HTTP-EXT-01")
def test_an_item_of_the_list_says_how_the_session_stands(client: Client) -> None:
    session_id = declared(client, list("abc"))
    path = f"/v1/sessions/{session_id}"
    body = {"source_id": "s", "observation_id": "o", "eliminated": ["a", "b"]}
    client.post(f"{path}/eliminate", body)
    ended = client.post(f"{path}/terminate").json()
    (item,) = client.get("/v1/sessions").json()["sessions"]
    events = client.get(f"{path}/audit").json()["events"]
    assert item == {
        "session_id": session_id,
        "created_ts": events[0]["ts"],
        "universe_size": 3,
        "n_survivors": 1,
        "terminated": True,
        "head_seq": 2,
        "head_event_id": ended["audit_event_id"],
        "name": None,
        "title": None,
        "labels": {},
        "owner": None,
        "severity": None,
        "case_agents": None,
        "n_case_agents": None,
        "kit": None,
        "kit_version": None,
        "state": "terminated",
        "contradiction": False,
        "conclusion": None,
        "updated_ts": events[-1]["ts"],
        "last_verb": "REQUEST_TERMINATION",
        "active_obligations": [],
        "n_active_obligations": 0,
        "sources": ["s"],
        "agents": [],
    }


@pytest.mark.req("HTTP-EXT-01")
def test_sessions_that_are_declared_while_a_client_pages_come_at_the_end(client: Client) -> None:
    opened = [declared(client, ["a"]) for _ in range(3)]
    seen: list[str] = []
    for page in pages(client, "/v1/sessions", limit=2):
        seen += [item["session_id"] for item in page["sessions"]]
        if len(opened) < 4:
            opened.append(declared(client, ["a"]))
    assert seen == opened


def test_an_empty_server_has_an_empty_page(client: Client) -> None:
    assert client.get("/v1/sessions").json() == {"sessions": [], "next_cursor": None}


@pytest.mark.req("HTTP-EXT-02", "BS-4.2-SORT-01")
@pytest.mark.parametrize("limit", [1, 7, 10])
def test_every_survivor_is_listed_once_in_order(client: Client, limit: int) -> None:
    session_id = declared(client, list(HOSTILE_IDS))
    gone = sorted(HOSTILE_IDS)[::3]
    client.post(f"/v1/sessions/{session_id}/eliminate", {"source_id": "s", "observation_id": "o", "eliminated": gone})
    listed = list(pages(client, f"/v1/sessions/{session_id}/survivors", limit=limit))
    expected = sorted(set(HOSTILE_IDS) - set(gone))
    assert [hypothesis_id for page in listed for hypothesis_id in page["survivors"]] == expected
    assert {page["n_survivors"] for page in listed} == {len(expected)}
    assert all(len(page["survivors"]) == limit for page in listed[:-1])


@pytest.mark.req("HTTP-EXT-02")
def test_pages_of_one_moment_do_not_change_while_others_eliminate(client: Client) -> None:
    session_id = declared(client, list("abcdefgh"))
    path = f"/v1/sessions/{session_id}"
    head = client.get(path).json()["audit_head_event_id"]
    seen: list[str] = []
    for number, page in enumerate(pages(client, f"{path}/survivors", limit=3, at=head)):
        seen += page["survivors"]
        assert page["audit_head_event_id"] == head
        body = {"source_id": "s", "observation_id": str(number), "eliminated": ["b", "f", "h"]}
        client.post(f"{path}/eliminate", body)
    assert seen == list("abcdefgh")
    assert client.get(f"{path}/survivors").json()["survivors"] == list("acdeg")


@pytest.mark.req("HTTP-EXT-03", "HTTP-EXT-04")
def test_the_belief_can_be_read_as_it_was_after_any_event(client: Client) -> None:
    session_id = declared(client, list("abcd"))
    path = f"/v1/sessions/{session_id}"
    beliefs = [client.get(path).json()]
    client.post(f"{path}/obligations", {"obligation_id": "gate", "min_total_eliminations": 1})
    beliefs.append(client.get(path).json())
    for number, hypothesis_id in enumerate("abc"):
        body = {"source_id": "s", "observation_id": str(number), "eliminated": [hypothesis_id]}
        beliefs.append(client.post(f"{path}/eliminate", body).json()["snapshot"])
    client.post(f"{path}/obligations/gate/exit")
    beliefs.append(client.get(path).json())
    beliefs.append(client.post(f"{path}/terminate").json()["snapshot"])
    for seq, belief in enumerate(beliefs):
        for at in (str(seq), f"00{seq}", belief["audit_head_event_id"]):
            assert client.get(path, params={"at": at}).json() == belief
            survivors = client.get(f"{path}/survivors", params={"at": at}).json()
            assert survivors["survivors"] == belief["survivors"]


@pytest.mark.req("BS-3.1-HTTP-04", "BS-2.1-AUDIT-02")
def test_an_audit_can_be_read_in_pieces(client: Client) -> None:
    session_id = declared(client, list("abcd"))
    path = f"/v1/sessions/{session_id}"
    for number in range(11):
        client.post(f"{path}/conclusions", {"conclusion_id": str(number)})
    first = client.get(f"{path}/audit").json()
    second = client.get(f"{path}/audit", params={"cursor": first["next_cursor"]}).json()
    whole = first["events"] + second["events"]
    assert ([event["seq"] for event in whole], len(first["events"])) == (list(range(12)), 10)
    assert second["next_cursor"] is None
    both = {"cursor": first["next_cursor"], "since_event_id": whole[0]["event_id"]}
    check_error(client.get(f"{path}/audit", params=both), 400, "INVALID_REQUEST")
    pieces: list[Any] = []
    while piece := client.get(
        f"{path}/audit", params={"limit": 5, **({"since_event_id": pieces[-1]["event_id"]} if pieces else {})}
    ).json()["events"]:
        pieces += piece
    assert pieces == whole
