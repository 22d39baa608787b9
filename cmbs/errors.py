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
    │   ├── FreeHandRefused              FREE_HAND_REFUSED        the session takes eliminations through probes alone
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
    │   │   ├── StoreDisagrees           STORE_UNAVAILABLE        log and elimination store differ; ask an operator
    │   │   └── StoreRolledBack          STORE_UNAVAILABLE        an older database was put back; ask an operator
    │   ├── LedgerCorrupt                LEDGER_CORRUPT           a stored or offered log does not verify
    │   └── ProviderBroken               PROVIDER_BROKEN          a hypothesis provider that cannot be used, by its name
    ├── TeeError                         Tee; gRPC statuses live in one table in `cmbs.tee.server`
    │   ├── InvalidGraph                 malformed: an empty id, an unspecified type, a self-loop, no provenance, ...
    │   ├── GraphTooLarge                more than one message may carry; names the limit and the way around it
    │   ├── IncidentNotFound
    │   └── GraphUnavailable             the graph store cannot be read or written; nothing was merged; try again
    ├── InvalidProof                     a proof document that proves nothing; the message says why
    ├── InvalidKit                       no kit can be like this
    └── InvalidDocument                  (cmbs.documents) a kit, table or policy file, with findings by line and rule
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    FREE_HAND_REFUSED = "FREE_HAND_REFUSED"
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
    PROVIDER_BROKEN = "PROVIDER_BROKEN"


class CmbsError(Exception):
    """Root of the tree."""


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

    def __init__(
        self, limit: str, maximum: int, actual: int, field: str | None = None, agent_id: str | None = None
    ) -> None:
        where = f" in `{field}`" if field else ""
        holder = "" if agent_id is None else f" agent `{agent_id}`"
        super().__init__(
            f"`{limit}` allows{holder} at most {maximum}, got {actual}{where}",
            {
                "limit": limit,
                "maximum": maximum,
                "actual": actual,
                **({"field": field} if field else {}),
                **({} if agent_id is None else {"agent_id": agent_id}),
                "found": actual,
                "accepted": {"maximum": maximum},
                "next": f"send less at a time, or have the limit `{limit}` raised",
            },
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
        super().__init__(message, {"reason": reason.value, "field": "authorization", "found": reason.value})


class Forbidden(BeliefServerError):
    """The caller is known, or need not be, and may not do this."""

    default_code = ErrorCode.FORBIDDEN


class InvalidHypothesisId(BeliefServerError):
    """Ids outside the declared universe, in a session that validates them."""

    default_code = ErrorCode.INVALID_HYPOTHESIS_ID

    def __init__(self, unknown: list[str], nearest: Mapping[str, str] | None = None, field: str = "eliminated") -> None:
        """`nearest` has known ids that are like the unknown ones, where they were looked for."""
        shown = ", ".join(f"`{hypothesis_id}`" for hypothesis_id in unknown[:_SHOWN])
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        meant = ", ".join(f"`{hypothesis_id}`" for hypothesis_id in sorted(set((nearest or {}).values())))
        super().__init__(
            f"not in the declared universe: {shown}{more}" + (f"; did you mean {meant}?" if meant else ""),
            {
                "unknown": unknown[:100],
                "field": field,
                "found": unknown[:_SHOWN],
                "accepted": dict(nearest) if nearest else "an id that the session declares",
                "next": "send ids of the session's hypotheses alone",
            },
        )
        self.unknown = unknown


class FreeHandRefused(BeliefServerError):
    """The policy of the session lets only a provider's probes eliminate, and this is a list without a probe."""

    default_code = ErrorCode.FREE_HAND_REFUSED

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session `{session_id}` takes no lists of ids: its policy says `eliminations: observations`; "
            "send the response to a probe, and the provider works out what it rules out",
            {
                "session_id": session_id,
                "field": "eliminated",
                "found": "a list of ids",
                "accepted": "the response to a probe of the session's provider",
                "next": "observe",
            },
        )


class UnknownProbe(BeliefServerError):
    """The provider does not offer this probe."""

    default_code = ErrorCode.UNKNOWN_PROBE

    def __init__(self, probe_id: str, nearest: str | None = None) -> None:
        """`nearest` is a probe that is like the unknown one, where it was looked for."""
        meant = "" if nearest is None else f"; did you mean `{nearest}`?"
        super().__init__(
            f"the provider has no probe `{probe_id}`{meant}",
            {
                "probe_id": probe_id,
                "field": "probe_id",
                "found": probe_id,
                "accepted": "a probe of the session's provider" if nearest is None else nearest,
                "next": "apply a probe that the provider has",
            },
        )


class SessionNotFound(BeliefServerError):
    """No such session."""

    default_code = ErrorCode.SESSION_NOT_FOUND

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"no session `{session_id}`",
            {
                "session_id": session_id,
                "field": "session_id",
                "found": session_id,
                "accepted": "the id of a session that was declared here",
                "next": "look for it in the list of sessions, or declare one",
            },
        )


class SessionTerminated(BeliefServerError):
    """The session has ended; it can be read, not changed."""

    default_code = ErrorCode.SESSION_TERMINATED

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session `{session_id}` is terminated",
            {
                "session_id": session_id,
                "field": "session_id",
                "found": "terminated",
                "accepted": "a session that has not ended",
                "next": "read it, fork it at an earlier event, or declare another",
            },
        )


class ObligationNotFound(BeliefServerError):
    """The session never entered this obligation."""

    default_code = ErrorCode.OBLIGATION_NOT_FOUND

    def __init__(self, obligation_id: str, active: Sequence[str] = ()) -> None:
        """`active` are obligations that could be meant."""
        super().__init__(
            f"no obligation `{obligation_id}` in this session",
            {
                "obligation_id": obligation_id,
                "field": "obligation_id",
                "found": obligation_id,
                "accepted": list(active[-_SHOWN:]),
                "next": "name an obligation that was entered in this session",
            },
        )


class EventNotFound(BeliefServerError):
    """No event of this session has that id or sequence number."""

    default_code = ErrorCode.EVENT_NOT_FOUND

    def __init__(self, event: str, head_seq: int | None = None) -> None:
        """`head_seq` is the last event that there is, where that is known."""
        known = "" if head_seq is None else f" from 0 to {head_seq}"
        super().__init__(
            f"no event `{event}` in this session",
            {
                "event": event,
                "field": "event",
                "found": event,
                "accepted": f"a seq{known}, or the id of an event",
                "next": "look the event up in the audit trace",
            },
        )


class SpaceNotFound(BeliefServerError):
    """No such space."""

    default_code = ErrorCode.SPACE_NOT_FOUND

    def __init__(self, space_id: str) -> None:
        super().__init__(
            f"no space `{space_id}`",
            {
                "space_id": space_id,
                "field": "space_id",
                "found": space_id,
                "accepted": "the id of a space of this server",
                "next": "use a space of the list of spaces, or have an operator create this one",
            },
        )


class RecordNotFound(BeliefServerError):
    """The space, or this server, has nothing of this kind under that id."""

    default_code = ErrorCode.RECORD_NOT_FOUND

    def __init__(self, what: str, record_id: str, nearest: Sequence[str] = (), where: str = "this space") -> None:
        """`nearest` are ids that are like this one, and that the caller may know of."""
        hint = f"; did you mean {', '.join(f'`{each}`' for each in nearest)}" if nearest else ""
        one = f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
        super().__init__(
            f"no {what} `{record_id}` in {where}{hint}",
            {
                "what": what,
                "id": record_id,
                "field": f"{what.replace(' ', '_')}_id",
                "found": record_id,
                "accepted": list(nearest) if nearest else f"the id of {one} that {where} has",
                "next": f"list what {where} has, and use the id of {one} from there",
            },
        )


class Conflict(BeliefServerError):
    """A key that is taken, with another content."""

    default_code = ErrorCode.CONFLICT


class HeadMismatch(Conflict):
    """Optimistic concurrency: the session moved on since the caller looked."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(
            f"the audit head is `{actual}`, not `{expected}`",
            {
                "expected": expected,
                "actual": actual,
                "field": "if_match",
                "found": expected,
                "accepted": actual,
                "next": "read it again, and send the request with the new head if it still holds",
            },
        )


class StoreUnavailable(BeliefServerError):
    """The store could not be read or written; nothing was applied and the call may be repeated."""

    default_code = ErrorCode.STORE_UNAVAILABLE


class StoreDisagrees(StoreUnavailable):
    """An elimination store does not have what the log of a session says; the session takes no writes until it does."""


class StoreRolledBack(StoreUnavailable):
    """The database does not continue what this server has signed: it takes no writes until it does.

    What was written to it would be lost with the next repair.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"nothing is written: the database does not continue what this server has signed ({reason})",
            {
                "reason": reason,
                "next": "have an operator put the newest database back; sending it again does not help before that",
            },
        )


class ProviderBroken(BeliefServerError):
    """A hypothesis provider plug-in cannot be loaded, raises or breaks its contract; nothing was changed."""

    default_code = ErrorCode.PROVIDER_BROKEN


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
    """What Tee answers instead of a result: a sentence, and details that say what to do about it."""

    default_next: ClassVar[str | None] = None

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        step = {} if self.default_next is None else {"next": self.default_next}
        self.details: dict[str, Any] = {**step, **(details or {})}


class InvalidGraph(TeeError):
    """A request that no graph can take; nothing was changed."""

    default_next = "correct the request, and send it again: nothing was changed"


class GraphTooLarge(TeeError):
    """More than one message may carry."""

    default_next = "ask for less at a time"


class IncidentNotFound(TeeError):
    """No such incident."""

    default_next = "create the incident first, or use the id of one that was created"

    def __init__(self, incident_id: str) -> None:
        # A gRPC status that is too long does not arrive as itself, and an id may have any length.
        shown = incident_id[:64]
        super().__init__(f"no incident `{shown}`", {"field": "incident_id", "found": shown})
        self.incident_id = incident_id


class GraphUnavailable(TeeError):
    """The graph store could not be read or written; nothing was merged and the call may be repeated."""

    default_next = "try again: nothing was merged"
