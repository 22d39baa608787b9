"""The fields of `details`, from their types: what documents, contracts and tests are compared with."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from cmbs.api import answers, error_details
from cmbs.api.error_details import DETAILS_OF, ClientErrorDetails, ErrorDetails


class Field(NamedTuple):
    """A field: with dots between those of objects, also of objects in lists, and what it says."""

    path: str
    text: str


def list_fields(kind: type[msgspec.Struct], within: str = "", *, whole: bool = True) -> Iterator[Field]:
    """The fields of a type, each with those in it; without those of other answers where it is not to be `whole`."""
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    for each in described.fields:
        path, facts = f"{within}{each.encode_name}", _read_facts(each.type)
        values = facts.get("enum", ())
        listed = f" One of {', '.join(f'`{value}`' for value in values)}." if values else ""
        yield Field(path, facts.get("description", "") + listed)
        for below in _list_structs(each.type):
            if whole or below.__module__ in (error_details.__name__, answers.__name__):
                yield from list_fields(below, f"{path}.", whole=whole)


def list_fields_of(code: str) -> dict[str, str]:
    """Every field of the details of a code, with what it says."""
    return dict(list_fields(DETAILS_OF[code]))


def list_documented() -> Iterator[tuple[str, str, str]]:
    """The rows of the reference: those of every error, of every one that the caller can mend, and of each code."""
    common = dict(list_fields(ClientErrorDetails))
    server = dict(list_fields(ErrorDetails))
    for path, text in common.items():
        yield "every code" if path in server else "below 500", path, text
    for code, kind in DETAILS_OF.items():
        for path, text in list_fields(kind, whole=False):
            if path not in common:
                yield f"`{code}`", path, text


def list_unknown(code: str, details: dict[str, Any]) -> list[str]:
    """The fields of details that their type does not have. ValidationError where one is not as the type says."""
    kind = DETAILS_OF[code]
    msgspec.convert(details, kind)
    known = list_fields_of(code)
    return sorted({path for path in _list_paths(details, known) if path not in known})


def _list_paths(value: Any, known: dict[str, str], within: str = "") -> Iterator[str]:
    """The fields of a value, and of those fields that have fields in their type."""
    for item in value if isinstance(value, list) else [value]:
        for name, inner in item.items() if isinstance(item, dict) else ():
            path = f"{within}{name}"
            yield path
            if any(each.startswith(f"{path}.") for each in known):
                yield from _list_paths(inner, known, f"{path}.")


def _read_facts(kind: inspect.Type) -> dict[str, Any]:
    return (kind.extra_json_schema or {}) if isinstance(kind, inspect.Metadata) else {}


def _list_structs(kind: inspect.Type) -> Iterator[type[msgspec.Struct]]:
    match kind:
        case inspect.Metadata():
            yield from _list_structs(kind.type)
        case inspect.UnionType():
            for each in kind.types:
                yield from _list_structs(each)
        case inspect.CollectionType():
            yield from _list_structs(kind.item_type)
        case inspect.StructType():
            yield kind.cls
        case _:
            pass
