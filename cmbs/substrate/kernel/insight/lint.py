"""What is wrong with a policy before anything is proposed: `lint` says only what is so.

Every finding but the malformed ones and those of `gates` is a proof over all states, candidates, actors and beliefs
(`satisfiability.never`).
What cannot be proved is not said, so that a policy without findings is not thereby a good one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import assert_never

from cmbs.ledger import canonical
from cmbs.substrate.kernel.insight.bounds import MayGoOn, without_bound
from cmbs.substrate.kernel.insight.gates import GateLook
from cmbs.substrate.kernel.insight.lint_findings import LintFinding, LintReport, LintRule
from cmbs.substrate.kernel.insight.satisfiability import Prover, Scope, Term
from cmbs.substrate.kernel.model import Failure
from cmbs.substrate.kernel.policy.constraints import Constraint, Effect
from cmbs.substrate.kernel.policy.policy import DEGRADE, Policy, PolicyFault, compile_policy, validate_policy
from cmbs.substrate.kernel.policy.predicates import probes_of
from cmbs.substrate.kernel.policy.references import CaseUse
from cmbs.substrate.kernel.policy.subjects import EVERYTHING, Subject, SubjectKind, ToolIndex, is_pattern

# Pairs of constraints that are compared, and those among them that take a search; beyond, a policy is only partly
# looked through, and the report says so.
MAX_PAIRS_COMPARED = 2_000_000
MAX_SEARCHES = 20_000
# Tools of one subject that are looked at one by one; of more, only what holds for any tool is said.
MAX_TOOLS_EACH = 20


def lint(
    pairs: Mapping[str, str], tool_ids: Collection[str] | None = None, may_go_on: MayGoOn = without_bound
) -> LintReport:
    """Look a policy through. Without `tool_ids`, nothing is said about tools.

    Where `may_go_on` ends it, the report has what was found until then, and is not complete.
    """
    faults = set(validate_policy(pairs))
    if any(not fault.key for fault in faults):
        # Beyond the size of any policy: nothing else of it is looked at.
        return LintReport([_find_malformed(fault) for fault in faults])
    # What is no text has no hash either; what is malformed otherwise denies, and stays.
    policy = compile_policy({key: text for key, text in pairs.items() if _is_text(key + text)})
    findings = [_find_malformed(fault) for fault in faults | set(policy.faults)]
    prover = Prover(policy.pairs, may_go_on)
    look = _Look(policy, prover)
    findings += look.never_true()
    findings += look.find_overruled()
    findings += look.invariants()
    findings += GateLook(policy, prover).findings(look.dead)
    if tool_ids is not None:
        findings += _unknown_tools(policy, look.constraints, frozenset(tool_ids))
        findings += look.never_allowed(frozenset(tool_ids))
    order = {rule: place for place, rule in enumerate(LintRule)}
    return LintReport(
        sorted(findings, key=lambda each: (each.key, order[each.rule], each.at)),
        look.complete and not prover.has_stopped,
    )


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

    def __init__(self, policy: Policy, prover: Prover) -> None:
        self._policy = policy
        self._prover = prover
        self.constraints: list[Constraint] = []
        self.complete = True
        # Keys of constraints that hold nowhere.
        self.dead: set[str] = set()
        self._by_subject: dict[Subject, list[Constraint]] = {}
        self._references: dict[str, frozenset[str]] = {}
        self._certain: dict[tuple[str, Scope | None], bool] = {}
        self._searches = 0
        self._subjects_of_tools: ToolIndex[Subject] = ToolIndex()
        self._subjects_with_name: dict[str, list[Subject]] = {}
        for _, compiled in policy.compiled.values():
            if not isinstance(compiled, Constraint):
                continue
            probes = [] if compiled.when is None else probes_of(compiled.when.root)
            self._references[compiled.key] = frozenset(each.text for probe in probes for each in probe.references)
            self.constraints.append(compiled)
            # What only observes decides nothing, so that nothing overrules it and it overrules nothing.
            if not compiled.observes:
                self._by_subject.setdefault(compiled.subject, []).append(compiled)
        for subject in self._by_subject:
            if subject.kind in {SubjectKind.TOOL, SubjectKind.PATTERN}:
                self._subjects_of_tools.add(subject, subject)
                for name in subject.names:
                    self._subjects_with_name.setdefault(name, []).append(subject)
        deciding = [each for about in self._by_subject.values() for each in about]
        self._of_capabilities = [each for each in deciding if each.subject.kind is SubjectKind.CAPABILITY]

    def never_true(self) -> list[LintFinding]:
        """Constraints that hold nowhere."""
        found = []
        for each in self.constraints:
            if not _blocks_without_case(each) and self._never([_holding(each)], each.subject):
                self.dead.add(each.key)
                does = "observes" if each.observes else "permits" if each.effect is Effect.ALLOW else "denies"
                message = f"its `when` can never hold, so that it {does} nothing"
                found.append(LintFinding(LintRule.NEVER_TRUE, each.key, message, "when"))
        return found

    def find_overruled(self) -> list[LintFinding]:
        """Constraints that others decide for, wherever they hold."""
        alive = {
            subject: [each for each in about if each.key not in self.dead]
            for subject, about in self._by_subject.items()
        }
        found: list[LintFinding] = []
        compared = 0
        for subject, concerned in alive.items():
            above = [each for wider in self._covering(subject) for each in alive.get(wider, ())]
            for each in concerned:
                compared += len(above)
                if compared > MAX_PAIRS_COMPARED or self._prover.has_stopped:
                    self.complete = False
                    return found
                finding = self._find_overruling(each, above)
                found += [] if finding is None else [finding]
        return found

    def _covering(self, subject: Subject) -> list[Subject]:
        """Itself, and subjects that are about everything that it is about."""
        wider: set[Subject] = set()
        if subject.kind in {SubjectKind.TOOL, SubjectKind.PATTERN}:
            # Of a pattern, only the very same one and `*` are known to cover it.
            each_name = [
                {*self._subjects_with_name.get(name, ()), *self._subjects_with_name.get("*", ())}
                if subject.kind is SubjectKind.PATTERN and is_pattern(name)
                else set(self._subjects_of_tools.find(name))
                for name in subject.names
            ]
            wider = set.intersection(*each_name)
        return [subject, *sorted(wider - {subject}), *([] if subject == EVERYTHING else [EVERYTHING])]

    def invariants(self) -> list[LintFinding]:
        """Invariants that no state meets, alone or two together."""
        roots = {each.key: each.predicate.root for each in self._policy.invariants if each.predicate is not None}
        found, met = [], []
        for key, root in roots.items():
            if self._prover.never([Term(root)], Scope()):
                message = "no state meets it, so that nothing can ever be committed"
                found.append(LintFinding(LintRule.NEVER_TRUE, key, message))
            else:
                met.append(key)
        for place, key in enumerate(met):
            if self._prover.has_stopped:
                break
            for other in met[:place]:
                if self._prover.never([Term(roots[key]), Term(roots[other])], Scope()):
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
            subjects = dict.fromkeys(self._subjects_of_tools.find(tool_id))
            about += [each for subject in subjects for each in self._by_subject[subject]]
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
        return each.key not in self.dead and not self._prover.never([_holding(each)], scope)

    def _always_holds(self, each: Constraint, scope: Scope) -> bool:
        # Which tool is called makes a difference only to what asks for it.
        known = (each.key, scope if "$tool.id" in self._references[each.key] else None)
        if known not in self._certain:
            self._certain[known] = self._prover.never([_failing(each)], scope)
        return self._certain[known]

    def _find_overruling(self, each: Constraint, above: list[Constraint]) -> LintFinding | None:
        if each.effect is Effect.DENY:
            return self._useless_deny(each, above)
        return self._useless_allow(each, above)

    def _useless_deny(self, deny: Constraint, above: list[Constraint]) -> LintFinding | None:
        for other in [] if _blocks_without_case(deny) else above:
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
        for other in above:
            if other.effect is not Effect.DENY or other.on_fail is Failure.ASK or not self._implies(allow, other):
                continue
            # An approval can stand in for what this allow asks for, where the deny does not hold.
            always = all(self._always_denies(other, scope) for scope in _scopes_of(allow.subject))
            if allow.on_fail is Failure.ASK and not always:
                continue
            message = f"it never permits anything: wherever it holds, `{other.key}` denies"
            rule = LintRule.CONTRADICTING if self._is_same(allow, other) else LintRule.SHADOWED
            return LintFinding(rule, allow.key, message, "when", [other.key])
        if allow.on_fail is Failure.ASK:
            return None
        for other in above:
            if other.effect is not Effect.ALLOW or other.key == allow.key or not self._implies(allow, other):
                continue
            # Without a case, one that reads it does not hold, whatever its `when` says.
            if _reads_case(other):
                continue
            if allow.key < other.key and self._is_same(allow, other):
                continue
            message = f"it adds no permission: wherever it holds, `{other.key}` does too"
            return LintFinding(LintRule.SHADOWED, allow.key, message, "when", [other.key])
        return None

    def _is_same(self, one: Constraint, other: Constraint) -> bool:
        """Whether both are about the same, and hold together or not at all; `one` implies `other` already."""
        return one.subject == other.subject and self._never([_holding(other), _failing(one)], one.subject)

    def _implies(self, one: Constraint, other: Constraint) -> bool:
        """Whether the other holds wherever one does; `one` holds somewhere."""
        if self._references[one.key].isdisjoint(self._references[other.key]):
            # Neither knows of what the other reads.
            return all(self._always_holds(other, scope) for scope in _scopes_of(one.subject))
        self._searches += 1
        if self._searches > MAX_SEARCHES:
            self.complete = False
            return False
        return self._never([_holding(one), _failing(other)], one.subject)

    def _never(self, terms: list[Term], subject: Subject) -> bool:
        return all(self._prover.never(terms, scope) for scope in _scopes_of(subject))


def _reads_case(each: Constraint) -> bool:
    return each.when is not None and each.when.case_use is not CaseUse.NONE


def _blocks_without_case(each: Constraint) -> bool:
    """Whether it denies what has no case, so that it does something where its `when` never holds too."""
    return each.effect is Effect.DENY and _reads_case(each)


def _holding(each: Constraint) -> Term:
    return Term(None if each.when is None else each.when.root)


def _failing(each: Constraint) -> Term:
    return _holding(each)._replace(holds=False)


def _scopes_of(subject: Subject) -> list[Scope]:
    """Which candidates a subject is about, at least."""
    match subject.kind:
        case SubjectKind.TOOL if len(subject.names) <= MAX_TOOLS_EACH:
            return [Scope(name, deltas=False) for name in subject.names]
        case SubjectKind.TOOL | SubjectKind.PATTERN | SubjectKind.CAPABILITY:
            return [Scope(deltas=False)]
        case SubjectKind.EVERYTHING:
            return [Scope()]
        case _:
            assert_never(subject.kind)


def _unknown_tools(policy: Policy, constraints: list[Constraint], known: frozenset[str]) -> list[LintFinding]:
    found = []
    for each in constraints:
        for name in each.subject.names if each.subject.kind in {SubjectKind.TOOL, SubjectKind.PATTERN} else ():
            if not Subject(each.subject.kind, (name,)).covers_any_tool(known):
                (meant,) = get_close_matches(name, sorted(known), 1) or [""]
                message = f"there is no tool `{name}`" + (f"; did you mean `{meant}`" if meant else "")
                unknown = LintFinding(LintRule.UNKNOWN_TOOL, each.key, message, "subject", found=name, accepted=meant)
                found.append(unknown)
    for tool_id, text in policy.offers.items():
        offered = canonical.decode(text).get("tool_id")
        if tool_id not in known:
            found.append(LintFinding(LintRule.UNKNOWN_TOOL, DEGRADE + tool_id, f"there is no tool `{tool_id}`"))
        if offered is not None and offered not in known:
            message = f"it offers the tool `{offered}`, and there is none"
            found.append(LintFinding(LintRule.UNKNOWN_TOOL, DEGRADE + tool_id, message, "tool_id"))
    return found
