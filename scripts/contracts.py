"""Contracts as flat tables of elements, and which differences between two tables break a caller.

An element has a name, such as `EliminateRequest.source_id` or `cmbs serve --port`, and facts about it. A name that was
there and is gone always breaks a caller. Other facts depend on who sends the element: what callers send may be widened
(optional fields, more alternatives, wider limits), and what they receive may be narrowed. Values of enumerations may be
added in both directions. A keyword of a schema that this module does not know is an error, since a change of it would
not be seen.
"""

import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple

SENT, RECEIVED = "sent", "received"
HTTP, MCP, CLI, REQUIREMENTS, GOLDEN_LOGS = "http", "mcp", "cli", "requirements", "golden logs"
ERRORS = "errors"
# Of the names of a contract, what stands between a part and the whole. Requirements and golden logs have no parts.
_SEPARATORS = {HTTP: ".", MCP: ".", CLI: " ", ERRORS: "."}
# In prose: `details.field`, and after it "has the `one` and the `other`" where it has fields of its own.
_ERROR_FIELD = re.compile(r"`details\.(\w+)`(?: has the `(\w+)` and the `(\w+)`)?")
# Of each limit, whether a larger number allows more.
_LIMITS = {
    **dict.fromkeys(("maxLength", "maximum", "maxItems", "maxProperties", "exclusiveMaximum"), True),
    **dict.fromkeys(("minLength", "minimum", "minItems", "minProperties", "exclusiveMinimum"), False),
}
_SHAPES = ("pattern", "format")
_MEANINGS = ("default", "env", "repeated")
# Facts that are as they were, or break a caller.
_FIXED = ("route", "scheme", "place", "position", "annotations", "mimeType", "sha256")
# Of the keywords for what is inside: how the part is called, and the kind of value that has such parts.
_PARTS = {"items": ("[]", "array"), "additionalProperties": ("{}", "object"), "propertyNames": ("{name}", "object")}
_UNIONS = ("anyOf", "oneOf")
_NOTES = {"title", "description", "discriminator", "$defs"}
_PARAMETER = {"name", "in", "required", "schema", "description", "example", "examples"}
_KNOWN = {"$ref", "type", "const", "enum", "properties", "required", "prefixItems"}
_KNOWN |= {*_LIMITS, *_SHAPES, *_MEANINGS, *_PARTS, *_UNIONS, *_NOTES}
_ENUMERATION, _ANYTHING = "enumeration", "anything"
_COMPONENTS = "#/components/"
# The keywords of a schema of failures of some codes.
_FAILURE = {"type", "properties", "required"}
_JSON = "application/json"

Facts = dict[str, Any]
Elements = dict[str, Facts]


class UnknownSchema(Exception):
    """A schema in which a change could go unseen."""


class Breach(NamedTuple):
    """A difference that is no addition: the element, and what became of it."""

    element: str
    what: str


# --- tables of elements -----------------------------------------------------------------------------------------------


def list_schema(
    name: str, schema: Mapping[str, Any], users: Iterable[str], **facts: Any
) -> Iterator[tuple[str, Facts]]:
    """A schema and what is inside of it. References are kept: what they lead to has a name of its own.

    Of alternatives that are of the same kind each has a name of its own too, such as `Ask.target.http`.
    """
    users = sorted(users)
    parts = _list_alternatives(name, schema)
    marked = list(zip(parts, _mark_alternatives(parts), strict=True))
    found: Facts = {**facts, "users": users}
    found["is"] = sorted({f"{kind}:{mark}" if mark else kind for part, mark in marked for kind in _kinds(part)})
    if values := sorted({json.dumps(value, sort_keys=True) for part in parts for value in _values(part)}):
        found["values"] = values
    limits = {kind: _read_limits(part) for part, mark in marked if not mark for kind in _kinds(part) if kind != "null"}
    if any(limits.values()):
        found["limits"] = {kind: each for kind, each in limits.items() if each}
    for part in parts:
        found |= {key: part[key] for key in _MEANINGS if key in part}
    yield name, found
    for part, mark in marked:
        yield from list_schema(f"{name}.{mark}", part, users) if mark else _list_inside(name, part, users)


def _list_inside(name: str, part: Mapping[str, Any], users: Iterable[str]) -> Iterator[tuple[str, Facts]]:
    properties, required = part.get("properties", {}), part.get("required", ())
    if missing := set(required) - set(properties):
        raise UnknownSchema(f"`{name}` requires what it does not describe: {', '.join(sorted(missing))}")
    takes_more = SENT in users and part.get("additionalProperties") is not False
    facts = {"restricts": "object"} if takes_more else {}
    for key, inner in properties.items():
        yield from list_schema(f"{name}.{key}", inner, users, required=key in required, **facts)
    for number, inner in enumerate(part.get("prefixItems", ())):
        yield from list_schema(f"{name}.{number}", inner, users, restricts="array")
    for key, (mark, kind) in _PARTS.items():
        if not isinstance(part.get(key, True), bool):
            yield from list_schema(f"{name}.{mark}", part[key], users, restricts=kind)


def _list_alternatives(name: str, schema: Any) -> list[Mapping[str, Any]]:
    """What a value may be, each with what stands beside the list of alternatives."""
    if not isinstance(schema, Mapping) or schema.keys() - _KNOWN:
        raise UnknownSchema(f"`{name}` has a schema that is not understood: {schema}")
    unions = [key for key in _UNIONS if key in schema]
    if not unions:
        return [schema]
    beside = {key: value for key, value in schema.items() if key not in {*_UNIONS, *_NOTES}}
    alternatives = [each for key in unions for each in schema[key]]
    if len(unions) > 1 or any(beside.keys() & each.keys() - {"type"} for each in alternatives):
        raise UnknownSchema(f"`{name}` has a schema that is not understood: keywords that hold together")
    return [part for each in alternatives for part in _list_alternatives(name, {**beside, **each})]


def _mark_alternatives(parts: list[Mapping[str, Any]]) -> list[str]:
    """What tells each alternative from others of its kind: a constant in it, or its number. Empty if it is alone."""
    inline = [{kind for kind in _kinds(part) if kind not in {"null", _ENUMERATION}} for part in parts]
    count = Counter(kind for kinds in inline for kind in kinds)
    marks = [_find_constant(part) or str(number) for number, part in enumerate(parts)]
    if len(set(marks)) < len(marks):
        marks = [str(number) for number in range(len(parts))]
    return [mark if any(count[kind] > 1 for kind in kinds) else "" for mark, kinds in zip(marks, inline, strict=True)]


def _find_constant(part: Mapping[str, Any]) -> str:
    found = (_values(each) for each in part.get("properties", {}).values() if isinstance(each, Mapping))
    # A dot stands between a part and the whole.
    return next((_show(values[0]).replace(".", "_") for values in found if len(values) == 1), "")


def _read_limits(part: Mapping[str, Any]) -> Facts:
    limits = {key: part[key] for key in (*_LIMITS, *_SHAPES) if key in part}
    return limits | ({"closed": True} if any(part.get(key) is False for key in _PARTS) else {})


def _kinds(part: Mapping[str, Any]) -> list[str]:
    if "$ref" in part:
        return [str(part["$ref"]).rpartition("/")[2]]
    if "const" in part or "enum" in part:
        return [_ENUMERATION]
    kinds = part.get("type", _ANYTHING)
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _values(part: Mapping[str, Any]) -> list[Any]:
    return [part["const"]] if "const" in part else list(part.get("enum", ()))


def _show(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def list_http(document: Mapping[str, Any]) -> Elements:
    """The operations of an OpenAPI document by their ids, and its schemas with who sends them."""
    elements: Elements = {}
    users: dict[str, set[str]] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for name, schema, user, facts in _list_operation(document, operation):
                elements |= dict(list_schema(name, schema, {user}, **facts))
                _spread(document, schema, user, users)
            security = _list_security(operation.get("security", document.get("security")))
            elements[operation["operationId"]] = {"route": f"{method.upper()} {path}", "security": security}
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        elements |= dict(list_schema(name, schema, users.get(name, {SENT, RECEIVED})))
    for name, scheme in document.get("components", {}).get("securitySchemes", {}).items():
        elements[f"security.{name}"] = {"scheme": {k: v for k, v in scheme.items() if k not in _NOTES}}
    return elements


def _list_security(alternatives: Iterable[Mapping[str, list[str]]] | None) -> list[str]:
    """What a caller may show, each as JSON. `{}` is nothing, and so is a list without alternatives."""
    return sorted(
        json.dumps({scheme: sorted(scopes) for scheme, scopes in each.items()}, sort_keys=True)
        for each in alternatives or [{}]
    )


def _list_operation(
    document: Mapping[str, Any], operation: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], str, Facts]]:
    """What is sent to an operation and received from it: name, schema, user and more facts of each."""
    name = operation["operationId"]
    parameters = operation.get("parameters", ())
    if len({each["name"] for each in parameters}) < len(parameters):
        raise UnknownSchema(f"`{name}` has two parameters of one name")
    for each in parameters:
        if unknown := each.keys() - _PARAMETER:
            raise UnknownSchema(f"`{name}.{each['name']}` has keywords that are not understood: {sorted(unknown)}")
        facts = {"required": each.get("required", False), "place": each["in"]}
        yield f"{name}.{each['name']}", each["schema"], SENT, facts
    body = _resolve(document, operation.get("requestBody", {}))
    for kind, content in body.get("content", {}).items():
        yield _content_name(f"{name}.body", kind), content["schema"], SENT, {"required": body.get("required", False)}
    for status, given in operation["responses"].items():
        answer = _resolve(document, given)
        for header, described in answer.get("headers", {}).items():
            yield f"{name}.{status}.{header}", _resolve(document, described)["schema"], RECEIVED, {}
        for kind, content in answer.get("content", {"": {}}).items():
            schema, facts = _read_failure(content.get("schema", {}))
            yield _content_name(f"{name}.{status}", kind), schema, RECEIVED, facts
            for event, data in content.get("x-cmbs-events", {}).items():
                yield f"{name}.{status}.{event}", data, RECEIVED, {}


def _read_failure(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], Facts]:
    """An `error` of some codes, as the answer of every failure and these codes. Anything else as it is."""
    if schema.keys() == _FAILURE and schema["properties"].keys() == {"error"}:
        codes = sorted(json.dumps(code) for code in schema["properties"]["error"]["discriminator"]["mapping"])
        return {"$ref": f"{_COMPONENTS}schemas/ErrorResponse"}, {"values": codes}
    return schema, {}


def _content_name(name: str, kind: str) -> str:
    return name if kind in {"", _JSON} else f"{name}.{kind}"


def _resolve(document: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = node
    while "$ref" in found:
        found, parts = document, found["$ref"].removeprefix("#/").split("/")
        for part in parts:
            found = found[part]
    return found  # type: ignore[no-any-return]


def _spread(document: Mapping[str, Any], node: Any, user: str, users: dict[str, set[str]]) -> None:
    """Note who uses each schema that can be reached from here."""
    if isinstance(node, Mapping):
        reference = node.get("$ref", "")
        if isinstance(reference, str) and reference.startswith(_COMPONENTS):
            name = reference.rpartition("/")[2]
            if user not in users.setdefault(name, set()):
                users[name].add(user)
                _spread(document, _resolve(document, node), user, users)
        for inner in node.values():
            _spread(document, inner, user, users)
    elif isinstance(node, list):
        for inner in node:
            _spread(document, inner, user, users)


def list_mcp(offers: Mapping[str, Any]) -> Elements:
    """The tools, prompts, resources and resource templates of the MCP server."""
    elements: Elements = {}
    for tool in offers["tools"]:
        name = f"MCP {tool['name']}"
        elements[name] = {"annotations": {k: v for k, v in tool.get("annotations", {}).items() if k != "title"}}
        for key, part, user in (("inputSchema", "args", SENT), ("outputSchema", "answer", RECEIVED)):
            schema = tool[key]
            elements |= dict(list_schema(f"{name}.{part}", schema, {user}))
            for inner, definition in schema.get("$defs", {}).items():
                elements |= dict(list_schema(f"{name}.{part}.{inner}", definition, {user}))
    for prompt in offers["prompts"]:
        elements[f"MCP {prompt['name']}"] = {}
        for each in prompt.get("arguments", ()):
            facts = {"required": each.get("required", False), "users": [SENT]}
            elements[f"MCP {prompt['name']}.{each['name']}"] = facts
    for each in (*offers["resources"], *offers["resourceTemplates"]):
        elements[f"MCP {each.get('uri') or each['uriTemplate']}"] = {"mimeType": each.get("mimeType")}
    return elements


def list_cli(commands: Mapping[str, Any]) -> Elements:
    """The commands, and the options and arguments of each."""
    elements: Elements = {}
    for command, parameters in commands.items():
        elements[command] = {}
        for name, given in parameters.items():
            facts = {"required": False} | {key: given[key] for key in ("required", "position") if key in given}
            meaning = {key: value for key, value in given.items() if key not in facts}
            elements |= dict(list_schema(f"{command} {name}", meaning, {SENT}, **facts))
    return elements


def list_requirements(text: str) -> Elements:
    """The requirements by id. How they are worded may change."""
    return {each["id"]: {} for each in tomllib.loads(text)["requirement"]}


def read_error_fields(text: str) -> Iterator[str]:
    """The fields of `details` that prose names, with dots between a field and those in it."""
    for field, *below in _ERROR_FIELD.findall(text):
        yield from (field, *(f"{field}.{each}" for each in below if each))


def list_errors(fields: Mapping[str, Iterable[str]], pages: Iterable[str]) -> Elements:
    """The fields of `details`: of the types by code, and those that prose names without one."""
    elements: Elements = {}
    for code, paths in fields.items():
        elements |= {code: {}, **{f"{code}.{path}": {} for path in paths}}
    return elements | {f"details.{path}": {} for page in pages for path in read_error_fields(page)}


def list_golden_logs(directory: Path) -> Elements:
    """The files of golden logs, each with its hash."""
    files = sorted(
        path for path in directory.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc", ".md"}
    )
    return {
        f"{GOLDEN_LOGS}/{path.relative_to(directory).as_posix()}": {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest()
        }
        for path in files
    }


# --- what breaks a caller ---------------------------------------------------------------------------------------------


def find_breaches(contract: str, before: Elements, now: Elements) -> list[Breach]:
    """Every difference that is no addition. Of what is gone, the outermost element."""
    gone = before.keys() - now.keys()
    breaches = [
        Breach(name, "is gone")
        for name in sorted(gone)
        if not any(parent in gone for parent in list_parents(contract, name))
    ]
    for name in sorted(now):
        if name in before:
            breaches += [Breach(name, what) for what in _compare(before[name], now[name])]
            continue
        whole = before.get(next(list_parents(contract, name), ""))
        if whole is not None and SENT in whole.get("users", [SENT]):
            breaches += [Breach(name, what) for what in _compare_new(whole, now[name])]
    return breaches


def _compare_new(whole: Facts, part: Facts) -> Iterator[str]:
    """Why callers who sent the whole before may have to send something else, now that it has this part."""
    if SENT not in part.get("users", ()):
        return
    if part.get("required"):
        yield "is new, and callers must send it"
    kind = part.get("restricts")
    was_open = kind in whole.get("is", ()) and not whole.get("limits", {}).get(kind, {}).get("closed")
    if was_open and (part["is"] != [_ANYTHING] or "limits" in part):
        yield "is new, and restricts what callers may send"


def _compare(before: Facts, now: Facts) -> Iterator[str]:
    """What is different and no addition."""
    both = set(before.get("users", ())) & set(now.get("users", ()))
    for fact in _FIXED:
        if before.get(fact) != now.get(fact):
            yield f"has another {fact}: {now.get(fact)}, was {before.get(fact)}"
    for each in sorted(set(before.get("security", ())) - set(now.get("security", ()))):
        yield f"cannot be called with `{each}` any more"
    old, new = set(before.get("is", ())), set(now.get("is", ()))
    if (SENT in both and old - new) or (RECEIVED in both and new - old):
        yield f"is {' or '.join(sorted(new))}, was {' or '.join(sorted(old))}"
    for value in sorted(set(before.get("values", ())) - set(now.get("values", ()))):
        yield f"has no value `{value}` any more"
    if RECEIVED in both and before.get("required") and not now.get("required"):
        yield "may be missing from answers"
    if SENT in both:
        yield from _compare_sent(before, now)
    for kind in sorted(old & new):
        old_limits, new_limits = (facts.get("limits", {}).get(kind, {}) for facts in (before, now))
        yield from _compare_limits(old_limits, new_limits, both)


def _compare_sent(before: Facts, now: Facts) -> Iterator[str]:
    """What callers could leave out and cannot now, or what has another meaning when they do."""
    if now.get("required") and not before.get("required"):
        yield "must be sent now"
    for fact in _MEANINGS:
        if before.get(fact) != now.get(fact):
            yield f"has `{fact}` {now.get(fact)}, was {before.get(fact)}"


def _compare_limits(before: Facts, now: Facts, users: AbstractSet[str]) -> Iterator[str]:
    """Of values of one kind: what callers could send and cannot now, or could not receive and can now."""
    if SENT in users and now.get("closed") and not before.get("closed"):
        yield "takes no other fields or items any more"
    for limit, grows in _LIMITS.items():
        old, new = before.get(limit), now.get(limit)
        if (SENT in users and _is_tighter(old, new, grows=grows)) or (
            RECEIVED in users and _is_tighter(new, old, grows=grows)
        ):
            yield f"has `{limit}` {now.get(limit, 'unlimited')}, was {before.get(limit, 'unlimited')}"
    for shape in _SHAPES:
        old, new = before.get(shape), now.get(shape)
        if old != new and ((SENT in users and new is not None) or (RECEIVED in users and old is not None)):
            yield f"has `{shape}` {new}, was {old}"


def _is_tighter(before: float | None, now: float | None, *, grows: bool) -> bool:
    if now is None or now == before:
        return False
    return before is None or (now < before) == grows


def list_parents(contract: str, name: str) -> Iterator[str]:
    """What an element is part of, from the inside out. The program `cmbs` itself is no part of its contract."""
    separator = _SEPARATORS.get(contract)
    while separator and (cut := name.rfind(separator)) > 0:
        name = name[:cut]
        if name != "cmbs":
            yield name
