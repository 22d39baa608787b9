"""The policy file: what it compiles to, what is refused and where, and the way back from pairs to lines."""

import json
import time
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from cmbs.documents.findings import InvalidDocument
from cmbs.documents.nodes import to_data
from cmbs.documents.text import read_document as read_text
from cmbs.ledger import canonical
from cmbs.substrate.kernel.events import MediaType, PolicySource
from cmbs.substrate.kernel.insight.findings import Origin
from cmbs.substrate.kernel.policy.document_schema import policy_schema
from cmbs.substrate.kernel.policy.documents import ProposalSketch, actor_of, read_document
from cmbs.substrate.kernel.policy.file import as_payloads, compile_file, locate_faults, map_source
from cmbs.substrate.kernel.policy.policy import validate_policy
from cmbs.substrate.kernel.policy.schemas import compile_schema
from tests.support.policies import allow, call, eq
from tests.support.subtests import for_each

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "policy" / "restart.yaml"
RULE = "format: 2\nrules:\n  - "
STATE = {"op": "missing", "args": ["$tool.id"]}


def compile_text(text: str, name: str = "p.yaml") -> Any:
    return compile_file(text.encode(), name)


def compile_rules(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The payloads of rules, by key; text that is no JSON as it is."""
    compiled = compile_file(json.dumps({"format": 2, "rules": rules, **more}).encode(), "p.json")
    assert validate_policy(compiled.pairs) == []
    return {key: canonical.decode(text) for key, text in compiled.pairs.items()}


def refuse(text: str, name: str = "p.yaml") -> list[str]:
    with pytest.raises(InvalidDocument) as caught:
        compile_text(text, name)
    return str(caught.value).splitlines()


# --- what it compiles to ----------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-FILE-COMPILES")
@for_each(
    ("rule", "payload"),
    [
        ({"allow": "a"}, {"effect": "allow", "subject": {"tool_id": "a"}}),
        ({"deny": ["a", "db.*"]}, {"effect": "deny", "subject": {"tool_id": ["a", "db.*"]}}),
        ({"allow": "*"}, {"effect": "allow", "subject": None}),
        ({"deny": None}, {"effect": "deny", "subject": None}),
        ({"allow": {"capability": "files"}}, {"effect": "allow", "subject": {"capability": "files"}}),
        ({"allow": {"tool": "state"}}, {"effect": "allow", "subject": {"tool_id": "state"}}),
        ({"allow": "state"}, {"effect": "allow", "subject": None, "when": STATE}),
        (
            {"allow": "state", "otherwise": "block"},
            {"effect": "allow", "subject": None, "when": STATE, "on_fail": "block"},
        ),
        (
            {"deny": "state", "when": "fact.a == 1", "otherwise": "ask"},
            {
                "effect": "deny",
                "subject": None,
                "when": {"op": "all", "args": [STATE, eq("fact.a", 1)]},
                "on_fail": "ask",
            },
        ),
        (
            {"allow": "a", "when": "fact.a == 1", "otherwise": "defer", "because": "why", "mode": "observe"},
            {
                "effect": "allow",
                "subject": {"tool_id": "a"},
                "when": eq("fact.a", 1),
                "on_fail": "defer",
                "reason": "why",
                "mode": "observe",
            },
        ),
        ({"allow": "a", "mode": "enforce"}, {"effect": "allow", "subject": {"tool_id": "a"}}),
    ],
)
def test_a_rule_becomes_one_payload(rule: dict[str, Any], payload: dict[str, Any]) -> None:
    assert compile_rules(rule) == {"constraint.rule-001": {"v": 2, **payload}}


@pytest.mark.req("GATES-FILE-COMPILES")
def test_rules_are_named_or_numbered_and_payloads_are_taken_as_they_are() -> None:
    first = allow("one", eq("fact.a", 1), on_fail="ask")
    assert compile_rules({"allow": "a", "name": "Some.name-1"}, {**first, "name": "old"}, first) == {
        "constraint.Some.name-1": {"v": 2, "effect": "allow", "subject": {"tool_id": "a"}},
        "constraint.old": first,
        "constraint.rule-003": first,
    }


@pytest.mark.req("GATES-FILE-COMPILES")
def test_every_section_becomes_its_keys() -> None:
    compiled = compile_text(
        """
format: 2
title: all of it
invariants: {a: has(fact.x), b: {op: exists, args: [fact.x]}}
exclusive: {posture: [goal.a, goal.b]}
degrade: {x.y: {tool_id: z}}
schemas: {s: {type: string}}
values: {text: "1", number: 1.0, list: [no, true]}
private: [fact.secret]
memory: {confidence_threshold: 0.8}
"""
    )
    assert compiled.title == "all of it"
    assert (compiled.tools, compiled.tests) == (None, ())
    assert validate_policy(compiled.pairs) == []
    assert compiled.pairs == {
        "policy.invariant.a": '{"v":2,"when":{"args":["fact.x"],"op":"exists"}}',
        "policy.invariant.b": '{"args":["fact.x"],"op":"exists"}',
        "policy.exclusive.posture": '["goal.a","goal.b"]',
        "policy.degrade.x.y": '{"tool_id":"z"}',
        "policy.schema.s": '{"type":"string"}',
        "policy.value.text": "1",
        "policy.value.number": "1",
        "policy.value.list": '["no",true]',
        "policy.private": '["fact.secret"]',
        "policy.memory.confidence_threshold": "0.8",
    }


@pytest.mark.req("GATES-FILE-COMPILES")
def test_yaml_and_json_and_the_payloads_give_the_same_pairs() -> None:
    written = compile_file(EXAMPLE.read_bytes(), "restart.yaml")
    data = to_data(read_text(EXAMPLE.read_bytes(), "restart.yaml"), "restart.yaml")
    as_json = compile_file(json.dumps(data).encode(), "restart.json")
    unnamed = compile_file(b"\xef\xbb\xbf" + json.dumps(data).encode(), "-")
    assert written.pairs == as_json.pairs == unnamed.pairs
    assert (written.tests, written.given, written.tools) == (as_json.tests, as_json.given, as_json.tools)
    payloads = compile_file(json.dumps(as_payloads(written)).encode(), "p.json")
    assert (payloads.pairs, payloads.title) == (written.pairs, written.title)


def test_payloads_keep_what_is_no_canonical_json_as_text() -> None:
    texts = {"policy.value.a": "{ }", "policy.value.b": "{", "policy.value.c": "[1]", "policy.value.d": "1"}
    values = {key.removeprefix("policy.value."): text for key, text in texts.items()}
    compiled = compile_file(json.dumps({"format": 2, "values": values}).encode(), "p.json")
    assert compiled.pairs == texts
    assert as_payloads(compiled) == {"format": 2, "values": {**values, "c": [1]}}


def test_values_are_text_or_the_canonical_json_of_what_they_are() -> None:
    text = 'format: 2\nvalues:\n  a: "{ }"\n  b: {z: 1.0, a: [no, null, true, 1e2]}\n'
    assert compile_text(text).pairs == {"policy.value.a": "{ }", "policy.value.b": '{"a":["no",null,true,100],"z":1}'}


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-FILE-PLACES")
@for_each(
    ("text", "finding"),
    [
        ("{", "p.yaml:2:1: not YAML: while parsing a flow node, did not find expected node content [syntax]"),
        ("a: 1\na: 2\n", "p.yaml:2:1: field `a` is there twice [duplicate-field]"),
        (
            "[]",
            "p.yaml:1:1: the policy file begins with `format: 2`; there is no other",
        ),
        ("title: x", "p.yaml:1:1: the policy file begins with `format: 2`"),
        ("title: x\nformat: 3", "p.yaml:2:9: the policy file begins with `format: 2`"),
        ('format: "2"', "p.yaml:1:9: the policy file begins with `format: 2`"),
        ("format: 1\npolicy: {}", "p.yaml:1:9: the policy file begins with `format: 2`; there is no other"),
        ("format: 2\npolicy: {}", "p.yaml:2:1: the policy file has no field `policy`"),
        ("format: 2\nrules: {}", "p.yaml:2:8: `rules` must be a list, and is a mapping [wrong-type]"),
        ("format: 2\nvalues: []", "p.yaml:2:9: `values` must have names and values, and is a list [wrong-type]"),
        ("format: 2\nrules: [x]", "p.yaml:2:9: `rules[0]` must have fields"),
        (RULE + "when: fact.a", "p.yaml:3:5: `rules[0]` must have one of `allow` and `deny`"),
        (RULE + "{allow: a, deny: b}", "p.yaml:3:5: `rules[0]` must have one of"),
        (RULE + "allow:\n", "p.yaml:3:11: `rules[0].allow` must be a tool, a list of tools"),
        (RULE + "allow: true", "p.yaml:3:12: `rules[0].allow` must be a tool"),
        (RULE + "allow: []", "p.yaml:3:12: `rules[0].allow` names no tool"),
        (RULE + "allow: [a, state]", "p.yaml:3:16: `rules[0].allow[1]` cannot be `state` in a list"),
        (RULE + "allow: [a, 1]", "p.yaml:3:16: `rules[0].allow[1]` must be a text"),
        (RULE + "allow: {tool: a, capability: b}", "p.yaml:3:12: `rules[0].allow` must be `{tool: …}`"),
        (RULE + "allow: {tool: 1}", "p.yaml:3:19: `rules[0].allow.tool` must be a text"),
        (RULE + "allow: {tol: a}", "p.yaml:3:12: `rules[0].allow` must be `{tool: …}`"),
        (RULE + "allow: a\n    otherwise: wait", "p.yaml:4:16: `rules[0].otherwise` must be one of"),
        (
            "format: 2\nrules:\n  - allow: state\n    otherwise: ask",
            "p.yaml:4:16: `rules[0].otherwise` cannot be other",
        ),
        (RULE + "allow: a\n    name: a b", "p.yaml:4:11: `rules[0].name` must be up to 128 letters"),
        (RULE + "allow: a\n    name: 1", "p.yaml:4:11: `rules[0].name` must be a text"),
        (
            "format: 2\nrules:\n  - allow: a\n    whne: b",
            "p.yaml:4:5: `rules[0]` has no field `whne`",
        ),
        (RULE + "allow: a\n    when: true", "p.yaml:4:11: `rules[0].when` must be a text"),
        (
            "format: 2\nrules:\n  - allow: a\n    when: fact.a +\n      1 == 2",
            "p.yaml:4:18: `rules[0].when`: conditions do",
        ),
        (RULE + "{v: 1, effct: allow}", "p.yaml:3:12: `rules[0]` has no field `effct`"),
        ("format: 2\ninvariants: {a: fact}", "p.yaml:2:17: `invariants.a`: `fact` is in none of the namespaces"),
        ("format: 2\ninvariants: {a: [x]}", "p.yaml:2:17: `invariants.a` must be a text, and is a list"),
        ("format: 2\nmemory: {threshold: 1}", "p.yaml:2:9: `memory` lacks the field `confidence_threshold`"),
        ("format: 2\nvalues: {a: 12345678901234567890}", "p.yaml:2:13: a number is not exact"),
        (
            "format: 2\ntools:\n  - tool_id: x\n  - kind: python\n",
            "p.yaml:4:5: `tools[1]` object missing",
        ),
        (
            "format: 2\ntools:\n  - {tool_id: x, writes: 5}\n",
            "p.yaml:3:26: `tools[0]` expected `bool`",
        ),
        ("format: 2\ngiven: {mode: obey}", "p.yaml:2:15: `given` invalid enum value 'obey' at `mode`"),
        ("format: 2\ntests:\n  - {name: x}", "p.yaml:3:5: `tests[0]` object missing required field `proposal`"),
        (
            "format: 2\ntests:\n  - name: x\n    proposal: {candidates: []}\n    belief: {S: {n_survivors: x}}",
            "p.yaml:5:13: `tests[0]` expected `int | null`, got `str` at `belief`",
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_place(text: str, finding: str) -> None:
    assert refuse(text)[0].startswith(finding), refuse(text)


@pytest.mark.req("GATES-FILE-PLACES")
def test_several_faults_are_told_at_a_time_in_the_order_of_the_text() -> None:
    text = """format: 2
rules:
  - allow: x
    name: twice
    when: >
      fact.a == 1 &&
      fact.b + 1 == 2
  - allow: x
    name: one
    when: "fact.a == \\"x\\" && foo == 1"
  - allow: y
    name: one
  - deny: z
    when: |
      has(fact.a)
        && args.x < "a"
invariants:
  a: 'fact.a == ''x'' && fact.b = 1'
tools: [1]
"""
    assert [each.split(": ")[0] for each in refuse(text)] == [
        "p.yaml:7:14",
        "p.yaml:10:31",
        "p.yaml:16:21",
        "p.yaml:18:33",
        "p.yaml:19:9",
    ]
    named = refuse("format: 2\nrules:\n  - {allow: x, name: rule-002}\n  - allow: y\n")
    assert named == ["p.yaml:4:5: the name `rule-002` is there twice; give one of the two another [name-twice]"]


def test_findings_end_somewhere() -> None:
    assert len(refuse("format: 2\nrules:\n" + "  - allow:\n" * 500)) == 100


def test_a_name_of_a_section_may_be_that_of_another_rule() -> None:
    assert set(compile_rules({"allow": "a", "name": "x"}, values={"x": 1}, schemas={"x": True})) == {
        "constraint.x",
        "policy.value.x",
        "policy.schema.x",
    }


# --- the way back -----------------------------------------------------------------------------------------------------

FILE = """format: 2
rules:
  - name: gate
    allow: service.restart
    when: >
      fact.a == 1 &&
      (has(fact.b) ||
       args.n < 3)
    otherwise: defer
    because: why
  - allow: state
    when: fact.c
  - {v: 2, effect: deny, subject: {tool_id: [x]}, when: {op: not, args: [{op: exists, args: [fact.d]}]}}
invariants:
  held: has(fact.e) || has(fact.f)
exclusive: {posture: [goal.a, goal.a]}
"""


@pytest.mark.req("GATES-FILE-OWN-TERMS")
@for_each(
    ("key", "at", "origin"),
    [
        ("constraint.gate", "", Origin(3, 5, "gate", "fact.a == 1 && (has(fact.b) || args.n < 3)")),
        ("constraint.gate", "when", Origin(6, 7, "gate", "fact.a == 1 && (has(fact.b) || args.n < 3)")),
        ("constraint.gate", "when.args[0]", Origin(6, 7, "gate", "fact.a == 1")),
        ("constraint.gate", "when.args[1].args[1]", Origin(8, 8, "gate", "args.n < 3")),
        ("constraint.gate", "when.args[1].args[1].args[0]", Origin(8, 8, "gate", "args.n < 3")),
        ("constraint.gate", "subject", Origin(4, 12, "gate", "fact.a == 1 && (has(fact.b) || args.n < 3)")),
        ("constraint.gate", "on_fail", Origin(9, 16, "gate", "fact.a == 1 && (has(fact.b) || args.n < 3)")),
        ("constraint.gate", "reason", Origin(10, 14, "gate", "fact.a == 1 && (has(fact.b) || args.n < 3)")),
        ("constraint.rule-002", "when.args[1]", Origin(12, 11, "rule-002", "fact.c")),
        ("constraint.rule-002", "when.args[0]", Origin(12, 11, "rule-002", "fact.c")),
        ("constraint.rule-003", "when.args[0].args[0]", Origin(13, 94, "rule-003")),
        ("constraint.rule-003", "subject.tool_id[0]", Origin(13, 46, "rule-003")),
        ("policy.invariant.held", "when.args[1]", Origin(15, 24, "invariants.held", "has(fact.f)")),
        ("policy.exclusive.posture", "", Origin(16, 22, "exclusive.posture")),
        ("constraint.other", "", None),
    ],
)
def test_a_place_in_a_payload_is_found_in_the_file(key: str, at: str, origin: Origin | None) -> None:
    assert compile_text(FILE).source_map.find(key, at) == origin


@pytest.mark.req("GATES-FILE-OWN-TERMS")
def test_faults_of_the_pairs_are_told_in_the_file() -> None:
    compiled = compile_text(FILE)
    findings = locate_faults(validate_policy(compiled.pairs), compiled.source_map)
    assert [each.at("p.yaml") for each in findings] == [
        "p.yaml:16:22: `exclusive.posture`: a goal stands in its group once [malformed]"
    ]
    large = locate_faults(
        validate_policy({f"policy.value.{number}": "" for number in range(50_001)}), compiled.source_map
    )
    assert [each.at("p.yaml") for each in large] == ["p.yaml: a policy has at most 50000 keys [malformed]"]


def test_a_recorded_file_leads_back_too_unless_it_cannot_be_read_any_more() -> None:
    found = map_source(PolicySource(MediaType.YAML, FILE))
    assert found is not None
    assert found.find("constraint.gate") == compile_text(FILE).source_map.find("constraint.gate")
    assert map_source(PolicySource(MediaType.JSON, FILE)) is None


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.req("GATES-FILE-COMPILES")
def test_five_megabytes_are_compiled_in_seconds() -> None:
    rule = '  - allow: tool.{0}\n    when: args.service == "service-{0}" && fact.freeze != "on"\n    because: {1}\n'
    text = "format: 2\nrules:\n" + "".join(rule.format(number, "x" * 170) for number in range(19_000))
    assert len(text) > 5_000_000
    began = time.perf_counter()
    compiled = compile_text(text)
    assert len(compiled.pairs) == 19_000
    assert time.perf_counter() - began < 60


# --- the schema -------------------------------------------------------------------------------------------------------


def test_the_published_schema_is_that_of_the_types() -> None:
    assert json.loads((ROOT / "api" / "policy.schema.json").read_text("utf-8")) == policy_schema()


def test_the_example_fits_its_schema_and_a_typo_does_not() -> None:
    schema = policy_schema()
    del schema["$id"]
    # Predicates are in predicates: our own bounds do not take that, an editor does.
    with pytest.raises(ValueError, match="leads back to itself"):
        compile_schema(schema)
    validator = jsonschema_rs.Draft202012Validator(schema)
    content = to_data(read_text(EXAMPLE.read_bytes(), "restart.yaml"), "restart.yaml")
    assert validator.is_valid(content)
    assert validator.is_valid(as_payloads(compile_file(EXAMPLE.read_bytes(), "restart.yaml")))
    assert not validator.is_valid({**content, "titel": "x"})
    assert not validator.is_valid({**content, "policy": {}})
    assert not validator.is_valid({**content, "rules": [{"allow": "x", "otherwise": "wait"}]})
    assert not validator.is_valid({**content, "rules": [{"allow": "x", "deny": "y"}]})
    bad = {"v": 1, "effect": "deny", "subject": None, "when": {"op": "eq", "args": ["fact.a"]}}
    assert not validator.is_valid({**content, "rules": [bad]})
    assert not validator.is_valid({"format": 1, "policy": {}})
    assert validator.is_valid({"format": 2, "rules": [{"name": "x", "v": 1, "effect": "deny", "subject": None}]})


# --- other documents --------------------------------------------------------------------------------------------------


def test_a_proposal_is_a_document_too() -> None:
    proposal = read_document(json.dumps({"candidates": [call()]}).encode(), "p.json", ProposalSketch)
    assert proposal.proposal_id == "test"
    with pytest.raises(InvalidDocument, match=r"p\.json:1:1: expected `object`, got `array` \[wrong-type\]"):
        read_document(b"[]", "p.json", ProposalSketch)


def test_an_actor_has_a_kind_and_an_id() -> None:
    assert (actor_of("agent:a:b").kind.value, actor_of("agent:a:b").id) == ("agent", "a:b")
