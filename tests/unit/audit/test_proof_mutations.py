"""A proof that was changed in one place, anywhere, is refused; or it says the same; or it rests on something else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.audit.kernel.documents import Proof, write_proof
from cmbs.audit.proof_check import verify_proof
from cmbs.audit.proofs import Prover
from cmbs.errors import InvalidProof
from cmbs.substrate.kernel.events import STREAM_PREFIX
from tests.support.effort import read_effort
from tests.support.proving import ProvenIncident, all_session_proofs
from tests.support.spaces import SPACE

# Few enough that every byte of a proof with a declaration in it can be tried.
CAUSES = ["disk", "dns", "lock", "queue", "release", "tls"]
ALLOWED, DENIED = 5, 4


@cache
def incident() -> ProvenIncident:
    return ProvenIncident(CAUSES)


def prove(kind: str) -> Proof:
    world, prover = incident(), Prover(incident().log)
    session_id = world.session_id
    kinds: dict[str, Callable[[], Proof]] = {
        "inclusion": lambda: prover.inclusion(session_id, 3),
        "consistency": lambda: prover.consistency(session_id, 3),
        "membership": lambda: prover.membership(session_id, "queue", 4),
        "elimination": lambda: prover.elimination(session_id, "disk", 4),
        "transition": lambda: prover.transition(session_id, 4),
        "recorded transition": lambda: prover.transition(session_id, 4, recorded=True),
        "refusal": lambda: prover.refusal(STREAM_PREFIX + SPACE, DENIED),
        "decision": lambda: prover.decision(SPACE, ALLOWED),
    }
    return kinds[kind]()


KINDS = [
    *("inclusion", "consistency", "membership", "elimination"),
    *("transition", "recorded transition", "refusal", "decision"),
]


def change_value(value: Any, stride: int = 1) -> Iterator[Any]:
    """A value of a document with one thing in it changed: flipped, dropped, swapped, put in."""
    match value:
        case bool() | None:
            yield from (not value, None, 1)
        case int():
            yield from (value + 1, value - 1, -value - 1, value + 1024, str(value), None)
        case str():
            for place in range(0, len(value), stride):
                before, here, after = value[:place], value[place], value[place + 1 :]
                yield before + chr(ord(here) ^ 1) + after
                yield before + after
                yield before + after[:1] + here + after[1:]
            yield from (value + "A", "", value[: len(value) // 2], 0)
        case list():
            for place, item in enumerate(value):
                yield value[:place] + value[place + 1 :]
                yield value[:place] + value[place + 1 : place + 2] + [item] + value[place + 2 :]
                yield from ([*value[:place], other, *value[place + 1 :]] for other in change_value(item, stride))
            yield [*value, *value[-1:]] if value else [0]
        case dict():
            for name, item in value.items():
                without = {other: value[other] for other in value if other != name}
                yield without
                yield {**without, name + "x": item}
                yield from ({**value, name: other} for other in change_value(item, stride))
        case _:
            raise AssertionError(value)


@pytest.mark.slow
@pytest.mark.req("PROOF-03")
@pytest.mark.parametrize("kind", KINDS)
def test_no_change_of_any_place_of_a_proof_lets_it_say_something_else(kind: str) -> None:
    world = incident()
    plain = json.loads(write_proof(prove(kind)))
    original = verify_proof(write_proof(prove(kind)), world.anchors)
    tried = refused = 0
    stride = 1 if read_effort().everything else 7
    for changed in change_value(plain, stride):
        if changed == plain:
            continue
        tried += 1
        try:
            verified = verify_proof(json.dumps(changed).encode(), world.anchors)
        except InvalidProof:
            refused += 1
            continue
        # What the reader kept does not vouch for it any more: another stream, size or entry than the one it knows.
        assert verified == original or {*verified.rests_on} - {*original.rests_on}, changed
    assert tried > 80
    assert refused > 0.9 * tried


@cache
def list_truths() -> frozenset[str]:
    """Everything that can be proven of the incident."""
    world, prover = incident(), Prover(incident().log)
    space = STREAM_PREFIX + SPACE
    proofs = [*all_session_proofs(prover, world.log, world.session_id), prover.decision(SPACE, ALLOWED)]
    proofs += [prover.inclusion(space, seq) for seq in range(len(world.log.read(space)))]
    proofs += [prover.refusal(world.session_id, 2), prover.refusal(space, DENIED)]
    return frozenset(verify_proof(proof, world.anchors).statement for proof in proofs)


@pytest.mark.req("PROOF-03")
@given(st.data())
def test_parts_of_two_proofs_make_no_false_third(data: st.DataObject) -> None:
    """Any field of one proof in the place of the same field of another about the same streams."""
    world = incident()
    first, second = (json.loads(write_proof(prove(data.draw(st.sampled_from(KINDS))))) for _ in range(2))
    original = verify_proof(json.dumps(first).encode(), world.anchors)
    path = data.draw(st.sampled_from(sorted({*_paths(first)} & {*_paths(second)})))
    changed, source = first, second
    for name in path[:-1]:
        changed, source = changed[name], source[name]
    changed[path[-1]] = source[path[-1]]
    try:
        verified = verify_proof(json.dumps(first).encode(), world.anchors)
    except InvalidProof:
        return
    assert verified.statement in list_truths() or {*verified.rests_on} - {*original.rests_on}


def _paths(value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield (*above, name)
            yield from _paths(item, (*above, name))
