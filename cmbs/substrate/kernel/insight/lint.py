"""What is wrong with a policy before anything is proposed: `lint` says only what is so.

Every finding but the malformed ones is a proof over all states, candidates, actors and beliefs (`satisfying.never`).
What cannot be proved is not said, so that a policy without findings is not thereby a good one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, assert_never

import msgspec

from cmbs.ledger import canonical
from cmbs.substrate.kernel.insight.satisfiability import Scope, Term, never
from cmbs.substrate.kernel.insight.value_classes import questions_of
from cmbs.substrate.kernel.model import Failure
from cmbs.substrate.kernel.policy.constraints import EVERYTHING, Constraint, Effect, Subject, SubjectKind
from cmbs.substrate.kernel.policy.policy import DEGRADE, Policy, PolicyFault, compile_policy, validate_policy

# Pairs of constraints that are compared, and those among them that take a search; beyond, a policy is only partly
# looked through, and the report says so.
MAX_PAIRS_COMPARED = 2_000_000
MAX_SEARCHES = 20_000


class Severity(StrEnum):
    """An error does what its author cannot mean; a warning is without effect; a note is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class LintRule(StrEnum):
    """What is wrong."""

    # Refused in a policy update; in a policy that is there, it denies whatever it may concern.
    MALFORMED = "malformed"
    # Its `when` holds on no state, for no candidate: a deny that denies nothing, an allow that permits nothing.
    NEVER_TRUE = "never-true"
    # An allow and a deny about the same that always hold together, or invariants that never do.
    CONTRADICTING = "contradicting"
    # Wherever it holds, another one decides.
    SHADOWED = "shadowed"
    # It is about a tool that is not among those that are known.
    UNKNOWN_TOOL = "unknown-tool"
    # No call of a known tool, or no state delta, can ever be allowed.
    NEVER_ALLOWED = "never-allowed"


SEVERITY: dict[LintRule, Severity] = {
    LintRule.MALFORMED: Severity.ERROR,
    LintRule.NEVER_TRUE: Severity.ERROR,
    LintRule.CONTRADICTING: Severity.ERROR,
    LintRule.UNKNOWN_TOOL: Severity.ERROR,
    LintRule.SHADOWED: Severity.WARNING,
    LintRule.NEVER_ALLOWED: Severity.NOTE,
}


class LintFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong: under which key, where in its value, and which other keys it has to do with."""

    rule: LintRule
    key: str
    message: str
    at: str = ""
    others: list[str] = []

    @property
    def severity(self) -> Severity:
        """How bad that is."""
        return SEVERITY[self.rule]


class LintReport(msgspec.Struct, frozen=True):
    """Everything that was found, by key; `complete` is false where a policy has too many pairs to compare them all."""

    findings: list[LintFinding]
    complete: bool = True


def lint(pairs: Mapping[str, str], tool_ids: Collection[str] | None = None) -> LintReport:
    """Look a policy through. Without `tool_ids`, nothing is said about tools."""
    faults = set(validate_policy(pairs))
    if any(not fault.key for fault in faults):
        # Beyond the size of any policy: nothing else of it is looked at.
        return LintReport([_find_malformed(fault) for fault in faults])
    # What is no text has no hash either; what is malformed otherwise denies, and stays.
    policy = compile_policy({key: text for key, text in pairs.items() if _is_text(key + text)})
    findings = [_find_malformed(fault) for fault in faults | set(policy.faults)]
    look = _Look(policy)
    findings += look.never_true()
    findings += look.find_overruled()
    findings += look.invariants()
    if tool_ids is not None:
        findings += _unknown_tools(policy, look.constraints, frozenset(tool_ids))
        findings += look.never_allowed(frozenset(tool_ids))
    order = {rule: place for place, rule in enumerate(LintRule)}
    return LintReport(sorted(findings, key=lambda each: (each.key, order[each.rule], each.at)), look.complete)


def _find_malformed(fault: PolicyFault) -> LintFinding:
    return LintFinding(LintRule.MALFORMED, fault.key, fault.message, fault.at)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Look:
    """One look through a policy, at what can be read of it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._pairs = policy.pairs
        self._whens: dict[str, Any] = {}
        self.constraints: list[Constraint] = []
        self.complete = True
        self._dead: set[str] = set()
        self._by_subject: dict[Subject, list[Constraint]] = {}
        self._references: dict[str, frozenset[str]] = {}
        self._certain: dict[tuple[str, Scope | None], bool] = {}
        self._searches = 0
        for _, compiled in policy.compiled.values():
            if isinstance(compiled, Constraint):
                when = canonical.decode(policy.pairs[compiled.key]).get("when")
                asked = [] if when is None else questions_of(when)
                self.constraints.append(compiled)
                self._by_subject.setdefault(compiled.subject, []).append(compiled)
                self._whens[compiled.key] = when
                self._references[compiled.key] = frozenset(text for each in asked for text in each.references)
        self._of_capabilities = [each for each in self.constraints if each.subject.kind is SubjectKind.CAPABILITY]

    def never_true(self) -> list[LintFinding]:
        """Constraints that hold nowhere."""
        found = []
        for each in self.constraints:
            if never([self._holding(each)], _scope_of(each.subject), self._pairs):
                self._dead.add(each.key)
                message = {
                    Effect.ALLOW: "its `when` can never hold, so that it permits nothing",
                    Effect.DENY: "its `when` can never hold, so that it denies nothing",
                }[each.effect]
                found.append(LintFinding(LintRule.NEVER_TRUE, each.key, message, "when"))
        return found

    def find_overruled(self) -> list[LintFinding]:
        """Constraints that others decide for, wherever they hold."""
        alive = {
            subject: [each for each in about if each.key not in self._dead]
            for subject, about in self._by_subject.items()
        }
        everything = alive.get(EVERYTHING, [])
        found: list[LintFinding] = []
        compared = 0
        for subject, concerned in alive.items():
            above = concerned if subject.kind is SubjectKind.EVERYTHING else [*concerned, *everything]
            for each in concerned:
                compared += len(above)
                if compared > MAX_PAIRS_COMPARED:
                    self.complete = False
                    return found
                finding = self._find_overruling(each, above)
                found += [] if finding is None else [finding]
        return found

    def invariants(self) -> list[LintFinding]:
        """Invariants that no state meets, alone or two together."""
        readable = [each.key for each in self._policy.invariants if each.predicate is not None]
        contents = {key: canonical.decode(self._pairs[key]) for key in readable}
        found, met = [], []
        for key, content in contents.items():
            if never([Term(content)], Scope(), self._pairs):
                message = "no state meets it, so that nothing can ever be committed"
                found.append(LintFinding(LintRule.NEVER_TRUE, key, message))
            else:
                met.append(key)
        for place, key in enumerate(met):
            for other in met[:place]:
                if never([Term(contents[key]), Term(contents[other])], Scope(), self._pairs):
                    message = f"no state meets both it and `{other}`, so that nothing can ever be committed"
                    found.append(LintFinding(LintRule.CONTRADICTING, key, message, others=[other]))
        return found

    def never_allowed(self, tool_ids: frozenset[str]) -> list[LintFinding]:
        """Tools, and deltas, of which none can ever be allowed."""
        named = [(tool_id, f"no call of `{tool_id}`", Scope(tool_id, deltas=False)) for tool_id in sorted(tool_ids)]
        found = []
        for tool_id, what, scope in [*named, ("", "no state delta", Scope(calls=False))]:
            because = self._against_all(tool_id, scope)
            if because is not None:
                message = f"{what} can ever be allowed: {because[0]}"
                found.append(LintFinding(LintRule.NEVER_ALLOWED, tool_id, message, others=list(because[1])))
        return found

    def _against_all(self, tool_id: str, scope: Scope) -> tuple[str, tuple[str, ...]] | None:
        """Why nothing in scope can be allowed; None where that is not proved."""
        # About every candidate in scope, whatever token it comes with.
        about = [*self._by_subject.get(EVERYTHING, ())]
        if scope.calls:
            about += self._by_subject.get(Subject(SubjectKind.TOOL, tool_id), ())
        for each in about:
            if each.effect is Effect.DENY and self._always_denies(each, scope):
                return f"`{each.key}` always denies it", (each.key,)
        for each in [*about, *(self._of_capabilities if scope.calls else ())]:
            # An approval can stand in for what an allow asks for.
            if each.effect is Effect.ALLOW and (each.on_fail is Failure.ASK or self._may_hold(each, scope)):
                return None
        return "no allow can hold for it", ()

    def _always_denies(self, deny: Constraint, scope: Scope) -> bool:
        """Whether it holds for everything in scope, and no approval lifts it."""
        return deny.on_fail is not Failure.ASK and self._always_holds(deny, scope)

    def _may_hold(self, each: Constraint, scope: Scope) -> bool:
        if each.subject.kind is SubjectKind.TOOL or each.key in self._dead:
            return each.key not in self._dead
        return not never([self._holding(each)], scope, self._pairs)

    def _always_holds(self, each: Constraint, scope: Scope) -> bool:
        # Which tool is called makes a difference only to what asks for it.
        known = (each.key, scope if "$tool.id" in self._references[each.key] else None)
        if known not in self._certain:
            self._certain[known] = never([self._failing(each)], scope, self._pairs)
        return self._certain[known]

    def _find_overruling(self, each: Constraint, above: list[Constraint]) -> LintFinding | None:
        if each.effect is Effect.DENY:
            return self._useless_deny(each, above)
        return self._useless_allow(each, above)

    def _useless_deny(self, deny: Constraint, above: list[Constraint]) -> LintFinding | None:
        for other in above:
            if other.effect is not Effect.DENY or other.on_fail is not Failure.BLOCK or other.key == deny.key:
                continue
            if not self._implies(deny, other):
                continue
            # Of two that hold together, one is enough, and that is the first.
            if deny.on_fail is Failure.BLOCK and deny.key < other.key and self._is_same(deny, other):
                continue
            message = f"wherever it holds, `{other.key}` blocks"
            return LintFinding(LintRule.SHADOWED, deny.key, message, "when", [other.key])
        return None

    def _useless_allow(self, allow: Constraint, above: list[Constraint]) -> LintFinding | None:
        scope = _scope_of(allow.subject)
        for other in above:
            if other.effect is not Effect.DENY or other.on_fail is Failure.ASK or not self._implies(allow, other):
                continue
            # An approval can stand in for what this allow asks for, where the deny does not hold.
            if allow.on_fail is Failure.ASK and not self._always_denies(other, scope):
                continue
            message = f"it never permits anything: wherever it holds, `{other.key}` denies"
            rule = LintRule.CONTRADICTING if self._is_same(allow, other) else LintRule.SHADOWED
            return LintFinding(rule, allow.key, message, "when", [other.key])
        if allow.on_fail is Failure.ASK:
            return None
        for other in above:
            if other.effect is not Effect.ALLOW or other.key == allow.key or not self._implies(allow, other):
                continue
            if allow.key < other.key and self._is_same(allow, other):
                continue
            message = f"it adds no permission: wherever it holds, `{other.key}` does too"
            return LintFinding(LintRule.SHADOWED, allow.key, message, "when", [other.key])
        return None

    def _is_same(self, one: Constraint, other: Constraint) -> bool:
        """Whether both are about the same, and hold together or not at all; `one` implies `other` already."""
        return one.subject == other.subject and never(
            [self._holding(other), self._failing(one)], _scope_of(one.subject), self._pairs
        )

    def _implies(self, one: Constraint, other: Constraint) -> bool:
        """Whether the other holds wherever one does; `one` holds somewhere."""
        scope = _scope_of(one.subject)
        if self._references[one.key].isdisjoint(self._references[other.key]):
            # Neither knows of what the other reads.
            return self._always_holds(other, scope)
        self._searches += 1
        if self._searches > MAX_SEARCHES:
            self.complete = False
            return False
        return never([self._holding(one), self._failing(other)], scope, self._pairs)

    def _holding(self, each: Constraint) -> Term:
        return Term(self._whens[each.key])

    def _failing(self, each: Constraint) -> Term:
        return Term(self._whens[each.key], holds=False)


def _scope_of(subject: Subject) -> Scope:
    match subject.kind:
        case SubjectKind.TOOL:
            return Scope(subject.name, deltas=False)
        case SubjectKind.CAPABILITY:
            return Scope(deltas=False)
        case SubjectKind.EVERYTHING:
            return Scope()
        case _:
            assert_never(subject.kind)


def _unknown_tools(policy: Policy, constraints: list[Constraint], known: frozenset[str]) -> list[LintFinding]:
    found = [
        LintFinding(LintRule.UNKNOWN_TOOL, each.key, f"there is no tool `{each.subject.name}`", "subject")
        for each in constraints
        if each.subject.kind is SubjectKind.TOOL and each.subject.name not in known
    ]
    for tool_id, text in policy.offers.items():
        offered = canonical.decode(text).get("tool_id")
        if tool_id not in known:
            found.append(LintFinding(LintRule.UNKNOWN_TOOL, DEGRADE + tool_id, f"there is no tool `{tool_id}`"))
        if offered is not None and offered not in known:
            message = f"it offers the tool `{offered}`, and there is none"
            found.append(LintFinding(LintRule.UNKNOWN_TOOL, DEGRADE + tool_id, message, "tool_id"))
    return found
