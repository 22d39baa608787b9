"""How `cmbs policy …` shows what it found, to people and to programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cmbs.cli.output import err, format_count, out
from cmbs.substrate.kernel.insight.cases import CaseReport, Mismatch
from cmbs.substrate.kernel.insight.explanation import Because, Change, Explanation, Flip
from cmbs.substrate.kernel.insight.flips import FlipStatus
from cmbs.substrate.kernel.insight.impact import Impact, PolicyFlip
from cmbs.substrate.kernel.insight.lint import LintFinding, LintReport
from cmbs.substrate.kernel.model import TraceStep, Verdict
from cmbs.tee.access import visible

Reports = Sequence[tuple[str, CaseReport]]


def tests_to_dict(name: str, tested: CaseReport) -> dict[str, Any]:
    """What came of the cases of one file, as JSON-able data."""
    coverage = tested.coverage
    return {
        "file": name,
        "passed": sum(result.passed for result in tested.results),
        "failed": sum(not result.passed for result in tested.results),
        "results": [{"passed": each.passed, **msgspec.to_builtins(each)} for each in tested.results],
        "coverage": {**msgspec.to_builtins(coverage), "never_asked": coverage.never_asked},
    }


def show_tests(reports: Reports) -> None:
    """What came of cases, and what they did not come to."""
    for name, tested in reports:
        for result in tested.results:
            if result.passed:
                out.print(visible(f"ok    {result.name}"))
                continue
            out.print(visible(f"FAIL  {result.name}"))
            for each in result.mismatches:
                out.print(visible(f"      {_mismatch(each)}"))
        coverage = tested.coverage
        for key in coverage.never_asked:
            out.print(visible(f"never asked      {key}"))
        for key in coverage.one_sided:
            side = "never held" if not coverage.held[key] else "always held"
            out.print(visible(f"{side:<16} {key}"))
        asked = len(coverage.asked) - len(coverage.never_asked)
        failed = sum(not result.passed for result in tested.results)
        total = f"{format_count(len(tested.results), 'case')}, {failed} failed"
        out.print(visible(f"{name}: {total}; {asked} of {format_count(len(coverage.asked), 'rule')} asked"))


def _mismatch(mismatch: Mismatch) -> str:
    return f"{mismatch.at}: expected {_format(mismatch.expected)}, found {_format(mismatch.found)}"


def _format(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def lint_to_dict(name: str, report: LintReport) -> dict[str, Any]:
    """What is wrong with one policy, as JSON-able data."""
    findings = [{"severity": each.severity.value, **msgspec.to_builtins(each)} for each in report.findings]
    return {"file": name, "complete": report.complete, "findings": findings}


def show_lint(reports: Sequence[tuple[str, LintReport]]) -> None:
    """What is wrong with policies."""
    for name, report in reports:
        for finding in report.findings:
            err.print(visible(f"{finding.severity:<8} {_finding(name, finding)}"))
        if not report.complete:
            err.print(visible(f"note     {name}: too many constraints to compare each with each; some were not"))
        out.print(visible(f"{name}: {format_count(len(report.findings), 'finding')}"))


def _finding(name: str, finding: LintFinding) -> str:
    place = f"{finding.key} {finding.at}".strip()
    return f"{name}: {place}: {finding.message} [{finding.rule}]" if place else f"{name}: {finding.message}"


# --- explanations -----------------------------------------------------------------------------------------------------

_TURNS = {
    FlipStatus.SMALLEST: "the smallest change that turns it",
    FlipStatus.BOUND: "a change that turns it; fewer facts may do",
}


def show_explanation(explanation: Explanation) -> None:
    """Why, and what would have turned it."""
    decision = explanation.decision
    failure = "" if decision.failure is None else f" ({decision.failure})"
    out.print(visible(f"{decision.verdict}{failure}: {decision.reason_code}{_at_stage(decision.stage)}"))
    for because in explanation.because:
        _show_because(because)
    if explanation.withheld:
        out.print(f"{format_count(explanation.withheld, 'step')} not shown: they read what is not yours to read")
    _show_flip(explanation.flip)


def _at_stage(stage: Any) -> str:
    return "" if stage is None else f" at the stage {stage}"


def _show_because(because: Because) -> None:
    out.print(visible(f"candidate {because.candidate}: {because.verdict}, {because.reason_code}"))
    for speaker in because.speakers:
        reason = "" if speaker.reason is None else f": {speaker.reason}"
        out.print(visible(f"  {speaker.key}{reason}"))
        for step in speaker.steps:
            out.print(visible(f"    {_step(step)}"))
    if because.approvable:
        out.print("  an approval would let it pass")


def _step(step: TraceStep) -> str:
    truth = "holds" if step.passed else "fails"
    found = "is not there" if step.found is None else f"is {step.found or 'empty'}"
    note = "" if step.note is None else f" ({step.note})"
    return f"{truth}  {step.at or 'predicate'} {step.op}: {step.reference} {found}{note}"


def _show_flip(flip: Flip) -> None:
    if flip.status in _TURNS:
        out.print(visible(f"{_TURNS[flip.status]} to {flip.verdict}:"))
        for change in flip.changes:
            out.print(visible(f"  {_change(change)}"))
    elif flip.status is FlipStatus.NONE:
        out.print(f"no change of facts turns it: {flip.note}")
    else:
        out.print(f"no change of facts was found that turns it, and none of up to {flip.ruled_out} does")


def _change(change: Change) -> str:
    now = "is not there" if change.now is None else f"is {change.now or 'empty'}"
    if change.withheld:
        return f"{change.reference} would have to be otherwise; how is not yours to read"
    to = "be gone" if change.to is None else f"be {change.to or 'empty'}"
    return f"{change.reference} {now}, and would have to {to}"


# --- impact -----------------------------------------------------------------------------------------------------------


def show_impact(impact: Impact) -> None:
    """What another policy would have changed."""
    for flip in impact.flips:
        out.print(visible(_flip(flip)))
        for line in _effects(flip):
            out.print(visible(f"    {line}"))
    kinds = ", ".join(f"{number} {kind}" for kind, number in impact.counts().items() if number)
    total = f"{format_count(impact.decisions, 'decision')}, {format_count(len(impact.flips), 'flip')}"
    same = f"; {impact.otherwise} with the same verdict for another reason" if impact.otherwise else ""
    out.print(total + (f": {kinds}" if kinds else "") + same)


def _flip(flip: PolicyFlip) -> str:
    who = f"{flip.actor.kind}:{flip.actor.id}"
    reasons = f"{flip.before.reason_code} → {flip.after.reason_code}"
    return f"{flip.kind}  seq {flip.seq}  {flip.proposal_id}  by {who}  {reasons}"


def _effects(flip: PolicyFlip) -> list[str]:
    would = "would" if flip.after.verdict is Verdict.ALLOW else "would no longer"
    changes = flip.touched.changes
    lines = [f"{would} set {key} to {text}" for key, text in changes.set.items()]
    lines += [f"{would} unset {key}" for key in changes.unset]
    return lines + [f"{would} call {tool_id}" for tool_id in flip.touched.tool_ids]
