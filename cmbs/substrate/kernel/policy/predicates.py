"""The predicates of a constraint, compiled once, evaluated without surprises.

Payloads of version 1 have exactly the operators of SS-01, between a reference and literals. Version 2 adds comparisons,
and an operand of one is a literal or a reference on either side:

- the first is a reference as text, `{"ref": …}` or `{"literal": …}`;
- the second is a literal as it is, `{"ref": …}` or `{"literal": …}`.

So a text is a reference in the first place and a literal in the second, and an object with the one member `ref` or
`literal` is never a literal itself. At least one operand is a reference.

What is missing makes every comparison, `exists` and `schema` false. A JSON null is a value that `eq` can ask for, and
nothing to `exists`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import jsonschema_rs

from cmbs.ledger import canonical
from cmbs.substrate.kernel.model import Stage, TraceStep
from cmbs.substrate.kernel.policy.operators import COMPARISONS, Literal, Operand, Test, comparison
from cmbs.substrate.kernel.policy.references import (
    MISSING,
    NEWEST,
    CaseUse,
    EvaluationContext,
    Reference,
    ReferenceFault,
    compile_reference,
    value_of,
)
from cmbs.substrate.kernel.policy.schemas import SchemaFault, compile_schema

MAX_FOUND_CHARACTERS = 256
# How the note of a step begins that read belief which cannot be told.
UNTOLD = "not told: "
# Of what is asked deep inside a predicate, a place says as much as a reader can use.
_ROOT = "when"

_COMPARISONS = {1: frozenset({"eq", "in"}), 2: COMPARISONS}
_OPERATORS = {
    1: "all, any, not, eq, in, exists, missing, schema",
    2: "all, any, not, eq, ne, in, prefix, lt, le, gt, ge, exists, missing, schema",
}

Schemas: TypeAlias = Mapping[str, jsonschema_rs.Draft202012Validator]


class PredicateFault(ValueError):
    """A predicate that cannot be compiled; `at` is the place, as in `when.args[0]`."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(message)
        self.at = at


class Probe(NamedTuple):
    """A predicate that reads: where it stands, what it asks, what it reads.

    `operands` are what it asks about, in their order: of `schema` the reference, and the schema or its name.
    """

    at: str
    op: str
    references: tuple[Reference, ...]
    holds: Test
    operands: tuple[Operand, ...]


class Branch(NamedTuple):
    """A predicate over others."""

    op: str
    parts: tuple[Node, ...]


Node: TypeAlias = Probe | Branch


class Predicate:
    """A compiled predicate.

    `keys` and `session_ids` are everything that its truth can depend on beside the candidate and its actor; it can
    depend on these where `reads_candidate`, and on the case of the proposal as `case_use` says.
    """

    __slots__ = ("_untold", "case_use", "keys", "reads_candidate", "root", "session_ids")

    def __init__(self, root: Node) -> None:
        self.root = root
        references = [reference for probe in probes_of(root) for reference in probe.references]
        self.reads_candidate = any(reference.of_candidate for reference in references)
        self.keys = frozenset(key for reference in references for key in reference.keys)
        self.session_ids = frozenset(
            reference.session_id for reference in references if reference.session_id is not None
        )
        self.case_use = max((reference.case_use for reference in references), default=CaseUse.NONE)
        self._untold = tuple(each.find_untold for each in references if each.find_untold is not None)

    def lacks_case(self, seen: EvaluationContext) -> bool:
        """Whether it reads the case of a proposal that has none which is open and for its actor."""
        return self.case_use is not CaseUse.NONE and seen.case is None

    def lacks(self, seen: EvaluationContext) -> bool:
        """Whether it cannot be told here: it lacks the case, or reads belief that no reading has whole.

        Operators such as `not` would turn what is missing into a yes, so a caller takes the worse for it.
        """
        return self.lacks_case(seen) or any(find(seen) is not None for find in self._untold)

    def evaluate(self, seen: EvaluationContext, asking: Asking, steps: list[TraceStep]) -> bool:
        """Whether it holds; adds one step to the trace for every reference of every predicate in it."""
        return _evaluate(self.root, seen, asking, steps)


class Asking(NamedTuple):
    """On whose behalf a predicate is traced."""

    stage: Stage
    candidate: int | None
    key: str


def compile_predicate(content: object, schemas: Schemas, at: str = _ROOT, version: int = NEWEST) -> Predicate:
    """Compile a decoded predicate of a payload of this version; PredicateFault names the first place that is wrong."""
    return Predicate(_node(content, _Source(schemas, version), at))


def probes_of(node: Node) -> list[Probe]:
    """The predicates in it that read, in the order in which they stand."""
    if isinstance(node, Probe):
        return [node]
    return [probe for part in node.parts for probe in probes_of(part)]


def show(value: object) -> str:
    """A found value as the trace shows it."""
    text = ""
    for piece in (value,) if isinstance(value, str) else _pieces(value):
        text += piece
        if len(text) > MAX_FOUND_CHARACTERS:
            # The rest is not written at all: of a large value that would take longer than the decision.
            return text[:MAX_FOUND_CHARACTERS] + "…"
    return text


def show_distinctly(value: object) -> str:
    """The same for people: a text that could be taken for another value stands in quotes."""
    is_ambiguous = isinstance(value, str) and _is_ambiguous(value)
    return canonical.encode(value).decode() if is_ambiguous else show(value)


def _is_ambiguous(text: str) -> bool:
    """Whether a text looks like another JSON value, like nothing, or like a shorter text."""
    return len(text) <= MAX_FOUND_CHARACTERS and (text.strip() != text or not text or value_of(text) is not text)


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


class _Source(NamedTuple):
    """What a predicate is compiled with: schemas by name, and the version of its payload."""

    schemas: Schemas
    version: int


def _node(content: object, source: _Source, at: str) -> Node:
    op, args = _take_apart(content, at)
    match op:
        case "all" | "any":
            parts = tuple(_node(each, source, f"{at}.args[{place}]") for place, each in enumerate(args))
            return Branch(op, parts)
        case "not":
            _refuse_length(args, 1, "one predicate", at)
            return Branch(op, (_node(args[0], source, f"{at}.args[0]"),))
        case "exists" | "missing":
            references = tuple(_reference(each, source, f"{at}.args[{place}]") for place, each in enumerate(args))
            return Probe(at, op, references, _presence(op), references)
        case "schema":
            _refuse_length(args, 2, "a reference and what it is compared with", at)
            reference = _reference(args[0], source, f"{at}.args[0]")
            test = _schema_test(args[1], source.schemas, f"{at}.args[1]")
            return Probe(at, op, (reference,), test, (reference, Literal(args[1])))
        case str() if op in _COMPARISONS[source.version]:
            return _compare_node(op, args, source, at)
        case _:
            raise PredicateFault(f"{at}.op", f"`op` is one of {_OPERATORS[source.version]}")


def _take_apart(content: object, at: str) -> tuple[object, list[Any]]:
    if not isinstance(content, dict):
        raise PredicateFault(at, "a predicate is an object with `op` and `args`")
    for field in content:
        if field not in {"op", "args"}:
            raise PredicateFault(f"{at}.{field}", f"unknown field `{field}`")
    args = content.get("args")
    if not isinstance(args, list) or not args:
        raise PredicateFault(f"{at}.args", "`args` is a list that is not empty")
    return content.get("op"), args


def _refuse_length(args: list[object], length: int, what: str, at: str) -> None:
    if len(args) != length:
        raise PredicateFault(f"{at}.args", f"`args` is {what}")


def _compare_node(op: str, args: list[object], source: _Source, at: str) -> Probe:
    _refuse_length(args, 2, "a reference and what it is compared with", at)
    left: Operand
    if _is_wrapped(args[0], "literal", source):
        left = _literal(op, args[0]["literal"], f"{at}.args[0]", is_right=False)
    else:
        left = _reference(args[0], source, f"{at}.args[0]")
    right = _right_operand(op, args[1], source, f"{at}.args[1]")
    references = tuple(each for each in (left, right) if isinstance(each, Reference))
    if not references:
        raise PredicateFault(f"{at}.args", "one of the operands is a reference")
    return Probe(at, op, references, comparison(op, left, right), (left, right))


def _right_operand(op: str, content: object, source: _Source, at: str) -> Operand:
    if _is_wrapped(content, "ref", source):
        return _reference(content, source, at)
    if _is_wrapped(content, "literal", source):
        return _literal(op, content["literal"], at)
    if op == "in" and isinstance(content, list) and any(_is_wrapped(each, "ref", source) for each in content):
        raise PredicateFault(at, "`in` is asked of a list of literals; one among references is `any` of `eq`")
    return _literal(op, content, at)


def _literal(op: str, value: object, at: str, *, is_right: bool = True) -> Literal:
    if op == "in" and is_right and not isinstance(value, list):
        raise PredicateFault(at, "`in` is asked of a list of literals")
    return Literal(value)


def _is_wrapped(content: object, name: str, source: _Source) -> TypeGuard[dict[str, Any]]:
    """Whether an operand says itself what it is, by its one member. In version 1 there are no such operands."""
    return source.version > 1 and isinstance(content, dict) and content.keys() == {name}


def _reference(content: object, source: _Source, at: str) -> Reference:
    text = content["ref"] if _is_wrapped(content, "ref", source) else content
    try:
        return compile_reference(text, source.version)
    except ReferenceFault as exc:
        raise PredicateFault(at, str(exc)) from exc


def _presence(op: str) -> Test:
    # `missing` holds where one of them does not exist.
    if op == "exists":
        return lambda _, found: all(value is not MISSING and value is not None for value in found)
    return lambda _, found: any(value is MISSING or value is None for value in found)


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
            note = _note(reference, seen)
            text = None if value is MISSING else show(value)
            steps.append(
                TraceStep(
                    asking.stage, holds, asking.candidate, asking.key, node.at, node.op, reference.text, text, note
                )
            )
        return holds
    # All parts are looked at, so that the trace shows what each of them found.
    found = [_evaluate(part, seen, asking, steps) for part in node.parts]
    if node.op == "not":
        return not found[0]
    return all(found) if node.op == "all" else any(found)


def _note(reference: Reference, seen: EvaluationContext) -> str | None:
    """Of a belief reading: the audit head that it was read at; of a case: that there is none."""
    if reference.case_use is not CaseUse.NONE and seen.case is None:
        return "no case"
    session_id = reference.session_read(seen)
    if session_id is None:
        return None
    untold = None if reference.find_untold is None else reference.find_untold(seen)
    if untold is not None:
        return UNTOLD + untold
    reading = seen.belief.get(session_id)
    if reading is None or not reading.found:
        return "no such session"
    return f"at audit head {reading.head_seq} {reading.head_event_hash}"
