"""Kill -9 between an event and its delivery, and several processes over one store: nothing is lost, or sent by two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.http_server import free_port, run_cmbs, serving
from tests.support.transports import ONTOLOGY
from tests.support.webhook_receiver import Receiver, receiving

# One second to answer, so that the right of a killed process to a try is over soon; one second before the second try.
OPTIONS = ("--webhook-key", "webhook.key", "--webhook-timeout", "1", "--webhook-retry", "1")
OPS = {"x-cmbs-actor": "operator:ops"}

# On PostgreSQL only before a release: what claims an event is the log, which both have.
ON_DATABASES = pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.deep)], indirect=True
)


def register(client: httpx2.Client, receiver: Receiver) -> str:
    """Register an endpoint for conclusions; its secret."""
    body = {"webhook_id": "w", "url": receiver.url, "events": ["session.concluded"]}
    answer = client.post("/v1/webhooks", json=body, headers=OPS)
    assert answer.status_code == 201, answer.text
    secret: str = answer.json()["secret"]
    return secret


def declare(client: httpx2.Client) -> str:
    answer = client.post("/v1/sessions", json={"ontology": ONTOLOGY, "hypotheses": ["a"]})
    session_id: str = answer.json()["session_id"]
    return session_id


def conclude(client: httpx2.Client, session_id: str, conclusion_id: str) -> None:
    answer = client.post(f"/v1/sessions/{session_id}/conclusions", json={"conclusion_id": conclusion_id})
    assert answer.json()["accepted"] is True


def list_deliveries(client: httpx2.Client) -> list[dict[str, Any]]:
    deliveries: list[dict[str, Any]] = client.get("/v1/webhooks/w/deliveries", headers=OPS).json()["deliveries"]
    return deliveries


@pytest.mark.slow
@pytest.mark.req("WEBHOOK-06")
@ON_DATABASES
def test_an_event_survives_kill_9_between_the_event_and_its_delivery(tmp_path: Path, store_url: str) -> None:
    options = ("--store", store_url, *OPTIONS)
    with receiving() as receiver:
        with serving(tmp_path, *options) as server, server.client() as client:
            secret, session_id = register(client, receiver), declare(client)
            # The endpoint has the request, and does not answer: the process dies with the try under way.
            receiver.answering.clear()
            conclude(client, session_id, "under way")
            first = receiver.take()
            # Written, and the process dies at once: found or not, it must not be lost.
            conclude(client, session_id, "just written")
            server.kill()
        receiver.answering.set()
        with serving(tmp_path, *options) as server, server.client() as client:
            told: dict[str, set[str]] = {"under way": {first.message_id}}
            receiver.wait_until(
                lambda: [each["status"] for each in list_deliveries(client)] == ["delivered", "delivered"]
            )
            while not receiver.requests.empty():
                received = receiver.take()
                told.setdefault(received.verify(secret)["data"]["conclusion_id"], set()).add(received.message_id)
            assert {name: len(ids) for name, ids in told.items()} == {"under way": 1, "just written": 1}
            attempts = {each["delivery_id"]: each["attempts"] for each in list_deliveries(client)}
            lost = attempts[first.message_id][0]
            assert lost["status"] is None
            assert lost["error"]
    assert run_cmbs("fsck", store_url, directory=tmp_path).returncode == 0


@pytest.mark.slow
@pytest.mark.req("WEBHOOK-06")
@ON_DATABASES
def test_of_several_processes_over_one_store_one_sends_an_event_at_a_time(tmp_path: Path, store_url: str) -> None:
    options = ("--store", store_url, "--webhook-key", "webhook.key")
    with (
        receiving() as receiver,
        serving(tmp_path, *options, port=free_port()) as server,
        serving(tmp_path, *options, port=free_port()) as other,
        server.client() as client,
        other.client() as elsewhere,
    ):
        secret = register(client, receiver)
        sessions = [declare(each) for each in (client, elsewhere)]
        for number in range(10):
            conclude(client, sessions[0], f"here {number}")
            conclude(elsewhere, sessions[1], f"there {number}")
        received = [receiver.take() for _ in range(20)]
        assert len({each.message_id for each in received}) == 20
        assert len({json.dumps(each.verify(secret)) for each in received}) == 20
        receiver.wait_until(lambda: all(each["status"] == "delivered" for each in list_deliveries(elsewhere)))
        assert receiver.requests.empty()
        assert [each["n_attempts"] for each in list_deliveries(client)] == [1] * 20
    assert run_cmbs("verify", "--store", store_url, directory=tmp_path).returncode == 0
