"""Proofs that were made once must be judged the same for ever, by this verifier and by any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cmbs.audit.proof_check import read_known, verify_proof
from cmbs.errors import InvalidProof
from cmbs.offline_verifier import Question
from cmbs.transparency.kernel.published import LogKey
from tests.support.subtests import for_each

VECTORS = sorted((Path(__file__).resolve().parents[2] / "vectors" / "proofs").glob("*.json"))


@pytest.mark.req("PROOF-06", "PROOF-08", "PROOF-09")
@for_each("path", VECTORS, ids=lambda path: path.stem)
def test_a_vector_is_judged_as_it_was(path: Path) -> None:
    vector = json.loads(path.read_text("utf-8"))
    known = read_known([json.dumps(vector["anchors"]).encode()], [LogKey(each, "") for each in vector["keys"]])
    document = json.dumps(vector["document"]).encode()
    asked = Question(**vector["asked"]) if "asked" in vector else None
    if "refused" in vector:
        with pytest.raises(InvalidProof):
            verify_proof(document, known, asked)
        return
    verified = verify_proof(document, known, asked)
    expected = [vector[name] for name in ("statement", "rests_on", "not_checked")]
    assert [verified.statement, verified.rests_on, verified.not_checked] == expected


def test_there_are_vectors_of_every_kind_and_of_what_is_refused() -> None:
    vectors = [json.loads(path.read_text("utf-8")) for path in VECTORS]
    good = {vector["document"]["kind"] for vector in vectors if "refused" not in vector}
    assert good == {"inclusion", "consistency", "membership", "elimination", "transition", "refusal", "decision"}
    assert sum("refused" in vector for vector in vectors) >= 30
    assert sum("asked" in vector for vector in vectors) >= 6
    assert all(vector["anchors"] or vector["keys"] or vector["rests_on"] for vector in vectors if "rests_on" in vector)
