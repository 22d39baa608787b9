"""The comparisons of predicates: what two operands must be for an operator to hold.

What is missing cannot be compared: every comparison with it is false, `ne` too. Numbers are compared as JSON does (1 is
1.0), and are never truth values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from cmbs.substrate.kernel.policy.references import MISSING, EvaluationContext, Reference

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
ORDERS = frozenset(_ORDERS)
# Every operator that compares two operands.
COMPARISONS = frozenset({"eq", "ne", "in", "prefix"}) | ORDERS

# Whether a predicate holds, given what its references found, in their order.
Test: TypeAlias = Callable[[EvaluationContext, list[Any]], bool]


class Sight(NamedTuple):
    """What there is to see at an operand: a JSON value or MISSING, and the text of a whole key."""

    value: Any
    text: str | None = None


class Literal(NamedTuple):
    """An operand that is written in the policy itself."""

    value: Any


Operand: TypeAlias = Reference | Literal


def same(found: object, literal: object) -> bool:
    """Whether two JSON values are equal: numbers by value, truth values only with themselves."""
    if isinstance(literal, bool) or isinstance(found, bool):
        return found is literal
    if isinstance(literal, list):
        return isinstance(found, list) and len(found) == len(literal) and all(map(same, found, literal))
    if isinstance(literal, dict):
        return (
            isinstance(found, dict)
            and found.keys() == literal.keys()
            and all(same(found[name], literal[name]) for name in literal)
        )
    return found == literal


def compare(op: str, left: Sight, right: Sight) -> bool:
    """Whether a comparison holds between what there is to see on its two sides."""
    if left.value is MISSING or right.value is MISSING:
        return False
    match op:
        case "eq":
            return _is_equal(left, right)
        case "ne":
            return not _is_equal(left, right)
        case "in":
            if isinstance(right.value, dict):
                # As in CEL: whether a mapping has the key.
                return isinstance(left.value, str) and left.value in right.value
            return isinstance(right.value, list) and any(_is_equal(left, Sight(each)) for each in right.value)
        case "prefix":
            texts = isinstance(left.value, str) and isinstance(right.value, str)
            return texts and left.value.startswith(right.value)
        case _:
            return is_number(left.value) and is_number(right.value) and _ORDERS[op](left.value, right.value)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a JSON value is a number, which truth values are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_equal(left: Sight, right: Sight) -> bool:
    # The text under a whole key is equal to itself, also where it happens to look like JSON of something else.
    return (
        same(left.value, right.value)
        or (left.text is not None and left.text == right.value)
        or (right.text is not None and right.text == left.value)
    )


def see(operand: Operand, seen: EvaluationContext) -> Sight:
    """What there is to see at an operand."""
    return Sight(operand.value) if isinstance(operand, Literal) else _sight(operand, seen, operand.find(seen))


def _sight(reference: Reference, seen: EvaluationContext, value: Any) -> Sight:
    text = MISSING if reference.find_text is None else reference.find_text(seen)
    return Sight(value, text if isinstance(text, str) else None)


def comparison(op: str, left: Operand, right: Operand) -> Test:
    """The test of a comparison. That of a reference with a literal does not depend on the version of the payload."""
    if isinstance(left, Reference) and isinstance(right, Literal):
        if op == "eq":
            return _equality(left, right.value)
        if op == "in":
            return _membership(left, right.value)

    def test(seen: EvaluationContext, found: list[Any]) -> bool:
        values = iter(found)
        one, other = (
            Sight(operand.value) if isinstance(operand, Literal) else _sight(operand, seen, next(values))
            for operand in (left, right)
        )
        return compare(op, one, other)

    return test


def _equality(reference: Reference, literal: object) -> Test:
    find_text = reference.find_text
    if isinstance(literal, str) and find_text is not None:
        return lambda seen, found: found[0] == literal or find_text(seen) == literal
    return lambda _, found: same(found[0], literal)


def _membership(reference: Reference, literals: list[object]) -> Test:
    find_text = reference.find_text
    texts = frozenset(literal for literal in literals if isinstance(literal, str))
    others = tuple(literal for literal in literals if not isinstance(literal, str))

    def test(seen: EvaluationContext, found: list[Any]) -> bool:
        if find_text is not None and find_text(seen) in texts:
            return True
        if isinstance(found[0], str):
            return found[0] in texts
        return any(same(found[0], literal) for literal in others)

    return test
