"""The constraint payload, version 2: what it adds to version 1, and that it adds nothing else."""

import fnmatch
import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmbs.ledger import canonical
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.model import Decision, ReasonCode, Stage, TraceStep, Verdict
from cmbs.substrate.kernel.policy.constraints import Constraint, Malformed, compile_constraint
from cmbs.substrate.kernel.policy.policy import compile_policy, validate_policy
from cmbs.substrate.kernel.policy.predicates import Asking, PredicateFault, compile_predicate
from cmbs.substrate.kernel.policy.references import MISSING, EvaluationContext, ReferenceFault, compile_reference
from cmbs.substrate.kernel.policy.subjects import (
    EVERYTHING,
    MAX_SUBJECT_CHARACTERS,
    Subject,
    SubjectKind,
    ToolIndex,
    read_wider_subject,
)
from cmbs.testing.spaces import payload, predicate
from tests.support.policies import (
    allow,
    ask,
    beliefs,
    call,
    candidates,
    delta,
    deny,
    eq,
    op,
    policies,
    policy_of,
    states,
)
from tests.support.subtests import for_each

STATE = {
    "fact.owner": "web",
    "fact.number": "5",
    "fact.quoted": '"5"',
    "fact.half": "0.5",
    "fact.truth": "true",
    "fact.nothing": "null",
    "fact.list": '["web","5",5]',
    "fact.object": '{"ref":"fact.owner"}',
    "fact.empty": "",
}
ACTOR = Actor(ActorKind.AGENT, "medic", roles=("oncall", "sre"))
SEEN = EvaluationContext(STATE, {}, ACTOR, {"service": "web", "n": 5, "text": "5", "flag": True}, "db.drop")
ASKING = Asking(Stage.CONSTRAINTS, 0, "constraint.x")


def ref(text: str) -> dict[str, str]:
    return {"ref": text}


def literal(value: Any) -> dict[str, Any]:
    return {"literal": value}


def holds(content: Any) -> bool:
    return compile_predicate(content, {}).evaluate(SEEN, ASKING, [])


# --- comparisons ------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-PAYLOAD-V2")
@for_each(
    ("name", "left", "right", "truth"),
    [
        ("lt", "fact.number", 6, True),
        ("lt", "fact.number", 5, False),
        ("le", "fact.number", 5.0, True),
        ("gt", "fact.number", 4.5, True),
        ("gt", "fact.half", 0, True),
        ("ge", "fact.number", 5, True),
        ("ge", "fact.number", 6, False),
        # Numbers only: texts, truth values, null and what is missing are neither smaller nor larger.
        ("lt", "fact.owner", 6, False),
        ("ge", "fact.owner", 6, False),
        ("ge", "$args.text", 1, False),
        ("ge", "fact.truth", 0, False),
        ("ge", "fact.number", True, False),
        ("ge", "fact.number", "1", False),
        ("le", "fact.nothing", 1, False),
        ("le", "fact.absent", 1, False),
        ("gt", "fact.absent", 1, False),
        ("ne", "fact.owner", "db", True),
        ("ne", "fact.owner", "web", False),
        ("ne", "fact.number", "5", False),
        ("ne", "fact.number", 5, False),
        ("ne", "fact.number", True, True),
        # What is missing is not comparable, so that it is not unequal either.
        ("ne", "fact.absent", "db", False),
        ("ne", "fact.absent", None, False),
        ("ne", "fact.nothing", None, False),
        ("ne", "fact.owner", None, True),
        ("prefix", "fact.owner", "we", True),
        ("prefix", "fact.owner", "", True),
        ("prefix", "fact.owner", "eb", False),
        ("prefix", "fact.quoted", "5", True),
        # The value is a number, and a number has no beginning.
        ("prefix", "fact.number", "5", False),
        ("prefix", "fact.owner", 5, False),
        ("prefix", "fact.absent", "", False),
        # References on either side.
        ("eq", "$args.service", ref("fact.owner"), True),
        ("eq", ref("$args.service"), ref("fact.owner"), True),
        ("eq", "$args.n", ref("fact.owner"), False),
        # The text under a whole key is equal to itself, as with a literal.
        ("eq", "$args.text", ref("fact.number"), True),
        ("eq", "fact.number", ref("$args.text"), True),
        ("eq", "fact.number", ref("fact.quoted"), True),
        ("eq", "$args.flag", ref("fact.number"), False),
        ("eq", "fact.absent", ref("fact.missing"), False),
        ("ne", "fact.absent", ref("fact.missing"), False),
        ("ne", "$args.service", ref("fact.number"), True),
        ("lt", "fact.half", ref("$args.n"), True),
        ("lt", "$args.n", ref("fact.half"), False),
        ("prefix", "$args.service", ref("fact.empty"), True),
        ("in", "$args.service", ref("fact.list"), True),
        ("in", "$args.n", ref("fact.list"), True),
        ("in", "$args.service", ref("fact.owner"), False),
        ("in", "fact.absent", ref("fact.list"), False),
        ("in", "$actor.id", ref("fact.absent"), False),
        # Literals on the left.
        ("in", literal("oncall"), ref("$actor.roles"), True),
        ("in", literal("admin"), ref("$actor.roles"), False),
        ("lt", literal(1), ref("$args.n"), True),
        ("prefix", literal("website"), ref("fact.owner"), True),
        ("eq", literal("web"), ref("fact.owner"), True),
        # A literal is what it is, also where it looks like an operand.
        ("eq", "fact.object", literal({"ref": "fact.owner"}), True),
        ("eq", "fact.object", {"ref": "fact.owner", "more": 1}, False),
        ("in", "fact.owner", literal(["web"]), True),
        ("eq", "$actor.kind", "agent", True),
    ],
)
def test_each_comparison_has_its_truth(name: str, left: Any, right: Any, truth: bool) -> None:
    assert holds(op(name, left, right)) is truth
    assert holds(op("not", op(name, left, right))) is not truth


@pytest.mark.req("SS01-PAYLOAD-V2")
@for_each(
    ("content", "at"),
    [
        (op("eq", 5, 5), "when.args[0]"),
        (op("eq", {"ref": "elsewhere.a"}, 5), "when.args[0]"),
        (op("eq", {"ref": 5}, 5), "when.args[0]"),
        (op("eq", {"ref": "fact.a", "more": 1}, 5), "when.args[0]"),
        (op("eq", "fact.a", {"ref": "nowhere"}), "when.args[1]"),
        (op("eq", literal(1), 1), "when.args"),
        (op("in", "fact.a", "text"), "when.args[1]"),
        (op("in", "fact.a", literal("text")), "when.args[1]"),
        (op("in", "fact.a", ["x", {"ref": "fact.b"}]), "when.args[1]"),
        (op("lt", "fact.a"), "when.args"),
        (op("near", "fact.a", 1), "when.op"),
        (op("exists", literal("fact.a")), "when.args[0]"),
        (op("schema", literal(1), True), "when.args[0]"),
    ],
)
def test_what_is_malformed_is_refused_at_its_place(content: Any, at: str) -> None:
    with pytest.raises(PredicateFault) as refusal:
        compile_predicate(content, {})
    assert refusal.value.at == at


def test_references_may_be_wrapped_wherever_there_is_one() -> None:
    assert holds(op("exists", {"ref": "fact.owner"}, "fact.number"))
    assert holds(op("schema", {"ref": "fact.number"}, {"type": "number"}))


def test_the_trace_has_a_step_for_each_side_that_is_read() -> None:
    steps: list[TraceStep] = []
    compile_predicate(op("eq", "$args.service", ref("fact.owner")), {}).evaluate(SEEN, ASKING, steps)
    assert [(step.op, step.reference, step.found) for step in steps] == [
        ("eq", "$args.service", "web"),
        ("eq", "fact.owner", "web"),
    ]
    compiled = compile_predicate(op("gt", "fact.a.b", ref("$belief.S.n_survivors")), {})
    assert compiled.keys == {"fact.a.b", "fact.a"}
    assert compiled.session_ids == {"S"}


def test_an_actor_has_a_kind_and_roles_and_an_invariant_has_no_actor() -> None:
    assert compile_reference("$actor.roles").find(SEEN) == ["oncall", "sre"]
    without = EvaluationContext({}, {}, Actor(ActorKind.OPERATOR, "o"))
    assert compile_reference("$actor.roles").find(without) == []
    assert compile_reference("$actor.kind").find(without) == "operator"
    absent = EvaluationContext({}, {}, None)
    assert {compile_reference(f"$actor.{name}").find(absent) for name in ("id", "kind", "roles")} == {MISSING}


# --- version 1 stays --------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-PAYLOAD-V1")
@for_each(
    "fields",
    [
        {"when": op("ne", "fact.a", 1)},
        {"when": op("eq", {"ref": "fact.a"}, 1)},
        {"when": op("eq", "$actor.kind", "agent")},
        {"mode": "observe"},
        {"subject": {"tool_id": ["a", "b"]}},
    ],
)
def test_what_version_2_adds_is_malformed_in_version_1(fields: dict[str, Any]) -> None:
    assert isinstance(compile_constraint("constraint.x", payload(**fields), {}), Malformed)
    assert isinstance(compile_constraint("constraint.x", payload(**{**fields, "v": 2}), {}), Constraint)
    assert isinstance(compile_constraint("constraint.x", payload(**{**fields, "v": 3}), {}), Malformed)


@pytest.mark.req("SS01-PAYLOAD-V1")
def test_an_object_with_a_ref_is_a_literal_in_version_1() -> None:
    when = op("eq", "fact.object", {"ref": "fact.owner"})
    assert compile_predicate(when, {}, version=1).evaluate(SEEN, ASKING, [])
    assert not compile_predicate(when, {}, version=2).evaluate(SEEN, ASKING, [])
    with pytest.raises(ReferenceFault):
        compile_reference("$actor.roles", 1)


@pytest.mark.req("SS01-PAYLOAD-V1")
def test_a_star_is_a_star_in_version_1() -> None:
    policy = compile_policy({"constraint.x": payload(subject={"tool_id": "db.*"})})
    assert policy.matching("db.drop").allows == ()
    assert len(policy.matching("db.*").allows) == 1


@given(policies(), st.lists(candidates, min_size=1, max_size=2), states, beliefs, st.booleans())
def test_a_version_1_policy_decides_the_same_when_it_says_version_2(
    pairs: dict[str, str], proposed: list[Any], state: Any, belief: Any, atomic: bool
) -> None:
    def decide(texts: dict[str, str]) -> Decision:
        it = ask(compile_policy(texts), proposed, state=state, belief=belief, atomic=atomic)
        return arbitrate(*it).decision

    wider = {
        key: text.replace('"v": 1', '"v": 2') if key.startswith("constraint.") else text for key, text in pairs.items()
    }
    one, other = decide(pairs), decide(wider)
    assert canonical.encode_frame(one).replace(one.policy_hash.encode(), b"") == canonical.encode_frame(other).replace(
        other.policy_hash.encode(), b""
    )


# --- subjects ---------------------------------------------------------------------------------------------------------


@for_each(
    ("content", "expected"),
    [
        (None, EVERYTHING),
        ({"tool_id": "a"}, Subject(SubjectKind.TOOL, ("a",))),
        ({"tool_id": ["b", "a", "b"]}, Subject(SubjectKind.TOOL, ("a", "b"))),
        ({"tool_id": "db.*"}, Subject(SubjectKind.PATTERN, ("db.*",))),
        ({"tool_id": ["a", "db.*"]}, Subject(SubjectKind.PATTERN, ("a", "db.*"))),
        ({"capability": "n*t"}, Subject(SubjectKind.CAPABILITY, ("n*t",))),
        ({"tool_id": []}, None),
        ({"tool_id": ["a", 5]}, None),
        ({"tool_id": ["a", ""]}, None),
        ({"tool_id": "x" * (MAX_SUBJECT_CHARACTERS + 1)}, None),
        ({"tool_id": "a", "capability": "b"}, None),
        ({"capability": ["a"]}, None),
        ("a", None),
    ],
)
def test_subjects_of_version_2_are_read(content: Any, expected: Subject | None) -> None:
    assert read_wider_subject(content) == expected


@pytest.mark.req("SS01-PAYLOAD-V2")
def test_a_pattern_is_less_specific_than_a_tool_and_more_than_a_capability() -> None:
    pairs = {
        "constraint.a": payload(v=2),
        "constraint.b": payload(v=2, subject={"capability": "net"}),
        "constraint.c": payload(v=2, subject={"tool_id": ["d*", "*b.drop", "db.drop"]}),
        "constraint.d": payload(v=2, subject={"tool_id": ["db.drop", "other"]}),
    }
    matching = compile_policy(pairs).matching("db.drop", ("net",))
    assert [each.key[-1] for each in matching.allows] == ["d", "c", "b", "a"]


NAMES = st.text("ab.*", min_size=1, max_size=6)


@pytest.mark.req("SS01-PAYLOAD-V2")
@example(["a*b*a", "*ab*ab*", "a*a"], "aba")
@example(["a*b*a", "*ab*ab*"], "aab.ab.a")
@given(st.lists(NAMES, min_size=1, max_size=5), st.text("ab.", max_size=8))
def test_a_pattern_fits_what_a_shell_pattern_of_stars_fits(names: list[str], tool_id: str) -> None:
    index = ToolIndex[str]()
    for name in names:
        subject = read_wider_subject({"tool_id": name})
        assert subject is not None
        index.add(subject, name)
    expected = [name for name in names if re.fullmatch(fnmatch.translate(name), tool_id)]
    assert sorted(index.find(tool_id)) == sorted(expected)
    assert Subject(SubjectKind.PATTERN, tuple(names)).covers_any_tool([tool_id]) is bool(expected)


def test_a_malformed_constraint_about_a_pattern_concerns_only_what_fits() -> None:
    policy = compile_policy({"constraint.x": payload(v=2, subject={"tool_id": "db.*"}, mode="quiet")})
    assert policy.matching("db.drop").malformed == ("constraint.x",)
    assert policy.matching("fs.read").malformed == ()
    assert policy.faults[0].at == "mode"


# --- observing --------------------------------------------------------------------------------------------------------


def observed(effect: str, when: Any = None, **more: Any) -> dict[str, Any]:
    made = allow("one", when, **more) if effect == "allow" else deny("one", when, **more)
    return {**made, "v": 2, "mode": "observe"}


def decide(policy: Any, *proposed: Any, **situation: Any) -> Decision:
    return arbitrate(*ask(policy, list(proposed), **situation)).decision


@pytest.mark.req("SS01-PAYLOAD-OBSERVE")
def test_what_observes_blocks_nothing_and_says_what_it_would_have_done() -> None:
    policy = policy_of(ok=allow("one"), no=observed("deny", eq("fact.a", "p")))
    decision = decide(policy, call(), state={"fact.a": "p"})
    assert (decision.verdict, decision.candidates[0].matched) == (Verdict.ALLOW, ("constraint.ok",))
    steps = [(step.passed, step.note) for step in decision.trace if step.key == "constraint.no" and step.op is None]
    assert steps == [(True, "observed deny")]


@pytest.mark.req("SS01-PAYLOAD-OBSERVE")
def test_an_allow_that_observes_permits_nothing() -> None:
    assert decide(policy_of(ok=observed("allow")), call()).reason_code is ReasonCode.NO_ALLOW


@pytest.mark.req("SS01-PAYLOAD-OBSERVE")
def test_what_an_observer_reads_makes_nothing_stale() -> None:
    policy = policy_of(any=allow(), no={**deny(None, op("exists", "fact.a")), "v": 2, "mode": "observe"})
    assert decide(policy, delta(c="p"), state={"fact.a": "1"}, seen={"fact.a": "2"}).verdict is Verdict.ALLOW
    assert policy.matching(None).keys == frozenset()
    reading = policy_of(any=allow(), no=observed("deny", eq("$belief.S.n_survivors", 1)))
    assert reading.matching("one").session_ids == {"S"}


@pytest.mark.req("SS01-PAYLOAD-OBSERVE")
@given(policies(), st.lists(candidates, min_size=1, max_size=2), states, beliefs, st.sampled_from(["allow", "deny"]))
def test_an_observer_changes_nothing_but_the_trace(
    pairs: dict[str, str], proposed: list[Any], state: Any, belief: Any, effect: str
) -> None:
    content = {"v": 2, "effect": effect, "subject": None, "when": eq("fact.a", "p"), "mode": "observe"}
    more = {**pairs, "constraint.watch": json.dumps(content)}
    one, other = (arbitrate(*ask(compile_policy(each), proposed, state=state, belief=belief)) for each in (pairs, more))
    assert one.decision.candidates == other.decision.candidates
    assert (one.candidates, one.changes, one.waits_for) == (other.candidates, other.changes, other.waits_for)


# --- invariants -------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-PAYLOAD-V2")
def test_an_invariant_with_a_version_has_the_operators_of_version_2() -> None:
    within = {"v": 2, "when": op("le", "goal.c", ref("fact.limit"))}
    policy = policy_of(any=allow(), policy__invariant__i=within)
    assert decide(policy, delta(c="3"), state={"fact.limit": "3"}).verdict is Verdict.ALLOW
    assert decide(policy, delta(c="4"), state={"fact.limit": "3"}).reason_code is ReasonCode.INVARIANT_VIOLATED


@for_each(
    ("content", "at"),
    [
        (op("le", "goal.c", 1), "op"),
        ({"v": 1, "when": op("eq", "goal.c", 1)}, "v"),
        ({"v": 3, "when": op("eq", "goal.c", 1)}, "v"),
        ({"v": 2, "when": op("eq", "goal.c", 1), "mode": "observe"}, "mode"),
        ({"v": 2}, "when"),
        ({"v": 2, "when": op("eq", "$actor.kind", "agent")}, ""),
    ],
)
def test_an_invariant_that_is_otherwise_is_refused(content: Any, at: str) -> None:
    (fault,) = validate_policy({"policy.invariant.i": json.dumps(content)})
    assert fault.at.removeprefix(".") == at


def test_predicates_without_a_version_are_of_the_newest() -> None:
    assert compile_predicate(predicate("ne", "fact.owner", "x"), {}).evaluate(SEEN, ASKING, [])
