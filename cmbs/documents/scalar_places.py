"""Where a character of a text value stands in its document, however the text was quoted, folded or indented.

YAML folds lines, strips indentation and has escapes; JSON has escapes. They add and take away nothing but white space,
so that all other characters stand in the document in the order that they have in the value.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice

from cmbs.documents.findings import Place

_BLANK = frozenset(" \t\r\n\x85\u2028\u2029")
_LINE_END = {True: re.compile("\n"), False: re.compile("\r\n|[\r\n\x85\u2028\u2029]")}
# What may stand before a value of YAML: an anchor, a tag.
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_HIGH, _LOW = r"u[dD][89abAB][0-9a-fA-F]{2}", r"u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(
    rf"\\(?:(?P<pair>{_HIGH}\\{_LOW})|(?:x(?=\w{{2}})|u(?=\w{{4}})|U)(?P<code>(?<=x)\w{{2}}|(?<=u)\w{{4}}|\w{{8}})|(?P<one>.))",
    re.DOTALL,
)
# Single characters that stand for white space after a backslash; a line end is taken away with it.
_BLANK_ESCAPES = frozenset("ntrNLP") | _BLANK


class DocumentText:
    """The text of a document, in which the characters of its values are looked up."""

    def __init__(self, text: str, *, is_json: bool) -> None:
        self._text = text
        self._line_starts = [0, *(match.end() for match in _LINE_END[is_json].finditer(text))]

    def locate(self, place: Place, value: str, index: int) -> Place:
        """The place of the character `index` of a value that begins at `place`.

        White space is found where the next other character is, and the end of the value at its last one.
        """
        before = sum(character not in _BLANK for character in value[:index])
        last = sum(character not in _BLANK for character in value) - 1
        if last < 0:
            return place
        start = self._line_starts[place.line - 1] + place.column - 1
        offset = next(islice(self._visible_from(start), min(before, last), None))
        line = bisect_right(self._line_starts, offset)
        return Place(line, offset - self._line_starts[line - 1] + 1)

    def _visible_from(self, start: int) -> Iterator[int]:
        """The offsets of the characters of a value that are no white space, and of whatever follows it."""
        text = self._text
        properties = _PROPERTIES.match(text, start)
        offset = properties.end() if properties is not None else start
        if text[offset : offset + 1] in {'"', "'"}:
            return self._inside_quotes(offset + 1, text[offset])
        if text[offset : offset + 1] in {"|", ">"}:
            # The content of a block begins on the line after its header.
            offset = self._line_starts[bisect_right(self._line_starts, offset)]
        return (at for at in range(offset, len(text)) if text[at] not in _BLANK)

    def _inside_quotes(self, offset: int, quote: str) -> Iterator[int]:
        text = self._text
        while True:
            end, is_blank = offset + 1, text[offset] in _BLANK
            escape = _ESCAPE.match(text, offset) if quote == '"' else None
            if escape is not None:
                end, code = escape.end(), escape["code"]
                is_blank = escape["one"] in _BLANK_ESCAPES or (code is not None and chr(int(code, 16)) in _BLANK)
            elif text.startswith("''", offset) and quote == "'":
                end += 1
            if not is_blank:
                yield offset
            offset = end
