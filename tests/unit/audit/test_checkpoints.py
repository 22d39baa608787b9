"""Kept checkpoints against what a server answers: honest ones, and servers that show another log to another client."""

from __future__ import annotations

from pathlib import Path

import httpx2
import msgspec
import pytest

from cmbs.audit.checkpoints import check_against_server, check_records, check_streams
from cmbs.belief.server import BeliefServer
from cmbs.cli.served_checkpoints import ServedCheckpoints
from cmbs.client import Client as ApiClient
from cmbs.client import Patience
from cmbs.client.errors import RequestFailed, Unreachable, UnreadableAnswer
from cmbs.client.transports import HttpTransport
from cmbs.errors import Forbidden
from cmbs.http import BeliefApp
from cmbs.ledger.merkle import leaf_hash, root_of_hashes
from cmbs.ledger.proofs import consistency_path
from cmbs.stores import open_store
from cmbs.transparency.kernel.checkpoint import Checkpoint
from cmbs.transparency.kernel.documents import describe_checkpoint, describe_consistency
from cmbs.transparency.kernel.faults import FaultKind
from cmbs.transparency.kernel.notes import Algorithm, Note, SigningKey
from cmbs.transparency.kernel.published import LogKey
from cmbs.transparency.kernel.records import HeadRecord
from tests.support.in_process import Client, client_of
from tests.support.signing import notary_of
from tests.support.spaces import SPACE, World
from tests.support.store_fixture import StoreFixture, declared
from tests.support.subtests import for_each
from tests.unit.streams.test_seen_heads import LOSSES

NAME = "example.com/log"
KEY = SigningKey(NAME, Algorithm.ED25519, bytes(range(32)))
KEYS = [LogKey(KEY.verifier.text, "")]
LEAVES = [leaf_hash(bytes([number])) for number in range(8)]
OTHERS = [leaf_hash(bytes([number, 1])) for number in range(8)]


def sign(leaves: list[bytes], size: int, origin: str = NAME, key: SigningKey = KEY) -> Note:
    text = Checkpoint(origin, size, root_of_hashes(leaves[:size])).text
    return Note(text, (key.sign(text),))


class FakeServer(httpx2.BaseTransport):
    """A server that answers with the checkpoint and the tree it is given, honest or not."""

    def __init__(self, note: Note, leaves: list[bytes], size: int) -> None:
        self.note, self.leaves, self.size = note, leaves, size
        self.authorization = ""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.authorization = request.headers.get("authorization", "")
        if request.url.path == "/v1/checkpoint":
            return httpx2.Response(200, json=msgspec.to_builtins(describe_checkpoint(self.note)))
        old_size = int(request.url.params["from"])
        path = consistency_path(self.leaves[: self.size], old_size)
        return httpx2.Response(200, json=msgspec.to_builtins(describe_consistency(self.note, old_size, path)))


def ask(transport: httpx2.BaseTransport, key: str = "") -> ServedCheckpoints:
    """What asks a server through this transport."""
    http = HttpTransport(httpx2.Client(base_url="http://server.example", transport=transport), "the server")
    return ServedCheckpoints(ApiClient(http, "the server", Patience(attempts=1), identity={"authorization": key}))


@pytest.mark.req("TLOG-CHECK-02")
@for_each(
    ("current", "leaves", "kind"),
    [
        (sign(LEAVES, 5), LEAVES, None),
        (sign(LEAVES, 3), LEAVES, None),
        (sign(LEAVES, 2), LEAVES, FaultKind.PUT_BACK),
        (sign(LEAVES, 0), LEAVES, FaultKind.EMPTIED),
        (sign(OTHERS, 3), OTHERS, FaultKind.SPLIT_VIEW),
        (sign(OTHERS, 5), OTHERS, FaultKind.SPLIT_VIEW),
        (sign(OTHERS, 5), LEAVES, FaultKind.SPLIT_VIEW),
        (sign(LEAVES, 5, "example.com/other"), LEAVES, FaultKind.OTHER_LOG),
        (sign(LEAVES, 5)._replace(text=sign(OTHERS, 5).text), OTHERS, FaultKind.FORGED_SIGNATURE),
        (sign(LEAVES, 5, key=SigningKey(NAME, Algorithm.ED25519, bytes(32))), LEAVES, FaultKind.UNKNOWN_KEY),
    ],
)
def test_what_a_server_signs_now_must_continue_what_was_kept(
    current: Note, leaves: list[bytes], kind: FaultKind | None
) -> None:
    kept = sign(LEAVES, 3)
    server = FakeServer(current, leaves, Checkpoint.parse(current.text).size)
    faults = check_against_server([kept], ask(server, "Bearer secret"), KEYS)
    assert [fault.kind for fault in faults] == ([] if kind is None else [kind])
    assert server.authorization == "Bearer secret"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx2.Response(500, text="no"), RequestFailed),
        (httpx2.Response(200, text="nonsense"), UnreadableAnswer),
        (None, Unreachable),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_and_not_a_finding(
    answer: httpx2.Response | None, error: type[Exception]
) -> None:
    def handle(_: httpx2.Request) -> httpx2.Response:
        if answer is None:
            raise httpx2.ConnectError("refused")
        return answer

    server = ask(httpx2.MockTransport(handle))
    for read in (server.checkpoint, server.keys, lambda: server.consistency(1)):
        with pytest.raises(error):
            read()


# --- the record of one session, held against a server ---


class Served(httpx2.BaseTransport):
    """The way to an application in this process; `instead` is answered in the place of what it says."""

    def __init__(self, client: Client, instead: httpx2.Response | None = None) -> None:
        self.client, self.instead = client, instead

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        # Proofs of spaces are for operators.
        answer = self.client.get(request.url.raw_path.decode(), headers={"x-cmbs-actor": "operator:alice"})
        said = {"content-type": "application/json"}
        return self.instead or httpx2.Response(answer.status_code, headers=said, content=answer.content)


def check(app: BeliefApp, records: list[HeadRecord], instead: httpx2.Response | None = None) -> list[FaultKind]:
    with client_of(app) as client:
        return [fault.kind for fault in check_streams(records, ask(Served(client, instead)))]


def keep(fixture: StoreFixture, directory: Path) -> tuple[str, list[HeadRecord]]:
    """A session and a space, and the records of both that a client kept."""
    server = fixture.open()
    notary = notary_of(server, directory)
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["a"])
    world = World(server.log)
    world.open()
    world.close()
    notary.note_change(f"space:{SPACE}")
    notary.publish()
    records, faults = check_records([notary.record_of(name) for name in (session_id, f"space:{SPACE}")])
    assert (len(records), faults) == (2, [])
    server.close()
    return session_id, records


@pytest.mark.req("TLOG-CHECK-02")
@pytest.mark.parametrize("place", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
@pytest.mark.parametrize("loss", [None, *LOSSES])
def test_a_server_must_still_have_what_was_recorded_of_a_session(place: str, loss: str | None, tmp_path: Path) -> None:
    with StoreFixture.at(place, tmp_path) as fixture:
        session_id, records = keep(fixture, tmp_path)
        if loss is not None:
            LOSSES[loss](fixture, session_id, lambda: None)
        # A server that has never seen more, and signs nothing: it serves what is there in good faith.
        app = BeliefApp(BeliefServer(store=open_store(fixture.url)))
        assert check(app, records) == ([] if loss is None else [FaultKind(loss)])
        app.close()


@pytest.mark.req("TLOG-CHECK-02")
def test_a_server_that_knows_of_its_loss_or_proves_something_else_proves_nothing(tmp_path: Path) -> None:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        session_id, records = keep(fixture, tmp_path)
        app = BeliefApp(BeliefServer(store=open_store(fixture.url)))
        with client_of(app) as client:
            good = client.get(f"/v1/sessions/{session_id}/proofs/consistency?old_size=2")
            other = client.get(f"/v1/sessions/{session_id}/proofs/consistency?old_size=1")
        assert good.status_code == other.status_code == 200
        for content in (b"{}", other.content, good.content.replace(session_id.encode(), b"another")):
            answer = httpx2.Response(200, headers={"content-type": "application/json"}, content=content)
            assert check(app, records[:1], answer) == [FaultKind.UNPROVED]
        refused = httpx2.Response(403, json={"error": {"code": "FORBIDDEN", "message": "no"}})
        for answer, error in ((refused, Forbidden), (httpx2.Response(502), RequestFailed)):
            with pytest.raises(error):
                check(app, records, answer)
        LOSSES["truncated"](fixture, session_id, lambda: None)
        assert check(app, records) == [FaultKind.UNPROVED]
        # Of the register of keys there are no proofs over HTTP.
        assert check(app, [HeadRecord("0" * 64, "0" * 64, 1, "identity:keys")]) == []
        app.close()
