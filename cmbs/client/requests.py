"""A call as httpx2 sends it, and what its failures mean."""

from __future__ import annotations

from typing import Any

import httpx2

from cmbs.client.errors import Unreachable
from cmbs.client.exchange import Attempt

# A larger answer is given up: the server would not send one in one piece.
MAX_ANSWER_BYTES = 512 * 1024 * 1024


def list_request(attempt: Attempt) -> dict[str, Any]:
    """The arguments of a request."""
    call = attempt.call
    return {
        "method": call.operation.method,
        "url": call.path,
        "params": list(call.pairs) or None,
        "content": call.content,
        "headers": dict(attempt.headers),
        "timeout": attempt.timeout
        if attempt.silence is None
        else httpx2.Timeout(attempt.timeout, read=attempt.silence),
    }


def explain_failure(name: str, exc: httpx2.RequestError) -> Unreachable:
    """Why there is no answer. The text of the cause is left out of it: it may quote what was sent."""
    told = type(exc).__name__
    if isinstance(exc, httpx2.ConnectError | httpx2.ConnectTimeout):
        return Unreachable(
            f"no connection to `{name}`: {exc}; start a server there with `cmbs serve`, or correct the address"
        )
    if isinstance(exc, httpx2.TimeoutException):
        return Unreachable(f"`{name}` did not answer in time ({told})")
    return Unreachable(f"the connection to `{name}` broke before the answer was complete ({told})")
