"""Typed access to the values of a document. Every mismatch is a finding with its place, and reading goes on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar

from cmbs.documents.findings import MAX_FINDINGS, Finding, Fix, Path, Place, Rule
from cmbs.documents.nodes import Fields, Items, Node, Scalar, ScalarKind, describe_kind

MAX_ID_LENGTH = 1_024
MAX_TEXT_LENGTH = 10_000
# Characters of a wrong text that a message repeats.
MAX_SHOWN = 40

_DECIMAL = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_RULE_FOR_TEXT = {ScalarKind.BOOLEAN: Rule.BOOLEAN_FOR_TEXT, ScalarKind.NUMBER: Rule.NUMBER_FOR_TEXT}
Word = TypeVar("Word", bound=StrEnum)


class TooManyFindings(Exception):
    """The limit of findings is reached; reading stops."""


def is_decimal(text: str) -> bool:
    """Whether a text is written as a decimal number, finite or not."""
    return _DECIMAL.fullmatch(text) is not None


def read_number(text: str) -> float | None:
    """A finite decimal number; None for any other text."""
    number = float(text) if is_decimal(text) else math.nan
    return number if math.isfinite(number) else None


def suggest(wrong: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """A hint for a name that is not known: the closest one, or the first of all."""
    close = get_close_matches(wrong, known, 1)
    return f"did you mean `{close[0]}`" if close else f"known are {', '.join(list(known)[:20])}"


def find_fix(place: Place, wrong: str, known: Iterable[str]) -> Fix | None:
    """The known name that is most like a wrong one; None where none is, or the wrong one is long."""
    close = get_close_matches(wrong, known, 1) if len(wrong) <= MAX_SHOWN else []
    return Fix(place, wrong, close[0]) if close else None


class FieldReader:
    """Reads nodes, and collects what was wrong and where everything is. `root` is what messages call the document."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.findings: list[Finding] = []
        self.places: dict[Path, Place] = {}

    def refuse(self, rule: StrEnum, message: str, path: Path, place: Place, fix: Fix | None = None) -> None:
        """Add a finding; `TooManyFindings` where that is the last one to report."""
        self.findings.append(Finding(rule, message, path, place, fix=fix))
        if len(self.findings) >= MAX_FINDINGS:
            raise TooManyFindings

    def refuse_value(self, rule: StrEnum, message: str, path: Path, place: Place, fix: Fix | None = None) -> None:
        """Add a finding whose message begins with what the path names."""
        self.refuse(rule, f"{self.describe(path)} {message}", path, place, fix)

    def describe(self, path: Path) -> str:
        """A path as a message names it."""
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        return f"`{text.removeprefix('.')}`" if text else self._root

    def read_fields(self, node: Node, path: Path, known: Mapping[str, bool]) -> dict[str, Node] | None:
        """The fields of a mapping by name; `known` says of each name whether it is required."""
        self.places[path] = node.place
        if not isinstance(node, Fields):
            message = f"must have fields ({', '.join(known)}), and is {describe_kind(node)}"
            self.refuse_value(Rule.WRONG_TYPE, message, path, node.place)
            return None
        found: dict[str, Node] = {}
        for name, value in node.entries:
            if name.text in known:
                self.places[(*path, name.text)] = value.place
                found[name.text] = value
            else:
                shown = name.text[:MAX_SHOWN]
                message = f"has no field `{shown}`; {suggest(shown, known)}"
                fix = find_fix(name.place, name.text, known)
                self.refuse_value(Rule.UNKNOWN_FIELD, message, path, name.place, fix)
        missing = [name for name, required in known.items() if required and name not in found]
        for each in missing:
            self.refuse_value(Rule.MISSING_FIELD, f"lacks the field `{each}`", path, node.place)
        return None if missing else found

    def read_items(self, node: Node, path: Path, limit: int) -> Iterator[tuple[Path, Node]]:
        """The items of a list, each with its path."""
        if not isinstance(node, Items):
            message = f"must be a list, and is {describe_kind(node)}"
            self.refuse_value(Rule.WRONG_TYPE, message, path, node.place)
        elif len(node.items) > limit:
            message = f"has at most {limit:,} items, and here are {len(node.items):,}"
            self.refuse_value(Rule.TOO_LARGE, message, path, node.place)
        else:
            yield from (((*path, number), item) for number, item in enumerate(node.items))

    def read_text(self, node: Node | None, path: Path, *, limit: int = MAX_TEXT_LENGTH) -> str | None:
        """A text; None where there is none, which is a finding unless the field is absent."""
        if node is None:
            return None
        if not isinstance(node, Scalar):
            message = f"must be a text, and is {describe_kind(node)}"
            self.refuse_value(Rule.WRONG_TYPE, message, path, node.place)
        elif node.kind is not ScalarKind.TEXT:
            shown = node.text[:MAX_SHOWN]
            plain = f'`{shown}` without quotes is {node.kind.value}; write "{shown}"' if shown else "is empty"
            message = f"must be a text, and {plain}"
            self.refuse_value(_RULE_FOR_TEXT.get(node.kind, Rule.WRONG_TYPE), message, path, node.place)
        elif len(node.text) > limit:
            message = f"has at most {limit:,} characters, and here are {len(node.text):,}"
            self.refuse_value(Rule.TOO_LARGE, message, path, node.place)
        else:
            return node.text
        return None

    def read_id(self, node: Node | None, path: Path) -> str | None:
        """An id: a text of the length that a server takes, without NUL, which no database keeps in a text."""
        text = self.read_text(node, path, limit=MAX_ID_LENGTH)
        if text is not None and node is not None and "\0" in text:
            self.refuse_value(Rule.NUL, "has the character U+0000, which an id must not have", path, node.place)
            return None
        return text

    def read_word(self, node: Node | None, path: Path, words: type[Word]) -> Word | None:
        """One of a closed set of words."""
        text = self.read_text(node, path)
        if text is None or node is None:
            return None
        try:
            return words(text)
        except ValueError:
            known = ", ".join(f"`{each}`" for each in words)
            message = f"must be one of {known}, not `{text[:MAX_SHOWN]}`"
            fix = find_fix(node.place, text, [each.value for each in words])
            self.refuse_value(Rule.UNKNOWN_WORD, message, path, node.place, fix)
            return None

    def read_number(self, node: Node | None, path: Path) -> float | None:
        """A finite decimal number, with or without quotes."""
        if node is None:
            return None
        if not isinstance(node, Scalar) or node.kind in {ScalarKind.NULL, ScalarKind.BOOLEAN}:
            message = f"must be a number, and is {describe_kind(node)}"
            self.refuse_value(Rule.WRONG_TYPE, message, path, node.place)
            return None
        number = read_number(node.text)
        if number is None:
            message = f"must be a finite decimal number, not `{node.text[:MAX_SHOWN]}`"
            self.refuse_value(Rule.BAD_NUMBER, message, path, node.place)
        return number
