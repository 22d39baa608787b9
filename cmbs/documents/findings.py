"""What is wrong with a document, and where: one type for kits, tables and policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cmbs.errors import CmbsError

# Findings in one answer; a list that is wrong from one end to the other is reported by its beginning.
MAX_FINDINGS = 100

# Field names and list indices from the top of a document down: ("probes", 0, "outcomes", 1).
Path = tuple[str | int, ...]


class Severity(StrEnum):
    """An error keeps a document from being used; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


class Rule(StrEnum):
    """What any document may break. docs/reference/kits.md has an example of each."""

    SYNTAX = "syntax"
    NOT_UNICODE = "not-unicode"
    NUL = "nul"
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
    UNKNOWN_WORD = "unknown-word"


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a text, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Fix:
    """A name that is not known, where it stands, and the known one that is most like it."""

    place: Place
    found: str
    accepted: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule broken at one place; `place` is None where the finding is about no text, or about all of it."""

    rule: StrEnum
    message: str
    path: Path = ()
    place: Place | None = None
    severity: Severity = Severity.ERROR
    fix: Fix | None = None

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


class Unreadable(Exception):
    """The text is no document of its language; nothing of it can be examined further."""

    def __init__(self, rule: Rule, message: str, place: Place | None) -> None:
        super().__init__(message)
        self.finding = Finding(rule, message, place=place)


class InvalidDocument(CmbsError):
    """A document that cannot be used; every finding names its rule and, where it has one, its line and column."""

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(each.at(name) for each in findings))
        self.name = name
        self.findings = tuple(findings)


def sort_by_place(findings: Sequence[Finding]) -> list[Finding]:
    """Findings in the order of the text, those without a place first."""
    return sorted(findings, key=lambda each: (each.place.line, each.place.column) if each.place else (0, 0))


def list_ids(ids: Sequence[str], shown: int = 5) -> str:
    """Ids as a message names them: the first few, and how many more."""
    more = f" and {len(ids) - shown} more" if len(ids) > shown else ""
    return ", ".join(f"`{each}`" for each in ids[:shown]) + more
