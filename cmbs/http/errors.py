"""The one table of error codes and HTTP statuses."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from cmbs import errors
from cmbs.errors import BeliefServerError, ErrorCode
from cmbs.identity.tokens import without_keys


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


def error_body(code: str, message: str, details: dict[str, Any] | None) -> bytes:
    """The error model of the protocol. What it says back of a request never holds a key."""
    return without_keys(msgspec.json.encode({"error": {"code": code, "message": message, "details": details or None}}))
