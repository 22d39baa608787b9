"""Documents in YAML or JSON, by the ending of their name."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from cmbs.documents.findings import InvalidDocument, Place, Rule, Unreadable
from cmbs.documents.json_text import read_json
from cmbs.documents.nodes import MAX_BYTES, Node
from cmbs.errors import InvalidRequest


def read_document(data: bytes, name: str) -> Node:
    """The document in a file of this name; `InvalidDocument` says what is wrong and where.

    The ending of the name says which language it is in; without one that does, what begins with a brace is JSON.
    """
    try:
        text = decode_text(data, MAX_BYTES)
        if _is_json(name) or (not name.lower().endswith((".yaml", ".yml")) and text.lstrip().startswith("{")):
            return read_json(text)
        document: Node = _load_yaml().read_yaml(text)
        return document
    except Unreadable as exc:
        raise InvalidDocument(name, [exc.finding]) from exc


def format_document(data: Any, name: str) -> str:
    """Data as a text that `read_document` reads under that name."""
    if _is_json(name):
        return format_json(data)
    return str(_load_yaml().format_yaml(data))


def format_json(data: Any) -> str:
    """Data as JSON, in the order that it has."""
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


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
