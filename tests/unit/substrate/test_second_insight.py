"""Lint and flips on constraints of version 2: exact where a comparison can be taken apart, and never a wrong claim."""

from typing import Any

import pytest

from cmbs.messages import ActorKind
from cmbs.substrate.kernel.insight.explanation import Explanation, explain
from cmbs.substrate.kernel.insight.lint import lint
from cmbs.substrate.kernel.insight.value_classes import Classes, Question, classes_of
from cmbs.substrate.kernel.model import Verdict
from cmbs.substrate.kernel.words import FlipStatus
from tests.support.policies import TOOL_IDS, allow, ask, call, deny, eq, literal, op, pairs_for, policy_of, ref
from tests.support.subtests import for_each

N = "$belief.S.n_survivors"


def wide(content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**content, "v": 2, **more}


def find(tool_ids: Any = None, **values: Any) -> list[tuple[str, str]]:
    return [(each.rule.value, each.key) for each in lint(pairs_for(values), tool_ids).findings]


# --- lint -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-POLICY-LINT")
@for_each(
    "when",
    [
        op("all", op("lt", "fact.a", 3), op("gt", "fact.a", 3)),
        op("all", op("lt", "fact.a", 3), op("schema", "fact.a", {"type": "string"})),
        op("lt", "fact.a", "text"),
        op("lt", N, 0),
        op("all", op("gt", N, 1), op("lt", N, 2)),
        op("all", op("ne", "fact.a", "p"), eq("fact.a", "p")),
        op("all", op("ne", "fact.a", "p"), op("missing", "fact.a"), op("ne", "fact.a", None)),
        op("all", op("prefix", "fact.a", "pp"), op("not", op("prefix", "fact.a", "p"))),
        op("all", op("prefix", "fact.a", "p"), op("lt", "fact.a", 3)),
        op("prefix", "fact.a", 5),
        eq("$actor.kind", "human"),
        op("missing", "$actor.roles"),
        eq("$actor.roles", "oncall"),
        # What is not there is compared with nothing.
        op("all", op("eq", "fact.a", ref("fact.b")), op("not", op("schema", "fact.a", True))),
        op("all", op("lt", "fact.a", ref("fact.b")), op("not", op("lt", "fact.a", ref("fact.b")))),
    ],
)
def test_a_condition_that_holds_nowhere_is_never_true(when: Any) -> None:
    assert find(x=wide(deny(None, when))) == [("never-true", "constraint.x")]


@pytest.mark.req("SS01-POLICY-LINT")
@for_each(
    "when",
    [
        # True of no numbers, which takes more than the looks of each side to see.
        op("all", op("lt", "fact.a", ref("fact.b")), op("lt", "fact.b", ref("fact.a"))),
        op("all", op("in", literal("x"), ref("fact.a")), eq("fact.a", [])),
        op("all", op("prefix", literal("x"), ref("fact.a")), eq("fact.a", "y")),
        op("all", op("prefix", "fact.a", "p"), op("schema", "fact.a", {"minLength": 9})),
        op("all", op("prefix", "fact.a", ""), op("not", op("prefix", "fact.a", "another"))),
        op("all", op("ge", N, 1), op("lt", N, 2)),
        op("all", eq("fact.a", 5), op("gt", "fact.a", 4.5)),
        eq("$actor.kind", "agent"),
        op("in", literal("oncall"), ref("$actor.roles")),
        op("exists", "$actor.roles"),
    ],
)
def test_what_is_not_proved_is_not_said(when: Any) -> None:
    assert find(x=wide(deny(None, when))) == []


P = eq("fact.a", "p")


@for_each(
    ("values", "findings"),
    [
        # Of a list or a pattern that covers it.
        ({"x": allow("one", P), "y": wide(deny({"tool_id": ["one", "two"]}, P))}, ["shadowed"]),
        ({"x": allow("one", P), "y": wide(deny({"tool_id": "o*"}, P))}, ["shadowed"]),
        ({"x": wide(allow({"tool_id": "o*"}, P)), "y": wide(deny({"tool_id": ["o*", "two"]}, P))}, ["shadowed"]),
        ({"x": wide(allow({"tool_id": "o*"}, P)), "y": wide(deny({"tool_id": "*"}, P))}, ["shadowed"]),
        ({"x": wide(allow({"tool_id": "o*"}, P)), "y": wide(deny({"tool_id": "one"}, P))}, []),
        ({"x": wide(allow({"tool_id": ["one", "two"]}, P)), "y": deny("one", P)}, []),
        # Each of several tools knows its own id.
        ({"x": wide(deny({"tool_id": ["one", "two"]}, eq("$tool.id", "three")))}, ["never-true"]),
        ({"x": wide(deny({"tool_id": ["one", "two"]}, eq("$tool.id", "two")))}, []),
        ({"x": wide(deny({"tool_id": [f"t{n}" for n in range(30)]}, eq("$tool.id", "three")))}, []),
        # What observes overrules nothing and is overruled by nothing, but may still never hold.
        ({"x": wide(allow("one", P), mode="observe"), "y": deny("one", P)}, []),
        ({"x": allow("one", P), "y": wide(deny("one", P), mode="observe")}, []),
        ({"x": wide(deny("one", op("in", "fact.a", [])), mode="observe")}, ["never-true"]),
    ],
)
def test_lists_patterns_and_observers_are_understood(values: dict[str, Any], findings: list[str]) -> None:
    assert find(**values) == [(rule, "constraint.x") for rule in findings]


def test_a_name_or_pattern_that_no_tool_has_is_unknown() -> None:
    subject = {"tool_id": ["one", "o*", "three", "thr*"]}
    (first, second) = [
        each for each in lint(pairs_for({"x": wide(allow(subject))}), ["one"]).findings if each.rule == "unknown-tool"
    ]
    assert (first.message, second.message) == ("there is no tool `thr*`", "there is no tool `three`")


def test_a_tool_that_only_a_pattern_allows_can_be_allowed() -> None:
    deltas = allow(None, op("missing", "$tool.id"))
    assert find(TOOL_IDS, deltas=deltas, x=wide(allow({"tool_id": "*"}))) == []
    observing = find(TOOL_IDS, deltas=deltas, x=wide(allow({"tool_id": "*"}), mode="observe"))
    assert observing == [("never-allowed", "one"), ("never-allowed", "two")]


# --- flips ------------------------------------------------------------------------------------------------------------


def explain_call(when: Any, args: Any = None, **situation: Any) -> Explanation:
    policy = policy_of(ok=wide(allow("one", when)), policy__value__limit="5")
    return explain(ask(policy, [call(args=args)], **situation), ActorKind.OPERATOR)


@pytest.mark.req("SS01-POLICY-EXPLAIN")
@for_each(
    ("when", "args", "situation", "changed"),
    [
        (op("gt", "fact.n", 5), None, {"state": {"fact.n": "3"}}, ("fact.n", "6")),
        (op("le", N, 2), None, {"belief": {"S": {"n_survivors": 9}}}, (N, "2")),
        (op("ge", N, literal(3)), None, {"belief": {"S": {"n_survivors": 1}}}, (N, "3")),
        (op("prefix", "fact.a", "pre"), None, {"state": {"fact.a": "x"}}, ("fact.a", "pre")),
        (op("ne", "fact.a", "p"), None, {"state": {"fact.a": "p"}}, ("fact.a", "another")),
        # What no fact changes is as good as a literal.
        (op("eq", "$args.service", ref("fact.owner")), {"service": "web"}, {}, ("fact.owner", "web")),
        (
            op("eq", "fact.owner.service", ref("$args.service")),
            {"service": "web"},
            {},
            ("fact.owner", '{"service":"web"}'),
        ),
        (op("lt", "$args.n", ref("fact.limit")), {"n": 4}, {"state": {"fact.limit": "4"}}, ("fact.limit", "5")),
        (op("le", "fact.n", ref("policy.value.limit")), None, {"state": {"fact.n": "9"}}, ("fact.n", "5")),
        (op("in", "$args.service", ref("fact.mine")), {"service": "web"}, {}, ("fact.mine", '["web"]')),
        (op("in", "fact.a", ref("$args.any")), {"any": ["p"]}, {}, ("fact.a", "p")),
        (op("eq", "$args.n", ref(N)), {"n": 1}, {"belief": {"S": {"n_survivors": 4}}}, (N, "1")),
        (op("eq", "fact.a", ref("$args.a")), {"a": None}, {}, ("fact.a", "null")),
        # Two facts: what the other one is stands for it.
        (op("eq", "fact.a", ref("fact.b")), None, {"state": {"fact.a": "p", "fact.b": "q"}}, ("fact.a", "q")),
        (op("lt", "fact.a", ref("fact.b")), None, {"state": {"fact.b": "7"}}, ("fact.a", "5")),
    ],
)
def test_the_smallest_change_turns_it(
    when: Any, args: Any, situation: dict[str, Any], changed: tuple[str, str]
) -> None:
    explanation = explain_call(when, args, **situation)
    (change,) = explanation.flip.changes
    assert (explanation.flip.status, explanation.flip.verdict) == (FlipStatus.SMALLEST, Verdict.ALLOW)
    assert (change.reference, change.to) == changed


@pytest.mark.req("SS01-POLICY-EXPLAIN")
def test_between_two_facts_the_answer_is_a_bound_or_not_known() -> None:
    both = explain_call(op("all", op("lt", "fact.a", ref("fact.b")), op("exists", "fact.c")))
    assert both.flip.status is FlipStatus.BOUND
    assert len(both.flip.changes) == 3
    never = explain_call(op("all", op("lt", "fact.a", ref("fact.b")), op("lt", "fact.b", ref("fact.a"))))
    assert never.flip.status is FlipStatus.UNKNOWN


@pytest.mark.req("SS01-POLICY-EXPLAIN")
def test_without_a_case_only_what_reads_none_can_be_turned() -> None:
    gated = wide(allow("one", eq("$case.id", "c")))
    explanation = explain(ask(policy_of(x=gated, y=allow("one", eq("fact.a", "p"))), [call()]), ActorKind.OPERATOR)
    assert explanation.decision.reason_code == "NO_CASE"
    assert [(each.reference, each.to) for each in explanation.flip.changes] == [("fact.a", "p")]
    denied = policy_of(x=wide(deny("one", eq("$case.id", "c"))), y=allow("one"), z=deny("two", eq("fact.a", "p")))
    explanation = explain(ask(denied, [call()]), ActorKind.OPERATOR)
    assert (explanation.decision.reason_code, explanation.flip.status) == ("NO_CASE", FlipStatus.NONE)


def test_what_observes_is_explained_and_turns_nothing() -> None:
    watching = wide(deny("one", eq("fact.a", "p")), mode="observe")
    policy = policy_of(ok=allow("one"), watch=watching, idle=wide(deny("one", eq("fact.a", "q")), mode="observe"))
    explanation = explain(ask(policy, [call()], state={"fact.a": "p"}), ActorKind.OPERATOR)
    (because,) = explanation.because
    assert [speaker.key for speaker in because.observed] == ["constraint.watch"]
    assert [step.reference for step in because.observed[0].steps] == ["fact.a"]
    assert explanation.flip.status is FlipStatus.NONE


# --- classes of values ------------------------------------------------------------------------------------------------


def classes(*asked: tuple[str, Any]) -> Classes:
    return classes_of([Question("when", name, ("fact.a",), value) for name, value in asked], {})


def test_each_prefix_has_a_text_of_its_own() -> None:
    found = classes(("prefix", "a"), ("prefix", "ab"), ("eq", "ab"), ("prefix", "another"))
    assert found.complete
    texts = [value for value in found.values if isinstance(value, str)]
    for has, lacks in (("ab", "~"), ("a", "ab"), ("another", "~"), ("", "a")):
        assert any(text.startswith(has) and not text.startswith(lacks) and text != "ab" for text in texts)


def test_where_no_text_is_left_for_a_prefix_that_is_said() -> None:
    letters = "xyzwvutsrqponmlkjihgfedcba"
    assert not classes(("prefix", "p"), ("in", ["p", *(f"p{letter}" for letter in letters)])).complete
    assert not classes(("prefix", "p"), ("schema", {"minLength": 2})).complete
    assert not classes(("contains", "x")).complete
    assert ["x"] in classes(("contains", "x")).values
    assert "x" in classes(("begins", "x")).values
    assert classes(("in", "no list")).complete
