"""Kits and observations over HTTP: who may do what, what is answered, and what is refused."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.stores.memory import InMemoryStore
from cmbs.stores.sqlite import SQLiteStore
from tests.support.in_process import client_of

KIT = """id: coin toss
version: "1"
soundness: sound
hypotheses: [fair, {id: two-headed, attributes: {maker: eve}}, bent]
probes:
  - id: toss
    outcomes:
      - {id: heads, eliminates: []}
      - {id: tails, eliminates: [two-headed]}
  - id: share
    reading: {cuts: [0.7], outcomes: [even, odd]}
    outcomes:
      - {id: even, eliminates: [bent, two-headed]}
      - {id: odd, eliminates: [fair]}
  - id: level
    reading: {cuts: [0.7], outcomes: [low, high]}
    window: {reduction: k-of-n, k: 2, counts: high}
    outcomes:
      - {id: low, eliminates: [bent]}
      - {id: high, eliminates: [fair]}
"""
OPERATOR = {"x-cmbs-actor": "operator:ops"}
AGENT = {"x-cmbs-actor": "agent:ann"}


class Client:
    """Speaks to one server, as the actor that a request names."""

    def __init__(self, send: Callable[..., httpx2.Response]) -> None:
        self.send = send

    def put(self, text: str = KIT, media_type: str = "application/yaml", **headers: str) -> httpx2.Response:
        sent = {**OPERATOR, "content-type": media_type, **headers}
        return self.send("POST", "/v1/kits", content=text.encode(), headers=sent)

    def open(self, **body: Any) -> str:
        answer = self.send("POST", "/v1/sessions", json={"kit": "coin toss", **body}, headers=AGENT)
        assert answer.status_code == 201, answer.text
        session_id: str = answer.json()["session_id"]
        return session_id

    def observe(self, session_id: str, probe_id: str, response: Any, **body: Any) -> httpx2.Response:
        sent = {"probe_id": probe_id, "response": response, **body}
        return self.send("POST", f"/v1/sessions/{session_id}/observations", json=sent, headers=AGENT)


@pytest.fixture(params=["memory", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    store = InMemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "cmbs.db")
    with client_of(BeliefApp(BeliefServer(store=store))) as sender:
        yield Client(sender.request)


@pytest.mark.req("OBS-KIT-01")
def test_a_kit_is_put_listed_and_given_back_as_it_was_written(client: Client) -> None:
    put = client.put()
    assert (put.status_code, put.headers["location"]) == (201, "kits/coin%20toss")
    kit = put.json()["kit"]
    assert (kit["n_hypotheses"], kit["n_probes"], kit["put_by"]) == (3, 3, "ops")
    assert client.put().json()["replayed"] is True
    listed = client.send("GET", "/v1/kits", headers=AGENT).json()
    assert listed == {"kits": [kit], "next_cursor": None}
    shown = client.send("GET", "/v1/kits/coin%20toss", headers=AGENT).json()
    assert (shown["kit"], shown["source"]["text"], shown["contents"]) == (kit, KIT, [kit])
    written = client.send("GET", "/v1/kits/coin%20toss", headers={**AGENT, "accept": "application/yaml"})
    assert (written.text, written.headers["content-type"]) == (KIT, "application/yaml")


@pytest.mark.req("OBS-KIT-01")
def test_kits_come_in_pages_and_by_version(client: Client) -> None:
    hashes = [client.put(KIT + f"# {number}\n").json()["kit"]["content_hash"] for number in range(2)]
    client.put('{"id": "b", "version": "1", "hypotheses": ["x"], "probes": []}', "application/json")
    first = client.send("GET", "/v1/kits", params={"limit": "1"}, headers=AGENT).json()
    rest = client.send("GET", "/v1/kits", params={"cursor": first["next_cursor"]}, headers=AGENT).json()
    assert [each["kit_id"] for each in first["kits"] + rest["kits"]] == ["b", "coin toss"]
    by_hash = client.send("GET", "/v1/kits/coin%20toss", params={"version": hashes[0]}, headers=AGENT).json()
    by_version = client.send("GET", "/v1/kits/coin%20toss", params={"version": "1"}, headers=AGENT).json()
    assert [by_hash["kit"]["content_hash"], by_version["kit"]["content_hash"]] == hashes
    assert len(by_hash["contents"]) == 2
    for path, params in (("coin", {}), ("coin%20toss", {"version": "7"})):
        missing = client.send("GET", f"/v1/kits/{path}", params=params, headers=AGENT)
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "RECORD_NOT_FOUND")


@pytest.mark.req("OBS-KIT-01")
def test_a_kit_that_is_wrong_is_refused_with_places_and_nothing_is_put(
    subtests: pytest.Subtests, client: Client
) -> None:
    for text, media_type, status in [
        (KIT.replace("[two-headed]", "[three-headed]"), "application/yaml", 400),
        ("hypotheses: [", "application/yaml", 400),
        ("{}", "application/json", 400),
        (KIT, "text/plain", 415),
    ]:
        with subtests.test(text=text, media_type=media_type, status=status):
            refused = client.put(text, media_type)
            assert refused.status_code == status
            if status == 400:
                finding = refused.json()["error"]["details"]["findings"][0]
                assert finding["line"] is not None
            assert client.send("GET", "/v1/kits", headers=AGENT).json()["kits"] == []


@pytest.mark.req("OBS-KIT-01")
def test_only_operators_put_kits(client: Client) -> None:
    refused = client.put(**AGENT)
    assert (refused.status_code, refused.json()["error"]["details"]["reason"]) == (403, "operators_only")


@pytest.mark.req("OBS-01", "OBS-04")
def test_an_observation_is_answered_with_what_it_was_read_as(client: Client) -> None:
    content_hash = client.put().json()["kit"]["content_hash"]
    session_id = client.open()
    answer = client.observe(session_id, "share", 0.5, seen_at="2026-01-01T00:00:00Z")
    content = answer.json()
    assert (answer.status_code, content["applied_eliminated"]) == (200, ["bent", "two-headed"])
    assert content["observation"] == {
        "probe_id": "share",
        "source_id": "observer",
        "observation_id": "share",
        "ruled_out": 2,
        "kit": {"id": "coin toss", "content_hash": content_hash},
        "outcome_id": "even",
        "reading": {"reading": "0.5", "soundness": "sound"},
        "seen_at": "2026-01-01T00:00:00.000000Z",
    }
    assert content["seen_before"] == []
    again = client.observe(session_id, "share", 0.5)
    assert (again.json()["replayed"], again.headers["idempotent-replayed"]) == (True, "true")
    assert [each["response"] for each in again.json()["seen_before"]] == [0.5]


@pytest.mark.req("OBS-04")
def test_a_window_is_reduced_as_the_kit_says_and_the_reduction_is_recorded(client: Client) -> None:
    client.put()
    session_id = client.open()
    answer = client.observe(session_id, "level", [0.1, 0.9, 0.2, 0.8]).json()
    assert (answer["applied_eliminated"], answer["observation"]["outcome_id"]) == (["fair"], "high")
    events = client.send("GET", f"/v1/sessions/{session_id}/audit", headers=AGENT).json()["events"]
    probe = events[-1]["payload"]["probe"]
    assert probe["response"] == [0.1, 0.9, 0.2, 0.8]
    assert probe["reading"]["window"] == {
        "reduction": "k-of-n",
        "samples": 4,
        "k": 2,
        "counts": "high",
        "counted": 2,
        "outcome_id": "high",
    }


@pytest.mark.req("OBS-06")
def test_another_answer_is_a_conflict_with_what_was_seen(client: Client) -> None:
    client.put()
    session_id = client.open()
    client.observe(session_id, "toss", "heads")
    refused = client.observe(session_id, "toss", "tails")
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (409, "CONFLICT")
    assert [each["response"] for each in error["details"]["seen_before"]] == ["heads"]
    later = client.observe(session_id, "toss", "tails", observation_id="second toss")
    assert later.json()["applied_eliminated"] == ["two-headed"]


@pytest.mark.req("OBS-08")
def test_a_list_of_ids_and_a_forged_probe_are_refused_where_only_observations_eliminate(client: Client) -> None:
    client.put()
    session_id = client.open(policy={"eliminations": "observations"})
    body = {"source_id": "eve", "observation_id": "1", "eliminated": ["fair"]}
    path = f"/v1/sessions/{session_id}/eliminate"
    refused = client.send("POST", path, json=body, headers=AGENT)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FREE_HAND_REFUSED")
    forged = client.send("POST", path, json={**body, "probe": {"probe_id": "toss", "response": "tails"}}, headers=AGENT)
    assert (forged.status_code, forged.json()["error"]["code"]) == (400, "INVALID_REQUEST")
    sneaked = client.observe(session_id, "toss", "tails", eliminated=["fair"])
    assert sneaked.status_code == 400
    assert client.observe(session_id, "toss", "tails").json()["applied_eliminated"] == ["two-headed"]


@pytest.mark.req("OBS-07")
def test_what_the_probe_cannot_read_is_refused(subtests: pytest.Subtests, client: Client) -> None:
    for probe_id, response, status, code in [
        ("tos", "heads", 422, "UNKNOWN_PROBE"),
        ("toss", "edge", 400, "INVALID_REQUEST"),
        ("toss", 0.5, 400, "INVALID_REQUEST"),
        ("share", [0.5, 0.6], 400, "INVALID_REQUEST"),
        ("level", [0.5, "high"], 400, "INVALID_REQUEST"),
        ("level", [], 400, "INVALID_REQUEST"),
        ("share", {"value": 0.5}, 400, "INVALID_REQUEST"),
    ]:
        with subtests.test(probe_id=probe_id, response=response, status=status, code=code):
            client.put()
            session_id = client.open()
            refused = client.observe(session_id, probe_id, response)
            assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
            details = refused.json()["error"]["details"]
            assert details["field"].partition("[")[0] == ("probe_id" if code == "UNKNOWN_PROBE" else "response")
            assert None not in (details["found"], details["accepted"], details["next"])
            audit = client.send("GET", f"/v1/sessions/{session_id}/audit", headers=AGENT).json()
            assert len(audit["events"]) == 1


@pytest.mark.req("OBS-09")
def test_probes_come_ranked_in_pages_of_one_moment(client: Client) -> None:
    client.put()
    session_id = client.open()
    path = f"/v1/sessions/{session_id}/probes"
    first = client.send("GET", path, params={"limit": "1"}, headers=AGENT)
    client.observe(session_id, "toss", "tails")
    rest = client.send("GET", path, params={"cursor": first.json()["next_cursor"]}, headers=AGENT).json()
    ranked = first.json()["probes"] + rest["probes"]
    assert sorted(each["probe_id"] for each in ranked) == ["level", "share", "toss"]
    assert [each["expected_bits"] for each in ranked] == sorted(
        (each["expected_bits"] for each in ranked), reverse=True
    )
    assert rest["audit_head_event_id"] == first.json()["audit_head_event_id"]
    now = client.send("GET", path, headers=AGENT)
    assert [each["probe_id"] for each in now.json()["asked"]] == ["toss"]
    assert client.send("GET", path, headers={**AGENT, "if-none-match": now.headers["etag"]}).status_code == 304
    for limit in ("0", "201"):
        assert client.send("GET", path, params={"limit": limit}, headers=AGENT).is_error


@pytest.mark.req("OBS-KIT-02")
def test_a_session_names_a_kit_by_id_and_version(client: Client) -> None:
    first = client.put().json()["kit"]["content_hash"]
    client.put(KIT + "# newer\n")
    session_id = client.open(kit={"id": "coin toss", "version": first})
    declared = client.send("GET", f"/v1/sessions/{session_id}/audit", headers=AGENT).json()["events"][0]["payload"]
    assert declared["provider"] == {"id": "coin toss", "version": "1", "content_hash": first, "put_by": "ops"}
    assert declared["hypothesis_attributes"] == {"two-headed": {"maker": "eve"}}
    wrong: dict[str, Any] = {
        "no kit `coin`": "coin",
        "no version `9` in the kit `coin toss`": {"id": "coin toss", "version": "9"},
    }
    for said, kit in wrong.items():
        refused = client.send("POST", "/v1/sessions", json={"kit": kit}, headers=AGENT)
        assert refused.json()["error"]["message"].startswith(said)
        assert (refused.status_code, refused.json()["error"]["details"]["field"]) == (400, "kit")


@pytest.mark.req("OBS-KIT-01", "OBS-08")
def test_keys_decide_who_puts_kits_and_who_observes_in_which_session() -> None:
    log = InMemoryStore()
    registry = KeyRegistry(log)
    server = BeliefServer(store=log)
    with client_of(BeliefApp(Service(server, Gate(registry)))) as sender:
        send = sender.request

        def bearer(**made: Any) -> dict[str, str]:
            return {"authorization": f"Bearer {registry.create(None, **made).text}"}

        operator = bearer(actor_id="ops", roles=[Role.OPERATOR])
        agent = bearer(actor_id="ann", roles=[Role.AGENT])
        kit = {"content-type": "application/yaml"}
        assert send("POST", "/v1/kits", content=KIT, headers={**kit, **agent}).status_code == 403
        assert send("POST", "/v1/kits", content=KIT, headers={**kit, **operator}).status_code == 201
        opened = send("POST", "/v1/sessions", json={"kit": "coin toss"}, headers=agent).json()["session_id"]
        path = f"/v1/sessions/{opened}/observations"
        seen = {"probe_id": "toss", "response": "tails"}
        elsewhere = bearer(actor_id="bob", scopes=["belief:write@another", "belief:read"])
        assert send("POST", path, json=seen, headers=elsewhere).status_code == 403
        here = bearer(actor_id="cid", scopes=[f"belief:write@{opened}"])
        answer = send("POST", path, json=seen, headers=here).json()
        assert answer["observation"]["source_id"] == "cid"
        again = send("POST", path, json={**seen, "source_id": "other"}, headers=agent).json()
        assert [(each["source_id"], each["actor_id"]) for each in again["seen_before"]] == [("cid", "cid")]
