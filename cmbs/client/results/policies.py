"""Answers about policies, explanations, memory and checkpoints."""

from __future__ import annotations

from typing import Any

from msgspec import field

from cmbs.client.results.belief import RecordedActor, Result
from cmbs.client.results.spaces import ApprovalRequest, Decision, Execution, TraceStep
from cmbs.refusals import Refusal


class PolicySource(Result, frozen=True):
    """A policy file as it was written. What it was compiled to is recorded beside it, and is what decides."""

    media_type: str
    text: str


class PolicyPage(Result, frozen=True):
    """A page of the policy, sorted by key; the first page has the file that it was compiled from, if there is one."""

    policy_hash: str
    policy_version: int
    pairs: dict[str, str]
    next_cursor: str | None
    source: PolicySource | None = None


class PolicyPut(Result, frozen=True):
    """A policy file that was put: what it changes, and whether it is in force. `next` says what it waits for."""

    status: str
    base_policy_hash: str
    policy_hash: str
    set: list[str]
    unset: list[str]
    change_id: str | None = None
    next: str | None = None


class PolicyFix(Result, frozen=True):
    """What to write in place of `found`, which stands at this place of the file."""

    line: int
    column: int
    found: str
    accepted: str


class PolicyFinding(Result, frozen=True):
    """Something in a policy file: what, where, and the condition that stands there. `name` is that of the rule."""

    severity: str
    rule: str
    message: str
    line: int | None = None
    column: int | None = None
    key: str | None = None
    name: str | None = None
    condition: str | None = None
    fix: PolicyFix | None = None


class Mismatch(Result, frozen=True):
    """Something that is not as it was expected: where, what was expected, what there is."""

    at: str
    expected: Any
    found: Any


class PolicyTest(Result, frozen=True):
    """What came of a test of a policy file."""

    name: str
    passed: bool
    mismatches: list[Mismatch]


class PolicyCheck(Result, frozen=True):
    """What a policy file would do. Where it is not `sound`, it would be refused or does what its author cannot mean."""

    sound: bool
    findings: list[PolicyFinding]
    tests: list[PolicyTest] = field(default_factory=list)
    never_asked: list[str] = field(default_factory=list)
    policy_hash: str | None = None
    set: list[str] = field(default_factory=list)
    unset: list[str] = field(default_factory=list)


class PolicyPlace(Result, frozen=True):
    """Where in the policy file something stands; `condition` is what is written there, of a condition."""

    line: int
    column: int
    rule: str
    condition: str | None = None


class Speaker(Result, frozen=True):
    """A constraint, group or invariant that made the verdict, and everything that its predicates looked at."""

    key: str
    value: str | None = None
    reason: str | None = None
    steps: list[TraceStep] = field(default_factory=list)
    origin: PolicyPlace | None = None
    origins: dict[str, PolicyPlace] = field(default_factory=dict)


class Because(Result, frozen=True):
    """Why one candidate was decided as it was."""

    candidate: int
    verdict: str
    reason_code: str
    stage: str | None = None
    failure: str | None = None
    speakers: list[Speaker] = field(default_factory=list)
    approvable: bool = False
    observed: list[Speaker] = field(default_factory=list)


class Change(Result, frozen=True):
    """One fact that would have to be otherwise: a state key, or `$belief.<session_id>.<field>`."""

    reference: str
    now: str | None = None
    to: str | None = None
    withheld: bool = False


class Flip(Result, frozen=True):
    """The smallest change of facts that turns the decision, and how good that answer is."""

    status: str
    changes: list[Change] = field(default_factory=list)
    verdict: str | None = None
    ruled_out: int = 0
    note: str | None = None


class Explanation(Result, frozen=True):
    """A decision, its reasons, and the smallest change of facts that would change it. Nothing is recorded."""

    decision: Decision
    because: list[Because]
    flip: Flip
    withheld: int
    recorded: bool
    refusals: list[Refusal] | None = None


class PolicyChange(Result, frozen=True):
    """A proposed change of policy and its status."""

    change_id: str
    status: str
    proposer: RecordedActor
    base_policy_hash: str
    unset: list[str]
    reason: str
    seq: int
    settled_by: RecordedActor | None
    settled_seq: int | None
    source: PolicySource | None
    set: dict[str, str] = field(default_factory=dict)


class PolicyChangesPage(Result, frozen=True):
    """A page of policy changes, the oldest first."""

    changes: list[PolicyChange]
    next_cursor: str | None


class Evidence(Result, frozen=True):
    """What a claim rests on. `confidence` is in thousandths: a ledger has no use for floats."""

    source_chunk_ids: list[str] = field(default_factory=list)
    confidence_milli: int = 0
    confirmed_by_event_id: str | None = None
    confirmed_in_session_id: str | None = None


class MemoryEntry(Result, frozen=True):
    """A claim in memory."""

    entry_id: str
    kind: str
    claim: Any
    author: RecordedActor
    evidence: Evidence
    conflict_state: str
    disputes: dict[str, str]
    confirmed: bool
    ts: str
    expires_at: str | None
    review_at: str | None
    expired: bool
    seq: int


class MemoryPage(Result, frozen=True):
    """A page of memory, the oldest first."""

    memory: list[MemoryEntry]
    next_cursor: str | None


class SignedCheckpoint(Result, frozen=True):
    """A signed checkpoint. `note` is all of it; the other fields repeat what its text says. `root` is in hex."""

    note: str
    origin: str
    size: int
    root: str
    format: str = "cmbs/1/proof"
    kind: str = "checkpoint"


class LogKey(Result, frozen=True):
    """A public key of a log, and until when it signed."""

    vkey: str
    created_ts: str
    retired_ts: str | None = None
    retired_size: int | None = None
    succession: str | None = None


class LogKeys(Result, frozen=True):
    """The keys of a log, the oldest first; the last one signs."""

    origin: str
    keys: list[LogKey]
    format: str = "cmbs/1/checkpoint-keys"


class ConsistencyProof(Result, frozen=True):
    """That the tree of the note continues the tree of the first `from_size` records. Hashes are in hex."""

    note: str
    from_size: int
    size: int
    path: list[str]
    format: str = "cmbs/1/proof"
    kind: str = "checkpoint-consistency"


class RecordProof(Result, frozen=True):
    """That the tree of the note has the `entry` at `leaf_index`."""

    note: str
    leaf_index: int
    size: int
    entry: dict[str, Any]
    path: list[str]
    format: str = "cmbs/1/proof"
    kind: str = "checkpoint-record"


class Waiting(Result, frozen=True):
    """One thing that waits for a person; with its record, where it has one."""

    space_id: str
    kind: str
    id: str
    seq: int
    asked_by: str
    case_id: str | None
    case_title: str | None
    expires_at: str | None
    approval: ApprovalRequest | None = None
    execution: Execution | None = None
    policy_change: PolicyChange | None = None


class InboxPage(Result, frozen=True):
    """A page of what waits, by space and then the oldest first."""

    waiting: list[Waiting]
    next_cursor: str | None
