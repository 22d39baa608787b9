"""What is recorded in a space's stream: messages (what was asked), results (what came of them), and their entries.

One entry a step, refusals included. Time, ids and readings of the belief plane are part of what is recorded, so that
deciding again gives the same bytes.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from cmbs.ledger import StoredEntry
from cmbs.ledger.format import FORMAT
from cmbs.substrate.kernel.model import NULL, Actor, ActorKind, BeliefReading, Capability, Decision, Proposal, Tool

STREAM_PREFIX = "space:"
NO_ATTRIBUTES = msgspec.Raw(b"{}")
OperatorsNeeded = Annotated[int, Meta(ge=1, le=2)]


class SpaceVerb(StrEnum):
    """The verbs of a space's stream."""

    CREATE_SPACE = "CREATE_SPACE"
    SET_MODE = "SET_MODE"
    SET_GOVERNANCE = "SET_GOVERNANCE"
    PROPOSE = "PROPOSE"
    WAKE = "WAKE"
    WITHDRAW = "WITHDRAW"
    APPROVE = "APPROVE"
    REJECT = "REJECT"
    EXPIRE = "EXPIRE"
    START = "START"
    RECORD_OUTCOME = "RECORD_OUTCOME"
    MARK_IN_DOUBT = "MARK_IN_DOUBT"
    PROPOSE_POLICY = "PROPOSE_POLICY"
    SETTLE_POLICY = "SETTLE_POLICY"
    REGISTER_TOOL = "REGISTER_TOOL"
    RETIRE_TOOL = "RETIRE_TOOL"
    ISSUE_CAPABILITY = "ISSUE_CAPABILITY"
    REVOKE_CAPABILITY = "REVOKE_CAPABILITY"
    PUT_MEMORY = "PUT_MEMORY"
    PROMOTE_MEMORY = "PROMOTE_MEMORY"
    DISPUTE_MEMORY = "DISPUTE_MEMORY"
    OPEN_CASE = "OPEN_CASE"
    CLOSE_CASE = "CLOSE_CASE"


class Mode(StrEnum):
    """Whether decisions are enforced, or only made and recorded."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


# --- what is asked ----------------------------------------------------------------------------------------------------


class MediaType(StrEnum):
    """The languages of a policy file."""

    YAML = "application/yaml"
    JSON = "application/json"


class PolicySource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy file as it was written. What it was compiled to is recorded beside it, and is what decides."""

    media_type: MediaType
    text: str


class CreateSpace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new space and the policy that it starts with: the one policy that needs no second operator.

    `operators_needed` is how many operators a change of policy takes, one or two; two where it is not set.
    """

    space_id: str
    mode: Mode = Mode.ENFORCE
    # policy.* and constraint.* pairs, validated whole.
    policy: dict[str, str] = {}
    # The file that the pairs were compiled from, where there was one.
    source: PolicySource | msgspec.UnsetType = msgspec.UNSET
    operators_needed: OperatorsNeeded | msgspec.UnsetType = msgspec.UNSET


class SetMode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From enforcing to observing, or back."""

    mode: Mode


class OutcomeStatus(StrEnum):
    """How an execution ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    # It ran, but what it returned is too large or does not fit its schema: the result is not taken over.
    RESULT_REFUSED = "result_refused"


class KnownCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An execution that was settled long ago, as the ledger has it: it answers a call under the same key."""

    execution_id: str
    agent_id: str
    args_hash: str
    candidate: int
    deadline: str
    idempotency_key: str
    outcome: OutcomeStatus
    proposal_id: str
    settled_seq: int
    started_seq: int
    tool_id: str
    agent_kind: ActorKind = ActorKind.AGENT
    attempt: int = 1
    capability_token_id: str | None = None


# What a decision took from the ledger of what had left the state; not set where it took nothing.
KnownCalls: TypeAlias = list[KnownCall] | msgspec.UnsetType


class SetGovernance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many operators a change of policy takes from now on: one or two. From two to one takes two of them."""

    operators_needed: OperatorsNeeded


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That the sender of a call runs it itself, as soon as it is allowed.

    `nonce_hash` is the SHA-256, in hex, of a secret that the outcome has to present. `tool_hash` is that of the
    registration the sender goes by; if the tool is another, the call is not claimed. `executor` is who runs it, where
    that is not the agent, from the credential.
    """

    nonce_hash: str
    tool_hash: str | msgspec.UnsetType = msgspec.UNSET
    executor: Actor | msgspec.UnsetType = msgspec.UNSET


def hash_of_nonce(nonce: str) -> str:
    """What a claim says of the secret that its outcome has to present."""
    return sha256(nonce.encode()).hexdigest()


# Whether calls that a decision allows wait for their turn; not set where they start with it.
Queued: TypeAlias = bool | msgspec.UnsetType


class Propose(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A proposal, and what the belief plane said when it was decided."""

    proposal: Proposal
    belief: list[BeliefReading] = []
    # How long a deferred one waits, and how long an approval may be given, before it expires.
    defer_ms: int = 3_600_000
    ask_ms: int = 3_600_000
    known_calls: KnownCalls = msgspec.UNSET
    # The commit that produced the snapshot of the proposal.
    snapshot_seq: int | msgspec.UnsetType = msgspec.UNSET
    queued: Queued = msgspec.UNSET
    claim: Claim | msgspec.UnsetType = msgspec.UNSET


class Wake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that a parked or asked proposal depends on has changed: decide again, on the state of this moment."""

    proposal_id: str
    because: list[str]
    belief: list[BeliefReading] = []
    known_calls: KnownCalls = msgspec.UNSET
    queued: Queued = msgspec.UNSET


class Withdraw(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a proposal still waits for is not wanted any more."""

    proposal_id: str
    reason: str = ""


class Approve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Yes to exactly what was asked, `uses` times in all, until `expires_at`."""

    approval_id: str
    uses: int = 1
    expires_at: str | None = None
    # The hash of the call that the approver saw; where given, it must be that of the request.
    call_hash: str | None = None
    belief: list[BeliefReading] = []
    known_calls: KnownCalls = msgspec.UNSET
    queued: Queued = msgspec.UNSET


class Reject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No."""

    approval_id: str
    reason: str = ""


class ExpiryOf(StrEnum):
    """What can come to the end of its time."""

    APPROVAL = "approval"
    PARKED = "parked"
    # An execution that was allowed and never started.
    EXECUTION = "execution"
    MEMORY = "memory"


class Expire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time of something is over: an approval request, a parked proposal, a call not started, a memory entry."""

    of: ExpiryOf
    id: str


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An execution that was allowed is to be started: it is decided again, on the state of this moment.

    Its executor claims it with `nonce_hash` and with the hash of the call that it is going to send; the server starts
    what it runs itself when its turn comes. Of an execution in doubt, the intent of one more attempt, which its tool's
    idempotence permits.
    """

    execution_id: str
    nonce_hash: str | msgspec.UnsetType = msgspec.UNSET
    call_hash: str | msgspec.UnsetType = msgspec.UNSET
    belief: list[BeliefReading] = []


class RecordOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of an execution. `result` is canonical JSON."""

    execution_id: str
    status: OutcomeStatus
    result: msgspec.Raw = NULL
    error: str | None = None
    duration_ms: int = 0
    result_bytes: int = 0
    # What the invariants may have to know for the commit that may follow.
    belief: list[BeliefReading] = []
    # The secret whose hash the claim of the execution named.
    nonce: str | msgspec.UnsetType = msgspec.UNSET


class MarkInDoubt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An execution whose time is over and that has no outcome: it may or may not have happened."""

    execution_id: str


class ProposePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of policy, on the policy that the operator saw. Validated whole at once; applied when authorised."""

    change_id: str
    base_policy_hash: str
    set: dict[str, str] = {}
    unset: list[str] = []
    reason: str = ""
    # The file that the whole policy was compiled from, where there was one.
    source: PolicySource | msgspec.UnsetType = msgspec.UNSET


class SettlePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another operator authorises a proposed change, or turns it down."""

    change_id: str
    authorise: bool
    reason: str = ""


class RegisterTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool, or a new version of one."""

    tool: Tool


class RetireTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tool may no longer be called."""

    tool_id: str


class IssueCapability(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new capability token: by an operator, or by the holder of a wider one."""

    capability: Capability


class RevokeCapability(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The token, and every one issued under it, is no longer good."""

    token_id: str
    reason: str = ""


class MemoryKind(StrEnum):
    """What kind of claim a memory entry is."""

    FACT = "fact"
    PREFERENCE = "preference"
    DECISION = "decision"
    HYPOTHESIS = "hypothesis"
    DERIVED = "derived"


class ConflictState(StrEnum):
    """Whether other claims speak against it."""

    NONE = "none"
    POSSIBLE = "possible"
    CONTRADICTORY = "contradictory"


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a claim rests on. `confidence` is in thousandths: a ledger has no use for floats.

    `confirmed_by_event_id` names an event of the belief plane (an accepted conclusion) or of this space; `reading` is
    what the belief plane said of it, filled in by the server and checked to exist.
    """

    source_chunk_ids: list[str] = []
    confidence_milli: int = 0
    confirmed_by_event_id: str | None = None
    confirmed_in_session_id: str | None = None


class PutMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim to remember. `confirming_event_found` is what the server found of `confirmed_by_event_id`."""

    entry_id: str
    kind: MemoryKind
    claim: msgspec.Raw
    evidence: Evidence = Evidence()
    conflict_state: ConflictState = ConflictState.NONE
    ttl_ms: int | None = None
    review_at: str | None = None
    confirming_event_found: bool = False


class PromoteMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A hypothesis or derived claim is to become another kind, on evidence that was not there before."""

    entry_id: str
    kind: MemoryKind
    evidence: Evidence
    confirming_event_found: bool = False


class DisputeMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Other claims speak against it, or no longer do."""

    entry_id: str
    conflict_state: ConflictState
    because: list[str] = []


class OpenCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case is admitted to the space: from now on agents may act under it.

    `case_id` is the id of its belief session. `agents` are ids of agents, sorted: of those that the session lists, only
    these may act here; none named means all that it lists. `attributes` is a canonical JSON object. Title and labels
    are for people, and to find the case by. `belief` is what the session said then, put there by the server.
    """

    case_id: str
    agents: list[str] = []
    attributes: msgspec.Raw = NO_ATTRIBUTES
    title: str | msgspec.UnsetType = msgspec.UNSET
    labels: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    belief: list[BeliefReading] = []


class CloseCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a case: nothing is done under it any more, and what waits under it is withdrawn."""

    case_id: str
    reason: str = ""


SpaceMessage: TypeAlias = (
    CreateSpace
    | SetMode
    | SetGovernance
    | Propose
    | Wake
    | Withdraw
    | Approve
    | Reject
    | Expire
    | Start
    | RecordOutcome
    | MarkInDoubt
    | ProposePolicy
    | SettlePolicy
    | RegisterTool
    | RetireTool
    | IssueCapability
    | RevokeCapability
    | PutMemory
    | PromoteMemory
    | DisputeMemory
    | OpenCase
    | CloseCase
)

MESSAGE_OF: dict[SpaceVerb, type[SpaceMessage]] = {
    SpaceVerb.CREATE_SPACE: CreateSpace,
    SpaceVerb.SET_MODE: SetMode,
    SpaceVerb.SET_GOVERNANCE: SetGovernance,
    SpaceVerb.PROPOSE: Propose,
    SpaceVerb.WAKE: Wake,
    SpaceVerb.WITHDRAW: Withdraw,
    SpaceVerb.APPROVE: Approve,
    SpaceVerb.REJECT: Reject,
    SpaceVerb.EXPIRE: Expire,
    SpaceVerb.START: Start,
    SpaceVerb.RECORD_OUTCOME: RecordOutcome,
    SpaceVerb.MARK_IN_DOUBT: MarkInDoubt,
    SpaceVerb.PROPOSE_POLICY: ProposePolicy,
    SpaceVerb.SETTLE_POLICY: SettlePolicy,
    SpaceVerb.REGISTER_TOOL: RegisterTool,
    SpaceVerb.RETIRE_TOOL: RetireTool,
    SpaceVerb.ISSUE_CAPABILITY: IssueCapability,
    SpaceVerb.REVOKE_CAPABILITY: RevokeCapability,
    SpaceVerb.PUT_MEMORY: PutMemory,
    SpaceVerb.PROMOTE_MEMORY: PromoteMemory,
    SpaceVerb.DISPUTE_MEMORY: DisputeMemory,
    SpaceVerb.OPEN_CASE: OpenCase,
    SpaceVerb.CLOSE_CASE: CloseCase,
}
VERB_OF: dict[type[SpaceMessage], SpaceVerb] = {kind: verb for verb, kind in MESSAGE_OF.items()}


# --- what came of it --------------------------------------------------------------------------------------------------


class Intent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An execution that may begin once this is in the ledger, and must be over by `deadline`.

    With `ready` it does not begin with this entry: it has until `deadline` to be started.
    """

    execution_id: str
    candidate: int
    tool_id: str
    args_hash: str
    deadline: str
    attempt: int = 1
    capability_token_id: str | None = None
    idempotency_key: str | None = None
    ready: bool = False


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request for approval: bound to the exact args, to the constraints that asked, to the policy and to the tool."""

    approval_id: str
    candidate: int
    # That of the tool's args and of what is forwarded with them, or of a delta's set and unset.
    args_hash: str
    # That of all that the approver is shown: who asks, in which case, for which call of which tool.
    call_hash: str
    constraints: list[str]
    expires_at: str
    tool_id: str | None = None
    # That of the tool's registration.
    tool_hash: str | None = None
    # The case of the proposal: an approval given in one is of no use in another.
    case_id: str | None = None


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a step did to the state map. Where it is not empty, the entry's hash is the new snapshot id."""

    set: dict[str, str] = {}
    unset: list[str] = []


class StepResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a message came to: the only thing `evolve` looks at beside the message itself."""

    # Of messages that can be turned down: whether it was granted, and why not.
    granted: bool = True
    reason_code: str | None = None
    decision: Decision | None = None
    changes: Changes = Changes()
    intents: tuple[Intent, ...] = ()
    asked: tuple[Asked, ...] = ()
    # Of a deferred proposal: until when it is parked, and for what.
    parked_until: str | None = None
    waits_for: tuple[str, ...] = ()
    # Approvals that were used up by this step, by id.
    used_approvals: tuple[str, ...] = ()
    # Requests for approval that nothing needs any more, by id.
    withdrawn_approvals: tuple[str, ...] = ()
    # Executions that were allowed and are not to be started any more, by id.
    not_started: tuple[str, ...] = ()
    # Executions of the past that answer a call of the same key, by candidate: it is not run again.
    answered_by: dict[str, str] = {}
    # The candidates that began, were answered or were committed in this step, or are to be committed with an outcome.
    ran: tuple[int, ...] = ()
    # Where proposals stand after this step, by id: the one that was decided, or those that an outcome concerns.
    statuses: dict[str, str] = {}
    # Of an outcome: how the execution ended, where that is not what was reported (a result that was not taken over).
    outcome: OutcomeStatus | None = None


class SpaceEntry(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="format", tag=FORMAT
):
    """The content of an entry in a space's stream."""

    actor: Actor
    event_id: str
    outcome: msgspec.Raw
    payload: msgspec.Raw
    prev_event_hash: str
    seq: int
    stream_id: str
    ts: str
    verb: str
    idempotency_key: str | None = None
    # At digest points: the digest of the frozen state right before the entry, in hex.
    state: str | None = None


class SpaceEvent(msgspec.Struct, frozen=True):
    """A decision, ready to be stored: message, result, entry, and its exact bytes."""

    message: SpaceMessage
    result: StepResult
    body: SpaceEntry
    stored: StoredEntry
