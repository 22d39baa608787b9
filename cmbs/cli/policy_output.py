"""How `cmbs policy …` shows what it found, to people and to programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from cmbs.cli.output import err, format_count, out
from cmbs.refusals import Refusal
from cmbs.substrate.kernel.insight.explanation import Explanation
from cmbs.substrate.kernel.insight.findings import Because, Change, Flip, Mismatch, Origin
from cmbs.substrate.kernel.insight.impact import Impact, PolicyFlip
from cmbs.substrate.kernel.insight.lint_findings import LintFinding, LintReport, Severity
from cmbs.substrate.kernel.insight.policy_tests import PolicyTestReport
from cmbs.substrate.kernel.model import TraceStep, Verdict
from cmbs.substrate.kernel.policy.source_map import SourceMap
from cmbs.substrate.kernel.words import FlipStatus
from cmbs.tee.access import visible

# Each is of one file, with its name before it and the way back into it behind.
TestReports = Sequence[tuple[str, PolicyTestReport, SourceMap]]
LintReports = Sequence[tuple[str, LintReport, SourceMap]]


def has_failure(reports: Iterable[PolicyTestReport]) -> bool:
    """Whether a test failed."""
    return any(not result.passed for tested in reports for result in tested.results)


def has_problem(reports: Iterable[LintReport]) -> bool:
    """Whether there is an error or a warning."""
    return any(finding.severity is not Severity.NOTE for report in reports for finding in report.findings)


def _locate(name: str, origin: Origin | None) -> str:
    """A place in a file that editors can follow."""
    return name if origin is None else f"{name}:{origin.line}:{origin.column}"


def _name_rule(key: str, origin: Origin | None) -> str:
    return key if origin is None else origin.rule


def tests_to_dict(name: str, tested: PolicyTestReport, source_map: SourceMap) -> dict[str, Any]:
    """What came of the tests of one file, as JSON-able data."""
    coverage = tested.coverage
    return {
        "file": name,
        "passed": sum(result.passed for result in tested.results),
        "failed": sum(not result.passed for result in tested.results),
        "results": [{"passed": each.passed, **msgspec.to_builtins(each)} for each in tested.results],
        "coverage": {**msgspec.to_builtins(coverage), "never_asked": coverage.never_asked},
        "origins": {key: msgspec.to_builtins(source_map.find(key)) for key in coverage.asked},
    }


def show_tests(reports: TestReports) -> None:
    """What came of tests, and what they did not come to."""
    for name, tested, source_map in reports:
        for result in tested.results:
            if result.passed:
                out.print(visible(f"ok    {result.name}"))
                continue
            out.print(visible(f"FAIL  {result.name}"))
            for each in result.mismatches:
                out.print(visible(f"      {_mismatch(each)}"))
        coverage = tested.coverage
        for key in coverage.never_asked:
            out.print(visible(f"never asked      {_rule(name, key, source_map)}"))
        for key in coverage.one_sided:
            side = "never held" if not coverage.held[key] else "always held"
            out.print(visible(f"{side:<16} {_rule(name, key, source_map)}"))
        asked = len(coverage.asked) - len(coverage.never_asked)
        failed = sum(not result.passed for result in tested.results)
        total = f"{format_count(len(tested.results), 'test')}, {failed} failed"
        out.print(visible(f"{name}: {total}; {asked} of {format_count(len(coverage.asked), 'rule')} asked"))


def _rule(name: str, key: str, source_map: SourceMap | None) -> str:
    origin = None if source_map is None else source_map.find(key)
    return f"{_name_rule(key, origin)} ({_locate(name, origin)})"


def _mismatch(mismatch: Mismatch) -> str:
    return f"{mismatch.at}: expected {_format(mismatch.expected)}, found {_format(mismatch.found)}"


def _format(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def lint_to_dict(name: str, report: LintReport, source_map: SourceMap) -> dict[str, Any]:
    """What is wrong with one policy, as JSON-able data."""
    findings = [
        {
            "severity": each.severity.value,
            **msgspec.to_builtins(each),
            "origin": msgspec.to_builtins(source_map.find(each.key, each.at)),
        }
        for each in report.findings
    ]
    return {"file": name, "complete": report.complete, "findings": findings}


def show_lint(reports: LintReports) -> None:
    """What is wrong with policies."""
    for name, report, source_map in reports:
        for finding in report.findings:
            err.print(visible(f"{finding.severity:<8} {_finding(name, finding, source_map)}"))
        if not report.complete:
            err.print(visible(f"note     {name}: too many constraints to compare each with each; some were not"))
        out.print(visible(f"{name}: {format_count(len(report.findings), 'finding')}"))


def _finding(name: str, finding: LintFinding, source_map: SourceMap) -> str:
    origin = source_map.find(finding.key, finding.at)
    rule = f"{_name_rule(finding.key, origin)}: " if finding.key else ""
    condition = f", in `{origin.condition}`" if origin is not None and origin.condition is not None else ""
    message = _in_own_terms(finding.message, finding.others, source_map)
    return f"{_locate(name, origin)}: {rule}{message}{condition} [{finding.rule}]"


def _in_own_terms(message: str, keys: Sequence[str], source_map: SourceMap) -> str:
    """A message about other keys, with the names that they have in the file."""
    for key in keys:
        origin = source_map.find(key)
        if origin is not None:
            message = message.replace(f"`{key}`", f"`{origin.rule}` (line {origin.line})")
    return message


# --- explanations -----------------------------------------------------------------------------------------------------

_TURNS = {
    FlipStatus.SMALLEST: "the smallest change that turns it",
    FlipStatus.BOUND: "a change that turns it; fewer facts may do",
}


def show_explanation(explanation: Explanation, name: str) -> None:
    """Why, and what would have turned it; `name` is that of the policy file."""
    decision = explanation.decision
    failure = "" if decision.failure is None else f" ({decision.failure})"
    out.print(visible(f"{decision.verdict}{failure}: {decision.reason_code}{_at_stage(decision.stage)}"))
    for because in explanation.because:
        _show_because(because, name)
    if explanation.withheld:
        out.print(f"{format_count(explanation.withheld, 'step')} not shown: they read what is not yours to read")
    _show_flip(explanation.flip)


def show_refusals(refusals: Sequence[Refusal]) -> None:
    """What each candidate that is not allowed is told."""
    for refusal in refusals:
        where = "the proposal" if refusal.candidate is None else f"candidate {refusal.candidate}"
        out.print(visible(f"{where} is told {refusal.code}: {refusal.message}"))
        for fault in refusal.faults[3:]:
            out.print(visible(f"  {fault.message}"))
        out.print(visible(f"  next: {refusal.next}"))


def _at_stage(stage: Any) -> str:
    return "" if stage is None else f" at the stage {stage}"


def _show_because(because: Because, name: str) -> None:
    out.print(visible(f"candidate {because.candidate}: {because.verdict}, {because.reason_code}"))
    for speaker in because.speakers:
        reason = "" if speaker.reason is None else f": {speaker.reason}"
        place = "" if speaker.origin is None else f" ({_locate(name, speaker.origin)})"
        out.print(visible(f"  {_name_rule(speaker.key, speaker.origin)}{place}{reason}"))
        for step in speaker.steps:
            out.print(visible(f"    {_step(step, speaker.origins.get(step.at or ''))}"))
    if because.approvable:
        out.print("  an approval would let it pass")


def _step(step: TraceStep, origin: Origin | None) -> str:
    truth = "holds" if step.passed else "fails"
    found = "is not there" if step.found is None else f"is {step.found or 'empty'}"
    note = "" if step.note is None else f" ({step.note})"
    asked = f"{step.at or 'predicate'} {step.op}"
    if origin is not None and origin.condition is not None:
        asked = f"line {origin.line}, {origin.condition}"
    return f"{truth}  {asked}: {step.reference} {found}{note}"


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


def show_impact(impact: Impact, name: str = "", source_map: SourceMap | None = None) -> None:
    """What another policy would have changed; `name` is that of its file, if there is another."""
    for flip in impact.flips:
        out.print(visible(_flip(flip)))
        speaking = {key for each in flip.after.candidates for key in each.matched}
        for key in sorted(speaking) if source_map is not None else ():
            out.print(visible(f"    by {_rule(name, key, source_map)}"))
        for line in _effects(flip):
            out.print(visible(f"    {line}"))
    kinds = ", ".join(f"{number} {kind}" for kind, number in impact.counts().items() if number)
    total = f"{format_count(impact.decisions, 'decision')}, {format_count(len(impact.flips), 'flip')}"
    same = f"; {impact.otherwise} with the same verdict for another reason" if impact.otherwise else ""
    out.print(total + (f": {kinds}" if kinds else "") + same)
    _show_unknown(impact)


def _show_unknown(impact: Impact) -> None:
    for each in impact.unknown:
        sessions = ", ".join(f"`{session_id}`" for session_id in each.session_ids)
        err.print(visible(f"unknown  seq {each.seq}  {each.proposal_id}: what session {sessions} said then"))
    if impact.unknown:
        number = format_count(len(impact.unknown), "decision")
        out.print(visible(f"{number} of {impact.space_id} could not be made again"))


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
