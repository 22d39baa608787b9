"""What every failure looks like over HTTP."""

from __future__ import annotations

from typing import Any, Protocol

from cmbs.api.errors import PRECONDITION_FAILED, STATUS_OF_CODE
from scripts.error_fields import list_unknown

_STATUSES = {code.value: {status} for code, status in STATUS_OF_CODE.items()}
_STATUSES["CONFLICT"].add(PRECONDITION_FAILED)
_FIRST_SERVER_ERROR = 500


class HasHeaders(Protocol):
    """Anything that answers."""

    @property
    def headers(self) -> Any: ...

    def json(self) -> Any: ...


def check_error(answer: HasHeaders, status: int, code: str) -> dict[str, Any]:
    """That an answer is this error, in the shape of the protocol, under the status of the table; its details."""
    answered: int = answer.status_code if hasattr(answer, "status_code") else answer.status  # type: ignore[attr-defined]
    assert answered == status, answer.json()
    assert answer.headers["content-type"] == "application/json"
    content = answer.json()
    assert list(content) == ["error"]
    error = content["error"]
    assert list(error) == ["code", "message", "details"]
    assert error["code"] == code, error
    assert status in _STATUSES[code]
    message = error["message"]
    assert message
    assert not message[0].isupper(), message
    assert not message.endswith("."), message
    details: dict[str, Any] = error["details"]
    # What to do, and of what the caller did wrong also where it is, what was found and what would be accepted.
    told = {"next"} if status >= _FIRST_SERVER_ERROR else {"field", "found", "accepted", "next"}
    assert told <= details.keys(), error
    assert details["next"], error
    assert list_unknown(code, details) == [], "no field that its type does not have"
    return {**details, "message": message}
