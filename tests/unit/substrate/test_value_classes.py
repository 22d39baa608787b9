"""Values that stand for all others: what they tell apart, and where they do not tell everything."""

import string
from typing import Any

from cmbs.substrate.kernel.insight.value_classes import MAX_VALUES, Classes, Question, classes_of, fresh_text
from tests.support.subtests import for_each


def classes(*asked: tuple[str, Any], **schemas: str) -> Classes:
    questions = [Question("when", op, ("fact.a",), literal) for op, literal in asked]
    return classes_of(questions, {f"policy.schema.{name}": text for name, text in schemas.items()})


def test_without_a_question_there_is_something_and_nothing() -> None:
    assert classes() == Classes((None, "another"), True)
    assert classes(("exists", None)) == Classes((None, "another"), True)


def test_literals_stand_for_themselves_and_one_value_for_the_rest() -> None:
    assert classes(("eq", "p"), ("in", ["q", "another"])) == Classes((None, "p", "q", "another", "anotherx"), True)


def test_numbers_have_a_whole_and_a_broken_one_on_every_side() -> None:
    found = classes(("schema", {"minimum": 2, "maximum": 5}))
    assert found.complete
    numbers = [value for value in found.values if isinstance(value, int | float) and not isinstance(value, bool)]
    for low, high in ((-1e9, 2), (2, 5), (5, 1e9)):
        within = [number for number in numbers if low < number < high]
        assert any(isinstance(number, int) for number in within)
        assert any(isinstance(number, float) for number in within)
    assert {2, 5} <= set(numbers)
    # Between neighbours among the doubles there is nothing.
    close = classes(("eq", 1.0), ("eq", 1.0000000000000002))
    assert close.complete


@for_each(
    ("schema", "complete"),
    [
        ({"type": "string", "title": "t", "format": "date"}, True),
        ({"allOf": [{"const": 1}, {"not": {"enum": [2]}}], "if": {"minLength": 1}, "then": True, "else": False}, True),
        (True, True),
        ("named", True),
        ({"pattern": "x"}, False),
        ({"properties": {"a": {"const": 1}, "b": True}}, False),
        ({"required": ["a", "b"], "properties": {"a": {"type": "boolean"}, "b": False}}, False),
        ({"contains": {"enum": ["x"]}}, False),
        ({"contains": True}, False),
        ({"minimum": 2**53 - 1}, False),
        ({"maxLength": 5_000}, False),
        ({"multipleOf": 3}, False),
        ({"const": list(range(3))}, True),
    ],
)
def test_a_schema_is_taken_apart_or_said_not_to_be(schema: Any, complete: bool) -> None:
    assert classes(("schema", schema), named='{"type":"null"}').complete is complete


def test_schemas_that_are_not_taken_apart_still_say_what_is_worth_a_try() -> None:
    assert ["x"] in classes(("schema", {"contains": {"const": "x"}})).values
    assert {"a": True, "b": "x"} in classes(
        ("schema", {"required": ["a", "b"], "properties": {"a": {"type": "boolean"}}})
    ).values
    assert 3 in classes(("schema", {"multipleOf": 3})).values


def test_texts_and_lists_of_every_length_that_matters_are_unlike_every_literal() -> None:
    found = classes(("schema", {"minLength": 1, "maxItems": 2}), ("eq", "x"), ("eq", ["another"]))
    assert found.complete
    assert "" in found.values
    assert any(isinstance(value, str) and len(value) == 1 and value != "x" for value in found.values)
    lists = [value for value in found.values if isinstance(value, list)]
    assert {len(each) for each in lists} == {0, 1, 2, 3}
    assert any(len(each) == 1 and each != ["another"] for each in lists)


def test_where_every_letter_is_taken_a_text_of_one_is_not_found() -> None:
    assert fresh_text(string.ascii_lowercase, 1) is None
    assert not classes(("in", list(string.ascii_lowercase)), ("schema", {"minLength": 1})).complete
    taken = ["another", *(f"another{letter}" for letter in string.ascii_lowercase)]
    assert not classes(("in", taken)).complete


def test_more_values_than_can_be_tried_are_not_all_of_them() -> None:
    found = classes(("in", [f"{number}" for number in range(MAX_VALUES + 1)]))
    assert (len(found.values), found.complete) == (MAX_VALUES, False)
