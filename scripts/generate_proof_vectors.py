"""Write the test vectors of proofs, `tests/vectors/proofs/*.json`: from the first release on they are judged the same.

Each file has a document, the anchors that a reader has, and what a verifier must say: `statement` and `rests_on`, or
`refused`. Roots in anchors are hexadecimal, as `cmbs proof check --anchors` reads them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cmbs.audit.kernel.documents import Proof, write_proof
from cmbs.audit.kernel.verify import Anchors, verify_proof
from cmbs.audit.proofs import Prover
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidProof
from cmbs.messages import OntologyBundle
from cmbs.testing import ManualClock, SequentialIds
from tests.support.proving import ProvenIncident
from tests.unit.audit.test_proof_mutations import KINDS, incident, prove

VECTORS = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "proofs"


def write_vectors() -> None:
    """Write every vector anew."""
    for path in VECTORS.glob("*.json"):
        path.unlink()
    for name, document, anchors in list_vectors():
        path = VECTORS / f"{name}.json"
        try:
            verified = verify_proof(json.dumps(document).encode(), anchors)
            expected: dict[str, Any] = {"statement": verified.statement, "rests_on": list(verified.rests_on)}
        except InvalidProof as exc:
            expected = {"refused": str(exc)}
        content = {"anchors": show_anchors(anchors), **expected, "document": document}
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def list_vectors() -> Iterator[tuple[str, dict[str, Any], Anchors]]:
    """Good documents of every kind, with and without anchors, and bad ones."""
    world = incident()
    for kind in KINDS:
        document = json.loads(write_proof(prove(kind)))
        name = kind.replace(" ", "-")
        yield f"{name}-anchored", document, world.anchors
        yield f"{name}-bare", document, Anchors()
    yield "worked-example", json.loads(write_proof(prove_worked_example())), Anchors()
    large = ProvenIncident()
    prover = Prover(large.log)
    yield "membership-of-2100", json.loads(write_proof(prover.membership(large.session_id, "cause-0003", 5))), Anchors()
    yield "transition-of-1048", json.loads(write_proof(prover.transition(large.session_id, 5))), Anchors()
    yield from bad_vectors(world)


def prove_worked_example() -> Proof:
    """The membership that the documents compute by hand."""
    server = BeliefServer(clock=ManualClock("2026-03-01T10:40:00.000000Z"), ids=SequentialIds())
    session_id, _ = server.declare_session(OntologyBundle("demo", "1", "demo", "1"), ["disk", "dns", "lock"])
    server.eliminate(session_id, "probe", "resolver-ok", ["dns"])
    return Prover(server.log).membership(session_id, "disk", 1)


def bad_vectors(world: ProvenIncident) -> Iterator[tuple[str, dict[str, Any], Anchors]]:
    """What a verifier that forgets a check lets through."""

    def change(kind: str, **changes: Any) -> dict[str, Any]:
        return {**json.loads(write_proof(prove(kind))), **changes}

    member, gone = change("membership"), change("elimination")
    yield "bad-format", change("inclusion", format="cmbs/2/proof"), world.anchors
    yield "bad-unknown-field", change("inclusion", note="hello"), world.anchors
    yield "bad-hypothesis", {**member, "hypothesis_id": "disk"}, world.anchors
    yield "bad-position", {**member, "position": member["position"] + 1}, world.anchors
    yield "bad-universe-size", {**member, "universe": {**member["universe"], "size": 7}}, world.anchors
    yield "bad-survivor-as-eliminated", {**gone, "hypothesis_id": "queue"}, world.anchors
    yield "bad-kind-refusal", {**change("inclusion"), "kind": "refusal"}, world.anchors
    yield "bad-kind-decision", {**change("refusal"), "kind": "decision", "readings": []}, world.anchors
    decision = change("decision")
    yield "bad-reading-left-out", {**decision, "readings": []}, world.anchors
    yield "bad-reading-null", {**decision, "readings": [None]}, world.anchors
    stream = change("inclusion")["stream"]
    # The root of a tree does not say how large it is: such a proof rests on another size.
    yield "other-size", change("inclusion", stream={**stream, "size": stream["size"] + 1}), Anchors()
    yield "bad-head", change("inclusion", stream={**stream, "head": stream["root"]}), Anchors()
    old = change("consistency")["old"]
    yield "bad-old-size", change("consistency", old={**old, "size": old["size"] + 1}), Anchors()
    # The last character of base64 before the padding has bits that are in no byte.
    stray = stream["root"][:-2] + chr(ord(stream["root"][-2]) + 1) + "="
    yield "bad-stray-bits", change("inclusion", stream={**stream, "root": stray}), Anchors()
    yield "bad-padding", change("inclusion", event={**change("inclusion")["event"], "path": "AAA"}), Anchors()


def show_anchors(anchors: Anchors) -> dict[str, Any]:
    """The anchors as `cmbs proof check --anchors` reads them."""
    return {
        "streams": {
            name: [{"size": tree.size, "root": tree.root.hex()} for tree in trees]
            for name, trees in anchors.streams.items()
        },
        "universes": {name: {"size": tree.size, "root": tree.root.hex()} for name, tree in anchors.universes.items()},
    }
