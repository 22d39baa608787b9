"""Documents in YAML or JSON, by the ending of their name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from cmbs.documents.findings import InvalidDocument, Place, Rule, Unreadable
from cmbs.documents.json_text import read_json
from cmbs.documents.nodes import MAX_BYTES, Node, count_values, go_on
from cmbs.errors import InvalidRequest

# How many values of a list are formatted at a time, at least.
_VALUES_IN_A_PIECE = 2_000


def read_document(data: bytes, name: str, pause: Callable[[], object] = go_on) -> Node:
    """The document in a file of this name; `InvalidDocument` says what is wrong and where.

    The ending of the name says which language it is in; without one that does, what begins with a brace is JSON.
    `pause` is called now and then, so that other threads of a server have their turns.
    """
    try:
        text = decode_text(data, MAX_BYTES)
        if is_json(text, name):
            return read_json(text, pause)
        document: Node = _load_yaml().read_yaml(text, pause)
        return document
    except Unreadable as exc:
        raise InvalidDocument(name, [exc.finding]) from exc


def is_json(text: str, name: str) -> bool:
    """Whether the document in a file of this name is in JSON, and not in YAML."""
    return _is_json(name) or (not name.lower().endswith((".yaml", ".yml")) and text.lstrip().startswith("{"))


def format_document(data: Any, name: str) -> str:
    """Data as a text that `read_document` reads under that name."""
    return to_json(data) + "\n" if _is_json(name) else str(_load_yaml().YamlWriter().format(data))


def format_pieces(head: Mapping[str, Any], lists: Mapping[str, Iterable[Any]], name: str) -> Iterator[str]:
    """A document of fields and then long lists, piece by piece: a text that `read_document` reads under that name.

    In JSON every item of a list has a line of its own.
    """
    return _format_json(head, lists) if _is_json(name) else _format_yaml(head, lists)


def _format_json(head: Mapping[str, Any], lists: Mapping[str, Iterable[Any]]) -> Iterator[str]:
    yield "{" + ",".join(f"\n {to_json(name)}: {to_json(value)}" for name, value in head.items())
    for name, items in lists.items():
        yield f",\n {to_json(name)}: ["
        for number, item in enumerate(items):
            yield f"{',' if number else ''}\n  {to_json(item)}"
        yield "\n ]"
    yield "\n}\n"


def _format_yaml(head: Mapping[str, Any], lists: Mapping[str, Iterable[Any]]) -> Iterator[str]:
    writer = _load_yaml().YamlWriter()
    yield writer.format(head)
    for name, items in lists.items():
        pieces = _take_pieces(items)
        first = next(pieces, [])
        yield writer.format({name: []}) if not first else f"{name}:\n{writer.format(first)}"
        for piece in pieces:
            yield writer.format(piece)


def _take_pieces(items: Iterable[Any]) -> Iterator[list[Any]]:
    """Items, as many at a time as make enough values to be worth formatting together."""
    piece: list[Any] = []
    values = 0
    for item in items:
        piece.append(item)
        values += count_values(item)
        if values >= _VALUES_IN_A_PIECE:
            yield piece
            piece, values = [], 0
    if piece:
        yield piece


def to_json(data: Any) -> str:
    """Data as one line of JSON, in the order that it has."""
    return json.dumps(data, ensure_ascii=False)


def decode_text(data: bytes, max_bytes: int) -> str:
    """The text in bytes of UTF-8; `Unreadable` where there are too many, or they are no UTF-8."""
    if len(data) > max_bytes:
        raise Unreadable(Rule.TOO_LARGE, f"a file has at most {max_bytes:,} bytes", None)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        place = Place(data.count(b"\n", 0, exc.start) + 1, exc.start - data.rfind(b"\n", 0, exc.start))
        raise Unreadable(Rule.NOT_UNICODE, f"not UTF-8: {exc.reason}", place) from exc


def _is_json(name: str) -> bool:
    return name.lower().endswith(".json")


def _load_yaml() -> ModuleType:
    try:
        from cmbs.documents import yaml_text
    except ModuleNotFoundError as exc:
        raise InvalidRequest("YAML needs PyYAML: install it with `pip install 'cmbs[kits]'`, or write JSON") from exc
    return yaml_text
