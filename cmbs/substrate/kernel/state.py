"""Everything a space knows, as an immutable value; the next one shares what is the same."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from immutables import Map

from cmbs.ledger import Chronicle, Head
from cmbs.ledger.event_tree import EventTree
from cmbs.substrate.kernel.events import (
    Asked,
    ConflictState,
    Evidence,
    Intent,
    MemoryKind,
    Mode,
    OutcomeStatus,
    Propose,
    SpaceVerb,
)
from cmbs.substrate.kernel.model import Actor, BeliefReading, Capability, Decision, Spent, Tool

if TYPE_CHECKING:
    from cmbs.substrate.kernel.policy.policy import Policy


class CallKey(NamedTuple):
    """A call that runs at most once."""

    tool_id: str
    idempotency_key: str


class ProposalStatus(StrEnum):
    """Where a proposal stands."""

    DENIED = "denied"
    ASKED = "asked"
    PARKED = "parked"
    # Allowed, with executions that have no outcome yet.
    RUNNING = "running"
    COMMITTED = "committed"
    # Allowed, but an execution failed, or the state had moved when the deltas were to be committed.
    FAILED = "failed"
    EXPIRED = "expired"
    REJECTED = "rejected"


class ProposalRecord(msgspec.Struct, frozen=True, array_like=True):
    """A proposal and the newest decision on it; `seq` is that of the PROPOSE entry, `decided_seq` of the decision.

    The message is kept as the bytes that were recorded. A space holds every proposal that was ever made of it, and few
    are looked at again: as objects they would take more memory, and every look for garbage would go through them all.
    So of the encodings of msgspec, JSON alone can be used for it.
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

    @property
    def message(self) -> Propose:
        """What was proposed; decoded each time."""
        return _PROPOSE.decode(self.payload)


_PROPOSE = msgspec.json.Decoder(Propose)


class ExecutionStatus(StrEnum):
    """Where an execution stands."""

    RUNNING = "running"
    IN_DOUBT = "in_doubt"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    RESULT_REFUSED = "result_refused"


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


class ApprovalStatus(StrEnum):
    """Where a request for approval stands."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


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
    """What an approval covers: this agent, these exact args, this constraint, under this policy."""

    agent_id: str
    tool_id: str | None
    args_hash: str
    constraint: str
    policy_hash: str


class Parked(msgspec.Struct, frozen=True):
    """A deferred proposal: what it waits for, and until when."""

    proposal_id: str
    waits_for: tuple[str, ...]
    until: str
    # Of the belief sessions that it waits for: where they ended when it was last decided.
    belief: tuple[BeliefReading, ...] = ()


class PolicyChangeStatus(StrEnum):
    """Where a proposed change of policy stands."""

    PENDING = "pending"
    APPLIED = "applied"
    REJECTED = "rejected"


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


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """A space right after its head."""

    space_id: str
    mode: Mode
    head: Head
    # All events up to the head, by their hashes.
    tree: EventTree
    # The version of the newest entry.
    v: int
    # Event ids in the order of the stream, and what each did.
    events: Chronicle[str, SpaceVerb]
    # The event hash (hex) of the commit that produced `state`.
    snapshot_id: str
    state: Map[str, str]
    # The seq of the last change of each key, keys that are gone included; what is as the creation left it is not here.
    changed: Map[str, int] = Map()
    # Snapshot ids and the seq of their commits.
    snapshots: Chronicle[str, int]
    policy: Policy
    # How many times the policy was set: the first one is version 1.
    policy_version: int
    tools: Map[str, Tool] = Map()
    capabilities: Map[str, Capability] = Map()
    revoked: Map[str, int] = Map()
    spent: Map[str, Spent] = Map()
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
    requests: Map[str, tuple[int, bytes]] = Map()
    # Ids of memory entries by their claim: a claim under another id is still the same claim.
    claims: Map[bytes, frozenset[str]] = Map()
    # The operator who wants the space to observe; it does once another one says the same.
    observe_asked_by: Actor | None = None

    @property
    def head_event_id(self) -> str:
        """The id of the newest event."""
        return self.events.at(self.head.seq)[0]
