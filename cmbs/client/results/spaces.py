"""Answers about spaces: state, proposals, executions, tools, capabilities, cases."""

from __future__ import annotations

from typing import Any

from msgspec import field

from cmbs.client.results.belief import RecordedActor, Result
from cmbs.refusals import Refusal


class Space(Result, frozen=True):
    """A space as it is now."""

    space_id: str
    mode: str
    state_snapshot_id: str
    policy_hash: str
    policy_version: int
    head_seq: int
    head_event_id: str
    n_keys: int
    n_proposals: int
    n_parked: int
    n_running: int
    observe_asked_by: str | None
    operators_needed: int
    governance_asked_by: str | None


class SpaceSummary(Result, frozen=True):
    """A space in a list."""

    space_id: str
    head_seq: int


class SpacesPage(Result, frozen=True):
    """A page of spaces, sorted by id."""

    spaces: list[SpaceSummary]
    next_cursor: str | None


class StatePage(Result, frozen=True):
    """A page of a state, sorted by key."""

    state_snapshot_id: str
    policy_hash: str
    values: dict[str, str]
    next_cursor: str | None


class SpaceChange(Result, frozen=True):
    """One thing that is another than it was, and the last event that touched it."""

    seq: int
    kind: str
    id: str
    event_id: str
    before: str | None
    after: str | None


class SpaceDiffPage(Result, frozen=True):
    """What changed between two moments of a space, in the order of the last events that touched it."""

    space_id: str
    from_seq: int
    to_seq: int
    snapshot_id_before: str
    snapshot_id_after: str
    refused: int
    n_changes: int
    changes: list[SpaceChange]
    next_cursor: str | None


class Commit(Result, frozen=True):
    """A commit: the change of the state by one step."""

    seq: int
    event_id: str
    ts: str
    verb: str
    state_snapshot_id: str
    set: dict[str, str]
    unset: list[str]


class CommitsPage(Result, frozen=True):
    """A page of commits, the oldest first."""

    deltas: list[Commit]
    next_cursor: str | None


class CandidateDecision(Result, frozen=True):
    """What was decided of one candidate; `candidate` is its place in the proposal."""

    candidate: int
    verdict: str
    reason_code: str
    failure: str | None = None
    stage: str | None = None
    matched: list[str] = field(default_factory=list)
    reason: str | None = None
    waits_for: list[str] = field(default_factory=list)
    offer: str | None = None


class TraceStep(Result, frozen=True):
    """One thing that validation looked at: where, what it asked, what it found, and whether that was good."""

    stage: str
    passed: bool
    candidate: int | None = None
    key: str | None = None
    at: str | None = None
    op: str | None = None
    reference: str | None = None
    found: str | None = None
    note: str | None = None


class Decision(Result, frozen=True):
    """What was decided of a proposal. Deterministic: same state, policy and proposal, same bytes."""

    verdict: str
    reason_code: str
    policy_hash: str
    state_snapshot_id: str
    candidates: list[CandidateDecision]
    failure: str | None = None
    stage: str | None = None
    observed: bool = False
    trace: list[TraceStep] = field(default_factory=list)


class RecordedDecision(Result, frozen=True):
    """A decision as it was recorded."""

    seq: int
    event_id: str
    ts: str
    verb: str
    proposal_id: str
    decision: Decision


class DecisionsPage(Result, frozen=True):
    """A page of decisions, the oldest first. A page may be short without being the last."""

    decisions: list[RecordedDecision]
    next_cursor: str | None


class Provenance(Result, frozen=True):
    """Where a proposal comes from. `source` is the actor's own id, `permissions` are capability tokens of its own."""

    source: str
    timestamp: str
    inputs: list[str] = field(default_factory=list)
    permissions: list[str] = field(default_factory=list)


class StateDelta(Result, frozen=True, tag_field="type", tag="state_delta"):
    """A patch of the state, as it was proposed."""

    set: dict[str, str]
    unset: list[str]


class ToolCall(Result, frozen=True, tag_field="type", tag="tool_call"):
    """A call of a tool, as it was proposed."""

    tool_id: str
    args: Any
    capability_token_id: str | None
    idempotency_key: str | None


class BeliefSighting(Result, frozen=True):
    """What the belief plane says of a session at one moment."""

    found: bool
    head_seq: int
    head_event_id: str
    n_survivors: int
    terminated: bool
    active_obligation_id: str | None
    concluded: list[str]


class BeliefThenAndNow(Result, frozen=True):
    """A session that was read for a decision: as it was then, and as it is now."""

    session_id: str
    then: BeliefSighting
    now: BeliefSighting


class Proposal(Result, frozen=True):
    """A proposal, its newest decision, and its status."""

    proposal_id: str
    status: str
    decision: Decision
    actor: RecordedActor
    atomic: bool
    state_snapshot_id: str
    execution_ids: list[str]
    approval_ids: list[str]
    answered_by: dict[str, str]
    waits_for: list[str]
    parked_until: str | None
    case_id: str | None
    seq: int
    event_id: str
    decided_seq: int
    refusals: list[Refusal] | None = None
    replayed: bool = False
    belief: list[BeliefThenAndNow] | None = None
    provenance: Provenance | None = None
    candidates: list[StateDelta | ToolCall] = field(default_factory=list)


class ProposalsPage(Result, frozen=True):
    """A page of proposals, the oldest first."""

    proposals: list[Proposal]
    next_cursor: str | None


class ApprovalRequest(Result, frozen=True):
    """A request for approval and its status."""

    approval_id: str
    status: str
    proposal_id: str
    candidate: int
    tool_id: str | None
    args_hash: str
    constraints: list[str]
    policy_hash: str
    tool_hash: str | None
    proposer: RecordedActor
    expires_at: str
    approver: RecordedActor | None
    uses_left: int
    good_until: str | None
    args: Any = None


class ApprovalsPage(Result, frozen=True):
    """A page of approvals, the oldest first."""

    approvals: list[ApprovalRequest]
    next_cursor: str | None


class Execution(Result, frozen=True):
    """One run of a tool."""

    execution_id: str
    status: str
    proposal_id: str
    agent_id: str
    tool_id: str
    attempt: int
    deadline: str
    capability_token_id: str | None
    idempotency_key: str | None
    args_hash: str
    outcome: str | None
    result_hash: str | None
    error: str | None
    duration_ms: int
    started_seq: int
    settled_seq: int | None
    args: Any = None
    result: Any = None


class ExecutionsPage(Result, frozen=True):
    """A page of executions, the oldest first."""

    executions: list[Execution]
    next_cursor: str | None


class Tool(Result, frozen=True):
    """A registered tool."""

    tool_id: str
    kind: str
    description: str
    timeout_ms: int
    max_result_bytes: int
    writes: bool
    idempotent: bool
    facts: dict[str, str]
    caller_facts: bool
    retired: bool
    target: Any = None
    args_schema: Any = None
    result_schema: Any = None


class ToolsPage(Result, frozen=True):
    """A page of tools, sorted by id."""

    tools: list[Tool]
    next_cursor: str | None


class ArgumentScope(Result, frozen=True):
    """A bound on one argument: the text, whole number or flag at `path` in the args equals or starts with `value`."""

    path: str
    match: str
    value: str | int | bool


class Budget(Result, frozen=True):
    """How much may be used; None is without bound. `bytes` counts args and results, `wall_ms` the time of execution."""

    calls: int | None = None
    bytes: int | None = None
    wall_ms: int | None = None


class Spent(Result, frozen=True):
    """How much of a budget is gone."""

    calls: int = 0
    bytes: int = 0
    wall_ms: int = 0


class Capability(Result, frozen=True):
    """A capability token, and how much of its budget is spent."""

    token_id: str
    agent_id: str
    tool_ids: list[str]
    capabilities: list[str]
    scopes: list[ArgumentScope]
    budget: Budget
    spent: Spent
    expires_at: str | None
    parent_id: str | None
    revoked: bool


class CapabilitiesPage(Result, frozen=True):
    """A page of capabilities, sorted by id."""

    capabilities: list[Capability]
    next_cursor: str | None


class CaseRecord(Result, frozen=True):
    """A case: what joins proposals to one belief session."""

    case_id: str
    status: str
    session_id: str
    opened_by: RecordedActor
    ts: str
    seq: int
    closed_by: RecordedActor | None
    closed_ts: str | None
    closed_seq: int | None
    reason: str
    attributes: Any = None
    agents: list[str] | None = None
    title: str | None = None
    labels: dict[str, str] | None = None


class CasesPage(Result, frozen=True):
    """A page of cases, the oldest first."""

    cases: list[CaseRecord]
    next_cursor: str | None


class Step(Result, frozen=True):
    """The result of a request. One that is not granted is recorded too, and changes nothing else."""

    granted: bool
    reason_code: str | None
    seq: int
    event_id: str
    state_snapshot_id: str
    refusal: Refusal | None = None
    replayed: bool = False


class WithdrawnProposal(Result, frozen=True):
    """The result of a withdrawal: the step, and the proposal."""

    step: Step
    proposal: Proposal


class SettledApproval(Result, frozen=True):
    """The result of an approval or a rejection: the step, the request, and the proposal, which was decided again."""

    step: Step
    approval: ApprovalRequest
    proposal: Proposal


class RecordedOutcome(Result, frozen=True):
    """The result of reporting an outcome."""

    step: Step
    execution: Execution
