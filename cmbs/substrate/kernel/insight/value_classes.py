"""Values that stand for all others: where predicates ask finitely many things, only finitely many answers differ.

A predicate tells values apart only by what it asks of them: equal to this literal, within that bound, of that type.
Given everything that is asked about one value, `classes_of` names values of which every other one behaves like some.
With them, "no value whatsoever" can be shown by looking at a few.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from cmbs.ledger import canonical
from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.substrate.kernel.policy.policy import SCHEMA
from cmbs.substrate.kernel.policy.predicates import same

MAX_VALUES = 200
MAX_LENGTH = 4_096

# Keywords that say nothing about an instance; formats are not checked.
_SILENT = frozenset({"$comment", "$schema", "default", "deprecated", "description", "examples", "format", "title"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_LENGTHS = frozenset({"minLength", "maxLength"})
_SIZES = frozenset({"minItems", "maxItems"})
_LITERALS = frozenset({"const", "enum"})
# Schemas of the same instance.
_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else"})
_OTHER = "another"
_LETTERS = "xyzwvutsrqponmlkjihgfedcba"


class Question(NamedTuple):
    """Something that a predicate asks: where, how, of which references, compared with what."""

    at: str
    op: str
    references: tuple[str, ...]
    literal: Any = None


class Classes(NamedTuple):
    """Values, one of each class at least. Where not `complete`, there may be others that behave like none of them."""

    values: tuple[Any, ...]
    complete: bool


def questions_of(content: Any, at: str = "when") -> list[Question]:
    """Everything that a predicate asks, from its decoded payload, which has been compiled without a fault."""
    op, args = content["op"], content["args"]
    if op in {"all", "any", "not"}:
        return [each for place, part in enumerate(args) for each in questions_of(part, f"{at}.args[{place}]")]
    if op in {"exists", "missing"}:
        return [Question(at, op, tuple(args))]
    return [Question(at, op, (args[0],), args[1])]


def classes_of(questions: Iterable[Question], pairs: Mapping[str, str]) -> Classes:
    """What values there are, as far as these questions tell; `pairs` has the schemas that are meant by name."""
    survey = _Survey(pairs)
    for question in questions:
        survey.note(question)
    return survey.classes()


def is_classified(question: Question, pairs: Mapping[str, str]) -> bool:
    """Whether the values that `classes_of` gives tell everything about this question, as far as it is of one kind."""
    return question.op != "schema" or classes_of([question], pairs).complete


def fresh_text(known: Iterable[str], length: int | None = None) -> str | None:
    """A text that is none of these, and no JSON; None where there is none of this length."""
    taken = set(known)
    texts = (letter * length for letter in _LETTERS) if length is not None else (_OTHER + tail for tail in _LETTERS)
    if length is None and _OTHER not in taken:
        return _OTHER
    return next((text for text in texts if text not in taken), None)


class _Survey:
    """What is asked about one value."""

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = pairs
        self._literals: list[Any] = [None]
        self._witnesses: list[Any] = []
        self._numbers: set[float] = set()
        self._lengths: set[int] = set()
        self._sizes: set[int] = set()
        self._typed = False
        self._complete = True

    def note(self, question: Question) -> None:
        match question.op:
            case "eq":
                self._literal(question.literal)
            case "in":
                for literal in question.literal:
                    self._literal(literal)
            case "schema":
                self._typed = True
                self._schema(self._resolve(question.literal))
            case _:
                pass  # whether it is there tells no two values apart but null from the rest

    def classes(self) -> Classes:
        texts = [text for literal in self._literals for text in _texts_in(literal)]
        values = [*self._literals, *self._witnesses]
        if self._typed or self._numbers:
            values += _numbers(self._numbers)
        if self._typed:
            values += [True, False]
            values += self._values_of_each_size(texts)
        other = fresh_text(texts)
        values += [] if other is None else [other]
        distinct = _distinct(values)
        complete = self._complete and other is not None and len(distinct) <= MAX_VALUES
        return Classes(tuple(distinct[:MAX_VALUES]), complete)

    def _resolve(self, schema: Any) -> Any:
        return canonical.decode(self._pairs[SCHEMA + schema]) if isinstance(schema, str) else schema

    def _literal(self, literal: Any) -> None:
        self._literals.append(literal)
        if isinstance(literal, int | float) and not isinstance(literal, bool):
            self._add_bound(literal)

    def _add_bound(self, number: float) -> None:
        if abs(number) <= MAX_SAFE_INTEGER - MAX_LENGTH:
            self._numbers.add(number)
        else:
            self._complete = False  # numbers beside it are not exact

    def _schema(self, schema: Any) -> None:
        if isinstance(schema, bool):
            return
        for keyword, said in schema.items():
            self._keyword(keyword, said)
        if not self._complete:
            self._witnesses += _witnesses(schema)

    def _keyword(self, keyword: str, said: Any) -> None:
        if keyword in _BOUNDS:
            self._add_bound(said)
        elif keyword in _LENGTHS:
            self._lengths.add(int(said))
        elif keyword in _SIZES:
            self._sizes.add(int(said))
        elif keyword in _LITERALS:
            for literal in said if keyword == "enum" else [said]:
                self._literal(literal)
        elif keyword in _SCHEMAS:
            for schema in said if isinstance(said, list) else [said]:
                self._schema(schema)
        elif keyword != "type" and keyword not in _SILENT:
            self._complete = False

    def _values_of_each_size(self, texts: list[str]) -> list[Any]:
        """Texts, lists and an object of every length that makes a difference, and equal to no literal."""
        other = fresh_text(texts) or ""
        values: list[Any] = [[], {}, {other: other}]
        for length in _around(self._lengths):
            text = "" if length == 0 else fresh_text(texts, length)
            if text is None:
                self._complete = False
            else:
                values.append(text)
        values += [[other] * size for size in _around(self._sizes | {0})]
        if max((*self._lengths, *self._sizes), default=0) > MAX_LENGTH:
            self._complete = False
        return values


def _distinct(values: Iterable[Any]) -> list[Any]:
    plain: dict[tuple[bool, Any], Any] = {}
    others: list[Any] = []
    for value in values:
        if not isinstance(value, list | dict):
            plain.setdefault((isinstance(value, bool), value), value)
        elif not any(same(value, known) for known in others):
            others.append(value)
    return [*plain.values(), *others]


def _texts_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    below = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in below for text in _texts_in(each)]


def _around(bounds: Iterable[int]) -> list[int]:
    return sorted({near for bound in bounds for near in (bound - 1, bound, bound + 1) if 0 <= near <= MAX_LENGTH + 1})


def _numbers(bounds: Iterable[float]) -> list[float]:
    """Every bound, and between and around them a whole number and one that is not, where there are such."""
    marks = sorted(bounds) or [0]
    below, above = math.floor(marks[0]) - 2, math.ceil(marks[-1]) + 2
    edges = [below, *marks, above]
    found: list[float] = [below, below + 0.5, above, above - 0.5, *marks]
    for low, high in pairwise(edges):
        whole = math.floor(low) + 1
        if low < whole < high:
            found.append(whole)
        middle = (low + high) / 2
        while low < middle < high and float(middle).is_integer():
            middle = (low + middle) / 2
        if low < middle < high:
            found.append(middle)
    return [_plain(number) for number in found]


def _plain(number: float) -> float:
    """Whole numbers as such, where JSON has them exactly."""
    return int(number) if abs(number) <= MAX_SAFE_INTEGER and float(number).is_integer() else float(number)


def _witnesses(schema: Mapping[str, Any]) -> list[Any]:
    """Values that may fit a schema which is not taken apart further; worth a try, and no more."""
    found: list[Any] = []
    inside = schema.get("contains")
    if isinstance(inside, dict):
        found += [[value] for value in _values_named_by(inside)]
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    names = {*required, *(name for name, below in properties.items() if isinstance(below, dict) and "const" in below)}
    if names:
        found.append({name: next(iter(_values_named_by(properties.get(name, {}))), "x") for name in sorted(names)})
    if "multipleOf" in schema:
        found.append(schema["multipleOf"])
    return found


def _values_named_by(schema: Any) -> list[Any]:
    """The values that a schema names itself."""
    if not isinstance(schema, dict):
        return []
    named: list[Any] = [schema["const"]] if "const" in schema else []
    named += schema.get("enum", ())
    named += [schema[bound] for bound in ("minimum", "maximum") if bound in schema]
    of_type: dict[str, list[Any]] = {"boolean": [True, False], "integer": [1], "number": [1]}
    return [*named, *of_type.get(str(schema.get("type")), ())]
