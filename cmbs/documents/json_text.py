"""JSON as a tree with places.

The standard library decides whether a text is JSON and says where it is not. It gives no places of values, so these
come from the tokens of a text that it has accepted.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress

from cmbs.documents.findings import Place, Rule, Unreadable
from cmbs.documents.nodes import Items, Node, Scalar, ScalarKind, TreeReader, classify_plain, go_on

_TOKEN = re.compile(r'[\[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s,:\[\]{}"]+')


def read_json(text: str, pause: Callable[[], object] = go_on) -> Node:
    """The document; `Unreadable` says what is wrong and where."""
    # What is too deep for the standard library is too deep for a document too, and refused below with its place.
    with suppress(RecursionError):
        try:
            json.loads(text, parse_int=str, parse_float=str)
        except json.JSONDecodeError as exc:
            message = f"not JSON: {exc.msg[:1].lower()}{exc.msg[1:]}"
            raise Unreadable(Rule.SYNTAX, message, Place(exc.lineno, exc.colno)) from exc
    return _Reader(text, pause).read()


class _Reader(TreeReader):
    def __init__(self, text: str, pause: Callable[[], object]) -> None:
        super().__init__(pause)
        self._tokens = _TOKEN.finditer(text)
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def read(self) -> Node:
        return self._node(next(self._tokens), 1)

    def _node(self, token: re.Match[str], depth: int) -> Node:
        line = bisect_right(self._line_starts, token.start())
        place = Place(line, token.start() - self._line_starts[line - 1] + 1)
        self._count(1, place)
        word = token.group()
        match word[0]:
            case "[":
                self._check_depth(depth, place)
                return Items(place, tuple(self._children("]", depth + 1)))
            case "{":
                self._check_depth(depth, place)
                children = self._children("}", depth + 1)
                return self._make_fields(place, zip(children, children, strict=True))
            case '"':
                return self._make_text(place, json.loads(word))
            case _:
                kind = classify_plain(word)
                if kind is ScalarKind.TEXT:
                    raise Unreadable(Rule.SYNTAX, f"not JSON: `{word}` is no number of JSON", place)
                return Scalar(place, kind, word)

    def _children(self, end: str, depth: int) -> Iterator[Node]:
        while (token := next(self._tokens)).group() != end:
            yield self._node(token, depth)
