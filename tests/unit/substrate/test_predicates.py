"""The operators of SS-01 and no other: their truth, what is refused, and what the trace says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.ledger import canonical
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.model import BeliefReading, Stage, TraceStep
from cmbs.substrate.kernel.policy.operators import same
from cmbs.substrate.kernel.policy.predicates import Asking, PredicateFault, compile_predicate, probes_of
from cmbs.substrate.kernel.policy.references import EvaluationContext
from cmbs.substrate.kernel.policy.schemas import compile_schema
from cmbs.testing.spaces import predicate
from cmbs.testing.strategies.belief import json_values
from cmbs.testing.strategies.substrate import facings, predicates
from tests.support.subtests import for_each

STATE = {
    "fact.word": "prod",
    "fact.quoted": '"prod"',
    "fact.number": "1",
    "fact.truth": "true",
    "fact.nothing": "null",
    "fact.object": '{"name":"db","tags":["a","b"],"size":1.0,"none":null}',
    "goal.empty": "",
}
BELIEF = {"s": BeliefReading("s", found=True, head_seq=3, head_event_hash="abcd", n_survivors=1)}
FACING = EvaluationContext(STATE, BELIEF, Actor(ActorKind.AGENT, "me"), {"path": "/data/x", "n": 2}, "fs.write")
ASKING = Asking(Stage.CONSTRAINTS, 0, "constraint.x")
NAMED = {"small": compile_schema({"maximum": 1})}


TRUE = predicate("exists", "fact.word")
FALSE = predicate("missing", "fact.word")


def holds(content: Any) -> bool:
    return compile_predicate(content, NAMED).evaluate(FACING, ASKING, [])


@for_each(
    ("op", "args", "truth"),
    [
        ("eq", ["fact.word", "prod"], True),
        ("eq", ["fact.word", "dev"], False),
        ("eq", ["fact.quoted", "prod"], True),
        ("eq", ["fact.quoted", '"prod"'], True),
        ("eq", ["fact.number", 1], True),
        ("eq", ["fact.number", 1.0], True),
        ("eq", ["fact.number", "1"], True),
        ("eq", ["fact.number", True], False),
        ("eq", ["fact.truth", True], True),
        ("eq", ["fact.truth", 1], False),
        ("eq", ["fact.truth", "true"], True),
        ("eq", ["fact.nothing", None], True),
        ("eq", ["fact.absent", None], False),
        ("eq", ["goal.empty", ""], True),
        ("eq", ["fact.object.name", "db"], True),
        ("eq", ["fact.object.size", 1], True),
        ("eq", ["fact.object.tags", ["a", "b"]], True),
        ("eq", ["fact.object.tags", ["b", "a"]], False),
        ("eq", ["fact.object.tags", ["a"]], False),
        ("eq", ["fact.object.tags", {"0": "a"}], False),
        ("eq", ["fact.object", {"name": "db", "tags": ["a", "b"], "size": 1, "none": None}], True),
        ("eq", ["fact.object", {"name": "db"}], False),
        ("eq", ["$args.path", "/data/x"], True),
        ("eq", ["$args.n", 2], True),
        ("eq", ["$args.nothing", "x"], False),
        ("eq", ["$tool.id", "fs.write"], True),
        ("eq", ["$actor.id", "you"], False),
        ("eq", ["$belief.s.n_survivors", 1], True),
        ("eq", ["$belief.s.active_obligation_id", None], True),
        ("eq", ["$belief.other.active_obligation_id", None], False),
        ("in", ["fact.word", ["dev", "prod"]], True),
        ("in", ["fact.number", ["1"]], True),
        ("in", ["fact.number", [True, 1]], True),
        ("in", ["fact.number", [True]], False),
        ("in", ["fact.word", []], False),
        ("in", ["fact.absent", [None, "x"]], False),
        ("in", ["$args.path", ["/data/x"]], True),
        ("in", ["fact.object.tags", [["a", "b"]]], True),
        ("exists", ["fact.word"], True),
        ("exists", ["fact.word", "fact.absent"], False),
        ("exists", ["goal.empty"], True),
        ("exists", ["fact.nothing"], False),
        ("missing", ["fact.word"], False),
        ("missing", ["fact.word", "fact.absent"], True),
        ("missing", ["fact.object.none"], True),
        ("missing", ["$belief.s.active_obligation_id"], True),
        ("schema", ["$args", {"required": ["path"]}], True),
        ("schema", ["$args.n", {"maximum": 1}], False),
        ("schema", ["$args.n", "small"], False),
        ("schema", ["fact.number", "small"], True),
        ("schema", ["fact.absent", True], False),
        ("schema", ["fact.word", {"type": "string"}], True),
        ("schema", ["$belief.s.n_survivors", {"maximum": 1}], True),
        ("all", [TRUE, TRUE], True),
        ("all", [TRUE, FALSE], False),
        ("any", [FALSE, TRUE], True),
        ("any", [FALSE, FALSE], False),
        ("any", [FALSE], False),
    ],
)
def test_each_operator_has_its_truth(op: str, args: list[Any], truth: bool) -> None:
    assert holds(predicate(op, *args)) is truth
    assert holds(predicate("not", predicate(op, *args))) is not truth
    assert holds(predicate("all", predicate(op, *args))) is truth


@for_each(
    ("content", "at"),
    [
        (None, "when"),
        ([], "when"),
        ({}, "when.args"),
        ({"op": "eq"}, "when.args"),
        ({"op": "all", "args": []}, "when.args"),
        ({"op": "exists", "args": "fact.a"}, "when.args"),
        ({"op": "eq", "args": ["fact.a", 1], "note": "x"}, "when.note"),
        (predicate("matches", "fact.a", 1), "when.op"),
        (predicate("EQ", "fact.a", 1), "when.op"),
        ({"op": ["eq"], "args": ["fact.a", 1]}, "when.op"),
        ({"args": ["fact.a", 1]}, "when.op"),
        (predicate("eq", "fact.a"), "when.args"),
        (predicate("eq", "fact.a", 1, 2), "when.args"),
        (predicate("not", TRUE, TRUE), "when.args"),
        (predicate("eq", 5, 5), "when.args[0]"),
        (predicate("eq", "elsewhere.a", 5), "when.args[0]"),
        (predicate("exists", "fact.a", "$belief.s.luck"), "when.args[1]"),
        (predicate("in", "fact.a", "text"), "when.args[1]"),
        (predicate("schema", "fact.a", {"type": "?"}), "when.args[1]"),
        (predicate("schema", "fact.a", {"$ref": "#"}), "when.args[1]"),
        (predicate("schema", "fact.a", "unknown"), "when.args[1]"),
        (predicate("all", TRUE, predicate("not", predicate("like", "fact.a"))), "when.args[1].args[0].op"),
    ],
)
def test_what_is_malformed_is_refused_at_its_place(content: Any, at: str) -> None:
    with pytest.raises(PredicateFault) as refusal:
        compile_predicate(content, NAMED)
    assert refusal.value.at == at


def test_a_predicate_knows_everything_that_it_depends_on() -> None:
    compiled = compile_predicate(
        predicate("any", predicate("eq", "fact.a.b", 1), predicate("not", predicate("exists", "$belief.s.survivors"))),
        {},
    )
    assert compiled.keys == {"fact.a.b", "fact.a"}
    assert compiled.session_ids == {"s"}
    assert not compiled.reads_candidate
    assert compile_predicate(predicate("exists", "$actor.id"), {}).reads_candidate
    assert [probe.at for probe in probes_of(compiled.root)] == ["when.args[0]", "when.args[1].args[0]"]


def test_the_trace_says_what_every_predicate_found_and_at_which_audit_head() -> None:
    compiled = compile_predicate(
        predicate(
            "any",
            predicate("eq", "fact.object.name", "db"),
            predicate("exists", "fact.absent", "$args.n"),
            predicate("eq", "$belief.s.n_survivors", 1),
            predicate("eq", "$belief.other.n_survivors", 1),
        ),
        {},
    )
    steps: list[TraceStep] = []
    assert compiled.evaluate(FACING, ASKING, steps)
    assert [(step.at, step.op, step.reference, step.found, step.note, step.passed) for step in steps] == [
        ("when.args[0]", "eq", "fact.object.name", "db", None, True),
        ("when.args[1]", "exists", "fact.absent", None, None, False),
        ("when.args[1]", "exists", "$args.n", "2", None, False),
        ("when.args[2]", "eq", "$belief.s.n_survivors", "1", "at audit head 3 abcd", True),
        ("when.args[3]", "eq", "$belief.other.n_survivors", None, "no such session", False),
    ]
    assert {(step.stage, step.candidate, step.key) for step in steps} == {(Stage.CONSTRAINTS, 0, "constraint.x")}


@given(json_values(), json_values())
def test_two_values_are_the_same_exactly_where_their_canonical_bytes_are(one: Any, other: Any) -> None:
    assert same(one, other) is (canonical.encode(one) == canonical.encode(other))
    assert same(one, canonical.decode(canonical.encode(one)))


@given(predicates(), facings())
def test_every_reference_has_its_step_in_the_trace(content: Any, facing: EvaluationContext) -> None:
    compiled = compile_predicate(content, {})
    steps: list[TraceStep] = []
    compiled.evaluate(facing, ASKING, steps)
    assert len(steps) == sum(len(probe.references) for probe in probes_of(compiled.root))


@given(predicates(), predicates(), facings())
def test_de_morgan_holds(one: Any, other: Any, facing: EvaluationContext) -> None:
    def truth(content: Any) -> bool:
        return compile_predicate(content, {}).evaluate(facing, ASKING, [])

    neither = predicate("not", predicate("any", one, other))
    both_not = predicate("all", predicate("not", one), predicate("not", other))
    assert truth(neither) is truth(both_not)


@given(predicates(), facings(), st.dictionaries(st.sampled_from(["fact.other", "goal.other"]), st.text()))
def test_keys_that_a_predicate_does_not_name_do_not_matter(
    content: Any, facing: EvaluationContext, more: dict[str, str]
) -> None:
    compiled = compile_predicate(content, {})
    wider = EvaluationContext({**facing.state, **more}, facing.belief, facing.actor, facing.args, facing.tool_id)
    assert compiled.evaluate(wider, ASKING, []) is compiled.evaluate(facing, ASKING, [])
