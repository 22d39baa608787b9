"""The reference witness, and the client that asks it: what is cosigned, and what is refused and how."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from cmbs.errors import InvalidRequest
from cmbs.ledger.merkle import leaf_hash, root_of_hashes
from cmbs.ledger.proofs import consistency_path
from cmbs.transparency.kernel.checkpoint import Checkpoint
from cmbs.transparency.kernel.notes import Algorithm, Note, SigningKey
from cmbs.transparency.key_files import make_key
from cmbs.transparency.notary import Notary
from cmbs.transparency.witness import Witness, WitnessAnswer, open_witness_key
from cmbs.transparency.witness_client import WitnessAddress, WitnessClient, WitnessRefused
from tests.support.signing import files_in, notary_of
from tests.support.store_fixture import StoreFixture, declared
from tests.support.subtests import for_each


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        yield fixture


class _Remote(httpx2.BaseTransport):
    """Carries what a witness client sends to a witness in this process."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.requests = 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        answer = self.witness.add_checkpoint(request.read())
        return httpx2.Response(answer.status, headers={"content-type": answer.content_type}, text=answer.body)


@pytest.mark.req("TLOG-WITNESS-01")
def test_a_witness_cosigns_what_continues_and_nothing_else(
    sqlite: StoreFixture, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = sqlite.open()
    key = open_witness_key(tmp_path / "witness.key", "witness.example/w1")
    log = files_in(tmp_path).read_key().verifier
    remote = _Remote(Witness(key, [log], tmp_path / "witness.json"))
    address = WitnessAddress("http://witness.example", key.verifier)
    with closing(notary_of(server, tmp_path, witnesses=[address])) as notary:
        notary._witnesses[0]._client = httpx2.Client(transport=remote)
        for number in range(1, 4):
            declared(server)
            note = notary.publish()
            assert any(key.verifier.verifies(note.text, each) for each in note.signatures), number
            assert note == notary.checkpoint()
        assert remote.requests == 3
        # One that forgot which size the witness has learns it from the witness.
        notary._witnesses[0]._size = 1
        declared(server)
        assert len(notary.publish().signatures) == 2
        assert remote.requests == 5
        # A log that another server has cut is not cosigned.
        (tmp_path / "signing.key.checkpoint").unlink()
        other = StoreFixture("memory", tmp_path)
        forked = Notary(other.open().log, files_in(tmp_path), witnesses=[address])
        forked._witnesses[0]._client = httpx2.Client(transport=remote)
        assert len(forked.publish().signatures) == 1
        assert "it has cosigned size 4 before, and this is size 0" in caplog.text
        forked.close()
        other.close()


@pytest.mark.req("TLOG-WITNESS-01")
def test_a_witness_answers_as_its_protocol_says(tmp_path: Path) -> None:
    log, other = make_key("example.com/log"), make_key("example.com/log")
    key = open_witness_key(tmp_path / "witness.key", "witness.example/w1")
    state = tmp_path / "witness.json"
    leaves = [leaf_hash(bytes([number])) for number in range(9)]

    def submit(
        old: int,
        size: int,
        *,
        signer: SigningKey = log,
        proof: list[bytes] | None = None,
        root: bytes | None = None,
        origin: str = "example.com/log",
    ) -> WitnessAnswer:
        text = Checkpoint(origin, size, root or root_of_hashes(leaves[:size])).text
        path = consistency_path(leaves[:size], old) if proof is None else proof
        lines = "".join(f"{base64.b64encode(each).decode()}\n" for each in path)
        # A new witness each time: what it has seen is in its file.
        witness = Witness(key, [log.verifier], state, now=lambda: 1679315147)
        return witness.add_checkpoint(f"old {old}\n{lines}\n{Note(text, (signer.sign(text),)).encoded}".encode())

    assert submit(0, 3, origin="example.com/unknown").status == 404
    assert submit(0, 3, signer=other).status == 403
    assert submit(0, 3, proof=[leaves[0]]).status == 422
    good = submit(0, 3)
    assert good.status == 200
    assert good.body == key.cosign(Checkpoint("example.com/log", 3, root_of_hashes(leaves[:3])).text, 1679315147).line
    conflict = submit(0, 5, proof=[])
    assert (conflict.status, conflict.content_type, conflict.body) == (409, "text/x.tlog.size", "3\n")
    assert submit(3, 5, proof=[]).status == 422
    assert submit(3, 5, root=bytes(32)).status == 422
    assert submit(3, 3, root=bytes(32)).status == 409
    assert submit(3, 5).status == 200
    assert submit(5, 5).status == 200
    assert submit(3, 5).status == 409
    witness = Witness(key, [log.verifier], state)
    for body in (
        b"",
        b"old 9\n\n",
        b"old 01\n\nx\n",
        b"old 0\n!\n\nx\n1\nA\n\n",
        b"\xff",
        b"old 0\n" + b"AAAA\n" * 64 + b"\n",
    ):
        assert witness.add_checkpoint(body).status == 400, body
    with pytest.raises(InvalidRequest):
        Witness(log, [], state)
    state.write_bytes(b"{")
    with pytest.raises(InvalidRequest, match="cannot read the state"):
        Witness(key, [], state)
    with pytest.raises(InvalidRequest, match="give the witness a name"):
        open_witness_key(tmp_path / "none", "")
    assert key.algorithm is Algorithm.COSIGNATURE_V1
    address = WitnessAddress("http://witness.example", key.verifier)
    assert WitnessAddress.parse(f"http://witness.example/#{key.verifier.text}") == address
    for text in (key.verifier.text, f"ftp://a#{key.verifier.text}", f"http://a#{log.verifier.text}"):
        with pytest.raises(InvalidRequest):
            WitnessAddress.parse(text)


@pytest.mark.req("TLOG-WITNESS-01")
@for_each(
    ("status", "text", "why"),
    [
        (200, "no signature", "no signature"),
        (200, make_key("a", Algorithm.COSIGNATURE_V1).cosign("x", 1).line, "no valid cosignature"),
        (409, "not a size", "answered 409"),
        (409, "7", "cosigned size 7 before"),
        (403, "no", "answered 403"),
        (None, "", "cannot be reached"),
    ],
)
def test_an_answer_that_is_no_cosignature_is_refused_and_named(status: int | None, text: str, why: str) -> None:
    def handle(request: httpx2.Request) -> httpx2.Response:
        if status is None:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(status, text=text)

    log, key = make_key("example.com/log"), make_key("witness.example/w1", Algorithm.COSIGNATURE_V1)
    content = Checkpoint("example.com/log", 1, bytes(32)).text
    address = WitnessAddress("http://witness.example", key.verifier)
    with (
        closing(WitnessClient(address, httpx2.MockTransport(handle))) as client,
        pytest.raises(WitnessRefused, match=why),
    ):
        client.cosign(Note(content, (log.sign(content),)), lambda _: [])


async def ask(witness: Witness, method: str, path: str, body: bytes) -> int:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(witness), base_url="http://witness") as client:
        return (await client.request(method, path, content=body)).status_code


@pytest.mark.req("TLOG-WITNESS-01")
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/add-checkpoint", b"nonsense", 400),
        ("GET", "/add-checkpoint", b"", 404),
        ("POST", "/", b"", 404),
        ("POST", "/add-checkpoint", b"x" * 200_000, 413),
    ],
)
def test_a_witness_takes_one_kind_of_request(tmp_path: Path, method: str, path: str, body: bytes, status: int) -> None:
    witness = Witness(open_witness_key(tmp_path / "key", "w"), [], tmp_path / "state")
    assert asyncio.run(ask(witness, method, path, body)) == status
