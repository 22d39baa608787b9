"""Response types of spaces. A refusal is a response, not an error: `granted` and `decision` hold the result."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmbs.http.belief.answer_schemas import Count
from cmbs.http.belief.entry_schemas import EntryFormat, RecordedActor
from cmbs.http.belief.schemas import NextCursor, Sha256, Timestamp
from cmbs.refusals import Refusal
from cmbs.substrate.kernel.events import (
    ConflictState,
    Evidence,
    MemoryKind,
    Mode,
    OutcomeStatus,
    PolicySource,
    SpaceVerb,
)
from cmbs.substrate.kernel.insight.differences import SpaceChangeKind
from cmbs.substrate.kernel.insight.explanation import Because, Flip
from cmbs.substrate.kernel.insight.lint_findings import Severity
from cmbs.substrate.kernel.insight.policy_tests import Mismatch
from cmbs.substrate.kernel.model import Budget, Decision, Provenance, Scope, Spent, ToolKind
from cmbs.substrate.kernel.state import ApprovalStatus, CaseStatus, ExecutionStatus, PolicyChangeStatus, ProposalStatus

Replayed = Annotated[
    bool | UnsetType, Meta(description="True for a repeat, which gets the first answer again; else left out.")
]
EventId = Annotated[str, Meta(description="The event that recorded it.")]
Json = Annotated[
    msgspec.Raw | UnsetType, Meta(description="Any JSON value; left out for a caller who may not read it.")
]
Values = Annotated[dict[str, str], Meta(description="Texts by key; keys that the caller may not read are left out.")]


class SpaceItem(msgspec.Struct):
    """A space in a list."""

    space_id: str
    head_seq: Count


class SpaceResponse(msgspec.Struct):
    """A space as it is now."""

    space_id: str
    mode: Mode
    state_snapshot_id: Annotated[Sha256, Meta(description="The hash of the commit that produced the state.")]
    policy_hash: Sha256
    policy_version: Count
    head_seq: Count
    head_event_id: str
    n_keys: Annotated[int, Meta(ge=0, description="How many keys of the state the caller may read.")]
    n_proposals: Count
    n_parked: Count
    n_running: Annotated[int, Meta(ge=0, description="Executions without an outcome, including those in doubt.")]
    observe_asked_by: Annotated[
        str | None,
        Meta(description="The operator who asked for observe mode; a second operator has to ask for it too."),
    ]
    operators_needed: Annotated[int, Meta(ge=1, le=2, description="How many operators a change of policy takes.")]
    governance_asked_by: Annotated[
        str | None,
        Meta(description="The operator who asked that one be enough; a second operator has to ask for it too."),
    ]


class StateResponse(msgspec.Struct):
    """A page of a state, sorted by key."""

    state_snapshot_id: Annotated[Sha256, Meta(description="Pass it as `at` to get the next page of the same state.")]
    policy_hash: Sha256
    values: Values
    next_cursor: NextCursor


class SpaceChangeItem(msgspec.Struct):
    """One thing that is another than it was, and the last event that touched it."""

    seq: Count
    kind: SpaceChangeKind
    id: Annotated[str, Meta(description="The key of the state, or the id of the record.")]
    event_id: str
    before: Annotated[str | None, Meta(description="Of keys of the state: the value before; null if there was none.")]
    after: Annotated[
        str | None,
        Meta(description="Of keys of the state: the value after, null if it is gone; else how the record stands."),
    ]


class SpaceDiffPage(msgspec.Struct):
    """What changed between two moments of a space, in the order of the last events that touched it."""

    space_id: str
    from_seq: Count
    to_seq: Count
    snapshot_id_before: str
    snapshot_id_after: str
    refused: Annotated[int, Meta(ge=0, description="The events in between that were refused.")]
    n_changes: Annotated[int, Meta(ge=0, description="The number on all pages together.")]
    changes: list[SpaceChangeItem]
    next_cursor: NextCursor


class CommitItem(msgspec.Struct):
    """A commit: the change of the state by one step."""

    seq: Count
    event_id: str
    ts: Timestamp
    verb: SpaceVerb
    state_snapshot_id: Sha256
    set: Values
    unset: list[str]


class StepResponse(msgspec.Struct):
    """The result of a request. One that is not granted is recorded too, and changes nothing else."""

    granted: bool
    reason_code: Annotated[
        str | None, Meta(description="Why it was not granted; for an outcome, why its facts were not stored.")
    ]
    seq: Count
    event_id: EventId
    state_snapshot_id: Annotated[Sha256, Meta(description="The state after this step.")]
    refusal: Annotated[
        Refusal | UnsetType, Meta(description="What to do about it; left out if there is no `reason_code`.")
    ] = UNSET
    replayed: Replayed = UNSET


class StateDeltaItem(msgspec.Struct, tag_field="type", tag="state_delta"):
    """A patch of the state, as it was proposed."""

    set: Values
    unset: list[str]


class ToolCallItem(msgspec.Struct, tag_field="type", tag="tool_call"):
    """A call of a tool, as it was proposed."""

    tool_id: str
    args: Json
    capability_token_id: str | None
    idempotency_key: str | None


class BeliefSighting(msgspec.Struct):
    """What the belief plane says of a session at one moment."""

    found: Annotated[bool, Meta(description="Whether there is such a session.")]
    head_seq: int
    head_event_id: str
    n_survivors: Count
    terminated: bool
    active_obligation_id: str | None
    concluded: list[str]


class BeliefThenAndNow(msgspec.Struct):
    """A session that was read for a decision: as it was then, and as it is now."""

    session_id: str
    then: BeliefSighting
    now: BeliefSighting


class ProposalResponse(msgspec.Struct, kw_only=True):
    """A proposal, its newest decision, and its status."""

    proposal_id: str
    status: ProposalStatus
    decision: Decision
    actor: RecordedActor
    atomic: bool
    state_snapshot_id: Annotated[str, Meta(description="The state that the proposal was based on.")]
    provenance: Provenance
    candidates: list[StateDeltaItem | ToolCallItem]
    execution_ids: list[str]
    approval_ids: list[str]
    answered_by: Annotated[dict[str, str], Meta(description="Earlier executions of the same call, by candidate.")]
    waits_for: Annotated[list[str], Meta(description="If parked: state keys, sessions and cases.")]
    parked_until: Timestamp | None
    case_id: Annotated[str | None, Meta(description="The case that it named.")]
    seq: Count
    event_id: EventId
    decided_seq: Annotated[int, Meta(ge=0, description="The seq of the newest decision.")]
    refusals: Annotated[
        list[Refusal] | UnsetType,
        Meta(
            description="One for each candidate that was not let through: why, and what to do next. For the proposer"
            " and for operators; left out if there are none."
        ),
    ] = UNSET
    replayed: Replayed = UNSET
    belief: Annotated[
        list[BeliefThenAndNow] | UnsetType,
        Meta(description="Of a repeat: the sessions that were read for the first answer, then and now."),
    ] = UNSET


class ExplainResponse(msgspec.Struct):
    """A decision, its reasons, and the smallest change of facts that would change it. Nothing is recorded."""

    decision: Decision
    because: Annotated[list[Because], Meta(description="The reasons for each candidate.")]
    flip: Flip
    withheld: Annotated[
        int, Meta(ge=0, description="How many steps of the trace are left out because the caller may not read them.")
    ]
    recorded: Annotated[bool, Meta(description="True for a decision that was made, false for a dry run.")]
    refusals: Annotated[
        list[Refusal] | UnsetType,
        Meta(description="One for each candidate that is not let through, with what would turn the decision."),
    ] = UNSET


class DecisionItem(msgspec.Struct):
    """A decision as it was recorded."""

    seq: Count
    event_id: str
    ts: Timestamp
    verb: SpaceVerb
    proposal_id: str
    decision: Decision


class ApprovalItem(msgspec.Struct, kw_only=True):
    """A request for approval and its status."""

    approval_id: str
    status: ApprovalStatus
    proposal_id: str
    candidate: Count
    tool_id: str | None
    args: Json = UNSET
    args_hash: str
    constraints: list[str]
    policy_hash: Sha256
    tool_hash: Annotated[str | None, Meta(description="The hash of the tool's registration.")]
    proposer: RecordedActor
    expires_at: Timestamp
    approver: RecordedActor | None
    uses_left: Count
    good_until: Timestamp | None


class SettledApproval(msgspec.Struct):
    """The result of an approval or a rejection: the step, the request, and the proposal, which was decided again."""

    step: StepResponse
    approval: ApprovalItem
    proposal: ProposalResponse


class WithdrawnProposal(msgspec.Struct):
    """The result of a withdrawal: the step, and the proposal."""

    step: StepResponse
    proposal: ProposalResponse


class ExecutionResponse(msgspec.Struct, kw_only=True):
    """One run of a tool."""

    execution_id: str
    status: ExecutionStatus
    proposal_id: str
    agent_id: str
    tool_id: str
    attempt: Count
    deadline: Timestamp
    capability_token_id: str | None
    idempotency_key: str | None
    args: Json = UNSET
    args_hash: str
    outcome: OutcomeStatus | None
    result: Json = UNSET
    result_hash: str | None
    error: str | None
    duration_ms: Count
    started_seq: Count
    settled_seq: int | None


class RecordedOutcome(msgspec.Struct):
    """The result of reporting an outcome."""

    step: StepResponse
    execution: ExecutionResponse


class ToolResponse(msgspec.Struct, kw_only=True):
    """A registered tool."""

    tool_id: str
    kind: ToolKind
    description: str
    args_schema: Any
    result_schema: Any
    target: Json = UNSET
    timeout_ms: Count
    max_result_bytes: Count
    writes: bool
    idempotent: bool
    facts: dict[str, str]
    caller_facts: Annotated[bool, Meta(description="Results that an agent reports set the facts.")]
    retired: bool


class CapabilityResponse(msgspec.Struct, kw_only=True):
    """A capability token, and how much of its budget is spent."""

    token_id: str
    agent_id: str
    tool_ids: list[str]
    capabilities: list[str]
    scopes: list[Scope]
    budget: Budget
    spent: Spent
    expires_at: Timestamp | None
    parent_id: str | None
    revoked: Annotated[
        bool,
        Meta(description="Whether this token was revoked; a token also stops working when one above it is revoked."),
    ]


class CaseResponse(msgspec.Struct, kw_only=True):
    """A case: what joins proposals to one belief session."""

    case_id: str
    status: CaseStatus
    session_id: str
    title: str | UnsetType | None = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    attributes: Json = UNSET
    agents: Annotated[list[str] | UnsetType, Meta(description="Left out for an agent that is not one of them.")] = UNSET
    opened_by: RecordedActor
    ts: Timestamp
    seq: Count
    closed_by: RecordedActor | None
    closed_ts: Timestamp | None
    closed_seq: int | None
    reason: Annotated[str, Meta(description="Why it was closed.")]


class MemoryResponse(msgspec.Struct, kw_only=True):
    """A claim in memory."""

    entry_id: str
    kind: MemoryKind
    claim: Any
    author: RecordedActor
    evidence: Evidence
    conflict_state: ConflictState
    disputes: Annotated[dict[str, ConflictState], Meta(description="What each actor says of conflicts, by its id.")]
    confirmed: bool
    ts: Timestamp
    expires_at: Timestamp | None
    review_at: Timestamp | None
    expired: bool
    seq: Count


class PolicyPage(msgspec.Struct):
    """A page of the policy, sorted by key; the first page has the file that it was compiled from, if there is one."""

    policy_hash: Sha256
    policy_version: Count
    pairs: dict[str, str]
    next_cursor: NextCursor
    source: PolicySource | None = None


class PutStatus(StrEnum):
    """What became of a policy file."""

    PENDING = "pending"
    APPLIED = "applied"
    REJECTED = "rejected"
    UNCHANGED = "unchanged"


class PolicyPut(msgspec.Struct):
    """A policy file that was put: what it changes, and whether it is in force. `next` says what it waits for."""

    status: PutStatus
    base_policy_hash: Sha256
    policy_hash: Annotated[Sha256, Meta(description="Of the policy in the file.")]
    set: Annotated[list[str], Meta(description="Keys that are set.")]
    unset: Annotated[list[str], Meta(description="Keys that are removed.")]
    change_id: str | None = None
    next: str | None = None


class PolicyFix(msgspec.Struct):
    """What to write in place of `found`, which stands at this place of the file."""

    line: int
    column: int
    found: str
    accepted: str


class PolicyFinding(msgspec.Struct):
    """Something in a policy file: what, where, and the condition that stands there. `name` is that of the rule."""

    severity: Severity
    rule: str
    message: str
    line: int | None = None
    column: int | None = None
    key: str | None = None
    name: str | None = None
    condition: str | None = None
    fix: PolicyFix | None = None


class PolicyTestItem(msgspec.Struct):
    """What came of a test of a policy file."""

    name: str
    passed: bool
    mismatches: list[Mismatch]


class PolicyCheck(msgspec.Struct, kw_only=True):
    """What a policy file would do. Where it is not `sound`, it would be refused or does what its author cannot mean."""

    sound: bool
    findings: list[PolicyFinding]
    tests: list[PolicyTestItem] = []
    never_asked: Annotated[list[str], Meta(description="Keys that no test asks.")] = []
    policy_hash: Sha256 | None = None
    set: Annotated[list[str], Meta(description="Keys that would be set.")] = []
    unset: Annotated[list[str], Meta(description="Keys that would be removed.")] = []


class PolicyChangeResponse(msgspec.Struct, kw_only=True):
    """A proposed change of policy and its status."""

    change_id: str
    status: PolicyChangeStatus
    proposer: RecordedActor
    base_policy_hash: Sha256
    set: dict[str, str]
    unset: list[str]
    reason: str
    seq: Count
    settled_by: RecordedActor | None
    settled_seq: int | None
    source: Annotated[PolicySource | None, Meta(description="The file of a pending change.")]


class SpaceEvent(msgspec.Struct):
    """An entry of a space's stream: the canonical JSON that was hashed, plus `event_hash`."""

    format: EntryFormat
    stream_id: Annotated[str, Meta(description="`space:` and the space's id.")]
    seq: Count
    event_id: str
    ts: Timestamp
    verb: SpaceVerb
    actor: RecordedActor
    payload: Annotated[
        dict[str, Any], Meta(description="The request; its fields depend on the verb, see SUBSTRATE_PROTOCOL.md.")
    ]
    outcome: Annotated[dict[str, Any], Meta(description="The result.")]
    prev_event_hash: Annotated[Sha256, Meta(description="64 zeros in the first event.")]
    event_hash: Annotated[
        Sha256, Meta(description="SHA-256 of a zero byte followed by the canonical bytes; not part of them.")
    ]
    idempotency_key: str | UnsetType = UNSET
    state: Annotated[
        Sha256 | UnsetType, Meta(description="The digest of the state right before the entry; at digest points alone.")
    ] = UNSET


def page_type(name: str, collection: str, item: type, description: str) -> type[msgspec.Struct]:
    """Return the type of a page: a list of items under the name of their collection, and a cursor for the next page."""
    fields = [(collection, list[item]), ("next_cursor", NextCursor)]  # type: ignore[valid-type]
    return msgspec.defstruct(name, fields, namespace={"__doc__": description}, module=__name__)


SpacesPage = page_type("SpacesPage", "spaces", SpaceItem, "A page of spaces, sorted by id.")
CommitsPage = page_type("CommitsPage", "deltas", CommitItem, "A page of commits, the oldest first.")
DecisionsPage = page_type(
    "DecisionsPage",
    "decisions",
    DecisionItem,
    "A page of decisions, the oldest first. A page may be short without being the last.",
)
SpaceAuditResponse = page_type("SpaceAuditResponse", "events", SpaceEvent, "A page of a space's stream.")
