"""YAML as a tree with places, from the events of the parser: nothing is constructed, so no tag can do anything.

Aliases are taken, and what they stand for counts against the limit each time. Merge keys are ordinary names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.resolver import Resolver

from cmbs.kit.document import Node, Scalar, ScalarKind, Unreadable, check_depth, fields_of, items_of
from cmbs.kit.findings import Place, Rule

# The parser in C where PyYAML was built with it: the same events, an order of magnitude sooner.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_TAG = "tag:yaml.org,2002:"
_KINDS = {
    f"{_TAG}str": ScalarKind.TEXT,
    f"{_TAG}bool": ScalarKind.BOOLEAN,
    f"{_TAG}int": ScalarKind.NUMBER,
    f"{_TAG}float": ScalarKind.NUMBER,
    f"{_TAG}null": ScalarKind.NULL,
    f"{_TAG}timestamp": ScalarKind.TIMESTAMP,
}
_TEXT_TAGS = frozenset({"!", f"{_TAG}str"})


def read_yaml(text: str) -> Node:
    """The document; `Unreadable` says what is wrong and where."""
    # Looked for here, because the parser in C tells their place in bytes.
    forbidden = _FORBIDDEN.search(text)
    if forbidden is not None:
        line_start = text.rfind("\n", 0, forbidden.start()) + 1
        place = Place(text.count("\n", 0, line_start) + 1, forbidden.start() - line_start + 1)
        raise Unreadable(Rule.SYNTAX, f"not YAML: character U+{ord(forbidden.group()):04X} needs an escape", place)
    reader = _Reader()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        what = ", ".join(part for part in (exc.context, exc.problem) if part)
        raise Unreadable(Rule.SYNTAX, f"not YAML: {what}", _place(mark) if mark else None) from exc
    if reader.root is None:
        raise Unreadable(Rule.SYNTAX, "the text is empty", Place(1, 1))
    return reader.root


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come; in a mapping, names and values take turns."""

    place: Place
    anchor: str | None
    is_mapping: bool
    nodes: list[Node] = field(default_factory=list)


class _Reader:
    def __init__(self) -> None:
        self.root: Node | None = None
        self._open: list[_Open] = []
        # None: begun and not ended, so that an alias to it would contain itself.
        self._anchors: dict[str, Node | None] = {}
        self._resolver: Any = Resolver()

    def take(self, event: yaml.Event) -> None:
        place = _place(event.start_mark)
        match event:
            case yaml.DocumentStartEvent() if self.root is not None:
                raise Unreadable(Rule.SYNTAX, "a kit is one YAML document, and here begins another", place)
            case yaml.ScalarEvent():
                self._complete(self._scalar(event, place), event.anchor)
            case yaml.AliasEvent():
                self._add(self._aliased(event.anchor or "", place))
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._begin(event, place)
            case yaml.SequenceEndEvent():
                ended = self._open.pop()
                self._complete(items_of(ended.place, ended.nodes), ended.anchor)
            case yaml.MappingEndEvent():
                ended = self._open.pop()
                self._complete(fields_of(ended.place, _paired(ended.nodes)), ended.anchor)
            case _:
                pass  # the stream and its documents begin and end

    def _begin(self, event: yaml.SequenceStartEvent | yaml.MappingStartEvent, place: Place) -> None:
        check_depth(len(self._open) + 1, place)
        if event.tag is not None:
            raise Unreadable(Rule.TAG, f"tag `{event.tag}` has no meaning in a kit", place)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._open.append(_Open(place, event.anchor, isinstance(event, yaml.MappingStartEvent)))

    def _scalar(self, event: yaml.ScalarEvent, place: Place) -> Scalar:
        if event.tag is not None and event.tag not in _TEXT_TAGS:
            raise Unreadable(Rule.TAG, f"tag `{event.tag}` has no meaning in a kit", place)
        if event.tag is not None or not event.implicit[0]:
            return Scalar(place, ScalarKind.TEXT, event.value)
        tag = self._resolver.resolve(yaml.ScalarNode, event.value, (True, False))
        return Scalar(place, _KINDS.get(tag, ScalarKind.TEXT), event.value)

    def _aliased(self, anchor: str, place: Place) -> Node:
        if anchor not in self._anchors:
            raise Unreadable(Rule.ALIAS, f"alias `*{anchor}` stands for nothing", place)
        node = self._anchors[anchor]
        if node is None:
            raise Unreadable(Rule.ALIAS, f"alias `*{anchor}` would contain itself", place)
        return node

    def _complete(self, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        self._add(node)

    def _add(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        if parent.is_mapping and len(parent.nodes) % 2 == 0 and not isinstance(node, Scalar):
            raise Unreadable(Rule.WRONG_TYPE, "the name of a field is a text", node.place)
        parent.nodes.append(node)


def _paired(nodes: list[Node]) -> list[tuple[Scalar, Node]]:
    names = (node for node in nodes[::2] if isinstance(node, Scalar))
    return list(zip(names, nodes[1::2], strict=True))


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)
