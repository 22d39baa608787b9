"""Random conditions as trees: written as CEL, and evaluated by a few lines that know nothing of predicates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from hypothesis import strategies as st

NOTHING = object()
# Names of what is never a list: `in` is not asked of them.
SINGLE = ("tool.id", "actor.id")
NAMES = ("args.n", "args.path", "args.list", "args.deep.x", "fact.a", 'state["fact.b-c"]', "tool.id", "actor.id")
VALUES = [None, True, False, 0, 1, 2, -1, 1.5, "", "a", "ab", "/r/a", "on", ["a", 1], []]


class Name(NamedTuple):
    text: str


class Op(NamedTuple):
    sign: str
    parts: tuple[Expr, ...]


Expr: TypeAlias = Name | Op | Any


def write(expr: Expr) -> str:
    """The condition as CEL, in parentheses wherever that may be needed."""
    match expr:
        case Name():
            return expr.text
        case Op(sign="has"):
            return f"has({write(expr.parts[0])})"
        case Op(sign="startsWith"):
            return f"{write(expr.parts[0])}.startsWith({write(expr.parts[1])})"
        case Op(sign="!"):
            return f"!({write(expr.parts[0])})"
        case Op(sign="&&" | "||"):
            return f" {expr.sign} ".join(f"({write(each)})" for each in expr.parts)
        case Op():
            return f"{write(expr.parts[0])} {expr.sign} {write(expr.parts[1])}"
        case list():
            return f"[{', '.join(map(write, expr))}]"
        case _:
            return json.dumps(expr)


def holds(expr: Expr, values: Mapping[str, Any]) -> bool:
    """Whether a condition holds where names have these values; NOTHING is what is not there."""
    match expr:
        case Name():
            return look(expr, values) is True
        case Op(sign="!", parts=(Name() as name,)):
            return look(name, values) is False
        case Op(sign="!", parts=(Op(sign="!", parts=(inner,)),)) if _is_name(inner):
            return holds(inner, values)
        case Op(sign="!"):
            return not holds(expr.parts[0], values)
        case Op(sign="&&"):
            return all(holds(each, values) for each in expr.parts)
        case Op(sign="||"):
            return any(holds(each, values) for each in expr.parts)
        case Op(sign="has"):
            return look(expr.parts[0], values) not in (NOTHING, None)
        case _:
            left, right = (look(each, values) for each in expr.parts)
            return left is not NOTHING and right is not NOTHING and compare(expr.sign, left, right)


def _is_name(expr: Expr) -> bool:
    """Whether it is a name, or one that is negated any number of times."""
    return isinstance(expr, Name) or (isinstance(expr, Op) and expr.sign == "!" and _is_name(expr.parts[0]))


def look(expr: Expr, values: Mapping[str, Any]) -> Any:
    if isinstance(expr, Name):
        return values.get(expr.text, NOTHING)
    return [look(each, values) for each in expr] if isinstance(expr, list) else expr


def compare(sign: str, left: Any, right: Any) -> bool:
    match sign:
        case "==":
            return equal(left, right)
        case "!=":
            return not equal(left, right)
        case "in":
            return isinstance(right, list) and any(equal(left, each) for each in right if each is not NOTHING)
        case "startsWith":
            return isinstance(left, str) and isinstance(right, str) and left.startswith(right)
        case _:
            numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (left, right))
            orders = {"<": lambda: left < right, "<=": lambda: left <= right, ">": lambda: left > right}
            return numbers and bool(orders.get(sign, lambda: left >= right)())


def equal(left: Any, right: Any) -> bool:
    """As JSON does it: a truth value is no number."""
    return json.dumps(left) == json.dumps(right) or (
        isinstance(left, int | float)
        and isinstance(right, int | float)
        and left == right
        and bool not in {type(left), type(right)}
    )


_names = st.sampled_from(NAMES).map(Name)
_lists = st.sampled_from([name for name in NAMES if name not in SINGLE]).map(Name)
_literals = st.sampled_from(VALUES)
_numbers = st.sampled_from([0, 1, 2, -1, 1.5])


def _pair(sign: str, left: Any, right: Any, *, turned: bool) -> Op:
    return Op(sign, (right, left) if turned else (left, right))


_leaves = st.one_of(
    _names,
    st.builds(lambda name: Op("has", (name,)), _names),
    st.builds(_pair, st.sampled_from(["==", "!="]), _names, _literals | _names, turned=st.booleans()),
    st.builds(_pair, st.sampled_from(["<", "<=", ">", ">="]), _names, _numbers | _names, turned=st.booleans()),
    st.builds(
        lambda left, right: Op("in", (left, right)),
        _names,
        _lists | st.lists(st.sampled_from(["a", "on", 1, None, True]) | _names, max_size=3),
    ),
    st.builds(lambda left, right: Op("in", (left, right)), st.sampled_from(["a", 1, None]), _lists),
    st.builds(lambda left, right: Op("startsWith", (left, right)), _names, st.sampled_from(["", "a", "/r"]) | _names),
)
CONDITIONS: st.SearchStrategy[Expr] = st.recursive(
    _leaves,
    lambda inner: (
        st.builds(
            lambda sign, parts: Op(sign, tuple(parts)),
            st.sampled_from(["&&", "||"]),
            st.lists(inner, min_size=2, max_size=3),
        )
        | st.builds(lambda part: Op("!", (part,)), inner)
    ),
    max_leaves=6,
)
