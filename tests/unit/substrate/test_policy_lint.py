"""What lint says is so: every finding by an example, and all of them held against arbitration on random situations."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.insight import lint as policy_lint
from cmbs.substrate.kernel.insight.lint import lint
from cmbs.substrate.kernel.insight.lint_findings import LintFinding, LintRule, Severity
from cmbs.substrate.kernel.model import Decision, Verdict
from cmbs.substrate.kernel.policy.policy import MAX_PAIRS, Policy, compile_policy
from tests.support.policies import (
    TOOL_IDS,
    allow,
    ask,
    beliefs,
    candidates,
    deny,
    eq,
    op,
    pairs_for,
    policies,
    states,
    wide_policies,
)
from tests.support.subtests import for_each


def find(tool_ids: Any = None, **values: Any) -> list[tuple[str, str]]:
    return [(each.rule.value, each.key) for each in lint(pairs_for(values), tool_ids).findings]


def only(tool_ids: Any = None, **values: Any) -> LintFinding:
    (finding,) = lint(pairs_for(values), tool_ids).findings
    return finding


# --- the rules, one by one --------------------------------------------------------------------------------------------


def test_a_policy_with_nothing_wrong_has_no_findings() -> None:
    assert find(TOOL_IDS, deltas=allow(None, op("missing", "$tool.id")), one=allow("one"), two=allow("two")) == []


def test_what_a_policy_update_would_be_refused_for_is_malformed() -> None:
    finding = only(x=allow("one", op("near", "fact.a")))
    assert (finding.rule, finding.key, finding.at) == (LintRule.MALFORMED, "constraint.x", "when.op")
    assert finding.severity is Severity.ERROR


def test_a_key_that_is_no_part_of_a_policy_is_malformed_and_the_rest_is_looked_at() -> None:
    pairs = {**pairs_for({"x": deny(None, op("schema", "fact.a", False))}), "policy.typo": "1", "fact.a": "1"}
    assert [(each.rule.value, each.key) for each in lint(pairs).findings] == [
        ("never-true", "constraint.x"),
        ("malformed", "fact.a"),
        ("malformed", "policy.typo"),
    ]


def test_a_value_that_is_no_text_is_malformed_and_nothing_else() -> None:
    pairs = {"constraint.x": '"\ud800"', **pairs_for({"y": allow("one")})}
    assert [(each.rule.value, each.key) for each in lint(pairs).findings] == [("malformed", "constraint.x")]


def test_a_policy_beyond_every_limit_is_said_to_be_that_and_no_more() -> None:
    report = lint(dict.fromkeys(map("constraint.{}".format, range(MAX_PAIRS + 1)), "{}"))
    assert [each.rule for each in report.findings] == [LintRule.MALFORMED]


@for_each(
    "when",
    [
        op("all", eq("fact.a", "p"), eq("fact.a", "q")),
        op("all", op("missing", "fact.a"), op("schema", "fact.a", {"type": "string"})),
        op("in", "fact.a", []),
        op("all", op("exists", "fact.a"), op("any", op("missing", "fact.a"), eq("fact.a", None))),
        op("schema", "fact.a", {"minimum": 5, "maximum": 4, "type": "number"}),
        op("all", op("schema", "fact.a", {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2})),
        op("schema", "$belief.S.n_survivors", {"maximum": -1}),
        op("schema", "$belief.S.n_survivors", {"type": "string"}),
        op("schema", "$belief.S.entropy_proxy", {"exclusiveMaximum": 0}),
        op("schema", "$belief.S.terminated", {"const": 1}),
        eq("$belief.S.active_obligation_id", 5),
        eq("$belief.S.survivors", "h"),
        op("all", op("schema", "fact.a", {"pattern": "x"}), op("not", op("schema", "fact.a", {"pattern": "x"}))),
        op("all", op("schema", "fact.a", "named"), eq("fact.a", "neither")),
        op("missing", "$actor.id"),
        op("not", op("any", eq("fact.a", "p"), op("not", eq("fact.a", "p")))),
    ],
)
def test_a_condition_that_holds_nowhere_is_never_true(when: Any) -> None:
    finding = only(x=deny(None, when), policy__schema__named={"enum": ["p", "q"]})
    assert (finding.rule, finding.key, finding.at) == (LintRule.NEVER_TRUE, "constraint.x", "when")


@for_each(
    "when",
    [
        # As text it is "5", and as JSON it is 5: a state key is both.
        op("all", eq("fact.a", "5"), eq("fact.a", 5)),
        op("all", eq("fact.a", 5), op("not", eq("fact.a", "5"))),
        op("all", op("schema", "fact.a", {"minLength": 2}), op("schema", "fact.a", {"maxLength": 2})),
        op(
            "all",
            op("not", eq("$belief.S.concluded", [])),
            op("not", eq("$belief.S.concluded", ["another"])),
            op("exists", "$belief.S.concluded"),
        ),
        op("schema", "fact.a", {"multipleOf": 7}),
        op("schema", "fact.a", {"minimum": 2**53 - 1, "maximum": 2**53 - 2}),
        op("schema", "fact.a", {"minLength": 5_000, "maxLength": 4_999}),
        op("not", op("in", "fact.a", [f"{number}" for number in range(300)])),
    ],
)
def test_what_is_not_proved_is_not_said(when: Any) -> None:
    assert find(x=deny(None, when)) == []


def test_a_search_that_takes_too_long_proves_nothing() -> None:
    parts = [op("any", *(eq(f"fact.k{place}", number) for number in range(3))) for place in range(12)]
    hard = op("all", *parts, eq("fact.z", 1), eq("fact.z", 2))
    assert find(x=deny(None, hard)) == []


def test_an_allow_behind_a_deny_of_the_same_contradicts_it() -> None:
    finding = only(x=allow("one", eq("fact.a", "p")), y=deny("one", eq("fact.a", "p")))
    assert (finding.rule, finding.key, finding.others) == (LintRule.CONTRADICTING, "constraint.x", ["constraint.y"])


def test_an_allow_is_shadowed_by_a_wider_deny() -> None:
    finding = only(x=allow("one", eq("fact.a", "p")), y=deny(None, op("exists", "fact.a")))
    assert (finding.rule, finding.key, finding.severity) == (LintRule.SHADOWED, "constraint.x", Severity.WARNING)


P, Q, P_OR_Q = eq("fact.a", "p"), eq("fact.a", "q"), op("in", "fact.a", ["p", "q"])
NEVER = op("in", "fact.a", [])
SHADOWED, X_NEVER = [("shadowed", "constraint.x")], [("never-true", "constraint.x")]


@for_each(
    ("values", "findings"),
    [
        # A tool's own constraint knows which tool is called.
        ({"x": deny("one", eq("$tool.id", "two"))}, X_NEVER),
        ({"x": deny({"capability": "files"}, op("missing", "$tool.id"))}, X_NEVER),
        ({"x": deny(None, op("missing", "$tool.id"))}, []),
        # A deny that an approval lifts shadows nothing.
        ({"x": allow("one", P), "y": deny("one", op("exists", "fact.a"), on_fail="ask")}, []),
        # An allow that an approval stands in for is shadowed only by what always denies.
        ({"x": allow("one", P, on_fail="ask"), "y": deny("one", P)}, []),
        ({"x": allow("one", P, on_fail="ask"), "y": deny("one")}, SHADOWED),
        # A deny is shadowed by one that blocks wherever it holds.
        ({"x": deny("one", P, on_fail="defer"), "y": deny(None, P_OR_Q)}, SHADOWED),
        ({"x": deny("one", P), "y": deny(None, P_OR_Q, on_fail="defer")}, []),
        ({"x": deny("one", eq("$args.n", 1)), "y": deny("one", eq("$args.m", 1))}, []),
        # Of two of the same the second is too much.
        ({"x": deny("one", P), "y": deny("one", op("in", "fact.a", ["p"]))}, [("shadowed", "constraint.y")]),
        ({"x": allow("one"), "y": allow("one")}, [("shadowed", "constraint.y")]),
        # An allow within another adds nothing unless it asks.
        ({"x": allow("one", P), "y": allow(None)}, SHADOWED),
        ({"x": allow("one", P, on_fail="ask"), "y": allow(None)}, []),
        ({"x": allow("one"), "y": allow("two")}, []),
        # Invariants that no state meets are said.
        ({"policy__invariant__i": NEVER}, [("never-true", "policy.invariant.i")]),
        ({"policy__invariant__i": P, "policy__invariant__j": Q}, [("contradicting", "policy.invariant.j")]),
        ({"policy__invariant__i": "no"}, [("malformed", "policy.invariant.i")]),
        ({"policy__invariant__i": P, "policy__invariant__j": eq("fact.b", "q")}, []),
    ],
)
def test_what_decides_nothing_is_found_and_nothing_else(values: dict[str, Any], findings: list[Any]) -> None:
    assert find(**values) == findings


def test_tools_that_are_not_there_are_said_where_tools_are_known() -> None:
    values = {
        "x": allow("one"),
        "y": allow("three"),
        "any": allow(None, op("missing", "$tool.id")),
        "policy__degrade__three": {"tool_id": "four"},
        "policy__degrade__one": {"mode": "slow"},
    }
    assert find(None, **values) == []
    assert find(["one"], **values) == [
        ("unknown-tool", "constraint.y"),
        ("unknown-tool", "policy.degrade.three"),
        ("unknown-tool", "policy.degrade.three"),
    ]


def test_what_can_never_be_allowed_is_a_note() -> None:
    values = {
        "no": deny("one"),
        "two": allow("two", op("missing", "$tool.id")),
        "d": allow(None, op("exists", "$tool.id")),
    }
    report = lint(pairs_for({**values, "d": allow({"capability": "files"}, op("in", "fact.a", []))}), TOOL_IDS)
    notes = [(each.key, each.message) for each in report.findings if each.severity is Severity.NOTE]
    assert notes == [
        ("", "no state delta can ever be allowed: no allow can hold for it"),
        ("one", "no call of `one` can ever be allowed: `constraint.no` always denies it"),
        ("two", "no call of `two` can ever be allowed: no allow can hold for it"),
    ]
    # It may be approved, or a token may have the capability.
    assert ("never-allowed", "two") not in find(TOOL_IDS, a=allow("two", op("in", "fact.a", []), on_fail="ask"))
    assert ("never-allowed", "two") not in find(TOOL_IDS, a=allow({"capability": "files"}))
    assert ("never-allowed", "two") not in find(TOOL_IDS, a=allow(None), n=deny("two", on_fail="ask"))


def test_a_policy_with_too_many_pairs_to_compare_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_lint, "MAX_PAIRS_COMPARED", 3)
    report = lint(pairs_for({f"c{place}": allow("one", eq("fact.a", place)) for place in range(3)}))
    assert not report.complete
    assert lint(pairs_for({"x": allow("one")})).complete
    monkeypatch.undo()
    monkeypatch.setattr(policy_lint, "MAX_SEARCHES", 0)
    overlapping = {"x": deny("one", eq("fact.a", "p")), "y": deny("one", eq("fact.a", "p"))}
    report = lint(pairs_for(overlapping))
    assert (report.findings, report.complete) == ([], False)


# --- and all of them against arbitration ------------------------------------------------------------------------------


def decide(policy: Policy, candidate: Any, state: Any, belief: Any, approved: list[str]) -> Decision:
    it = ask(policy, [candidate], state=state, belief=belief, approved=approved)
    return arbitrate(it.space, it.proposal, it.actor, it.now, it.belief).decision


def without(pairs: dict[str, str], key: str) -> Policy:
    return compile_policy({other: text for other, text in pairs.items() if other != key})


def refute(finding: LintFinding, pairs: dict[str, str], situation: "Situation") -> str | None:
    """Why a finding is not so in this situation; None where it may be."""
    policy = compile_policy(pairs)
    decision = decide(policy, *situation)
    held = {step.key for step in decision.trace if step.passed and step.op is None}
    candidate = situation[0]
    allowed = decision.verdict is Verdict.ALLOW
    match finding.rule:
        case LintRule.NEVER_TRUE:
            return "it holds" if finding.key in held else None
        case LintRule.NEVER_ALLOWED:
            return "it is allowed" if allowed and finding.key == candidate.get("tool_id", "") else None
        case LintRule.CONTRADICTING if finding.key.startswith("policy."):
            return "both hold" if {finding.key, *finding.others} <= held else None
        case LintRule.SHADOWED | LintRule.CONTRADICTING:
            other = decide(without(pairs, finding.key), *situation)
            if '"allow"' in pairs[finding.key]:
                return "it permits" if allowed and other.verdict is not Verdict.ALLOW else None
            return None if verdict_of(decision) == verdict_of(other) else "it decides"
        case LintRule.NEVER_FOUND:
            found = {step.reference for step in decision.trace if step.key == finding.key and step.found is not None}
            return "it is found" if any(each is not None and each.startswith("$belief.$") for each in found) else None
        case LintRule.WAITS_FOR_NOTHING:
            deciding = [each for each in decision.candidates if each.matched == (finding.key,)]
            return "it waits" if any(each.waits_for for each in deciding) else None
        case LintRule.NO_SURVIVOR | LintRule.TEXT_PASSES:
            # That something may pass is not refuted by what does not; `test_gates` shows what does.
            return None
        case _:
            raise AssertionError(finding)


def verdict_of(decision: Decision) -> tuple[Any, ...]:
    return decision.verdict, decision.failure, decision.reason_code


Situation = tuple[Any, Any, Any, list[str]]
situations = st.tuples(candidates, states, beliefs, st.sampled_from([[], ["constraint.c0", "constraint.c1"]]))


@given(pairs=policies() | wide_policies(), drawn=st.lists(situations, min_size=1, max_size=8))
def test_no_situation_refutes_a_finding(pairs: dict[str, str], drawn: list[Situation]) -> None:
    report = lint(pairs, TOOL_IDS)
    for finding in report.findings:
        for situation in drawn:
            assert refute(finding, pairs, situation) is None, (finding, situation)
    assert msgspec.json.encode(report) == msgspec.json.encode(lint(dict(reversed(pairs.items())), TOOL_IDS))
