"""The JSON Schemas of policy and case files, from the types that read them.

A schema says what has which shape. That references, tools and subjects are what they should be, only `lint` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cmbs.substrate.kernel.policy.constraints import MAX_REASON_CHARACTERS, MAX_SUBJECT_CHARACTERS, VERSION
from cmbs.substrate.kernel.policy.documents import FORMAT, CaseDocument, PolicyDocument
from cmbs.substrate.kernel.policy.references import MAX_REFERENCE_CHARACTERS
from cmbs.substrate.kernel.policy.schemas import DIALECT

_REFERENCE = {"type": "string", "maxLength": MAX_REFERENCE_CHARACTERS}
_THRESHOLD = {"type": "number", "minimum": 0, "maximum": 1}
_TEXT = {"type": "string", "description": "Taken as it is; a number, list or object is taken as its canonical JSON."}


def policy_schema() -> dict[str, Any]:
    """The schema of policy files."""
    return _schema_of(PolicyDocument, "policy")


def cases_schema() -> dict[str, Any]:
    """The schema of case files."""
    return _schema_of(CaseDocument, "cases")


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {"policy": policy_schema, "cases": cases_schema}


def _schema_of(kind: type[msgspec.Struct], name: str) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    definitions = {**components, **_definitions()}
    document = definitions[kind.__name__]["properties"]["policy"]
    pairs = {"$ref": "#/$defs/Pairs"}
    if "anyOf" in document:
        document["anyOf"] = [pairs, {"type": "string", "description": "The file name of a policy, from this file on."}]
    else:
        definitions[kind.__name__]["properties"]["policy"] = pairs
    return {
        "$schema": DIALECT,
        "$id": f"urn:cmbs:{name}:{FORMAT}",
        "title": f"cmbs {name}",
        **schema,
        "$defs": dict(sorted(definitions.items())),
    }


def _definitions() -> dict[str, Any]:
    """What a policy consists of; any of it may be given as text."""
    return {
        "Pairs": {
            "description": "Keys of a policy and their values.",
            "type": "object",
            "patternProperties": {
                r"^constraint\..": _or_text("Constraint"),
                r"^policy\.invariant\..": _or_text("Predicate"),
                r"^policy\.exclusive\..": {"anyOf": [_list_of({"type": "string", "pattern": r"^goal\.."}), _TEXT]},
                r"^policy\.degrade\..": _or_text("Offer"),
                r"^policy\.schema\..": {"anyOf": [{"type": ["object", "boolean"]}, _TEXT]},
                r"^policy\.value\..": {},
            },
            "properties": {
                "policy.memory.confidence_threshold": {
                    "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, _TEXT]
                },
                "policy.private": {"anyOf": [_list_of({"type": "string"}), _TEXT]},
            },
            "additionalProperties": False,
        },
        "Constraint": {
            "type": "object",
            "required": ["v", "effect", "subject"],
            "additionalProperties": False,
            "properties": {
                "v": {"const": VERSION},
                "effect": {"enum": ["allow", "deny"]},
                "subject": {"anyOf": [_subject("tool_id"), _subject("capability"), {"type": "null"}]},
                "when": {"$ref": "#/$defs/Predicate"},
                "on_fail": {"enum": ["block", "ask", "defer"], "default": "block"},
                "reason": {"type": "string", "maxLength": MAX_REASON_CHARACTERS},
            },
        },
        "Predicate": {
            "type": "object",
            "required": ["op", "args"],
            "additionalProperties": False,
            "properties": {"op": {}, "args": {}},
            "oneOf": [
                _operator(["all", "any"], _list_of({"$ref": "#/$defs/Predicate"}) | {"minItems": 1}),
                _operator(["not"], _list_of({"$ref": "#/$defs/Predicate"}) | {"minItems": 1, "maxItems": 1}),
                _operator(["exists", "missing"], _list_of(_REFERENCE) | {"minItems": 1}),
                _operator(["eq"], _compare_with({})),
                _operator(["in"], _compare_with({"type": "array"})),
                _operator(["schema"], _compare_with({"type": ["object", "boolean", "string"]})),
            ],
        },
        "Offer": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {"tool_id": {"type": "string"}, "mode": {"type": "string"}, "budget": {"type": "object"}},
        },
    }


def _or_text(name: str) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"}, _TEXT]}


def _list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _subject(name: str) -> dict[str, Any]:
    text = {"type": "string", "minLength": 1, "maxLength": MAX_SUBJECT_CHARACTERS}
    return {"type": "object", "required": [name], "additionalProperties": False, "properties": {name: text}}


def _operator(names: list[str], args: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"op": {"enum": names}, "args": args}}


def _compare_with(literal: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": [_REFERENCE, literal], "minItems": 2, "maxItems": 2}
