"""Types of what the log of a session holds, as the OpenAPI file describes it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from cmbs.api.answers import Answer, Count, Page, Partial
from cmbs.api.observations import KitReference
from cmbs.api.sessions import REFERENCE, NextCursor, Roles, Scopes, SessionOrigin, Sha256
from cmbs.ledger.format import Format
from cmbs.ledger.instants import Timestamp
from cmbs.messages import (
    ActorKind,
    ConclusionRule,
    EliminationRule,
    ForeignRule,
    LookRule,
    OntologyBundle,
    Reason,
    Verb,
)


class RecordedPolicy(Partial, frozen=True):
    """The policy of a session, with defaults filled in."""

    allow_force: bool
    stability_window: Count
    validate_hypotheses: bool
    conclusions: Annotated[ConclusionRule | None, Meta(description="Left out if not asked for.")] = None
    eliminations: Annotated[EliminationRule | None, Meta(description="Left out if not asked for.")] = None
    foreign_tombstones: Annotated[ForeignRule | None, Meta(description="Left out if not asked for.")] = None
    looks: Annotated[LookRule | None, Meta(description="Left out if not asked for.")] = None
    observers: Annotated[list[str] | None, Meta(description="Who may answer, sorted; left out if anybody may.")] = None


class ProviderReference(Partial, frozen=True):
    """The hypothesis provider that a session was declared from."""

    id: str
    version: str
    content_hash: Annotated[Sha256 | None, Meta(description="Of a kit on record alone.")] = None
    put_by: Annotated[str | None, Meta(description="Who put that content on record first; of a kit alone.")] = None


class ProbeRecord(Partial, frozen=True):
    """A probe of a kit or hypothesis provider, and the response to it, as it was given."""

    probe_id: str
    response: Any
    kit: Annotated[KitReference | None, Meta(description="The kit on record that read the response.")] = None
    outcome_id: Annotated[
        str | UnsetType | None, Meta(description="The outcome that it was read as; null for no data.")
    ] = UNSET
    reading: Annotated[
        dict[str, Any] | None, Meta(description="How sound the outcome is, and how numbers or a graph were read.")
    ] = None
    seen_at: Annotated[Timestamp | None, Meta(description="Left out if not said.")] = None


class DeclareSessionPayload(Partial, forbid_unknown_fields=True, frozen=True):
    """The request of a DECLARE_SESSION; the hypotheses sorted, each once."""

    ontology: OntologyBundle
    hypotheses: list[str]
    metadata: dict[str, Any] | None
    policy: RecordedPolicy
    provider: ProviderReference | None
    origin: Annotated[SessionOrigin | None, Meta(description="Only of a fork.")] = None
    hypothesis_attributes: Annotated[
        dict[str, dict[str, Any]] | None, Meta(description="By hypothesis and name; left out if there are none.")
    ] = None
    store_id: Annotated[
        str | None, Meta(description="Which elimination store the tombstones are in, where it has an identity.")
    ] = None
    symptoms: Annotated[
        list[str] | None, Meta(description="The nodes that show something wrong; only over a causal graph.")
    ] = None
    title: Annotated[str | None, Meta(description="Left out if there is none, as are the following.")] = None
    labels: dict[str, str] | None = None
    owner: str | None = None
    severity: str | None = None
    agents: Annotated[list[str] | None, Meta(description="Who may work on it, sorted.")] = None


class EliminatePayload(Partial, forbid_unknown_fields=True, frozen=True):
    """The request of an ELIMINATE; its ids sorted, each once."""

    source_id: str
    observation_id: str
    eliminated: list[str]
    justification: dict[str, Any] | None
    probe: ProbeRecord | None
    first_sent_by: Annotated[
        str | None, Meta(description="Of what a fork repeats: the actor who sent it first, where one is on record.")
    ] = None


class EnterObligationPayload(Answer, forbid_unknown_fields=True, frozen=True):
    """The request of an ENTER_OBLIGATION."""

    obligation_id: str
    min_total_eliminations: Count


class RequestExitPayload(Answer, forbid_unknown_fields=True, frozen=True):
    """The request of a REQUEST_EXIT."""

    obligation_id: str
    context: dict[str, Any] | None


class DeclareConclusionPayload(Partial, forbid_unknown_fields=True, frozen=True):
    """The request of a DECLARE_CONCLUSION."""

    conclusion_id: str
    context: dict[str, Any] | None
    tied_by: Annotated[
        str | None,
        Meta(description="The hash of the session's kit, where none of its open probes tells the survivors apart."),
    ] = None


class RequestTerminationPayload(Answer, forbid_unknown_fields=True, frozen=True):
    """The request of a REQUEST_TERMINATION."""

    context: dict[str, Any] | None


class UpdateCasePayload(Partial, forbid_unknown_fields=True, frozen=True):
    """The request of an UPDATE_CASE: what is left out stayed as it was, and null took a text away."""

    title: str | None = None
    labels: dict[str, str] | None = None
    owner: str | None = None
    severity: str | None = None
    agents: Annotated[list[str] | None, Meta(description="All who may work on it from then on, sorted.")] = None
    lift_obligation: Annotated[str | None, Meta(description="An obligation that was lifted.")] = None


class UniverseOutcome(Answer, forbid_unknown_fields=True, frozen=True):
    """The commitment of a DECLARE_SESSION to its hypotheses."""

    universe_root: Sha256
    universe_size: Count


class ApprovalOutcome(Answer, forbid_unknown_fields=True, frozen=True):
    """The decision on a REQUEST_EXIT or REQUEST_TERMINATION."""

    approved: bool
    reason: Reason


class ConclusionOutcome(Answer, forbid_unknown_fields=True, frozen=True):
    """The decision on a DECLARE_CONCLUSION."""

    accepted: bool
    reason: Reason


class Delta(Answer, frozen=True):
    """What an event changed."""

    eliminated: list[str]


PAYLOADS = (
    DeclareSessionPayload,
    EliminatePayload,
    EnterObligationPayload,
    RequestExitPayload,
    DeclareConclusionPayload,
    RequestTerminationPayload,
    UpdateCasePayload,
)
OUTCOMES = (UniverseOutcome, ApprovalOutcome, ConclusionOutcome)


def _one_of(kinds: tuple[type, ...]) -> list[dict[str, str]]:
    return [{"$ref": REFERENCE.format(name=kind.__name__)} for kind in kinds]


class RecordedActor(Partial, frozen=True):
    """The actor of a request. `key_id` names the key and is not secret."""

    kind: ActorKind
    id: str
    authenticated: bool
    key_id: str | None
    roles: Roles | None = None
    scopes: Annotated[Scopes | None, Meta(description="The scopes that the key has beside its roles.")] = None


EntryFormat: TypeAlias = Annotated[Format, Meta(description="The format of the entry.")]


class AuditEvent(Partial, frozen=True):
    """AuditEntry: the canonical JSON that was hashed, plus `event_hash`."""

    format: EntryFormat
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
    notes: Annotated[str | None, Meta(description="A remark; left out if there is none.")] = None
    idempotency_key: Annotated[str | None, Meta(description="Left out if none was sent.")] = None
    actor: Annotated[RecordedActor | None, Meta(description="The actor of the key; left out if no key was needed.")] = (
        None
    )
    state: Annotated[
        Sha256 | None, Meta(description="The digest of the state right before the entry; at digest points alone.")
    ] = None


class AuditTraceResponse(Page[AuditEvent], frozen=True):
    """Answer to AUDIT_TRACE: a page of events, the oldest first."""

    collection: ClassVar[str] = "events"
    events: list[AuditEvent]
    next_cursor: NextCursor
