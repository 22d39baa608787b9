"""How much of an answer a caller wants: `fields` chooses what comes, `Prefer: return=minimal` leaves the bulk out.

What may be chosen goes by the type of the response, so that a field that is none is refused before anything is done.
Values are handed on as the bytes that they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from cmbs.api.operation import FIELDS
from cmbs.errors import InvalidRequest, LimitExceeded

MAX_FIELDS = 100
# Names of fields, each with what is chosen below it; empty where that is everything.
Selection: TypeAlias = dict[str, "Selection"]
_OPEN = (inspect.AnyType, inspect.RawType, inspect.CustomType)
_SHOWN = 64
_DICT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_ENCODE = msgspec.json.Encoder().encode


def parse_fields(text: str, response: type) -> Selection:
    """The selection that a list of dotted names asks for; InvalidRequest names one that no such response has."""
    paths = [path.strip() for path in text.split(",")]
    if len(paths) > MAX_FIELDS:
        raise LimitExceeded(FIELDS, MAX_FIELDS, len(paths))
    selection: Selection = {}
    for path in paths:
        parts = tuple(_split(path, _describe(response)))
        _add(selection, parts)
    return selection


def build_tree(paths: Iterable[str]) -> Selection:
    """Dotted names as a tree; where one is within another, the wider counts."""
    tree: Selection = {}
    for path in paths:
        _add(tree, tuple(path.split(".")))
    return tree


def includes(selection: Selection, path: str) -> bool:
    """Whether a selection contains something at or below this dotted name."""
    below = selection
    for part in path.split("."):
        if part not in below:
            return False
        below = below[part]
        if not below:
            return True
    return True


def select(body: bytes, selection: Selection) -> bytes:
    """The chosen parts of a JSON text; in lists, of each item. What it lacks is left out."""
    if not selection:
        return body
    match body[:1]:
        case b"{":
            members = _DICT.decode(body)
            return _ENCODE(
                {name: _raw(select(bytes(members[name]), selection[name])) for name in selection if name in members}
            )
        case b"[":
            return _ENCODE([_raw(select(bytes(item), selection)) for item in _LIST.decode(body)])
        case _:
            return body


def leave_out(body: bytes, tree: Selection) -> bytes:
    """A JSON text without the parts that a tree names; in lists, without those of each item."""
    if not tree:
        return body
    match body[:1]:
        case b"{":
            members = _DICT.decode(body)
            kept = {name: value for name, value in members.items() if name not in tree or tree[name]}
            for name in tree.keys() & kept.keys():
                kept[name] = _raw(leave_out(bytes(kept[name]), tree[name]))
            return _ENCODE(kept)
        case b"[":
            return _ENCODE([_raw(leave_out(bytes(item), tree)) for item in _LIST.decode(body)])
        case _:
            return body


def list_fields(response: type) -> list[str]:
    """The names of the fields at the top of a response, sorted."""
    return sorted(_children(_describe(response)) or ())


def _add(tree: Selection, parts: tuple[str, ...]) -> None:
    for number, part in enumerate(parts, 1):
        if part in tree and not tree[part]:
            return
        if number == len(parts):
            tree[part] = {}
        else:
            tree = tree.setdefault(part, {})


def _split(path: str, info: inspect.Type | None) -> Iterator[str]:
    """The parts of a dotted name, each held against the type that it is a part of."""
    parts = path.split(".")
    for number, part in enumerate(parts):
        if info is not None and _maps_leaves(info):
            # The keys of such an object have dots of their own.
            yield ".".join(parts[number:])
            return
        children = None if info is None else _children(info)
        if children is not None and part not in children:
            raise _unknown(path, part, sorted(children))
        yield part
        info = None if children is None else children[part]


def _unknown(path: str, part: str, known: list[str]) -> InvalidRequest:
    nearest = get_close_matches(part[:_SHOWN], known, 1)
    told = f"did you mean `{nearest[0]}`" if nearest else f"there are {', '.join(f'`{name}`' for name in known)}"
    what = told if known else "it has no parts"
    return InvalidRequest(
        f"`{path[:_SHOWN]}` is not a field of this answer: {what}",
        {"parameter": FIELDS, "field": FIELDS, "found": path[:_SHOWN], "accepted": known, "next": what},
    )


@cache
def _describe(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _maps_leaves(info: inspect.Type) -> bool:
    info = _strip(info)
    return isinstance(info, inspect.DictType) and _children(info.value_type) == {}


def _children(info: inspect.Type) -> dict[str, inspect.Type | None] | None:
    """The named parts of a type, each with its own type where that is known; None where any name may be a part."""
    info = _strip(info)
    match info:
        case inspect.StructType():
            found: dict[str, inspect.Type | None] = {each.encode_name: each.type for each in info.fields}
            return found | ({info.tag_field: None} if info.tag_field else {})
        case inspect.CollectionType():
            return _children(info.item_type)
        case inspect.UnionType():
            below = [_children(each) for each in info.types]
            return None if None in below else {name: each for part in below if part for name, each in part.items()}
        case inspect.DictType():
            return None
        case _:
            return None if isinstance(info, _OPEN) else {}


def _strip(info: inspect.Type) -> inspect.Type:
    return info.type if isinstance(info, inspect.Metadata) else info


def _raw(data: bytes) -> msgspec.Raw:
    return msgspec.Raw(data)
