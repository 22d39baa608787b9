"""Whether predicates can hold together at all: on no matter which state, belief, candidate and actor.

`never` is a proof, not a guess: it answers True only where every possible sight of the references was covered. What
cannot be taken apart (a schema with a pattern, a comparison of two references) counts as something that may be either
way, the same way wherever the same thing is asked, and false where something that it compares is not there. Where that
leaves a doubt, the budget is spent, or the caller stops it, the answer is False: not proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from cmbs.ledger import canonical
from cmbs.messages import ActorKind
from cmbs.substrate.kernel.insight.belief_fields import belief_field
from cmbs.substrate.kernel.insight.bounds import MayGoOn, without_bound
from cmbs.substrate.kernel.insight.value_classes import (
    Question,
    classes_of,
    holds_for,
    is_classified,
    question_of,
    questions_of,
)
from cmbs.substrate.kernel.policy.operators import Sight
from cmbs.substrate.kernel.policy.policy import SCHEMA
from cmbs.substrate.kernel.policy.predicates import Node, Probe
from cmbs.substrate.kernel.policy.references import MISSING, value_of
from cmbs.substrate.kernel.policy.schemas import compile_schema, decode_schema

MAX_STEPS = 20_000
# After so many, a search asks whether it may go on.
_STEPS_AT_ONCE = 16


GONE = Sight(MISSING)


class Term(NamedTuple):
    """A compiled predicate, None for one that always holds, and whether it is to hold."""

    root: Node | None
    holds: bool = True


class Scope(NamedTuple):
    """Which candidates are meant: calls of one tool, calls of any, deltas, or all of these."""

    tool_id: str | None = None
    calls: bool = True
    deltas: bool = True


# What a search assigns: a sight to a reference, or an answer to a question that is not taken apart.
_Key: TypeAlias = tuple[str, str]
_Assigned: TypeAlias = dict[_Key, Any]
_Tree: TypeAlias = Callable[[_Assigned], bool | None]


# What is known of some references: the only sights there are.
Pins: TypeAlias = Mapping[str, Sequence[Sight]]
_NO_PINS: Pins = {}


def never(
    terms: Sequence[Term],
    scope: Scope,
    pairs: Mapping[str, str],
    pins: Pins = _NO_PINS,
    may_go_on: MayGoOn = without_bound,
) -> bool:
    """Whether it is proved that these predicates are never all as asked, for any candidate in scope."""
    if any(term.root is None and not term.holds for term in terms):
        return True
    open_terms = [(term.root, term.holds) for term in terms if term.root is not None]
    return bool(open_terms) and may_go_on() and not _Search(open_terms, scope, pairs, pins, may_go_on).finds()


class Prover:
    """Proofs about one policy, until its caller stops them."""

    def __init__(self, pairs: Mapping[str, str], may_go_on: MayGoOn) -> None:
        self._pairs = pairs
        self._may_go_on = may_go_on
        # Whether it was stopped: what is not proved then may still be so.
        self.has_stopped = False

    def never(self, terms: Sequence[Term], scope: Scope, pins: Pins = _NO_PINS) -> bool:
        """As `never`; False where it was stopped."""
        return not self.has_stopped and never(terms, scope, self._pairs, pins, self._goes_on)

    def _goes_on(self) -> bool:
        self.has_stopped = not self._may_go_on()
        return not self.has_stopped


class _Spent(Exception):
    """The budget is gone."""


class _Search:
    """One search, reference by reference, for a way in which the terms are as asked."""

    def __init__(
        self,
        terms: Sequence[tuple[Node, bool]],
        scope: Scope,
        pairs: Mapping[str, str],
        pins: Pins,
        may_go_on: MayGoOn,
    ) -> None:
        self._may_go_on = may_go_on
        self._pairs = pairs
        self._scope = scope
        questions = [question for root, _ in terms for question in questions_of(root)]
        # Whether there is more to see somewhere than the values that stand for it.
        self._doubt = False
        self._free = {_atom(each) for each in questions if not is_classified(each, pairs)}
        asked: dict[str, list[Question]] = {}
        for question in questions:
            for reference in question.references:
                asked.setdefault(reference, [])
                if _atom(question) not in self._free:
                    asked[reference].append(question)
        self._domains: list[tuple[_Key, list[Any]]] = [
            (("see", reference), list(pins[reference]) if reference in pins else self._sights(reference, about))
            for reference, about in sorted(asked.items())
        ]
        self._domains += [(atom, [True, False]) for atom in sorted(self._free)]
        self._trees = [(self._tree(root), wanted) for root, wanted in terms]
        self._steps = 0

    def finds(self) -> bool:
        """Whether there is such a way, or may be."""
        try:
            return self._doubt or self._assign(0, {})
        except _Spent:
            return True

    def _assign(self, place: int, assigned: _Assigned) -> bool:
        self._steps += 1
        if self._steps > MAX_STEPS or (self._steps % _STEPS_AT_ONCE == 0 and not self._may_go_on()):
            raise _Spent
        found = [(tree(assigned), wanted) for tree, wanted in self._trees]
        if any(truth is not None and truth is not wanted for truth, wanted in found):
            return False
        if all(truth is not None for truth, _ in found):
            return True
        key, domain = self._domains[place]
        for choice in domain:
            assigned[key] = choice
            if self._assign(place + 1, assigned):
                return True
        assigned.pop(key, None)
        return False

    # --- what there is to see ---

    def _sights(self, reference: str, about: list[Question]) -> list[Sight]:
        classes = classes_of(about, self._pairs)
        self._doubt = self._doubt or not classes.complete
        # What a delta sets is text, and can be seen as such, like what is under a key.
        if reference.startswith("$") and not reference.startswith("$args.set."):
            values = _special(reference, list(classes.values))
            if reference == "$tool.id":
                return self._tool_sights(values)
            return [Sight(value) for value in values] + ([] if reference.startswith("$actor.") else [GONE])
        texts = {literal for question in about for literal in _texts(question)}
        sights = [Sight(value_of(text), text) for text in sorted(texts)]
        return [*sights, *(Sight(value) for value in classes.values), GONE]

    def _tool_sights(self, values: list[Any]) -> list[Sight]:
        scope = self._scope
        if scope.tool_id is not None:
            return [Sight(scope.tool_id)]
        sights = [Sight(value) for value in values] if scope.calls else []
        return [*sights, GONE] if scope.deltas else sights

    # --- three-valued evaluation ---

    def _tree(self, node: Node) -> _Tree:
        if not isinstance(node, Probe):
            parts = [self._tree(part) for part in node.parts]
            if node.op == "not":
                return lambda assigned: _negate(parts[0](assigned))
            return lambda assigned: _join((part(assigned) for part in parts), decides=node.op == "any")
        question = question_of(node)
        keys = [("see", reference) for reference in question.references]
        if question.op in {"exists", "missing"}:
            there = _all_there(keys)
            return there if question.op == "exists" else lambda assigned: _negate(there(assigned))
        atom = _atom(question)
        if atom in self._free:
            return lambda assigned: False if _is_any_gone(assigned, keys) else assigned.get(atom)
        test, key = self._test(question), keys[0]
        return lambda assigned: None if key not in assigned else test(assigned[key])

    def _test(self, question: Question) -> Callable[[Sight], bool]:
        if question.op != "schema":
            return lambda sight: holds_for(question, sight)
        literal = question.literal
        schema = decode_schema(self._pairs[SCHEMA + literal]) if isinstance(literal, str) else literal
        validator = compile_schema(schema)
        return lambda sight: sight.value is not MISSING and validator.is_valid(sight.value)


def _is_any_gone(assigned: _Assigned, keys: list[_Key]) -> bool:
    """Whether something that is compared is known not to be there, so that no comparison holds."""
    return any(key in assigned and assigned[key].value is MISSING for key in keys)


def _atom(question: Question) -> _Key:
    """The name of a question, the same wherever the same thing is asked."""
    return question.op, canonical.encode([*question.references, question.literal]).decode()


def _texts(question: Question) -> list[str]:
    if question.op in {"eq", "ne"}:
        return [question.literal] if isinstance(question.literal, str) else []
    return [each for each in question.literal if isinstance(each, str)] if question.op == "in" else []


def _special(reference: str, values: list[Any]) -> list[Any]:
    """Of these values, those that such a reference can have at all."""
    belief = belief_field(reference)
    match reference if belief is None else belief.field:
        case "$tool.id" | "$actor.id":
            return [value for value in values if isinstance(value, str)]
        case "$actor.kind":
            return [kind.value for kind in ActorKind]
        case "n_survivors":
            return [0, 1, 2, *(value for value in values if type(value) is int and value >= 0)]
        case "entropy_proxy":
            return [0, 1, *(value for value in values if type(value) in (int, float) and value >= 0)]
        case "terminated" | "$tool.writes":
            return [True, False]
        case "active_obligation_id":
            return [None, *(value for value in values if isinstance(value, str))]
        case "$actor.roles" | "survivors" | "concluded":
            return _lists(values)
        case _:
            return values


def _lists(values: list[Any]) -> list[Any]:
    """Lists that are asked for, and beside these: none at all, and one of an unknown id."""
    others = [[value] for value in values if isinstance(value, str)]
    return [[], *others, *(value for value in values if isinstance(value, list))]


def _all_there(keys: list[_Key]) -> _Tree:
    def test(assigned: _Assigned) -> bool | None:
        return _join((None if key not in assigned else _is_there(assigned[key].value) for key in keys), decides=False)

    return test


def _is_there(value: Any) -> bool:
    return value is not MISSING and value is not None


def _negate(truth: bool | None) -> bool | None:  # noqa: FBT001
    return None if truth is None else not truth


def _join(truths: Iterable[bool | None], *, decides: bool) -> bool | None:
    """All of them where False decides, any of them where True does."""
    doubt = False
    for truth in truths:
        if truth is decides:
            return decides
        doubt = doubt or truth is None
    return None if doubt else not decides
