"""The routes of checkpoints: which scope a stream needs, and what they answer when nothing can be signed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.kernel.scopes import Scope
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.signing import notary_of
from tests.support.store_fixture import declared


@pytest.fixture
def server() -> BeliefServer:
    return BeliefServer()


@pytest.fixture
def client(server: BeliefServer, tmp_path: Path) -> Iterator[Client]:
    app = BeliefApp(Service(server, Gate(KeyRegistry(server.log)), notary=notary_of(server, tmp_path)))
    with closing(app), client_of(app) as client:
        yield client


@pytest.mark.req("TLOG-HTTP-01", "ID-HTTP-02")
@pytest.mark.parametrize(
    ("stream_id", "needed"),
    [
        ("session", Scope.BELIEF_READ),
        ("space:main", Scope.SPACES_READ),
        ("space%3Amain", Scope.SPACES_READ),
        ("identity:keys", Scope.SPACES_OPERATE),
        ("%69dentity:keys", Scope.SPACES_OPERATE),
    ],
)
def test_the_head_of_a_stream_needs_the_scope_that_the_stream_needs(
    server: BeliefServer, client: Client, stream_id: str, needed: Scope
) -> None:
    registry = KeyRegistry(server.log)
    lacking = registry.create(ActorKind.AGENT, "a", scopes=[scope for scope in Scope if scope is not needed])
    sufficient = registry.create(ActorKind.OPERATOR, "b", scopes=[needed])
    path = f"/v1/checkpoint/streams/{stream_id}"
    answer = client.request("GET", path, headers={"authorization": f"Bearer {lacking.text}"})
    assert check_error(answer, 403, "FORBIDDEN")["scope"] == needed
    answer = client.request("GET", path, headers={"authorization": f"Bearer {sufficient.text}"})
    check_error(answer, 404, "RECORD_NOT_FOUND")


@pytest.mark.req("TLOG-HTTP-01", "TLOG-REFUSE-01")
@pytest.mark.parametrize("name", ["signing.key.checkpoint", "signing.key"])
def test_files_that_cannot_be_used_make_the_server_unready(
    server: BeliefServer, client: Client, tmp_path: Path, name: str
) -> None:
    session_id = declared(server)
    assert client.request("POST", "/v1/checkpoint", json={}).status_code == 200
    assert client.request("GET", "/readyz").status_code == 200
    (tmp_path / name).write_bytes(b"")
    server.eliminate(session_id, "source", "1", ["a"])
    for method, path in (("GET", "/readyz"), ("POST", "/v1/checkpoint"), ("GET", "/readyz")):
        answer = client.request(method, path, **({"json": {}} if method == "POST" else {}))
        said = check_error(answer, 503, "STORE_UNAVAILABLE")["message"]
        assert "cannot use the signing key" in said
        assert str(tmp_path) not in said
    proof = client.request("GET", f"/v1/sessions/{session_id}/proofs/inclusion", params={"at": "1"})
    assert proof.status_code == 200, proof.text
    assert proof.json()["stream"].get("anchor") is None
