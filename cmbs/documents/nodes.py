"""A document as a tree in which every value has its place: what YAML and JSON have in common, within limits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cmbs.documents.findings import Finding, InvalidDocument, Path, Place, Rule, Unreadable
from cmbs.errors import InvalidRequest
from cmbs.ledger import canonical

MAX_BYTES = 64 << 20
# Values in a document; what an alias stands for counts each time.
MAX_VALUES = 2_000_000
MAX_DEPTH = canonical.MAX_DEPTH

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


class ScalarKind(StrEnum):
    """What a scalar is."""

    TEXT = "a text"
    BOOLEAN = "a boolean"
    NUMBER = "a number"
    NULL = "nothing"


_WORDS = {
    "": ScalarKind.NULL,
    "~": ScalarKind.NULL,
    "null": ScalarKind.NULL,
    "true": ScalarKind.BOOLEAN,
    "false": ScalarKind.BOOLEAN,
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value, as it is written."""

    place: Place
    kind: ScalarKind
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    place: Place
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Fields:
    """Names and values, in order; every name is a text and is there once."""

    place: Place
    entries: tuple[tuple[Scalar, Node], ...]


Node = Scalar | Items | Fields


class Row(list[str]):
    """Texts to be written in one line where the language allows."""


def classify_plain(text: str) -> ScalarKind:
    """The kind of a word without quotes: only what JSON takes for a number, a boolean or null is no text."""
    if text in _WORDS:
        return _WORDS[text]
    return ScalarKind.NUMBER if _NUMBER.fullmatch(text) else ScalarKind.TEXT


def describe_kind(node: Node) -> str:
    """What a node is, as a message says it."""
    if isinstance(node, Scalar):
        return node.kind.value
    return "a list" if isinstance(node, Items) else "a mapping"


def to_data(node: Node, name: str) -> Any:
    """The node as plain data; `InvalidDocument` for a number that is not exact in I-JSON."""
    match node:
        case Items():
            return [to_data(each, name) for each in node.items]
        case Fields():
            return {field.text: to_data(each, name) for field, each in node.entries}
        case Scalar(kind=ScalarKind.TEXT):
            return node.text
        case Scalar(kind=ScalarKind.NULL):
            return None
        case _:
            try:
                return canonical.decode(node.text)
            except InvalidRequest as exc:
                raise InvalidDocument(name, [Finding(Rule.BAD_NUMBER, exc.message, place=node.place)]) from exc


def find_place(node: Node, path: Path) -> Place:
    """The place of the value at a path, or of the nearest one above it."""
    for step in path:
        if isinstance(node, Fields):
            below = next((value for name, value in node.entries if name.text == step), None)
        elif isinstance(node, Items) and isinstance(step, int) and step < len(node.items):
            below = node.items[step]
        else:
            below = None
        if below is None:
            break
        node = below
    return node.place


class TreeReader:
    """Makes nodes within the limits; what the readers of both languages build on."""

    def __init__(self) -> None:
        self._values = 0

    def _count(self, values: int, place: Place) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise Unreadable(Rule.TOO_LARGE, f"a document has at most {MAX_VALUES:,} values", place)

    @staticmethod
    def _check_depth(depth: int, place: Place) -> None:
        if depth > MAX_DEPTH:
            raise Unreadable(Rule.TOO_DEEP, f"nested more than {MAX_DEPTH} deep", place)

    @staticmethod
    def _make_text(place: Place, text: str) -> Scalar:
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise Unreadable(Rule.NOT_UNICODE, "a text has half of a surrogate pair", place)
        return Scalar(place, ScalarKind.TEXT, text)

    @staticmethod
    def _make_fields(place: Place, pairs: Iterable[tuple[Node, Node]]) -> Fields:
        entries: dict[str, tuple[Scalar, Node]] = {}
        for name, value in pairs:
            if not isinstance(name, Scalar):
                raise Unreadable(Rule.WRONG_TYPE, "the name of a field is a text", name.place)
            if name.kind is not ScalarKind.TEXT:
                message = f"the name of a field is a text: put `{name.text}` in quotes"
                raise Unreadable(Rule.WRONG_TYPE, message, name.place)
            if name.text in entries:
                raise Unreadable(Rule.DUPLICATE_FIELD, f"field `{name.text[:40]}` is there twice", name.place)
            entries[name.text] = (name, value)
        return Fields(place, tuple(entries.values()))
