"""The verifier of proofs: documents that are odd, and the canonical form of JSON."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from cmbs import offline_verifier as verifier
from cmbs.audit.kernel.documents import write_proof
from cmbs.audit.proof_check import verify_proof
from cmbs.audit.proofs import Prover
from cmbs.errors import InvalidProof
from cmbs.offline_verifier import Known, Refused
from cmbs.stores.memory import InMemoryStore
from tests.support.exports import SPACE_STREAM, first_session, play_world, world_streams
from tests.support.subtests import for_each
from tests.unit.audit.test_proof_mutations import prove

# --- proofs ---


# What single changes of a proof seldom hit: the kind, where, and what is put there.
ODD_CHANGES: list[tuple[str, tuple[str | int, ...], Any]] = [
    ("inclusion", ("event", "entry"), "[]"),
    ("inclusion", ("event", "entry"), "\ud800"),
    ("inclusion", ("event", "entry"), '{"seq":1,"seq":1}'),
    ("inclusion", ("event", "entry"), '{"seq":"\\ud800"}'),
    ("inclusion", ("stream", "id"), "\ud800"),
    ("transition", ("stream_id",), "\udfff"),
    ("inclusion", ("stream",), []),
    ("inclusion", ("kind",), ["inclusion"]),
    ("membership", ("hypothesis_id",), "\ud800"),
    ("membership", ("survivors", "block"), ""),
    ("elimination", ("flip", "universe_size"), 7),
    ("elimination", ("flip", "cleared"), []),
    ("elimination", ("flip", "cleared"), [0, 0]),
    ("transition", ("flip", "cleared"), [0]),
    ("transition", ("flip",), {"universe_size": 6, "cleared": [], "blocks": "", "path": ""}),
    ("transition", ("flip",), {"universe_size": 6, "cleared": [], "blocks": "", "path": "A" * 43 + "="}),
    ("decision", ("stream", "id"), "elsewhere"),
    ("decision", ("readings",), [1]),
    ("decision", ("readings", 0, "bitmap"), "AAAA"),
    ("decision", ("readings", 0, "bitmap"), base64.b64encode(zlib.compress(b"\xff")).decode()),
    ("decision", ("readings", 0, "bitmap"), base64.b64encode(zlib.compress(b"\x01\x01")).decode()),
]


@pytest.mark.req("OFFLINE-06")
@for_each("case", ODD_CHANGES, ids=str)
def test_odd_proofs_are_refused(case: tuple[str, tuple[str | int, ...], Any]) -> None:
    kind, path, value = case
    document = json.loads(write_proof(prove(kind)))
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(InvalidProof):
        verify_proof(json.dumps(document).encode())


@pytest.mark.req("OFFLINE-06")
def test_proofs_of_the_world_are_good() -> None:
    """Growth between any two sizes, and decisions on sessions that there never were."""
    store = InMemoryStore()
    play_world(store)
    prover = Prover(store)
    session_id = first_session()[0]["stream_id"]
    sizes = range(1, len(first_session()) + 1)
    proofs = [write_proof(prover.consistency(session_id, size)) for size in sizes]
    allowed = [
        entry["seq"]
        for entry in world_streams()[SPACE_STREAM]
        if verifier.look_up(entry, "outcome", "decision", "verdict") == "allow"
    ]
    proofs += [write_proof(prover.decision("s", seq)) for seq in allowed]
    for text in proofs:
        assert len(verify_proof(text).rests_on) in {1, 2}
    equal = json.loads(proofs[len(sizes) - 1])
    with pytest.raises(Refused, match="two equal sizes"):
        verifier.ProofCheck(Known()).check(json.dumps({**equal, "path": equal["stream"]["root"]}))


# --- canonical form ---


@pytest.mark.req("OFFLINE-07")
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_written_as_rfc_8785_writes_them(value: float) -> None:
    assert verifier.write_number(value).encode() == rfc8785.dumps(value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: abs(value) < 2**53 or abs(value) >= 1e21)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.req("OFFLINE-07")
@given(JSON, st.data())
def test_canonical_bytes_are_read_and_others_are_refused(value: Any, data: st.DataObject) -> None:
    text = rfc8785.dumps(value).decode()
    assert rfc8785.dumps(verifier.read_canonical(text)).decode() == text
    at = data.draw(st.integers(0, len(text)))
    changed = text[:at] + data.draw(st.sampled_from([" ", "\\u0041", "0", ".0", "e0", "\n", "\\/"])) + text[at:]
    try:
        read = verifier.read_canonical(changed)
    except Refused:
        return
    assert rfc8785.dumps(read).decode() == changed


@for_each("text", ["1e400", "NaN", "-0", "01", "1.0", "9007199254740993", "1E3", '{"b":1,"a":1}', "\ufeff1"])
def test_what_is_not_canonical_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        verifier.read_canonical(text)


def test_a_root_grows_with_its_leaves() -> None:
    leaves = [verifier.leaf(bytes([number])) for number in range(20)]
    tree = verifier.GrowingTree()
    for size, each in enumerate(leaves, 1):
        tree.append(each)
        assert tree.root() == verifier.build_levels(leaves[:size])[-1][0]
