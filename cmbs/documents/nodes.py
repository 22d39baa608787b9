"""A document as a tree in which every value has its place: what YAML and JSON have in common, within limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
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
# How many values are read between two pauses.
_VALUES_IN_A_TURN = 16

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
# The core schema of YAML 1.2, which has every number that JSON has.
_NUMBER = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


class ScalarKind(StrEnum):
    """What a scalar is."""

    TEXT = "a text"
    BOOLEAN = "a boolean"
    NUMBER = "a number"
    NULL = "nothing"


_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), ScalarKind.NULL),
    **dict.fromkeys(("true", "True", "TRUE", "false", "False", "FALSE"), ScalarKind.BOOLEAN),
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
    """The kind of a word without quotes, as the core schema of YAML 1.2 has it; JSON has no other words."""
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
        case Scalar(kind=ScalarKind.BOOLEAN):
            return node.text.lower() == "true"
        case _:
            return _decode_number(node, name)


def _decode_number(node: Scalar, name: str) -> Any:
    if _JSON_NUMBER.fullmatch(node.text) is None:
        message = f"`{node.text[:40]}` is a number in YAML 1.2: write it as a decimal, or put it in quotes"
        raise InvalidDocument(name, [Finding(Rule.BAD_NUMBER, message, place=node.place)])
    try:
        return canonical.decode(node.text)
    except InvalidRequest as exc:
        raise InvalidDocument(name, [Finding(Rule.BAD_NUMBER, exc.message, place=node.place)]) from exc


def count_values(data: Any) -> int:
    """How many values data has in a document, each name of a field among them."""
    if isinstance(data, Row):
        return 1 + len(data)
    if isinstance(data, dict):
        return 1 + sum(1 + count_values(value) for value in data.values())
    return 1 + sum(map(count_values, data)) if isinstance(data, list | tuple) else 1


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


def go_on() -> None:
    """The pause of who has no other threads to wait for."""


class TreeReader:
    """Makes nodes within the limits; what the readers of both languages build on.

    `pause` is called after every few values, so that other threads of a server have their turns.
    """

    def __init__(self, pause: Callable[[], object]) -> None:
        self._values = 0
        self._pause = pause

    def _count(self, values: int, place: Place) -> None:
        self._values += values
        if self._values % _VALUES_IN_A_TURN == 0:
            self._pause()
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
