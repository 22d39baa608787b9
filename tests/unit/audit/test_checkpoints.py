"""Kept checkpoints against what a server answers: honest ones, and servers that show another log to another client."""

from __future__ import annotations

from contextlib import closing

import httpx
import msgspec
import pytest

from cmbs.audit.checkpoints import CheckpointClient, check_against_server
from cmbs.errors import InvalidRequest, StoreUnavailable
from cmbs.ledger.merkle import leaf_hash, root_of_hashes
from cmbs.ledger.proofs import consistency_path
from cmbs.transparency.kernel.checkpoint import Checkpoint, LogKey
from cmbs.transparency.kernel.documents import describe_consistency
from cmbs.transparency.kernel.faults import FaultKind
from cmbs.transparency.kernel.notes import Algorithm, Note, SigningKey

NAME = "example.com/log"
KEY = SigningKey(NAME, Algorithm.ED25519, bytes(range(32)))
KEYS = [LogKey(KEY.verifier.text, "")]
LEAVES = [leaf_hash(bytes([number])) for number in range(8)]
OTHERS = [leaf_hash(bytes([number, 1])) for number in range(8)]


def sign(leaves: list[bytes], size: int, origin: str = NAME, key: SigningKey = KEY) -> Note:
    text = Checkpoint(origin, size, root_of_hashes(leaves[:size])).text
    return Note(text, (key.sign(text),))


class FakeServer(httpx.BaseTransport):
    """A server that answers with the checkpoint and the tree it is given, honest or not."""

    def __init__(self, note: Note, leaves: list[bytes], size: int) -> None:
        self.note, self.leaves, self.size = note, leaves, size
        self.authorization = ""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.authorization = request.headers.get("authorization", "")
        if request.url.path == "/v1/checkpoint":
            return httpx.Response(200, text=self.note.encoded)
        old_size = int(request.url.params["from"])
        path = consistency_path(self.leaves[: self.size], old_size)
        return httpx.Response(200, content=msgspec.json.encode(describe_consistency(self.note, old_size, path)))


@pytest.mark.req("TLOG-CHECK-02")
@pytest.mark.parametrize(
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
    with closing(CheckpointClient("http://server.example", "secret", transport=server)) as client:
        faults = check_against_server([kept], client, KEYS)
    assert [fault.kind for fault in faults] == ([] if kind is None else [kind])
    assert server.authorization == "Bearer secret"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(500, text="no"), StoreUnavailable),
        (httpx.Response(200, text="nonsense"), InvalidRequest),
        (None, StoreUnavailable),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_and_not_a_finding(
    answer: httpx.Response | None, error: type[Exception]
) -> None:
    def handle(_: httpx.Request) -> httpx.Response:
        if answer is None:
            raise httpx.ConnectError("refused")
        return answer

    with closing(CheckpointClient("http://server.example", transport=httpx.MockTransport(handle))) as client:
        for ask in (client.checkpoint, client.keys, lambda: client.consistency(1)):
            with pytest.raises(error):
                ask()
