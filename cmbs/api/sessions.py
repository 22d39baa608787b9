"""Request and response types of the belief protocol: bodies are decoded into them, and the OpenAPI file describes them.

An unknown field in a request is an error. Limits that an operator can change are only described here; the kernel
enforces them, with an error that names the limit.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmbs.api.answers import Answer, Count, Current, Page, Partial, Refusal, Replayed
from cmbs.belief.kernel.agreement import StoreState
from cmbs.belief.kernel.case_fields import (
    CASE_NAME_PATTERN,
    LABEL_NAME_PATTERN,
    LINE_PATTERN,
    MAX_AGENT_ID_LENGTH,
    MAX_CASE_AGENTS,
    MAX_LABEL_VALUE_LENGTH,
    MAX_LABELS,
    MAX_OWNER_LENGTH,
    MAX_SEVERITY_LENGTH,
    MAX_TITLE_LENGTH,
)
from cmbs.belief.kernel.requests import MAX_SYMPTOMS
from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.ledger.instants import Timestamp
from cmbs.ledger.listing import MAX_LISTED_NAMES, SessionStanding
from cmbs.messages import (
    ActorKind,
    ConclusionRule,
    EliminationRule,
    ForeignRule,
    Id,
    LookRule,
    OntologyBundle,
    ReachDetail,
    Reason,
    Verb,
)

REFERENCE = "#/components/schemas/{name}"

Ids = list[Id]
# JSON that belongs to the caller stays text until the kernel brings it into canonical form.
Opaque = Annotated[
    Any,
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
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


def _line(longest: int) -> dict[str, Any]:
    """The schema of one line of text."""
    return {"minLength": 1, "maxLength": longest, "pattern": LINE_PATTERN}


Title = Annotated[
    str | UnsetType,
    Meta(description="One line for people, and to find it by.", extra_json_schema=_line(MAX_TITLE_LENGTH)),
]
Owner = Annotated[
    str | UnsetType,
    Meta(description="Who answers for the case.", extra_json_schema=_line(MAX_OWNER_LENGTH)),
]
Severity = Annotated[
    str | UnsetType,
    Meta(description="How grave it is, in your own words.", extra_json_schema=_line(MAX_SEVERITY_LENGTH)),
]
CaseName = Annotated[
    str,
    Meta(
        description="A name that no other case of this server has, such as `INC-1042`; accepted wherever its id is.",
        extra_json_schema={"pattern": CASE_NAME_PATTERN},
    ),
]
AgentIds = Annotated[
    list[Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_AGENT_ID_LENGTH})]],
    Meta(extra_json_schema={"maxItems": MAX_CASE_AGENTS}),
]
_LabelValue = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_LABEL_VALUE_LENGTH, "pattern": LINE_PATTERN})]
Labels = Annotated[
    dict[str, _LabelValue] | UnsetType,
    Meta(
        description="Names and texts to find it by.",
        extra_json_schema={
            "maxProperties": MAX_LABELS,
            "propertyNames": {"type": "string", "pattern": LABEL_NAME_PATTERN},
        },
    ),
]
NextCursor = Annotated[str | None, Meta(description="The cursor of the next page; null on the last page.")]

# --- requests ---------------------------------------------------------------------------------------------------------


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
    conclusions: Annotated[
        ConclusionRule | UnsetType,
        Meta(
            description="What a conclusion may name: any id, any but an eliminated hypothesis, one that survives, or"
            " the only survivor (`decided`; with a kit also one of several that no unanswered probe tells apart)."
            " Default `not_eliminated`, and over a kit or provider `decided`."
        ),
    ] = UNSET
    eliminations: Annotated[
        EliminationRule | UnsetType,
        Meta(
            description="Whether hypotheses are eliminated by any list or only by the response to a probe of the"
            " session's provider; default any, and over a kit or provider `observations`. Operators may send a list all"
            " the same, and the event says so."
        ),
    ] = UNSET
    foreign_tombstones: Annotated[
        ForeignRule | UnsetType,
        Meta(description="Whether what others rule out in the elimination store is eliminated here; default ignore."),
    ] = UNSET
    looks: Annotated[
        LookRule | UnsetType,
        Meta(description="Whether a source may look at a probe again under another observation id; default any."),
    ] = UNSET
    observers: Annotated[
        list[Id] | UnsetType,
        Meta(
            description="The ids of the actors that may eliminate and answer probes; left out, that is not restricted.",
            extra_json_schema={"minItems": 1},
        ),
    ] = UNSET


class KitName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kit on record."""

    id: Id
    version: Annotated[
        Id | UnsetType, Meta(description="The hash of a content, or a version; by default what was put last.")
    ] = UNSET


class DeclareSessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DECLARE_SESSION."""

    ontology: Annotated[
        OntologyBundle | UnsetType,
        Meta(description="May be left out where a kit or a provider is named, which says it."),
    ] = UNSET
    hypotheses: Annotated[
        Annotated[Ids, Meta(min_length=1)] | UnsetType,
        Meta(description="Opaque ids; repeats count once. If left out, they are those of the server's causal graph."),
    ] = UNSET
    metadata: Opaque = UNSET
    policy: Policy | UnsetType = UNSET
    hypothesis_attributes: Annotated[
        dict[str, dict[str, Any]] | UnsetType,
        Meta(
            description="What is said of hypotheses, by id and name; any JSON values. Policies of spaces can refer to"
            " the attributes of the one that is left."
        ),
    ] = UNSET
    provider: Annotated[
        Id | UnsetType,
        Meta(
            description="An installed hypothesis provider to take hypotheses and attributes from, in place of the list."
            " Unless the policy says otherwise, probes eliminate and the only survivor is concluded."
        ),
    ] = UNSET
    kit: Annotated[
        Id | KitName | UnsetType,
        Meta(
            description="A kit on record to take ontology, hypotheses and attributes from, by its id, or by id and"
            " version. Unless the policy says otherwise, probes eliminate and the only survivor is concluded."
        ),
    ] = UNSET
    symptoms: Annotated[
        Annotated[Ids, Meta(min_length=1, max_length=MAX_SYMPTOMS)] | UnsetType,
        Meta(
            description="For a kit over a causal graph, and there required: the nodes that show something wrong."
            " Hypotheses are the nodes that can have caused them."
        ),
    ] = UNSET
    title: Title = UNSET
    labels: Labels = UNSET
    owner: Owner = UNSET
    severity: Severity = UNSET
    agents: Annotated[
        AgentIds | UnsetType,
        Meta(
            description="Who may work on the case. By default an agent lists itself; nothing else is a limit.",
            extra_json_schema={"minItems": 1},
        ),
    ] = UNSET
    name: CaseName | UnsetType = UNSET


class UpdateCaseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """UPDATE_CASE: what is left out stays as it is."""

    title: Annotated[
        str | UnsetType | None,
        Meta(
            description="One line for people; null or empty takes it away.",
            extra_json_schema={"maxLength": MAX_TITLE_LENGTH},
        ),
    ] = UNSET
    labels: Annotated[Labels, Meta(description="All labels, in the place of those that it had.")] = UNSET
    owner: Annotated[
        str | UnsetType | None,
        Meta(
            description="Who answers for the case; null or empty takes it away.",
            extra_json_schema={"maxLength": MAX_OWNER_LENGTH},
        ),
    ] = UNSET
    severity: Annotated[
        str | UnsetType | None,
        Meta(
            description="How grave it is; null or empty takes it away.",
            extra_json_schema={"maxLength": MAX_SEVERITY_LENGTH},
        ),
    ] = UNSET
    agents: Annotated[
        AgentIds | UnsetType,
        Meta(
            description="All agents that may work on it from now on, in the place of those that it listed; an empty"
            " list means none. For operators."
        ),
    ] = UNSET
    lift_obligation: Annotated[
        Id | UnsetType,
        Meta(
            description="An active obligation that stands in the way no longer, such as one that cannot be met. For"
            " operators."
        ),
    ] = UNSET
    session_id: SessionIdInBody = UNSET


class NameCaseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name for a case."""

    name: Annotated[
        CaseName | UnsetType | None, Meta(description="Without one, the case gives up the name that it has.")
    ] = UNSET
    session_id: SessionIdInBody = UNSET


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


class ForeignTombstones(Answer, frozen=True):
    """Hypotheses that others ruled out in the elimination store, under one provenance."""

    source_id: str
    trigger: str
    hypothesis_ids: list[str]


class StoreView(Partial, frozen=True):
    """What is known of a session's tombstones in a store of their own."""

    state: Annotated[
        StoreState, Meta(description="A session that the store disagrees with takes no writes until it is repaired.")
    ]
    n_foreign: Annotated[int, Meta(ge=0, description="How many hypotheses others ruled out, and this session did not.")]
    foreign: Annotated[list[ForeignTombstones], Meta(description="Of these, the first 100.")]
    reason: Annotated[str | None, Meta(description="Why the store disagrees.")] = None


class Snapshot(Partial, kw_only=True, frozen=True):
    """BeliefSnapshot: the hypotheses that may still be true."""

    session_id: str
    ontology: OntologyBundle
    survivors: Annotated[
        list[str] | None, Meta(description="Sorted by code point; left out under `Prefer: return=minimal`.")
    ] = None
    n_survivors: Count
    entropy_proxy: Annotated[float, Meta(ge=0, description="log2 of n_survivors; 0 for one or none.")]
    contradiction: Annotated[bool, Meta(description="Whether nothing is left: `…/contradiction` says what to doubt.")]
    terminated: bool
    active_obligation_id: Annotated[str | None, Meta(description="The newest obligation that is still active.")]
    audit_head_event_id: Annotated[str, Meta(description="The last event that it includes.")]
    store: Annotated[
        StoreView | None, Meta(description="When belief is queried, where tombstones are in a store of their own.")
    ] = None


class DeclareSessionResponse(Partial, frozen=True):
    """Answer to DECLARE_SESSION."""

    session_id: str
    snapshot: Snapshot
    note: Annotated[str | None, Meta(description="What the caller should know; left out if nothing.")] = None
    name: Annotated[str | None, Meta(description="The name of the case; left out if it has none.")] = None
    replayed: Replayed = False
    current: Current = None


class UpdateCaseResponse(Partial, frozen=True):
    """Answer to UPDATE_CASE."""

    snapshot: Snapshot
    audit_event_id: str
    replayed: Replayed = False
    current: Current = None


class SessionCase(Partial, kw_only=True, frozen=True):
    """A session as a case: what people find it by, and who may work on it."""

    session_id: str
    name: Annotated[str | None, Meta(description="Its name in this server, if it has one.")]
    title: str | None
    owner: str | None
    severity: str | None
    labels: dict[str, str]
    agents: Annotated[
        list[str] | None, Meta(description="Who may work on it, sorted; null where that is not restricted.")
    ]
    created_ts: Timestamp
    terminated: bool


class SessionOrigin(Partial, forbid_unknown_fields=True, frozen=True):
    """The event of another session that a fork begins from."""

    session_id: str
    seq: Count
    event_hash: Sha256
    without: Annotated[
        list[int] | None, Meta(description="The seqs of the reports that the fork leaves out, if any.")
    ] = None
    declared_by: Annotated[
        list[str | None],
        Meta(
            description="Who declared or forked that session and those that it comes from; null where that is not"
            " on record."
        ),
    ] = []


class EliminateResponse(Partial, frozen=True):
    """Answer to ELIMINATE; both lists are sorted."""

    applied_eliminated: Annotated[list[str], Meta(description="The requested hypotheses that had survived until now.")]
    ignored_eliminated: Annotated[
        list[str], Meta(description="The other requested ones: eliminated before, or unknown.")
    ]
    snapshot: Snapshot
    audit_event_id: str
    replayed: Replayed = False
    current: Current = None


class EnterObligationResponse(Partial, frozen=True):
    """Answer to ENTER_OBLIGATION. An obligation that cannot be met is accepted, and says so."""

    snapshot: Snapshot
    audit_event_id: str
    reach: ReachDetail
    replayed: Replayed = False
    current: Current = None


class ApprovalResponse(Partial, frozen=True):
    """Answer to REQUEST_EXIT and REQUEST_TERMINATION. A refusal is a response and an event, not an error."""

    approved: bool
    reason: Reason
    snapshot: Snapshot
    audit_event_id: str
    refusal: Refusal = None
    replayed: Replayed = False
    current: Current = None


class DeclareConclusionResponse(Partial, frozen=True):
    """Answer to DECLARE_CONCLUSION."""

    accepted: bool
    reason: Reason
    snapshot: Snapshot
    audit_event_id: str
    refusal: Refusal = None
    replayed: Replayed = False
    current: Current = None


class SessionItem(Partial, frozen=True):
    """A session in a list, right after its newest event."""

    session_id: str
    created_ts: Timestamp
    universe_size: Count
    n_survivors: Count
    terminated: bool
    head_seq: Count
    head_event_id: str
    name: Annotated[str | None, Meta(description="The name of the case.")]
    title: str | None
    labels: dict[str, str]
    owner: str | None
    severity: str | None
    case_agents: Annotated[
        list[str] | None,
        Meta(description=f"The first {MAX_LISTED_NAMES} that may work on it; null where that is not restricted."),
    ]
    n_case_agents: Annotated[int | None, Meta(description="How many may.")]
    kit: Annotated[str | None, Meta(description="The provider that the session was declared from.")]
    kit_version: str | None
    state: SessionStanding
    contradiction: Annotated[bool, Meta(description="Whether no survivor is left.")]
    conclusion: Annotated[str | None, Meta(description="The last one that was accepted.")]
    updated_ts: Timestamp
    last_verb: Verb
    active_obligations: Annotated[list[str], Meta(description=f"The first {MAX_LISTED_NAMES}, in the order of entry.")]
    n_active_obligations: Count
    sources: Annotated[list[str], Meta(description=f"The first {MAX_LISTED_NAMES} that reported.")]
    agents: Annotated[
        list[str], Meta(description=f"The first {MAX_LISTED_NAMES} authenticated actors that declared or reported.")
    ]
    trail: Annotated[
        list[tuple[int, int]] | None,
        Meta(description="Only where it was asked for: a seq, and how many hypotheses were left after it."),
    ] = None


class SessionsPage(Page[SessionItem], frozen=True):
    """A page of sessions, in the order that was asked for."""

    collection: ClassVar[str] = "sessions"
    sessions: list[SessionItem]
    next_cursor: NextCursor


class SurvivorsPage(Page[str], frozen=True):
    """A page of survivors, sorted."""

    collection: ClassVar[str] = "survivors"
    survivors: list[str]
    attributes: Annotated[
        dict[str, dict[str, Any]],
        Meta(description="What was declared of the survivors of this page, of those that anything was declared of."),
    ]
    n_survivors: Annotated[int, Meta(ge=0, description="The number on all pages together.")]
    entropy_proxy: Annotated[float, Meta(ge=0, description="log2 of n_survivors; 0 for one or none.")]
    terminated: bool
    active_obligation_id: Annotated[str | None, Meta(description="The newest obligation that is still active.")]
    audit_head_event_id: Annotated[str, Meta(description="Pass it as `at` to read the next page at the same event.")]
    next_cursor: NextCursor


Roles: TypeAlias = Annotated[list[str], Meta(description="The roles of the key, sorted.")]
Scopes: TypeAlias = Annotated[
    list[str], Meta(description="Sorted; `<scope>@<id>` holds for one session or space, `@<beginning>*` for several.")
]


class WhoAmI(Answer, frozen=True):
    """The caller as the server knows it."""

    kind: ActorKind
    id: str
    authenticated: bool
    key_id: str | None
    roles: Roles
    scopes: Annotated[Scopes, Meta(description="Every scope of the key, through a role or by itself.")]
    restricted: Annotated[
        dict[str, list[str]],
        Meta(description="The ids, or beginnings with `*`, for which a scope holds that does not hold everywhere."),
    ]


class Health(Answer, frozen=True):
    """The health of the server."""

    status: Literal["ok"]
