"""Proofs that were made once must be judged the same for ever, by this verifier and by any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cmbs.audit.kernel.verify import Anchors, Tree, verify_proof
from cmbs.errors import InvalidProof
from tests.support.subtests import for_each

VECTORS = sorted((Path(__file__).resolve().parents[2] / "vectors" / "proofs").glob("*.json"))


@pytest.mark.req("PROOF-06")
@for_each("path", VECTORS, ids=lambda path: path.stem)
def test_a_vector_is_judged_as_it_was(path: Path) -> None:
    vector = json.loads(path.read_text("utf-8"))
    anchors = Anchors(
        {name: [_tree(each) for each in kept] for name, kept in vector["anchors"]["streams"].items()},
        {name: _tree(each) for name, each in vector["anchors"]["universes"].items()},
    )
    document = json.dumps(vector["document"]).encode()
    if "refused" in vector:
        with pytest.raises(InvalidProof):
            verify_proof(document, anchors)
        return
    verified = verify_proof(document, anchors)
    assert (verified.statement, list(verified.rests_on)) == (vector["statement"], vector["rests_on"])


def test_there_are_vectors_of_every_kind_and_of_what_is_refused() -> None:
    vectors = [json.loads(path.read_text("utf-8")) for path in VECTORS]
    good = {vector["document"]["kind"] for vector in vectors if "refused" not in vector}
    assert good == {"inclusion", "consistency", "membership", "elimination", "transition", "refusal", "decision"}
    assert sum("refused" in vector for vector in vectors) >= 12


def _tree(kept: dict[str, str]) -> Tree:
    return Tree(int(kept["size"]), bytes.fromhex(kept["root"]))
