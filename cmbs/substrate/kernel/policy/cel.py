"""Conditions of the policy file: a subset of CEL, translated to predicates. Only predicates are ever evaluated.

cel-python parses; nothing of its evaluator is used. What the subset lacks is refused, at its place and with what to
write instead: a condition means exactly what it is translated to, or nothing.

What a comparison reads and does not find makes it false. `x == null` asks for a JSON null, so that it is false where x
is not there. `has(x)` holds where x is there and is no null. `x` alone is `x == true`, `!x` is `x == false`, and
`!(!x)` is `x`. `x in y` asks whether a list has a member, and a mapping a key.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, cast

from cmbs.documents.fields import suggest
from cmbs.substrate.kernel.model import NAMESPACES
from cmbs.substrate.kernel.policy.cel_syntax import (
    ConditionFault,
    Replacement,
    Span,
    child_of,
    parse_condition,
    read_literal,
    span_of,
    text_of,
)
from cmbs.substrate.kernel.policy.references import BELIEF_FIELDS, SEGMENTS, ReferenceFault, compile_reference

if TYPE_CHECKING:
    from lark import Token, Tree

# Parentheses, negations and lists in each other. The payload of a constraint allows for fewer.
MAX_CONDITION_DEPTH = 32

# Conditions of different shapes of which one file keeps the parsed form.
MAX_SHAPES = 1_000

# A character that stands for itself in no condition, so that what begins with it is a text that was taken out.
_MARK = "\ue000"
_MARK_LENGTH = len(f"{_MARK}{0:04}")
# Where a quote may be none: quotes of other kinds, and escapes.
_UNCERTAIN = re.compile(rf"""['\\{_MARK}]|\"{{3}}""")

_ROOTS = {name: f"${name}" for name in ("args", "tool", "actor", "case", "belief")} | {
    name: name for name in NAMESPACES
}
_STATE = "state"
_NAMES = (*_ROOTS, _STATE, "has")
_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_ORDERS = frozenset({"lt", "le", "gt", "ge"})
_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# What is one text or truth value, and the fields of belief that are lists.
_SINGLE = frozenset({"$actor.id", "$actor.kind", "$case.id", "$tool.id", "$tool.writes"})
_LISTS = frozenset({"survivors", "concluded"})
_NEGATED = {"exists": "missing", "missing": "exists"}
# What to write instead of what the subset lacks.
_INSTEAD = {
    "arithmetic": "conditions do not calculate: write the number, or let a fact hold the result",
    "ternary": "there is no `? :` here: write two rules, or `a && b || !a && c`",
    "map": "there are no mappings here: compare one field at a time",
    "object": "there are no messages here: compare one field at a time",
    "chain": "a comparison has two sides: join two of them with `&&`",
    "condition": "a condition is not compared: join conditions with `&&` and `||`",
    "literals": "a comparison of two literals reads nothing: leave it out, or name what it is about",
}
_FUNCTIONS = {
    "size": "there is no `size` here: a belief session has `n_survivors`",
    "matches": "there is no `matches` here: use `startsWith`, or a payload with the operator `schema` and a `pattern`",
    "contains": 'there is no `contains` here: write `"x" in list`, or a payload with the operator `schema`',
    "endsWith": "there is no `endsWith` here: use a payload with the operator `schema` and a `pattern`",
    "type": "there is no `type` here: use a payload with the operator `schema` and a `type`",
    **dict.fromkeys(
        ("all", "exists", "exists_one", "map", "filter"),
        "there are no macros here: write `x in list`, or a payload with the operator `schema`",
    ),
}


class Condition(NamedTuple):
    """A translated condition: its predicate, and what every predicate in it was written as.

    The keys of `spans` are places below the predicate, as in `.args[1]`; that of the whole is empty.
    """

    predicate: dict[str, Any]
    spans: dict[str, Span]


class _Read(NamedTuple):
    """An operand that is looked up."""

    reference: str
    span: Span


class _Literal(NamedTuple):
    """An operand that is what it says; a list may hold operands that are looked up."""

    value: Any
    span: Span


class _Term(NamedTuple):
    """A predicate: over others where it has `parts`, over operands otherwise."""

    op: str
    span: Span
    args: tuple[Any, ...] = ()
    parts: tuple[_Term, ...] = ()
    # Whether it is a name alone, which `!` asks to be false.
    alone: bool = False


_Operand: TypeAlias = _Read | _Literal


def translate_condition(text: str) -> Condition:
    """The predicate that a condition stands for; ConditionFault where it is none of the subset."""
    term = _Translator().read_condition(parse_condition(text), 0)
    spans: dict[str, Span] = {}
    return Condition(_build(term, "", spans), spans)


class ConditionTranslator:
    """Translates the conditions of one file. Those that differ in nothing but their texts are parsed once.

    Parsing is nine tenths of the work, and a large file is mostly one rule over and over.
    """

    def __init__(self) -> None:
        # None for those whose texts mean more than themselves, or which are no conditions at all.
        self._shapes: dict[str, Condition | None] = {}

    def translate(self, text: str) -> Condition:
        """As `translate_condition`."""
        pieces = text.split('"')
        # Every second piece is a text in quotes, where no quote and no escape is of another kind.
        texts = {f"{_MARK}{place:04}": piece for place, piece in enumerate(pieces[1::2])}
        if _UNCERTAIN.search(text) is not None or any("\n" in each for each in texts.values()):
            return translate_condition(text)
        pieces[1::2] = texts
        shape = '"'.join(pieces)
        if shape not in self._shapes and len(self._shapes) < MAX_SHAPES:
            self._shapes[shape] = _translate_shape(shape)
        known = self._shapes.get(shape)
        return translate_condition(text) if known is None else _fill(known, shape, texts)


def _translate_shape(shape: str) -> Condition | None:
    """A condition with marks for its texts; None where a mark is other than a literal, as in `args["…"]`."""
    try:
        condition = translate_condition(shape)
    except ConditionFault:
        return None
    found = set(_strings_in(condition.predicate))
    return condition if all(len(each) == _MARK_LENGTH or _MARK not in each for each in found) else None


def _strings_in(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for each in content.values() if isinstance(content, dict) else content:
            yield from _strings_in(each)


def _fill(shape: Condition, written: str, texts: dict[str, str]) -> Condition:
    """The condition with its own texts, and spans that are as much longer or shorter."""
    ends = [written.index(mark) + len(mark) for mark in texts]
    shifts = [0, *accumulate(len(text) - len(mark) for mark, text in texts.items())]

    def move(place: int) -> int:
        return place + shifts[bisect_right(ends, place)]

    spans = {at: Span(move(span.start), move(span.end)) for at, span in shape.spans.items()}
    return Condition(_put_texts(shape.predicate, texts), spans)


def _put_texts(content: Any, texts: dict[str, str]) -> Any:
    if isinstance(content, dict):
        return {name: _put_texts(value, texts) for name, value in content.items()}
    if isinstance(content, list):
        return [_put_texts(value, texts) for value in content]
    return texts.get(content, content) if isinstance(content, str) else content


def _build(term: _Term, at: str, spans: dict[str, Span]) -> dict[str, Any]:
    spans[at] = term.span
    parts = [_build(part, f"{at}.args[{place}]", spans) for place, part in enumerate(term.parts)]
    return {"op": term.op, "args": parts or list(term.args)}


class _Translator:
    """Goes through a tree from the top down. Depth is counted where the grammar nests, so that no text recurses far."""

    # --- conditions ---

    def read_condition(self, tree: Tree[Token], depth: int) -> _Term:
        """An `expr` of the grammar."""
        if depth > MAX_CONDITION_DEPTH:
            _refuse(tree, f"nested more than {MAX_CONDITION_DEPTH} deep")
        if len(tree.children) > 1:
            _refuse(child_of(tree, 1), _INSTEAD["ternary"])
        return self._join("any", child_of(tree), depth)

    def _join(self, op: str, tree: Tree[Token], depth: int) -> _Term:
        """`a || b || c` or `a && b && c`, which the grammar nests to the left."""
        trees, last = [], tree
        while len(last.children) > 1:
            trees.append(child_of(last, 1))
            last = child_of(last)
        trees.append(child_of(last))
        read: Callable[[Tree[Token]], _Term] = (
            (lambda each: self._join("all", each, depth)) if op == "any" else (lambda each: self._relation(each, depth))
        )
        terms = [read(each) for each in reversed(trees)]
        if len(terms) == 1:
            return terms[0]
        # `(a && b) && c` says what `a && b && c` does.
        parts = [part for term in terms for part in (term.parts if term.op == op else (term,))]
        return _Term(op, span_of(tree), parts=tuple(parts))

    def _relation(self, tree: Tree[Token], depth: int) -> _Term:
        if len(tree.children) == 1:
            return self._truth(_unary(child_of(tree)), depth)
        sign, right = child_of(tree), child_of(tree, 1)
        left = child_of(sign)
        if len(left.children) > 1:
            _refuse(tree, _INSTEAD["chain"])
        op = sign.data.removeprefix("relation_")
        first, second = self._operand(_unary(child_of(left)), depth), self._operand(_unary(right), depth)
        if op == "in":
            return _membership(first, second, span_of(tree))
        return _compare(op, first, second, span_of(tree))

    def _truth(self, tree: Tree[Token], depth: int) -> _Term:
        """A `unary` of the grammar that is a condition by itself."""
        negated, whole = False, span_of(tree)
        while len(tree.children) > 1:
            if child_of(tree).data == "unary_neg":
                _refuse(tree, _INSTEAD["arithmetic"])
            negated, tree = not negated, child_of(tree, 1)
        term = self._single(tree, depth + 1)
        return _negate(term, whole) if negated else term

    def _single(self, tree: Tree[Token], depth: int) -> _Term:
        """A condition that is no comparison: in parentheses, `has(x)`, `x.startsWith(y)`, or a truth value."""
        inner = _primary(tree)
        match inner.data:
            case "paren_expr":
                return self.read_condition(child_of(inner), depth)
            case "ident_arg" if text_of(inner) == "has":
                (found,) = self._arguments(inner, 1, depth, "`has` is asked of one name: `has(fact.x)`")
                if not isinstance(found, _Read):
                    _refuse(inner, "`has` is asked of one name: `has(fact.x)`")
                return _Term("exists", span_of(inner), (found.reference,))
            case "member_dot_arg" if text_of(inner, 1) == "startsWith":
                return self._prefix(inner, depth)
            case _:
                operand = self._operand(tree, depth)
                if not isinstance(operand, _Read):
                    _refuse(tree, "a condition compares something; a literal alone is none")
                return _Term("eq", operand.span, (operand.reference, True), alone=True)

    def _prefix(self, tree: Tree[Token], depth: int) -> _Term:
        usage = '`startsWith` is asked of a name, with a text: `args.path.startsWith("/reports/")`'
        subject = self._member(child_of(tree), depth)
        (prefix,) = self._arguments(tree, 2, depth, usage)
        if not isinstance(subject, _Read) or (isinstance(prefix, _Literal) and not isinstance(prefix.value, str)):
            _refuse(tree, usage)
        return _Term("prefix", span_of(tree), (subject.reference, _encode(prefix)))

    # --- operands ---

    def _arguments(self, tree: Tree[Token], place: int, depth: int, usage: str) -> list[_Operand]:
        """The one argument of a call, in a list."""
        listed = [child_of(tree, place)] if len(tree.children) > place else []
        if len(listed) != 1 or len(listed[0].children) != 1:
            _refuse(tree, usage)
        return self._items(listed[0], depth)

    def _items(self, tree: Tree[Token], depth: int) -> list[_Operand]:
        return [self._value(cast("Tree[Token]", each), depth + 1) for each in tree.children]

    def _value(self, tree: Tree[Token], depth: int) -> _Operand:
        """An `expr` of the grammar that is an operand."""
        if depth > MAX_CONDITION_DEPTH:
            _refuse(tree, f"nested more than {MAX_CONDITION_DEPTH} deep")
        if len(tree.children) > 1:
            _refuse(child_of(tree, 1), _INSTEAD["ternary"])
        inner = tree
        for _ in ("conditionalor", "conditionaland", "relation", "addition"):
            inner = child_of(inner)
            if len(inner.children) > 1 and inner.data != "addition":
                _refuse(tree, _INSTEAD["condition"])
        return self._operand(_unary(inner), depth)

    def _operand(self, tree: Tree[Token], depth: int) -> _Operand:
        """A `unary` of the grammar that is an operand."""
        if len(tree.children) > 1:
            found = self._operand(child_of(tree, 1), depth + 1) if depth <= MAX_CONDITION_DEPTH else None
            is_number = isinstance(found, _Literal) and type(found.value) in {int, float}
            if child_of(tree).data != "unary_neg" or not is_number:
                _refuse(tree, _INSTEAD["condition" if child_of(tree).data == "unary_not" else "arithmetic"])
            return _Literal(-cast("_Literal", found).value, span_of(tree))
        return self._member(child_of(tree), depth)

    def _member(self, tree: Tree[Token], depth: int) -> _Operand:
        """A `member` of the grammar: a literal, a list, or a name with what is looked up in it."""
        steps: list[Tree[Token] | Token] = []
        inner = child_of(tree)
        while inner.data != "primary":
            if inner.data in {"member_dot_arg", "member_object"}:
                raise _describe_call(inner, text_of(inner, 1) if inner.data == "member_dot_arg" else "")
            steps.append(inner.children[1])
            inner = child_of(child_of(inner))
        steps.reverse()
        primary = child_of(inner)
        match primary.data:
            case "ident":
                path = [self._segment(each) for each in steps]
                return _Read(_resolve(text_of(primary), path, tree), span_of(tree))
            case "literal" if not steps:
                return _Literal(read_literal(cast("Token", primary.children[0])), span_of(tree))
            case "list_lit" if not steps:
                items = self._items(child_of(primary), depth) if primary.children else []
                return _Literal(items, span_of(tree))
            case "paren_expr" if not steps:
                return self._value(child_of(primary), depth + 1)
            case "ident_arg" | "dot_ident_arg":
                raise _describe_call(primary, text_of(primary))
            case "map_lit":
                raise ConditionFault(span_of(primary).start, _INSTEAD["map"])
            case _:
                message = f"fields are looked up in a name; {suggest('', _NAMES)}"
                raise ConditionFault(span_of(tree).start, message)

    def _segment(self, of: Tree[Token] | Token) -> _Literal:
        if isinstance(of, str):
            return _Literal(str(of), Span(of.start_pos or 0, of.end_pos or 0))
        found = self._value(of, 0)
        is_place = isinstance(found, _Literal) and type(found.value) is int and found.value >= 0
        if not isinstance(found, _Literal) or not (is_place or (isinstance(found.value, str) and found.value)):
            _refuse(of, 'in brackets stands a name in quotes or a place: `args["a-b"]`, `args.items[0]`')
        if isinstance(found.value, str) and found.value.isascii() and found.value.isdecimal():
            _refuse(of, f'`["{found.value}"]` would be a place in a list too: write `[{found.value}]` for a place')
        return _Literal(str(found.value), found.span)


# --- trees of the grammar ---------------------------------------------------------------------------------------------


def _unary(tree: Tree[Token]) -> Tree[Token]:
    """The `unary` in an `addition` of the grammar, which has nothing to add or to multiply."""
    for _ in ("multiplication", "unary"):
        if len(tree.children) > 1:
            # The first child ends with the sign.
            raise ConditionFault(span_of(child_of(tree)).end - 1, _INSTEAD["arithmetic"])
        tree = child_of(tree)
    return tree


def _primary(tree: Tree[Token]) -> Tree[Token]:
    """What a `unary` of the grammar is in the end; the operation on a member where it is one."""
    inner = child_of(child_of(tree))
    return child_of(inner) if inner.data == "primary" else inner


def _refuse(tree: Tree[Token], message: str) -> NoReturn:
    raise ConditionFault(tree.meta.start_pos, message)


def _describe_call(tree: Tree[Token], name: str) -> ConditionFault:
    message = _FUNCTIONS.get(name, f"there is no `{name[:40]}` here; known are `has(x)` and `x.startsWith(y)`")
    if name in {"has", "startsWith"}:
        message = _INSTEAD["condition"]
    return ConditionFault(span_of(tree).start, message if name else _INSTEAD["object"])


# --- references and literals ------------------------------------------------------------------------------------------


def _resolve(root: str, path: list[_Literal], tree: Tree[Token]) -> str:
    """The reference that a name and what follows it stand for."""
    if root == _STATE:
        if not path:
            _refuse(tree, 'name the key of the state: `state["fact.a-b"]`')
        reference = ".".join(each.value for each in path)
    elif root not in _ROOTS:
        start = tree.meta.start_pos
        fix = next((Replacement(start, root, each) for each in get_close_matches(root, _NAMES, 1)), None)
        raise ConditionFault(start, f"there is no name `{root[:40]}`; {suggest(root, _NAMES)}", fix)
    else:
        for place, each in enumerate(path):
            if "." in each.value and not _may_hold_dots(root, path, place):
                raise ConditionFault(each.span.start, f"a name with a dot cannot be looked up in `{root}`")
        reference = ".".join((_ROOTS[root], *(each.value for each in path)))
    try:
        compile_reference(reference)
    except ReferenceFault as exc:
        fix = None if root == _STATE else _find_segment(_ROOTS[root], path)
        raise ConditionFault(tree.meta.start_pos, str(exc), fix) from exc
    return reference


def _find_segment(root: str, path: list[_Literal]) -> Replacement | None:
    """The segment that makes a reference of what is none, in place of one that is like it."""
    segments = [root, *(each.value for each in path)]
    for place, each in enumerate(path, start=1):
        for known in get_close_matches(each.value, SEGMENTS):
            if _is_reference(".".join([*segments[:place], known, *segments[place + 1 :]])):
                return Replacement(each.span.start, each.value, known)
    return None


def _is_reference(text: str) -> bool:
    try:
        compile_reference(text)
    except ReferenceFault:
        return False
    return True


def _may_hold_dots(root: str, path: list[_Literal], place: int) -> bool:
    """Whether the dots of a name are those of a key or of a session id, and no further steps."""
    if root == "args":
        return place == 1 and path[0].value == "set"
    return root in NAMESPACES or (root == "belief" and place == 0)


# --- predicates -------------------------------------------------------------------------------------------------------


def _encode(operand: _Operand) -> Any:
    """An operand that is not the first one, as a payload has it."""
    return {"ref": operand.reference} if isinstance(operand, _Read) else _plain(operand)


def _plain(literal: _Literal) -> Any:
    if not isinstance(literal.value, list):
        return literal.value
    for each in literal.value:
        if isinstance(each, _Read):
            raise ConditionFault(each.span.start, "a name in a list is for `in` alone: `x in [a, b]`")
    return [_plain(each) for each in literal.value]


def _compare(op: str, first: _Operand, second: _Operand, span: Span) -> _Term:
    if isinstance(first, _Literal):
        if isinstance(second, _Literal):
            raise ConditionFault(span.start, _INSTEAD["literals"])
        op, first, second = _COMPARISONS[op], second, first
    if op in _ORDERS and isinstance(second, _Literal) and type(second.value) not in {int, float}:
        raise ConditionFault(second.span.start, f"`{_SIGNS[op]}` compares numbers")
    return _Term(op, span, (first.reference, _encode(second)))


def _membership(first: _Operand, second: _Operand, span: Span) -> _Term:
    if isinstance(second, _Read) and _is_single(second.reference):
        name = second.reference.removeprefix("$")
        message = f"`in` is asked of a list, and `{name}` is never one: compare it with `==`"
        raise ConditionFault(second.span.start, message)
    if isinstance(first, _Literal):
        if isinstance(second, _Literal):
            raise ConditionFault(span.start, _INSTEAD["literals"])
        return _Term("in", span, ({"literal": _plain(first)}, {"ref": second.reference}))
    if isinstance(second, _Read):
        return _Term("in", span, (first.reference, {"ref": second.reference}))
    if not isinstance(second.value, list):
        raise ConditionFault(second.span.start, "`in` is asked of a list")
    # Literals are asked for at once; each name in the list is a comparison of its own.
    literals = [_plain(each) for each in second.value if isinstance(each, _Literal)]
    names = [each for each in second.value if isinstance(each, _Read)]
    parts = [_Term("eq", each.span, (first.reference, {"ref": each.reference})) for each in names]
    if literals or not names:
        parts.insert(0, _Term("in", span, (first.reference, literals)))
    return parts[0] if len(parts) == 1 else _Term("any", span, parts=tuple(parts))


def _is_single(reference: str) -> bool:
    """Whether a reference finds one text, number or truth value, wherever it finds anything."""
    if reference.startswith(("$belief.", "$case.belief.")):
        owner, _, field = reference.rpartition(".")
        return (field in BELIEF_FIELDS and field not in _LISTS and not owner.endswith(".survivor")) or (
            field == "survivor" and owner in {"$case.belief", "$case.belief.independent"}
        )
    return reference in _SINGLE


def _negate(term: _Term, span: Span) -> _Term:
    if term.op in _NEGATED:
        return term._replace(op=_NEGATED[term.op], span=span)
    if term.alone:
        # `!x` asks for false, and `!(!x)` for true, so that nothing is opened by what is not there.
        return _Term("eq", span, (term.args[0], not term.args[1]), alone=True)
    return _Term("not", span, parts=(term,))
