"""Everything a space knows, as an immutable value; the next one shares what is the same."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from immutables import Map

from cmbs.ledger import Head
from cmbs.ledger.event_tree import EventTree
from cmbs.substrate.kernel.events import (
    Asked,
    ConflictState,
    Evidence,
    Intent,
    MemoryKind,
    Mode,
    OutcomeStatus,
    PolicySource,
    Propose,
    SpaceVerb,
)
from cmbs.substrate.kernel.key_digests import BucketDigests
from cmbs.substrate.kernel.model import Actor, ActorKind, BeliefReading, Capability, Decision, Spent, Tool
from cmbs.substrate.kernel.words import ApprovalStatus, CaseStatus, ExecutionStatus, PolicyChangeStatus, ProposalStatus

if TYPE_CHECKING:
    from cmbs.substrate.kernel.policy.policy import Policy

# The most operators that a change of policy can take.
MAX_OPERATORS = 2


class CallKey(NamedTuple):
    """A call that runs at most once. Keys belong to the actor that makes the call."""

    tool_id: str
    idempotency_key: str
    actor: tuple[ActorKind, str]


class RequestKey(NamedTuple):
    """The idempotency key of a message, which belongs to its actor."""

    idempotency_key: str
    actor: tuple[ActorKind, str]


class ProposalRecord(msgspec.Struct, frozen=True, array_like=True):
    """A proposal and the newest decision on it; `seq` is that of the PROPOSE entry, `decided_seq` of the decision.

    The message is kept as the bytes that were recorded. Thousands may be open, and few are looked at again: as objects
    they would take more memory, and every look for garbage would go through them all. So of the encodings of msgspec,
    JSON alone can be used for it.
    """

    payload: msgspec.Raw = msgspec.field(name="message")
    actor: Actor
    seq: int
    event_id: str
    decided_seq: int
    decision: Decision
    status: ProposalStatus
    execution_ids: tuple[str, ...] = ()
    approval_ids: tuple[str, ...] = ()
    answered_by: tuple[tuple[int, str], ...] = ()
    # Candidates that were let through, and so are not decided again.
    done: tuple[int, ...] = ()
    # The snapshot that it was based on, and the seq of the newest step that changed where it stands.
    snapshot_id: str = ""
    changed_seq: int = 0
    # The seq of the step that withdrew what was waiting then.
    withdrawn_seq: int | None = None
    # As in the message.
    case_id: str | None = None

    @property
    def message(self) -> Propose:
        """What was proposed; decoded each time."""
        return _PROPOSE.decode(self.payload)


_PROPOSE = msgspec.json.Decoder(Propose)


class Execution(msgspec.Struct, frozen=True, array_like=True):
    """One run of a tool, in one or more attempts."""

    intent: Intent
    proposal_id: str
    agent_id: str
    tool: Tool
    args: bytes
    status: ExecutionStatus
    started_seq: int
    settled_seq: int | None = None
    outcome: OutcomeStatus | None = None
    result: bytes = b"null"
    result_hash: str | None = None
    error: str | None = None
    duration_ms: int = 0
    # Other proposals that wait for this one, because they made the same call.
    awaited_by: tuple[str, ...] = ()
    # Of one that was claimed: the hash of the secret that its outcome has to present, and who claimed it.
    nonce_hash: str | None = None
    executor: Actor | None = None
    # The seq of the step that started it, where that is another than the one that let it through.
    begun_seq: int | None = None
    # What is forwarded beside the args, a canonical JSON object.
    forwarded: bytes = b"{}"
    # Whether it left the state before, and was recalled to answer a call: its args and its result are in the ledger.
    is_outline: bool = False
    # Where decisions are observed, others than agents can make calls too.
    agent_kind: ActorKind = ActorKind.AGENT

    @property
    def call_key(self) -> CallKey:
        """Under what it is found; one without an idempotency key is found under none."""
        key = self.intent.idempotency_key or ""
        return CallKey(self.intent.tool_id, key, (self.agent_kind, self.agent_id))


class Approval(msgspec.Struct, frozen=True):
    """A request for approval and what became of it. Good for `uses_left` more calls of exactly these args."""

    asked: Asked
    proposal_id: str
    proposer: Actor
    policy_hash: str
    status: ApprovalStatus
    approver: Actor | None = None
    uses_left: int = 0
    good_until: str | None = None
    settled_seq: int | None = None


class GrantKey(NamedTuple):
    """What an approval covers: this agent, these exact args, this constraint, under this policy, of this tool as it is
    registered, in this case.
    """

    agent_id: str
    tool_id: str | None
    args_hash: str
    constraint: str
    policy_hash: str
    tool_hash: str | None
    case_id: str | None


class Parked(msgspec.Struct, frozen=True):
    """A deferred proposal: what it waits for, and until when."""

    proposal_id: str
    waits_for: tuple[str, ...]
    until: str
    # Of the belief sessions that it waits for: where they ended when it was last decided.
    belief: tuple[BeliefReading, ...] = ()


class PolicyChange(msgspec.Struct, frozen=True):
    """A change of policy and what became of it."""

    change_id: str
    proposer: Actor
    base_policy_hash: str
    set: dict[str, str]
    unset: tuple[str, ...]
    reason: str
    status: PolicyChangeStatus
    seq: int
    settled_by: Actor | None = None
    settled_seq: int | None = None
    # The file of a pending change; that of a settled one is in the log alone.
    source: PolicySource | None = None


class EvidenceKind(StrEnum):
    """What can speak for a claim. Confidence does not: it is a judgement of evidence, not evidence."""

    CHUNK = "chunk"
    EVENT = "event"


class SeenEvidence(NamedTuple):
    """One thing that a claim was based on: a chunk of a source, or an event, of a belief session or of this space."""

    kind: EvidenceKind
    id: str
    # Empty for an event of this space, and for a chunk: evidence is sorted.
    session_id: str = ""


class MemoryEntry(msgspec.Struct, frozen=True):
    """A claim in memory; `seq` and `ts` are of the step that put it, `changed_seq` of the newest on it."""

    entry_id: str
    kind: MemoryKind
    claim: bytes
    author: Actor
    evidence: Evidence
    conflict_state: ConflictState
    confirmed: bool
    seq: int
    ts: str
    changed_seq: int
    # When it goes, from `ttl_ms`; when it is to be looked at again.
    expires_at: str | None = None
    review_at: str | None = None
    expired: bool = False
    # Everything it was ever based on: evidence that a promotion brings must not be among it.
    seen_evidence: frozenset[SeenEvidence] = frozenset()
    # Who says that other claims speak against it, by id, and how much: `conflict_state` is the worst of these.
    disputes: dict[str, ConflictState] = {}


class OpenCallKey(NamedTuple):
    """What makes two calls the same: who makes them, in which case, of which tool, with which args; and under which
    idempotency key, or, of writing calls, under whichever.
    """

    actor: tuple[ActorKind, str]
    case_id: str | None
    tool_id: str
    args_hash: str
    idempotency_key: str | None


class AgentLoad(NamedTuple):
    """What an agent holds of a space.

    Proposals that are parked, requests for approval that are pending, calls that wait to be started, tokens that were
    issued under its own and not revoked, memory entries that have not expired. The bytes are those of the proposals
    that wait in any of these ways, and of the claims of these entries.
    """

    parked: int = 0
    asked: int = 0
    ready: int = 0
    tokens: int = 0
    memory_entries: int = 0
    waiting_bytes: int = 0
    memory_bytes: int = 0


class StateBytes(NamedTuple):
    """The bytes of the keys and values of a state, by the namespaces that proposals write."""

    goal: int = 0
    fact: int = 0


class Case(msgspec.Struct, frozen=True):
    """A belief session that was admitted to this space, as it was the last time. Its id is that of the session."""

    case_id: str
    # A canonical JSON object.
    attributes: bytes
    # Of those that the session lists, only these may act here; empty for all that it lists.
    agents: frozenset[str]
    opened_by: Actor
    seq: int
    ts: str
    status: CaseStatus = CaseStatus.OPEN
    closed_by: Actor | None = None
    closed_seq: int | None = None
    closed_ts: str | None = None
    reason: str = ""
    # As in the message: unset where there are none.
    title: str | msgspec.UnsetType = msgspec.UNSET
    labels: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    # Those that the session listed when the case was admitted; empty where it listed none.
    listed_agents: frozenset[str] = frozenset()

    @property
    def known_agents(self) -> frozenset[str]:
        """Who could act under it when it was admitted; the session may have changed its list since."""
        return self.agents or self.listed_agents


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """A space right after its head: what is open, and what was settled a moment ago (`retention`)."""

    space_id: str
    mode: Mode
    head: Head
    # All events up to the head, by their hashes.
    tree: EventTree
    # Under which keys and hashes all entries up to the head are found.
    key_digests: BucketDigests = BucketDigests()
    hash_digests: BucketDigests = BucketDigests()
    head_event_id: str
    # The seqs of the newest events by their ids, and what each did.
    events: Map[str, tuple[int, SpaceVerb]]
    # The event hash (hex) of the commit that produced `state`.
    snapshot_id: str
    state: Map[str, str]
    # The seq of the last change of each key, keys that are gone included; what is as the creation left it is not here.
    changed: Map[str, int] = Map()
    # The seqs of commits by the ids of their snapshots: the newest, and those that open proposals are based on.
    snapshots: Map[str, int]
    policy: Policy
    # How many times the policy was set: the first one is version 1.
    policy_version: int
    # The file that the policy was compiled from; None where it was changed by its keys since, or always was.
    policy_source: PolicySource | None = None
    tools: Map[str, Tool] = Map()
    capabilities: Map[str, Capability] = Map()
    revoked: Map[str, int] = Map()
    spent: Map[str, Spent] = Map()
    # How many there ever were.
    n_proposals: int = 0
    proposals: Map[str, ProposalRecord] = Map()
    executions: Map[str, Execution] = Map()
    running: Map[str, str] = Map()
    calls: Map[CallKey, str] = Map()
    approvals: Map[str, Approval] = Map()
    # Approvals with uses left, by what they cover.
    grants: Map[GrantKey, str] = Map()
    parked: Map[str, Parked] = Map()
    # Ids of parked proposals by what they wait for, with the end of their time. Thousands may wait for one key.
    waiting: Map[str, Map[str, str]] = Map()
    policy_changes: Map[str, PolicyChange] = Map()
    memory: Map[str, MemoryEntry] = Map()
    # Messages with an idempotency key: the seq of each and the fingerprint of what it said.
    requests: Map[RequestKey, tuple[int, bytes]] = Map()
    # Ids of memory entries by their claim: a claim under another id is still the same claim.
    claims: Map[bytes, frozenset[str]] = Map()
    cases: Map[str, Case] = Map()
    # The operator who wants the space to observe; it does once another one says the same.
    observe_asked_by: Actor | None = None
    # How many operators a change of policy takes.
    operators_needed: int = MAX_OPERATORS
    # The operator who wants one to be enough; it is once another one says the same.
    governance_asked_by: Actor | None = None
    # What follows from the rest: how much of the space each agent takes up, and how much the state does; the ids of the
    # tokens of each, and the proposals by the writing calls of theirs that are open.
    loads: Map[str, AgentLoad] = Map()
    state_bytes: StateBytes = StateBytes()
    tokens_of: Map[str, tuple[str, ...]] = Map()
    open_calls: Map[OpenCallKey, tuple[str, ...]] = Map()
