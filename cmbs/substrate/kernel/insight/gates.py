"""Gates that do not hold what they promise: what a policy's author most likely did not mean, each shown from its text.

What is said of a bound is said only where nothing else in the same `when` rules it out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from cmbs.core import entropy
from cmbs.substrate.kernel.insight.belief_fields import BeliefField, belief_field
from cmbs.substrate.kernel.insight.lint_findings import LintFinding, LintRule
from cmbs.substrate.kernel.insight.satisfiability import GONE, Pins, Prover, Scope, Term
from cmbs.substrate.kernel.insight.value_classes import Question, fresh_text, holds_for, question_of
from cmbs.substrate.kernel.model import Failure
from cmbs.substrate.kernel.policy.constraints import Constraint, Effect
from cmbs.substrate.kernel.policy.operators import ORDERS, Sight
from cmbs.substrate.kernel.policy.policy import SCHEMA, Policy
from cmbs.substrate.kernel.policy.predicates import Branch, Node, Predicate, Probe, probes_of
from cmbs.substrate.kernel.policy.references import namespace_of
from cmbs.substrate.kernel.policy.schemas import compile_schema, decode_schema

_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_OPPOSITES = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
# More survivors than any gate lets through.
_MANY = 1_000_000_000


class _Asked(NamedTuple):
    """A predicate that reads, and whether it lies under an odd number of `not`."""

    probe: Probe
    negated: bool


class GateLook:
    """One look at what a policy lets through."""

    def __init__(self, policy: Policy, prover: Prover) -> None:
        self._policy = policy
        self._pairs = policy.pairs
        self._prover = prover

    def findings(self, dead: Collection[str]) -> list[LintFinding]:
        """Everything that is found in constraints and invariants but those that never hold anyway."""
        found: list[LintFinding] = []
        for _, each in self._policy.compiled.values():
            if not isinstance(each, Constraint):
                continue
            found += [] if each.when is None else _never_found(each.key, each.when)
            found += _waits_for_nothing(each)
            if each.key in dead or each.when is None:
                continue
            permits = each.effect is Effect.ALLOW
            found += self._no_survivor(each.key, each.when) if permits else []
            found += self._text_passes(each.key, each.when, permits=permits)
        for invariant in self._policy.invariants:
            if invariant.predicate is not None:
                found += _never_found(invariant.key, invariant.predicate)
                found += self._text_passes(invariant.key, invariant.predicate, permits=True)
        return found

    def _no_survivor(self, key: str, when: Predicate) -> Iterator[LintFinding]:
        for probe, negated in _probes_of(when.root):
            question = question_of(probe)
            belief = belief_field(question.references[0]) if len(question.references) == 1 else None
            if belief is None or belief.field not in {"n_survivors", "entropy_proxy"}:
                continue
            measure = entropy if belief.field == "entropy_proxy" else int
            none, one, many = (self._holds(question, measure(number)) is not negated for number in (0, 1, _MANY))
            # Who names 0 means it; a bound from above lets it through unseen.
            if none and one and not many and not self._names_none(question):
                if self._prover.has_stopped or self._prover.never(
                    [Term(when.root)], Scope(), _pins_of_none(when, belief)
                ):
                    continue
                message = (
                    f"`{question.references[0]}` may also be 0: it holds where no survivor is left; "
                    "say `eq` 1 where one is meant"
                )
                yield LintFinding(LintRule.NO_SURVIVOR, key, message, probe.at)

    def _text_passes(self, key: str, when: Predicate, *, permits: bool) -> Iterator[LintFinding]:
        for probe, negated in _probes_of(when.root):
            question = question_of(probe)
            reference, text = question.references[0], fresh_text(())
            if question.op in ORDERS and _says_more_of(when, reference):
                continue
            # What text satisfies lets it through where it is asked for; what text fails, where it is asked against.
            mended = self._mend_bound(question, text, satisfied=negated is not permits)
            if mended is None or not _can_be_text(reference):
                continue
            term = Term(when.root, holds=permits)
            passes = not self._prover.never([term], Scope(), {reference: [Sight(text)]})
            if passes and not self._prover.has_stopped:
                message = f"a text at `{reference}` passes this bound on numbers; {mended}"
                yield LintFinding(LintRule.TEXT_PASSES, key, message, probe.at)

    def _mend_bound(self, question: Question, text: str | None, *, satisfied: bool) -> str | None:
        """What to write in the place of a bound that text passes, satisfying it or failing it; None for others."""
        if question.op in ORDERS and not satisfied and not question.is_relation:
            return f"say which numbers are let through: `{_OPPOSITES[question.op]}`, or `not` of it in a deny"
        is_bound = question.op == "schema" and bool(_BOUNDS & self._keywords(question.literal))
        return "give the schema a `type`" if is_bound and satisfied and self._holds(question, text) else None

    def _holds(self, question: Question, value: Any) -> bool:
        if question.op in {"exists", "missing"}:
            return question.op == "exists"
        if question.op != "schema":
            return holds_for(question, Sight(value))
        return compile_schema(self._resolve(question.literal)).is_valid(value)

    def _keywords(self, schema: Any) -> set[str]:
        """The keywords that a schema, or one that all of it consists of, asks of the value itself."""
        resolved = self._resolve(schema)
        if not isinstance(resolved, dict):
            return set()
        parts = resolved.get("allOf", [])
        return {*resolved, *(keyword for part in parts for keyword in self._keywords(part))}

    def _names_none(self, question: Question) -> bool:
        literals = question.literal if question.op == "in" else [question.literal] if question.op == "eq" else []
        if question.op == "schema":
            schema = self._resolve(question.literal)
            literals = [schema.get("const"), *schema.get("enum", ())] if isinstance(schema, dict) else []
        return any(literal == 0 and literal is not False for literal in literals)

    def _resolve(self, schema: Any) -> Any:
        return decode_schema(self._pairs[SCHEMA + schema]) if isinstance(schema, str) else schema


def _probes_of(node: Node, *, negated: bool = False) -> Iterator[_Asked]:
    if isinstance(node, Branch):
        for part in node.parts:
            yield from _probes_of(part, negated=negated is not (node.op == "not"))
    else:
        yield _Asked(node, negated)


def _says_more_of(when: Predicate, reference: str) -> bool:
    """Whether something else in it is about the value too: a text may then pass for another reason than a bound."""
    ops = {probe.op for probe, _ in _probes_of(when.root) if reference in {each.text for each in probe.references}}
    return not ops <= {*ORDERS, "exists", "missing"}


def _pins_of_none(when: Predicate, belief: BeliefField) -> Pins:
    """What there is to see of a session in which no survivor is left."""
    pins: dict[str, list[Sight]] = {}
    for probe, _ in _probes_of(when.root):
        for reference in probe.references:
            read = belief_field(reference.text)
            if read is not None and read.owner in belief.owners_of_less:
                sights = _SEEN_OF_NONE.get(read.field)
                pins |= {} if sights is None else {reference.text: sights}
    return pins


_SEEN_OF_NONE: dict[str, list[Sight]] = {
    "n_survivors": [Sight(0)],
    "entropy_proxy": [Sight(entropy(0))],
    "survivors": [Sight([])],
    "survivor": [GONE],
}


def _can_be_text(reference: str) -> bool:
    return reference.startswith(("$args.", "$case.attributes.")) or namespace_of(reference) is not None


def _never_found(key: str, when: Predicate) -> Iterator[LintFinding]:
    for probe, _ in _probes_of(when.root):
        for reference in probe.references:
            if reference.session_id is not None and reference.session_id.startswith("$"):
                message = (
                    f"`{reference.text}` reads a session called `{reference.session_id}`: a reference inside of a "
                    "reference is not looked up; `$case.belief.…` reads the session of the proposal's case"
                )
                yield LintFinding(LintRule.NEVER_FOUND, key, message, probe.at)


def _waits_for_nothing(each: Constraint) -> Iterator[LintFinding]:
    if each.on_fail is not Failure.DEFER or each.observes or (each.when is None and each.effect is Effect.ALLOW):
        return
    probes = [] if each.when is None else probes_of(each.when.root)
    references = [reference for probe in probes for reference in probe.references]
    if not any(ref.keys or ref.session_id or ref.text.startswith("$case.") for ref in references):
        message = "it defers, and waits for nothing: no fact and no session is read that could change"
        yield LintFinding(LintRule.WAITS_FOR_NOTHING, each.key, message, "on_fail")
