"""YAML as a tree with places, and data as YAML.

A plain word is text unless it is a number, `true`, `false` or `null` as JSON has them, as in the core of YAML 1.2:
`no`, `12:30` and `2026-01-31` are texts. The tree is built from the events of the parser: no tag constructs anything,
nothing is nested deeper than the limit, and what an alias stands for counts against the limit each time it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from cmbs.documents.findings import Place, Rule, Unreadable
from cmbs.documents.nodes import Items, Node, Row, Scalar, ScalarKind, TreeReader, classify_plain

# The parser in C where PyYAML was built with it: the same events, an order of magnitude sooner.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_TEXT_TAG = "tag:yaml.org,2002:str"
_LINE_WIDTH = 120


def read_yaml(text: str) -> Node:
    """The document; `Unreadable` says what is wrong and where."""
    # Searched for here, because the parser in C gives their place in bytes.
    forbidden = _FORBIDDEN.search(text)
    if forbidden is not None:
        line_start = text.rfind("\n", 0, forbidden.start()) + 1
        place = Place(text.count("\n", 0, line_start) + 1, forbidden.start() - line_start + 1)
        raise Unreadable(Rule.SYNTAX, f"not YAML: character U+{ord(forbidden.group()):04X} needs an escape", place)
    try:
        return _Reader(text).read()
    except yaml.MarkedYAMLError as exc:
        what = ", ".join(part for part in (exc.context, exc.problem) if part)
        raise Unreadable(Rule.SYNTAX, f"not YAML: {what}", _place(exc.problem_mark or exc.context_mark)) from exc


class _Reader(TreeReader):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        # What each anchor stands for, and how many values that has; None while it is not complete.
        self._anchors: dict[str, tuple[Node, int] | None] = {}

    def read(self) -> Node:
        next(self._events)  # the stream begins
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise Unreadable(Rule.SYNTAX, "the document is empty", Place(1, 1))
        node = self._node(next(self._events), 1)
        next(self._events)  # the document ends
        after = next(self._events)
        if isinstance(after, yaml.DocumentStartEvent):
            message = "a file is one YAML document, and here begins another"
            raise Unreadable(Rule.SYNTAX, message, _place(after.start_mark))
        return node

    def _node(self, event: Any, depth: int) -> Node:
        place = _place(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            return self._resolve_alias(event.anchor or "", place)
        if event.tag is not None and not (isinstance(event, yaml.ScalarEvent) and event.tag in {"!", _TEXT_TAG}):
            raise Unreadable(Rule.TAG, f"tag `{event.tag}` has no meaning here", place)
        before = self._values
        self._count(1, place)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node = self._read_value(event, place, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, self._values - before)
        return node

    def _read_value(self, event: Any, place: Place, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            kind = classify_plain(event.value) if event.tag is None and event.implicit[0] else ScalarKind.TEXT
            if kind is ScalarKind.TEXT:
                return self._make_text(place, event.value)
            return Scalar(place, kind, event.value)
        self._check_depth(depth, place)
        if isinstance(event, yaml.SequenceStartEvent):
            return Items(place, tuple(self._children(yaml.SequenceEndEvent, depth + 1)))
        children = self._children(yaml.MappingEndEvent, depth + 1)
        return self._make_fields(place, zip(children, children, strict=True))

    def _children(self, end: type[yaml.Event], depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self._events), end):
            yield self._node(event, depth)

    def _resolve_alias(self, anchor: str, place: Place) -> Node:
        target = self._anchors.get(anchor)
        if target is None:
            reason = "would contain itself" if anchor in self._anchors else "stands for nothing"
            raise Unreadable(Rule.ALIAS, f"alias `*{anchor}` {reason}", place)
        node, values = target
        self._count(values, place)
        return node


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


class _Dumper(_DUMPER):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_row(dumper: Any, row: Row) -> Any:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", row, flow_style=True)


def _represent_text(dumper: Any, text: str) -> Any:
    # Other styles fold line ends of every kind. PyYAML would write some words plain that are numbers here, as `1e5`.
    plain = text.isprintable() and classify_plain(text) is ScalarKind.TEXT
    return dumper.represent_scalar(_TEXT_TAG, text, style=None if plain else '"')


_Dumper.add_representer(Row, _represent_row)
_Dumper.add_representer(str, _represent_text)


def format_yaml(data: Any) -> str:
    """Data as YAML that people read: blocks for what is long, one line for a `Row`, quotes where they are needed."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_LINE_WIDTH))
