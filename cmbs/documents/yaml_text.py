"""YAML as a tree with places, and data as YAML.

A plain word is what the core schema of YAML 1.2 takes it for: `no`, `12:30` and `2026-01-31` are texts, `0o17` and `+1`
are numbers. What other readers of YAML take for something else than this is quoted when it is written.

The tree is built from the events of the parser: no tag constructs anything, nothing is nested deeper than the limit,
and what an alias stands for counts against the limit each time it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from yaml.resolver import Resolver

from cmbs.documents.findings import Place, Rule, Unreadable
from cmbs.documents.nodes import Items, Node, Row, Scalar, ScalarKind, TreeReader, classify_plain, go_on

# The parser in C where PyYAML was built with it: the same events, an order of magnitude sooner.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Line ends of YAML 1.1 that are none in 1.2 are among them.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_TEXT_TAG = "tag:yaml.org,2002:str"
_LINE_WIDTH = 120
_NO_WRAP = 1 << 30
# What stands for a row until its text is put there. No text is written plain that has this character.
_MARK = "\ue000"
_MARKED = re.compile(f"(?<=[ ]){_MARK}([0-9]+){_MARK}$", re.MULTILINE)
# What is a plain word wherever it stands, if it is a text.
_SIMPLE = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./+-]*")
_RESOLVER: Any = Resolver()
_PLAIN = (True, False)


def read_yaml(text: str, pause: Callable[[], object] = go_on) -> Node:
    """The document; `Unreadable` says what is wrong and where."""
    # Searched for here, because the parser in C gives their place in bytes.
    forbidden = _FORBIDDEN.search(text)
    if forbidden is not None:
        line_start = text.rfind("\n", 0, forbidden.start()) + 1
        place = Place(text.count("\n", 0, line_start) + 1, forbidden.start() - line_start + 1)
        raise Unreadable(Rule.SYNTAX, f"not YAML: character U+{ord(forbidden.group()):04X} needs an escape", place)
    try:
        return _Reader(text, pause).read()
    except yaml.MarkedYAMLError as exc:
        what = ", ".join(part for part in (exc.context, exc.problem) if part)
        raise Unreadable(Rule.SYNTAX, f"not YAML: {what}", _place(exc.problem_mark or exc.context_mark)) from exc


class _Reader(TreeReader):
    def __init__(self, text: str, pause: Callable[[], object]) -> None:
        super().__init__(pause)
        self._events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        # What each anchor stands for, and how many values that has; None while it is not complete.
        self._anchors: dict[str, tuple[Node, int] | None] = {}

    def read(self) -> Node:
        next(self._events)  # the stream begins
        begins = next(self._events)
        if isinstance(begins, yaml.StreamEndEvent):
            raise Unreadable(Rule.SYNTAX, "the document is empty", Place(1, 1))
        self._check_version(begins)
        node = self._node(next(self._events), 1)
        next(self._events)  # the document ends
        after = next(self._events)
        if isinstance(after, yaml.DocumentStartEvent):
            message = "a file is one YAML document, and here begins another"
            raise Unreadable(Rule.SYNTAX, message, _place(after.start_mark))
        return node

    @staticmethod
    def _check_version(begins: Any) -> None:
        if begins.version not in {None, (1, 2)}:
            number = ".".join(map(str, begins.version))
            message = f"not YAML: it says that it is of version {number}, and this reads 1.2"
            raise Unreadable(Rule.SYNTAX, message, _place(begins.start_mark))

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
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rows: list[Row] = []

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _style_of(text: str) -> str | None:
    """How a text is written: plain where every reader of YAML 1.1 or 1.2 takes it for a text, else in quotes."""
    plain = classify_plain(text) is ScalarKind.TEXT and _RESOLVER.resolve(yaml.ScalarNode, text, _PLAIN) == _TEXT_TAG
    # Other styles fold line ends of every kind.
    return None if plain and text.isprintable() else '"'


def _represent_text(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar(_TEXT_TAG, text, style=_style_of(text))


def _represent_row(dumper: Any, row: Row) -> Any:
    """A mark in the place of the row: the emitter takes microseconds for each id, and a kit has millions."""
    dumper.rows.append(row)
    return dumper.represent_scalar(_TEXT_TAG, f"{_MARK}{len(dumper.rows) - 1}{_MARK}")


_Dumper.add_representer(Row, _represent_row)
_Dumper.add_representer(str, _represent_text)


class YamlWriter:
    """Formats pieces of one document as YAML that people read; a text that many rows have is formatted once.

    What is long is in blocks, a `Row` in one line, and quotes are where they are needed.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def format(self, data: Any) -> str:
        """A piece of the document."""
        rows: list[Row] = []

        def make_dumper(*args: Any, **options: Any) -> Any:
            dumper = _Dumper(*args, **options)
            dumper.rows = rows
            return dumper

        text = str(yaml.dump(data, Dumper=make_dumper, sort_keys=False, allow_unicode=True, width=_LINE_WIDTH))
        return _MARKED.sub(lambda found: self._format_row(rows[int(found[1])]), text)

    def _format_row(self, row: Row) -> str:
        known = self._known
        for text in row:
            if text not in known:
                known[text] = _format_scalar(text)
        return f"[{', '.join([known[text] for text in row])}]"


def _format_scalar(text: str) -> str:
    if _SIMPLE.fullmatch(text) and _style_of(text) is None:
        return text
    # In a list, because a scalar alone is followed by the end of its document.
    return str(yaml.dump([text], Dumper=_Dumper, default_flow_style=True, allow_unicode=True, width=_NO_WRAP))[1:-2]
