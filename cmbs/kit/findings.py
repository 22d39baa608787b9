"""What may be wrong with a kit, as a closed set of rules, and where it is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cmbs.errors import InvalidKit

# Field names and list indices from the top of a kit down: ("probes", 0, "outcomes", 1).
Path = tuple[str | int, ...]


class Severity(StrEnum):
    """An error keeps a kit from being used; a warning is about a kit that can be."""

    ERROR = "error"
    WARNING = "warning"


class Rule(StrEnum):
    """What was broken. docs/reference/kits.md has an example of each."""

    SYNTAX = "syntax"
    NOT_UNICODE = "not-unicode"
    TOO_LARGE = "too-large"
    TOO_DEEP = "too-deep"
    ALIAS = "alias"
    TAG = "tag"
    DUPLICATE_FIELD = "duplicate-field"
    UNKNOWN_FIELD = "unknown-field"
    MISSING_FIELD = "missing-field"
    WRONG_TYPE = "wrong-type"
    BOOLEAN_FOR_TEXT = "boolean-for-text"
    NUMBER_FOR_TEXT = "number-for-text"
    RAGGED_ROW = "ragged-row"
    BAD_NUMBER = "bad-number"
    BAD_READING = "bad-reading"
    UNKNOWN_WORD = "unknown-word"
    DUPLICATE_ID = "duplicate-id"
    NAMED_TWICE = "named-twice"
    UNKNOWN_HYPOTHESIS = "unknown-hypothesis"
    UNKNOWN_OUTCOME = "unknown-outcome"
    RESERVED_OUTCOME = "reserved-outcome"
    NO_SOUNDNESS = "no-soundness"
    ELIMINATES_AND_KEEPS = "eliminates-and-keeps"
    ELIMINATES_EVERYTHING = "eliminates-everything"
    ELIMINATED_BY_EVERY_OUTCOME = "eliminated-by-every-outcome"
    INDISTINGUISHABLE = "indistinguishable"
    NEVER_MATTERS = "never-matters"
    REPEATS_PROBE = "repeats-probe"
    OUTCOMES_ALIKE = "outcomes-alike"


WARNINGS = frozenset({Rule.INDISTINGUISHABLE, Rule.NEVER_MATTERS, Rule.REPEATS_PROBE, Rule.OUTCOMES_ALIKE})


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a text, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule broken at one place; `place` is None where the kit is from no text."""

    rule: Rule
    message: str
    path: Path = ()
    place: Place | None = None

    @property
    def severity(self) -> Severity:
        """What the finding means for the kit."""
        return Severity.WARNING if self.rule in WARNINGS else Severity.ERROR

    def at(self, name: str) -> str:
        """The finding in a line that editors can follow."""
        where = f"{name}:{self.place.line}:{self.place.column}" if self.place else name
        return f"{where}: {self.message} [{self.rule}]"

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON-able data."""
        return {
            "severity": self.severity.value,
            "rule": self.rule.value,
            "message": self.message,
            "path": list(self.path),
            "line": self.place.line if self.place else None,
            "column": self.place.column if self.place else None,
        }


class InvalidKitFile(InvalidKit):
    """A text that is no kit; every finding names its line, its column and the rule."""

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(each.at(name) for each in findings))
        self.name = name
        self.findings = tuple(findings)


def listed(ids: Sequence[str], shown: int = 5) -> str:
    """Ids as a message names them: the first few, and how many more."""
    more = f" and {len(ids) - shown} more" if len(ids) > shown else ""
    return ", ".join(f"`{each}`" for each in ids[:shown]) + more
