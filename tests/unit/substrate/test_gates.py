"""Gates that do not hold what they promise: found by lint, each shown to let through what it says."""

from typing import Any

import pytest

from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.insight.belief_fields import BeliefField, belief_field
from cmbs.substrate.kernel.insight.lint import lint
from cmbs.substrate.kernel.insight.lint_findings import LintRule, Severity
from cmbs.substrate.kernel.model import Verdict
from tests.support.policies import allow, ask, call, deny, eq, op, pairs_for, policy_of
from tests.support.subtests import for_each

N = "$belief.S.n_survivors"
GATES = {LintRule.NEVER_FOUND, LintRule.NO_SURVIVOR, LintRule.TEXT_PASSES, LintRule.WAITS_FOR_NOTHING}


def wide(content: dict[str, Any]) -> dict[str, Any]:
    return {**content, "v": 2}


def find(**values: Any) -> list[tuple[str, str]]:
    return [(each.rule.value, each.at) for each in lint(pairs_for(values)).findings if each.rule in GATES]


def find_in(when: Any, effect: Any = allow, **more: Any) -> list[tuple[str, str]]:
    return find(x=wide(effect("one", when, **more)), policy__schema__small={"maximum": 1})


@pytest.mark.req("SS01-LINT-GATES")
@for_each(
    ("when", "at"),
    [
        (op("le", N, 1), "when"),
        (op("lt", N, 2), "when"),
        (op("schema", N, {"maximum": 1}), "when"),
        (op("schema", N, "small"), "when"),
        (op("schema", N, {"type": "integer", "exclusiveMaximum": 2}), "when"),
        (op("not", op("gt", N, 1)), "when.args[0]"),
        (op("le", "$belief.S.entropy_proxy", 0), "when"),
        (op("ge", {"literal": 1}, {"ref": N}), "when"),
        (op("all", eq("$belief.S.active_obligation_id", None), op("le", N, 1)), "when.args[1]"),
        (op("any", op("le", N, 1), eq("fact.a", 1)), "when.args[0]"),
    ],
)
def test_a_gate_that_holds_with_no_survivor_left_is_found(when: Any, at: str) -> None:
    assert find_in(when) == [("no-survivor", at)]
    policy = policy_of(x=wide(allow("one", when)), policy__schema__small={"maximum": 1})
    opened = arbitrate(*ask(policy, [call()], belief={"S": {"n_survivors": 0}})).decision
    assert opened.verdict is Verdict.ALLOW


@pytest.mark.req("SS01-LINT-GATES")
@for_each(
    "when",
    [
        eq(N, 1),
        op("in", N, [0, 1]),
        op("schema", N, {"enum": [0, 1]}),
        op("schema", N, {"const": 0, "maximum": 1}),
        op("schema", N, True),
        op("all", op("le", N, 2), op("ge", N, 1)),
        op("all", op("le", N, 1), op("not", eq("$belief.S.survivors", []))),
        op("all", op("le", N, 1), eq("$belief.S.entropy_proxy", 1)),
        op("exists", N),
        op("missing", N),
        op("ge", N, 1),
        eq("$belief.S.terminated", True),
        op("le", N, {"ref": "$args.n"}),
        op("in", {"literal": 1}, {"ref": N}),
    ],
)
def test_a_gate_that_needs_a_survivor_is_not(when: Any) -> None:
    assert find_in(when) == []


def test_a_denial_opens_no_gate() -> None:
    assert find_in(op("le", N, 1), deny) == []
    # What never holds is said to be just that.
    assert find_in(op("all", op("le", N, 1), op("ge", N, 3))) == []


@pytest.mark.req("SS01-LINT-GATES")
@for_each(
    ("when", "effect"),
    [
        (op("schema", "$args.n", {"maximum": 100}), allow),
        (op("schema", "fact.n", {"minimum": 1, "maximum": 100}), allow),
        (op("schema", "fact.n", "small"), allow),
        (op("schema", "$args.n", {"allOf": [{"multipleOf": 5}]}), allow),
        (op("not", op("schema", "$args.n", {"maximum": 100})), deny),
        # A comparison with a text is false, so that it is not denied.
        (op("gt", "$args.n", 100), deny),
        (op("any", op("lt", "fact.n", 1), eq("$args.n", 7)), deny),
        (op("not", op("ge", "$args.n", 100)), allow),
    ],
)
def test_a_bound_that_text_passes_is_found(when: Any, effect: Any) -> None:
    (finding,) = find_in(when, effect)
    assert finding[0] == "text-passes"
    policy = policy_of(
        x=wide(effect("one", when)), ok=allow("one", eq("fact.ok", 1)), policy__schema__small={"maximum": 1}
    )
    state = {"fact.n": "text", "fact.ok": "1" if effect is deny else "2"}
    assert arbitrate(*ask(policy, [call(args={"n": "text"})], state=state)).decision.verdict is Verdict.ALLOW


@pytest.mark.req("SS01-LINT-GATES")
@for_each(
    ("when", "effect"),
    [
        (op("schema", "$args.n", {"type": "integer", "maximum": 100}), allow),
        (op("all", op("schema", "$args.n", {"type": "number"}), op("schema", "$args.n", {"maximum": 100})), allow),
        (op("schema", "$args.n", {"maximum": 100}), deny),
        (op("not", op("schema", "$args.n", {"maximum": 100})), allow),
        (op("schema", "$args.n", {"type": "string"}), allow),
        (op("schema", "$args.n", False), allow),
        (op("schema", "$actor.id", {"maximum": 100}), allow),
        (op("le", "$args.n", 100), allow),
        (op("not", op("le", "$args.n", 100)), deny),
        (op("any", op("gt", "$args.n", 100), op("not", op("ge", "$args.n", 1))), deny),
        (op("gt", N, 1), deny),
        (op("gt", "$args.n", {"ref": "fact.n"}), deny),
        (op("schema", "$args.n", {"allOf": [True, {"type": "integer"}], "maximum": 3}), allow),
    ],
)
def test_a_bound_that_text_does_not_pass_is_not(when: Any, effect: Any) -> None:
    assert find_in(when, effect) == []


def test_an_invariant_is_looked_at_too() -> None:
    found = find(
        any=allow(None, op("missing", "$tool.id")),
        policy__invariant__i=op("schema", "goal.n", {"maximum": 3}),
        policy__invariant__j=eq("$belief.$args.x.n_survivors", 1),
        policy__invariant__k="?",
    )
    assert found == [("text-passes", ""), ("never-found", "")]


@pytest.mark.req("SS01-LINT-GATES")
def test_a_reference_inside_of_a_reference_is_never_found() -> None:
    (finding,) = lint(pairs_for({"x": allow("one", eq("$belief.$args.x.n_survivors", 1))})).findings
    assert (finding.rule, finding.at, finding.severity) == (LintRule.NEVER_FOUND, "when", Severity.ERROR)
    assert "`$args.x`" in finding.message


@pytest.mark.req("SS01-LINT-GATES")
@for_each(
    ("content", "found"),
    [
        (deny("one", on_fail="defer"), True),
        (deny("one", eq("$args.n", 1), on_fail="defer"), True),
        (allow("one", eq("$actor.id", "me"), on_fail="defer"), True),
        (allow("one", on_fail="defer"), False),
        (allow("one", eq("fact.a", 1), on_fail="defer"), False),
        (allow("one", eq(N, 1), on_fail="defer"), False),
        (deny("one", eq("$args.n", 1), on_fail="ask"), False),
        ({**deny("one", on_fail="defer"), "v": 2, "mode": "observe"}, False),
    ],
)
def test_a_defer_that_waits_for_nothing_is_found(content: Any, found: bool) -> None:
    assert find(x=content) == ([("waits-for-nothing", "on_fail")] if found else [])


def test_what_is_malformed_has_no_gate_to_look_at() -> None:
    assert find(x="?") == []


C = "$case.belief"


@pytest.mark.req("SS01-LINT-GATES")
@for_each(
    ("when", "findings"),
    [
        (op("le", f"{C}.n_survivors", 1), [("no-survivor", "when")]),
        (op("le", f"{C}.independent.n_survivors", 2), [("no-survivor", "when")]),
        # With nothing left there is no survivor to speak of.
        (op("all", op("le", f"{C}.n_survivors", 1), op("exists", f"{C}.survivor")), []),
        (op("all", op("le", f"{C}.n_survivors", 1), op("eq", "$args.s", {"ref": f"{C}.survivor.component"})), []),
        # Where one is left, at least one is left without the actor's own eliminations.
        (op("all", eq(f"{C}.n_survivors", 1), op("le", f"{C}.independent.n_survivors", 2)), []),
        (
            op("all", op("le", f"{C}.n_survivors", 1), eq(f"{C}.independent.n_survivors", 2)),
            [("no-survivor", "when.args[0]")],
        ),
    ],
)
def test_gates_on_the_session_of_a_case_are_looked_at_as_well(when: Any, findings: list[tuple[str, str]]) -> None:
    assert find_in(when, on_fail="defer") == findings


@pytest.mark.req("SS01-POLICY-LINT")
def test_what_denies_for_want_of_a_case_is_not_without_effect() -> None:
    never = op("all", eq("$case.id", "a"), eq("$case.id", "b"))
    assert [each.rule for each in lint(pairs_for({"x": wide(deny("one", never))})).findings] == []
    assert [each.rule for each in lint(pairs_for({"x": wide(allow("one", never))})).findings] == [LintRule.NEVER_TRUE]
    shadowed = {
        "x": wide(deny("one", op("all", eq("$case.id", "a"), eq("fact.a", 1)))),
        "y": deny("one", eq("fact.a", 1)),
    }
    assert lint(pairs_for(shadowed)).findings == []
    # An allow that reads a case does not hold without one, whatever its `when` says.
    either = {
        "x": allow("one", eq("fact.a", 1)),
        "y": wide(allow("one", op("any", eq("fact.a", 1), eq("$case.id", "a")))),
    }
    assert lint(pairs_for(either)).findings == []


def test_fields_of_the_session_of_a_case_are_told_by_their_text() -> None:
    assert belief_field("$belief.a.b.n_survivors") == BeliefField("$belief.a.b", "n_survivors")
    assert belief_field("$case.belief.n_survivors") == BeliefField("$case.belief", "n_survivors")
    assert belief_field("$case.belief.survivor.component") == BeliefField("$case.belief", "survivor")
    independent = belief_field("$case.belief.independent.n_survivors")
    assert independent == BeliefField("$case.belief.independent", "n_survivors")
    # Who takes the actor's own eliminations away has at least as many left.
    assert independent.owners_of_less == ("$case.belief.independent", "$case.belief")
    assert belief_field("$case.attributes.n_survivors") is None
    assert belief_field("fact.a") is None
