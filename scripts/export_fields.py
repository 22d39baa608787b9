"""The tables of docs/reference/export.md: every member of every entry, from the types that the software writes."""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import NamedTuple

import msgspec
from msgspec import NODEFAULT
from msgspec import inspect as types

from cmbs.belief.kernel.events import VERB_OF
from cmbs.belief.kernel.kit_stream import KitVerb, PutKit
from cmbs.belief.kernel.names import NAME_MESSAGES
from cmbs.ledger import EntryBody
from cmbs.ledger.register_entry import RegisterEntry
from cmbs.substrate.kernel.events import MESSAGE_OF, SpaceEntry, StepResult

_REGION = re.compile(r"(<!-- fields: ([a-z ]+) -->\n).*?(<!-- end of fields -->)", re.DOTALL)
_TITLES = ("member", "value", "there", "what it says")


class Member(NamedTuple):
    """A member of an object: its name, what its value is, when it is there, and what is said of it in the code."""

    name: str
    value: str
    presence: str
    meaning: str


def write_tables(page: str) -> str:
    """A page with the text of each of its regions written anew."""
    regions = _build_regions()
    named = {match[2] for match in _REGION.finditer(page)}
    if named != regions.keys():
        raise SystemExit(f"the page has the regions {sorted(named)}, and there are {sorted(regions)}")
    return _REGION.sub(lambda match: f"{match[1]}\n{regions[match[2]]}\n{match[3]}", page)


def _build_regions() -> dict[str, str]:
    described: set[type] = set()

    def describe(roots: Mapping[str, type]) -> str:
        """A table for each root, and for each type that they lead to and that no region before has."""
        parts, waiting = [], []
        for title, root in roots.items():
            parts.append(_write_type(title, root))
            described.add(root)
            waiting += _list_nested(root)
        while waiting:
            each = waiting.pop(0)
            if each not in described:
                described.add(each)
                parts.append(_write_type(each.__name__, each))
                waiting += _list_nested(each)
        return "\n".join(parts)

    return {
        "entries of sessions": describe({"Entry of a session": EntryBody}),
        "payloads of sessions": describe({str(verb): message for message, verb in VERB_OF.items()}),
        "entries of spaces": describe({"Entry of a space": SpaceEntry}),
        "payloads of spaces": describe({str(verb): message for verb, message in MESSAGE_OF.items()}),
        "outcomes of spaces": describe({"Outcome of a space": StepResult}),
        "entries of registers": describe({"Entry of a register": RegisterEntry}),
        "payloads of kits": describe({str(KitVerb.PUT_KIT): PutKit}),
        "payloads of names": describe({str(verb): message for verb, message in NAME_MESSAGES.items()}),
    }


def _write_type(title: str, of: type) -> str:
    rows = [_TITLES, ["---"] * len(_TITLES), *map(_write_member, list_members(of))]
    said = " ".join((inspect.getdoc(of) or "").split())
    return "\n".join([f"#### {title}", "", said, "", *(f"| {' | '.join(row)} |" for row in rows), ""])


def _write_member(member: Member) -> tuple[str, str, str, str]:
    return f"`{member.name}`", member.value, member.presence, member.meaning


def list_members(of: type) -> Iterator[Member]:
    """What an object of this type has in its bytes, in the order of canonical form."""
    found = [*_read_members(of)]
    yield from sorted(found, key=lambda member: member.name)


def _read_members(of: type) -> Iterator[Member]:
    described = types.type_info(of)
    assert isinstance(described, types.StructType | types.DataclassType)
    comments = _read_comments(of)
    leaves_out = not is_dataclass(of) and of.__struct_config__.omit_defaults  # type: ignore[attr-defined]
    if isinstance(described, types.StructType) and described.tag_field is not None:
        yield Member(described.tag_field, f"`{json.dumps(described.tag)}`", "always", "")
    for field in described.fields:
        default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        presence, value = "always", _describe_value(field.type)
        if not field.required and default is NODEFAULT:
            presence = "or absent"
        elif not field.required and leaves_out and default is None:
            presence, value = "or absent", value.removesuffix(" or `null`")
        elif not field.required:
            word = "absent where it is" if leaves_out else "always; where nothing was said,"
            presence = f"{word} `{msgspec.json.encode(default).decode()}`"
        yield Member(field.encode_name, value, presence, comments.get(field.name, ""))


def _read_comments(of: type) -> dict[str, str]:
    """What is said right above each member."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(of).splitlines():
        text = line.strip()
        if text.startswith("# "):
            above.append(text.removeprefix("# "))
            continue
        name = re.match(r"(\w+): ", text)
        if name is not None and above:
            found[name[1]] = " ".join(above).replace("|", "\\|")
        above = []
    return found


def _describe_value(of: types.Type) -> str:
    match of:
        case types.Metadata():
            longest = (of.extra_json_schema or {}).get("maxLength")
            return _describe_value(of.type) + (f" of at most {longest:,} characters" if longest else "")
        case types.UnionType():
            return " or ".join(_describe_value(each) for each in of.types)
        case types.ListType() | types.VarTupleType():
            return f"list of {_describe_value(of.item_type)}"
        case types.DictType():
            return f"object of {_describe_value(of.value_type)}"
        case types.StructType() | types.DataclassType():
            return f"[`{of.cls.__name__}`](#{of.cls.__name__.lower()})"
        case types.EnumType():
            return "one of " + ", ".join(f"`{each.value}`" for each in of.cls)
        case types.IntType():
            return "number" + (f" from {of.ge}" if of.ge is not None else "") + (f" to {of.le}" if of.le else "")
        case _:
            return {types.StrType: "text", types.BoolType: "true or false", types.NoneType: "`null`"}.get(
                type(of), "any JSON"
            )


def _list_nested(of: type) -> list[type]:
    described = types.type_info(of)
    assert isinstance(described, types.StructType | types.DataclassType)
    return [each for field in described.fields for each in _find_types(field.type)]


def _find_types(of: types.Type) -> Iterator[type]:
    match of:
        case types.Metadata():
            yield from _find_types(of.type)
        case types.UnionType():
            for each in of.types:
                yield from _find_types(each)
        case types.ListType() | types.VarTupleType():
            yield from _find_types(of.item_type)
        case types.DictType():
            yield from _find_types(of.value_type)
        case types.StructType() | types.DataclassType():
            yield of.cls
        case _:
            pass
