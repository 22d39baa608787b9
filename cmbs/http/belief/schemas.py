"""What goes over the wire, as types: requests are decoded into these, and the OpenAPI file is generated from them.

An unknown field in a request is an error, never ignored. Limits that an operator can change are only described here;
the door enforces them, with an error that names the limit.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmbs.belief.kernel.requests import Limits
from cmbs.errors import ErrorCode
from cmbs.http.errors import TransportCode
from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.messages import ActorKind, ObligationState, Reason, Verb

REFERENCE = "#/components/schemas/{name}"

Id = Annotated[str, Meta(extra_json_schema={"maxLength": Limits().id_length})]
Ids = list[Id]
# A caller's own object, kept as text until the door brings it into canonical form.
Opaque = Annotated[
    msgspec.Raw | UnsetType,
    Meta(
        description="Any JSON object: stored and returned as it is, never interpreted.",
        extra_json_schema={"type": ["object", "null"]},
    ),
]
OpaqueContext = Annotated[Opaque, Meta(description="Why it is asked for: stored and returned, never interpreted.")]
Threshold = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": MAX_SAFE_INTEGER})]
SessionIdInBody = Annotated[
    Id | UnsetType, Meta(description="May be left out, since it is in the path; one that differs is refused.")
]
Count = Annotated[int, Meta(ge=0)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Timestamp = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$",
        description="RFC 3339 in UTC, with microseconds.",
        extra_json_schema={"format": "date-time"},
    ),
]
NextCursor = Annotated[str | None, Meta(description="For the next page; null on the last one.")]

# --- requests ---------------------------------------------------------------------------------------------------------


class Ontology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which causal model the hypotheses come from; carried, never fetched."""

    hypothesis_space_id: Id
    hypothesis_version: Id
    causal_graph_ref: Id
    causal_graph_version: Id


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the session allows; fixed for its life."""

    allow_force: Annotated[bool | UnsetType, Meta(description="Whether a caller may end it by force; default no.")] = (
        UNSET
    )
    stability_window: Annotated[
        Threshold | UnsetType,
        Meta(description="How many equal conclusions in a row termination needs; default none."),
    ] = UNSET
    validate_hypotheses: Annotated[
        bool | UnsetType,
        Meta(description="Refuse unknown ids instead of ignoring them; the server's default if left out."),
    ] = UNSET


class DeclareSessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DECLARE_SESSION."""

    ontology: Ontology
    hypotheses: Annotated[
        Annotated[Ids, Meta(min_length=1)] | UnsetType,
        Meta(
            description="Opaque ids; repeats count once. Left out, they are those of the causal graph as it is now,"
            " where the server has one."
        ),
    ] = UNSET
    metadata: Opaque = UNSET
    policy: Policy | UnsetType = UNSET


class EliminateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ELIMINATE."""

    source_id: Annotated[Id, Meta(description="Who observed.")]
    observation_id: Annotated[Id, Meta(description="With source_id, the key under which this is applied once.")]
    eliminated: Annotated[Ids, Meta(description="The hypotheses that the observation contradicts.")]
    justification: Opaque = UNSET
    session_id: SessionIdInBody = UNSET


class EnterObligationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ENTER_OBLIGATION."""

    obligation_id: Annotated[Id, Meta(description="New in this session.")]
    min_total_eliminations: Annotated[
        Threshold, Meta(description="How many hypotheses must be eliminated from now on before it may be left.")
    ]
    session_id: SessionIdInBody = UNSET


class RequestExitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """REQUEST_EXIT."""

    context: OpaqueContext = UNSET
    obligation_id: Annotated[
        Id | UnsetType, Meta(description="May be left out, since it is in the path; one that differs is refused.")
    ] = UNSET
    session_id: SessionIdInBody = UNSET


class DeclareConclusionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DECLARE_CONCLUSION."""

    conclusion_id: Annotated[Id, Meta(description="Opaque; often the hypothesis that is concluded.")]
    context: OpaqueContext = UNSET
    session_id: SessionIdInBody = UNSET


class RequestTerminationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """REQUEST_TERMINATION; `{"force": true}` in the context asks for force."""

    context: OpaqueContext = UNSET
    session_id: SessionIdInBody = UNSET


# --- responses --------------------------------------------------------------------------------------------------------


class Snapshot(msgspec.Struct, kw_only=True):
    """BeliefSnapshot: what may still be true."""

    session_id: str
    ontology: Ontology
    survivors: Annotated[
        list[str] | UnsetType, Meta(description="Sorted by code point; left out under `Prefer: return=minimal`.")
    ] = UNSET
    n_survivors: Count
    entropy_proxy: Annotated[float, Meta(ge=0, description="log2 of n_survivors; 0 for one or none.")]
    terminated: bool
    active_obligation_id: Annotated[str | None, Meta(description="The newest obligation that is still active.")]
    audit_head_event_id: Annotated[str, Meta(description="The last event that it takes into account.")]


class DeclareSessionResponse(msgspec.Struct):
    """Answer to DECLARE_SESSION."""

    session_id: str
    snapshot: Snapshot


class EliminateResponse(msgspec.Struct):
    """Answer to ELIMINATE; both lists are sorted."""

    applied_eliminated: Annotated[list[str], Meta(description="What was asked for and still survived.")]
    ignored_eliminated: Annotated[list[str], Meta(description="The rest: eliminated before, or unknown.")]
    snapshot: Snapshot
    audit_event_id: str


class EnterObligationResponse(msgspec.Struct):
    """Answer to ENTER_OBLIGATION."""

    snapshot: Snapshot
    audit_event_id: str


class ApprovalResponse(msgspec.Struct):
    """Answer to REQUEST_EXIT and REQUEST_TERMINATION. A refusal is an answer, and an event, not an error."""

    approved: bool
    reason: Reason
    snapshot: Snapshot
    audit_event_id: str


class DeclareConclusionResponse(msgspec.Struct):
    """Answer to DECLARE_CONCLUSION."""

    accepted: bool
    reason: Reason
    snapshot: Snapshot
    audit_event_id: str


class SessionItem(msgspec.Struct):
    """A session in a list."""

    session_id: str
    created_ts: Timestamp
    universe_size: Count
    n_survivors: Count
    terminated: bool
    head_seq: Count
    head_event_id: str


class SessionsPage(msgspec.Struct):
    """A page of sessions, the oldest first."""

    sessions: list[SessionItem]
    next_cursor: NextCursor


class SurvivorsPage(msgspec.Struct):
    """A page of survivors, sorted."""

    survivors: list[str]
    n_survivors: Annotated[int, Meta(ge=0, description="How many there are on all pages.")]
    audit_head_event_id: Annotated[str, Meta(description="Pass it as `at` to get the next page of the same moment.")]
    next_cursor: NextCursor


class ObligationItem(msgspec.Struct):
    """An obligation of a session."""

    obligation_id: str
    state: ObligationState
    min_total_eliminations: Count
    eliminations: Annotated[int, Meta(ge=0, description="How many hypotheses were eliminated while it was active.")]


class ObligationsResponse(msgspec.Struct):
    """Every obligation of a session, in the order of entry."""

    obligations: list[ObligationItem]


class Health(msgspec.Struct):
    """The server is there."""

    status: Literal["ok"]


# --- the log ----------------------------------------------------------------------------------------------------------


class RecordedPolicy(msgspec.Struct):
    """The policy of a session, defaults filled in."""

    allow_force: bool
    stability_window: Count
    validate_hypotheses: bool


class ProviderReference(msgspec.Struct):
    """Which hypothesis provider a session was declared from."""

    id: str
    version: str


class ProbeRecord(msgspec.Struct):
    """A probe of a hypothesis provider, and what the world answered."""

    probe_id: str
    response: Any


class DeclareSessionPayload(msgspec.Struct, forbid_unknown_fields=True):
    """What a DECLARE_SESSION asked for; the hypotheses sorted, each once."""

    ontology: Ontology
    hypotheses: list[str]
    metadata: dict[str, Any] | None
    policy: RecordedPolicy
    provider: ProviderReference | None


class EliminatePayload(msgspec.Struct, forbid_unknown_fields=True):
    """What an ELIMINATE asked for; its ids sorted, each once."""

    source_id: str
    observation_id: str
    eliminated: list[str]
    justification: dict[str, Any] | None
    probe: ProbeRecord | None


class EnterObligationPayload(msgspec.Struct, forbid_unknown_fields=True):
    """What an ENTER_OBLIGATION asked for."""

    obligation_id: str
    min_total_eliminations: Count


class RequestExitPayload(msgspec.Struct, forbid_unknown_fields=True):
    """What a REQUEST_EXIT asked for."""

    obligation_id: str
    context: dict[str, Any] | None


class DeclareConclusionPayload(msgspec.Struct, forbid_unknown_fields=True):
    """What a DECLARE_CONCLUSION asked for."""

    conclusion_id: str
    context: dict[str, Any] | None


class RequestTerminationPayload(msgspec.Struct, forbid_unknown_fields=True):
    """What a REQUEST_TERMINATION asked for."""

    context: dict[str, Any] | None


class UniverseOutcome(msgspec.Struct, forbid_unknown_fields=True):
    """What a DECLARE_SESSION committed to."""

    universe_root: Sha256
    universe_size: Count


class ApprovalOutcome(msgspec.Struct, forbid_unknown_fields=True):
    """How a REQUEST_EXIT or REQUEST_TERMINATION was decided."""

    approved: bool
    reason: Reason


class ConclusionOutcome(msgspec.Struct, forbid_unknown_fields=True):
    """How a DECLARE_CONCLUSION was decided."""

    accepted: bool
    reason: Reason


class Delta(msgspec.Struct):
    """What an event changed."""

    eliminated: list[str]


PAYLOADS = (
    DeclareSessionPayload,
    EliminatePayload,
    EnterObligationPayload,
    RequestExitPayload,
    DeclareConclusionPayload,
    RequestTerminationPayload,
)
OUTCOMES = (UniverseOutcome, ApprovalOutcome, ConclusionOutcome)


def _one_of(kinds: tuple[type, ...]) -> list[dict[str, str]]:
    return [{"$ref": REFERENCE.format(name=kind.__name__)} for kind in kinds]


class RecordedActor(msgspec.Struct):
    """Who asked. `key_id` names the key, and is no secret."""

    kind: ActorKind
    id: str
    authenticated: bool
    key_id: str | None


class AuditEvent(msgspec.Struct):
    """AuditEntry: exactly what was hashed, in canonical form, and `event_hash`."""

    v: Literal[1]
    stream_id: Annotated[str, Meta(description="The session.")]
    seq: Annotated[int, Meta(ge=0, description="0 for the declaration, then one more each time.")]
    event_id: str
    ts: Timestamp
    verb: Verb
    payload: Annotated[
        dict[str, Any],
        Meta(description="What was asked, by verb.", extra_json_schema={"oneOf": _one_of(PAYLOADS)}),
    ]
    outcome: Annotated[
        Any,
        Meta(
            description="What was decided; null where there is nothing to decide.",
            extra_json_schema={"oneOf": [*_one_of(OUTCOMES), {"type": "null"}]},
        ),
    ]
    delta: Delta
    survivors_before_hash: Sha256
    survivors_after_hash: Sha256
    prev_event_hash: Annotated[Sha256, Meta(description="64 zeros in the first event.")]
    event_hash: Annotated[Sha256, Meta(description="SHA-256 of a zero byte and the canonical bytes; not part of them.")]
    notes: Annotated[str | UnsetType, Meta(description="A remark; left out unless there is one.")] = UNSET
    idempotency_key: Annotated[str | UnsetType, Meta(description="Left out unless one was sent.")] = UNSET
    actor: Annotated[
        RecordedActor | UnsetType, Meta(description="Who asked, by their key; left out where no key was needed.")
    ] = UNSET


class AuditTraceResponse(msgspec.Struct):
    """Answer to AUDIT_TRACE."""

    events: list[AuditEvent]


# --- errors -----------------------------------------------------------------------------------------------------------


class ErrorDetail(msgspec.Struct):
    """What went wrong."""

    code: Annotated[
        str,
        Meta(description="Stable, for programs.", extra_json_schema={"enum": [*ErrorCode, *TransportCode]}),
    ]
    message: Annotated[str, Meta(description="For people; it may change.")]
    details: Annotated[
        dict[str, Any] | None, Meta(description="Which field, limit, id or key; it depends on the code.")
    ]


class ErrorResponse(msgspec.Struct):
    """Every failure has this shape, and nothing has changed."""

    error: ErrorDetail
