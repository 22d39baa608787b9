"""A text as a tree in which every value knows where it stands. What YAML and JSON have in common, within limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cmbs.kit.findings import Finding, Place, Rule

MAX_BYTES = 64 << 20
# Values in a text; what an alias stands for counts each time.
MAX_VALUES = 2_000_000
MAX_DEPTH = 16


class ScalarKind(StrEnum):
    """What a scalar is by the rules of its language."""

    TEXT = "a text"
    BOOLEAN = "a boolean"
    NUMBER = "a number"
    NULL = "nothing"
    TIMESTAMP = "a date"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value, as it is written."""

    place: Place
    kind: ScalarKind
    text: str
    values: int = 1


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    place: Place
    items: tuple[Node, ...]
    values: int


@dataclass(frozen=True, slots=True)
class Fields:
    """Names and values, in order; a name may be there twice."""

    place: Place
    entries: tuple[tuple[Scalar, Node], ...]
    values: int


Node = Scalar | Items | Fields


class Unreadable(Exception):
    """The text is no document; nothing of it can be looked at further."""

    def __init__(self, rule: Rule, message: str, place: Place | None) -> None:
        super().__init__(message)
        self.finding = Finding(rule, message, place=place)


def items_of(place: Place, items: list[Node]) -> Items:
    """A list within the limit."""
    return Items(place, tuple(items), _within_limit(place, 1 + sum(each.values for each in items)))


def fields_of(place: Place, entries: list[tuple[Scalar, Node]]) -> Fields:
    """Names and values within the limit."""
    return Fields(place, tuple(entries), _within_limit(place, 1 + sum(1 + value.values for _, value in entries)))


def check_depth(depth: int, place: Place) -> None:
    """Refuse what is nested deeper than any kit."""
    if depth > MAX_DEPTH:
        raise Unreadable(Rule.TOO_DEEP, f"nested deeper than {MAX_DEPTH} levels", place)


def _within_limit(place: Place, values: int) -> int:
    if values > MAX_VALUES:
        raise Unreadable(Rule.TOO_LARGE, f"a kit has at most {MAX_VALUES:,} values, and here are {values:,}", place)
    return values
