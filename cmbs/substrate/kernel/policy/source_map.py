"""From the keys of a compiled policy back to its file: which line, which rule, and what the condition says there.

Explanations, findings, tests and impact speak of `constraint.rule-003` at `when.args[1]`. Who wrote the file knows a
line and a condition. Places are worked out when they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from cmbs.documents.findings import Path, Place
from cmbs.documents.nodes import Items, Node, Scalar, find_place
from cmbs.documents.scalar_places import DocumentText
from cmbs.substrate.kernel.insight.findings import Origin
from cmbs.substrate.kernel.policy.cel_syntax import Span

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_BLANK = re.compile(r"\s+")


class WrittenPart(msgspec.Struct, frozen=True):
    """What one key of a policy was written as.

    `fields` gives the nodes of places in the payload that have another name in the file, `spans` what every predicate
    of the condition was written as.
    """

    rule: str
    node: Node
    fields: Mapping[str, Node] = {}
    condition: Scalar | None = None
    spans: Mapping[str, Span] = {}


class SourceMap:
    """The origins of the keys of a policy."""

    def __init__(self, document: DocumentText, parts: Mapping[str, WrittenPart]) -> None:
        self._document = document
        self._parts = parts

    def find(self, key: str, at: str = "") -> Origin | None:
        """Where a key, or a place in its value, was written; None where the file has no such key."""
        part = self._parts.get(key)
        if part is None:
            return None
        span = _find_span(part.spans, at)
        if part.condition is not None and span is not None:
            place = self._document.locate(part.condition.place, part.condition.text, span.start)
            shown = part.condition.text[span.start : span.end]
            return Origin(place.line, place.column, part.rule, _BLANK.sub(" ", shown).strip())
        place = self._place(part, at)
        whole = None if part.condition is None else _BLANK.sub(" ", part.condition.text).strip()
        return Origin(place.line, place.column, part.rule, whole)

    def find_name(self, key: str, at: str, name: str) -> Place | None:
        """Where a name was written, alone or in a list; None where that part has the same name in file and payload."""
        node = self._parts[key].fields.get(at)
        names = node.items if isinstance(node, Items) else [node]
        return next((each.place for each in names if isinstance(each, Scalar) and each.text == name), None)

    @staticmethod
    def _place(part: WrittenPart, at: str) -> Place:
        steps = read_steps(at)
        field = part.fields.get(str(steps[0])) if steps else None
        return find_place(part.node, steps) if field is None else find_place(field, steps[1:])


def _find_span(spans: Mapping[str, Span], at: str) -> Span | None:
    """What the innermost predicate around a place was written as."""
    while at and at not in spans:
        at = at[: max(at.rfind("."), at.rfind("["), 0)]
    return spans.get(at)


def read_steps(at: str) -> Path:
    """The steps of a place such as `when.args[0]`."""
    return tuple(name or int(number) for name, number in _STEP.findall(at))
