"""Request and response types of the belief protocol: bodies are decoded into them, and the OpenAPI file describes them.

An unknown field in a request is an error. Limits that an operator can change are only described here; the kernel
enforces them, with an error that names the limit.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

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
# JSON that belongs to the caller stays text until the kernel brings it into canonical form.
Opaque = Annotated[
    msgspec.Raw | UnsetType,
    Meta(
        description="Any JSON object: stored and returned unchanged, never interpreted.",
        extra_json_schema={"type": ["object", "null"]},
    ),
]
OpaqueContext = Annotated[Opaque, Meta(description="Context of the request: stored and returned, never interpreted.")]
Threshold = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": MAX_SAFE_INTEGER})]
SessionIdInBody = Annotated[
    Id | UnsetType, Meta(description="Optional, since it is in the path; a different value is refused.")
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
NextCursor = Annotated[str | None, Meta(description="The cursor of the next page; null on the last page.")]

# --- requests ---------------------------------------------------------------------------------------------------------


class Ontology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The causal model that the hypotheses come from; stored, never fetched."""

    hypothesis_space_id: Id
    hypothesis_version: Id
    causal_graph_ref: Id
    causal_graph_version: Id


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the session allows; it cannot be changed later."""

    allow_force: Annotated[
        bool | UnsetType, Meta(description="Whether a caller may force its termination; default false.")
    ] = UNSET
    stability_window: Annotated[
        Threshold | UnsetType,
        Meta(description="How many equal conclusions in a row termination needs; default 0."),
    ] = UNSET
    validate_hypotheses: Annotated[
        bool | UnsetType,
        Meta(description="Refuse unknown ids instead of ignoring them; the default is a setting of the server."),
    ] = UNSET


class DeclareSessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DECLARE_SESSION."""

    ontology: Ontology
    hypotheses: Annotated[
        Annotated[Ids, Meta(min_length=1)] | UnsetType,
        Meta(description="Opaque ids; repeats count once. If left out, they are those of the server's causal graph."),
    ] = UNSET
    metadata: Opaque = UNSET
    policy: Policy | UnsetType = UNSET


class EliminateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ELIMINATE."""

    source_id: Annotated[Id, Meta(description="The source of the observation.")]
    observation_id: Annotated[Id, Meta(description="With `source_id`, the key under which this is applied once.")]
    eliminated: Annotated[Ids, Meta(description="The hypotheses that the observation contradicts.")]
    justification: Opaque = UNSET
    session_id: SessionIdInBody = UNSET


class EnterObligationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ENTER_OBLIGATION."""

    obligation_id: Annotated[Id, Meta(description="Not used before in this session.")]
    min_total_eliminations: Annotated[
        Threshold, Meta(description="How many hypotheses must be eliminated after this before it can be exited.")
    ]
    session_id: SessionIdInBody = UNSET


class RequestExitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """REQUEST_EXIT."""

    context: OpaqueContext = UNSET
    obligation_id: Annotated[
        Id | UnsetType, Meta(description="Optional, since it is in the path; a different value is refused.")
    ] = UNSET
    session_id: SessionIdInBody = UNSET


class DeclareConclusionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DECLARE_CONCLUSION."""

    conclusion_id: Annotated[Id, Meta(description="Opaque; often the hypothesis that is concluded.")]
    context: OpaqueContext = UNSET
    session_id: SessionIdInBody = UNSET


class RequestTerminationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """REQUEST_TERMINATION; `{"force": true}` in the context forces it, if the policy allows that."""

    context: OpaqueContext = UNSET
    session_id: SessionIdInBody = UNSET


# --- responses --------------------------------------------------------------------------------------------------------


class Snapshot(msgspec.Struct, kw_only=True):
    """BeliefSnapshot: the hypotheses that may still be true."""

    session_id: str
    ontology: Ontology
    survivors: Annotated[
        list[str] | UnsetType, Meta(description="Sorted by code point; left out under `Prefer: return=minimal`.")
    ] = UNSET
    n_survivors: Count
    entropy_proxy: Annotated[float, Meta(ge=0, description="log2 of n_survivors; 0 for one or none.")]
    terminated: bool
    active_obligation_id: Annotated[str | None, Meta(description="The newest obligation that is still active.")]
    audit_head_event_id: Annotated[str, Meta(description="The last event that it includes.")]


class DeclareSessionResponse(msgspec.Struct):
    """Answer to DECLARE_SESSION."""

    session_id: str
    snapshot: Snapshot


class SessionOrigin(msgspec.Struct, forbid_unknown_fields=True):
    """The event of another session that a fork begins from."""

    session_id: str
    seq: Count
    event_hash: Sha256


class EliminateResponse(msgspec.Struct):
    """Answer to ELIMINATE; both lists are sorted."""

    applied_eliminated: Annotated[list[str], Meta(description="The requested hypotheses that had survived until now.")]
    ignored_eliminated: Annotated[
        list[str], Meta(description="The other requested ones: eliminated before, or unknown.")
    ]
    snapshot: Snapshot
    audit_event_id: str


class EnterObligationResponse(msgspec.Struct):
    """Answer to ENTER_OBLIGATION."""

    snapshot: Snapshot
    audit_event_id: str


class ApprovalResponse(msgspec.Struct):
    """Answer to REQUEST_EXIT and REQUEST_TERMINATION. A refusal is a response and an event, not an error."""

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
    n_survivors: Annotated[int, Meta(ge=0, description="The number on all pages together.")]
    audit_head_event_id: Annotated[str, Meta(description="Pass it as `at` to read the next page at the same event.")]
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
    """The health of the server."""

    status: Literal["ok"]


# --- the log ----------------------------------------------------------------------------------------------------------


class RecordedPolicy(msgspec.Struct):
    """The policy of a session, with defaults filled in."""

    allow_force: bool
    stability_window: Count
    validate_hypotheses: bool


class ProviderReference(msgspec.Struct):
    """The hypothesis provider that a session was declared from."""

    id: str
    version: str


class ProbeRecord(msgspec.Struct):
    """A probe of a hypothesis provider, and the response to it."""

    probe_id: str
    response: Any


class DeclareSessionPayload(msgspec.Struct, forbid_unknown_fields=True):
    """The request of a DECLARE_SESSION; the hypotheses sorted, each once."""

    ontology: Ontology
    hypotheses: list[str]
    metadata: dict[str, Any] | None
    policy: RecordedPolicy
    provider: ProviderReference | None
    origin: Annotated[SessionOrigin | UnsetType, Meta(description="Only of a fork.")] = UNSET


class EliminatePayload(msgspec.Struct, forbid_unknown_fields=True):
    """The request of an ELIMINATE; its ids sorted, each once."""

    source_id: str
    observation_id: str
    eliminated: list[str]
    justification: dict[str, Any] | None
    probe: ProbeRecord | None


class EnterObligationPayload(msgspec.Struct, forbid_unknown_fields=True):
    """The request of an ENTER_OBLIGATION."""

    obligation_id: str
    min_total_eliminations: Count


class RequestExitPayload(msgspec.Struct, forbid_unknown_fields=True):
    """The request of a REQUEST_EXIT."""

    obligation_id: str
    context: dict[str, Any] | None


class DeclareConclusionPayload(msgspec.Struct, forbid_unknown_fields=True):
    """The request of a DECLARE_CONCLUSION."""

    conclusion_id: str
    context: dict[str, Any] | None


class RequestTerminationPayload(msgspec.Struct, forbid_unknown_fields=True):
    """The request of a REQUEST_TERMINATION."""

    context: dict[str, Any] | None


class UniverseOutcome(msgspec.Struct, forbid_unknown_fields=True):
    """The commitment of a DECLARE_SESSION to its hypotheses."""

    universe_root: Sha256
    universe_size: Count


class ApprovalOutcome(msgspec.Struct, forbid_unknown_fields=True):
    """The decision on a REQUEST_EXIT or REQUEST_TERMINATION."""

    approved: bool
    reason: Reason


class ConclusionOutcome(msgspec.Struct, forbid_unknown_fields=True):
    """The decision on a DECLARE_CONCLUSION."""

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
    """The actor of a request. `key_id` names the key and is not secret."""

    kind: ActorKind
    id: str
    authenticated: bool
    key_id: str | None


EntryVersion: TypeAlias = Annotated[int, Meta(ge=1, le=2, description="The version of the entry.")]


class StateDigest(msgspec.Struct):
    """The digest of the state right before an entry."""

    digest: Sha256
    format: Annotated[int, Meta(ge=0, description="The form of the state that was hashed.")]


class AuditEvent(msgspec.Struct):
    """AuditEntry: the canonical JSON that was hashed, plus `event_hash`."""

    v: EntryVersion
    stream_id: Annotated[str, Meta(description="The id of the session.")]
    seq: Annotated[int, Meta(ge=0, description="0 for the declaration, then increasing by one.")]
    event_id: str
    ts: Timestamp
    verb: Verb
    payload: Annotated[
        dict[str, Any],
        Meta(description="The request; its fields depend on the verb.", extra_json_schema={"oneOf": _one_of(PAYLOADS)}),
    ]
    outcome: Annotated[
        Any,
        Meta(
            description="The decision; null for a verb that needs none.",
            extra_json_schema={"oneOf": [*_one_of(OUTCOMES), {"type": "null"}]},
        ),
    ]
    delta: Delta
    survivors_before_hash: Sha256
    survivors_after_hash: Sha256
    prev_event_hash: Annotated[Sha256, Meta(description="64 zeros in the first event.")]
    event_hash: Annotated[
        Sha256, Meta(description="SHA-256 of a zero byte followed by the canonical bytes; not part of them.")
    ]
    notes: Annotated[str | UnsetType, Meta(description="A remark; left out if there is none.")] = UNSET
    idempotency_key: Annotated[str | UnsetType, Meta(description="Left out if none was sent.")] = UNSET
    actor: Annotated[
        RecordedActor | UnsetType, Meta(description="The actor of the key; left out if no key was needed.")
    ] = UNSET
    state: Annotated[StateDigest | UnsetType, Meta(description="At digest points alone, from version 2 on.")] = UNSET


class AuditTraceResponse(msgspec.Struct):
    """Answer to AUDIT_TRACE: a page of events, the oldest first."""

    events: list[AuditEvent]
    next_cursor: NextCursor


# --- errors -----------------------------------------------------------------------------------------------------------


class ErrorDetail(msgspec.Struct):
    """The error."""

    code: Annotated[
        str,
        Meta(description="Stable; for programs.", extra_json_schema={"enum": [*ErrorCode, *TransportCode]}),
    ]
    message: Annotated[str, Meta(description="For people; the text may change.")]
    details: Annotated[
        dict[str, Any] | None, Meta(description="The field, limit, id or key concerned; depends on the code.")
    ]


class ErrorResponse(msgspec.Struct):
    """The body of every failed request; the request changed nothing."""

    error: ErrorDetail
