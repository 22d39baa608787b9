"""A policy compiled: total where it is used, strict where it is set, indexed by what it is about."""

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.errors import InvalidRequest
from cmbs.ledger import canonical
from cmbs.messages import ActorKind
from cmbs.substrate.kernel.arbitration.authority import WRITERS, is_private, may_read, may_write, proposable_by
from cmbs.substrate.kernel.model import NAMESPACES
from cmbs.substrate.kernel.policy.policy import (
    MAX_FAULTS,
    MAX_KEY_CHARACTERS,
    MAX_PAIRS,
    MAX_POLICY_BYTES,
    PolicyFault,
    compile_policy,
    validate_policy,
)
from cmbs.testing.spaces import payload, predicate
from cmbs.testing.strategies.substrate import policies
from tests.support.subtests import for_each

HOLDS = json.dumps(predicate("exists", "fact.a"))
WHOLE = {
    "constraint.a": payload(),
    "policy.exclusive.g": '["goal.a","goal.b"]',
    "policy.invariant.i": HOLDS,
    "policy.degrade.fs.write": '{"tool_id":"fs.append","budget":{"calls":1},"mode":"slow"}',
    "policy.schema.small": '{"maximum":1}',
    "policy.memory.confidence_threshold": "0.8",
    "policy.private": '["fact.secret","goal.x."]',
    "policy.value.team": "anything at all",
}


def test_every_part_of_a_policy_is_read() -> None:
    policy = compile_policy(WHOLE)
    assert validate_policy(WHOLE) == []
    assert dict(policy.pairs) == WHOLE
    assert policy.policy_hash == sha256(b"cmbs/1/policy\0" + canonical.encode(WHOLE)).hexdigest()
    assert [(group.key, group.goals) for group in policy.groups] == [
        ("policy.exclusive.g", frozenset({"goal.a", "goal.b"}))
    ]
    assert [invariant.key for invariant in policy.invariants] == ["policy.invariant.i"]
    assert policy.offers == {"fs.write": WHOLE["policy.degrade.fs.write"]}
    assert list(policy.schemas) == ["small"]
    assert policy.memory_threshold_milli == 800
    assert policy.private_prefixes == ("fact.secret", "goal.x.")


def test_the_empty_policy_has_nothing_in_it() -> None:
    empty = compile_policy({})
    assert validate_policy({}) == []
    assert (empty.memory_threshold_milli, empty.private_prefixes, empty.faults) == (None, (), ())
    assert empty.matching("fs.write").allows == ()


@for_each(
    ("key", "text", "at"),
    [
        ("constraint.a", "{}", "subject"),
        ("constraint.a", payload(v=3), "v"),
        ("constraint.a", payload(when=predicate("all", predicate("eq", "fact.a"))), "when.args[0].args"),
        ("constraint.a", payload(when=predicate("schema", "$args", "unknown")), "when.args[1]"),
        ("policy.exclusive.g", "{}", ""),
        ("policy.exclusive.g", "[5]", ""),
        ("policy.exclusive.g", '["fact.a"]', ""),
        ("policy.exclusive.g", '["goal.a","goal.a"]', ""),
        ("policy.exclusive.g", "[", ""),
        ("policy.invariant.i", "true", ""),
        ("policy.invariant.i", json.dumps(predicate("eq", "fact.a")), ".args"),
        ("policy.invariant.i", json.dumps(predicate("eq", "$args.a", 1)), ""),
        ("policy.invariant.i", json.dumps(predicate("exists", "$actor.id")), ""),
        ("policy.degrade.t", "{}", ""),
        ("policy.degrade.t", "[]", ""),
        ("policy.degrade.t", '{"cheaper":1}', ""),
        ("policy.degrade.t", '{"tool_id":""}', "tool_id"),
        ("policy.degrade.t", '{"mode":5}', "mode"),
        ("policy.degrade.t", '{"budget":{"calls":"few"}}', "budget"),
        ("policy.schema.s", '{"type":"?"}', ""),
        ("policy.schema.s", '{"$ref":"#"}', ""),
        ("policy.memory.confidence_threshold", "1.5", ""),
        ("policy.memory.confidence_threshold", "-0.1", ""),
        ("policy.memory.confidence_threshold", "true", ""),
        ("policy.memory.confidence_threshold", '"0.5"', ""),
        ("policy.memory.confidence_threshold", "high", ""),
        ("policy.private", "fact.a", ""),
        ("policy.private", '["nowhere"]', ""),
        ("policy.private", "[5]", ""),
        ("policy.private", "{}", ""),
        ("policy.exclusve.g", "[]", ""),
        ("policy.exclusive.", "[]", ""),
        ("policy.", "x", ""),
        ("constraint.", "x", ""),
        ("fact.a", "x", ""),
        ("elsewhere", "x", ""),
        ("policy.value." + "x" * MAX_KEY_CHARACTERS, "x", ""),
        ("policy.value.x", "\ud800", ""),
        ("policy.value.\udfff", "x", ""),
    ],
)
def test_a_policy_with_something_malformed_is_refused_and_says_where(key: str, text: str, at: str) -> None:
    faults = validate_policy({"policy.value.ok": "é", key: text})
    assert [(fault.key, fault.at) for fault in faults] == [(key, at)]
    assert all(fault.message for fault in faults)


def test_all_faults_are_told_together_in_the_order_of_their_keys() -> None:
    faults = validate_policy(
        {"policy.private": "?", "constraint.b": "?", "constraint.a": payload(), "policy.exclusive.g": "?"}
    )
    assert [fault.key for fault in faults] == ["constraint.b", "policy.exclusive.g", "policy.private"]
    many = validate_policy({f"constraint.{number}": "?" for number in range(MAX_FAULTS + 1)})
    assert len(many) == MAX_FAULTS


def test_a_policy_is_bounded_as_a_whole() -> None:
    assert validate_policy({f"policy.value.{number}": "" for number in range(MAX_PAIRS + 1)}) == [
        PolicyFault("", "", f"a policy has at most {MAX_PAIRS} keys")
    ]
    assert validate_policy({"policy.value.x": "x" * MAX_POLICY_BYTES}) == [
        PolicyFault("", "", f"a policy has at most {MAX_POLICY_BYTES} characters")
    ]


def test_what_is_malformed_closes_rather_than_opens() -> None:
    policy = compile_policy(
        {
            "constraint.a": "?",
            "constraint.b": payload(v=9, subject={"tool_id": "email.send"}),
            "policy.exclusive.g": "?",
            "policy.invariant.i": "?",
            "policy.degrade.fs.write": "?",
            "policy.memory.confidence_threshold": "?",
            "policy.private": "?",
        }
    )
    assert policy.matching("fs.write").malformed == ("constraint.a",)
    assert policy.matching("email.send").malformed == ("constraint.a", "constraint.b")
    assert policy.matching(None).malformed == ("constraint.a",)
    assert policy.groups[0].goals is None
    assert policy.invariants[0].predicate is None
    assert policy.offers == {}
    assert policy.memory_threshold_milli is None
    assert is_private(policy, "fact.anything")
    assert not may_read(policy, ActorKind.AGENT, "goal.a")
    assert may_read(policy, ActorKind.OPERATOR, "goal.a")


@for_each(("text", "milli"), [("0", 0), ("1", 1000), ("0.29", 290), ("0.8", 800), ("0.8001", 801), ("1e-9", 1)])
def test_a_threshold_is_never_rounded_in_favour_of_a_claim(text: str, milli: int) -> None:
    assert compile_policy({"policy.memory.confidence_threshold": text}).memory_threshold_milli == milli


def test_matching_is_by_tool_by_name_and_by_null_and_nothing_else() -> None:
    pairs = {
        "constraint.null": payload(),
        "constraint.tool": payload(subject={"tool_id": "fs.write"}, when=predicate("exists", "$belief.s.concluded")),
        "constraint.other": payload(subject={"tool_id": "email.send"}),
        "constraint.net": payload(subject={"capability": "net"}, when=predicate("exists", "fact.a.b")),
        "constraint.no": payload(effect="deny", subject={"capability": "prod"}),
        "constraint.ask": payload(effect="deny", on_fail="ask"),
    }
    policy = compile_policy(pairs)

    def keys(*asked: Any) -> tuple[list[str], list[str]]:
        matching = policy.matching(*asked)
        return [each.key for each in matching.denies], [each.key for each in matching.allows]

    assert keys(None) == (["constraint.ask"], ["constraint.null"])
    assert keys("fs.write") == (["constraint.ask"], ["constraint.tool", "constraint.null"])
    assert keys("fs.write", ("net",), ("net",)) == (
        ["constraint.ask"],
        ["constraint.tool", "constraint.net", "constraint.null"],
    )
    # The name of an ancestor denies, and does not permit.
    assert keys("none", (), ("net", "prod")) == (["constraint.no", "constraint.ask"], ["constraint.null"])
    assert policy.matching("fs.write").session_ids == {"s"}
    assert policy.matching("none", ("net",), ("net",)).keys == {"fact.a.b", "fact.a"}


def test_a_change_compiles_only_what_it_touches() -> None:
    before = compile_policy(WHOLE | {"constraint.b": payload(effect="deny")})
    after = before.change({"constraint.b": payload(), "constraint.c": payload()}, ["policy.private", "constraint.z"])
    assert after.compiled["constraint.a"][1] is before.compiled["constraint.a"][1]
    assert after.compiled["constraint.b"][1] is not before.compiled["constraint.b"][1]
    assert "policy.private" not in after.pairs
    assert before.compiled["constraint.b"][0] == payload(effect="deny")


def test_a_changed_schema_reaches_the_constraints_that_name_it() -> None:
    pairs = {"constraint.a": payload(when=predicate("schema", "$args", "s")), "policy.schema.s": "true"}
    gone = compile_policy(pairs).change({}, ["policy.schema.s"])
    assert gone.matching("t").malformed == ("constraint.a",)
    assert gone.change({"policy.schema.s": "false"}, []).matching("t").malformed == ()


@given(policies(), policies())
def test_a_changed_policy_is_the_one_that_is_compiled_from_its_pairs(
    one: dict[str, str], other: dict[str, str]
) -> None:
    changed = compile_policy(one).change(other, [key for key in one if key not in other])
    fresh = compile_policy(other)
    assert changed.policy_hash == fresh.policy_hash
    assert changed.faults == fresh.faults
    assert (
        changed.matching("fs.write", ("net",), ("net",)).malformed
        == fresh.matching("fs.write", ("net",), ("net",)).malformed
    )


@given(policies(), st.randoms())
def test_the_order_of_pairs_does_not_matter(pairs: dict[str, str], random: Any) -> None:
    shuffled = list(pairs.items())
    random.shuffle(shuffled)
    one, other = compile_policy(pairs), compile_policy(dict(shuffled))
    assert one == other
    assert hash(one) == hash(other)
    assert one != one.change({"policy.value.more": "1"}, [])
    assert one != one.policy_hash
    assert [each.key for each in one.matching("fs.write").denies] == [
        each.key for each in other.matching("fs.write").denies
    ]
    assert one.faults == other.faults


@given(st.dictionaries(st.text(max_size=20) | st.sampled_from(sorted(WHOLE)), st.text(max_size=50), max_size=4))
def test_a_policy_that_is_refused_still_compiles(pairs: dict[str, str]) -> None:
    faults = validate_policy(pairs)
    try:
        canonical.encode(pairs)
    except InvalidRequest:
        assert faults
        return
    assert compile_policy(pairs).policy_hash


@pytest.mark.req("SS01-4-AUTHORITY")
@for_each("namespace", NAMESPACES)
@for_each("kind", ActorKind)
def test_the_table_of_authority_is_that_of_the_spec(namespace: str, kind: ActorKind) -> None:
    writers = {
        "policy": {ActorKind.POLICY_ENGINE},
        "constraint": {ActorKind.POLICY_ENGINE},
        "goal": {ActorKind.AGENT},
        "fact": {ActorKind.ENCODER, ActorKind.TOOL},
    }
    key = f"{namespace}.x"
    assert set(WRITERS) == set(NAMESPACES)
    assert may_write(kind, key) is (kind in writers[namespace])
    assert (namespace in proposable_by(kind)) is (namespace in {"goal", "fact"} and kind in writers[namespace])
    assert not may_write(kind, "elsewhere.x")


@for_each(
    ("key", "readable"),
    [
        ("fact.secret", False),
        ("fact.secret.deep", False),
        ("fact.secretary", True),
        ("goal.x.y", False),
        ("goal.x", True),
        ("fact.a", True),
        ("policy.private", False),
        ("constraint.a", False),
    ],
)
def test_what_is_private_is_read_by_operators_alone(key: str, readable: bool) -> None:
    policy = compile_policy(WHOLE)
    for kind in (ActorKind.AGENT, ActorKind.ENCODER, ActorKind.TOOL):
        assert may_read(policy, kind, key) is readable
    assert may_read(policy, ActorKind.OPERATOR, key)
    assert may_read(policy, ActorKind.POLICY_ENGINE, key)
