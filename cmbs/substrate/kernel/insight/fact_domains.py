"""What facts could be instead of what they are: for each, one alteration for every way that predicates tell apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec

from cmbs.ledger import canonical
from cmbs.substrate.kernel.insight.value_classes import Question, ask_of, classes_of, question_of
from cmbs.substrate.kernel.model import BeliefReading
from cmbs.substrate.kernel.policy.operators import ORDERS, Literal, is_number, see
from cmbs.substrate.kernel.policy.predicates import Predicate, Probe, probes_of
from cmbs.substrate.kernel.policy.references import (
    BELIEF_FIELDS,
    MISSING,
    CaseContext,
    CaseUse,
    EvaluationContext,
    Reference,
    namespace_of,
    value_of,
    walk,
)
from cmbs.substrate.kernel.state import Space

# Ways that are tried for one fact; where there are more, only some are.
MAX_ALTERATIONS = 256
# Bits beyond which a number of survivors is not tried.
_MAX_ENTROPY = 40
_ALTERABLE = ("fact", "goal")
_PRESENT = "present"
# Operators whose literal is a value that the fact can have, as it is written.
_NAMING = frozenset({"eq", "ne", "prefix"})


class Alteration(NamedTuple):
    """A fact that is otherwise: the text of a key, None where it is not there, or a reading of a session."""

    fact: str
    text: str | None = None
    reading: BeliefReading | None = None
    # Of a reading: the fields that are otherwise.
    fields: tuple[str, ...] = ()


class Domain(NamedTuple):
    """Alterations of a fact; where `complete`, every other one would make no other difference than one of these."""

    alterations: tuple[Alteration, ...]
    complete: bool


class FactDomains:
    """The facts that some predicates read, and what each could be.

    `contexts` are what the candidates see: where a fact is compared with what no fact changes, it is known what with.
    """

    def __init__(
        self,
        space: Space,
        belief: Mapping[str, BeliefReading],
        predicates: Mapping[str, Predicate | None],
        goals: Iterable[str],
        contexts: Sequence[EvaluationContext],
        case: CaseContext | None,
    ) -> None:
        self._space = space
        self._case = case
        self._belief = belief
        self._contexts = contexts
        self._pairs = space.policy.pairs
        self._by_predicate: dict[str, set[str]] = {}
        # What is asked of each fact: of a key by the path into it, of a session by its field.
        self._asked: dict[str, dict[tuple[str, ...], list[Question]]] = {}
        # Facts that are compared with other facts: what they are compared with may be otherwise too.
        self._related: set[str] = set()
        for key, predicate in predicates.items():
            self._by_predicate[key] = set() if predicate is None else self._note(predicate)
        for goal in goals:
            self._asked.setdefault(goal, {}).setdefault((), [])
        self.facts = sorted(self._asked)
        self._domains: dict[str, Domain] = {}

    def read_by(self, key: str) -> set[str]:
        """The facts that the predicate under this key reads."""
        return self._by_predicate[key]

    def of(self, fact: str) -> Domain:
        """What a fact could be instead."""
        if fact not in self._domains:
            asked = self._asked[fact]
            make = self._of_session if fact.startswith("$belief.") else self._of_key
            domain = make(fact, asked)
            self._domains[fact] = domain._replace(complete=domain.complete and fact not in self._related)
        return self._domains[fact]

    def _note(self, predicate: Predicate) -> set[str]:
        facts: set[str] = set()
        for probe in probes_of(predicate.root):
            for reference in probe.references:
                for fact, path in self._read(reference):
                    facts.add(fact)
                    asked = self._asked.setdefault(fact, {}).setdefault(path, [])
                    asked += self._questions(probe, reference, fact)
        return facts

    def _questions(self, probe: Probe, reference: Reference, fact: str) -> list[Question]:
        """What a predicate asks of one of its references; compared with another, what that is now stands for it."""
        question = question_of(probe)
        if not question.is_relation:
            return [question]
        left, right = probe.operands
        is_left = left is reference
        other = right if is_left else left
        if isinstance(other, Literal):  # pragma: no cover - a relation is between references
            raise TypeError(question)
        if self._read(other):
            self._related.add(fact)
        literals: list[Any] = []
        for context in self._contexts:
            sight = see(other, context)
            literals += [each for each in (sight.value, sight.text) if each is not MISSING and each is not None]
            literals += [None] if sight.value is None else []
        if probe.op in ORDERS and not any(map(is_number, literals)):
            literals.append(0)  # any number, so that there is one to try
        return [ask_of(reference, probe.op, each, probe.at, is_left=is_left) for each in literals]

    def _read(self, reference: Reference) -> list[tuple[str, tuple[str, ...]]]:
        """The facts that a reference can read, each with the path into it. A case is no fact; its session is one."""
        text = reference.text
        if reference.session_id is not None:
            return [(f"$belief.{reference.session_id}", (text.rpartition(".")[2],))]
        segments = text.split(".")
        if reference.case_use >= CaseUse.BELIEF and self._case is not None:
            return [(f"$belief.{self._case.case_id}", tuple(segments[2:]))]
        return [
            (key, tuple(segments[len(key.split(".")) :])) for key in reference.keys if namespace_of(key) in _ALTERABLE
        ]

    # --- keys of the state ---

    def _of_key(self, key: str, asked: Mapping[tuple[str, ...], list[Question]]) -> Domain:
        now = self._space.state.get(key)
        paths = sorted(asked)
        complete = True
        if paths == [()]:
            texts, complete = self._texts(asked[()])
        else:
            base = MISSING if now is None else value_of(now)
            complete = _is_plain(base, paths)
            choices = []
            for path in paths:
                classes = classes_of(asked[path], self._pairs)
                complete = complete and classes.complete
                choices.append([MISSING, *classes.values])
            texts = [_with(base, paths, choice) for choice in _limit(choices, base, paths)]
            complete = complete and _size(choices) <= MAX_ALTERATIONS
        others: list[str | None] = [text for text in dict.fromkeys(texts) if text != now]
        if now is not None:
            others.append(None)
        named = {text for questions in asked.values() for question in questions for text in _literal_texts(question)}
        others.sort(key=lambda text: (_rank(text, named), _distance(text, now)))
        return Domain(tuple(Alteration(key, text) for text in others), complete)

    def _texts(self, questions: list[Question]) -> tuple[list[str], bool]:
        """Texts of a whole key. A text is equal to itself even where it is JSON of something else."""
        if not questions:
            return [_PRESENT], True  # only whether it is there matters
        classes = classes_of(questions, self._pairs)
        literals = {text for question in questions for text in _literal_texts(question)}
        texts = sorted(literals)
        for value in classes.values:
            text = _as_text(value)
            # With a space behind it, the JSON is the same and the text is another.
            texts.append(text + " " if text in literals and value_of(text) is not text else text)
        return texts, classes.complete

    # --- sessions ---

    def _of_session(self, fact: str, asked: Mapping[tuple[str, ...], list[Question]]) -> Domain:
        session_id = fact.removeprefix("$belief.")
        now = self._belief.get(session_id)
        base = now if now is not None and now.found else BeliefReading(session_id, True, n_survivors=1)
        fields = sorted(path[0] for path in asked if path[1:] == () and path[0] in BELIEF_FIELDS)
        # What is declared of the one survivor, and what would be left without an actor, stays as it is.
        complete = len(fields) == len(asked) and len({"n_survivors", "entropy_proxy", "survivors"} & set(fields)) <= 1
        choices = []
        for field in fields:
            classes = classes_of(asked[(field,)], self._pairs)
            complete = complete and classes.complete
            choices.append(_field_values(field, base, classes.values))
        complete = complete and _size(choices) <= MAX_ALTERATIONS
        readings = [self._reading(base, fields, choice) for choice in _first(product(*choices))]
        distinct = list(dict.fromkeys(msgspec.json.encode(each) for each in readings))
        kept = [msgspec.json.decode(each, type=BeliefReading) for each in distinct]
        others = [each for each in kept if each != now]
        if now is not None and now.found:
            others.append(BeliefReading(session_id, False))
        alterations = [Alteration(fact, None, each, _differing(now, each, fields)) for each in others]
        return Domain(tuple(sorted(alterations, key=lambda each: len(each.fields))), complete)

    @staticmethod
    def _reading(base: BeliefReading, fields: list[str], values: tuple[Any, ...]) -> BeliefReading:
        reading = base
        for field, value in zip(fields, values, strict=True):
            match field:
                case "n_survivors" | "entropy_proxy":
                    kept = None if base.survivors is None or value > len(base.survivors) else base.survivors[:value]
                    reading = msgspec.structs.replace(reading, n_survivors=value, survivors=kept)
                case "survivors":
                    reading = msgspec.structs.replace(reading, n_survivors=len(value), survivors=value)
                case _:
                    reading = msgspec.structs.replace(reading, **{field: value})
        return reading


def _field_values(field: str, base: BeliefReading, values: Iterable[Any]) -> list[Any]:
    """What a field of a reading can be: first what it is, then what is asked for, and at last anything."""
    match field:
        case "n_survivors":
            whole = [value for value in values if type(value) is int and value >= 0]
            return _nearest(base.n_survivors, [*whole, 0, 1, 2])
        case "entropy_proxy":
            bits = [value for value in values if type(value) in (int, float) and 0 <= value <= _MAX_ENTROPY]
            near = [int(2**value) + step for value in bits for step in (-1, 0, 1)]
            return _nearest(base.n_survivors, [*(value for value in near if value >= 0), 0, 1, 2])
        case "terminated":
            return [base.terminated, not base.terminated]
        case "active_obligation_id":
            texts = [value for value in values if isinstance(value, str)]
            return list(dict.fromkeys([base.active_obligation_id, None, *texts]))
        case _:
            now = base.survivors if field == "survivors" else base.concluded
            lists = [
                value for value in values if isinstance(value, list) and all(isinstance(id_, str) for id_ in value)
            ]
            others = [[value] for value in values if isinstance(value, str)]
            return [now or [], *lists, *others, []]


def _nearest(now: int, values: Iterable[int]) -> list[int]:
    """What is, then what is near it: of several numbers that would do, the nearest says most."""
    return sorted({now, *values}, key=lambda value: (abs(value - now), value))


def _differing(now: BeliefReading | None, other: BeliefReading, fields: list[str]) -> tuple[str, ...]:
    if now is None or not now.found or not other.found:
        return tuple(fields)
    names = ["n_survivors" if field == "entropy_proxy" else field for field in fields]
    return tuple(name for name in dict.fromkeys(names) if getattr(now, name) != getattr(other, name))


def _rank(text: str | None, named: Collection[str]) -> int:
    """Of several changes that would do, the one that says most comes first: what is named, then nothing, then any."""
    if text is None:
        return 1
    if text in named:
        return 0
    value = value_of(text)
    return 2 if isinstance(value, str) else 4 if value is None else 3


def _distance(text: str | None, now: str | None) -> tuple[bool, float]:
    """Of several numbers that would do, whole ones come first, and of these the one that is nearest to what is."""
    value, known = (MISSING if each is None else value_of(each) for each in (text, now))
    if not is_number(value):
        return False, 0.0
    return isinstance(value, float), abs(value - known) if is_number(known) else 0.0


def _literal_texts(question: Question) -> list[str]:
    literals = question.literal if question.op == "in" else [question.literal] if question.op in _NAMING else []
    return [literal for literal in literals if isinstance(literal, str)] if isinstance(literals, list) else []


def _as_text(value: Any) -> str:
    """A value as the text of a state key."""
    if isinstance(value, str) and value_of(value) == value:
        return value
    return canonical.encode(value).decode()


def _size(choices: list[list[Any]]) -> int:
    size = 1
    for each in choices:
        size *= len(each)
    return size


def _first(combinations: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [each for each, _ in zip(combinations, range(MAX_ALTERATIONS), strict=False)]


def _limit(choices: list[list[Any]], base: Any, paths: list[tuple[str, ...]]) -> list[tuple[Any, ...]]:
    """All combinations where there are few; else those in which one path alone is otherwise."""
    if _size(choices) <= MAX_ALTERATIONS:
        return list(product(*choices))
    now = tuple(MISSING if base is MISSING else walk(base, path) for path in paths)
    singles = [(*now[:place], value, *now[place + 1 :]) for place, values in enumerate(choices) for value in values]
    return _first(singles)


def _is_plain(base: Any, paths: list[tuple[str, ...]]) -> bool:
    """Whether each path can be given any value without any other losing its own."""
    if any(other != path and other[: len(path)] == path for path in paths for other in paths):
        return False
    return base is MISSING or all(_is_free_of_lists(base, path) for path in paths)


def _is_free_of_lists(base: Any, path: tuple[str, ...]) -> bool:
    value = base
    for segment in path:
        if isinstance(value, list):
            return False
        if not isinstance(value, dict) or segment not in value:
            return True
        value = value[segment]
    return True


def _with(base: Any, paths: list[tuple[str, ...]], values: tuple[Any, ...]) -> str:
    """The JSON text of a value in which these paths have these values; MISSING ones are taken out."""
    changed = base
    for path, value in zip(paths, values, strict=True):
        changed = _put_at(changed, path, value)
    return _as_text({} if changed is MISSING else changed)


def _put_at(value: Any, path: tuple[str, ...], inner: Any) -> Any:
    if not path:
        return inner
    if isinstance(value, list) and path[0].isdecimal() and int(path[0]) < len(value) and inner is not MISSING:
        place = int(path[0])
        return [*value[:place], _put_at(value[place], path[1:], inner), *value[place + 1 :]]
    known = dict(value) if isinstance(value, dict) else {}
    below = _put_at(known.get(path[0], MISSING), path[1:], inner)
    if below is MISSING:
        known.pop(path[0], None)
    else:
        known[path[0]] = below
    return known
