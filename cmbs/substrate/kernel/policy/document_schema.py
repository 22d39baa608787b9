"""The JSON Schema of policy files, from the types that read them.

A schema says what has which shape. That conditions, references, tools and subjects are what they should be, only
`compile_file` and `lint` know.
"""

from __future__ import annotations

from typing import Any

from cmbs.documents.json_schemas import describe_types
from cmbs.substrate.kernel.policy.cel_syntax import MAX_CONDITION_CHARACTERS
from cmbs.substrate.kernel.policy.constraints import MAX_REASON_CHARACTERS
from cmbs.substrate.kernel.policy.documents import Given, KnownTool, PolicyTest
from cmbs.substrate.kernel.policy.file import FORMAT
from cmbs.substrate.kernel.policy.references import MAX_REFERENCE_CHARACTERS, NEWEST
from cmbs.substrate.kernel.policy.rules import NAME_PATTERN, Otherwise, RuleMode
from cmbs.substrate.kernel.policy.schemas import DIALECT
from cmbs.substrate.kernel.policy.subjects import MAX_SUBJECT_CHARACTERS

_REFERENCE = {"type": "string", "maxLength": MAX_REFERENCE_CHARACTERS}
_TEXT = {"type": "string", "description": "Taken as it is; a number, list or object is taken as its canonical JSON."}
_NAME = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
_TOOL = {"type": "string", "minLength": 1, "maxLength": MAX_SUBJECT_CHARACTERS}
_GOALS = {"type": "array", "items": {"type": "string", "pattern": r"^goal\.."}}
_PREFIXES = {"type": "array", "items": {"type": "string"}}
_THRESHOLD = {"type": "number", "minimum": 0, "maximum": 1}
_SCHEMA = {"type": ["object", "boolean"]}
_CONDITION = {
    "type": "string",
    "maxLength": MAX_CONDITION_CHARACTERS,
    "description": "A condition, in a subset of CEL.",
}
_FIELDS = {
    "type": "array",
    "items": {"type": "string", "minLength": 1},
    "description": "Fields of a call beside its args that the tool is sent, such as `_meta.ticket`.",
}
_COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge", "prefix"]


def policy_schema() -> dict[str, Any]:
    """The schema of policy files."""
    _, components = describe_types([KnownTool, Given, PolicyTest], ref_template="#/$defs/{name}")
    definitions = {**components, **_definitions()}
    return {
        "$schema": DIALECT,
        "$id": f"urn:cmbs:policy:{FORMAT}",
        "title": "cmbs policy",
        "type": "object",
        "required": ["format"],
        "properties": {
            "format": {"const": FORMAT},
            "title": {"type": "string"},
            "tools": _list_of(_refer("KnownTool")),
            "given": _refer("Given"),
            "tests": _list_of(_refer("PolicyTest")),
            "rules": _list_of({"anyOf": [_refer("Rule"), _refer("Constraint")]}),
            "invariants": _map_of({"anyOf": [_CONDITION, _refer("Invariant")]}),
            "exclusive": _map_of(_GOALS),
            "degrade": _map_of(_refer("Offer")),
            "forward": _map_of(_FIELDS),
            "schemas": _map_of(_SCHEMA),
            "values": _map_of({}),
            "private": _PREFIXES,
            "memory": {
                "type": "object",
                "required": ["confidence_threshold"],
                "additionalProperties": False,
                "properties": {"confidence_threshold": _THRESHOLD},
            },
        },
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def _definitions() -> dict[str, Any]:
    return {
        "Rule": _describe_rule(),
        "Constraint": _describe_constraint(),
        "Invariant": {
            "anyOf": [
                _refer("Predicate"),
                {
                    "type": "object",
                    "required": ["v", "when"],
                    "additionalProperties": False,
                    "properties": {"v": {"const": NEWEST}, "when": _refer("Predicate")},
                },
            ]
        },
        "Predicate": _describe_predicate(),
        "Offer": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {"tool_id": {"type": "string"}, "mode": {"type": "string"}, "budget": {"type": "object"}},
        },
    }


def _describe_rule() -> dict[str, Any]:
    about = {
        "description": 'A tool, a list of tools, a pattern such as `db.*`, `state`, or `"*"` for everything.',
        "anyOf": [
            _TOOL,
            {"type": "null"},
            _list_of(_TOOL) | {"minItems": 1},
            _describe_subject("tool"),
            _describe_subject("capability"),
        ],
    }
    return {
        "type": "object",
        "description": "The short form of a constraint.",
        "oneOf": [{"required": ["allow"]}, {"required": ["deny"]}],
        "additionalProperties": False,
        "properties": {
            "name": _NAME,
            "allow": about,
            "deny": about,
            "when": _CONDITION,
            "otherwise": {"enum": [each.value for each in Otherwise], "default": Otherwise.BLOCK.value},
            "because": {"type": "string", "maxLength": MAX_REASON_CHARACTERS},
            "mode": {"enum": [each.value for each in RuleMode], "default": RuleMode.ENFORCE.value},
        },
    }


def _describe_constraint() -> dict[str, Any]:
    tool = {"anyOf": [_TOOL, _list_of(_TOOL) | {"minItems": 1}]}
    return {
        "type": "object",
        "description": "The payload of a constraint, as it is.",
        "required": ["v", "effect", "subject"],
        "additionalProperties": False,
        "properties": {
            "name": _NAME,
            "v": {"enum": [1, NEWEST]},
            "effect": {"enum": ["allow", "deny"]},
            "subject": {
                "anyOf": [_describe_subject("tool_id", tool), _describe_subject("capability"), {"type": "null"}]
            },
            "when": _refer("Predicate"),
            "on_fail": {"enum": [each.value for each in Otherwise], "default": Otherwise.BLOCK.value},
            "reason": {"type": "string", "maxLength": MAX_REASON_CHARACTERS},
            "mode": {"enum": [each.value for each in RuleMode]},
        },
    }


def _describe_predicate() -> dict[str, Any]:
    predicates = _list_of(_refer("Predicate")) | {"minItems": 1}
    return {
        "type": "object",
        "required": ["op", "args"],
        "additionalProperties": False,
        "properties": {"op": {}, "args": {}},
        "oneOf": [
            _operator(["all", "any"], predicates),
            _operator(["not"], predicates | {"maxItems": 1}),
            _operator(
                ["exists", "missing"], _list_of({"anyOf": [_REFERENCE, _wrap("ref", _REFERENCE)]}) | {"minItems": 1}
            ),
            _operator(_COMPARISONS, _compare_with({})),
            _operator(["in"], _compare_with({"anyOf": [{"type": "array"}, {"type": "object"}]})),
            _operator(["schema"], _compare_with({"type": ["object", "boolean", "string"]})),
        ],
    }


def _refer(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _map_of(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": value}


def _wrap(name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": [name], "additionalProperties": False, "properties": {name: value}}


def _describe_subject(name: str, value: dict[str, Any] | None = None) -> dict[str, Any]:
    return _wrap(name, value or _TOOL)


def _operator(names: list[str], args: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"op": {"enum": names}, "args": args}}


def _compare_with(second: dict[str, Any]) -> dict[str, Any]:
    first = {"anyOf": [_REFERENCE, _wrap("ref", _REFERENCE), _wrap("literal", {})]}
    return {"type": "array", "prefixItems": [first, second], "minItems": 2, "maxItems": 2}
