"""Policies and cases as documents: what is read, what is refused and where, what cases come to, what they leave out."""

import json
from pathlib import Path
from typing import Any

import pytest

from cmbs.documents.findings import InvalidDocument
from cmbs.documents.nodes import to_data
from cmbs.documents.text import read_document as read_text
from cmbs.errors import InvalidRequest
from cmbs.substrate.kernel.insight.cases import CaseReport, run_cases
from cmbs.substrate.kernel.policy.document_schema import SCHEMAS
from cmbs.substrate.kernel.policy.documents import (
    CaseDocument,
    CaseProposal,
    PolicyDocument,
    actor_of,
    is_case_document,
    pairs_of,
    read_document,
)
from cmbs.substrate.kernel.policy.schemas import compile_schema
from tests.support.policies import TOOLS, allow, call, delta, deny, eq, op

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "policy"
TOKEN = {"token_id": "t", "agent_id": "medic", "tool_ids": ["one", "two"]}


def ran(policy: dict[str, Any], *cases: dict[str, Any], **more: Any) -> CaseReport:
    content = {"format": 1, "policy": policy, "cases": cases, "actor": "agent:medic", "capabilities": [TOKEN], **more}
    document = read_document(json.dumps(content).encode(), "cases.json", CaseDocument)
    assert not isinstance(document.policy, str)
    return run_cases(document, pairs_of(document.policy), TOOLS.values())


def case(*candidates: Any, expect: Any = None, name: str = "case", **more: Any) -> dict[str, Any]:
    return {"name": name, "proposal": {"candidates": candidates}, "expect": expect or {"verdict": "allow"}, **more}


def wrong(policy: dict[str, Any], *cases: dict[str, Any], **more: Any) -> list[tuple[str, Any, Any]]:
    (result,) = ran(policy, *cases, **more).results
    assert result.passed is not bool(result.mismatches)
    return [(each.at, each.expected, each.found) for each in result.mismatches]


# --- cases ------------------------------------------------------------------------------------------------------------


def test_a_case_passes_where_everything_it_names_is_so() -> None:
    expect = {
        "verdict": "deny",
        "failure": "block",
        "reason_code": "CONSTRAINT_DENIED",
        "stage": "constraints",
        "matched": ["constraint.no"],
        "waits_for": [],
        "candidates": [{"verdict": "deny", "matched": ["constraint.no"]}],
    }
    assert wrong({"constraint.no": deny("one")}, case(call(), expect=expect)) == []


def test_a_case_says_everything_that_is_not_as_expected() -> None:
    expect = {"verdict": "allow", "matched": ["constraint.z"], "candidates": [{"stage": "tool"}, {}]}
    assert wrong({"constraint.no": deny("one")}, case(call(), expect=expect)) == [
        ("verdict", "allow", "deny"),
        ("matched", ["constraint.z"], ["constraint.no"]),
        ("candidates", "2 of them", "1 of them"),
        ("candidates[0].stage", "tool", "constraints"),
    ]


def denied(code: str, *candidates: Any, **proposal: Any) -> dict[str, Any]:
    """A case that is denied for this reason, by default of a call."""
    made = case(*(candidates or [call()]), expect={"verdict": "deny", "reason_code": code})
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


@pytest.mark.parametrize(
    ("policy", "made", "document"),
    [
        # A case lies over its document, and null takes a key away.
        (NOT_A_AND_B, case(call(), state={"fact.a": None, "fact.b": 2}), {"state": {"fact.a": "1", "fact.b": 1}}),
        (ONE, {**denied("CAPABILITY_REVOKED"), "revoked": ["t"]}, {}),
        (ONE, {**denied("CAPABILITY_OTHER_AGENT"), "actor": "agent:other"}, {}),
        (ONE, {**denied("CAPABILITY_OTHER_AGENT"), "actor": "encoder:medic"}, {}),
        (ONE, {**denied("BUDGET_EXHAUSTED"), "spent": {"t": {"calls": 2}}}, BOUNDED),
        (ONE, {**denied("CAPABILITY_EXPIRED"), "now": "2026-07-01T00:00:00Z"}, BOUNDED),
        (ASKING, case(call(), delta(c="p"), expect=ASKS), {}),
        (ASKING, case(call(), delta(c="p"), approved=["constraint.ask"]), {}),
        (FEW, case(call(), expect=WAITS), {}),
        (FEW, case(call(), expect=WAITS, belief={"S": {"found": False}}), {}),
        (FEW, case(call(), belief={"S": {"survivors": ["h"]}}), {"belief": {"S": {"n_survivors": 4}}}),
        (
            ANY,
            case(delta(c="p"), expect={"verdict": "defer", "reason_code": "STALE_SNAPSHOT"}, seen={"goal.c": "q"}),
            {},
        ),
        (ANY, denied("UNKNOWN_SNAPSHOT", delta(c="p"), state_snapshot_id="ff"), {}),
        (ONE, denied("FORGED_PROVENANCE", provenance=FORGED), {}),
        ({"constraint.no": deny("one")}, case(call(), expect={"verdict": "deny"}, mode="observe"), {}),
        # Tools of the cases come on top of those of the policy.
        ({"constraint.ok": allow("three")}, denied("ARGS_INVALID", call("three")), THREE),
        ({"constraint.ok": allow("three")}, case(call("three", {"n": 1})), THREE),
    ],
)
def test_everything_that_a_case_says_of_its_situation_counts(policy: Any, made: Any, document: Any) -> None:
    assert wrong(policy, made, **document) == []


@pytest.mark.parametrize(
    ("cases", "more", "message"),
    [
        ([case(call(), actor="robot:x")], {}, "case `case`: an actor is `kind:id`"),
        ([case(call(), actor="agent")], {}, "case `case`: an actor is `kind:id`"),
        ([case(call(), now="noon")], {}, "case `case`: `now` must be a moment"),
        (
            [case(call(), state={"constraint.x": "1"})],
            {},
            "`constraint.x` in the state is neither a fact.* nor a goal.*",
        ),
        ([case(call(), belief={"S": {"survivors": ["h"], "n_survivors": 2}})], {}, "session `S` has 1 survivors"),
        ([case(call()), case(call())], {}, "2 cases have the name `case`"),
        ([{"name": "x", "proposal": {"candidates": []}}], {}, "case `x` says not what to `expect`"),
    ],
)
def test_a_case_that_cannot_be_is_named(cases: Any, more: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ran({}, *cases, **more)
    assert message in caught.value.message


# --- coverage ---------------------------------------------------------------------------------------------------------


def test_coverage_tells_what_was_never_asked_and_what_only_ever_went_one_way() -> None:
    policy = {
        "constraint.one": allow("one"),
        "constraint.two": allow("two"),
        "constraint.never": deny("one", eq("fact.a", "p")),
        "constraint.always": allow("one", op("missing", "fact.a")),
        "constraint.both": deny(None, eq("$tool.id", "two")),
        "constraint.broken": "{}",
        "policy.exclusive.g": ["goal.c", "goal.d"],
        "policy.invariant.i": op("missing", "goal.x"),
    }
    unbroken = {key: value for key, value in policy.items() if key != "constraint.broken"}
    coverage = ran(unbroken, case(call(), name="1"), case(call("two"), name="2", expect={"verdict": "deny"})).coverage
    assert coverage.never_asked == ["policy.exclusive.g", "policy.invariant.i"]
    assert coverage.one_sided == ["constraint.always", "constraint.never"]
    assert (coverage.asked["constraint.one"], coverage.held["constraint.one"]) == (1, 1)
    broken = ran(policy, case(call(), expect={"verdict": "deny", "matched": ["constraint.broken"]})).coverage
    assert "constraint.broken" not in broken.never_asked
    assert "constraint.broken" not in broken.one_sided


def test_what_was_decided_before_the_constraints_does_not_count_as_asked() -> None:
    expect = {"verdict": "deny", "stage": "capability"}
    coverage = ran({"constraint.one": allow("one")}, case(call(token="absent"), expect=expect)).coverage
    assert coverage.never_asked == ["constraint.one"]


# --- documents --------------------------------------------------------------------------------------------------------


def policy_text(**more: Any) -> bytes:
    return json.dumps({"format": 1, "policy": {}, **more}).encode()


def test_values_are_text_or_the_canonical_json_of_what_they_are() -> None:
    text = b'format: 1\npolicy:\n  policy.value.a: "{ }"\n  policy.value.b: {z: 1.0, a: [no, null, true, 1e2]}\n'
    pairs = pairs_of(read_document(text, "p.yaml", PolicyDocument).policy)
    assert pairs == {"policy.value.a": "{ }", "policy.value.b": '{"a":["no",null,true,100],"z":1}'}


def test_yaml_and_json_say_the_same() -> None:
    content = (EXAMPLES / "restart.yaml").read_bytes()
    data = to_data(read_text(content, "restart.yaml"), "restart.yaml")
    as_json = read_document(json.dumps(data).encode(), "restart.json", PolicyDocument)
    assert pairs_of(read_document(content, "restart.yaml", PolicyDocument).policy) == pairs_of(as_json.policy)
    unnamed = read_document(b"\xef\xbb\xbf" + json.dumps(data).encode(), "-", PolicyDocument)
    assert unnamed.title == "an agent that looks after the shop"


def test_a_document_with_more_than_a_policy_has_cases() -> None:
    assert not is_case_document((EXAMPLES / "restart.yaml").read_bytes(), "restart.yaml")
    assert is_case_document((EXAMPLES / "restart.cases.yaml").read_bytes(), "restart.cases.yaml")
    assert not is_case_document(b"[]", "x.json")
    with pytest.raises(InvalidDocument, match=r"x\.json:1:2: not JSON"):
        is_case_document(b"{", "x.json")


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"{", "p.json", "p.json:1:2: not JSON: expecting property name"),
        (b'{"a": 12345678901234567890}', "p.json", "p.json:1:7: the number"),
        (policy_text(format=2), "p.json", "p.json:1:12: invalid enum value 2 at `$.format` [wrong-type]"),
        (policy_text(polcy={}), "p.json", "p.json:1:1: object contains unknown field `polcy`"),
        (b"[]", "p.json", "p.json:1:1: expected `object`, got `array`"),
        (b"a: 1\na: 2\n", "p.yaml", "p.yaml:2:1: field `a` is there twice"),
        (b"format: 1\npolicy: {}\ntools:\n  - tool_id: x\n  - kind: python\n", "p.yaml", "p.yaml:5:5: object missing"),
        (b"format: 1\npolicy: {}\ntools:\n  - tool_id: x\n    writes: 5\n", "p.yaml", "p.yaml:5:13: expected `bool`"),
    ],
)
def test_a_bad_document_is_refused_with_its_name_and_place(data: bytes, name: str, message: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        read_document(data, name, PolicyDocument)
    assert str(caught.value).startswith(message), str(caught.value)


def test_an_error_under_a_key_of_many_is_at_the_line_of_the_whole() -> None:
    text = b"format: 1\npolicy: {}\nbelief:\n  S:\n    n_survivors: x\n"
    with pytest.raises(InvalidDocument, match=r"c\.yaml:4:3: expected"):
        read_document(text, "c.yaml", CaseDocument)


def test_an_actor_has_a_kind_and_an_id() -> None:
    assert (actor_of("agent:a:b").kind.value, actor_of("agent:a:b").id) == ("agent", "a:b")


# --- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "file"), [("policy", "policy"), ("cases", "policy-cases")])
def test_the_published_schemas_are_those_of_the_types(name: str, file: str) -> None:
    published = json.loads((ROOT / "api" / f"{file}.schema.json").read_text("utf-8"))
    assert published == SCHEMAS[name]()


@pytest.mark.parametrize(("name", "file"), [("policy", "restart.yaml"), ("cases", "restart.cases.yaml")])
def test_the_example_fits_its_schema_and_a_typo_does_not(name: str, file: str) -> None:
    schema = SCHEMAS[name]()
    del schema["$id"]
    validator = compile_schema_of(schema)
    content = to_data(read_text((EXAMPLES / file).read_bytes(), file), file)
    assert validator.is_valid(content)
    assert not validator.is_valid({**content, "titel": "x"})
    assert not validator.is_valid(
        {**content, "policy": {"constraint.x": {"v": 1, "effect": "permit", "subject": None}}}
    )
    bad = {"v": 1, "effect": "deny", "subject": None, "when": {"op": "eq", "args": ["fact.a"]}}
    assert not validator.is_valid({**content, "policy": {"constraint.x": bad}})


def compile_schema_of(schema: dict[str, Any]) -> Any:
    # Predicates are in predicates: our own bounds do not take that, an editor does.
    import jsonschema_rs

    with pytest.raises(ValueError, match="leads back to itself"):
        compile_schema(schema)
    return jsonschema_rs.Draft202012Validator(schema)


def test_a_proposal_is_a_document_too() -> None:
    proposal = read_document(json.dumps({"candidates": [call()]}).encode(), "p.json", CaseProposal)
    assert proposal.proposal_id == "case"
