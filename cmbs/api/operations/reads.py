"""What all operations that read something of a space have in common."""

from __future__ import annotations

from cmbs.api.errors import TransportCode
from cmbs.api.operation import Operation, Parameter
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import Scope

SPACE = "/v1/spaces/{space_id}"
# What a caller knows already, or can do without, of a proposal and of an execution.
PROPOSAL_BULK = ("candidates", "provenance", "decision.trace")
EXECUTION_BULK = ("args", "result")
READ_ERRORS = (
    ErrorCode.STORE_UNAVAILABLE,
    ErrorCode.SPACE_NOT_FOUND,
    ErrorCode.LEDGER_CORRUPT,
    ErrorCode.LIMIT_EXCEEDED,
)


def describe_read(
    path: str,
    operation_id: str,
    summary: str,
    description: str,
    response: type,
    query: tuple[Parameter, ...] = (),
    errors: tuple[ErrorCode | TransportCode, ...] = (),
    bulk: tuple[str, ...] = (),
) -> Operation:
    """Describe a GET below a space; `errors` are those beside the ones that every read can have."""
    return Operation(
        "GET",
        f"{SPACE}/{path}".rstrip("/"),
        operation_id,
        summary,
        description,
        response,
        query=query,
        errors=(*READ_ERRORS, *errors),
        scope=Scope.SPACES_READ,
        bulk=bulk,
    )
