"""Policies and cases as documents: what is read, what is refused and where, what cases come to, what they leave out."""

import json
from pathlib import Path
from typing import Any

import pytest

from cmbs.errors import InvalidRequest
from cmbs.substrate.kernel.insight.cases import CaseReport, run_cases
from cmbs.substrate.kernel.policy import documents as policy_documents
from cmbs.substrate.kernel.policy import yaml_text
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
from cmbs.substrate.kernel.policy.yaml_text import read_yaml
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


def test_a_case_lies_over_its_document_and_null_takes_a_key_away() -> None:
    policy = {"constraint.ok": allow("one", op("all", op("missing", "fact.a"), eq("fact.b", 2)))}
    assert wrong(policy, case(call(), state={"fact.a": None, "fact.b": 2}), state={"fact.a": "1", "fact.b": 1}) == []


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"revoked": ["t"]}, "CAPABILITY_REVOKED"),
        ({"actor": "agent:other"}, "CAPABILITY_OTHER_AGENT"),
        ({"actor": "encoder:medic"}, "CAPABILITY_OTHER_AGENT"),
    ],
)
def test_tokens_are_judged_as_they_are_in_the_case(more: Any, code: str) -> None:
    expect = {"verdict": "deny", "reason_code": code}
    assert wrong({"constraint.ok": allow("one")}, case(call(), expect=expect, **more)) == []


def test_what_was_spent_and_when_it_is_counts() -> None:
    token = {**TOKEN, "budget": {"calls": 2}, "expires_at": "2026-06-01T00:00:00.000000Z"}
    policy = {"constraint.ok": allow("one")}
    spent = case(call(), expect={"verdict": "deny", "reason_code": "BUDGET_EXHAUSTED"}, spent={"t": {"calls": 2}})
    assert wrong(policy, spent, capabilities=[token]) == []
    late = case(call(), expect={"verdict": "deny", "reason_code": "CAPABILITY_EXPIRED"}, now="2026-07-01T00:00:00Z")
    assert wrong(policy, late, capabilities=[token]) == []


def test_an_approval_counts_for_the_constraint_that_it_names() -> None:
    policy = {"constraint.any": allow(), "constraint.ask": deny(None, on_fail="ask")}
    asks = {"verdict": "defer", "failure": "ask", "matched": ["constraint.ask"]}
    assert wrong(policy, case(call(), delta(c="p"), expect=asks)) == []
    assert wrong(policy, case(call(), delta(c="p"), approved=["constraint.ask"])) == []


def test_belief_is_what_the_case_says_of_a_session() -> None:
    policy = {"constraint.ok": allow("one", op("schema", "$belief.S.n_survivors", {"maximum": 1}), on_fail="defer")}
    waits = {"verdict": "defer", "waits_for": ["$belief.S"]}
    assert wrong(policy, case(call(), expect=waits)) == []
    assert wrong(policy, case(call(), expect=waits, belief={"S": {"found": False}})) == []
    assert wrong(policy, case(call(), belief={"S": {"survivors": ["h"]}}), belief={"S": {"n_survivors": 4}}) == []


def test_a_proposal_on_a_state_that_moved_is_stale_and_one_on_no_state_is_not_known() -> None:
    policy = {"constraint.any": allow()}
    stale = {"verdict": "defer", "reason_code": "STALE_SNAPSHOT"}
    assert wrong(policy, case(delta(c="p"), expect=stale, seen={"goal.c": "q"})) == []
    unknown = case(delta(c="p"), expect={"verdict": "deny", "reason_code": "UNKNOWN_SNAPSHOT"})
    unknown["proposal"]["state_snapshot_id"] = "ff"
    assert wrong(policy, unknown) == []


def test_a_case_may_forge_its_provenance_and_is_found_out() -> None:
    forged = case(call(), expect={"verdict": "deny", "reason_code": "FORGED_PROVENANCE"})
    forged["proposal"]["provenance"] = {"source": "another", "timestamp": "2026-01-01T00:00:00.000000Z"}
    assert wrong({"constraint.ok": allow("one")}, forged) == []


def test_observe_mode_decides_the_same() -> None:
    assert wrong({"constraint.no": deny("one")}, case(call(), expect={"verdict": "deny"}, mode="observe")) == []


def test_tools_of_the_cases_come_on_top_of_those_of_the_policy() -> None:
    policy = {"constraint.ok": allow("three")}
    tool = {"tool_id": "three", "args_schema": {"required": ["n"]}, "writes": False}
    token = {**TOKEN, "tool_ids": ["three"]}
    expect = {"verdict": "deny", "reason_code": "ARGS_INVALID"}
    assert wrong(policy, case(call("three"), expect=expect), tools=[tool], capabilities=[token]) == []
    assert wrong(policy, case(call("three", {"n": 1})), tools=[tool], capabilities=[token]) == []


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
    coverage = ran({"constraint.one": allow("one")}, case(call(token="none"), expect=expect)).coverage
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
    data, _ = read_yaml(content.decode())
    as_json = read_document(json.dumps(data).encode(), "restart.json", PolicyDocument)
    assert pairs_of(read_document(content, "restart.yaml", PolicyDocument).policy) == pairs_of(as_json.policy)
    unnamed = read_document(b"\xef\xbb\xbf" + json.dumps(data).encode(), "-", PolicyDocument)
    assert unnamed.title == "an agent that looks after the shop"


def test_a_document_with_more_than_a_policy_has_cases() -> None:
    assert not is_case_document((EXAMPLES / "restart.yaml").read_bytes(), "restart.yaml")
    assert is_case_document((EXAMPLES / "restart.cases.yaml").read_bytes(), "restart.cases.yaml")
    assert not is_case_document(b"[]", "x.json")
    with pytest.raises(InvalidRequest, match=r"x\.json: line 1: not JSON"):
        is_case_document(b"{", "x.json")


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"{", "p.json", "p.json: line 1: not JSON: expecting property name"),
        (b'{"a":1,"a":2}', "p.json", "p.json: duplicate key `a`"),
        (b'{"a": 12345678901234567890}', "p.json", "p.json: the number"),
        (policy_text(format=2), "p.json", "p.json: invalid enum value 2 at `$.format`"),
        (policy_text(polcy={}), "p.json", "p.json: object contains unknown field `polcy`"),
        (b"[]", "p.json", "p.json: expected `object`, got `array`"),
        (b"\xff", "p.yaml", "p.yaml: line 1: not UTF-8"),
        (b"format: 1\npolicy: ]", "p.yaml", "p.yaml: line 2: not YAML"),
        (b"format: 1\npolicy: \x07", "p.yaml", "p.yaml: line 2: not YAML"),
        (b"", "p.yaml", "p.yaml: the document is empty"),
        (b"a: 1\n---\nb: 1\n", "p.yaml", "p.yaml: line 2: one document is enough"),
        (b"a: 1\na: 2\n", "p.yaml", "p.yaml: line 2: field `a` is there twice"),
        (b"a: &x [*x]\n", "p.yaml", "p.yaml: line 1: alias `*x` stands for nothing"),
        (b"a: *x\n", "p.yaml", "p.yaml: line 1:"),
        (b"a: !!python/object:os.system x\n", "p.yaml", "p.yaml: line 1: tag `tag:yaml.org,2002:python/object"),
        (b"a: !!set {x}\n", "p.yaml", "p.yaml: line 1: tag `tag:yaml.org,2002:set`"),
        (b"? [x]\n: 1\n", "p.yaml", "p.yaml: line 1: the name of a field is text"),
        (b"a:\n  1: x\n", "p.yaml", "p.yaml: line 2: the name of a field is text: put `1` in quotes"),
        (b"a: 12345678901234567890\n", "p.yaml", "p.yaml: line 1: the number"),
        (b"[" * 100 + b"]" * 100, "p.yaml", "p.yaml: line 1: nested more than 64 deep"),
        (
            b"format: 1\npolicy: {}\ntools:\n  - tool_id: x\n  - kind: python\n",
            "p.yaml",
            "p.yaml: line 5: object missing",
        ),
        (
            b"format: 1\npolicy: {}\ntools:\n  - tool_id: x\n    writes: 5\n",
            "p.yaml",
            "p.yaml: line 5: expected `bool`",
        ),
    ],
)
def test_a_bad_document_is_refused_with_its_name_and_line(data: bytes, name: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_document(data, name, PolicyDocument)
    assert caught.value.message.startswith(message), caught.value.message


def test_an_error_under_a_key_of_many_is_at_the_line_of_the_whole() -> None:
    text = b"format: 1\npolicy: {}\nbelief:\n  S:\n    n_survivors: x\n"
    with pytest.raises(InvalidRequest, match=r"c\.yaml: line 4: expected"):
        read_document(text, "c.yaml", CaseDocument)


def test_documents_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_documents, "MAX_BYTES", 10)
    with pytest.raises(InvalidRequest, match="more than 10 bytes"):
        read_document(policy_text(), "p.json", PolicyDocument)
    monkeypatch.setattr(yaml_text, "MAX_VALUES", 20)
    with pytest.raises(InvalidRequest, match="line 1: more than 20 values"):
        read_yaml("[&a [1, 2, 3, 4, 5], *a, *a, *a]")


def test_quoted_and_tagged_scalars_are_text_and_anchors_may_be_used_again() -> None:
    content, lines = read_yaml('a: &x "1"\nb: *x\nc: !!str 1\nd: ~\ne: [true, -0.5]\n')
    assert content == {"a": "1", "b": "1", "c": "1", "d": None, "e": [True, -0.5]}
    assert lines[("e", 1)] == 5
    assert read_yaml("just text")[0] == "just text"


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
    content, _ = read_yaml((EXAMPLES / file).read_text("utf-8"))
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
