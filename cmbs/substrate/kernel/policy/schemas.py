"""JSON Schema 2020-12 with bounds: patterns in linear time, references that stay inside and end, sizes with limits.

Checking an instance costs at most a fixed number of steps for each of its parts. What the library says of a failure is
for people and never part of a decision: its words may change, decisions may not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeAlias

import jsonschema_rs

from cmbs.errors import BeliefServerError
from cmbs.ledger import canonical

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_SCHEMA_BYTES = 262_144
MAX_SCHEMA_DEPTH = 32
# Subschemas, counted as often as references lead to them.
MAX_SUBSCHEMAS = 10_000
# Of these, how many may be asked of one and the same value.
MAX_ASKED_OF_ONE = 200
_MAX_CACHED_SCHEMAS = 1_024
_MAX_FAILURES = 20
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=262_144, dfa_size_limit=2_097_152)

Schema: TypeAlias = dict[str, Any] | bool

# Keywords whose subschemas are asked of the same value, and of the values in it.
_IN_PLACE = ("else", "if", "not", "then")
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE_NAMED = ("dependentSchemas",)
_OF_ALL_INSIDE = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "items",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
# Of these each value inside is asked one.
_OF_ONE_INSIDE_LISTS = ("prefixItems",)
_OF_ONE_INSIDE_NAMED = ("properties",)
# Of these it is asked as many as match.
_OF_SOME_INSIDE_NAMED = ("patternProperties",)
_DEFINITIONS = ("$defs", "definitions")
# They give a schema other names, or make what a reference means depend on who refers.
_REFUSED = ("$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$vocabulary")


class SchemaFault(ValueError):
    """The schema is malformed, or beyond a bound."""


class SchemaFailure(NamedTuple):
    """One way in which an instance does not fit: where, which keyword, and a sentence for people."""

    path: str
    keyword: str
    message: str


def compile_schema(schema: object) -> jsonschema_rs.Draft202012Validator:
    """A validator for this schema; SchemaFault where it is malformed or beyond a bound."""
    if not isinstance(schema, dict | bool):
        raise SchemaFault("a schema is an object, true or false")
    _Survey(schema).check()
    try:
        return jsonschema_rs.Draft202012Validator(
            schema, pattern_options=_PATTERNS, validate_formats=False, offline=True
        )
    except (ValueError, jsonschema_rs.ReferencingError) as exc:
        raise SchemaFault(f"malformed schema: {str(exc).splitlines()[0]}") from exc


def decode_schema(data: bytes | str) -> Schema:
    """A schema from its JSON text, not looked at further; SchemaFault where it is too large or no JSON."""
    if len(data) > MAX_SCHEMA_BYTES:
        raise SchemaFault(f"a schema has at most {MAX_SCHEMA_BYTES} bytes")
    try:
        schema = canonical.decode(data)
    except BeliefServerError as exc:
        raise SchemaFault(exc.message) from exc
    if not isinstance(schema, dict | bool):
        raise SchemaFault("a schema is an object, true or false")
    return schema


# To compile a schema takes about four times as long as the rest of a decision (benchmark `decisions`).
@lru_cache(maxsize=_MAX_CACHED_SCHEMAS)
def compile_schema_text(data: bytes) -> jsonschema_rs.Draft202012Validator:
    """The validator of a schema in JSON text; SchemaFault as `compile_schema`."""
    return compile_schema(decode_schema(data))


def failures(validator: jsonschema_rs.Draft202012Validator, instance: Any) -> list[SchemaFailure]:
    """Some of the ways in which an instance does not fit, for people; empty where it fits."""
    return [
        SchemaFailure("/" + "/".join(map(str, error.instance_path)), error.kind.name, error.message)
        for error in islice(validator.iter_errors(instance), _MAX_FAILURES)
    ]


class _Extent(NamedTuple):
    """What a subschema comes to, references followed: how many there are at and below it, and on how many levels.

    `asked` has, for each depth inside an instance, how many of them are asked of one value there at most.
    """

    size: int
    height: int
    asked: tuple[int, ...]


_LEAF = _Extent(1, 1, (1,))


class _Survey:
    """A walk over a schema that counts what checking an instance may come to."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._extents: dict[int, _Extent] = {}
        self._open: set[int] = set()

    def check(self) -> None:
        extent = self._extent(self._root, 1)
        if extent.size > MAX_SUBSCHEMAS:
            raise SchemaFault(f"a schema has at most {MAX_SUBSCHEMAS} subschemas, references followed")
        if max(extent.asked) > MAX_ASKED_OF_ONE:
            raise SchemaFault(f"at most {MAX_ASKED_OF_ONE} subschemas and constants are compared with one value")

    def _extent(self, schema: object, level: int) -> _Extent:
        if not isinstance(schema, dict):
            return _LEAF  # true, false, or what the library will refuse
        extent = self._extents.get(id(schema))
        if extent is None:
            if id(schema) in self._open:
                raise SchemaFault("a `$ref` leads back to itself")
            # Asked on the way down too, so that this walk itself stays within bounds.
            _refuse_height(level)
            extent = self._measure(schema, level)
        _refuse_height(level - 1 + extent.height)
        return extent

    def _measure(self, schema: dict[str, Any], level: int) -> _Extent:
        self._refuse_keywords(schema)
        self._open.add(id(schema))

        def extents(*found: Iterator[object]) -> list[_Extent]:
            return [self._extent(each, level + 1) for subschemas in found for each in subschemas]

        extents(_subschemas_by_name(schema, _DEFINITIONS))
        here = extents(
            self._follow_reference(schema),
            _subschemas_of(schema, _IN_PLACE),
            _subschemas_in_lists(schema, _IN_PLACE_LISTS),
            _subschemas_by_name(schema, _IN_PLACE_NAMED),
        )
        of_one = extents(
            _subschemas_in_lists(schema, _OF_ONE_INSIDE_LISTS), _subschemas_by_name(schema, _OF_ONE_INSIDE_NAMED)
        )
        of_all = extents(_subschemas_of(schema, _OF_ALL_INSIDE), _subschemas_by_name(schema, _OF_SOME_INSIDE_NAMED))
        self._open.discard(id(schema))
        inside = _combine_rows(
            sum, [_combine_rows(max, [each.asked for each in of_one]), *(each.asked for each in of_all)]
        )
        below = [*here, *of_one, *of_all]
        extent = _Extent(
            # What is beyond the bound need not be added up: sums of sums would grow without end.
            min(1 + sum(each.size for each in below), MAX_SUBSCHEMAS + 1),
            1 + max((each.height for each in below), default=0),
            _combine_rows(sum, [(1 + _constants(schema), *inside), *(each.asked for each in here)]),
        )
        self._extents[id(schema)] = extent
        return extent

    def _refuse_keywords(self, schema: dict[str, Any]) -> None:
        for keyword in _REFUSED:
            if keyword in schema:
                raise SchemaFault(f"`{keyword}` is not supported")
        if schema.get("$schema", DIALECT) != DIALECT:
            raise SchemaFault(f"`$schema` can only be {DIALECT}")

    def _follow_reference(self, schema: dict[str, Any]) -> Iterator[object]:
        if "$ref" not in schema:
            return
        reference = schema["$ref"]
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise SchemaFault("a `$ref` stays in its schema: `#` or `#/…`")
        place: Any = self._root
        for segment in reference.split("/")[1:]:
            name = segment.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict) and name in place:
                place = place[name]
            elif isinstance(place, list) and name.isdecimal() and int(name[:9]) < len(place):
                place = place[int(name[:9])]
            else:
                raise SchemaFault(f"`$ref` {reference} leads nowhere")
        yield place


def _combine_rows(combine: Callable[[list[int]], int], rows: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Numbers by depth, of several subschemas: added up, or the largest."""
    return tuple(min(combine(list(column)), MAX_SUBSCHEMAS) for column in zip_longest(*rows, fillvalue=0))


def _constants(schema: dict[str, Any]) -> int:
    """How many values an instance is compared with one by one. Texts and numbers alone are looked up at once."""
    listed = schema.get("enum")
    constants = [schema.get("const"), *(listed if isinstance(listed, list) else ())]
    return sum(_values_in(each) for each in constants if isinstance(each, dict | list))


def _values_in(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_values_in, value.values()))
    return 1 + sum(map(_values_in, value)) if isinstance(value, list) else 1


def _subschemas_of(schema: dict[str, Any], keywords: tuple[str, ...]) -> Iterator[object]:
    yield from (schema[keyword] for keyword in keywords if keyword in schema)


def _subschemas_in_lists(schema: dict[str, Any], keywords: tuple[str, ...]) -> Iterator[object]:
    for keyword in keywords:
        items = schema.get(keyword)
        if isinstance(items, list):
            yield from items


def _refuse_height(height: int) -> None:
    if height > MAX_SCHEMA_DEPTH:
        raise SchemaFault(f"a schema is at most {MAX_SCHEMA_DEPTH} deep, references followed")


def _subschemas_by_name(schema: dict[str, Any], keywords: tuple[str, ...]) -> Iterator[object]:
    for keyword in keywords:
        named = schema.get(keyword)
        if isinstance(named, dict):
            yield from named.values()
