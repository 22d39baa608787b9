"""Under one root, no two proofs say of one event that a hypothesis survived it and that it did not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.audit.proof_check import verify_proof
from cmbs.errors import InvalidProof
from cmbs.offline_verifier import Known, Proven, Tree, hash_universe
from tests.support.forged_proofs import STREAM, Document, ForgedLog

IDS = ["a", "b", "c", "d"]


def check(document: Document, known: Known | None = None) -> Proven:
    return verify_proof(json.dumps(document).encode(), known)


def kept(log: ForgedLog) -> Known:
    """A reader who trusts the root of the log."""
    return Known(trees={STREAM: [Tree(len(log.entries), log.root)]})


def misplace() -> ForgedLog:
    """A writer who lists `a` and `c`, and clears the bits of `b` and `d`."""
    log = ForgedLog(IDS)
    log.eliminate(["a", "c"], [1, 3])
    return log


@pytest.mark.req("PROOF-08")
def test_an_id_that_is_listed_over_the_bit_of_another_was_not_eliminated() -> None:
    log = misplace()
    assert check(log.membership("a", 0, 1), kept(log)).rests_on == []
    for position in (0, 1):
        with pytest.raises(InvalidProof, match="universe"):
            check(log.elimination("a", 1, [1, 3], position))
    for declared in (True, False):
        with pytest.raises(InvalidProof, match="the ids are not at these places of the universe"):
            check(log.transition(1, [1, 3], declared=declared))


@pytest.mark.req("PROOF-08")
def test_of_an_honest_writer_the_same_documents_prove_what_happened() -> None:
    log = ForgedLog(IDS)
    log.eliminate(["b", "d"], [1, 3])
    known = kept(log)
    assert check(log.elimination("b", 1, [1, 3], 1), known).rests_on == []
    assert "cleared exactly these bits: 1, 3, which are `b`, `d`" in check(log.transition(1, [1, 3]), known).statement
    log.eliminate([], [])
    assert "cleared exactly these bits: none, which are none" in check(log.transition(2, [])).statement
    document = log.transition(2, [])
    document["recorded"]["universe_path"] = log.place([0])
    with pytest.raises(InvalidProof, match="not empty where nothing was cleared"):
        check(document)


BAD_UNIVERSES = {
    "an id twice": ForgedLog(["a", "a", "b"]),
    "ids out of order": ForgedLog(["b", "a", "c"]),
    "a root over other ids": ForgedLog(IDS, ["a", "b", "c", "e"]),
    "a root over more ids": ForgedLog(IDS, [*IDS, "a"]),
    "another size": ForgedLog(IDS, size=3),
    "ids that are no texts": ForgedLog(["a"], payload={"hypotheses": [1]}),
    "no ids": ForgedLog(["a"], payload=None),
    "a size that is true": ForgedLog(
        ["a"], outcome={"universe_root": ForgedLog(["a"]).universe_root.hex(), "universe_size": True}
    ),
    "an outcome that is none": ForgedLog(["a"], outcome=[]),
}


@pytest.mark.req("PROOF-08")
@pytest.mark.parametrize("case", BAD_UNIVERSES)
def test_a_declaration_is_held_against_its_root(case: str) -> None:
    log = BAD_UNIVERSES[case]
    with pytest.raises(InvalidProof, match="declaration"):
        check(log.membership("a", log.leaves.index("a"), 0))


@pytest.mark.req("PROOF-08")
def test_a_declaration_that_is_left_out_is_a_condition_that_names_what_a_reader_must_have_checked() -> None:
    log = ForgedLog(IDS)
    root = hash_universe(IDS)
    document = log.membership("a", 0, 0, declared=False)
    condition = f"the universe of `{STREAM}` has 4 different ids, sorted, and the root {root.hex()}"
    assert check(document, kept(log)).rests_on == [condition]
    known = kept(log)
    known.universes[STREAM] = Tree(4, root)
    assert check(document, known).rests_on == []
    known.universes[STREAM] = Tree(5, root)
    with pytest.raises(InvalidProof, match="another universe than the one that was kept"):
        check(document, known)


@pytest.mark.req("PROOF-08")
@given(st.data())
def test_no_writer_can_have_both_proven(data: st.DataObject) -> None:
    names = st.sampled_from(["a", "b", "c"])
    hypotheses = data.draw(st.lists(names, min_size=1, max_size=4))
    leaves = data.draw(st.just(hypotheses) | st.lists(names, min_size=1, max_size=4))
    log = ForgedLog(hypotheses, leaves, data.draw(st.none() | st.integers(1, 5)))
    places = range(len(leaves))
    cleared = sorted(data.draw(st.sets(st.sampled_from(places))))
    listed = data.draw(st.just(sorted({leaves[at] for at in cleared})) | st.lists(names, max_size=4))
    log.eliminate(listed, cleared)
    for name in "abc":
        survived = [each for each in places if is_proven(log.membership(name, each, 1))]
        gone = [each for each in places if is_proven(log.elimination(name, 1, cleared, each))]
        assert not (survived and gone), (hypotheses, leaves, listed, cleared)
        assert len(survived) + len(gone) <= 1


def is_proven(document: Document) -> bool:
    try:
        check(document)
    except InvalidProof:
        return False
    return True
