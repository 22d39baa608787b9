"""Write the test vectors of proofs, `tests/vectors/proofs/*.json`: from the first release on they are judged the same.

Each file has a document, what a reader has (`anchors` as `cmbs proof check --anchors` reads them, `keys` that it
trusts) and perhaps what it asks (`asked`), and what a verifier must say: `statement`, `rests_on` and `not_checked`, or
`refused`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cmbs.audit.kernel.documents import Proof, write_proof
from cmbs.audit.proof_check import verify_proof
from cmbs.audit.proofs import Prover
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidProof
from cmbs.messages import OntologyBundle
from cmbs.offline_verifier import Head, Known, Question, Tree, VerifyKey
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.testing import ManualClock, SequentialIds
from tests.support.forged_proofs import STREAM, ForgedLog
from tests.support.heads_log import HeadsLog
from tests.support.proving import ProvenIncident, tree_of
from tests.support.spaces import SPACE
from tests.unit.audit.test_proof_mutations import KINDS, incident, prove

VECTORS = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "proofs"


class Vector(NamedTuple):
    """A document, what its reader has, and what it asks."""

    name: str
    document: dict[str, Any]
    known: Known
    keys: tuple[str, ...] = ()
    asked: Question | None = None


def write_vectors() -> None:
    """Write every vector anew."""
    for path in VECTORS.glob("*.json"):
        path.unlink()
    for vector in list_vectors():
        known = vector.known.copy()
        known.keys = [VerifyKey.parse(each) for each in vector.keys]
        content: dict[str, Any] = {"anchors": show_anchors(vector.known), "keys": list(vector.keys)}
        if vector.asked is not None:
            content["asked"] = {name: value for name, value in vars(vector.asked).items() if value is not None}
        try:
            verified = verify_proof(json.dumps(vector.document).encode(), known, vector.asked)
            content |= {name: getattr(verified, name) for name in ("statement", "rests_on", "not_checked")}
        except InvalidProof as exc:
            content["refused"] = str(exc)
        if vector.name.startswith("bad-") != ("refused" in content):
            raise SystemExit(f"{vector.name}: {content.get('refused', 'it is good')}")
        content["document"] = vector.document
        path = VECTORS / f"{vector.name}.json"
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def list_vectors() -> Iterator[Vector]:
    """Good documents of every kind, with and without anchors, and bad ones."""
    world = incident()
    for kind in KINDS:
        name, document = kind.replace(" ", "-"), read(prove(kind))
        yield Vector(f"{name}-anchored", document, world.anchors)
        yield Vector(f"{name}-bare", document, Known())
    yield Vector("worked-example", read(prove_worked_example()), Known())
    large = ProvenIncident()
    prover = Prover(large.log)
    yield Vector("membership-of-2100", read(prover.membership(large.session_id, "cause-0003", 5)), Known())
    yield Vector("transition-of-1048", read(prover.transition(large.session_id, 5)), Known())
    recorded = prover.transition(large.session_id, 3, recorded=True)
    yield Vector("recorded-transition-of-2100", read(recorded), large.anchors)
    yield from bad_vectors(world)
    yield from question_vectors(world)
    yield from head_vectors(world)
    yield from anchor_vectors(world)
    yield from dishonest_vectors()


def read(proof: Proof) -> dict[str, Any]:
    """A proof as plain JSON."""
    document: dict[str, Any] = json.loads(write_proof(proof))
    return document


def prove_worked_example() -> Proof:
    """The membership that the documents compute by hand."""
    server = BeliefServer(clock=ManualClock("2026-03-01T10:40:00.000000Z"), ids=SequentialIds())
    session_id, _ = server.declare_session(OntologyBundle("demo", "1", "demo", "1"), ["disk", "dns", "lock"])
    server.eliminate(session_id, "probe", "resolver-ok", ["dns"])
    return Prover(server.log).membership(session_id, "disk", 1)


def bad_vectors(world: ProvenIncident) -> Iterator[Vector]:
    """What a verifier that forgets a check lets through."""

    def change(kind: str, **changes: Any) -> dict[str, Any]:
        return {**read(prove(kind)), **changes}

    member, gone = change("membership"), change("elimination")
    yield Vector("bad-format", change("inclusion", format="cmbs/2/proof"), world.anchors)
    yield Vector("bad-unknown-field", change("inclusion", note="hello"), world.anchors)
    yield Vector("bad-hypothesis", {**member, "hypothesis_id": "disk"}, world.anchors)
    yield Vector("bad-position", {**member, "position": member["position"] + 1}, world.anchors)
    yield Vector("bad-universe-size", {**member, "universe": {**member["universe"], "size": 7}}, world.anchors)
    yield Vector("bad-survivor-as-eliminated", {**gone, "hypothesis_id": "queue"}, world.anchors)
    yield Vector("bad-kind-refusal", {**change("inclusion"), "kind": "refusal"}, world.anchors)
    yield Vector("bad-kind-decision", {**change("refusal"), "kind": "decision", "readings": []}, world.anchors)
    decision = change("decision")
    yield Vector("bad-reading-left-out", {**decision, "readings": []}, world.anchors)
    yield Vector("bad-reading-null", {**decision, "readings": [None]}, world.anchors)
    stream = change("inclusion")["stream"]
    # The root of a tree does not say how large it is: such a proof rests on another size.
    yield Vector("other-size", change("inclusion", stream={**stream, "size": stream["size"] + 1}), Known())
    yield Vector("bad-head", change("inclusion", stream={**stream, "head": stream["root"]}), Known())
    old = change("consistency")["old"]
    yield Vector("bad-old-size", change("consistency", old={**old, "size": old["size"] + 1}), Known())
    # The last character of base64 before the padding has bits that are in no byte.
    stray = stream["root"][:-2] + chr(ord(stream["root"][-2]) + 1) + "="
    yield Vector("bad-stray-bits", change("inclusion", stream={**stream, "root": stray}), Known())
    yield Vector("bad-padding", change("inclusion", event={**change("inclusion")["event"], "path": "AAA"}), Known())


def question_vectors(world: ProvenIncident) -> Iterator[Vector]:
    """The question of the reader, in part or whole, and others."""
    session = world.session_id
    document, anchors = read(prove("membership")), world.anchors
    asked = Question("membership", session, 4, "queue")
    yield Vector("asked", document, anchors, asked=asked)
    yield Vector("asked-in-part", document, anchors, asked=Question("membership", session))
    yield Vector("asked-nothing", document, anchors, asked=Question())
    yield Vector("bad-asked-kind", document, anchors, asked=Question("elimination", session, 4, "queue"))
    yield Vector("bad-asked-stream", document, anchors, asked=Question("membership", STREAM, 4, "queue"))
    yield Vector("bad-asked-event", document, anchors, asked=Question("membership", session, 5, "queue"))
    yield Vector("bad-asked-hypothesis", document, anchors, asked=Question("membership", session, 4, "tls"))
    inclusion = read(prove("inclusion"))
    yield Vector("bad-asked-of-no-hypothesis", inclusion, anchors, asked=Question("inclusion", session, 3, "tls"))
    yield Vector("asked-growth", read(prove("consistency")), anchors, asked=Question("consistency", session, 2))
    bare = read(prove("transition"))
    yield Vector("asked-transition", bare, anchors, asked=Question("transition", session, 4))


def head_vectors(world: ProvenIncident) -> Iterator[Vector]:
    """Heads that a reader kept: an entry that was one needs no root, and one that contradicts it is refused."""
    session = world.session_id
    document, hashes = read(prove("inclusion")), world.log.hashes(session)

    def kept(seq: int, event_hash: bytes) -> Known:
        return Known(heads={session: [Head(seq, event_hash)]})

    yield Vector("head-of-the-entry", document, kept(3, hashes[3]))
    yield Vector("head-after-the-entry", document, kept(5, hashes[5]))
    yield Vector("bad-other-head-of-the-entry", document, kept(3, hashes[2]))
    yield Vector("bad-other-head-of-the-stream", document, kept(5, hashes[2]))
    yield Vector("bad-other-head-of-the-older", read(prove("consistency")), kept(2, hashes[3]))
    yield Vector("bad-other-head-of-the-declaration", read(prove("membership")), kept(0, hashes[1]))


def anchor_vectors(world: ProvenIncident) -> Iterator[Vector]:
    """Signed checkpoints in proofs, and what is no such thing, or is of something else."""
    session, document = world.session_id, read(prove("inclusion"))
    names = (session, STREAM_PREFIX + SPACE)
    log = HeadsLog([_record(world, name, tree_of(world.log, name)) for name in names], bytes(range(32)))
    shorter = HeadsLog([_record(world, session, Tree(3, bytes(32)))], bytes(range(32)))

    def anchored(anchor: Any) -> dict[str, Any]:
        return {**document, "stream": {**document["stream"], "anchor": anchor}}

    good = log.record(0, 2)
    yield Vector("signed", anchored(good), Known(), (log.vkey,))
    yield Vector("signed-no-key", anchored(good), Known())
    other_key = HeadsLog([], bytes(32)).vkey
    yield Vector("bad-signed-by-another", anchored(good), Known(), (other_key,))
    for name, anchor in {
        "another-stream": log.record(1, 2),
        "another-size": shorter.record(0, 1),
        "another-kind": log.document("checkpoint", 2, origin="example.com/log", root=""),
        "nothing": {},
        "no-object": [],
        "another-note-size": {**good, "size": 1},
        "another-index": {**good, "leaf_index": 1},
        "another-head": {
            **good,
            "entry": {**good["entry"], "payload": {**good["entry"]["payload"], "head_hash": "00" * 32}},
        },
    }.items():
        yield Vector(f"bad-anchor-{name}", anchored(anchor), Known(), (log.vkey,))
        yield Vector(f"bad-anchor-{name}-no-key", anchored(anchor), Known())


def _record(world: ProvenIncident, stream_id: str, tree: Tree) -> dict[str, Any]:
    head = world.log.hashes(stream_id)[tree.size - 1].hex()
    return {"head_hash": head, "root": tree.root.hex(), "size": tree.size, "stream_id": stream_id}


def dishonest_vectors() -> Iterator[Vector]:
    """Logs whose writers lie, under roots that their reader trusts: not of one event can two things be proven."""
    ids = ["a", "b", "c", "d"]
    misplaced = ForgedLog(ids)
    misplaced.eliminate(["a", "c"], [1, 3])
    known = _trust(misplaced)
    yield Vector("misplaced-membership", misplaced.membership("a", 0, 1), known)
    yield Vector("bad-misplaced-elimination", misplaced.elimination("a", 1, [1, 3], 0), known)
    yield Vector("bad-misplaced-elimination-by-its-bit", misplaced.elimination("a", 1, [1, 3], 1), known)
    yield Vector("bad-misplaced-transition", misplaced.transition(1, [1, 3]), known)
    yield Vector("bad-misplaced-undeclared", misplaced.transition(1, [1, 3], declared=False), known)
    for name, log in {
        "twice": ForgedLog(["a", "a", "b"]),
        "unordered": ForgedLog(["b", "a", "c"]),
        "of-others": ForgedLog(ids, ["a", "b", "c", "e"]),
        "of-more": ForgedLog(ids, [*ids, "a"]),
        "of-another-size": ForgedLog(ids, size=3),
    }.items():
        place = log.leaves.index("a")
        yield Vector(f"bad-universe-{name}", log.membership("a", place, 0), _trust(log))
        log.eliminate(["a"], [place])
        yield Vector(f"bad-universe-{name}-eliminated", log.elimination("a", 1, [place], place), _trust(log))
    twice = ForgedLog(["a", "a", "b"])
    yield Vector("universe-undeclared", twice.membership("a", 0, 0, declared=False), _trust(twice))
    both = ForgedLog(["a"])
    both.append("PROPOSE", [], [], outcome={"granted": False, "decision": {"verdict": "allow"}})
    yield Vector("bad-refusal-in-a-session", {**both.inclusion(1), "kind": "refusal"}, _trust(both))
    lines = ForgedLog(["a\ngood membership: `b` survived", "a` survived after `x"])
    for at, name in enumerate(lines.leaves):
        yield Vector(
            f"id-with-{'a-line-feed' if at == 0 else 'backticks'}", lines.membership(name, at, 0), _trust(lines)
        )
    end = ") is in the log\ngood"
    for name, forged in {
        "verb": ForgedLog(ids, verb=f"X, now{end}"),
        "ts": ForgedLog(ids, ts=f"2026-01-01T00:00:00.000000Z{end}"),
    }.items():
        yield Vector(f"bad-{name}-with-a-line-feed", forged.inclusion(0), _trust(forged))
    loose = ForgedLog(ids)
    loose.entries[0] = loose.entries[0].replace(b'"seq":0', b'"seq": 0')
    yield Vector("bad-entry-not-canonical", loose.inclusion(0), _trust(loose))


def _trust(log: ForgedLog) -> Known:
    """What a reader has who trusts the root of a log."""
    return Known(trees={STREAM: [Tree(len(log.entries), log.root)]})


def show_anchors(known: Known) -> dict[str, Any]:
    """The anchors as `cmbs proof check --anchors` reads them."""
    found: dict[str, dict[str, Any]] = {
        "streams": {name: list(map(_show_tree, trees)) for name, trees in known.trees.items()},
        "universes": {name: _show_tree(tree) for name, tree in known.universes.items()},
        "heads": {
            name: [{"seq": each.seq, "event_hash": each.event_hash.hex()} for each in heads]
            for name, heads in known.heads.items()
        },
    }
    return {name: each for name, each in found.items() if each or name == "streams"}


def _show_tree(tree: Tree) -> dict[str, Any]:
    return {"size": tree.size, "root": tree.root.hex()}
