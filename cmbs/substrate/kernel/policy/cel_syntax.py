"""The syntax of conditions: cel-python parses, and this says where everything stands and what the literals are.

Nothing of its evaluator is used. A fault has the place in the text at which it shows.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from cmbs.ledger.canonical import MAX_SAFE_INTEGER

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

MAX_CONDITION_CHARACTERS = 16_384

_ESCAPE = re.compile(r"\\(?:([0-3][0-7]{2})|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIMPLE_ESCAPES = dict(zip("abfnrtv\\'\"`?", "\a\b\f\n\r\t\v\\'\"`?", strict=True))


class Replacement(NamedTuple):
    """A name of a condition by where it begins, and the known one that may be meant."""

    start: int
    found: str
    accepted: str


class ConditionFault(ValueError):
    """A text that is no condition; `index` is the character at which that shows."""

    def __init__(self, index: int, message: str, fix: Replacement | None = None) -> None:
        super().__init__(message)
        self.index = index
        self.fix = fix


class Span(NamedTuple):
    """From which character of the condition to which."""

    start: int
    end: int


@cache
def _load_parser() -> Lark:
    """The parser of cel-python. Loading it takes a third of a second, so it waits until a condition is read."""
    from celpy.celparser import CELParser
    from lark import Token

    class PlacingParser(CELParser):
        """Gives `true` and `false` the places that cel-python leaves away."""

        @staticmethod
        def ambiguous_literals(t: Token) -> Token:
            return Token.new_borrow_pos("BOOL_LIT", t.value, t) if t.value in {"true", "false"} else t

    # cel-python keeps one parser for all; that of others stays as it is.
    shared = CELParser.CEL_PARSER
    CELParser.CEL_PARSER = None
    own: Any = PlacingParser().CEL_PARSER
    CELParser.CEL_PARSER = shared
    return cast("Lark", own)


def parse_condition(text: str) -> Tree[Token]:
    """The tree of a condition; ConditionFault where it is not CEL, too long, or has a comment."""
    if len(text) > MAX_CONDITION_CHARACTERS:
        raise ConditionFault(0, f"a condition has at most {MAX_CONDITION_CHARACTERS:,} characters")
    tree = _parse(text)
    if "//" in text:
        _refuse_comment(text, tree)
    return tree


def _parse(text: str) -> Tree[Token]:
    from lark.exceptions import UnexpectedInput, UnexpectedToken

    try:
        return _load_parser().parse(text)
    except UnexpectedInput as exc:
        # Of a text that ends too early, the place that the parser names is that of the last word.
        ends = isinstance(exc, UnexpectedToken) and exc.token.type == "$END"
        index = len(text) if ends else _index_of(text, exc.line, exc.column)
        raise ConditionFault(index, _describe_syntax(text, index)) from exc


def _index_of(text: str, line: int, column: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return start + column - 1


def _refuse_comment(text: str, tree: Tree[Token]) -> None:
    """Where YAML folds lines, a comment would swallow what follows it, so there are none."""
    rest = list(text)
    for literal in tree.iter_subtrees():
        if literal.data == "literal":
            start, end = span_of(literal)
            rest[start:end] = " " * (end - start)
    index = "".join(rest).find("//")
    if index >= 0:
        raise ConditionFault(index, "no `//` comments in a condition: write a comment of YAML above it")


def _describe_syntax(text: str, index: int) -> str:
    rest = text[index:].lstrip()
    if not text.strip():
        return "a condition is empty; leave `when` out where it always holds"
    for word, instead in (("and", "&&"), ("or", "||"), ("not", "!"), ("=", "=="), ("&", "&&"), ("|", "||")):
        if re.match(rf"{re.escape(word)}(?![\w=&|])", rest):
            return f"not CEL: write `{instead}` and not `{word}`"
    shown = rest.split(maxsplit=1)[0][:40] if rest else ""
    return f"not CEL at `{shown}`" if shown else "not CEL: the condition ends too early"


# --- trees of the grammar ---------------------------------------------------------------------------------------------


def child_of(tree: Tree[Token], place: int = 0) -> Tree[Token]:
    """A child that is a tree itself."""
    return cast("Tree[Token]", tree.children[place])


def text_of(tree: Tree[Token], place: int = 0) -> str:
    """A child that is a word."""
    return str(tree.children[place])


def span_of(tree: Tree[Token]) -> Span:
    """Where a tree stands in the condition."""
    return Span(tree.meta.start_pos, tree.meta.end_pos)


# --- literals ---------------------------------------------------------------------------------------------------------


def read_literal(token: Token) -> Any:
    """The value of a literal; ConditionFault where JSON has none such."""
    text, start = str(token), token.start_pos or 0
    match token.type:
        case "NULL_LIT":
            return None
        case "BOOL_LIT":
            return text == "true"
        case "INT_LIT":
            number = int(text, 16) if "x" in text else int(text)
            if abs(number) > MAX_SAFE_INTEGER:
                raise ConditionFault(start, "the number is not exact in I-JSON; write it as text")
            return number
        case "FLOAT_LIT":
            if not math.isfinite(float(text)):
                raise ConditionFault(start, "the number is too large")
            return float(text)
        case "STRING_LIT" | "MLSTRING_LIT":
            return _unescape(text, start)
        case "UINT_LIT":
            raise ConditionFault(start, "numbers have no `u` here: JSON has one kind of them")
        case _:
            raise ConditionFault(start, "there are no bytes here: write text")


def _unescape(text: str, start: int) -> str:
    is_raw = text[0] in "rR"
    quoted = text[1:] if is_raw else text
    quotes = 3 if quoted[:3] in {'"""', "'''"} and len(quoted) >= 6 else 1  # noqa: PLR2004 - three and three quotes
    content = quoted[quotes:-quotes]
    if is_raw:
        return content

    def replace(match: re.Match[str]) -> str:
        octal, short, code, long, single = match.groups()
        if single is not None:
            if single not in _SIMPLE_ESCAPES:
                raise ConditionFault(start, f"there is no escape `\\{single}`; write `\\\\` for a backslash")
            return _SIMPLE_ESCAPES[single]
        number = int(octal, 8) if octal is not None else int(short or code or long, 16)
        if 0xD800 <= number <= 0xDFFF or number > 0x10FFFF:  # noqa: PLR2004 - surrogates, and the end of Unicode
            raise ConditionFault(start, f"`{match.group()}` is no character")
        return chr(number)

    return _ESCAPE.sub(replace, content)
