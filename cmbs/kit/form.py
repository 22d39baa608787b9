"""The values of a document, read as what a kit needs them to be. Every mismatch is a finding, and reading goes on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar, assert_never

from cmbs.kit.document import Fields, Items, Node, Scalar, ScalarKind
from cmbs.kit.findings import Finding, Path, Place, Rule

MAX_ID_LENGTH = 1_024
MAX_TEXT_LENGTH = 10_000
# So much of a text that is wrong is enough to find it by.
_SHOWN = 40
# A list that is wrong from one end to the other is told by its beginning.
MAX_FINDINGS = 100

_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
Word = TypeVar("Word", bound=StrEnum)


class TooManyFindings(Exception):
    """Enough is known to be wrong."""


class Form:
    """Reads nodes and keeps what was wrong, and where everything stands."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.places: dict[Path, Place] = {}

    def refuse(self, rule: Rule, message: str, path: Path, place: Place) -> None:
        """Remember what is wrong."""
        self.findings.append(Finding(rule, message, path, place))
        if len(self.findings) >= MAX_FINDINGS:
            raise TooManyFindings

    def fields(self, node: Node, path: Path, known: Mapping[str, bool]) -> dict[str, Node] | None:
        """The fields of a mapping by name; `known` says of each name whether it must be there."""
        self.places[path] = node.place
        if not isinstance(node, Fields):
            self.refuse(
                Rule.WRONG_TYPE,
                f"{said(path)} must have fields ({', '.join(known)}), and is {noun(node)}",
                path,
                node.place,
            )
            return None
        found: dict[str, Node] = {}
        for name, value in node.entries:
            if name.text in found:
                self.refuse(Rule.DUPLICATE_FIELD, f"field `{name.text}` is there twice", path, name.place)
            elif name.text not in known:
                shown = name.text[:_SHOWN]
                close = get_close_matches(shown, known, 1)
                hint = f"did you mean `{close[0]}`" if close else f"known are {', '.join(known)}"
                self.refuse(Rule.UNKNOWN_FIELD, f"{said(path)} has no field `{shown}`; {hint}", path, name.place)
            else:
                self.places[(*path, name.text)] = value.place
                found[name.text] = value
        missing = [name for name, required in known.items() if required and name not in found]
        for each in missing:
            self.refuse(Rule.MISSING_FIELD, f"{said(path)} lacks the field `{each}`", path, node.place)
        return None if missing else found

    def items(self, node: Node, path: Path, limit: int) -> Iterator[tuple[Path, Node]]:
        """The items of a list, each with its path."""
        if not isinstance(node, Items):
            self.refuse(Rule.WRONG_TYPE, f"{said(path)} must be a list, and is {noun(node)}", path, node.place)
            return
        if len(node.items) > limit:
            self.refuse(
                Rule.TOO_LARGE,
                f"{said(path)} has at most {limit:,} items, and here are {len(node.items):,}",
                path,
                node.place,
            )
            return
        for number, item in enumerate(node.items):
            yield (*path, number), item

    def text(self, node: Node | None, path: Path, *, limit: int = MAX_TEXT_LENGTH) -> str | None:
        """A text; None where there is none, which is a finding unless the field is not there at all."""
        if node is None:
            return None
        if not isinstance(node, Scalar) or node.kind is not ScalarKind.TEXT:
            rule = _RULE_FOR_TEXT.get(node.kind, Rule.WRONG_TYPE) if isinstance(node, Scalar) else Rule.WRONG_TYPE
            self.refuse(rule, f"{said(path)} must be a text, and {_instead_of_text(node)}", path, node.place)
            return None
        if len(node.text) > limit:
            self.refuse(
                Rule.TOO_LARGE,
                f"{said(path)} has at most {limit:,} characters, and here are {len(node.text):,}",
                path,
                node.place,
            )
            return None
        if not _is_unicode(node.text):
            self.refuse(Rule.NOT_UNICODE, f"{said(path)} has half of a surrogate pair", path, node.place)
            return None
        return node.text

    def id(self, node: Node | None, path: Path) -> str | None:
        """An id: a text of the length that a server takes."""
        return self.text(node, path, limit=MAX_ID_LENGTH)

    def word(self, node: Node | None, path: Path, words: type[Word]) -> Word | None:
        """One of a closed set of words."""
        text = self.text(node, path)
        if text is None or node is None:
            return None
        try:
            return words(text)
        except ValueError:
            known = ", ".join(f"`{each}`" for each in words)
            self.refuse(
                Rule.UNKNOWN_WORD, f"{said(path)} must be one of {known}, not `{text[:_SHOWN]}`", path, node.place
            )
            return None

    def number(self, node: Node | None, path: Path) -> float | None:
        """A finite decimal number. YAML's others (octal, sexagesimal, underscores) are not what they look like."""
        if node is None:
            return None
        # PyYAML takes 1e5 for a text; in JSON, and for everybody who writes it, it is a number.
        if isinstance(node, Scalar) and node.kind in _MAYBE_NUMBER:
            value = float(node.text) if _NUMBER.fullmatch(node.text) else math.nan
            if math.isfinite(value):
                return value
            self.refuse(
                Rule.BAD_NUMBER,
                f"{said(path)} must be a finite decimal number, not `{node.text[:_SHOWN]}`",
                path,
                node.place,
            )
            return None
        self.refuse(Rule.WRONG_TYPE, f"{said(path)} must be a number, and is {noun(node)}", path, node.place)
        return None


_MAYBE_NUMBER = frozenset({ScalarKind.NUMBER, ScalarKind.TEXT, ScalarKind.TIMESTAMP})
_RULE_FOR_TEXT = {ScalarKind.BOOLEAN: Rule.BOOLEAN_FOR_TEXT, ScalarKind.NUMBER: Rule.NUMBER_FOR_TEXT}
_TRUE = frozenset({"yes", "true", "on"})


def said(path: Path) -> str:
    """A path as a message says it."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f"`{text.removeprefix('.')}`" if text else "the kit"


def noun(node: Node) -> str:
    """What a node is."""
    match node:
        case Scalar():
            return node.kind.value
        case Items():
            return "a list"
        case Fields():
            return "a mapping"
        case _:
            assert_never(node)


def _instead_of_text(node: Node) -> str:
    if not isinstance(node, Scalar):
        return f"is {noun(node)}"
    match node.kind:
        case ScalarKind.NULL:
            return "is empty"
        case ScalarKind.BOOLEAN:
            meaning = "true" if node.text.lower() in _TRUE else "false"
            return f'`{node.text}` without quotes is the boolean {meaning}; write "{node.text}"'
        case _:
            return f'`{node.text[:_SHOWN]}` without quotes is {node.kind.value}; write "{node.text[:_SHOWN]}"'


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
