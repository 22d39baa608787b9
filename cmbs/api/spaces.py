"""Response types of spaces. A refusal is a response, not an error: `granted` and `decision` hold the result."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, UnsetType

from cmbs.api.answers import Answer, Count, Page, Partial
from cmbs.api.entries import EntryFormat, RecordedActor
from cmbs.api.sessions import NextCursor, Sha256
from cmbs.ledger.instants import Timestamp
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
from cmbs.substrate.kernel.insight.findings import Because, Flip, Mismatch, SpaceChangeItem
from cmbs.substrate.kernel.insight.lint_findings import Severity
from cmbs.substrate.kernel.model import Budget, Decision, Provenance, ReasonCode, Scope, Spent, ToolKind
from cmbs.substrate.kernel.words import (
    ApprovalStatus,
    CallStatus,
    CaseStatus,
    ExecutionStatus,
    PolicyChangeStatus,
    ProposalStatus,
)

Replayed = Annotated[bool, Meta(description="True for a repeat, which gets the first answer again; else left out.")]
EventId = Annotated[str, Meta(description="The event that recorded it.")]
Json = Annotated[Any, Meta(description="Any JSON value; left out for a caller who may not read it.")]
Values = Annotated[dict[str, str], Meta(description="Texts by key; keys that the caller may not read are left out.")]


class SpaceItem(Answer, frozen=True):
    """A space in a list."""

    space_id: str
    head_seq: Count


class SpaceResponse(Answer, frozen=True):
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


class StateResponse(Page[tuple[str, str]], frozen=True):
    """A page of a state, sorted by key."""

    state_snapshot_id: Annotated[Sha256, Meta(description="Pass it as `at` to get the next page of the same state.")]
    policy_hash: Sha256
    values: Values
    next_cursor: NextCursor

    @property
    def items(self) -> list[tuple[str, str]]:
        """The keys and values of this page."""
        return [*self.values.items()]


class SpaceDiffPage(Page[SpaceChangeItem], frozen=True):
    """What changed between two moments of a space, in the order of the last events that touched it."""

    collection: ClassVar[str] = "changes"
    space_id: str
    from_seq: Count
    to_seq: Count
    snapshot_id_before: str
    snapshot_id_after: str
    refused: Annotated[int, Meta(ge=0, description="The events in between that were refused.")]
    n_changes: Annotated[int, Meta(ge=0, description="The number on all pages together.")]
    changes: list[SpaceChangeItem]
    next_cursor: NextCursor


class CommitItem(Answer, frozen=True):
    """A commit: the change of the state by one step."""

    seq: Count
    event_id: str
    ts: Timestamp
    verb: SpaceVerb
    state_snapshot_id: Sha256
    set: Values
    unset: list[str]


class StepResponse(Partial, frozen=True):
    """The result of a request. One that is not granted is recorded too, and changes nothing else."""

    granted: bool
    reason_code: Annotated[
        str | None, Meta(description="Why it was not granted; for an outcome, why its facts were not stored.")
    ]
    seq: Count
    event_id: EventId
    state_snapshot_id: Annotated[Sha256, Meta(description="The state after this step.")]
    refusal: Annotated[
        Refusal | None, Meta(description="What to do about it; left out if there is no `reason_code`.")
    ] = None
    replayed: Replayed = False


class StateDeltaItem(Answer, tag_field="type", tag="state_delta", frozen=True):
    """A patch of the state, as it was proposed."""

    set: Values
    unset: list[str]


class ToolCallItem(Partial, tag_field="type", tag="tool_call", frozen=True):
    """A call of a tool, as it was proposed."""

    tool_id: str
    args: Json
    capability_token_id: str | None
    idempotency_key: str | None
    forwarded: Json = None


class BeliefSighting(Answer, frozen=True):
    """What the belief plane says of a session at one moment."""

    found: Annotated[bool, Meta(description="Whether there is such a session.")]
    head_seq: int
    head_event_id: str
    n_survivors: Count
    terminated: bool
    active_obligation_id: str | None
    concluded: list[str]


class BeliefThenAndNow(Answer, frozen=True):
    """A session that was read for a decision: as it was then, and as it is now."""

    session_id: str
    then: BeliefSighting
    now: BeliefSighting


class ProposalResponse(Partial, kw_only=True, frozen=True):
    """A proposal, its newest decision, and its status."""

    proposal_id: str
    status: ProposalStatus
    decision: Decision
    actor: RecordedActor
    atomic: bool
    state_snapshot_id: Annotated[str, Meta(description="The state that the proposal was based on.")]
    provenance: Provenance
    candidates: list[StateDeltaItem | ToolCallItem]
    calls: Annotated[dict[str, str], Meta(description="The ids of its calls, by candidate.")]
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
        list[Refusal] | None,
        Meta(
            description="One for each candidate that was not let through: why, and what to do next. For the proposer"
            " and for operators; left out if there are none."
        ),
    ] = None
    replayed: Replayed = False
    belief: Annotated[
        list[BeliefThenAndNow] | None,
        Meta(description="Of a repeat: the sessions that were read for the first answer, then and now."),
    ] = None


class ExplainResponse(Partial, frozen=True):
    """A decision, its reasons, and the smallest change of facts that would change it. Nothing is recorded."""

    decision: Decision
    because: Annotated[list[Because], Meta(description="The reasons for each candidate.")]
    flip: Flip
    withheld: Annotated[
        int, Meta(ge=0, description="How many steps of the trace are left out because the caller may not read them.")
    ]
    recorded: Annotated[bool, Meta(description="True for a decision that was made, false for a dry run.")]
    refusals: Annotated[
        list[Refusal] | None,
        Meta(description="One for each candidate that is not let through, with what would turn the decision."),
    ] = None


class DecisionItem(Answer, frozen=True):
    """A decision as it was recorded."""

    seq: Count
    event_id: str
    ts: Timestamp
    verb: SpaceVerb
    proposal_id: str
    decision: Decision


class ApprovalItem(Partial, kw_only=True, frozen=True):
    """A request for approval and its status."""

    approval_id: str
    status: ApprovalStatus
    proposal_id: str
    candidate: Count
    tool_id: str | None
    args: Json = None
    forwarded: Json = None
    args_hash: str | None = None
    call_hash: Annotated[
        Sha256 | None, Meta(description="Send it with the approval: it is of all that is shown here.")
    ] = None
    case_id: str | None
    constraints: list[str]
    policy_hash: Sha256
    tool_hash: Annotated[str | None, Meta(description="The hash of the tool's registration.")]
    proposer: RecordedActor
    expires_at: Timestamp
    approver: RecordedActor | None
    uses_left: Count
    good_until: Timestamp | None


class SettledApproval(Answer, frozen=True):
    """The result of an approval or a rejection: the step, the request, and the proposal, which was decided again."""

    step: StepResponse
    approval: ApprovalItem
    proposal: ProposalResponse


class WithdrawnProposal(Answer, frozen=True):
    """The result of a withdrawal: the step, and the proposal."""

    step: StepResponse
    proposal: ProposalResponse


class ExecutionResponse(Partial, kw_only=True, frozen=True):
    """One run of a tool."""

    execution_id: str
    status: ExecutionStatus
    call_id: Annotated[str, Meta(description="The call that it runs: with this its outcome is reported.")]
    proposal_id: str
    agent_id: str
    tool_id: str
    attempt: Count
    deadline: Timestamp
    capability_token_id: str | None
    idempotency_key: str | None
    args: Json = None
    args_hash: str | None = None
    outcome: OutcomeStatus | None
    result: Json = None
    result_hash: str | None = None
    error: str | None
    duration_ms: Count
    started_seq: Count
    settled_seq: int | None


class CallWaitKind(StrEnum):
    """What a call waits for."""

    APPROVAL = "approval"
    CHANGE = "change"
    TURN = "turn"
    EXECUTOR = "executor"


class CallWait(Partial, kw_only=True, frozen=True):
    """What a call waits for, and until when."""

    kind: CallWaitKind
    until: Timestamp | None = None
    approval_ids: Annotated[list[str] | None, Meta(description="The requests for approval.")] = None
    keys: Annotated[list[str] | None, Meta(description="State keys, sessions and cases whose change it waits for.")] = (
        None
    )


class CallResponse(Partial, kw_only=True, frozen=True):
    """A call of a tool, and where it stands."""

    call_id: str
    status: CallStatus
    tool_id: str
    args: Json = None
    forwarded: Annotated[Json, Meta(description="What is sent to the tool beside the args.")] = None
    actor: RecordedActor
    case_id: str | None
    executor: Annotated[
        str, Meta(description="Who runs it: `server`, `caller` for the agent itself, or the id of an executor.")
    ]
    is_claimed: Annotated[bool, Meta(description="Whether who runs it has claimed it.")] = False
    call_hash: Annotated[
        Sha256 | None, Meta(description="Of the tool's registration, args, forwarded, agent and case.")
    ] = None
    tool_hash: Sha256 | None
    capability_token_id: str | None
    idempotency_key: str | None
    reason_code: ReasonCode
    waits_for: CallWait | None = None
    refusal: Annotated[
        Refusal | None, Meta(description="Why it was not let through, and what to do next; left out if it was.")
    ] = None
    outcome: OutcomeStatus | None = None
    result: Json = None
    error: str | None = None
    duration_ms: Count = 0
    deadline: Annotated[
        Timestamp | None, Meta(description="When it is in doubt, or, before it starts, when it expires.")
    ] = None
    joined: Annotated[bool, Meta(description="Whether this is a call that was made before.")] = False
    proposal_id: str
    candidate: Count
    execution_id: str | None = None
    seq: Count
    event_id: EventId


class CallsPage(Page[CallResponse], frozen=True):
    """A page of calls."""

    collection: ClassVar[str] = "calls"
    calls: list[CallResponse]
    next_cursor: NextCursor


class ToolResponse(Partial, kw_only=True, frozen=True):
    """A registered tool."""

    tool_id: str
    kind: ToolKind
    description: str
    args_schema: Any
    result_schema: Any
    target: Json = None
    timeout_ms: Count
    max_result_bytes: Count
    writes: bool
    idempotent: bool
    facts: dict[str, str]
    caller_facts: Annotated[bool, Meta(description="Results that an agent reports set the facts.")]
    executor: Annotated[
        str, Meta(description="Who runs it: `server`, `caller` for the calling agent, or the id of an executor.")
    ]
    tool_hash: Annotated[Sha256, Meta(description="The hash of this registration.")]
    retired: bool


class CapabilityResponse(Answer, kw_only=True, frozen=True):
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


class CaseResponse(Partial, kw_only=True, frozen=True):
    """A case as it was admitted to the space the last time; its id is that of its belief session."""

    case_id: str
    status: CaseStatus
    title: str | UnsetType | None = UNSET
    labels: dict[str, str] | None = None
    attributes: Json = None
    agents: Annotated[
        list[str] | None,
        Meta(
            description="Who could act under it when it was admitted; the case may have changed its list since. Left"
            " out for an agent that is not one of them."
        ),
    ] = None
    opened_by: RecordedActor
    ts: Timestamp
    seq: Count
    closed_by: RecordedActor | None
    closed_ts: Timestamp | None
    closed_seq: int | None
    reason: Annotated[str, Meta(description="Why it was closed.")]


class MemoryResponse(Answer, kw_only=True, frozen=True):
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


class PolicyPage(Page[tuple[str, str]], frozen=True):
    """A page of the policy, sorted by key; the first page has the file that it was compiled from, if there is one."""

    policy_hash: Sha256
    policy_version: Count
    pairs: dict[str, str]
    next_cursor: NextCursor
    source: PolicySource | None = None

    @property
    def items(self) -> list[tuple[str, str]]:
        """The keys and values of this page."""
        return [*self.pairs.items()]


class PutStatus(StrEnum):
    """What became of a policy file."""

    PENDING = "pending"
    APPLIED = "applied"
    REJECTED = "rejected"
    UNCHANGED = "unchanged"


class PolicyPut(Answer, frozen=True):
    """A policy file that was put: what it changes, and whether it is in force. `next` says what it waits for."""

    status: PutStatus
    base_policy_hash: Sha256
    policy_hash: Annotated[Sha256, Meta(description="Of the policy in the file.")]
    set: Annotated[list[str], Meta(description="Keys that are set.")]
    unset: Annotated[list[str], Meta(description="Keys that are removed.")]
    change_id: str | None = None
    next: str | None = None


class PolicyFix(Answer, frozen=True):
    """What to write in place of `found`, which stands at this place of the file."""

    line: int
    column: int
    found: str
    accepted: str


class PolicyFinding(Answer, frozen=True):
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


class PolicyTestItem(Answer, frozen=True):
    """What came of a test of a policy file."""

    name: str
    passed: bool
    mismatches: list[Mismatch]


class PolicyCheck(Answer, kw_only=True, frozen=True):
    """What a policy file would do. Where it is not `sound`, it would be refused or does what its author cannot mean."""

    sound: bool
    complete: Annotated[
        bool, Meta(description="False where the processor time of a check ran out: there may be more to find.")
    ] = True
    findings: list[PolicyFinding]
    tests: list[PolicyTestItem] = []
    never_asked: Annotated[list[str], Meta(description="Keys that no test asks.")] = []
    policy_hash: Sha256 | None = None
    set: Annotated[list[str], Meta(description="Keys that would be set.")] = []
    unset: Annotated[list[str], Meta(description="Keys that would be removed.")] = []


class PolicyChangeResponse(Answer, kw_only=True, frozen=True):
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


class SpaceEvent(Partial, frozen=True):
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
    idempotency_key: str | None = None
    state: Annotated[
        Sha256 | None, Meta(description="The digest of the state right before the entry; at digest points alone.")
    ] = None


class ProposalsPage(Page[ProposalResponse], frozen=True):
    """A page of proposals, the oldest first or the newest."""

    collection: ClassVar[str] = "proposals"
    proposals: list[ProposalResponse]
    next_cursor: NextCursor


class ApprovalsPage(Page[ApprovalItem], frozen=True):
    """A page of approvals, the oldest first or the newest."""

    collection: ClassVar[str] = "approvals"
    approvals: list[ApprovalItem]
    next_cursor: NextCursor


class ExecutionsPage(Page[ExecutionResponse], frozen=True):
    """A page of executions, the oldest first or the newest."""

    collection: ClassVar[str] = "executions"
    executions: list[ExecutionResponse]
    next_cursor: NextCursor


class ToolsPage(Page[ToolResponse], frozen=True):
    """A page of tools, sorted by id."""

    collection: ClassVar[str] = "tools"
    tools: list[ToolResponse]
    next_cursor: NextCursor


class CapabilitiesPage(Page[CapabilityResponse], frozen=True):
    """A page of capabilities, sorted by id."""

    collection: ClassVar[str] = "capabilities"
    capabilities: list[CapabilityResponse]
    next_cursor: NextCursor


class CasesPage(Page[CaseResponse], frozen=True):
    """A page of cases, the oldest first or the newest."""

    collection: ClassVar[str] = "cases"
    cases: list[CaseResponse]
    next_cursor: NextCursor


class MemoryPage(Page[MemoryResponse], frozen=True):
    """A page of memory, the oldest first."""

    collection: ClassVar[str] = "memory"
    memory: list[MemoryResponse]
    next_cursor: NextCursor


class PolicyChangesPage(Page[PolicyChangeResponse], frozen=True):
    """A page of policy changes, the oldest first."""

    collection: ClassVar[str] = "changes"
    changes: list[PolicyChangeResponse]
    next_cursor: NextCursor


class SpacesPage(Page[SpaceItem], frozen=True):
    """A page of spaces, sorted by id."""

    collection: ClassVar[str] = "spaces"
    spaces: list[SpaceItem]
    next_cursor: NextCursor


class CommitsPage(Page[CommitItem], frozen=True):
    """A page of commits, the oldest first."""

    collection: ClassVar[str] = "deltas"
    deltas: list[CommitItem]
    next_cursor: NextCursor


class DecisionsPage(Page[DecisionItem], frozen=True):
    """A page of decisions, the oldest first. A page may be short without being the last."""

    collection: ClassVar[str] = "decisions"
    decisions: list[DecisionItem]
    next_cursor: NextCursor


class SpaceAuditResponse(Page[SpaceEvent], frozen=True):
    """A page of a space's stream."""

    collection: ClassVar[str] = "events"
    events: list[SpaceEvent]
    next_cursor: NextCursor
