"""Proof documents: what can be proven can be built and verifies, and what is false has no proof."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given

from cmbs.audit.history import HistoryOfSession
from cmbs.audit.kernel.documents import FORMAT, Proof, write_proof
from cmbs.audit.proof_check import verify_proof
from cmbs.audit.proofs import MAX_DECLARATION_BYTES, Anchored, Prover
from cmbs.belief.server import BeliefServer
from cmbs.errors import (
    Conflict,
    EventNotFound,
    InvalidHypothesisId,
    InvalidProof,
    InvalidRequest,
    LedgerCorrupt,
    SessionNotFound,
    SpaceNotFound,
)
from cmbs.ledger import Head as LedgerHead
from cmbs.ledger import StoredEntry, canonical, hash_entry
from cmbs.ledger.event_tree import EventTree
from cmbs.offline_verifier import Head, Known, Tree, VerifyKey
from cmbs.spi import AuditLog
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.events import STREAM_PREFIX, SpaceVerb
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.testing import ManualClock, SequentialIds
from cmbs.testing.history import History, play
from cmbs.testing.strategies.belief import histories
from tests.support.effort import EFFORT
from tests.support.heads_log import HeadsLog
from tests.support.proving import ONTOLOGY, ProvenIncident, all_session_proofs, anchors_of, history_of, tree_of
from tests.support.spaces import SPACE
from tests.support.subtests import for_each

SPACE_STREAM = STREAM_PREFIX + SPACE
# Ids of a large universe, and the bytes that a transition of one of them stays under. A tree over a tenth of a million
# is three levels lower, and a level is a hash in base64.
MANY, MAX_BYTES = (1_000_000, 1_000) if EFFORT.everything else (100_000, 1_000 - 3 * 44)


@cache
def incident() -> ProvenIncident:
    return ProvenIncident()


def space_seq(verdict: str) -> int:
    """The event of the space that decided so."""
    for seq, stored in enumerate(incident().log.read(SPACE_STREAM)):
        event = read_space_event(stored)
        decision = event.result.decision
        if event.body.verb == SpaceVerb.PROPOSE and decision is not None and decision.verdict == verdict:
            return seq
    raise AssertionError(verdict)


# --- what is true ---


@pytest.mark.req("PROOF-01")
@given(histories(max_calls=8))
def test_whatever_a_session_says_of_itself_can_be_proven_to_a_reader_who_kept_its_root(history: History) -> None:
    server = BeliefServer(clock=ManualClock(), ids=SequentialIds())
    session_id = play(server, history).session_id
    prover = Prover(server.log)
    anchors = anchors_of(server.log, session_id)
    for proof in all_session_proofs(prover, server.log, session_id):
        verified = verify_proof(write_proof(proof), anchors)
        bare = verified.kind == "transition" and "recorded" not in json.loads(write_proof(proof))
        assert len(verified.rests_on) == bare
        assert msgspec.json.decode(write_proof(proof), type=Proof) == proof


@pytest.mark.req("PROOF-01")
@given(histories(max_calls=8))
def test_every_denied_request_and_no_other_has_a_proof_of_refusal(history: History) -> None:
    server = BeliefServer()
    session_id = play(server, history).session_id
    for seq, entry in enumerate(server.audit_trace(session_id)):
        outcome = entry.outcome or {}
        if outcome.get("approved", outcome.get("accepted", True)):
            with pytest.raises(Conflict, match="is no refusal"):
                Prover(server.log).refusal(session_id, seq)
        else:
            verified = verify_proof(Prover(server.log).refusal(session_id, seq), anchors_of(server.log, session_id))
            assert verified.statement == f"event {seq} of `{session_id}` ({entry.verb}, {entry.ts}) was denied"


@given(histories(max_calls=10))
def test_the_past_is_the_same_from_the_log_as_from_the_session(history: History) -> None:
    server = BeliefServer()
    session_id = play(server, history).session_id
    session = server.current_session(session_id)
    live, logged = HistoryOfSession(session), history_of(server.log, session_id)
    for seq in range(session.head.seq + 1):
        assert live.survivors_at(seq).root == logged.survivors_at(seq).root
        assert list(logged.survivors_at(seq)) == list(live.survivors_at(seq))
    for hypothesis_id in session.universe.ids:
        assert live.find_elimination(hypothesis_id) == logged.find_elimination(hypothesis_id)


@pytest.mark.req("PROOF-02")
def test_an_allowed_action_is_proven_with_the_sessions_that_it_rests_on() -> None:
    world = incident()
    proof = Prover(world.log).decision(SPACE, space_seq("allow"))
    verified = verify_proof(proof, world.anchors)
    assert f"on session `{world.session_id}` after event 5, with 2 survivors" in verified.statement
    assert verified.rests_on == []
    # What a survivor commitment does not hold is said, and not claimed.
    rest = '{"active_obligation_id":"look","concluded":[]}'
    assert verified.not_checked == [f"what the entry says beside the survivors of `{world.session_id}`: {rest}"]
    assert {each.split(" has ")[0] for each in verify_proof(proof).rests_on[:2]} == {
        f"the stream `{SPACE_STREAM}`",
        f"the stream `{world.session_id}`",
    }


@pytest.mark.req("PROOF-02")
def test_a_denied_action_is_proven_and_is_no_decision() -> None:
    world, seq = incident(), space_seq("deny")
    assert "was denied" in verify_proof(Prover(world.log).refusal(SPACE_STREAM, seq), world.anchors).statement
    with pytest.raises(Conflict, match="allows nothing"):
        Prover(world.log).decision(SPACE, seq)
    with pytest.raises(Conflict, match="is no refusal"):
        Prover(world.log).refusal(SPACE_STREAM, space_seq("allow"))


def test_a_proof_can_be_made_at_the_size_that_something_vouches_for() -> None:
    world = incident()
    kept = Tree(3, tree_of_prefix(world.log, world.session_id, 3))
    log = record_head(world, kept)

    def vouch(stream_id: str, least: int, size: int) -> Anchored | None:
        assert (stream_id, size) == (world.session_id, 6)
        return Anchored(3, kept.root, log.record(0, 1)) if least <= 3 else None

    prover = Prover(world.log, anchor=vouch)
    proof = prover.inclusion(world.session_id, 1)
    assert (proof.stream.size, proof.stream.anchor) == (3, log.record(0, 1))
    assert prover.inclusion(world.session_id, 4).stream.anchor is None
    assert verify_proof(write_proof(proof), Known(keys=[VerifyKey.parse(log.vkey)])).rests_on == []
    assert len(verify_proof(proof).rests_on) == 1


def record_head(world: ProvenIncident, tree: Tree) -> HeadsLog:
    """A signed log with one record, of the session at this size."""
    head = world.log.hashes(world.session_id)[tree.size - 1].hex()
    record = {"head_hash": head, "root": tree.root.hex(), "size": tree.size, "stream_id": world.session_id}
    return HeadsLog([record])


def tree_of_prefix(log: AuditLog, stream_id: str, size: int) -> bytes:
    shorter = InMemoryStore()
    shorter.read = lambda *_: log.read(stream_id, limit=size)  # type: ignore[method-assign]
    return tree_of(shorter, stream_id).root


@pytest.mark.slow
@pytest.mark.req("PROOF-05")
def test_a_transition_of_one_id_of_a_million_is_under_a_kilobyte() -> None:
    server = BeliefServer(ids=SequentialIds())
    ids = [f"hypothesis-{number:07}" for number in range(MANY)]
    cleared = MANY * 9 // 10 - 999
    session_id = server.declare_session(ONTOLOGY, ids).session_id
    server.eliminate(session_id, "probe", "one", [ids[cleared]])
    history = HistoryOfSession(server.current_session(session_id))
    text = write_proof(Prover(server.log, lambda *_: history).transition(session_id, 1))
    # With room for the digits of a seq in a log of a million events.
    assert len(text) + len("999999") < MAX_BYTES
    assert verify_proof(text).statement == f"event 1 of `{session_id}` cleared exactly these bits: {cleared}"


def test_a_large_declaration_is_left_out_and_the_universe_is_what_the_proof_then_rests_on() -> None:
    server = BeliefServer()
    ids = [f"hypothesis-{number:05}" for number in range(MAX_DECLARATION_BYTES // 10)]
    session_id = server.declare_session(ONTOLOGY, ids).session_id
    server.enter_obligation(session_id, "look", 1)
    proof = Prover(server.log).membership(session_id, ids[7], 1)
    assert proof.universe.declaration is None
    assert len(write_proof(proof)) < 3000
    known = anchors_of(server.log, session_id)
    stream_only = Known(trees=known.trees)
    assert verify_proof(proof, known).rests_on == []
    root = known.universes[session_id].root.hex()
    assert verify_proof(proof, stream_only).rests_on == [
        f"the universe of `{session_id}` has {len(ids)} different ids, sorted, and the root {root}"
    ]
    with pytest.raises(InvalidProof, match="another universe than the one that was kept"):
        verify_proof(proof, Known(trees=known.trees, universes={session_id: Tree(len(ids), bytes(32))}))


def test_an_entry_as_deep_as_a_request_may_be_can_be_proven() -> None:
    server = BeliefServer()
    session_id, _ = server.declare_session(ONTOLOGY, ["a", "b"])
    deep: dict[str, Any] = {}
    for _ in range(canonical.MAX_DEPTH - 1):
        deep = {"in": deep}
    server.eliminate(session_id, "s", "o", ["a"], deep)
    proof = Prover(server.log).elimination(session_id, "a", 1)
    assert verify_proof(write_proof(proof), anchors_of(server.log, session_id)).rests_on == []


# --- what is false ---


@pytest.mark.req("PROOF-03")
def test_an_eliminated_hypothesis_has_no_proof_of_membership_and_the_answer_names_the_event() -> None:
    world = incident()
    with pytest.raises(Conflict, match=r"event 3 \(`[0-9a-f-]+`\) eliminated it") as caught:
        Prover(world.log).membership(world.session_id, world.causes[0], 5)
    assert caught.value.details["eliminated_by"]["seq"] == 3
    with pytest.raises(Conflict, match="survived after event 2"):
        Prover(world.log).elimination(world.session_id, world.causes[0], 2)
    with pytest.raises(Conflict, match="survived after event 5"):
        Prover(world.log).elimination(world.session_id, world.causes[3], 5)
    with pytest.raises(InvalidHypothesisId):
        Prover(world.log).membership(world.session_id, "no such cause", 5)


@pytest.mark.req("PROOF-03")
def test_what_is_not_there_has_no_proof() -> None:
    world = incident()
    prover = Prover(world.log)
    for seq in (-1, 6):
        with pytest.raises(EventNotFound):
            prover.inclusion(world.session_id, seq)
    with pytest.raises(EventNotFound):
        prover.consistency(world.session_id, 7)
    with pytest.raises(InvalidRequest, match="`old_size` must be at least 1"):
        prover.consistency(world.session_id, 0)
    with pytest.raises(SessionNotFound):
        prover.inclusion("nowhere", 0)
    with pytest.raises(SpaceNotFound):
        prover.decision("nowhere", 0)


@pytest.mark.req("PROOF-03")
def test_a_proof_that_contradicts_what_the_reader_kept_is_refused() -> None:
    world = incident()
    tree = tree_of(world.log, world.session_id)
    lied_to = Known(trees={world.session_id: [Tree(tree.size, bytes(32))]})
    older = Known(trees={world.session_id: [Tree(3, bytes(32))]})
    prover = Prover(world.log)
    for proof in (prover.inclusion(world.session_id, 1), prover.consistency(world.session_id, 3)):
        with pytest.raises(InvalidProof, match=f"has another root at size {tree.size} than"):
            verify_proof(proof, lied_to)
    with pytest.raises(InvalidProof, match="another root at size 3 than the one that was kept"):
        verify_proof(prover.consistency(world.session_id, 3), older)
    grown = Known(trees={world.session_id: [Tree(3, tree_of_prefix(world.log, world.session_id, 3))]})
    assert verify_proof(prover.consistency(world.session_id, 3), grown).rests_on == []


@pytest.mark.req("PROOF-03")
def test_an_entry_that_was_the_head_that_was_kept_needs_no_root() -> None:
    world = incident()
    refused = Prover(world.log).refusal(world.session_id, 2)
    head = Head(2, world.log.hashes(world.session_id)[2])
    assert verify_proof(refused, Known(heads={world.session_id: [head]})).rests_on == []
    # A later head vouches for an earlier entry only to a reader with all entries between them.
    later = Head(5, world.log.hashes(world.session_id)[5])
    assert len(verify_proof(refused, Known(heads={world.session_id: [later]})).rests_on) == 1
    for other in (Head(2, bytes(32)), Head(5, bytes(32))):
        with pytest.raises(InvalidProof, match=f"another entry than the head that was kept at seq {other.seq}"):
            verify_proof(refused, Known(heads={world.session_id: [other]}))


@pytest.mark.req("PROOF-03")
def test_proofs_of_one_session_do_not_serve_another_statement() -> None:
    """Parts of true proofs, put together to say something false."""
    world = incident()
    prover = Prover(world.log)
    alive, gone = world.causes[3], world.causes[0]
    member = prover.membership(world.session_id, alive, 5)
    early = prover.membership(world.session_id, gone, 2)
    dead = prover.elimination(world.session_id, gone, 5)
    wide = prover.elimination(world.session_id, world.causes[1], 5)
    replace = msgspec.structs.replace
    false: list[tuple[Proof, str]] = [
        (replace(member, hypothesis_id=gone), "the ids are not at these places of the universe"),
        (replace(early, event=member.event), "does not commit to these survivors"),
        (replace(early, event=member.event, survivors=member.survivors), "did not survive event 5"),
        (replace(dead, hypothesis_id=alive), f"did not eliminate `{alive}`"),
        (replace(dead, cause=wide.cause), "commitments before and after are others"),
        (replace(dead, cause=wide.cause, flip=wide.flip), f"did not eliminate `{gone}`"),
        (replace(dead, event=early.event), "the cause is after event 2"),
        (replace(dead, cause=early.event), "commitments before and after are others"),
        (replace(dead, survivors=early.survivors), "does not commit to these survivors"),
    ]
    for proof, problem in false:
        with pytest.raises(InvalidProof, match=problem):
            verify_proof(proof)


# --- a log that is not sound ---


class ChangedEntry(InMemoryStore):
    """A store in which one entry reads differently."""

    def __init__(self, log: AuditLog, stream_id: str, seq: int, old: bytes, new: bytes) -> None:
        super().__init__()
        self._inner, self._place, self._change = log, (stream_id, seq), (old, new)

    def head(self, stream_id: str) -> Any:
        return self._inner.head(stream_id)

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        entries = self._inner.read(stream_id, after, limit, max_bytes)
        name, seq = self._place
        if name == stream_id and after < seq <= after + len(entries):
            changed = entries[seq - after - 1]
            assert self._change[0] in changed.raw
            entries[seq - after - 1] = StoredEntry(changed.raw.replace(*self._change), changed.event_hash)
        return entries


@pytest.mark.req("PROOF-04")
def test_no_proof_is_handed_out_from_a_log_that_was_changed() -> None:
    world = incident()
    changed = Prover(ChangedEntry(world.log, world.session_id, 3, b'"first"', b'"other"'))
    for seq in range(6):
        with pytest.raises(LedgerCorrupt, match="bad at seq 3"):
            changed.inclusion(world.session_id, seq)
    with pytest.raises(LedgerCorrupt, match="bad at seq 3"):
        changed.membership(world.session_id, world.causes[3], 5)


class RewrittenEntry(InMemoryStore):
    """A store in which one entry reads differently, under the hash that it then has."""

    def __init__(self, log: AuditLog, stream_id: str, seq: int, old: bytes, new: bytes) -> None:
        super().__init__()
        entries = log.read(stream_id)
        assert old in entries[seq].raw
        raw = entries[seq].raw.replace(old, new)
        entries[seq] = StoredEntry(raw, hash_entry(raw))
        self._rewritten, self._entries, self._inner = stream_id, entries, log

    def head(self, stream_id: str) -> LedgerHead | None:
        entries = self._entries
        is_rewritten = stream_id == self._rewritten
        return LedgerHead(len(entries) - 1, entries[-1].event_hash) if is_rewritten else self._inner.head(stream_id)

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        if stream_id != self._rewritten:
            return self._inner.read(stream_id, after, limit, max_bytes)
        return self._entries[after + 1 : None if limit is None else after + 1 + limit]

    def hashes(self, stream_id: str, after: int = -1, limit: int | None = None) -> list[bytes]:
        return [entry.event_hash for entry in self.read(stream_id, after, limit)]


@pytest.mark.req("PROOF-04")
def test_an_entry_that_was_rewritten_and_hashed_again_has_no_proof() -> None:
    world, seq = incident(), space_seq("deny")
    log = RewrittenEntry(world.log, SPACE_STREAM, seq, b'"verdict":"deny"', b'"verdict":"allow"')
    with pytest.raises(LedgerCorrupt, match=f"bad at seq {seq + 1} .*prev_event_hash is"):
        Prover(log).decision(SPACE, seq)


@pytest.mark.req("PROOF-04")
def test_a_rewritten_head_is_not_the_head_that_the_process_has_verified() -> None:
    world = incident()
    log = RewrittenEntry(world.log, world.session_id, 5, b'"rest"', b'"best"')
    session = world.belief.current_session(world.session_id)
    for seq in (1, 5):
        # To a process that has verified nothing, this log is as good as another.
        assert Prover(log).inclusion(world.session_id, seq).stream.size == 6
    prover = Prover(log, tree=lambda _: session.tree)
    with pytest.raises(LedgerCorrupt, match=r"bad at seq 5: its hash is .* was verified"):
        prover.inclusion(world.session_id, 5)
    # What is proven of the others is what this process has verified, in the tree that it has verified.
    assert verify_proof(prover.inclusion(world.session_id, 1), world.anchors).rests_on == []


@pytest.mark.req("PROOF-04")
def test_an_anchor_of_another_root_is_never_put_into_a_proof() -> None:
    world = incident()
    prover = Prover(world.log, anchor=lambda *_: Anchored(3, bytes(32), {"note": "signed"}))
    with pytest.raises(LedgerCorrupt, match="the root of the first 3 events is not the recorded `00"):
        prover.inclusion(world.session_id, 1)


def test_an_anchor_may_be_newer_than_the_head_that_the_process_has_verified() -> None:
    world = incident()
    tree = tree_of(world.log, world.session_id)
    record = record_head(world, tree).record(0, 1)
    older = EventTree().extend(world.log.hashes(world.session_id, limit=4))
    prover = Prover(world.log, anchor=lambda *_: Anchored(tree.size, tree.root, record), tree=lambda _: older)
    assert prover.inclusion(world.session_id, 3).stream.size == tree.size
    with pytest.raises(EventNotFound):
        prover.inclusion(world.session_id, 4)


@pytest.mark.req("PROOF-04")
def test_no_proof_is_handed_out_that_does_not_verify() -> None:
    world = incident()
    other = ProvenIncident(["another", *world.causes[:2000]])
    history = HistoryOfSession(other.belief.current_session(other.session_id))
    with pytest.raises(LedgerCorrupt, match="no proof can be made: field `universe_path`: the path is too short"):
        Prover(world.log, lambda *_: history).membership(world.session_id, world.causes[3], 3)


@pytest.mark.req("PROOF-04")
def test_an_anchor_of_more_events_than_the_log_has_is_corrupt() -> None:
    world = incident()
    prover = Prover(world.log, anchor=lambda *_: Anchored(7, bytes(32), {"note": "signed"}))
    with pytest.raises(LedgerCorrupt, match="bad at seq 6: it is not there, and 7 events were recorded"):
        prover.inclusion(world.session_id, 1)


@for_each(
    ("text", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "not an object"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", f"not `{FORMAT}`"),
        (b'{"format":"cmbs/2/proof","kind":"refusal"}', "^a proof of the format `cmbs/2/proof`, which is newer"),
        (b'{"format":"cmbs/1/proof","kind":"miracle"}', "not a kind of proof"),
        (b'{"format":"cmbs/1/proof","kind":"refusal","kind":"refusal"}', "a key appears twice"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_what_is_no_proof_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(InvalidProof, match=said):
        verify_proof(text)


def test_a_proof_of_an_earlier_format_is_refused_as_such() -> None:
    with pytest.raises(InvalidProof, match=r"^a proof of an earlier format, which this software does not read$"):
        verify_proof(b'{"format":"cmbs-proof/1","kind":"refusal","more":1}')
