"""What a constraint is about: tools by id or by pattern, a capability, or everything.

A pattern is a tool id with `*` in it, which stands for any characters, dots included, or none. It is held against the
whole id, and case matters. Patterns are found by their literal ends, so that a decision does not ask every one of them.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

MAX_SUBJECT_CHARACTERS = 512
_STAR = "*"


class SubjectKind(IntEnum):
    """What a constraint is about; the most specific first."""

    TOOL = 0
    PATTERN = 1
    CAPABILITY = 2
    EVERYTHING = 3


class Subject(NamedTuple):
    """Tools by their ids, tools of which some are named by a pattern, a capability by its name, or everything."""

    kind: SubjectKind
    names: tuple[str, ...] = ()

    def covers_any_tool(self, tool_ids: Collection[str]) -> bool:
        """Whether some of these tools are among those that it names."""
        index = ToolIndex[None]()
        index.add(self, None)
        return any(index.find(tool_id) for tool_id in tool_ids)


EVERYTHING = Subject(SubjectKind.EVERYTHING)


def read_subject(content: Any) -> Subject | None:
    """The subject of a payload of version 1; None where it is none."""
    match content:
        case None:
            return EVERYTHING
        case {"tool_id": str(name), **others} if not others and _is_name(name):
            return Subject(SubjectKind.TOOL, (name,))
        case {"capability": str(name), **others} if not others and _is_name(name):
            return Subject(SubjectKind.CAPABILITY, (name,))
        case _:
            return None


def read_wider_subject(content: Any) -> Subject | None:
    """The subject of a payload of version 2, where tools may be several and patterns; None where it is none."""
    match content:
        case {"tool_id": str(name)}:
            names = [name]
        case {"tool_id": [*names]}:
            pass
        case _:
            return read_subject(content)
    if len(content) > 1 or not names or not all(map(_is_name, names)):
        return None
    kind = SubjectKind.PATTERN if any(map(is_pattern, names)) else SubjectKind.TOOL
    return Subject(kind, tuple(sorted(set(names))))


def is_pattern(name: str) -> bool:
    """Whether a tool id of a version 2 payload stands for several."""
    return _STAR in name


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_SUBJECT_CHARACTERS


class _Pattern(NamedTuple):
    """A pattern in its literal parts: the beginning, what comes in between in this order, the end."""

    first: str
    between: tuple[str, ...]
    last: str

    def fits(self, tool_id: str) -> bool:
        """Whether a tool id that begins and ends as it should, and is long enough for both, has the rest too."""
        place, end = len(self.first), len(tool_id) - len(self.last)
        for part in self.between:
            # The leftmost place leaves the most room for what follows.
            place = tool_id.find(part, place, end)
            if place < 0:
                return False
            place += len(part)
        return True


def _parse_pattern(name: str) -> _Pattern:
    first, *between, last = name.split(_STAR)
    return _Pattern(first, tuple(filter(None, between)), last)


T = TypeVar("T")


class ToolIndex(Generic[T]):
    """What is about which tool. Finding takes one look for each pair of lengths that the ends of patterns have."""

    __slots__ = ("_by_ends", "_by_id")

    def __init__(self) -> None:
        self._by_id: dict[str, list[T]] = {}
        self._by_ends: dict[tuple[int, int], dict[tuple[str, str], list[tuple[_Pattern, T]]]] = {}

    def add(self, subject: Subject, about: T) -> None:
        """Note what is about the tools of a subject."""
        for name in subject.names:
            if subject.kind is SubjectKind.TOOL or not is_pattern(name):
                self._by_id.setdefault(name, []).append(about)
                continue
            pattern = _parse_pattern(name)
            first, last = pattern.first, pattern.last
            same_lengths = self._by_ends.setdefault((len(first), len(last)), {})
            same_lengths.setdefault((first, last), []).append((pattern, about))

    def find(self, tool_id: str) -> list[T]:
        """What is about this tool, each as often as names of it fit."""
        found = [*self._by_id.get(tool_id, ())]
        length = len(tool_id)
        for (first, last), by_ends in self._by_ends.items():
            if first + last <= length:
                alike = by_ends.get((tool_id[:first], tool_id[length - last :]), ())
                found += [about for pattern, about in alike if pattern.fits(tool_id)]
        return found
