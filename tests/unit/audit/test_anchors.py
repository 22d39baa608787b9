"""Proofs that carry a signed checkpoint: with the server's key, they rest on nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cmbs.audit.anchors import anchor_by
from cmbs.audit.kernel.documents import write_proof
from cmbs.audit.proof_check import read_known, verify_proof
from cmbs.audit.proofs import Prover
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidProof
from cmbs.offline_verifier import Known
from cmbs.transparency.kernel.notes import Algorithm, SigningKey
from cmbs.transparency.kernel.published import LogKey
from cmbs.transparency.notary import Notary
from tests.support.signing import notary_of
from tests.support.store_fixture import StoreFixture, declared


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BeliefServer]:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        yield fixture.open()


@pytest.fixture
def notary(server: BeliefServer, tmp_path: Path) -> Iterator[Notary]:
    with closing(notary_of(server, tmp_path)) as notary:
        yield notary


def known_by(notary: Notary) -> Known:
    return read_known([], notary.keys().keys)


@pytest.mark.req("TLOG-ANCHOR-01")
def test_a_proof_with_a_signed_checkpoint_rests_on_the_key_alone(server: BeliefServer, notary: Notary) -> None:
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["a"])
    prover = Prover(server.log, anchor=anchor_by(notary))
    for proof in (
        prover.inclusion(session_id, 1),
        prover.membership(session_id, "b", 1),
        prover.elimination(session_id, "a", 1),
    ):
        assert verify_proof(write_proof(proof), known_by(notary)).rests_on == []
        assert verify_proof(write_proof(proof)).rests_on != []


@pytest.mark.req("TLOG-ANCHOR-01")
def test_a_checkpoint_that_is_too_old_is_signed_anew_and_one_that_is_not_is_used(
    server: BeliefServer, notary: Notary, tmp_path: Path
) -> None:
    session_id = declared(server)
    find = anchor_by(notary)
    first = find(session_id, 1, 1)
    assert first is not None
    server.eliminate(session_id, "s", "1", ["a"])
    assert find(session_id, 1, 2) == first
    newer = find(session_id, 2, 2)
    assert newer is not None
    assert newer.size == 2
    assert find("no such stream", 1, 1) is None
    (tmp_path / "signing.key.checkpoint").write_bytes(b"")
    assert find(session_id, 2, 2) is None


@pytest.mark.req("TLOG-ANCHOR-01")
def test_evidence_that_is_not_of_this_stream_or_this_key_is_refused(server: BeliefServer, notary: Notary) -> None:
    session_id, other_id = declared(server), declared(server, "xyz")
    prover = Prover(server.log, anchor=anchor_by(notary))
    good: dict[str, Any] = json.loads(write_proof(prover.inclusion(session_id, 0)))
    other: dict[str, Any] = json.loads(write_proof(prover.inclusion(other_id, 0)))
    anchor = good["stream"]["anchor"]
    for bad in (
        other["stream"]["anchor"],
        {**anchor, "note": anchor["note"].replace("\n2\n", "\n3\n")},
        {**anchor, "leaf_index": anchor["leaf_index"] + 1},
        {**anchor, "entry": {**anchor["entry"], "payload": {**anchor["entry"]["payload"], "root": "00" * 32}}},
        {**anchor, "note": "nothing"},
        {**anchor, "size": anchor["size"] + 1},
        {"note": anchor["note"]},
        {**anchor, "kind": "checkpoint"},
        {},
    ):
        document = {**good, "stream": {**good["stream"], "anchor": bad}}
        # Whether a key was given or not: an anchor that is none is never ignored.
        for known in (known_by(notary), Known()):
            with pytest.raises(InvalidProof, match="anchor"):
                verify_proof(json.dumps(document).encode(), known)
    unknown = LogKey(SigningKey("example.com/log", Algorithm.ED25519, bytes(range(32))).verifier.text, "")
    with pytest.raises(InvalidProof, match="not signed by the given key"):
        verify_proof(json.dumps(good).encode(), read_known([], [unknown]))
