"""The constraint payload, version 1: what is not exactly that denies whatever it may concern."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.substrate.kernel.model import Failure
from cmbs.substrate.kernel.policy.constraints import (
    MAX_CONSTRAINT_BYTES,
    MAX_CONSTRAINT_DEPTH,
    MAX_CONSTRAINT_NODES,
    MAX_REASON_CHARACTERS,
    Constraint,
    Effect,
    Malformed,
    compile_constraint,
)
from cmbs.substrate.kernel.policy.subjects import EVERYTHING, MAX_SUBJECT_CHARACTERS, Subject, SubjectKind
from cmbs.testing.spaces import payload, predicate
from cmbs.testing.strategies.belief import json_values
from cmbs.testing.strategies.substrate import MALFORMED, constraints
from tests.support.subtests import for_each

KEY = "constraint.x"
TOOL = Subject(SubjectKind.TOOL, ("fs.write",))


def compile_text(text: str) -> Constraint:
    constraint = compile_constraint(KEY, text, {})
    assert isinstance(constraint, Constraint), constraint
    return constraint


def compile_malformed(text: str) -> Malformed:
    constraint = compile_constraint(KEY, text, {})
    assert isinstance(constraint, Malformed)
    return constraint


def test_absent_fields_have_their_documented_meaning() -> None:
    constraint = compile_text(payload(effect="deny"))
    assert constraint == (KEY, Effect.DENY, EVERYTHING, Failure.BLOCK, None, None, False)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (None, EVERYTHING),
        ({"tool_id": "fs.write"}, TOOL),
        ({"capability": "net"}, Subject(SubjectKind.CAPABILITY, ("net",))),
    ],
)
def test_the_three_subjects_are_read(subject: Any, expected: Subject) -> None:
    assert compile_text(payload(subject=subject)).subject == expected


@pytest.mark.parametrize("on_fail", ["block", "ask", "defer"])
def test_every_way_to_fail_is_read(on_fail: str) -> None:
    assert compile_text(payload(on_fail=on_fail, reason="why")).on_fail == Failure(on_fail)
    assert compile_text(payload(on_fail=on_fail, reason="why")).reason == "why"


def deep(levels: int) -> Any:
    content: Any = predicate("exists", "fact.a")
    for _ in range(levels):
        content = predicate("not", content)
    return content


@for_each(
    ("text", "at"),
    [
        ("", ""),
        ("nonsense", ""),
        ("5", ""),
        ('{"v":1,"v":1,"effect":"deny","subject":null}', ""),
        ("[" * 10_000 + "]" * 10_000, ""),
        ('{"v":1,"effect":"allow","subject":null,"when":' * 10_000, ""),
        (payload(reason="x" * 10_000_000), ""),
        (payload(reason="é" * (MAX_CONSTRAINT_BYTES - 100)), ""),
        (payload(when=deep(MAX_CONSTRAINT_DEPTH // 2)), ""),
        (payload(when=predicate("in", "fact.a", list(range(MAX_CONSTRAINT_NODES)))), ""),
        (payload(reason="\ud800"), ""),
        ("\ud800", ""),
        (json.dumps({"v": 1, "effect": "deny"}), "subject"),
        (payload(subject={"tool_id": "fs.write", "capability": "net"}), "subject"),
        (payload(subject={"tool_id": 5}), "subject"),
        (payload(subject={"tool_id": ""}), "subject"),
        (payload(subject={"tool_id": "x" * (MAX_SUBJECT_CHARACTERS + 1)}), "subject"),
        (payload(subject={"tools": ["a"]}), "subject"),
        (payload(subject="fs.write"), "subject"),
        (payload(subject={}), "subject"),
    ],
)
def test_where_the_subject_cannot_be_read_everything_is_concerned(text: str, at: str) -> None:
    fault = compile_malformed(text)
    assert fault.subject == EVERYTHING
    assert fault.at == at
    assert fault.message


@for_each(
    ("fields", "at"),
    [
        ({"v": 3}, "v"),
        ({"v": True}, "v"),
        ({"v": "1"}, "v"),
        ({"v": None}, "v"),
        ({"effect": "permit"}, "effect"),
        ({"effect": None}, "effect"),
        ({"effect": ["deny"]}, "effect"),
        ({"on_fail": "degrade"}, "on_fail"),
        ({"on_fail": "ignore"}, "on_fail"),
        ({"on_fail": None}, "on_fail"),
        ({"on_fail": ["ask"]}, "on_fail"),
        ({"reason": 5}, "reason"),
        ({"reason": None}, "reason"),
        ({"reason": "x" * (MAX_REASON_CHARACTERS + 1)}, "reason"),
        ({"priority": 1}, "priority"),
        ({"when": None}, "when"),
        ({"when": {}}, "when.args"),
        ({"when": predicate("gt", "fact.a", 1)}, "when.op"),
    ],
)
def test_with_a_readable_subject_a_malformed_constraint_concerns_only_that(fields: dict[str, Any], at: str) -> None:
    fault = compile_malformed(payload(**({"subject": {"tool_id": "fs.write"}} | fields)))
    assert fault.subject == TOOL
    assert fault.at == at


@pytest.mark.parametrize("field", ["v", "effect"])
def test_a_required_field_may_not_be_absent(field: str) -> None:
    content = json.loads(payload(subject={"tool_id": "fs.write"}))
    del content[field]
    assert compile_malformed(json.dumps(content)) == (KEY, TOOL, field, f"`{field}` is required")


@given(constraints())
def test_what_follows_the_payload_compiles(text: str) -> None:
    assert compile_text(text).key == KEY


@given(st.sampled_from(MALFORMED) | st.text() | json_values().map(json.dumps))
def test_any_other_text_is_malformed_and_never_an_error(text: str) -> None:
    assert compile_malformed(text).key == KEY
