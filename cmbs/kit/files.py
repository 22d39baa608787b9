"""Kits as files: YAML or JSON by the ending of the name."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from cmbs.kit.document import MAX_BYTES, Node, Unreadable
from cmbs.kit.findings import Finding, InvalidKitFile, Place, Rule
from cmbs.kit.json_text import read_json
from cmbs.kit.model import Kit
from cmbs.kit.parse import ParsedKit, parse_document
from cmbs.kit.writing import json_text

_JSON = ".json"


def load_kit(path: str | Path) -> Kit:
    """The kit in a file. `InvalidKitFile` has everything that is wrong; `OSError`, that there is nothing to read."""
    return read_kit(path).kit


def read_kit(path: str | Path) -> ParsedKit:
    """The kit in a file, with the warnings about it."""
    with Path(path).open("rb") as file:
        return parse_kit(file.read(MAX_BYTES + 1), str(path))


def packaged_kit(package: str, name: str) -> Kit:
    """The kit in a file that a Python package brings along: what an entry point's factory returns a provider of."""
    return parse_kit((resources.files(package) / name).read_bytes(), f"{package}/{name}").kit


def parse_kit(data: bytes, name: str) -> ParsedKit:
    """The kit in a text; `name` is how findings call it, and its ending says which language it is in.

    Without an ending that says so, what begins with a brace is JSON. PyYAML is needed for YAML alone.
    """
    try:
        return parse_document(_document(data, name), name)
    except Unreadable as exc:
        raise InvalidKitFile(name, [exc.finding]) from exc


def kit_text(kit: Kit, name: str) -> str:
    """The kit as a text that `parse_kit` reads under that name."""
    if Path(name).suffix.lower() == _JSON:
        return json_text(kit)
    from cmbs.kit.yaml_writing import yaml_text

    return yaml_text(kit)


def _document(data: bytes, name: str) -> Node:
    if len(data) > MAX_BYTES:
        raise Unreadable(Rule.TOO_LARGE, f"a kit has at most {MAX_BYTES:,} bytes", None)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        column = exc.start - data.rfind(b"\n", 0, exc.start)
        raise InvalidKitFile(
            name, [Finding(Rule.NOT_UNICODE, f"not UTF-8: {exc.reason}", place=Place(line, column))]
        ) from exc
    ending = Path(name).suffix.lower()
    if ending == _JSON or (ending not in {".yaml", ".yml"} and text.lstrip().startswith("{")):
        return read_json(text)
    from cmbs.kit.yaml_text import read_yaml

    return read_yaml(text)
