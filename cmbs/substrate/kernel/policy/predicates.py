"""The predicates of a constraint: exactly the operators of SS-01, compiled once, evaluated without surprises.

What is missing makes `eq`, `in`, `exists` and `schema` false. A JSON null is a value that `eq` can ask for, and nothing
to `exists`. Numbers are compared as JSON does (1 is 1.0), and are never truth values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import jsonschema_rs

from cmbs.ledger import canonical
from cmbs.substrate.kernel.model import Stage, TraceStep
from cmbs.substrate.kernel.policy.references import (
    MISSING,
    EvaluationContext,
    Reference,
    ReferenceFault,
    compile_reference,
)
from cmbs.substrate.kernel.policy.schemas import SchemaFault, compile_schema

MAX_FOUND_CHARACTERS = 256
# Of what is asked deep inside a predicate, a place says as much as a reader can use.
_ROOT = "when"

# Whether a predicate holds, given what its references found, in their order.
Test: TypeAlias = Callable[[EvaluationContext, list[Any]], bool]
Schemas: TypeAlias = Mapping[str, jsonschema_rs.Draft202012Validator]


class PredicateFault(ValueError):
    """A predicate that cannot be compiled; `at` is the place, as in `when.args[0]`."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(message)
        self.at = at


class Probe(NamedTuple):
    """A predicate that reads: where it stands, what it asks, what it reads."""

    at: str
    op: str
    references: tuple[Reference, ...]
    holds: Test


class Branch(NamedTuple):
    """A predicate over others."""

    op: str
    parts: tuple[Node, ...]


Node: TypeAlias = Probe | Branch


class Predicate:
    """A compiled predicate.

    `keys` and `session_ids` are everything that its truth can depend on beside the candidate and its actor; it can
    depend on these where `reads_candidate`.
    """

    __slots__ = ("keys", "reads_candidate", "root", "session_ids")

    def __init__(self, root: Node) -> None:
        self.root = root
        references = [reference for probe in probes_of(root) for reference in probe.references]
        self.reads_candidate = any(reference.of_candidate for reference in references)
        self.keys = frozenset(key for reference in references for key in reference.keys)
        self.session_ids = frozenset(
            reference.session_id for reference in references if reference.session_id is not None
        )

    def evaluate(self, seen: EvaluationContext, asking: Asking, steps: list[TraceStep]) -> bool:
        """Whether it holds; adds one step to the trace for every reference of every predicate in it."""
        return _evaluate(self.root, seen, asking, steps)


class Asking(NamedTuple):
    """On whose behalf a predicate is traced."""

    stage: Stage
    candidate: int | None
    key: str


def compile_predicate(content: object, schemas: Schemas, at: str = _ROOT) -> Predicate:
    """Compile a decoded predicate; PredicateFault names the first place that is wrong."""
    return Predicate(_node(content, schemas, at))


def probes_of(node: Node) -> list[Probe]:
    """The predicates in it that read, in the order in which they stand."""
    if isinstance(node, Probe):
        return [node]
    return [probe for part in node.parts for probe in probes_of(part)]


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


def show(value: object) -> str:
    """A found value as the trace shows it."""
    text = ""
    for piece in (value,) if isinstance(value, str) else _pieces(value):
        text += piece
        if len(text) > MAX_FOUND_CHARACTERS:
            # The rest is not written at all: of a large value that would take longer than the decision.
            return text[:MAX_FOUND_CHARACTERS] + "…"
    return text


def _pieces(value: object) -> Iterator[str]:
    """The canonical text of a JSON value, from its beginning."""
    if isinstance(value, list):
        yield "["
        for place, each in enumerate(value):
            yield from (",",) if place else ()
            yield from _pieces(each)
        yield "]"
    elif isinstance(value, dict):
        yield "{"
        # As RFC 8785 has them: by UTF-16 code units.
        for place, name in enumerate(sorted(value, key=lambda name: name.encode("utf-16-be"))):
            yield f"{',' if place else ''}{canonical.encode(name).decode()}:"
            yield from _pieces(value[name])
        yield "}"
    else:
        yield canonical.encode(value).decode()


# --- compiling --------------------------------------------------------------------------------------------------------


def _node(content: object, schemas: Schemas, at: str) -> Node:
    if not isinstance(content, dict):
        raise PredicateFault(at, "a predicate is an object with `op` and `args`")
    for field in content:
        if field not in {"op", "args"}:
            raise PredicateFault(f"{at}.{field}", f"unknown field `{field}`")
    op, args = content.get("op"), content.get("args")
    if not isinstance(args, list) or not args:
        raise PredicateFault(f"{at}.args", "`args` is a list that is not empty")
    match op:
        case "all" | "any":
            parts = tuple(_node(each, schemas, f"{at}.args[{place}]") for place, each in enumerate(args))
            return Branch(op, parts)
        case "not":
            _refuse_length(args, 1, "one predicate", at)
            return Branch(op, (_node(args[0], schemas, f"{at}.args[0]"),))
        case "exists" | "missing":
            references = tuple(_reference(each, f"{at}.args[{place}]") for place, each in enumerate(args))
            return Probe(at, op, references, _presence(op))
        case "eq" | "in" | "schema":
            _refuse_length(args, 2, "a reference and what it is compared with", at)
            reference = _reference(args[0], f"{at}.args[0]")
            return Probe(at, op, (reference,), _comparison(op, reference, args[1], schemas, f"{at}.args[1]"))
        case _:
            raise PredicateFault(f"{at}.op", "`op` is one of all, any, not, eq, in, exists, missing, schema")


def _refuse_length(args: list[object], length: int, what: str, at: str) -> None:
    if len(args) != length:
        raise PredicateFault(f"{at}.args", f"`args` is {what}")


def _reference(content: object, at: str) -> Reference:
    try:
        return compile_reference(content)
    except ReferenceFault as exc:
        raise PredicateFault(at, str(exc)) from exc


def _comparison(op: str, reference: Reference, literal: object, schemas: Schemas, at: str) -> Test:
    if op == "eq":
        return _equality(reference, literal)
    if op == "schema":
        return _schema_test(literal, schemas, at)
    if not isinstance(literal, list):
        raise PredicateFault(at, "`in` is asked of a list of literals")
    return _membership(reference, literal)


def _presence(op: str) -> Test:
    # `missing` holds where one of them does not exist.
    if op == "exists":
        return lambda _, found: all(value is not MISSING and value is not None for value in found)
    return lambda _, found: any(value is MISSING or value is None for value in found)


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


def _schema_test(content: object, schemas: Schemas, at: str) -> Test:
    if isinstance(content, str):
        validator = schemas.get(content)
        if validator is None:
            raise PredicateFault(at, f"no schema `policy.schema.{content}` that can be used")
    else:
        try:
            validator = compile_schema(content)
        except SchemaFault as exc:
            raise PredicateFault(at, str(exc)) from exc
    is_valid = validator.is_valid
    return lambda _, found: found[0] is not MISSING and is_valid(found[0])


# --- evaluating -------------------------------------------------------------------------------------------------------


def _evaluate(node: Node, seen: EvaluationContext, asking: Asking, steps: list[TraceStep]) -> bool:
    if isinstance(node, Probe):
        values = [reference.find(seen) for reference in node.references]
        holds = node.holds(seen, values)
        for reference, value in zip(node.references, values, strict=True):
            head = None if reference.session_id is None else _head_read(reference.session_id, seen)
            text = None if value is MISSING else show(value)
            steps.append(
                TraceStep(
                    asking.stage, holds, asking.candidate, asking.key, node.at, node.op, reference.text, text, head
                )
            )
        return holds
    # All parts are looked at, so that the trace shows what each of them found.
    found = [_evaluate(part, seen, asking, steps) for part in node.parts]
    if node.op == "not":
        return not found[0]
    return all(found) if node.op == "all" else any(found)


def _head_read(session_id: str, seen: EvaluationContext) -> str:
    """Of a belief reading: the audit head that it was read at."""
    reading = seen.belief.get(session_id)
    if reading is None or not reading.found:
        return "no such session"
    return f"at audit head {reading.head_seq} {reading.head_event_hash}"
