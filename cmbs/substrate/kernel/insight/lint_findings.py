"""What lint can find in a policy, and how bad each of it is."""

from __future__ import annotations

from enum import StrEnum

import msgspec


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
    # A reference that no situation gives a value: a reference inside of another is not looked up.
    NEVER_FOUND = "never-found"
    # An allow with an upper bound on survivors that also holds where none is left.
    NO_SURVIVOR = "no-survivor"
    # A bound on a number that text passes, since its schema names no type.
    TEXT_PASSES = "text-passes"
    # What is deferred is parked, and nothing that can change is waited for.
    WAITS_FOR_NOTHING = "waits-for-nothing"
    # No call of a known tool, or no state delta, can ever be allowed.
    NEVER_ALLOWED = "never-allowed"


SEVERITY: dict[LintRule, Severity] = {
    LintRule.MALFORMED: Severity.ERROR,
    LintRule.NEVER_TRUE: Severity.ERROR,
    LintRule.CONTRADICTING: Severity.ERROR,
    LintRule.UNKNOWN_TOOL: Severity.ERROR,
    LintRule.NEVER_FOUND: Severity.ERROR,
    LintRule.SHADOWED: Severity.WARNING,
    LintRule.NO_SURVIVOR: Severity.WARNING,
    LintRule.TEXT_PASSES: Severity.WARNING,
    LintRule.WAITS_FOR_NOTHING: Severity.WARNING,
    LintRule.NEVER_ALLOWED: Severity.NOTE,
}


class LintFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong: under which key, where in its value, and which other keys it has to do with.

    `found` is a name that is not known, `accepted` the known one that is most like it.
    """

    rule: LintRule
    key: str
    message: str
    at: str = ""
    others: list[str] = []
    found: str = ""
    accepted: str = ""

    @property
    def severity(self) -> Severity:
        """How bad that is."""
        return SEVERITY[self.rule]


class LintReport(msgspec.Struct, frozen=True):
    """Everything that was found, by key; `complete` is false where not all pairs of a policy were compared."""

    findings: list[LintFinding]
    complete: bool = True
