"""The examples of the OpenAPI document: what was sent and answered in two small incidents, and one error of each code.

`examples.json` is written by `scripts/generate_openapi.py`, which plays the incidents; a test plays them again.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec

from cmbs.api.errors import TransportCode, TransportError, complete_details
from cmbs.errors import (
    BeliefServerError,
    Conflict,
    EventNotFound,
    Forbidden,
    FreeHandRefused,
    HeadMismatch,
    InvalidHypothesisId,
    InvalidRequest,
    KeyRefused,
    LedgerCorrupt,
    LimitExceeded,
    ObligationNotFound,
    ProviderBroken,
    RecordNotFound,
    SessionNotFound,
    SessionTerminated,
    SpaceNotFound,
    StoreUnavailable,
    Unauthenticated,
    UnknownProbe,
)

SESSION_ID = "3f2b8c1e-0d4a-4c39-9d0b-6a1f5e7c2b90"
EVENT_IDS = (
    "9a1c7e42-5b0f-4f0e-8a63-1d2e3f405162",
    "c5d8e0f1-7a26-4b93-8e14-2f6b0a9d3c71",
    "17f4b6a9-3e52-4d08-b7c1-95e0d2a86f34",
    "e80b2d6c-41f7-4a9e-93d5-7c1a60f8b2e5",
    "5b93f7d0-c8a1-4e26-a04f-b6d27e19c358",
    "02ad9e85-6f3b-47c2-8d71-e4f50b1c7a96",
)


class Examples(msgspec.Struct, frozen=True):
    """Ids by the name of their path parameter; request and response bodies by operation."""

    ids: dict[str, str]
    requests: dict[str, dict[str, Any]]
    responses: dict[str, dict[str, Any]]


def load_examples() -> Examples:
    """Read the examples as they were last written."""
    return msgspec.json.decode(files("cmbs.api").joinpath("examples.json").read_bytes(), type=Examples)


def _describe(error: BeliefServerError | TransportError) -> dict[str, Any]:
    code = str(error.code)
    return {"code": code, "message": error.message, "details": complete_details(code, error.details)}


_ERRORS: tuple[BeliefServerError | TransportError, ...] = (
    InvalidRequest("object missing required field `source_id`"),
    LimitExceeded("id_length", 1024, 1300),
    Unauthenticated(KeyRefused.REVOKED, "the key `7d1f0c52a9be3846` is revoked"),
    Forbidden("this key lacks the scope `belief:write`", {"reason": "missing_scope", "scope": "belief:write"}),
    InvalidHypothesisId(["slow-dsn"], {"slow-dsn": "slow-dns"}),
    FreeHandRefused(SESSION_ID),
    UnknownProbe("disk-useage", "disk-usage"),
    SessionNotFound("7d3c"),
    SessionTerminated(SESSION_ID),
    ObligationNotFound("rule-out-two"),
    EventNotFound("7"),
    SpaceNotFound("shop"),
    RecordNotFound("proposal", "p-17"),
    Conflict("obligation `rule-out-one` was entered before", {"obligation_id": "rule-out-one"}),
    StoreUnavailable("cannot append: database is locked"),
    ProviderBroken("provider `checkout-faults` raised `KeyError`", {"provider": "checkout-faults", "probe_id": "df"}),
    LedgerCorrupt(SESSION_ID, 2, "its hash is not that of its bytes", EVENT_IDS[2]),
    TransportError(TransportCode.NOT_FOUND, "this server signs no checkpoints; start it with `--signing-key`"),
    TransportError(TransportCode.METHOD_NOT_ALLOWED, "`DELETE` is not allowed here", {"allowed": ["GET", "HEAD"]}),
    TransportError(
        TransportCode.UNSUPPORTED_MEDIA_TYPE,
        "send the body as `application/json`, not `text/plain`",
        {"content_type": "text/plain"},
    ),
    TransportError(
        TransportCode.BUSY,
        "8 analyses wait already, as many as `analyses_waiting` allows; try again later",
        {"limit": "analyses_waiting", "maximum": 8},
    ),
    TransportError(TransportCode.INTERNAL_ERROR, "the server failed; nothing is known to have changed"),
)
ERRORS: dict[str, dict[str, Any]] = {
    **{str(error.code): _describe(error) for error in _ERRORS},
    # The code of a conflict, under a status of its own.
    "HEAD_MISMATCH": _describe(HeadMismatch(EVENT_IDS[1], EVENT_IDS[2])),
}
