"""Every error that cmbs raises on purpose.

A refusal that the protocol defines (exit denied, conclusion not accepted, termination denied) is a value, not an error.
What is raised is either a bad request, a fault of the outside world, or a broken invariant. This module knows no HTTP:
the status of each code lives in one table in `cmbs.http.errors`.

::

    CmbsError
    ├── BeliefServerError                code, message, details
    │   ├── InvalidRequest               INVALID_REQUEST          malformed or out of range
    │   ├── LimitExceeded                LIMIT_EXCEEDED           names the limit and its value
    │   ├── Unauthenticated              UNAUTHENTICATED          no key, or none that is good; `reason` says why
    │   ├── Forbidden                    FORBIDDEN                known, and not allowed to
    │   ├── InvalidHypothesisId          INVALID_HYPOTHESIS_ID    an id outside the universe, where ids are validated
    │   ├── UnknownProbe                 UNKNOWN_PROBE            the provider has no such probe
    │   ├── SessionNotFound              SESSION_NOT_FOUND
    │   ├── SessionTerminated            SESSION_TERMINATED       no verb may change it any more
    │   ├── ObligationNotFound           OBLIGATION_NOT_FOUND
    │   ├── EventNotFound                EVENT_NOT_FOUND          no such event in this session
    │   ├── SpaceNotFound                SPACE_NOT_FOUND
    │   ├── RecordNotFound               RECORD_NOT_FOUND         no such proposal, approval, tool, ... in this space
    │   ├── Conflict                     CONFLICT                 the same key with another content
    │   │   └── HeadMismatch             CONFLICT                 the audit head is not the one the caller saw
    │   ├── StoreUnavailable             STORE_UNAVAILABLE        nothing was applied; try again
    │   └── LedgerCorrupt                LEDGER_CORRUPT           a stored or offered log does not verify
    ├── TeeError                         Tee; gRPC statuses live in one table in `cmbs.tee.server`
    │   ├── InvalidGraph                 malformed: an empty id, an unspecified type, a self-loop, no provenance, ...
    │   ├── GraphTooLarge                more than one message may carry; names the limit and the way around it
    │   ├── IncidentNotFound
    │   └── GraphUnavailable             the graph store cannot be read or written; nothing was merged; try again
    ├── InvalidProof                     a proof document that proves nothing; the message says why
    ├── InvalidKit                       no kit can be like this
    ├── InvalidDocument                  (cmbs.documents) a kit, table or policy file, with findings by line and rule
    └── ProviderBroken                   a hypothesis provider plug-in that cannot be used
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

# How many ids a message names; the details have more.
_SHOWN = 5


class ErrorCode(StrEnum):
    """The closed set of codes that a belief server answers with."""

    INVALID_REQUEST = "INVALID_REQUEST"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    INVALID_HYPOTHESIS_ID = "INVALID_HYPOTHESIS_ID"
    UNKNOWN_PROBE = "UNKNOWN_PROBE"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    SESSION_TERMINATED = "SESSION_TERMINATED"
    OBLIGATION_NOT_FOUND = "OBLIGATION_NOT_FOUND"
    EVENT_NOT_FOUND = "EVENT_NOT_FOUND"
    SPACE_NOT_FOUND = "SPACE_NOT_FOUND"
    RECORD_NOT_FOUND = "RECORD_NOT_FOUND"
    CONFLICT = "CONFLICT"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    LEDGER_CORRUPT = "LEDGER_CORRUPT"


class CmbsError(Exception):
    """Root of the tree."""


class ProviderBroken(CmbsError):
    """A hypothesis provider plug-in cannot be loaded or breaks its contract."""


class InvalidProof(CmbsError):
    """A proof document that is malformed, or does not prove what it states; the message says why."""


class InvalidKit(CmbsError):
    """No kit can be like this; the message says why."""


class BeliefServerError(CmbsError):
    """An answer of the server that is not a result: a stable code, a sentence for people, details for programs."""

    default_code: ClassVar[ErrorCode]

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code: str = self.default_code.value
        self.message = message
        self.details: dict[str, Any] = dict(details) if details else {}

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class InvalidRequest(BeliefServerError):
    """The request is malformed; nothing was changed."""

    default_code = ErrorCode.INVALID_REQUEST


class LimitExceeded(BeliefServerError):
    """The request is well formed but larger than a configured limit."""

    default_code = ErrorCode.LIMIT_EXCEEDED

    def __init__(self, limit: str, maximum: int, actual: int, field: str | None = None) -> None:
        where = f" in `{field}`" if field else ""
        super().__init__(
            f"`{limit}` allows at most {maximum}, got {actual}{where}",
            {"limit": limit, "maximum": maximum, "actual": actual} | ({"field": field} if field else {}),
        )


class KeyRefused(StrEnum):
    """Why a request without a good key is refused. Only a caller that holds all of a key learns that it was one."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Unauthenticated(BeliefServerError):
    """The server has keys, and the request has none that is good."""

    default_code = ErrorCode.UNAUTHENTICATED

    def __init__(self, reason: KeyRefused, message: str) -> None:
        super().__init__(message, {"reason": reason.value})


class Forbidden(BeliefServerError):
    """The caller is known, or need not be, and may not do this."""

    default_code = ErrorCode.FORBIDDEN


class InvalidHypothesisId(BeliefServerError):
    """Ids outside the declared universe, in a session that validates them."""

    default_code = ErrorCode.INVALID_HYPOTHESIS_ID

    def __init__(self, unknown: list[str]) -> None:
        shown = ", ".join(f"`{hypothesis_id}`" for hypothesis_id in unknown[:_SHOWN])
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        super().__init__(f"not in the declared universe: {shown}{more}", {"unknown": unknown[:100]})


class UnknownProbe(BeliefServerError):
    """The provider does not offer this probe."""

    default_code = ErrorCode.UNKNOWN_PROBE

    def __init__(self, probe_id: str) -> None:
        super().__init__(f"the provider has no probe `{probe_id}`", {"probe_id": probe_id})


class SessionNotFound(BeliefServerError):
    """No such session."""

    default_code = ErrorCode.SESSION_NOT_FOUND

    def __init__(self, session_id: str) -> None:
        super().__init__(f"no session `{session_id}`", {"session_id": session_id})


class SessionTerminated(BeliefServerError):
    """The session has ended; it can be read, not changed."""

    default_code = ErrorCode.SESSION_TERMINATED

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session `{session_id}` is terminated", {"session_id": session_id})


class ObligationNotFound(BeliefServerError):
    """The session never entered this obligation."""

    default_code = ErrorCode.OBLIGATION_NOT_FOUND

    def __init__(self, obligation_id: str) -> None:
        super().__init__(f"no obligation `{obligation_id}` in this session", {"obligation_id": obligation_id})


class EventNotFound(BeliefServerError):
    """No event of this session has that id or sequence number."""

    default_code = ErrorCode.EVENT_NOT_FOUND

    def __init__(self, event: str) -> None:
        super().__init__(f"no event `{event}` in this session", {"event": event})


class SpaceNotFound(BeliefServerError):
    """No such space."""

    default_code = ErrorCode.SPACE_NOT_FOUND

    def __init__(self, space_id: str) -> None:
        super().__init__(f"no space `{space_id}`", {"space_id": space_id})


class RecordNotFound(BeliefServerError):
    """The space has nothing of this kind under that id."""

    default_code = ErrorCode.RECORD_NOT_FOUND

    def __init__(self, what: str, record_id: str) -> None:
        super().__init__(f"no {what} `{record_id}` in this space", {"what": what, "id": record_id})


class Conflict(BeliefServerError):
    """A key that is taken, with another content."""

    default_code = ErrorCode.CONFLICT


class HeadMismatch(Conflict):
    """Optimistic concurrency: the session moved on since the caller looked."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(
            f"the audit head is `{actual}`, not `{expected}`",
            {"expected": expected, "actual": actual},
        )


class StoreUnavailable(BeliefServerError):
    """The store could not be read or written; nothing was applied and the call may be repeated."""

    default_code = ErrorCode.STORE_UNAVAILABLE


class LedgerCorrupt(BeliefServerError):
    """A log that does not verify: names the first bad event and why."""

    default_code = ErrorCode.LEDGER_CORRUPT

    def __init__(self, stream_id: str, seq: int, reason: str, event_id: str | None = None) -> None:
        named = f" (`{event_id}`)" if event_id else ""
        super().__init__(
            f"ledger of `{stream_id}` is bad at seq {seq}{named}: {reason}",
            {"stream_id": stream_id, "seq": seq, "event_id": event_id, "reason": reason},
        )
        self.stream_id = stream_id
        self.seq = seq
        self.reason = reason


class TeeError(CmbsError):
    """What Tee answers instead of a result."""


class InvalidGraph(TeeError):
    """A request that no graph can take; nothing was changed."""


class GraphTooLarge(TeeError):
    """More than one message may carry."""


class IncidentNotFound(TeeError):
    """No such incident."""

    def __init__(self, incident_id: str) -> None:
        # A gRPC status that is too long does not arrive as itself, and an id may have any length.
        super().__init__(f"no incident `{incident_id[:64]}`")
        self.incident_id = incident_id


class GraphUnavailable(TeeError):
    """The graph store could not be read or written; nothing was merged and the call may be repeated."""
