"""The OpenAPI document, made from the table of operations and the types of the wire."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec

from cmbs.belief.kernel.requests import Limits
from cmbs.errors import ErrorCode
from cmbs.http.belief import schemas
from cmbs.http.belief.examples import AT_EXAMPLES, CURSOR_EXAMPLES, ERRORS, EVENT_IDS, REQUESTS, RESPONSES, SESSION_ID
from cmbs.http.errors import PRECONDITION_FAILED, STATUS_OF_CODE, UNAUTHENTICATED, TransportCode
from cmbs.http.operation import Operation
from cmbs.http.operations import OPERATIONS
from cmbs.http.spaces.examples import SpaceExamples, space_examples
from cmbs.http.spaces.requests import SPACE_ID_PATTERN

_DESCRIPTION = (
    "A belief server holds what may still be true, outside an agent's context window, and can prove it afterwards. A"
    " session has a fixed set of hypotheses; eliminations only ever make the survivors fewer; every message that asks"
    " for a change is recorded, granted or not, in a hash-chained log."
)
_TAGS = [
    {"name": "belief", "description": "The belief protocol: sessions, eliminations, obligations, conclusions."},
    {"name": "spaces", "description": "The action plane: proposals, decisions, approvals, tools, policy, memory."},
    {"name": "health", "description": "For whoever runs the server."},
]
_ANYWHERE = (ErrorCode.INVALID_REQUEST, TransportCode.METHOD_NOT_ALLOWED, TransportCode.INTERNAL_ERROR)
# Where the keys cannot be read, or are not what they were, nobody is let in.
_AT_THE_GATE = (
    ErrorCode.UNAUTHENTICATED,
    ErrorCode.FORBIDDEN,
    ErrorCode.STORE_UNAVAILABLE,
    ErrorCode.LEDGER_CORRUPT,
)
_PATH_PARAMETERS: dict[str, tuple[str, str | None]] = {
    "session_id": ("The session.", SESSION_ID),
    "obligation_id": ("The obligation, percent-encoded.", REQUESTS["enter_obligation"]["obligation_id"]),
    "space_id": ("The space.", None),
    "proposal_id": ("The proposal.", None),
    "approval_id": ("The request for approval.", None),
    "execution_id": ("The execution.", None),
    "tool_id": ("The tool, percent-encoded.", None),
    "token_id": ("The capability token.", None),
    "entry_id": ("The memory entry.", None),
    "change_id": ("The change of policy.", None),
}
_QUERY_EXAMPLES: dict[str, dict[str, Any]] = {
    "at": {"examples": AT_EXAMPLES},
    "cursor": {"examples": CURSOR_EXAMPLES},
    "kit": {"example": "sre"},
    "limit": {"example": 100},
    "since_event_id": {"example": EVENT_IDS[1]},
    "truth": {"example": "slow-dns"},
}
_TEXT = {"type": "string"}
_SPACE_ID = {"type": "string", "pattern": SPACE_ID_PATTERN}
_REQUEST_HEADERS: dict[str, dict[str, Any]] = {
    "Idempotency-Key": {
        "description": "Repeating a request under the same key gives the first answer again; another request under it"
        " is a conflict.",
        "schema": {"type": "string", "pattern": r"\S", "maxLength": Limits().id_length},
        "example": "9f1c2a70",
    },
    "If-Match": {
        "description": "The audit head that you saw, or `*`: the write is refused with 412 if others wrote since.",
        "schema": {"type": "string", "pattern": r'^(\*|(W/)?("[^"]*"|[^",\s]+))$'},
        "example": f'"{EVENT_IDS[1]}"',
    },
    "Prefer": {
        "description": "`return=minimal` leaves the survivors out of the snapshot.",
        "schema": _TEXT,
        "example": "return=minimal",
    },
}
_RESPONSE_HEADERS: dict[str, dict[str, Any]] = {
    "Allow": {"description": "The methods of this path.", "schema": _TEXT, "example": "GET, HEAD"},
    "ETag": {
        "description": "The audit head, quoted, for `If-Match`.",
        "schema": {"type": "string", "pattern": '^".*"$'},
        "example": f'"{EVENT_IDS[1]}"',
    },
    "Location": {
        "description": "Where what was made is, relative to the path of the request.",
        "schema": {"type": "string", "format": "uri-reference"},
        "example": f"sessions/{SESSION_ID}",
    },
    "Preference-Applied": {
        "description": "There where the survivors were left out.",
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
    "Vary": {"description": "That the answer depends on `Prefer`.", "schema": _TEXT, "example": "prefer"},
}
_SECURITY = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "cmbs_…",
        "description": "A key that `cmbs keys create` made. Each operation names the scope that the key must have. A"
        " server whose store has no keys needs none, and then serves only its own machine; there callers may say who"
        " they are in `X-Cmbs-Actor: <kind>:<id>`.",
    }
}
_HEADERS_OF_STATUS = {
    STATUS_OF_CODE[TransportCode.METHOD_NOT_ALLOWED]: ("Allow",),
    STATUS_OF_CODE[ErrorCode.STORE_UNAVAILABLE]: ("Retry-After",),
    UNAUTHENTICATED: ("WWW-Authenticate",),
}


def openapi_document() -> dict[str, Any]:
    """The whole document as plain data."""
    types = [operation.response for operation in OPERATIONS]
    types += [operation.body for operation in OPERATIONS if operation.body is not None]
    types += [schemas.ErrorResponse, *schemas.PAYLOADS, *schemas.OUTCOMES]
    _, described = msgspec.json.schema_components(list(dict.fromkeys(types)), ref_template=schemas.REFERENCE)
    # As JSON has it: the default of a tuple is one.
    components: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(described))
    paths: dict[str, dict[str, Any]] = {}
    told = space_examples()
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, told)
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
            "responses": _error_responses(),
            "headers": _RESPONSE_HEADERS,
            "securitySchemes": _SECURITY,
        },
    }


def _operation(operation: Operation, told: SpaceExamples) -> dict[str, Any]:
    content: dict[str, Any] = {
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "description": operation.description,
        "tags": [_tag(operation.path)],
        "parameters": _parameters(operation, told),
        # The second way, none, is that of a server without keys.
        "security": [] if operation.scope is None else [{"key": [operation.scope.value]}, {}],
    }
    if operation.body is not None:
        content["requestBody"] = {
            "required": operation.body_required,
            "content": {
                "application/json": {
                    "schema": _reference(operation.body),
                    "example": (REQUESTS | told.requests)[operation.operation_id],
                }
            },
        }
    content["responses"] = _responses(operation, told)
    return content


def _tag(path: str) -> str:
    if path.startswith("/v1/spaces"):
        return "spaces"
    return "belief" if path.startswith("/v1/") else "health"


def _parameters(operation: Operation, told: SpaceExamples) -> list[dict[str, Any]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": description,
            "schema": _SPACE_ID if name == "space_id" else {"type": "string", "maxLength": Limits().id_length},
            "example": told.ids[name] if example is None else example,
        }
        for name, (description, example) in _PATH_PARAMETERS.items()
        if f"{{{name}}}" in operation.path
    ]
    in_query = [
        {
            "name": item.name,
            "in": "query",
            "description": item.description,
            "schema": item.schema,
            **(_QUERY_EXAMPLES[item.name] if item.example is None else {"example": item.example}),
        }
        for item in operation.query
    ]
    in_header = [{"name": name, "in": "header", **_REQUEST_HEADERS[name]} for name in _request_headers(operation)]
    return in_path + in_query + in_header


def _request_headers(operation: Operation) -> list[str]:
    names = ["Idempotency-Key"] if operation.records else []
    names += ["If-Match"] if operation.is_conditional else []
    snapshot = operation.writes or operation.response is schemas.Snapshot
    return names + (["Prefer"] if snapshot and _tag(operation.path) == "belief" else [])


def _responses(operation: Operation, told: SpaceExamples) -> dict[str, Any]:
    names = ["Preference-Applied"] if "Prefer" in _request_headers(operation) else []
    names += ["ETag", "Vary"] if operation.response is schemas.Snapshot else []
    names += ["ETag"] if operation.operation_id == "get_space" else []
    names += ["Location"] if operation.status != 200 else []  # noqa: PLR2004
    done: dict[str, Any] = {
        "description": operation.summary,
        **_headers(names),
        "content": {
            "application/json": {
                "schema": _reference(operation.response),
                "example": (RESPONSES | told.responses)[operation.operation_id],
            }
        },
        **_links(operation),
    }
    failed = {
        str(status): {"$ref": f"#/components/responses/{_error_name(status, codes)}"}
        for status, codes in _error_codes(operation).items()
    }
    return {str(operation.status): done, **failed}


def _links(operation: Operation) -> dict[str, Any]:
    """Where an answer leads: a declaration to what can be done with the session, an obligation to its exit."""
    found: dict[str, Any] = {}
    if operation.operation_id == "declare_session":
        session = {"session_id": "$response.body#/session_id"}
        names = [each.operation_id for each in OPERATIONS if each.on_session and "{obligation_id}" not in each.path]
        found = {name: {"operationId": name, "parameters": session} for name in names}
    elif operation.operation_id == "enter_obligation":
        gate = {"session_id": "$request.path.session_id", "obligation_id": "$request.body#/obligation_id"}
        found = {"request_exit": {"operationId": "request_exit", "parameters": gate}}
    return {"links": found} if found else {}


def _error_codes(operation: Operation) -> dict[int, list[str]]:
    """The errors of an operation, by status."""
    codes: list[ErrorCode | TransportCode] = [*_ANYWHERE, *operation.errors]
    if operation.scope is not None:
        codes += _AT_THE_GATE
    if operation.writes:
        codes.append(TransportCode.UNSUPPORTED_MEDIA_TYPE)
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(STATUS_OF_CODE[code], []).append(code.value)
    if "If-Match" in _request_headers(operation):
        by_status[PRECONDITION_FAILED] = [ErrorCode.CONFLICT.value]
    return dict(sorted(by_status.items()))


def _error_name(status: int, codes: list[str]) -> str:
    return ".".join([str(status), *codes])


def _error_responses() -> dict[str, Any]:
    found = {
        _error_name(status, codes): _error_response(status, codes)
        for operation in OPERATIONS
        for status, codes in _error_codes(operation).items()
    }
    return dict(sorted(found.items()))


def _error_response(status: int, codes: list[str]) -> dict[str, Any]:
    shown = {code: ERRORS["HEAD_MISMATCH" if status == PRECONDITION_FAILED else code] for code in codes}
    return {
        "description": " or ".join(f"`{code}`" for code in codes),
        **_headers(_HEADERS_OF_STATUS.get(status, ())),
        "content": {
            "application/json": {
                "schema": _reference(schemas.ErrorResponse),
                "examples": {code: {"value": {"error": error}} for code, error in shown.items()},
            }
        },
    }


def _headers(names: list[str] | tuple[str, ...]) -> dict[str, Any]:
    return {"headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names}} if names else {}


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": schemas.REFERENCE.format(name=kind.__name__)}
