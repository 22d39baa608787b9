"""What of a space is held in its state: what is open, and what was settled a moment ago.

At the end of every epoch of a stream, what has been settled for a while leaves the state. It stays in the ledger. A
decision that needs something of it has that looked up beforehand, and records what was found: `with_recalled` puts it
back, live and in replay. A whole log is verified on a state that nothing ever left (`advance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from immutables import Map

from cmbs.substrate.kernel.events import Approve, Intent, KnownCall, Propose, SpaceMessage, Wake
from cmbs.substrate.kernel.model import ToolKind
from cmbs.substrate.kernel.state import Approval, CallKey, Execution, ProposalRecord, RequestKey, Space
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus, ProposalStatus

# How often what is settled leaves the state: after each so many entries, so that the state at a digest point is small.
EPOCH_EVENTS = 1_000
# How long it stays at least. Commands that were prepared that long ago can still be decided: a group has no more.
KEPT_EVENTS = 256
UNSETTLED = frozenset({ProposalStatus.RUNNING, ProposalStatus.READY, ProposalStatus.ASKED, ProposalStatus.PARKED})

K = TypeVar("K")
V = TypeVar("V")


def waits_for_caller(space: Space, record: ProposalRecord) -> bool:
    """Whether a proposal has a call that its own caller is to run, and to report."""
    runs = (space.executions[execution_id] for execution_id in record.execution_ids)
    return any(
        run.status in (ExecutionStatus.READY, ExecutionStatus.RUNNING)
        and run.tool.kind is ToolKind.CALLER
        and isinstance(run.tool.executor, msgspec.UnsetType)
        for run in runs
    )


def last_dropped(head_seq: int) -> int:
    """What was settled at this seq or before may have left the state whose head is at `head_seq`; -1: nothing has."""
    ended = (head_seq + 1) // EPOCH_EVENTS * EPOCH_EVENTS - 1
    return max(-1, ended - KEPT_EVENTS)


def drop_settled(space: Space) -> Space:
    """The state without what was settled some time before an epoch that ends here; itself within an epoch."""
    if (space.head.seq + 1) % EPOCH_EVENTS:
        return space
    limit = last_dropped(space.head.seq)
    proposals = _without(
        space.proposals,
        (
            each
            for each, record in space.proposals.items()
            if record.status not in UNSETTLED and record.changed_seq <= limit
        ),
    )
    named = {execution_id for record in proposals.values() for execution_id in record.execution_ids}
    executions = _without(
        space.executions,
        (
            each
            for each, execution in space.executions.items()
            if execution.settled_seq is not None and execution.settled_seq <= limit and each not in named
        ),
    )
    approvals = _without(
        space.approvals,
        (
            each
            for each, approval in space.approvals.items()
            if approval.proposal_id not in proposals and _is_over(approval)
        ),
    )
    seen = {space.snapshot_id, *(record.snapshot_id for record in proposals.values())}
    snapshots = space.snapshots
    return msgspec.structs.replace(
        space,
        proposals=proposals,
        executions=executions,
        approvals=approvals,
        calls=_without(space.calls, (key for key, each in space.calls.items() if each not in executions)),
        grants=_without(space.grants, (key for key, each in space.grants.items() if each not in approvals)),
        events=_without(space.events, (each for each, step in space.events.items() if step[0] <= limit)),
        snapshots=_without(snapshots, (each for each, seq in snapshots.items() if seq <= limit and each not in seen)),
        requests=_without(space.requests, (key for key, known in space.requests.items() if known[0] <= limit)),
    )


def _is_over(approval: Approval) -> bool:
    """Whether a request for approval was answered, and the answer covers nothing any more.

    One that can still be used stays: how often it was used is in no single entry.
    """
    is_pending = approval.status is ApprovalStatus.PENDING
    is_good = approval.status is ApprovalStatus.APPROVED and approval.uses_left > 0
    return not is_pending and not is_good


def _without(records: Map[K, V], gone: Iterable[K]) -> Map[K, V]:
    names = list(gone)
    if not names:
        return records
    left = records.mutate()
    for name in names:
        del left[name]
    return left.finish()


# --- what is put back -------------------------------------------------------------------------------------------------


class Unknown(msgspec.Struct, frozen=True):
    """What a command names and the state does not hold: it never was, or it has left."""

    proposal_id: str | None = None
    approval_id: str | None = None
    execution_id: str | None = None
    idempotency_key: str | None = None
    snapshot_id: str | None = None
    calls: tuple[CallKey, ...] = ()


NOTHING = Unknown()


class Recalled(msgspec.Struct, frozen=True):
    """Records of the past that a message repeats, or contradicts: nothing is recorded of a message that does.

    So they are no part of the message, and of no state.
    """

    proposals: Mapping[str, ProposalRecord] = {}
    executions: Mapping[str, Execution] = {}
    approvals: Mapping[str, Approval] = {}
    requests: Mapping[RequestKey, tuple[int, bytes]] = {}
    # Under what the executions are found.
    calls: Mapping[CallKey, str] = {}


def with_records(space: Space, recalled: Recalled) -> Space:
    """The space with these records in it."""
    return msgspec.structs.replace(
        space,
        proposals=space.proposals.update(recalled.proposals),
        executions=space.executions.update(recalled.executions),
        approvals=space.approvals.update(recalled.approvals),
        requests=space.requests.update(recalled.requests),
    )


def has_recalled(message: object) -> bool:
    """Whether a message, or what becomes one, carries something of the past."""
    if isinstance(message, Propose) and message.snapshot_seq is not msgspec.UNSET:
        return True
    return getattr(message, "known_calls", msgspec.UNSET) is not msgspec.UNSET


def with_recalled(space: Space, message: SpaceMessage) -> Space:
    """The space with what the message carries of the past: what a decision on it is made on, and leads on from.

    What the state still has is not replaced.
    """
    if not isinstance(message, (Propose, Wake, Approve)):
        return space
    if isinstance(message, Propose) and isinstance(message.snapshot_seq, int):
        snapshot_id = message.proposal.state_snapshot_id
        if snapshot_id not in space.snapshots:
            space = msgspec.structs.replace(space, snapshots=space.snapshots.set(snapshot_id, message.snapshot_seq))
    if isinstance(message.known_calls, msgspec.UnsetType):
        return space
    calls, executions = space.calls, space.executions
    for known in message.known_calls:
        key = key_of(known)
        if key not in calls and known.tool_id in space.tools:
            calls = calls.set(key, known.execution_id)
            executions = executions.set(known.execution_id, _outline(space, known))
    return msgspec.structs.replace(space, calls=calls, executions=executions)


def key_of(known: KnownCall) -> CallKey:
    """Under what an execution is found."""
    return CallKey(known.tool_id, known.idempotency_key, (known.agent_kind, known.agent_id))


def _outline(space: Space, known: KnownCall) -> Execution:
    """As much of an execution as decides whether it answers a call."""
    intent = Intent(
        known.execution_id,
        known.candidate,
        known.tool_id,
        known.args_hash,
        known.deadline,
        known.attempt,
        known.capability_token_id,
        known.idempotency_key,
    )
    return Execution(
        intent,
        known.proposal_id,
        known.agent_id,
        space.tools[known.tool_id],
        b"",
        ExecutionStatus(known.outcome.value),
        known.started_seq,
        known.settled_seq,
        known.outcome,
        is_outline=True,
        agent_kind=known.agent_kind,
    )


def outline_of(execution: Execution, key: CallKey) -> KnownCall | None:
    """What a message carries of an execution that was settled, and is found under this key; None while it is open."""
    intent, outcome, settled_seq = execution.intent, execution.outcome, execution.settled_seq
    if outcome is None or settled_seq is None:
        return None
    return KnownCall(
        execution_id=intent.execution_id,
        agent_id=execution.agent_id,
        agent_kind=execution.agent_kind,
        args_hash=intent.args_hash,
        attempt=intent.attempt,
        candidate=intent.candidate,
        capability_token_id=intent.capability_token_id,
        deadline=intent.deadline,
        idempotency_key=key.idempotency_key,
        outcome=outcome,
        proposal_id=execution.proposal_id,
        settled_seq=settled_seq,
        started_seq=execution.started_seq,
        tool_id=intent.tool_id,
    )


def find_false_recall(whole: Space, message: SpaceMessage) -> str | None:
    """What a message carries of the past that a state, which nothing ever left, does not bear out; None: nothing."""
    if isinstance(message, Propose) and isinstance(message.snapshot_seq, int):
        is_there = whole.snapshots.get(message.proposal.state_snapshot_id) == message.snapshot_seq
        if not is_there:
            return f"snapshot `{message.proposal.state_snapshot_id}` is not that of event {message.snapshot_seq}"
    if not isinstance(message, (Propose, Wake, Approve)) or isinstance(message.known_calls, msgspec.UnsetType):
        return None
    for known in message.known_calls:
        key = key_of(known)
        execution = whole.executions.get(whole.calls.get(key, ""))
        if execution is None or outline_of(execution, key) != known:
            return f"execution `{known.execution_id}` is not as it says"
    return None
