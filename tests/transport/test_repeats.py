"""What HTTP says beside the outcome of a verb: that it is a repeat, why it was refused, and what a probe came to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.kit import Kit, KitHypothesis, KitOutcome, KitProbe, KitProvider, Soundness
from tests.support.in_process import client_of
from tests.support.transports import ONTOLOGY

KIT = Kit(
    "checkout",
    "1",
    "",
    (KitHypothesis("disk", attributes={"component": "db"}), KitHypothesis("dns"), KitHypothesis("deploy")),
    (KitProbe("disk-usage", "?", (KitOutcome("normal", frozenset({"disk"}), Soundness.SOUND),)),),
)


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    server = BeliefServer(providers=lambda: {"checkout": KitProvider(KIT)})
    with client_of(create_app(server)) as client:
        yield client  # type: ignore[misc]


def declare(client: httpx2.Client, **more: Any) -> str:
    answer = client.post("/v1/sessions", json={"ontology": ONTOLOGY, **more})
    assert answer.status_code == 201, answer.text
    session_id: str = answer.json()["session_id"]
    return session_id


@pytest.mark.req("GATES-REPEAT-01")
def test_a_repeat_says_so_and_shows_the_belief_of_now(client: httpx2.Client) -> None:
    path = f"/v1/sessions/{declare(client, hypotheses=['a', 'b', 'c'])}"
    body = {"source_id": "s", "observation_id": "1", "eliminated": ["a"]}
    first = client.post(f"{path}/eliminate", json=body)
    assert "replayed" not in first.json()
    assert "idempotent-replayed" not in first.headers
    last = client.post(f"{path}/eliminate", json={**body, "observation_id": "2", "eliminated": ["b"]}).json()
    again = client.post(f"{path}/eliminate", json=body)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == first.json() | {
        "replayed": True,
        "current": {"n_survivors": 1, "audit_head_event_id": last["audit_event_id"], "terminated": False},
    }


@pytest.mark.req("GATES-REPEAT-01")
def test_a_repeated_declaration_and_a_repeated_refusal_say_so_too(client: httpx2.Client) -> None:
    key = {"Idempotency-Key": "k"}
    sent = {"ontology": ONTOLOGY, "hypotheses": ["a", "b"]}
    first = client.post("/v1/sessions", json=sent, headers=key)
    path = f"/v1/sessions/{first.json()['session_id']}"
    client.post(f"{path}/eliminate", json={"source_id": "s", "observation_id": "1", "eliminated": ["a"]})
    again = client.post("/v1/sessions", json=sent, headers=key)
    assert (again.status_code, again.json()["replayed"], again.json()["current"]["n_survivors"]) == (201, True, 1)
    assert again.json()["snapshot"]["n_survivors"] == 2
    client.post(f"{path}/obligations", json={"obligation_id": "o", "min_total_eliminations": 1})
    ends = [client.post(f"{path}/terminate", headers={"Idempotency-Key": "end"}).json() for _ in range(2)]
    assert [each["refusal"] for each in ends] == [ends[0]["refusal"]] * 2
    assert [each.get("replayed") for each in ends] == [None, True]


@pytest.mark.req("GATES-ELIM-01", "GATES-ATTR-03")
def test_a_session_over_an_installed_kit_takes_probes_and_refuses_lists(client: httpx2.Client) -> None:
    session_id = declare(client, provider="checkout")
    path = f"/v1/sessions/{session_id}"
    recorded = client.get(f"{path}/audit").json()["events"][0]["payload"]
    assert recorded["provider"] == {"id": "checkout", "version": "1"}
    assert recorded["policy"]["conclusions"] == "decided"
    assert client.get(f"{path}/survivors").json()["attributes"] == {"disk": {"component": "db"}}
    body = {"source_id": "s", "observation_id": "1", "eliminated": ["dns"]}
    refused = client.post(f"{path}/eliminate", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FREE_HAND_REFUSED")
    observed = client.post(f"{path}/observations", json={"probe_id": "disk-usage", "response": "normal"})
    assert observed.json()["applied_eliminated"] == ["disk"]
    assert client.post(f"{path}/observations", json={"probe_id": "disk-usage", "response": "normal"}).json()["replayed"]
    event = client.get(f"{path}/audit").json()["events"][-1]["payload"]
    asked = {"probe_id": "disk-usage", "response": "normal"}
    read = {"outcome_id": "normal", "reading": {"soundness": "sound"}}
    assert (event["probe"], event["source_id"]) == ({**asked, **read}, "observer")
    other = client.post(f"{path}/observations", json={"probe_id": "disk-usage", "response": None, "source_id": "else"})
    assert other.json()["applied_eliminated"] == []


@pytest.mark.req("GATES-REFUSE-02")
def test_an_unknown_probe_or_provider_is_answered_with_the_nearest_one(client: httpx2.Client) -> None:
    path = f"/v1/sessions/{declare(client, provider='checkout')}"
    refused = client.post(f"{path}/observations", json={"probe_id": "disk-useage", "response": "normal"})
    assert (refused.status_code, refused.json()["error"]["details"]["accepted"]) == (422, "disk-usage")
    refused = client.post("/v1/sessions", json={"ontology": ONTOLOGY, "provider": "chekout"})
    details = refused.json()["error"]["details"]
    assert (refused.status_code, details["field"], details["accepted"]) == (400, "provider", ["checkout"])
    assert "did you mean `checkout`?" in refused.json()["error"]["message"]
    both = client.post("/v1/sessions", json={"ontology": ONTOLOGY, "provider": "checkout", "hypotheses": ["a"]})
    assert (both.status_code, both.json()["error"]["details"]["field"]) == (400, "hypotheses")
    path = f"/v1/sessions/{declare(client, hypotheses=['a'])}"
    without = client.post(f"{path}/observations", json={"probe_id": "disk-usage", "response": "normal"})
    assert (without.status_code, without.json()["error"]["code"]) == (400, "INVALID_REQUEST")
