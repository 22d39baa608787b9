"""What is wrong with a body: every fault with its field, what was found there, and what is accepted.

Good requests never come here. A body that its type refuses is held against the JSON Schema of that type, which finds
several faults where decoding stops at the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec

from cmbs.errors import InvalidRequest

MAX_FAULTS = 20
# Beyond this size, a body gets the first fault alone: there may be as many as it has items.
MAX_BYTES_EXPLAINED = 262_144
_SHOWN = 64
_Kind = jsonschema_rs.ValidationErrorKind
# Texts for people, and limits that an operator may have set otherwise: the kernel checks those.
_IGNORED = frozenset({"maxLength", "maximum", "format", "default", "description", "title"})
_CONTAINERS = ("an object", "an empty object", "a list", "an empty list")
_ARTICLES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong. `field` is the dotted path of it, with the numbers of items in lists."""

    field: str
    message: str
    found: Any
    accepted: Any
    next: str


def explain_body(kind: type, document: Any, size: int, cause: msgspec.DecodeError) -> InvalidRequest:
    """The error for a body that cannot be decoded as this type."""
    faults = list(islice(_find_faults(kind, document), MAX_FAULTS)) if size <= MAX_BYTES_EXPLAINED else []
    if not faults:
        # What the type refuses and its schema does not, such as a whole number with a point.
        message, _, place = str(cause).partition(" - at `$.")
        field = place.removesuffix("`") or "body"
        return InvalidRequest(
            f"`{field}`: {message[:1].lower()}{message[1:]}",
            {"field": field, "found": _show(_look_up(document, field)), "accepted": message.removeprefix("Expected ")},
        )
    return refuse(faults)


def _look_up(document: Any, field: str) -> Any:
    """What stands at a dotted path of names; None where it leads nowhere."""
    for name in field.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def explain_query(unknown: list[str], allowed: tuple[str, ...]) -> InvalidRequest:
    """The error for query parameters that an operation does not have."""
    faults = [_unknown("query parameter", name, name, list(allowed)) for name in unknown[:MAX_FAULTS]]
    error = refuse(faults)
    error.details.update({"parameter": unknown[0], "allowed": list(allowed)})
    return error


def refuse(faults: list[Fault]) -> InvalidRequest:
    """The error that tells of faults: the first one at the top, and all of them."""
    first, more = faults[0], len(faults) - 1
    rest = f"; {more} more in `details.faults`" if more else ""
    shown = [
        {"field": each.field, "found": each.found, "accepted": each.accepted, "message": each.message}
        for each in faults
    ]
    top = {"field": first.field, "found": first.found, "accepted": first.accepted, "next": first.next}
    return InvalidRequest(f"{first.message}{rest}", {**top, "faults": shown})


def _find_faults(kind: type, document: Any) -> Iterator[Fault]:
    schema, validator = _compile(kind)
    errors = islice(validator.iter_errors(document), MAX_FAULTS)
    for error in sorted(errors, key=lambda each: [str(part) for part in each.instance_path]):
        path = [str(part) for part in error.instance_path]
        node: Any = schema
        for part in error.schema_path[:-1]:
            node = node[part]
        yield from _describe(error, path, node, schema)


def _describe(error: Any, path: list[str], node: dict[str, Any], schema: dict[str, Any]) -> Iterator[Fault]:
    """The faults that one finding of the validator comes to. `node` is the schema that the value broke."""
    field, found = ".".join(path) or "body", _show(error.instance)
    match error.kind:
        case _Kind.Required():
            name = ".".join([*path, error.kind.property])
            accepted = _accept(node.get("properties", {}).get(error.kind.property, {}), schema)
            yield Fault(name, f"`{name}` is missing", "nothing", accepted, f"add `{name}`: {_join(accepted)}")
        case _Kind.AdditionalProperties():
            for name in error.kind.unexpected:
                yield _unknown("field", ".".join([*path, name]), name, sorted(node.get("properties", {})))
        case _Kind.Enum() | _Kind.Constant():
            known = node.get("enum", [node.get("const")])
            nearest = get_close_matches(str(found), map(str, known), 1)
            told = f"did you mean `{nearest[0]}`" if nearest else f"send one of {_join(known)}"
            message = f"`{field}` must be one of {_join(known)}, got {_quote(found)}"
            yield Fault(field, message, found, known, told)
        case _:
            accepted = _accept(node, schema)
            message = f"`{field}` must be {_join(accepted)}, got {_quote(found)}"
            yield Fault(field, message, found, accepted, f"send {_join(accepted)} as `{field}`")


def _unknown(what: str, field: str, name: str, known: list[str]) -> Fault:
    nearest = get_close_matches(name[:_SHOWN], known, 1)
    there_are = f"there are {', '.join(f'`{each}`' for each in known)}" if known else "there are none"
    told = f"did you mean `{nearest[0]}`" if nearest else there_are
    advice = f"write `{nearest[0]}`" if nearest else f"leave `{field[:_SHOWN]}` out"
    return Fault(field[:_SHOWN], f"unknown {what} `{field[:_SHOWN]}`: {told}", name[:_SHOWN], known, advice)


def _accept(node: dict[str, Any], schema: dict[str, Any]) -> list[Any]:
    """What a schema accepts: values where they are listed, or else words."""
    if "$ref" in node:
        return _accept(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    if "enum" in node:
        return list(node["enum"])
    if "else" in node:
        return [*_accept(node["else"], schema), "null"]
    if "anyOf" in node:
        return [word for each in node["anyOf"] for word in _accept(each, schema)]
    types = node.get("type", [])
    words = [_ARTICLES[each] for each in ([types] if isinstance(types, str) else types)]
    if "minimum" in node:
        words[0] += f" of at least {node['minimum']}"
    if node.get("minLength") or node.get("minItems"):
        words[0] += " that is not empty"
    if "pattern" in node:
        words[0] += f" that matches `{node['pattern']}`"
    return words or ["any JSON value"]


def _join(words: list[Any]) -> str:
    texts = [str(word) if word in _ARTICLES.values() or " " in str(word) else f"`{word}`" for word in words]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def _show(value: Any) -> Any:
    """A value as an error shows it: itself where it is short, or else what it is."""
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return value[:_SHOWN] if isinstance(value, str) else value


def _quote(found: Any) -> str:
    return found if found in _CONTAINERS else f"`{msgspec.json.encode(found).decode()}`"


@cache
def _compile(kind: type) -> tuple[dict[str, Any], jsonschema_rs.Draft202012Validator]:
    # Through JSON, which turns tuples among the defaults into lists.
    schema: dict[str, Any] = _adapt(msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(kind))))
    return schema, jsonschema_rs.Draft202012Validator(schema)


def _adapt(node: Any) -> Any:
    """A schema in a form of which the validator says what is wrong within an alternative, not only that none fits."""
    if not isinstance(node, dict):
        return node
    if "discriminator" in node:
        return _adapt_tagged(node["discriminator"]["propertyName"], node["discriminator"]["mapping"])
    if "anyOf" in node:
        return _adapt_alternatives([_adapt(each) for each in node["anyOf"]])
    adapted = {}
    for name, value in node.items():
        if name in ("properties", "$defs"):
            adapted[name] = {each: _adapt(part) for each, part in value.items()}
        elif name not in _IGNORED:
            adapted[name] = _adapt(value)
    return adapted


def _adapt_tagged(tag: str, mapping: dict[str, str]) -> dict[str, Any]:
    chosen = [
        {"if": {"properties": {tag: {"const": name}}, "required": [tag]}, "then": {"$ref": reference}}
        for name, reference in mapping.items()
    ]
    return {"type": "object", "required": [tag], "properties": {tag: {"enum": list(mapping)}}, "allOf": chosen}


def _adapt_alternatives(parts: list[dict[str, Any]]) -> dict[str, Any]:
    null = {"type": "null"}
    others = [part for part in parts if part != null]
    if len(others) == 1 and null in parts:
        if isinstance(others[0].get("type"), str):
            return {**others[0], "type": [others[0]["type"], "null"]}
        return {"if": null, "else": others[0]}
    if all(part.keys() == {"type"} for part in parts):
        return {"type": [part["type"] for part in parts]}
    return {"anyOf": parts}
