"""Proofs over HTTP: the same documents as in Python, and errors that say what is so instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cmbs.audit.proof_check import verify_proof
from cmbs.audit.proofs import Prover
from cmbs.http.app import BeliefApp
from cmbs.ledger import Head, StoredEntry, hash_entry
from cmbs.substrate.kernel.events import STREAM_PREFIX
from tests.support.in_process import Client, client_of
from tests.support.proving import ProvenIncident
from tests.support.spaces import SPACE

OPERATOR = {"x-cmbs-actor": "operator:ops"}


@pytest.fixture(scope="module")
def world() -> ProvenIncident:
    return ProvenIncident(["disk", "dns", "lock", "queue", "release", "tls"])


@pytest.fixture(scope="module")
def client(world: ProvenIncident) -> Iterator[Client]:
    with client_of(BeliefApp(world.belief)) as client:
        yield client


def error_of(client: Client, path: str, **headers: str) -> tuple[int, str, str]:
    answer = client.get(path, headers={**OPERATOR, **headers})
    error: dict[str, Any] = answer.json()["error"]
    return answer.status_code, error["code"], error["message"]


@pytest.mark.req("PROOF-07")
def test_a_session_proves_what_it_says(subtests: pytest.Subtests, world: ProvenIncident, client: Client) -> None:
    for query, starts in [
        ("inclusion?at=2", "event 2 of"),
        ("inclusion", "event 5 of"),
        ("consistency?old_size=3", "`"),
        ("membership?hypothesis_id=queue", "`queue` survived after event 5"),
        ("membership?hypothesis_id=disk&at=2", "`disk` survived after event 2"),
        ("elimination?hypothesis_id=disk", "`disk` was gone after event 5"),
        ("transition?at=3", "event 3 of"),
        ("transition?at=3&entry=true", "event 3 of"),
        ("refusal?at=2", "event 2 of"),
    ]:
        with subtests.test(query=query, starts=starts):
            answer = client.get(f"/v1/sessions/{world.session_id}/proofs/{query}")
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            verified = verify_proof(answer.content, world.anchors)
            assert verified.statement.startswith(starts)
            assert verified.kind == query.partition("?")[0]


@pytest.mark.req("PROOF-07")
def test_an_event_may_be_named_by_its_id(world: ProvenIncident, client: Client) -> None:
    event_id = world.belief.audit_trace(world.session_id)[3].event_id
    path = f"/v1/sessions/{world.session_id}/proofs/inclusion"
    assert client.get(f"{path}?at={event_id}").content == client.get(f"{path}?at=3").content
    path = f"/v1/spaces/{SPACE}/proofs/inclusion"
    assert client.get(f"{path}?at=0", headers=OPERATOR).json()["event"]["entry"].count('"CREATE_SPACE"') == 1


@pytest.mark.req("PROOF-07", "PROOF-02")
def test_a_space_proves_what_it_decided(subtests: pytest.Subtests, world: ProvenIncident, client: Client) -> None:
    for kind in ["inclusion", "decision"]:
        with subtests.test(kind=kind):
            answer = client.get(f"/v1/spaces/{SPACE}/proofs/{kind}?at=5", headers=OPERATOR)
            prover = Prover(world.log)
            expected = prover.decision(SPACE, 5) if kind == "decision" else prover.inclusion(STREAM_PREFIX + SPACE, 5)
            assert verify_proof(answer.content, world.anchors) == verify_proof(expected, world.anchors)


@pytest.mark.req("PROOF-07")
def test_a_false_statement_is_a_conflict_that_says_what_is_so(world: ProvenIncident, client: Client) -> None:
    proofs = f"/v1/sessions/{world.session_id}/proofs"
    status, code, message = error_of(client, f"{proofs}/membership?hypothesis_id=disk")
    assert (status, code) == (409, "CONFLICT")
    assert message.startswith("`disk` did not survive event 5: event 3 (`")
    assert error_of(client, f"{proofs}/elimination?hypothesis_id=queue")[:2] == (409, "CONFLICT")
    assert error_of(client, f"{proofs}/refusal?at=3")[:2] == (409, "CONFLICT")
    assert error_of(client, f"/v1/spaces/{SPACE}/proofs/decision?at=4")[:2] == (409, "CONFLICT")


@pytest.mark.req("PROOF-07")
def test_what_cannot_be_proven_has_an_error_of_its_own(
    subtests: pytest.Subtests, world: ProvenIncident, client: Client
) -> None:
    for path, expected in [
        ("sessions/{session}/proofs/inclusion?at=6", (404, "EVENT_NOT_FOUND")),
        ("sessions/{session}/proofs/inclusion?at=nothing", (404, "EVENT_NOT_FOUND")),
        ("sessions/{session}/proofs/consistency?old_size=7", (404, "EVENT_NOT_FOUND")),
        ("sessions/nowhere/proofs/inclusion", (404, "SESSION_NOT_FOUND")),
        ("spaces/nowhere/proofs/inclusion", (404, "SPACE_NOT_FOUND")),
        (f"spaces/{SPACE}/proofs/inclusion?at=99", (404, "EVENT_NOT_FOUND")),
        (f"spaces/{SPACE}/proofs/inclusion?at=nothing", (404, "EVENT_NOT_FOUND")),
        ("sessions/{session}/proofs/membership?hypothesis_id=gremlins", (422, "INVALID_HYPOTHESIS_ID")),
        ("sessions/{session}/proofs/membership", (400, "INVALID_REQUEST")),
        ("sessions/{session}/proofs/consistency", (400, "INVALID_REQUEST")),
        ("sessions/{session}/proofs/consistency?old_size=0", (400, "INVALID_REQUEST")),
        ("sessions/{session}/proofs/consistency?old_size=few", (400, "INVALID_REQUEST")),
        ("sessions/{session}/proofs/inclusion?hypothesis_id=disk", (400, "INVALID_REQUEST")),
        ("sessions/{session}/proofs/transition?entry=maybe", (400, "INVALID_REQUEST")),
        ("sessions/{session}/proofs/decision", (404, "NOT_FOUND")),
        (f"spaces/{SPACE}/proofs/membership", (404, "NOT_FOUND")),
    ]:
        with subtests.test(path=path, expected=expected):
            assert error_of(client, "/v1/" + path.format(session=world.session_id))[:2] == expected


@pytest.mark.req("PROOF-07")
def test_proofs_of_spaces_are_for_operators(client: Client) -> None:
    path = f"/v1/spaces/{SPACE}/proofs/decision?at=5"
    assert error_of(client, path, **{"x-cmbs-actor": "agent:planner"})[:2] == (403, "FORBIDDEN")


@pytest.mark.req("PROOF-04")
def test_what_was_rewritten_under_a_running_server_has_no_proof() -> None:
    world = ProvenIncident(["disk", "dns", "lock", "queue", "release", "tls"])
    stream = world.log._streams[STREAM_PREFIX + SPACE]
    denied = next(seq for seq, entry in enumerate(stream.entries) if b'"verdict":"deny"' in entry.raw)
    decision = f"/v1/spaces/{SPACE}/proofs/decision?at={denied}"
    with client_of(BeliefApp(world.belief)) as client:
        assert error_of(client, decision)[:2] == (409, "CONFLICT")
        raw = stream.entries[denied].raw.replace(b'"verdict":"deny"', b'"verdict":"allow"')
        stream.entries[denied] = StoredEntry(raw, hash_entry(raw))
        assert error_of(client, decision)[1] == "LEDGER_CORRUPT"
        session = world.log._streams[world.session_id]
        raw = session.entries[5].raw.replace(b'"rest"', b'"best"')
        session.entries[5] = StoredEntry(raw, hash_entry(raw))
        session.head = Head(5, session.entries[5].event_hash)
        assert error_of(client, f"/v1/sessions/{world.session_id}/proofs/inclusion?at=1")[1] == "LEDGER_CORRUPT"
