"""What spaces answer with, as types. Refusals are answers: `granted` and `decision` say what came of a request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmbs.http.belief.schemas import Count, NextCursor, RecordedActor, Sha256, Timestamp
from cmbs.substrate.kernel.events import ConflictState, Evidence, MemoryKind, Mode, OutcomeStatus, SpaceVerb
from cmbs.substrate.kernel.insight.explanation import Because, Flip
from cmbs.substrate.kernel.model import Budget, Decision, Provenance, Scope, Spent, ToolKind
from cmbs.substrate.kernel.state import ApprovalStatus, ExecutionStatus, PolicyChangeStatus, ProposalStatus

EventId = Annotated[str, Meta(description="The event that recorded it.")]
Json = Annotated[msgspec.Raw | UnsetType, Meta(description="Any JSON value; left out for those who may not read it.")]
Values = Annotated[dict[str, str], Meta(description="Texts by key; keys that the caller may not read are left out.")]


class SpaceItem(msgspec.Struct):
    """A space in a list."""

    space_id: str
    head_seq: Count


class SpacesPage(msgspec.Struct):
    """A page of spaces, sorted by id."""

    spaces: list[SpaceItem]
    next_cursor: NextCursor


class SpaceResponse(msgspec.Struct):
    """A space as it is now."""

    space_id: str
    mode: Mode
    state_snapshot_id: Annotated[Sha256, Meta(description="The hash of the commit that produced the state.")]
    policy_hash: Sha256
    policy_version: Count
    head_seq: Count
    head_event_id: str
    n_keys: Annotated[int, Meta(ge=0, description="How many keys the state has that the caller may read.")]
    n_proposals: Count
    n_parked: Count
    n_running: Annotated[int, Meta(ge=0, description="Executions without an outcome, those in doubt included.")]
    observe_asked_by: Annotated[
        str | None, Meta(description="The operator who wants the space to observe; another has to say the same.")
    ]


class StateResponse(msgspec.Struct):
    """A page of a state, sorted by key."""

    state_snapshot_id: Annotated[Sha256, Meta(description="Pass it as `at` to get the next page of the same state.")]
    policy_hash: Sha256
    values: Values
    next_cursor: NextCursor


class CommitItem(msgspec.Struct):
    """A commit: what a step did to the state."""

    seq: Count
    event_id: str
    ts: Timestamp
    verb: SpaceVerb
    state_snapshot_id: Sha256
    set: Values
    unset: list[str]


class CommitsPage(msgspec.Struct):
    """A page of commits, the oldest first."""

    deltas: list[CommitItem]
    next_cursor: NextCursor


class StepResponse(msgspec.Struct):
    """What a request came to. One that is not granted is recorded too, and has changed nothing."""

    granted: bool
    reason_code: Annotated[str | None, Meta(description="Why not; of an outcome, why its facts were not taken over.")]
    seq: Count
    event_id: EventId
    state_snapshot_id: Annotated[Sha256, Meta(description="Of the state after it.")]


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


class ProposalResponse(msgspec.Struct, kw_only=True):
    """A proposal, the newest decision on it, and where it stands."""

    proposal_id: str
    status: ProposalStatus
    decision: Decision
    actor: RecordedActor
    atomic: bool
    state_snapshot_id: Annotated[str, Meta(description="The state that it was made on.")]
    provenance: Provenance
    candidates: list[StateDeltaItem | ToolCallItem]
    execution_ids: list[str]
    approval_ids: list[str]
    answered_by: Annotated[dict[str, str], Meta(description="Earlier executions that answer a call, by candidate.")]
    waits_for: Annotated[list[str], Meta(description="Of a parked one: keys, and `$belief.<session_id>`.")]
    parked_until: Timestamp | None
    seq: Count
    event_id: EventId
    decided_seq: Annotated[int, Meta(ge=0, description="The seq of the newest decision.")]


class ProposalsPage(msgspec.Struct):
    """A page of proposals, the oldest first."""

    proposals: list[ProposalResponse]
    next_cursor: NextCursor


class ExplainResponse(msgspec.Struct):
    """A decision, why it is so, and the smallest change of facts that would turn it. Asking records nothing."""

    decision: Decision
    because: Annotated[list[Because], Meta(description="Why, candidate by candidate.")]
    flip: Flip
    withheld: Annotated[
        int, Meta(ge=0, description="Steps of the trace that are left out, as not the caller's to read.")
    ]
    recorded: Annotated[bool, Meta(description="Whether it is a decision that was made, or one that would be.")]


class DecisionItem(msgspec.Struct):
    """A decision as it was recorded."""

    seq: Count
    event_id: str
    ts: Timestamp
    verb: SpaceVerb
    proposal_id: str
    decision: Decision


class DecisionsPage(msgspec.Struct):
    """A page of decisions, the oldest first. It may be shorter than asked for and still not be the last."""

    decisions: list[DecisionItem]
    next_cursor: NextCursor


class ApprovalItem(msgspec.Struct, kw_only=True):
    """A request for approval, and what became of it."""

    approval_id: str
    status: ApprovalStatus
    proposal_id: str
    candidate: Count
    tool_id: str | None
    args: Json = UNSET
    args_hash: str
    constraints: list[str]
    policy_hash: Sha256
    proposer: RecordedActor
    expires_at: Timestamp
    approver: RecordedActor | None
    uses_left: Count
    good_until: Timestamp | None


class ApprovalsPage(msgspec.Struct):
    """A page of requests for approval, the oldest first."""

    approvals: list[ApprovalItem]
    next_cursor: NextCursor


class SettledApproval(msgspec.Struct):
    """What saying yes or no came to: the step, the request, and the proposal, which was decided again."""

    step: StepResponse
    approval: ApprovalItem
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


class ExecutionsPage(msgspec.Struct):
    """A page of executions, the oldest first."""

    executions: list[ExecutionResponse]
    next_cursor: NextCursor


class RecordedOutcome(msgspec.Struct):
    """What reporting an outcome came to."""

    step: StepResponse
    execution: ExecutionResponse


class ToolResponse(msgspec.Struct, kw_only=True):
    """A tool as it is registered."""

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
    retired: bool


class ToolsPage(msgspec.Struct):
    """A page of tools, sorted by id."""

    tools: list[ToolResponse]
    next_cursor: NextCursor


class CapabilityResponse(msgspec.Struct, kw_only=True):
    """A capability token, and how much of it is used."""

    token_id: str
    agent_id: str
    tool_ids: list[str]
    capabilities: list[str]
    scopes: list[Scope]
    budget: Budget
    spent: Spent
    expires_at: Timestamp | None
    parent_id: str | None
    revoked: Annotated[bool, Meta(description="Itself; it is no good either where one above it was revoked.")]


class CapabilitiesPage(msgspec.Struct):
    """A page of capability tokens, sorted by id."""

    capabilities: list[CapabilityResponse]
    next_cursor: NextCursor


class MemoryResponse(msgspec.Struct, kw_only=True):
    """A claim that is remembered."""

    entry_id: str
    kind: MemoryKind
    claim: Any
    author: RecordedActor
    evidence: Evidence
    conflict_state: ConflictState
    confirmed: bool
    ts: Timestamp
    expires_at: Timestamp | None
    review_at: Timestamp | None
    expired: bool
    seq: Count


class MemoryPage(msgspec.Struct):
    """A page of what is remembered, the oldest first."""

    memory: list[MemoryResponse]
    next_cursor: NextCursor


class PolicyPage(msgspec.Struct):
    """A page of the policy, sorted by key."""

    policy_hash: Sha256
    policy_version: Count
    pairs: dict[str, str]
    next_cursor: NextCursor


class PolicyChangeResponse(msgspec.Struct, kw_only=True):
    """A change of policy, and what became of it."""

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


class PolicyChangesPage(msgspec.Struct):
    """A page of changes of policy, the oldest first."""

    changes: list[PolicyChangeResponse]
    next_cursor: NextCursor


class SpaceEvent(msgspec.Struct):
    """An entry of a space's stream: exactly what was hashed, in canonical form, and `event_hash`."""

    v: Literal[1]
    stream_id: Annotated[str, Meta(description="`space:` and the space's id.")]
    seq: Count
    event_id: str
    ts: Timestamp
    verb: SpaceVerb
    actor: RecordedActor
    payload: Annotated[dict[str, Any], Meta(description="What was asked, by verb; SUBSTRATE_PROTOCOL.md has them.")]
    outcome: Annotated[dict[str, Any], Meta(description="What came of it.")]
    prev_event_hash: Annotated[Sha256, Meta(description="64 zeros in the first event.")]
    event_hash: Annotated[Sha256, Meta(description="SHA-256 of a zero byte and the canonical bytes; not part of them.")]
    idempotency_key: str | UnsetType = UNSET


class SpaceAuditResponse(msgspec.Struct):
    """A page of a space's stream."""

    events: list[SpaceEvent]
    next_cursor: NextCursor
