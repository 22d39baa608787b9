"""JSON as a tree with places. The standard decoder tells where a syntax error is, not where a value was."""

from __future__ import annotations

import json
import re
from bisect import bisect_right

from cmbs.kit.document import Fields, Items, Node, Scalar, ScalarKind, Unreadable, check_depth, fields_of, items_of
from cmbs.kit.findings import Place, Rule

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORD = re.compile(r"true|false|null")
_KINDS = {"true": ScalarKind.BOOLEAN, "false": ScalarKind.BOOLEAN, "null": ScalarKind.NULL}


def read_json(text: str) -> Node:
    """The document; `Unreadable` says what is wrong and where."""
    return _Reader(text).document()


class _Reader:
    """One pass over one text. Recursive, and as deep as `check_depth` lets it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def document(self) -> Node:
        node = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._unexpected("the end of the text")
        return node

    def _value(self, depth: int) -> Node:
        self._skip()
        place = self._place()
        match self._text[self._at : self._at + 1]:
            case "{":
                check_depth(depth + 1, place)
                return self._fields(place, depth + 1)
            case "[":
                check_depth(depth + 1, place)
                return self._items(place, depth + 1)
            case '"':
                return self._string(place)
            case _:
                return self._bare(place)

    def _fields(self, place: Place, depth: int) -> Fields:
        entries: list[tuple[Scalar, Node]] = []
        self._at += 1
        while not self._ends("}", begun=bool(entries)):
            self._skip()
            if not self._text.startswith('"', self._at):
                raise self._unexpected("a name in double quotes")
            name = self._string(self._place())
            self._skip()
            if not self._text.startswith(":", self._at):
                raise self._unexpected("`:`")
            self._at += 1
            entries.append((name, self._value(depth)))
        return fields_of(place, entries)

    def _items(self, place: Place, depth: int) -> Items:
        items: list[Node] = []
        self._at += 1
        while not self._ends("]", begun=bool(items)):
            items.append(self._value(depth))
        return items_of(place, items)

    def _ends(self, bracket: str, *, begun: bool) -> bool:
        """Whether the list is over; otherwise the next of it comes, after the comma that this takes."""
        self._skip()
        if self._text.startswith(bracket, self._at):
            self._at += 1
            return True
        if begun:
            if not self._text.startswith(",", self._at):
                raise self._unexpected(f"`,` or `{bracket}`")
            self._at += 1
        return False

    def _string(self, place: Place) -> Scalar:
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError as exc:
            raise Unreadable(Rule.SYNTAX, f"not JSON: {exc.msg.lower()}", Place(exc.lineno, exc.colno)) from exc
        return Scalar(place, ScalarKind.TEXT, value)

    def _bare(self, place: Place) -> Scalar:
        if match := _WORD.match(self._text, self._at):
            self._at = match.end()
            return Scalar(place, _KINDS[match.group()], match.group())
        if match := _NUMBER.match(self._text, self._at):
            self._at = match.end()
            return Scalar(place, ScalarKind.NUMBER, match.group())
        raise self._unexpected("a value")

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _place(self) -> Place:
        line = bisect_right(self._line_starts, self._at)
        return Place(line, self._at - self._line_starts[line - 1] + 1)

    def _unexpected(self, wanted: str) -> Unreadable:
        found = self._text[self._at : self._at + 1]
        return Unreadable(
            Rule.SYNTAX, f"not JSON: expected {wanted}, found {f'`{found}`' if found else 'the end'}", self._place()
        )
