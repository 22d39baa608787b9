"""What a predicate may read, and what it finds: never an error, only a value or nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.model import BeliefReading
from cmbs.substrate.kernel.policy.references import (
    BELIEF_FIELDS,
    MAX_REFERENCE_CHARACTERS,
    MAX_SEGMENTS,
    MISSING,
    EvaluationContext,
    ReferenceFault,
    compile_reference,
    namespace_of,
    value_of,
    walk,
)
from cmbs.testing.strategies.belief import ids, json_values
from tests.support.subtests import for_each

ME = Actor(ActorKind.AGENT, "me")
READING = BeliefReading(
    "incident.7", found=True, head_seq=4, head_event_hash="ab", n_survivors=8, survivors=["h1"], concluded=["c1"]
)


def facing(state: dict[str, str] | None = None, args: Any = MISSING, tool_id: str | None = "t") -> EvaluationContext:
    return EvaluationContext(
        state or {}, {"incident.7": READING, "gone": BeliefReading("gone", found=False)}, ME, args, tool_id
    )


def find(text: str, **fields: Any) -> Any:
    return compile_reference(text).find(facing(**fields))


@pytest.mark.req("SS01-PAYLOAD-V1", "SS01-PAYLOAD-V2")
def test_a_tool_writes_where_its_registration_says_so_and_is_missing_for_what_is_no_registered_tool() -> None:
    for said, found in ((True, True), (False, False), (None, MISSING)):
        seen = EvaluationContext({}, {}, ME, {}, "t", tool_writes=said)
        assert compile_reference("$tool.writes").find(seen) is found
    with pytest.raises(ReferenceFault):
        compile_reference("$tool.writes", 1)


@for_each(
    ("key", "namespace"),
    [
        ("fact.a", "fact"),
        ("goal.a.b", "goal"),
        ("policy.private", "policy"),
        ("constraint.x", "constraint"),
        ("fact", None),
        ("fact.", None),
        (".a", None),
        ("Fact.a", None),
        ("facts.a", None),
        (" fact.a", None),
        ("", None),
    ],
)
def test_a_key_is_in_a_namespace_or_in_none(key: str, namespace: str | None) -> None:
    assert namespace_of(key) == namespace


def test_the_longest_existing_key_wins_even_where_a_shorter_one_has_the_field() -> None:
    state = {"fact.a": '{"b":{"c":1}}', "fact.a.b": '{"d":2}'}
    assert find("fact.a.b.c", state=state) is MISSING
    assert find("fact.a.b.d", state=state) == 2
    assert find("fact.a.b", state=state) == {"d": 2}
    assert find("fact.a", state=state) == {"b": {"c": 1}}
    assert find("fact.z", state=state) is MISSING


def test_places_of_an_array_are_its_decimal_numbers_and_nothing_that_only_looks_like_one() -> None:
    state = {"fact.list": '["a",{"b":"c"}]'}
    assert find("fact.list.0", state=state) == "a"
    assert find("fact.list.1.b", state=state) == "c"
    for odd in ("2", "-1", "00", "01", "1_0", "\N{ARABIC-INDIC DIGIT ZERO}", "x", "9" * 400):
        assert find(f"fact.list.{odd}", state=state) is MISSING


@for_each(
    ("text", "value"),
    [
        ("plain words", "plain words"),
        ("5", 5),
        ('"quoted"', "quoted"),
        ("true", True),
        ("null", None),
        ("truth", "truth"),
        ("", ""),
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
        ("1e400", "1e400"),
        ("[" * 10_000, "[" * 10_000),
        ("9007199254740993", "9007199254740993"),
    ],
)
def test_a_value_is_the_json_it_holds_or_else_its_text(text: str, value: object) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


def test_args_are_walked_by_plain_names_so_that_a_dotted_name_hides_nothing() -> None:
    args = {"a": {"b": "seen"}, "a.b": "planted", "set": {"goal": {"x": "inner"}, "goal.x": "planted"}}
    assert find("$args.a.b", args=args) == "seen"
    assert find("$args.set.goal.x", args=args) == "inner"
    assert find("$args", args=args) == args
    assert find("$args.a.b.c", args=args) is MISSING
    assert find("$args.a", args=MISSING) is MISSING


def test_what_a_delta_sets_is_found_by_its_key_and_by_fields_of_its_value() -> None:
    args = {"set": {"goal.x": '{"who":"me"}', "fact.y": "plain"}, "unset": ["goal.z"]}
    assert find("$args.set.goal.x.who", args=args, tool_id=None) == "me"
    assert find("$args.set.fact.y", args=args, tool_id=None) == "plain"
    assert find("$args.set.goal.q", args=args, tool_id=None) is MISSING
    assert find("$args.set", args=args, tool_id=None) == args["set"]
    assert find("$args.unset.0", args=args, tool_id=None) == "goal.z"
    assert find("$args.set.goal.x", tool_id=None) is MISSING


def test_tool_and_actor_are_found_and_a_delta_has_no_tool() -> None:
    assert find("$tool.id") == "t"
    assert find("$tool.id", tool_id=None) is MISSING
    assert find("$actor.id") == "me"


def test_a_belief_field_is_read_from_its_session_and_missing_where_there_is_none() -> None:
    values = {field: find(f"$belief.incident.7.{field}") for field in BELIEF_FIELDS}
    assert values == {
        "n_survivors": 8,
        "entropy_proxy": 3.0,
        "terminated": False,
        "active_obligation_id": None,
        "survivors": ["h1"],
        "concluded": ["c1"],
    }
    assert find("$belief.gone.n_survivors") is MISSING
    assert find("$belief.unread.n_survivors") is MISSING
    assert compile_reference("$belief.incident.7.survivors").session_id == "incident.7"


def test_more_survivors_than_a_reading_carries_are_missing() -> None:
    reading = BeliefReading("s", found=True, n_survivors=10**6)
    assert compile_reference("$belief.s.survivors").find(EvaluationContext({}, {"s": reading}, ME)) is MISSING


@for_each(
    "text",
    [
        5,
        None,
        "",
        "fact",
        "nowhere.at.all",
        "$args.",
        "$args..a",
        "$arguments.a",
        "$tool",
        "$tool.name",
        "$actor.name",
        "$belief",
        "$belief.s",
        "$belief.n_survivors",
        "$belief.s.unknown",
        "$",
        "fact." + "a" * MAX_REFERENCE_CHARACTERS,
        "fact." + ".".join("a" * MAX_SEGMENTS),
    ],
)
def test_what_is_no_reference_is_refused(text: object) -> None:
    with pytest.raises(ReferenceFault):
        compile_reference(text)


def test_a_reference_names_every_key_that_can_decide_what_it_finds() -> None:
    assert compile_reference("fact.a.b.c").keys == ("fact.a.b.c", "fact.a.b", "fact.a")
    assert compile_reference("$args.a").of_candidate
    assert not compile_reference("fact.a").of_candidate
    assert not compile_reference("$belief.s.concluded").of_candidate


@given(json_values(), st.lists(ids(4), max_size=4).map(tuple))
def test_walking_any_path_into_any_value_finds_something_or_nothing(value: Any, path: tuple[str, ...]) -> None:
    end = walk(value, path)
    assert end is MISSING or path == () or isinstance(value, dict | list)


@given(st.text())
def test_any_text_is_a_reference_or_refused_and_reading_it_never_fails(text: str) -> None:
    try:
        reference = compile_reference(text)
    except ReferenceFault:
        return
    assert reference.text == text
    reference.find(facing(args={"a": [1]}))
