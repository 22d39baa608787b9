"""The OpenAPI document, generated from the table of operations and from the request and response types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any

import msgspec

from cmbs.api import entries as entry_schemas
from cmbs.api import sessions as schemas
from cmbs.api.error_answers import FAILURES, ErrorResponse
from cmbs.api.errors import PRECONDITION_FAILED, STATUS_OF_CODE, UNAUTHENTICATED, TransportCode
from cmbs.api.examples import ERRORS, EVENT_IDS, SESSION_ID, Examples, load_examples
from cmbs.api.operation import FIELDS, Operation, Parameter, TextFile
from cmbs.api.operations import EVENT_OPERATIONS, OPERATIONS
from cmbs.api.parameters import PATH_PARAMETERS
from cmbs.api.space_requests import SPACE_ID_PATTERN
from cmbs.belief.kernel.requests import Limits
from cmbs.documents.json_schemas import describe_types
from cmbs.documents.text import format_document
from cmbs.errors import ErrorCode
from cmbs.http.exchange import NOT_MODIFIED
from cmbs.http.live.frames import MEDIA_TYPE
from cmbs.http.shaping import list_fields
from cmbs.kit.parse import FORMAT as KIT_FORMAT
from cmbs.substrate.kernel.policy.file import FORMAT as POLICY_FORMAT

_DESCRIPTION = (
    "A belief server holds what may still be true, outside an agent's context window, and can prove it afterwards. A"
    " session has a fixed set of hypotheses, and eliminations only ever reduce the survivors. A space decides which"
    " proposals of agents are carried out. Every request for a change is recorded in a hash-chained log, granted or"
    " not."
)
_TAGS = [
    {"name": "belief", "description": "The belief protocol: sessions, eliminations, obligations, conclusions."},
    {"name": "spaces", "description": "The substrate: proposals, decisions, approvals, tools, policy, memory."},
    {"name": "checkpoints", "description": "Signed checkpoints over the heads of all streams, and proofs of them."},
    {"name": "identity", "description": "Who the server takes a caller for."},
    {"name": "health", "description": "Liveness and readiness of the process."},
]
_COMMON_ERRORS = (ErrorCode.INVALID_REQUEST, TransportCode.METHOD_NOT_ALLOWED, TransportCode.INTERNAL_ERROR)
# While the keys cannot be read or verified, every request that needs one is refused.
_AUTHENTICATION_ERRORS = (
    ErrorCode.UNAUTHENTICATED,
    ErrorCode.FORBIDDEN,
    ErrorCode.STORE_UNAVAILABLE,
    ErrorCode.LEDGER_CORRUPT,
)
_QUERY_EXAMPLES: dict[str, dict[str, Any]] = {
    "at": {"examples": {"seq": {"value": "2"}, "event": {"value": EVENT_IDS[2]}}},
    "cursor": {"examples": {"survivors": {"value": "WyJkYi1sb2NrLWNvbnRlbnRpb24iXQ"}}},
    "kit": {"example": "sre"},
    "limit": {"example": 100},
    "since_event_id": {"example": EVENT_IDS[1]},
    "truth": {"example": "slow-dns"},
}
_TEXT = {"type": "string"}
# What is in it has a schema of its own, `api/policy.schema.json`, for editors.
_POLICY_FILE = {
    "title": "PolicyFile",
    "description": "A policy file; `cmbs policy schema` prints the schema of everything in it.",
    "type": "object",
    "required": ["format"],
    "properties": {"format": {"const": POLICY_FORMAT}},
}
# `api/kit.schema.json`
_KIT_FILE = {
    "title": "KitFile",
    "description": "A kit; `cmbs kit schema` prints the schema of everything in it.",
    "type": "object",
    "required": ["id", "version", "hypotheses", "probes"],
    "properties": {
        "format": {"const": KIT_FORMAT},
        "id": _TEXT,
        "version": _TEXT,
        "hypotheses": {"type": "array"},
        "probes": {"type": "array"},
    },
}
_SPACE_ID = {"type": "string", "pattern": SPACE_ID_PATTERN}
_REQUEST_HEADERS: dict[str, dict[str, Any]] = {
    "Idempotency-Key": {
        "description": "Repeating a request under the same key gives the first answer again; another request under"
        " the key is a conflict.",
        "schema": {"type": "string", "pattern": r"\S", "maxLength": Limits().id_length},
        "example": "9f1c2a70",
    },
    "If-Match": {
        "description": "The audit head that you read, or `*`: the write is refused with 412 if the head has changed.",
        "schema": {"type": "string", "pattern": r'^(\*|(W/)?("[^"]*"|[^",\s]+))$'},
        "example": f'"{EVENT_IDS[1]}"',
    },
    "If-None-Match": {
        "description": "The `ETag` of an answer that you have: 304 without a body if it is still the answer.",
        "schema": _TEXT,
        "example": f'"{EVENT_IDS[1]}"',
    },
    "Last-Event-ID": {
        "description": "The `id` of the last event that you have: the stream goes on after it.",
        "schema": _TEXT,
        "example": "1",
    },
    "Prefer": {
        "description": "`return=minimal` leaves the bulk of the answer out",
        "schema": _TEXT,
        "example": "return=minimal",
    },
}
_RESPONSE_HEADERS: dict[str, dict[str, Any]] = {
    "Allow": {"description": "The methods of this path.", "schema": _TEXT, "example": "GET, HEAD"},
    "Cmbs-Head": {
        "description": "The head of the stream that the answer was read from: its seq, a colon, and the id of its last"
        " event. Never lower than one that was sent before. Not sent for a repeat or an earlier moment.",
        "schema": {"type": "string", "pattern": "^[0-9]+:.+$"},
        "example": f"1:{EVENT_IDS[1]}",
    },
    "ETag": {
        "description": "The tag of the answer, for `If-None-Match`. That of a snapshot and of a space is the audit"
        " head, quoted, which `If-Match` takes.",
        "schema": {"type": "string", "pattern": '^(W/)?".*"$'},
        "example": f'"{EVENT_IDS[1]}"',
    },
    "Idempotent-Replayed": {
        "description": "Sent if the request was a repeat: the first answer is given again, and nothing was done again.",
        "schema": {"type": "string", "const": "true"},
        "example": "true",
    },
    "Location": {
        "description": "The path of what was created, relative to that of the request.",
        "schema": {"type": "string", "format": "uri-reference"},
        "example": f"sessions/{SESSION_ID}",
    },
    "Preference-Applied": {
        "description": "Sent if the bulk of the answer was left out.",
        "schema": {"type": "string", "const": "return=minimal"},
        "example": "return=minimal",
    },
    "Retry-After": {
        "description": "Seconds to wait before trying again.",
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
        "example": "1",
    },
    "WWW-Authenticate": {
        "description": "How to send a key.",
        "schema": _TEXT,
        "example": 'Bearer realm="cmbs"',
    },
    "Vary": {"description": "The request headers that the response depends on.", "schema": _TEXT, "example": "prefer"},
}
_SEEN = {
    "description": "What `If-None-Match` names is still the answer.",
    "headers": {"ETag": {"$ref": "#/components/headers/ETag"}},
}
_SECURITY = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "cmbs_…",
        "description": "A key from `cmbs keys create`. Each operation names the scope that the key must have,"
        " everywhere or for the session or space that the path names (`belief:write@<session_id>`). A server"
        " whose store has no keys needs none and serves only its own machine; callers may then name their actor in"
        " `X-Cmbs-Actor: <kind>:<id>`.",
    }
}
_HEADERS_OF_STATUS = {
    STATUS_OF_CODE[TransportCode.METHOD_NOT_ALLOWED]: ["Allow"],
    STATUS_OF_CODE[ErrorCode.STORE_UNAVAILABLE]: ["Retry-After"],
    UNAUTHENTICATED: ["WWW-Authenticate"],
}


def openapi_document() -> dict[str, Any]:
    """Return the whole document as plain data."""
    types = [operation.response for operation in OPERATIONS]
    types += [each.body for each in OPERATIONS if each.body is not None and each.body is not TextFile]
    types += [kind for each in EVENT_OPERATIONS for kind in each.events.values()]
    types += [ErrorResponse, *entry_schemas.PAYLOADS, *entry_schemas.OUTCOMES]
    _, described = describe_types(list(dict.fromkeys(types)), ref_template=schemas.REFERENCE)
    # Through JSON, which turns the tuples among the defaults into lists.
    components: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(described))
    for kind in _list_partial(msgspec.Struct):
        if kind.__name__ in components:
            _leave_out_defaults(components[kind.__name__])
    components |= {"KitFile": _KIT_FILE, "PolicyFile": _POLICY_FILE}
    components["ErrorResponse"]["properties"] = {"error": _describe_failures(FAILURES)}
    paths: dict[str, dict[str, Any]] = {}
    errors: dict[str, Any] = {}
    examples = load_examples()
    for operation in (*OPERATIONS, *EVENT_OPERATIONS):
        codes = _list_errors(operation)
        errors |= {_name_error(status, codes[status]): _describe_error(status, codes[status]) for status in codes}
        described = _describe_operation(operation, examples, codes)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cmbs belief server",
            "version": version("cmbs"),
            "summary": "What an agent may still believe, held outside its context window, and provable afterwards.",
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": _TAGS,
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": dict(sorted(errors.items())),
            "headers": _RESPONSE_HEADERS,
            "securitySchemes": _SECURITY,
        },
    }


def _describe_operation(operation: Operation, examples: Examples, errors: dict[int, list[str]]) -> dict[str, Any]:
    name = operation.operation_id
    request_headers, response_headers = _list_headers(operation)
    content: dict[str, Any] = {
        "operationId": name,
        "summary": operation.summary,
        "description": operation.description,
        "tags": [_tag_of(operation.path)],
        "parameters": [
            *_describe_parameters(operation, examples),
            *({"name": header, "in": "header", **_describe_header(operation, header)} for header in request_headers),
        ],
        # The empty alternative is that of a server without keys.
        "security": [] if operation.is_open else [{"key": [operation.scope.value] if operation.scope else []}, {}],
    }
    if operation.body is not None:
        body = _describe_body(operation, examples.requests[name])
        content["requestBody"] = {"required": operation.body_required, "content": body}
    done = {
        "description": operation.summary,
        **_refer_to_headers(response_headers),
        "content": _describe_content(operation, examples),
        **_describe_links(operation),
    }
    failed = {
        str(status): {"$ref": f"#/components/responses/{_name_error(status, codes)}"}
        for status, codes in errors.items()
    }
    seen = {str(NOT_MODIFIED): _SEEN} if operation.is_tagged else {}
    content["responses"] = {str(operation.status): done, **seen, **failed}
    return content


def _tag_of(path: str) -> str:
    if path.startswith("/v1/spaces"):
        return "spaces"
    if path.startswith("/v1/checkpoint"):
        return "checkpoints"
    if path == "/v1/whoami":
        return "identity"
    return "belief" if path.startswith("/v1/") else "health"


def _describe_parameters(operation: Operation, examples: Examples) -> Iterator[dict[str, Any]]:
    for name, description in PATH_PARAMETERS.items():
        if f"{{{name}}}" in operation.path:
            schema = _SPACE_ID if name == "space_id" else {"type": "string", "maxLength": Limits().id_length}
            described = {"name": name, "in": "path", "required": True, "description": description, "schema": schema}
            yield {**described, "example": examples.ids[name]}
    for item in (*operation.query, *([_describe_fields(operation)] if operation.takes_fields else [])):
        shown = _QUERY_EXAMPLES[item.name] if item.example is None else {"example": item.example}
        needed = {"required": True} if item.required else {}
        yield {
            "name": item.name,
            "in": "query",
            "description": item.description,
            "schema": item.schema,
            **needed,
            **shown,
        }


def _list_headers(operation: Operation) -> tuple[list[str], list[str]]:
    """List the headers of a request, and those of the answer to it."""
    sent = ["Idempotency-Key"] if operation.records else []
    sent += ["If-Match"] if operation.is_conditional else []
    sent += ["If-None-Match"] if operation.is_tagged else []
    sent += ["Last-Event-ID"] if operation.is_followed else []
    sent += ["Prefer"] if operation.takes_preference else []
    answered = ["Preference-Applied"] if operation.takes_preference else []
    answered += ["ETag"] if operation.is_tagged else []
    is_read_by_preference = operation.takes_preference and not operation.writes
    varies = is_read_by_preference or operation.text or operation.file or (operation.is_tagged and operation.on_space)
    answered += ["Vary"] if varies else []
    answered += ["Idempotent-Replayed"] if operation.records else []
    answered += ["Cmbs-Head"] if operation.names_head else []
    answered += ["Location"] if operation.status != 200 else []  # noqa: PLR2004
    return sent, answered


def _describe_header(operation: Operation, name: str) -> dict[str, Any]:
    described = _REQUEST_HEADERS[name]
    if name != "Prefer":
        return described
    left_out = ", ".join(f"`{part}`" for part in operation.bulk) or "there is none here"
    return {**described, "description": f"{described['description']}: {left_out}."}


def _describe_fields(operation: Operation) -> Parameter:
    names = list_fields(operation.response)
    return Parameter(
        FIELDS,
        "The fields that the answer is to have, separated by commas: names, or dotted names of parts of them, in lists"
        f" of each item. At the top there are {', '.join(f'`{name}`' for name in names)}. The schema of the answer is"
        " that of the whole.",
        _TEXT,
        names[0],
    )


def _describe_links(operation: Operation) -> dict[str, Any]:
    """Describe the operations that follow: on a session after its declaration, the exit after an obligation."""
    if operation.operation_id == "declare_session":
        session = {"session_id": "$response.body#/session_id"}
        names = [each.operation_id for each in OPERATIONS if each.on_session and "{obligation_id}" not in each.path]
        return {"links": {name: {"operationId": name, "parameters": session} for name in names}}
    if operation.operation_id == "enter_obligation":
        ids = {"session_id": "$request.path.session_id", "obligation_id": "$request.body#/obligation_id"}
        return {"links": {"request_exit": {"operationId": "request_exit", "parameters": ids}}}
    return {}


def _list_errors(operation: Operation) -> dict[int, list[str]]:
    """List the codes of the errors of an operation, by status."""
    codes: list[ErrorCode | TransportCode] = [*_COMMON_ERRORS, *operation.errors]
    if not operation.is_open:
        codes += _AUTHENTICATION_ERRORS
    if operation.writes:
        codes.append(TransportCode.UNSUPPORTED_MEDIA_TYPE)
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(STATUS_OF_CODE[code], []).append(code.value)
    if operation.is_conditional:
        by_status[PRECONDITION_FAILED] = [ErrorCode.CONFLICT.value]
    return dict(sorted(by_status.items()))


def _name_error(status: int, codes: list[str]) -> str:
    return ".".join([str(status), *codes])


def _describe_error(status: int, codes: list[str]) -> dict[str, Any]:
    shown = {code: ERRORS["HEAD_MISMATCH" if status == PRECONDITION_FAILED else code] for code in codes}
    examples = {code: {"value": {"error": error}} for code, error in shown.items()}
    # An `ErrorResponse` with one of these errors.
    schema = {"type": "object", "properties": {"error": _describe_failures(codes)}, "required": ["error"]}
    return {
        "description": " or ".join(f"`{code}`" for code in codes),
        **_refer_to_headers(_HEADERS_OF_STATUS.get(status, [])),
        "content": {"application/json": {"schema": schema, "examples": examples}},
    }


def _list_partial(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """The types of the API whose members are left out where they have their defaults."""
    for each in kind.__subclasses__():
        if each.__module__.startswith("cmbs.api.") and each.__struct_config__.omit_defaults:
            yield each
        yield from _list_partial(each)


def _leave_out_defaults(schema: dict[str, Any]) -> None:
    """Describe what is left out where it is null or false as what it is where it is there."""
    for name, described in schema.get("properties", {}).items():
        if described.get("default", ...) not in (None, False):
            continue
        rest = {word: value for word, value in described.items() if word not in ("default", "anyOf")}
        alternatives = [each for each in described.get("anyOf", []) if each != {"type": "null"}]
        if len(alternatives) == 1:
            rest |= alternatives[0]
        elif alternatives:
            rest["anyOf"] = alternatives
        schema["properties"][name] = rest


def _describe_failures(codes: Iterable[str]) -> dict[str, Any]:
    """What went wrong, where it is one of these codes: the code says which."""
    names = {code: schemas.REFERENCE.format(name=FAILURES[code].__name__) for code in codes}
    alternatives = [{"$ref": name} for name in names.values()]
    return {"oneOf": alternatives, "discriminator": {"propertyName": "code", "mapping": names}}


def _describe_content(operation: Operation, examples: Examples) -> dict[str, Any]:
    if operation.is_followed:
        # The document has no words for the data of an event; it is JSON.
        data = {
            str(name): {"$ref": schemas.REFERENCE.format(name=kind.__name__)} for name, kind in operation.events.items()
        }
        example = examples.responses[operation.operation_id]["events"]
        return {MEDIA_TYPE: {"schema": _TEXT, "example": example, "x-cmbs-events": data}}
    example = examples.responses[operation.operation_id]
    content = _describe_json(operation.response, example=example)
    if operation.file:
        return {**content, "application/yaml": {"schema": _TEXT, "example": example["source"]["text"]}}
    return {"text/plain": {"schema": _TEXT, "example": example["note"]}, **content} if operation.text else content


def _describe_body(operation: Operation, example: dict[str, Any]) -> dict[str, Any]:
    if operation.body is not None and operation.body is not TextFile:
        return _describe_json(operation.body, example=example)
    schema = {"$ref": schemas.REFERENCE.format(name=operation.file_schema)}
    return {
        "application/yaml": {"schema": _TEXT, "example": format_document(example, "file.yaml")},
        "application/json": {"schema": schema, "example": example},
    }


def _describe_json(kind: type, **examples: Any) -> dict[str, Any]:
    reference = {"$ref": schemas.REFERENCE.format(name=kind.__name__)}
    return {"application/json": {"schema": reference, **examples}}


def _refer_to_headers(names: list[str]) -> dict[str, Any]:
    return {"headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names}} if names else {}
