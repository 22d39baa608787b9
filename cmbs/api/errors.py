"""The one table of error codes and HTTP statuses."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from cmbs import errors
from cmbs.errors import BeliefServerError, ErrorCode


class TransportCode(StrEnum):
    """Codes of failures that only exist on the way to the server, or that are our own fault."""

    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    BUSY = "BUSY"
    INTERNAL_ERROR = "INTERNAL_ERROR"


# A precondition (If-Match) that fails is a CONFLICT with a status of its own: see `status_of`.
STATUS_OF_CODE: dict[ErrorCode | TransportCode, int] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.LIMIT_EXCEEDED: 413,
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.INVALID_HYPOTHESIS_ID: 422,
    ErrorCode.FREE_HAND_REFUSED: 403,
    ErrorCode.UNKNOWN_PROBE: 422,
    ErrorCode.SESSION_NOT_FOUND: 404,
    ErrorCode.SESSION_TERMINATED: 409,
    ErrorCode.OBLIGATION_NOT_FOUND: 404,
    ErrorCode.EVENT_NOT_FOUND: 404,
    ErrorCode.SPACE_NOT_FOUND: 404,
    ErrorCode.RECORD_NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.STORE_UNAVAILABLE: 503,
    ErrorCode.LEDGER_CORRUPT: 500,
    ErrorCode.PROVIDER_BROKEN: 500,
    TransportCode.NOT_FOUND: 404,
    TransportCode.METHOD_NOT_ALLOWED: 405,
    TransportCode.REQUEST_TIMEOUT: 408,
    TransportCode.UNSUPPORTED_MEDIA_TYPE: 415,
    TransportCode.BUSY: 503,
    TransportCode.INTERNAL_ERROR: 500,
}
PRECONDITION_FAILED = 412
METHOD_NOT_ALLOWED = STATUS_OF_CODE[TransportCode.METHOD_NOT_ALLOWED]
UNAUTHENTICATED = STATUS_OF_CODE[ErrorCode.UNAUTHENTICATED]
UNAVAILABLE = STATUS_OF_CODE[ErrorCode.STORE_UNAVAILABLE]


class TransportError(Exception):
    """A failure of the transport: same shape as a server error, but with a code that the protocol does not know."""

    def __init__(self, code: TransportCode, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details or {}


def status_of(error: BeliefServerError | TransportError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, errors.HeadMismatch):
        return PRECONDITION_FAILED
    if isinstance(error, TransportError):
        return STATUS_OF_CODE[error.code]
    return STATUS_OF_CODE[ErrorCode(error.code)]


class _Advice(NamedTuple):
    """What an error of one code says where it was raised without saying it."""

    next: str
    field: str = "body"
    accepted: str = "a request as `/openapi.json` describes it"


_ADVICE: dict[str, _Advice] = {
    ErrorCode.INVALID_REQUEST: _Advice("correct the request, and send it again: nothing was changed"),
    ErrorCode.LIMIT_EXCEEDED: _Advice("send less at a time"),
    ErrorCode.UNAUTHENTICATED: _Advice(
        "send a key that is good", "authorization", "`Bearer` and a key that is not expired or revoked"
    ),
    ErrorCode.FORBIDDEN: _Advice("send the request with a key that may do this", "actor", "an actor that may do this"),
    ErrorCode.CONFLICT: _Advice(
        "read what is there, and send something else: the same request is refused again", "body", "what is not taken"
    ),
    ErrorCode.STORE_UNAVAILABLE: _Advice("send it again: nothing was applied"),
    ErrorCode.LEDGER_CORRUPT: _Advice("have an operator restore a backup: this log is not to be trusted"),
    ErrorCode.PROVIDER_BROKEN: _Advice("have the provider repaired: the log of the server has the cause"),
    TransportCode.NOT_FOUND: _Advice("look the path up in `/openapi.json`", "path", "a path of `/openapi.json`"),
    TransportCode.REQUEST_TIMEOUT: _Advice("send head and body within a minute each", "body", "a body that ends"),
    TransportCode.BUSY: _Advice("try again later, as `Retry-After` says"),
    TransportCode.INTERNAL_ERROR: _Advice("report it: the log of the server has the cause"),
}
_FIRST_SERVER_ERROR = 500


def complete_details(code: str, details: dict[str, Any]) -> dict[str, Any]:
    """The details with all that a caller can act on: where it is, what was found (null for nothing), what would be
    accepted, and what to do. Of a failure of our own only what to do.
    """
    advice = _ADVICE.get(code, _Advice("correct the request, and send it again: nothing was changed"))
    told = {**details, "next": details.get("next", advice.next)}
    if STATUS_OF_CODE[_CODES[code]] >= _FIRST_SERVER_ERROR:
        return told
    where = next((details[name] for name in ("field", "parameter", "header", "limit") if name in details), advice.field)
    return {
        **told,
        "field": where,
        "found": details.get("found"),
        "accepted": details.get("accepted", advice.accepted),
    }


_CODES: dict[str, ErrorCode | TransportCode] = {code.value: code for code in STATUS_OF_CODE}
