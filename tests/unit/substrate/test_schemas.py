"""JSON Schema within bounds: what could run for ever, or ask the network, is refused before it is ever used."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cmbs.substrate.kernel.policy.schemas import (
    DIALECT,
    MAX_ASKED_OF_ONE,
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_DEPTH,
    MAX_SUBSCHEMAS,
    SchemaFault,
    compile_schema,
    compile_schema_text,
    decode_schema,
    failures,
)
from tests.support.subtests import for_each


def nest(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def branching(levels: int, branch: Callable[[Any], Any]) -> dict[str, Any]:
    """Each definition refers to the next one as `branch` says: in two places, two to the power of `levels` in all."""
    definitions = {f"d{level}": branch({"$ref": f"#/$defs/d{level + 1}"}) for level in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{levels}": {"type": "string"}}}


def chain_of(length: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {f"d{place}": {"$ref": f"#/$defs/d{place + 1}"} for place in range(length)}
    # Last first, so that each is known by the time it is referred to.
    return {"$ref": "#/$defs/d0", "$defs": {f"d{length}": {}} | dict(reversed(definitions.items()))}


@for_each(
    ("schema", "fits", "fails"),
    [
        (True, 1, None),
        ({"type": "object", "required": ["a"]}, {"a": 1}, {}),
        ({"$schema": DIALECT, "maximum": 1}, 1, 2),
        ({"$ref": "#/$defs/name", "$defs": {"name": {"pattern": "^[a-z]+$"}}}, "abc", "ABC"),
        ({"$ref": "#/properties/a", "properties": {"a": {"type": "integer"}}}, 3, "x"),
        ({"items": {"$ref": "#/allOf/0"}, "allOf": [{"not": {"type": "null"}}]}, [1], [None]),
        ({"$ref": "#/$defs/a~1b~0", "$defs": {"a/b~": {"const": 1}}}, 1, 2),
        ({"properties": {"$id": {"type": "string"}, "$ref": True}}, {"$id": "x"}, {"$id": 1}),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 2}, {"a": 1}),
        (nest(MAX_SCHEMA_DEPTH), [[]], None),
        ({"allOf": [{"items": {"minimum": number}} for number in range(MAX_ASKED_OF_ONE - 1)]}, [500], [1]),
        ({"properties": {str(number): {"type": "null"} for number in range(5_000)}}, {"7": None}, {"7": 1}),
        ({"enum": [str(number) for number in range(5_000)]}, "7", "x"),
        ({"prefixItems": [{"const": {"a": number}} for number in range(500)]}, [{"a": 0}], [{"a": 1}]),
        # A pattern that takes a backtracking engine longer than the universe has.
        ({"pattern": "^(a+)+$"}, "a" * 20_000, "a" * 20_000 + "!"),
        # What a format says is a remark, as the dialect has it.
        ({"format": "date"}, "no date", None),
    ],
)
def test_a_schema_within_bounds_tells_what_fits(schema: Any, fits: Any, fails: Any) -> None:
    validator = compile_schema(schema)
    assert validator.is_valid(fits)
    assert fails is None or not validator.is_valid(fails)


@for_each(
    ("schema", "said"),
    [
        (None, "an object, true or false"),
        ("name", "an object, true or false"),
        ({"type": "nothing"}, "malformed schema"),
        ({"pattern": "("}, "malformed schema"),
        ({"pattern": "(?=a)b"}, "malformed schema"),
        ({"pattern": r"(a)\1"}, "malformed schema"),
        ({"patternProperties": {"(?<!a)b": {}}}, "malformed schema"),
        ({"pattern": "((a{100}){100}){100}"}, "malformed schema"),
        ({"properties": 5}, "malformed schema"),
        ({"allOf": {}}, "malformed schema"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, "leads back to itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "leads back to itself"),
        ({"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}, "leads back to itself"),
        ({"$ref": "#/nowhere"}, "leads nowhere"),
        ({"$ref": "#/allOf/7", "allOf": [True]}, "leads nowhere"),
        ({"$ref": "#/allOf/x", "allOf": [True]}, "leads nowhere"),
        ({"$ref": "https://example.org/schema"}, "stays in its schema"),
        ({"$ref": "other.json"}, "stays in its schema"),
        ({"$ref": 5}, "stays in its schema"),
        ({"items": {"$id": "https://example.org/x"}}, "`$id` is not supported"),
        ({"$dynamicRef": "#a"}, "`$dynamicRef` is not supported"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "can only be"),
        (nest(MAX_SCHEMA_DEPTH + 1), "deep"),
        (nest(2_000), "deep"),
        (chain_of(MAX_SCHEMA_DEPTH + 5), "deep"),
        # Checks of one value.
        (branching(8, lambda next_one: {"allOf": [next_one, next_one]}), "compared with one value"),
        # No value is asked twice, and there are very many places.
        (branching(14, lambda next_one: {"properties": {"a": next_one, "b": next_one}}), "subschemas"),
        ({"properties": {str(number): {} for number in range(MAX_SUBSCHEMAS)}}, "subschemas"),
        ({"anyOf": [{"const": number} for number in range(MAX_ASKED_OF_ONE)]}, "compared with one value"),
        ({"items": {"enum": [{"a": [number]} for number in range(MAX_ASKED_OF_ONE)]}}, "compared with one value"),
        ({"const": [0] * MAX_ASKED_OF_ONE}, "compared with one value"),
        ({"patternProperties": {f"^{number}": {} for number in range(MAX_ASKED_OF_ONE)}, "items": {}}, "one value"),
    ],
)
def test_a_schema_that_is_malformed_or_beyond_a_bound_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(SchemaFault, match=said.replace("$", r"\$")):
        compile_schema(schema)


@for_each(
    ("text", "said"),
    [
        (b"{", "malformed JSON"),
        (b'{"type":"string","type":"number"}', "duplicate key"),
        (b"[]", "an object, true or false"),
        (b"[" * 10_000, "malformed JSON|json_depth"),
        (b'{"a":"' + b"x" * 10_000_000 + b'"}', f"at most {MAX_SCHEMA_BYTES} bytes"),
    ],
)
def test_the_text_of_a_schema_is_bounded_strict_json(text: bytes, said: str) -> None:
    with pytest.raises(SchemaFault, match=said):
        decode_schema(text)


def test_a_schema_is_compiled_once_however_often_it_is_asked_for() -> None:
    assert compile_schema_text(b'{"type":"number"}') is compile_schema_text(b'{"type":"number"}')


def test_failures_are_named_for_people() -> None:
    validator = compile_schema({"properties": {"a": {"items": {"type": "string"}}}, "required": ["b"]})
    found = failures(validator, {"a": ["x", 1]})
    assert {(each.path, each.keyword) for each in found} == {("/a/1", "type"), ("/", "required")}
    assert failures(validator, {"b": 1}) == []
    many = failures(compile_schema({"items": {"type": "string"}}), json.loads("[" + "1," * 500 + "1]"))
    assert 0 < len(many) < 500
