"""YAML as plain JSON data, with the line of everything in it: the core of YAML 1.2 and nothing that does anything.

Built from the events of the parser, so that no tag constructs anything and nothing is deeper than the limit. A plain
word is text unless it is a number, `true`, `false` or `null` as JSON has them: `no` and `2026-01-31` are texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from cmbs.errors import InvalidRequest
from cmbs.ledger import canonical

MAX_DEPTH = canonical.MAX_DEPTH
# Values in a document; what an alias stands for counts each time.
MAX_VALUES = 1_000_000

# The parser in C where PyYAML was built with it: the same events, an order of magnitude sooner.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})

Path: TypeAlias = tuple[str | int, ...]


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come; in a mapping, names and values take turns."""

    line: int
    path: Path
    anchor: str | None
    is_mapping: bool
    items: list[Any] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    values: int = 1
    name: str | None = None


def read_yaml(text: str) -> tuple[Any, dict[Path, int]]:
    """The one document in a text, and the line of every value in it; InvalidRequest says what is wrong and where."""
    reader = _Reader()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise _fault(0 if mark is None else mark.line + 1, f"not YAML: {exc.problem or exc.context}") from exc
    except yaml.reader.ReaderError as exc:
        raise _fault(text.count("\n", 0, exc.position) + 1, f"not YAML: {exc.reason}") from exc
    if not reader.done:
        raise InvalidRequest("the document is empty")
    return reader.root, reader.lines


class _Reader:
    """What the events came to so far."""

    def __init__(self) -> None:
        self.root: Any = None
        self.done = False
        self.lines: dict[Path, int] = {}
        self._open: list[_Open] = []
        # Values with an anchor, and how much is in each; None while they are not complete.
        self._anchors: dict[str, tuple[Any, int] | None] = {}

    def take(self, event: yaml.Event) -> None:
        mark: Any = event.start_mark
        line: int = mark.line + 1
        match event:
            case yaml.DocumentStartEvent() if self.done:
                raise _fault(line, "one document is enough, and here begins another")
            case yaml.ScalarEvent():
                self._complete(line, _scalar(event, line), 1, event.anchor)
            case yaml.AliasEvent():
                known = self._anchors.get(event.anchor or "")
                if known is None:
                    raise _fault(line, f"alias `*{event.anchor}` stands for nothing that is complete")
                self._complete(line, *known, None)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._begin(event, line)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                ended = self._open.pop()
                value: Any = dict(ended.items) if ended.is_mapping else ended.items
                self._complete(ended.line, value, ended.values, ended.anchor)
            case _:
                pass  # the stream and its document begin and end

    def _begin(self, event: yaml.SequenceStartEvent | yaml.MappingStartEvent, line: int) -> None:
        if event.tag is not None:
            raise _fault(line, f"tag `{event.tag}` has no meaning here")
        if len(self._open) >= MAX_DEPTH:
            raise _fault(line, f"nested more than {MAX_DEPTH} deep")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._open.append(_Open(line, self._path(), event.anchor, isinstance(event, yaml.MappingStartEvent)))
        self._refuse_name(line)

    def _refuse_name(self, line: int) -> None:
        """A list or a mapping cannot be the name of a field."""
        above = self._open[-2] if len(self._open) > 1 else None
        if above is not None and above.is_mapping and above.name is None:
            raise _fault(line, "the name of a field is text")

    def _path(self) -> Path:
        if not self._open:
            return ()
        above = self._open[-1]
        return (*above.path, (above.name or "") if above.is_mapping else len(above.items))

    def _complete(self, line: int, value: Any, values: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, values)
        if not self._open:
            self.root, self.done = value, True
            self.lines[()] = line
            return
        above = self._open[-1]
        above.values += values
        if above.values > MAX_VALUES:
            raise _fault(line, f"more than {MAX_VALUES} values")
        if above.is_mapping and above.name is None:
            above.name = self._name(above, value, line)
            return
        self.lines[self._path()] = line
        above.items.append((above.name, value) if above.is_mapping else value)
        above.name = None

    @staticmethod
    def _name(above: _Open, value: Any, line: int) -> str:
        if not isinstance(value, str):
            raise _fault(line, f"the name of a field is text: put `{value}` in quotes")
        if value in above.names:
            raise _fault(line, f"field `{value}` is there twice")
        above.names.add(value)
        return value


def _scalar(event: yaml.ScalarEvent, line: int) -> Any:
    if event.tag is not None and event.tag not in _TEXT_TAGS:
        raise _fault(line, f"tag `{event.tag}` has no meaning here")
    text = event.value
    if event.tag is not None or not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    try:
        return canonical.decode(text)
    except InvalidRequest as exc:
        raise _fault(line, exc.message) from exc


def _fault(line: int, message: str) -> InvalidRequest:
    return InvalidRequest(f"line {line}: {message}")
