"""The tests of a policy file: what they are decided on, what they come to, and what they leave out."""

import json
from typing import Any

import pytest

from cmbs.errors import InvalidRequest
from cmbs.substrate.kernel.insight.policy_tests import PolicyTestReport, run_tests
from cmbs.substrate.kernel.policy.file import compile_file
from tests.support.policies import allow, call, delta, deny, eq, file_of, op
from tests.support.subtests import for_each

TOOLS = [{"tool_id": tool_id, "writes": False} for tool_id in ("one", "two")]
TOKEN = {"token_id": "t", "agent_id": "medic", "tool_ids": ["one", "two"]}


def ran(policy: dict[str, Any], *tests: dict[str, Any], tools: Any = (), **more: Any) -> PolicyTestReport:
    given = {"actor": "agent:medic", "capabilities": [TOKEN], **more}
    content = file_of(policy, given=given, tests=tests, tools=[*TOOLS, *tools])
    return run_tests(compile_file(json.dumps(content).encode(), "policy.json"))


def example(*candidates: Any, expect: Any = None, name: str = "test", **more: Any) -> dict[str, Any]:
    return {"name": name, "proposal": {"candidates": candidates}, "expect": expect or {"verdict": "allow"}, **more}


def wrong(policy: dict[str, Any], *tests: dict[str, Any], **more: Any) -> list[tuple[str, Any, Any]]:
    (result,) = ran(policy, *tests, **more).results
    assert result.passed is not bool(result.mismatches)
    return [(each.at, each.expected, each.found) for each in result.mismatches]


# --- tests ------------------------------------------------------------------------------------------------------------


def test_a_test_passes_where_everything_it_names_is_so() -> None:
    expect = {
        "verdict": "deny",
        "failure": "block",
        "reason_code": "CONSTRAINT_DENIED",
        "stage": "constraints",
        "matched": ["constraint.no"],
        "waits_for": [],
        "candidates": [{"verdict": "deny", "matched": ["constraint.no"]}],
    }
    assert wrong({"constraint.no": deny("one")}, example(call(), expect=expect)) == []


def test_a_test_says_everything_that_is_not_as_expected() -> None:
    expect = {"verdict": "allow", "matched": ["constraint.z"], "candidates": [{"stage": "tool"}, {}]}
    assert wrong({"constraint.no": deny("one")}, example(call(), expect=expect)) == [
        ("verdict", "allow", "deny"),
        ("matched", ["constraint.z"], ["constraint.no"]),
        ("candidates", "2 of them", "1 of them"),
        ("candidates[0].stage", "tool", "constraints"),
    ]


def denied(code: str, *candidates: Any, **proposal: Any) -> dict[str, Any]:
    """A test that is denied for this reason, by default of a call."""
    made = example(*(candidates or [call()]), expect={"verdict": "deny", "reason_code": code})
    return {**made, "proposal": {**made["proposal"], **proposal}}


ONE, ANY = {"constraint.ok": allow("one")}, {"constraint.any": allow()}
NOT_A_AND_B = {"constraint.ok": allow("one", op("all", op("missing", "fact.a"), eq("fact.b", 2)))}
ASKING = {**ANY, "constraint.ask": deny(None, on_fail="ask")}
ASKS = {"verdict": "defer", "failure": "ask", "matched": ["constraint.ask"]}
FEW = {"constraint.ok": allow("one", op("schema", "$belief.S.n_survivors", {"maximum": 1}), on_fail="defer")}
WAITS = {"verdict": "defer", "waits_for": ["$belief.S"]}
FORGED = {"source": "another", "timestamp": "2026-01-01T00:00:00.000000Z"}
BOUNDED = {"capabilities": [{**TOKEN, "budget": {"calls": 2}, "expires_at": "2026-06-01T00:00:00.000000Z"}]}
THREE = {
    "tools": [{"tool_id": "three", "args_schema": {"required": ["n"]}, "writes": False}],
    "capabilities": [{**TOKEN, "tool_ids": ["three"]}],
}


@for_each(
    ("policy", "made", "document"),
    [
        # A test lies over what is given, and null takes a key away.
        (NOT_A_AND_B, example(call(), state={"fact.a": None, "fact.b": 2}), {"state": {"fact.a": "1", "fact.b": 1}}),
        (ONE, {**denied("CAPABILITY_REVOKED"), "revoked": ["t"]}, {}),
        (ONE, {**denied("CAPABILITY_OTHER_AGENT"), "actor": "agent:other"}, {}),
        (ONE, {**denied("CAPABILITY_OTHER_AGENT"), "actor": "encoder:medic"}, {}),
        (ONE, {**denied("BUDGET_EXHAUSTED"), "spent": {"t": {"calls": 2}}}, BOUNDED),
        (ONE, {**denied("CAPABILITY_EXPIRED"), "now": "2026-07-01T00:00:00Z"}, BOUNDED),
        (ASKING, example(call(), delta(c="p"), expect=ASKS), {}),
        (ASKING, example(call(), delta(c="p"), approved=["constraint.ask"]), {}),
        (FEW, example(call(), expect=WAITS), {}),
        (FEW, example(call(), expect=WAITS, belief={"S": {"found": False}}), {}),
        (FEW, example(call(), belief={"S": {"survivors": ["h"]}}), {"belief": {"S": {"n_survivors": 4}}}),
        (
            ANY,
            example(delta(c="p"), expect={"verdict": "defer", "reason_code": "STALE_SNAPSHOT"}, seen={"goal.c": "q"}),
            {},
        ),
        (ANY, denied("UNKNOWN_SNAPSHOT", delta(c="p"), state_snapshot_id="ff"), {}),
        (ONE, denied("FORGED_PROVENANCE", provenance=FORGED), {}),
        ({"constraint.no": deny("one")}, example(call(), expect={"verdict": "deny"}, mode="observe"), {}),
        # Tools of the file are known.
        ({"constraint.ok": allow("three")}, denied("ARGS_INVALID", call("three")), THREE),
        ({"constraint.ok": allow("three")}, example(call("three", {"n": 1})), THREE),
    ],
)
def test_everything_that_a_test_says_of_its_situation_counts(policy: Any, made: Any, document: Any) -> None:
    assert wrong(policy, made, **document) == []


@for_each(
    ("tests", "more", "message"),
    [
        ([example(call(), actor="robot:x")], {}, "test `test`: an actor is `kind:id`"),
        ([example(call(), actor="agent")], {}, "test `test`: an actor is `kind:id`"),
        ([example(call(), now="noon")], {}, "test `test`: `now` must be a moment"),
        (
            [example(call(), state={"constraint.x": "1"})],
            {},
            "`constraint.x` in the state is neither a fact.* nor a goal.*",
        ),
        ([example(call(), belief={"S": {"survivors": ["h"], "n_survivors": 2}})], {}, "session `S` has 1 survivors"),
        ([example(call()), example(call())], {}, "2 tests have the name `test`"),
        ([{"name": "x", "proposal": {"candidates": []}}], {}, "test `x` says not what to `expect`"),
    ],
)
def test_a_test_that_cannot_be_is_named(tests: Any, more: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ran({}, *tests, **more)
    assert message in caught.value.message


# --- coverage ---------------------------------------------------------------------------------------------------------


def test_coverage_tells_what_was_never_asked_and_what_only_ever_went_one_way() -> None:
    policy = {
        "constraint.one": allow("one"),
        "constraint.two": allow("two"),
        "constraint.never": deny("one", eq("fact.a", "p")),
        "constraint.always": allow("one", op("missing", "fact.a")),
        "constraint.both": deny(None, eq("$tool.id", "two")),
        "constraint.broken": {"v": 1},
        "policy.exclusive.g": ["goal.c", "goal.d"],
        "policy.invariant.i": op("missing", "goal.x"),
    }
    unbroken = {key: value for key, value in policy.items() if key != "constraint.broken"}
    coverage = ran(
        unbroken, example(call(), name="1"), example(call("two"), name="2", expect={"verdict": "deny"})
    ).coverage
    assert coverage.never_asked == ["policy.exclusive.g", "policy.invariant.i"]
    assert coverage.one_sided == ["constraint.always", "constraint.never"]
    assert (coverage.asked["constraint.one"], coverage.held["constraint.one"]) == (1, 1)
    broken = ran(policy, example(call(), expect={"verdict": "deny", "matched": ["constraint.broken"]})).coverage
    assert "constraint.broken" not in broken.never_asked
    assert "constraint.broken" not in broken.one_sided


def test_what_was_decided_before_the_constraints_does_not_count_as_asked() -> None:
    expect = {"verdict": "deny", "stage": "capability"}
    coverage = ran({"constraint.one": allow("one")}, example(call(token="absent"), expect=expect)).coverage
    assert coverage.never_asked == ["constraint.one"]


# --- cases ------------------------------------------------------------------------------------------------------------

GATE = """
format: 2
tools: [{tool_id: service.restart, writes: false}]
rules:
  - name: gate
    allow: service.restart
    when: >
      case.belief.n_survivors == 1 && case.belief.active_obligation_id == null &&
      args.service == case.belief.survivor.component && case.attributes.tier != "gold" &&
      case.belief.independent.n_survivors == 1
    otherwise: defer
given:
  actor: agent:medic
  capabilities: [{token_id: t, agent_id: medic, tool_ids: [service.restart]}]
  case:
    attributes: {tier: silver}
    belief: {n_survivors: 1, survivor: {component: web}, independent: {survivors: [web]}}
tests:
  - name: the cause
    proposal: &web
      candidates: [{type: tool_call, tool_id: service.restart, args: {service: web}, capability_token_id: t}]
    expect: {verdict: allow, matched: [gate]}
  - name: without a case
    case: null
    proposal: *web
    expect: {verdict: deny, reason_code: NO_CASE}
  - name: a case of another agent
    case: {agents: [other], attributes: {tier: silver}, belief: {n_survivors: 1, survivor: {component: web}}}
    proposal: *web
    expect: {verdict: deny, reason_code: NO_CASE}
  - name: a case that is closed
    case: {closed: true, belief: {n_survivors: 1, survivor: {component: web}}}
    proposal: *web
    expect: {verdict: deny, reason_code: NO_CASE}
  - name: an agent that ruled the others out by itself
    case:
      attributes: {tier: silver}
      belief: {n_survivors: 1, survivor: {component: web}, independent: {n_survivors: 3}}
    proposal: *web
    expect: {verdict: defer, reason_code: ALLOW_UNMET}
  - name: another survivor
    case:
      attributes: {tier: silver}
      belief: {survivors: [db], survivor: {component: db}, independent: {n_survivors: 1, survivor: {component: db}}}
    proposal: *web
    expect: {verdict: defer, reason_code: ALLOW_UNMET}
"""
ASKED_IN_A_CASE = """
format: 2
tools: [{tool_id: page}]
rules:
  - {name: pages, allow: page}
  - {name: wakes_people, deny: page, otherwise: ask}
given:
  actor: agent:medic
  capabilities: [{token_id: t, agent_id: medic, tool_ids: [page]}]
  case: {}
tests:
  - name: a page
    proposal: &page
      candidates: [{type: tool_call, tool_id: page, args: {}, capability_token_id: t, idempotency_key: k}]
    expect: {verdict: defer, failure: ask, matched: [wakes_people]}
  - name: a page that was approved
    approved: [wakes_people]
    proposal: *page
    expect: {verdict: allow}
"""


@pytest.mark.req("GATES-CEL-MEANING", "SS01-POLICY-TEST")
def test_one_policy_written_once_is_tested_with_cases() -> None:
    report = run_tests(compile_file(GATE.encode(), "policy.yaml"))
    assert {result.name: result.mismatches for result in report.results if not result.passed} == {}


@pytest.mark.req("CASE-GATE-04", "SS01-POLICY-TEST")
def test_what_a_test_says_was_approved_was_approved_in_its_case() -> None:
    report = run_tests(compile_file(ASKED_IN_A_CASE.encode(), "policy.yaml"))
    assert [result.passed for result in report.results] == [True, True]
