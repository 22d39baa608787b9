"""Version 1 of the constraint payload means what it meant before there was a second one, to the last bit.

`tests/vectors/first_payloads.json` has what the code decided then, in situations that come from seeds alone. It is
never written again. The vocabulary is a copy on purpose: it may not grow with that of other tests, since the vectors
would then be of other policies.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from cmbs.ledger import canonical
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.policy.policy import compile_policy
from tests.support.policies import ask

VECTORS = Path(__file__).parents[2] / "vectors" / "first_payloads.json"
SEEDS = 600
_REFERENCES = (
    "fact.a",
    "fact.b",
    "goal.c",
    "fact.o.x",
    "fact.o",
    "$args.n",
    "$args.set.goal.c",
    "$tool.id",
    "$actor.id",
    "$belief.S.n_survivors",
    "$belief.S.concluded",
    "$belief.S.active_obligation_id",
    # No references in version 1.
    "$actor.kind",
    "$actor.roles",
    "$case.id",
)
# With what means something else in version 2: objects that are references there.
_LITERALS: tuple[Any, ...] = ("p", "q", "5", 5, 5.5, True, None, ["h"], {"x": "p"}, {"ref": "fact.a"}, {"literal": 5})
_SCHEMAS: tuple[Any, ...] = (
    {"type": "string"},
    {"minimum": 2, "maximum": 5},
    {"enum": ["p", 5, None]},
    {"contains": {"const": "h"}},
    {"required": ["x"]},
    False,
    "named",
)
_TEXTS = ("p", "q", "5", "5.5", '"5"', "true", "null", '["h"]', '{"x":"p"}', '{"ref":"fact.a"}', "")
# Of these the last ones are malformed in version 1.
_SUBJECTS: tuple[Any, ...] = (None, {"tool_id": "one"}, {"tool_id": "two"}, {"capability": "files"}) * 4 + (
    {"tool_id": "o*"},
    {"tool_id": ["one", "two"]},
)


def _predicate(random: Random, depth: int) -> dict[str, Any]:
    if depth and random.random() < 0.5:
        name = random.choice(["all", "any", "not"])
        parts = [_predicate(random, depth - 1) for _ in range(1 if name == "not" else random.randint(1, 3))]
        return {"op": name, "args": parts}
    # Rarely an operator, or a reference, that version 1 does not have.
    references = _REFERENCES if random.random() < 0.05 else _REFERENCES[:12]
    name = random.choice(["eq"] * 6 + ["in"] * 4 + ["exists", "missing"] * 2 + ["schema"] * 4)
    name = random.choice(["ne", "lt", "prefix"]) if random.random() < 0.02 else name
    reference = random.choice(references)
    if name in {"exists", "missing"}:
        return {"op": name, "args": [reference, *random.sample(references, random.randint(0, 1))]}
    if name == "in":
        return {"op": name, "args": [reference, [random.choice(_LITERALS) for _ in range(random.randint(0, 3))]]}
    return {"op": name, "args": [reference, random.choice(_SCHEMAS if name == "schema" else _LITERALS)]}


def _constraint(random: Random) -> dict[str, Any]:
    content: dict[str, Any] = {"v": 1, "effect": random.choice(["allow", "allow", "deny"])}
    content["subject"] = random.choice(_SUBJECTS)
    if random.random() < 0.85:
        content["when"] = _predicate(random, 2)
    if random.random() < 0.6:
        content["on_fail"] = random.choice(["block", "ask", "defer"])
    if random.random() < 0.02:
        content["mode"] = "observe"
    return content


def _candidate(random: Random) -> dict[str, Any]:
    if random.random() < 0.3:
        return {"type": "state_delta", "set": {"goal.c": random.choice(["p", "q", "5"])}}
    args: Any = random.choice([{}, {"n": 5}, {"n": "p"}, {"n": None}])
    tool_id = random.choice(["one", "two"])
    return {"type": "tool_call", "tool_id": tool_id, "args": args, "capability_token_id": "t"}


def decide_from_seed(seed: int) -> list[str]:
    """What is decided in the situation that this seed stands for, and why; of each candidate too, with what matched.

    The last one is a hash of all of the decision, with its trace, but for the hashes in it: they depend on the format.
    """
    random = Random(seed)
    pairs = {f"constraint.c{place}": json.dumps(_constraint(random)) for place in range(random.randint(1, 5))}
    if random.random() < 0.4:
        pairs["constraint.any"] = json.dumps({"v": 1, "effect": "allow", "subject": None})
    if random.random() < 0.3:
        invariant = {"op": "not", "args": [{"op": "eq", "args": [random.choice(_REFERENCES[:5]), "q"]}]}
        pairs["policy.invariant.i"] = json.dumps(invariant)
    pairs["policy.schema.named"] = json.dumps({"enum": ["p", "q"]})
    state = {key: random.choice(_TEXTS) for key in random.sample(["fact.a", "fact.b", "goal.c", "fact.o"], 3)}
    belief = {"S": {"n_survivors": random.randint(0, 6), "concluded": random.choice([[], ["h"]])}}
    asked = ask(
        compile_policy(pairs),
        [_candidate(random) for _ in range(random.randint(1, 3))],
        state=state,
        belief=belief if random.random() < 0.7 else None,
        atomic=random.random() < 0.7,
        approved=["constraint.c0", "constraint.c1"] if random.random() < 0.3 else None,
    )
    decision = msgspec.structs.replace(arbitrate(*asked).decision, policy_hash="", state_snapshot_id="")
    found = [(each.verdict, each.reason_code, *each.matched) for each in decision.candidates]
    decided = [" ".join(words) for words in ((decision.verdict, decision.reason_code), *found)]
    return [*decided, sha256(canonical.encode_frame(decision)).hexdigest()[:16]]


@pytest.mark.req("SS01-PAYLOAD-V1")
def test_random_policies_of_version_1_decide_as_they_did_before_version_2() -> None:
    vectors = json.loads(VECTORS.read_text())
    assert len(vectors) == SEEDS
    found = [decide_from_seed(seed) for seed in range(SEEDS)]
    assert [seed for seed in range(SEEDS) if found[seed] != vectors[seed]] == []
