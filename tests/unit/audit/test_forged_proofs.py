"""Proofs about logs that no server wrote, and about readings at their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cmbs.audit.kernel.documents import (
    FORMAT,
    BlockAt,
    Decision,
    Flip,
    Included,
    Membership,
    Recorded,
    StreamHead,
    Transition,
    UniverseRoot,
)
from cmbs.audit.proof_check import verify_proof
from cmbs.audit.proofs import Prover
from cmbs.belief.kernel.survivors import Universe
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidProof, LedgerCorrupt
from cmbs.ledger import GENESIS, StoredEntry, canonical, hash_entry
from cmbs.spi import Append
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.kernel.model import MAX_READ_SURVIVORS
from tests.support.proving import ONTOLOGY, anchors_of, history_of
from tests.support.spaces import SPACE, World, call, constraint, http_tool
from tests.support.subtests import for_each

TS = "2026-01-01T00:00:00.000000Z"
ENTRY = {
    "event_id": "e",
    "ts": TS,
    "format": "cmbs/1",
    "verb": "ELIMINATE",
    "survivors_before_hash": "",
    "survivors_after_hash": "",
}
ALLOW = {"decision": {"verdict": "allow"}}


def forge(stream_id: str, *entries: dict[str, Any], raw: bytes | None = None) -> InMemoryStore:
    """A log whose entries are linked and hashed as they must be, and say whatever they like."""
    log, previous = InMemoryStore(), GENESIS
    for seq, entry in enumerate(entries):
        content = {**ENTRY, "stream_id": stream_id, "seq": seq, "prev_event_hash": previous.hex(), **entry}
        text = canonical.encode(content) if raw is None else raw
        stored = StoredEntry(text, hash_entry(text))
        log.append([Append(stream_id, seq, str(seq), previous, stored, TS)])
        previous = stored.event_hash
    return log


@pytest.mark.req("PROOF-04")
@for_each(
    ("prove", "entry", "reason"),
    [
        (lambda prover: prover.inclusion("s", 0), {"stream_id": "t"}, "stream_id is `t`, expected `s`"),
        (lambda prover: prover.inclusion("s", 0), {"seq": 1}, "seq is `1`, expected `0`"),
        (lambda prover: prover.membership("s", "a", 0), {"payload": {}}, "malformed ELIMINATE payload"),
        (lambda prover: prover.membership("s", "a", 0), {"verb": "DECLARE_SESSION"}, "not a ledger entry"),
    ],
)
def test_a_forged_entry_is_corrupt(prove: Callable[[Prover], object], entry: dict[str, Any], reason: str) -> None:
    whole = {"delta": {"eliminated": []}, "outcome": None, "payload": {}, **entry}
    if entry.get("verb"):
        del whole["outcome"]
    with pytest.raises(LedgerCorrupt, match=reason):
        prove(Prover(forge("s", whole)))


def test_bytes_that_are_no_text_or_no_entry_are_corrupt() -> None:
    with pytest.raises(LedgerCorrupt, match="not a ledger entry"):
        Prover(forge("s", {}, raw=b"\xff")).inclusion("s", 0)
    with pytest.raises(LedgerCorrupt, match="not a ledger entry: Object missing"):
        Prover(forge("s", {}, raw=b"{}")).refusal("s", 0)
    link = b'"event_id":"e","format":"cmbs/1","prev_event_hash":"%s","seq":0,"stream_id":"s"' % GENESIS.hex().encode()
    with pytest.raises(LedgerCorrupt, match="can't decode byte 0xff"):
        Prover(forge("s", {}, raw=b'{"a":"\xff",' + link + b"}")).inclusion("s", 0)
    with pytest.raises(LedgerCorrupt, match=r"not an entry: field `entry.ts`: not a text"):
        Prover(forge("s", {}, raw=b"{" + link + b"}")).refusal("s", 0)


DECLARED = {
    "verb": "DECLARE_SESSION",
    "delta": {"eliminated": []},
    "outcome": {},
    "payload": {
        "hypotheses": ["a", "b"],
        "metadata": None,
        "ontology": {
            "causal_graph_ref": "",
            "causal_graph_version": "",
            "hypothesis_space_id": "",
            "hypothesis_version": "",
        },
        "policy": {"allow_force": False, "stability_window": 0, "validate_hypotheses": False},
        "provider": None,
    },
}


@pytest.mark.req("PROOF-04")
def test_a_declaration_without_a_universe_and_an_elimination_of_what_was_never_declared_are_corrupt() -> None:
    with pytest.raises(LedgerCorrupt, match="it commits to no universe"):
        Prover(forge("s", DECLARED)).membership("s", "a", 0)
    log = forge("s", DECLARED, {"delta": {"eliminated": ["c"]}})
    with pytest.raises(LedgerCorrupt, match="it eliminated 'c', which is not in the universe"):
        Prover(log).transition("s", 1)
    asked = {"source_id": "s", "observation_id": "o", "eliminated": []}
    with pytest.raises(LedgerCorrupt, match="the first event declares the session, not ELIMINATE"):
        history_of(forge("s", {"delta": {"eliminated": []}, "outcome": None, "payload": asked}), "s")
    with pytest.raises(LedgerCorrupt, match="at seq 1: Expected `object`"):
        history_of(forge("s", DECLARED, {"delta": 1}), "s")

    class Vague:
        def __init__(self) -> None:
            honest = history_of(forge("s", DECLARED, {"delta": {"eliminated": ["a"]}}), "s")
            self.universe, self.survivors_at = honest.universe, honest.survivors_at

        def find_elimination(self, _: str) -> None:
            return None

    with pytest.raises(LedgerCorrupt, match="`a` is gone, and no event eliminated it"):
        Prover(forge("s", DECLARED, {"delta": {"eliminated": []}}), lambda *_: Vague()).membership("s", "a", 1)


@pytest.mark.req("PROOF-03")
@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"delta": {"eliminated": 1}}, "delta.eliminated`: not a list"),
        ({"delta": {}}, "delta.eliminated`: not a list"),
        ({"delta": {"eliminated": ["b", "a"]}}, "delta.eliminated`: not a list of ids, sorted"),
    ],
)
def test_a_transition_of_a_forged_entry_proves_nothing(entry: dict[str, Any], problem: str) -> None:
    zero = "00" * 32
    log = forge("s", {"survivors_before_hash": zero, "survivors_after_hash": zero, **entry})
    included = Prover(log).inclusion("s", 0)
    universe = UniverseRoot(2, Universe(["a", "b"]).compute_root())
    recorded = Recorded(included.stream, included.event, universe, b"")
    flip = Flip(2, [], b"", b"")
    with pytest.raises(InvalidProof, match=problem):
        verify_proof(Transition(FORMAT, "s", 0, GENESIS, bytes(32), bytes(32), flip, recorded))


def test_an_entry_without_a_link_commits_to_nothing() -> None:
    (stored,) = forge("s", {"prev_event_hash": "zz"}).read("s")
    stream = StreamHead("s", 1, stored.event_hash, stored.event_hash, b"")
    event = Included(stored.raw.decode(), b"")
    ids = Universe(["a", "b"])
    universe = UniverseRoot(2, ids.compute_root())
    survivors = BlockAt(b"\x03" + bytes(127), b"")
    path = b"".join(ids.path([0]))
    with pytest.raises(InvalidProof, match="not 64 lower-case hexadecimal digits"):
        verify_proof(Membership(FORMAT, stream, "a", event, universe, 0, path, survivors))


@pytest.mark.req("PROOF-03", "PROOF-04")
@for_each("belief", [1, [1], [{"found": True}], [{"found": True, "session_id": "s", "head_seq": "x"}]])
def test_readings_that_no_server_recorded_prove_nothing(belief: Any) -> None:
    log = forge("space:x", {"verb": "PROPOSE", "outcome": ALLOW, "payload": {"belief": belief}})
    with pytest.raises(LedgerCorrupt, match="its belief readings are malformed"):
        Prover(log).decision("x", 0)
    included = Prover(log).inclusion("space:x", 0)
    with pytest.raises(InvalidProof, match=r"belief`: not|there is no evidence"):
        verify_proof(Decision(FORMAT, included.stream, included.event, [None]))


@pytest.mark.req("PROOF-04")
def test_a_decision_that_rests_on_a_session_that_is_gone_is_corrupt() -> None:
    reading = {"found": True, "session_id": "gone", "head_seq": 3}
    log = forge("space:x", {"verb": "PROPOSE", "outcome": ALLOW, "payload": {"belief": [reading]}})
    with pytest.raises(LedgerCorrupt, match="it rests on event 3 of `gone`"):
        Prover(log).decision("x", 0)


def decide_on(belief: BeliefServer, when: dict[str, Any]) -> Prover:
    """A space over the same log, and one call that was decided on this, as event 4."""
    world = World(belief.log, belief=ServedBelief(belief))
    world.open(http_tool("restart"), policy={"constraint.restart": constraint(when=when)})
    world.propose(call("restart", {"service": "checkout"}), proposal_id="p")
    world.server.wait_for(SPACE, "p", 30)
    world.close()
    return Prover(belief.log)


@pytest.mark.req("PROOF-02")
def test_a_reading_of_a_session_that_was_not_there_is_said_to_be_unproven() -> None:
    belief = BeliefServer()
    prover = decide_on(belief, {"op": "missing", "args": ["$belief.never.n_survivors"]})
    proof = prover.decision(SPACE, 3)
    assert proof.readings == [None]
    assert verify_proof(proof).not_checked == ["that there was no session `never`, as the entry says"]


@pytest.mark.req("PROOF-02")
@pytest.mark.parametrize("size", [MAX_READ_SURVIVORS, MAX_READ_SURVIVORS + 1])
def test_a_reading_with_too_many_survivors_to_list_proves_their_number(size: int) -> None:
    belief = BeliefServer()
    session_id, _ = belief.declare_session(ONTOLOGY, [f"h{number:03}" for number in range(size)])
    prover = decide_on(belief, {"op": "schema", "args": [f"$belief.{session_id}.n_survivors", {"maximum": size}]})
    proof = prover.decision(SPACE, 3)
    anchors = anchors_of(belief.log, session_id, STREAM_PREFIX + SPACE)
    assert f"after event 0, with {size} survivors" in verify_proof(proof, anchors).statement
    (evidence,) = proof.readings
    assert evidence is not None
    # All ids are listed, so that the root follows from them alone; or none is.
    assert evidence.universe_path == b""
    for changed in (
        msgspec.structs.replace(evidence, universe_path=bytes(32)),
        msgspec.structs.replace(evidence, bitmap=b"no zlib"),
        msgspec.structs.replace(evidence, bitmap=evidence.bitmap + b"\0"),
    ):
        with pytest.raises(InvalidProof, match=r"too long|not what the reading lists|zlib|one bit for each id"):
            verify_proof(msgspec.structs.replace(proof, readings=[changed]), anchors)


def test_a_part_of_an_entry_is_no_entry() -> None:
    included = Prover(forge("s", {})).inclusion("s", 0)
    cut = Included(included.event.entry[:-1], included.event.path)
    with pytest.raises(InvalidProof, match=r"field `event.entry`: not JSON"):
        verify_proof(msgspec.structs.replace(included, event=cut))
