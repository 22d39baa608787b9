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
from cmbs.substrate.kernel.policy.operators import COMPARISONS, ORDERS, Literal, Sight, compare, is_number, same
from cmbs.substrate.kernel.policy.policy import SCHEMA
from cmbs.substrate.kernel.policy.predicates import Node, Probe, probes_of
from cmbs.substrate.kernel.policy.references import Reference

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
_OTHERS = [_OTHER, *(_OTHER + tail for tail in _LETTERS)]


# What an operator between a literal and a reference asks of the reference: `contains` is `in` from the other side, and
# `begins` is `prefix`.
_MIRRORED = {
    "eq": "eq",
    "ne": "ne",
    "lt": "gt",
    "le": "ge",
    "gt": "lt",
    "ge": "le",
    "in": "contains",
    "prefix": "begins",
}
_FROM_THE_OTHER_SIDE = {"contains": "in", "begins": "prefix"}


class Question(NamedTuple):
    """Something that a predicate asks: where, how, of which references, compared with what.

    A comparison of two references has no literal.
    """

    at: str
    op: str
    references: tuple[str, ...]
    literal: Any = None

    @property
    def is_relation(self) -> bool:
        """Whether it compares two references."""
        return len(self.references) > 1 and self.op in COMPARISONS


class Classes(NamedTuple):
    """Values, one of each class at least. Where not `complete`, there may be others that behave like none of them."""

    values: tuple[Any, ...]
    complete: bool


def questions_of(node: Node) -> list[Question]:
    """Everything that a predicate asks."""
    return [question_of(probe) for probe in probes_of(node)]


def question_of(probe: Probe) -> Question:
    """What a predicate that reads asks; a literal on the left asks the mirrored question."""
    if probe.op not in COMPARISONS and probe.op != "schema":
        return Question(probe.at, probe.op, tuple(each.text for each in probe.references))
    left, right = probe.operands
    if isinstance(left, Reference) and isinstance(right, Reference):
        return Question(probe.at, probe.op, (left.text, right.text))
    if isinstance(left, Literal):
        return ask_of(probe.references[0], probe.op, left.value, probe.at, is_left=False)
    return Question(probe.at, probe.op, (left.text,), right.value if isinstance(right, Literal) else None)


def ask_of(reference: Reference, op: str, literal: Any, at: str, *, is_left: bool) -> Question:
    """What a comparison asks of a reference on its left or its right side, where the other side is this."""
    return Question(at, op if is_left else _MIRRORED[op], (reference.text,), literal)


def holds_for(question: Question, sight: Sight) -> bool:
    """Whether a comparison of one reference with a literal holds where this is to see at the reference."""
    if question.op in _FROM_THE_OTHER_SIDE:
        return compare(_FROM_THE_OTHER_SIDE[question.op], Sight(question.literal), sight)
    return compare(question.op, sight, Sight(question.literal))


def classes_of(questions: Iterable[Question], pairs: Mapping[str, str]) -> Classes:
    """What values there are, as far as these questions tell; `pairs` has the schemas that are meant by name."""
    survey = _Survey(pairs)
    for question in questions:
        survey.note(question)
    return survey.classes()


def is_classified(question: Question, pairs: Mapping[str, str]) -> bool:
    """Whether the values that `classes_of` gives tell everything about this question, as far as it is of one kind."""
    if question.is_relation or question.op in _FROM_THE_OTHER_SIDE:
        return False
    return question.op != "schema" or classes_of([question], pairs).complete


def fresh_text(known: Iterable[str], length: int | None = None, prefixes: Iterable[str] = ()) -> str | None:
    """A text that is none of these, has none of the prefixes, and is no JSON; None where none of this length is."""
    taken, beginnings = set(known), tuple(filter(None, prefixes))
    texts = [letter * length for letter in _LETTERS] if length is not None else _OTHERS
    # Where prefixes are taken, a text that begins otherwise may not be.
    texts = [*texts, *(letter + _OTHER for letter in _LETTERS)] if beginnings else texts
    return next((text for text in texts if text not in taken and not text.startswith(beginnings)), None)


class _Survey:
    """What is asked about one value."""

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = pairs
        self._literals: list[Any] = [None]
        self._witnesses: list[Any] = []
        self._numbers: set[float] = set()
        self._prefixes: set[str] = set()
        self._lengths: set[int] = set()
        self._sizes: set[int] = set()
        self._typed = False
        self._complete = True

    def note(self, question: Question) -> None:
        match question.op:
            case "eq" | "ne":
                self._literal(question.literal)
            case "in":
                for literal in question.literal if isinstance(question.literal, list) else ():
                    self._literal(literal)
            case op if op in ORDERS:
                # Compared with anything else, no value is smaller or larger.
                if is_number(question.literal):
                    self._add_bound(question.literal)
            case "prefix":
                if isinstance(question.literal, str):
                    self._prefixes.add(question.literal)
            case "contains" | "begins":
                self._complete = False
                self._witnesses.append([question.literal] if question.op == "contains" else question.literal)
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
        values += self._values_of_each_prefix(texts)
        other = fresh_text(texts, prefixes=self._prefixes)
        values += [] if other is None else [other]
        distinct = _distinct(values)
        complete = self._complete and other is not None and len(distinct) <= MAX_VALUES
        return Classes(tuple(distinct[:MAX_VALUES]), complete)

    def _resolve(self, schema: Any) -> Any:
        return canonical.decode(self._pairs[SCHEMA + schema]) if isinstance(schema, str) else schema

    def _literal(self, literal: Any) -> None:
        self._literals.append(literal)
        if is_number(literal):
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

    def _values_of_each_prefix(self, texts: list[str]) -> list[str]:
        """For each prefix a text that has it, no longer one, and is no literal."""
        if self._prefixes and self._lengths:
            self._complete = False  # a text may have to have both this beginning and that length
        values = []
        for prefix in sorted(self._prefixes):
            longer = tuple(each for each in self._prefixes if each.startswith(prefix) and each != prefix)
            tails = (prefix + tail for tail in ("", *_LETTERS))
            text = next((each for each in tails if each not in texts and not each.startswith(longer)), None)
            if text is None:
                self._complete = False
            else:
                values.append(text)
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
