"""From one state of a space to the next: the only way there is, live and in replay.

Nothing is decided here. What a step came to is in its result; this is what that does to the space.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
from immutables import Map

from cmbs.ledger import Chronicle, Head
from cmbs.ledger.event_tree import EventTree
from cmbs.messages import Actor
from cmbs.substrate.kernel import memory
from cmbs.substrate.kernel.approvals import use_approvals, with_approval
from cmbs.substrate.kernel.arbitration.conflicts import after as state_after
from cmbs.substrate.kernel.events import (
    VERB_OF,
    Approve,
    CreateSpace,
    DisputeMemory,
    Expire,
    ExpiryOf,
    Intent,
    IssueCapability,
    MarkInDoubt,
    PromoteMemory,
    Propose,
    ProposePolicy,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    SetMode,
    SettlePolicy,
    SpaceEvent,
    SpaceMessage,
    SpaceVerb,
    Start,
    StepResult,
    Wake,
)
from cmbs.substrate.kernel.model import BeliefReading, Decision, Proposal, Spent, ToolCall
from cmbs.substrate.kernel.policy.policy import compile_policy
from cmbs.substrate.kernel.state import (
    Approval,
    ApprovalStatus,
    CallKey,
    Execution,
    ExecutionStatus,
    MemoryEntry,
    Parked,
    PolicyChange,
    PolicyChangeStatus,
    ProposalRecord,
    ProposalStatus,
    Space,
)
from cmbs.substrate.kernel.steps import fingerprint

# What a step changes of a space, by field.
ChangedFields = dict[str, Any]


def evolve(space: Space | None, event: SpaceEvent) -> Space:
    """The state after `event`."""
    body, message, result = event.body, event.message, event.result
    if space is None:
        if not isinstance(message, CreateSpace):
            raise TypeError(f"the first event creates the space, not {body.verb}")
        return _create(message, event)
    changed = _APPLY[type(message)](space, message, event) if result.granted else {}
    changed["head"] = Head(body.seq, event.stored.event_hash)
    changed["tree"] = space.tree.append(event.stored.event_hash)
    changed["v"] = body.v
    changed["events"] = space.events.append(body.event_id, VERB_OF[type(message)])
    if body.idempotency_key is not None:
        known = (body.seq, fingerprint(message, body.actor))
        changed["requests"] = space.requests.set(body.idempotency_key, known)
    changes = result.changes
    if changes.set or changes.unset:
        changed["snapshot_id"] = event.stored.event_hash.hex()
        changed["snapshots"] = space.snapshots.append(changed["snapshot_id"], body.seq)
        changed["state"] = state_after(space.state, changes)
        changed["changed"] = space.changed.update(dict.fromkeys((*changes.set, *changes.unset), body.seq))
    return msgspec.structs.replace(space, **changed)


def _set_mode(_: Space, message: SetMode, event: SpaceEvent) -> ChangedFields:
    if event.result.reason_code is not None:
        return {"observe_asked_by": event.body.actor}
    return {"mode": message.mode, "observe_asked_by": None}


def _propose_policy(space: Space, message: ProposePolicy, event: SpaceEvent) -> ChangedFields:
    change = PolicyChange(
        message.change_id,
        event.body.actor,
        message.base_policy_hash,
        message.set,
        tuple(message.unset),
        message.reason,
        PolicyChangeStatus.PENDING,
        event.body.seq,
    )
    return {"policy_changes": space.policy_changes.set(message.change_id, change)}


def _register_tool(space: Space, message: RegisterTool, event: SpaceEvent) -> ChangedFields:  # noqa: ARG001
    return {"tools": space.tools.set(message.tool.tool_id, message.tool)}


def _retire_tool(space: Space, message: RetireTool, event: SpaceEvent) -> ChangedFields:  # noqa: ARG001
    tool = msgspec.structs.replace(space.tools[message.tool_id], retired=True)
    return {"tools": space.tools.set(message.tool_id, tool)}


def _issue_capability(space: Space, message: IssueCapability, event: SpaceEvent) -> ChangedFields:  # noqa: ARG001
    token = message.capability
    return {"capabilities": space.capabilities.set(token.token_id, token)}


def _revoke_capability(space: Space, message: RevokeCapability, event: SpaceEvent) -> ChangedFields:
    return {"revoked": space.revoked.set(message.token_id, event.body.seq)}


def _create(message: CreateSpace, event: SpaceEvent) -> Space:
    body = event.body
    snapshot_id = event.stored.event_hash.hex()
    requests: Map[str, tuple[int, bytes]] = Map()
    if body.idempotency_key is not None:
        requests = requests.set(body.idempotency_key, (0, fingerprint(message, body.actor)))
    policy = compile_policy(message.policy)
    return Space(
        space_id=message.space_id,
        mode=message.mode,
        head=Head(0, event.stored.event_hash),
        tree=EventTree().append(event.stored.event_hash),
        v=event.body.v,
        events=Chronicle[str, SpaceVerb]().append(body.event_id, SpaceVerb.CREATE_SPACE),
        snapshot_id=snapshot_id,
        state=policy.pairs,
        snapshots=Chronicle[str, int]().append(snapshot_id, 0),
        policy=policy,
        policy_version=1,
        requests=requests,
    )


# --- proposals --------------------------------------------------------------------------------------------------------


def _propose(space: Space, message: Propose, event: SpaceEvent) -> ChangedFields:
    body, result, proposal = event.body, event.result, message.proposal
    decision, status = _decision(result), ProposalStatus(result.statuses[proposal.proposal_id])
    # A copy only where it is a part of a whole entry, which would be held with it.
    payload = body.payload.copy()
    record = ProposalRecord(payload, body.actor, body.seq, body.event_id, body.seq, decision, status, done=result.ran)
    return _follow_decision(space, record, proposal, result, body.seq, message.belief)


def _decide_again(
    space: Space, proposal_id: str, result: StepResult, seq: int, belief: list[BeliefReading]
) -> ChangedFields:
    """What a later decision on a proposal does."""
    before = space.proposals[proposal_id]
    record = msgspec.structs.replace(
        before,
        decided_seq=seq,
        decision=_decision(result),
        status=ProposalStatus(result.statuses[proposal_id]),
        done=before.done + result.ran,
    )
    return _follow_decision(space, record, before.message.proposal, result, seq, belief)


def _decision(result: StepResult) -> Decision:
    if result.decision is None:  # pragma: no cover - a proposal is always decided
        raise TypeError("a proposal without a decision")
    return result.decision


def _follow_decision(
    space: Space,
    record: ProposalRecord,
    proposal: Proposal,
    result: StepResult,
    seq: int,
    belief: list[BeliefReading],
) -> ChangedFields:
    """What follows from a decision on a proposal: executions, requests for approval, parking."""
    proposal_id = proposal.proposal_id
    approvals = space.approvals
    for asked in result.asked:
        approval = Approval(asked, proposal_id, record.actor, record.decision.policy_hash, ApprovalStatus.PENDING)
        approvals = approvals.set(asked.approval_id, approval)
    grants, approvals = use_approvals(space.grants, approvals, result.used_approvals)
    begun = [intent.execution_id for intent in result.intents]
    record = msgspec.structs.replace(
        record,
        execution_ids=(*record.execution_ids, *begun, *result.answered_by.values()),
        approval_ids=(*record.approval_ids, *(asked.approval_id for asked in result.asked)),
        answered_by=(*record.answered_by, *((int(at), known) for at, known in result.answered_by.items())),
    )
    parked = None
    if result.parked_until is not None:
        sessions = tuple(sorted(belief, key=lambda reading: reading.session_id))
        parked = Parked(proposal_id, result.waits_for, result.parked_until, sessions)
    return {
        "proposals": space.proposals.set(proposal_id, record),
        "approvals": approvals,
        "grants": grants,
        **_begin(space, record.actor, proposal, result, seq),
        **_parking(space, proposal_id, parked),
    }


def _begin(space: Space, actor: Actor, proposal: Proposal, result: StepResult, seq: int) -> ChangedFields:
    """Executions that may begin, and those of others that are waited for."""
    executions, running, calls, spent = space.executions, space.running, space.calls, space.spent
    for intent in result.intents:
        call = proposal.candidates[intent.candidate]
        if not isinstance(call, ToolCall):  # pragma: no cover - only calls begin
            raise TypeError(call)
        args = bytes(call.args)
        tool = space.tools[call.tool_id]
        execution = Execution(intent, proposal.proposal_id, actor.id, tool, args, ExecutionStatus.RUNNING, seq)
        executions = executions.set(intent.execution_id, execution)
        running = running.set(intent.execution_id, intent.deadline)
        if intent.idempotency_key is not None:
            calls = calls.set(CallKey(intent.tool_id, intent.idempotency_key), intent.execution_id)
        spent = _charge(space, spent, intent, Spent(calls=1, bytes=len(args)))
    for execution_id in result.answered_by.values():
        execution = executions[execution_id]
        if execution.settled_seq is None:
            awaited_by = (*execution.awaited_by, proposal.proposal_id)
            executions = executions.set(execution_id, msgspec.structs.replace(execution, awaited_by=awaited_by))
    return {"executions": executions, "running": running, "calls": calls, "spent": spent}


def _charge(space: Space, spent: Map[str, Spent], intent: Intent, more: Spent) -> Map[str, Spent]:
    """Charge a token and every one that it was issued under."""
    token_id = intent.capability_token_id
    while token_id is not None:
        before = spent.get(token_id) or Spent()
        spent = spent.set(
            token_id, Spent(before.calls + more.calls, before.bytes + more.bytes, before.wall_ms + more.wall_ms)
        )
        token = space.capabilities.get(token_id)
        token_id = None if token is None else token.parent_id
    return spent


def _parking(space: Space, proposal_id: str, parked: Parked | None) -> ChangedFields:
    """The proposal parked as this says, or not at all; and the index of who waits for what."""
    before = space.parked.get(proposal_id)
    if before is None and parked is None:
        return {}
    waiting = space.waiting
    for key in () if before is None else before.waits_for:
        left = waiting[key].delete(proposal_id)
        waiting = waiting.set(key, left) if left else waiting.delete(key)
    if parked is None:
        return {"parked": space.parked.delete(proposal_id), "waiting": waiting}
    for key in parked.waits_for:
        waiting = waiting.set(key, waiting.get(key, Map()).set(proposal_id, parked.until))
    return {"parked": space.parked.set(proposal_id, parked), "waiting": waiting}


# --- approvals --------------------------------------------------------------------------------------------------------


def _wake(space: Space, message: Wake, event: SpaceEvent) -> ChangedFields:
    return _decide_again(space, message.proposal_id, event.result, event.body.seq, message.belief)


def _approve(space: Space, message: Approve, event: SpaceEvent) -> ChangedFields:
    granted = with_approval(space, message, event.body.actor, event.body.seq)
    proposal_id = granted.approvals[message.approval_id].proposal_id
    return _decide_again(granted, proposal_id, event.result, event.body.seq, message.belief)


def _reject(space: Space, message: Reject, event: SpaceEvent) -> ChangedFields:
    return _turn_down(space, message.approval_id, ApprovalStatus.REJECTED, event)


def _turn_down(space: Space, approval_id: str, status: ApprovalStatus, event: SpaceEvent) -> ChangedFields:
    """A request that was answered with no, or not at all, takes the others of its proposal with it."""
    proposal_id = space.approvals[approval_id].proposal_id
    record = space.proposals[proposal_id]
    approvals = space.approvals
    for known in record.approval_ids:
        approval = approvals[known]
        if approval.status is ApprovalStatus.PENDING:
            settled = msgspec.structs.replace(
                approval, status=status, approver=event.body.actor, settled_seq=event.body.seq
            )
            approvals = approvals.set(known, settled)
    return {
        "approvals": approvals,
        **_with_statuses(space, event.result),
        **_parking(space, proposal_id, None),
    }


def _with_statuses(space: Space, result: StepResult) -> ChangedFields:
    proposals = space.proposals
    for proposal_id, status in result.statuses.items():
        record = msgspec.structs.replace(proposals[proposal_id], status=ProposalStatus(status))
        proposals = proposals.set(proposal_id, record)
    return {"proposals": proposals}


def _expire(space: Space, message: Expire, event: SpaceEvent) -> ChangedFields:
    if message.of is ExpiryOf.APPROVAL:
        return _turn_down(space, message.id, ApprovalStatus.EXPIRED, event)
    if message.of is ExpiryOf.PARKED:
        return _with_statuses(space, event.result) | _parking(space, message.id, None)
    entry = memory.expire(space.memory, message.id, event.body.seq, event.body.ts)
    return _keep_entry(space, entry)


# --- executions -------------------------------------------------------------------------------------------------------


def _record_outcome(space: Space, message: RecordOutcome, event: SpaceEvent) -> ChangedFields:
    result, seq = event.result, event.body.seq
    execution = space.executions[message.execution_id]
    outcome = result.outcome or message.status
    taken = b"null" if result.outcome is not None else bytes(message.result)
    settled = msgspec.structs.replace(
        execution,
        status=ExecutionStatus(outcome.value),
        settled_seq=seq,
        outcome=outcome,
        result=taken,
        result_hash=sha256(taken).hexdigest(),
        error=message.error,
        duration_ms=message.duration_ms,
    )
    more = Spent(bytes=message.result_bytes, wall_ms=message.duration_ms)
    running = space.running
    if message.execution_id in running:
        running = running.delete(message.execution_id)
    return {
        "executions": space.executions.set(message.execution_id, settled),
        "running": running,
        "spent": _charge(space, space.spent, execution.intent, more),
        **_with_statuses(space, result),
    }


def _start_again(space: Space, message: Start, event: SpaceEvent) -> ChangedFields:
    (intent,) = event.result.intents
    execution = msgspec.structs.replace(
        space.executions[message.execution_id], intent=intent, status=ExecutionStatus.RUNNING
    )
    return {
        "executions": space.executions.set(message.execution_id, execution),
        "running": space.running.set(message.execution_id, intent.deadline),
    }


def _mark_in_doubt(space: Space, message: MarkInDoubt, event: SpaceEvent) -> ChangedFields:  # noqa: ARG001
    execution = msgspec.structs.replace(space.executions[message.execution_id], status=ExecutionStatus.IN_DOUBT)
    return {
        "executions": space.executions.set(message.execution_id, execution),
        "running": space.running.delete(message.execution_id),
    }


# --- policy and memory ------------------------------------------------------------------------------------------------


def _settle_policy(space: Space, message: SettlePolicy, event: SpaceEvent) -> ChangedFields:
    change = space.policy_changes[message.change_id]
    status = PolicyChangeStatus.APPLIED if message.authorise else PolicyChangeStatus.REJECTED
    settled = msgspec.structs.replace(change, status=status, settled_by=event.body.actor, settled_seq=event.body.seq)
    fields: ChangedFields = {"policy_changes": space.policy_changes.set(message.change_id, settled)}
    if not message.authorise:
        return fields
    policy = space.policy.change(change.set, change.unset)
    # Who wanted to set the policy aside meant the one that there was.
    fields |= {"policy": policy, "policy_version": space.policy_version + 1, "observe_asked_by": None}
    threshold = policy.memory_threshold_milli
    if threshold != space.policy.memory_threshold_milli:
        entries, claims = space.memory, space.claims
        for entry in memory.judge_again(space.memory.values(), event.body.seq, event.body.ts, threshold):
            entries, claims = memory.keep(entries, claims, entry)
        fields |= {"memory": entries, "claims": claims}
    return fields


def judge_memory(
    space: Space, message: PutMemory | PromoteMemory | DisputeMemory, actor: Actor, seq: int, ts: str
) -> MemoryEntry | memory.MemoryReason:
    """What memory's own rules say of a message."""
    threshold = space.policy.memory_threshold_milli
    if isinstance(message, PutMemory):
        return memory.put(space.memory, space.claims, message, actor, seq, ts, threshold)
    if isinstance(message, PromoteMemory):
        return memory.promote(space.memory, message, seq, ts, threshold)
    return memory.dispute(space.memory, message, seq, ts, threshold)


def _change_memory(
    space: Space, message: PutMemory | PromoteMemory | DisputeMemory, event: SpaceEvent
) -> ChangedFields:
    body = event.body
    return _keep_entry(space, judge_memory(space, message, body.actor, body.seq, body.ts))


def _keep_entry(space: Space, entry: MemoryEntry | memory.MemoryReason) -> ChangedFields:
    if isinstance(entry, memory.MemoryReason):  # pragma: no cover - a refused step is not carried out
        raise TypeError(entry)
    entries, claims = memory.keep(space.memory, space.claims, entry)
    return {"memory": entries, "claims": claims}


_APPLY: dict[type[SpaceMessage], Callable[..., ChangedFields]] = {
    Propose: _propose,
    RecordOutcome: _record_outcome,
    Wake: _wake,
    Approve: _approve,
    Reject: _reject,
    Expire: _expire,
    Start: _start_again,
    MarkInDoubt: _mark_in_doubt,
    PutMemory: _change_memory,
    PromoteMemory: _change_memory,
    DisputeMemory: _change_memory,
    SetMode: _set_mode,
    ProposePolicy: _propose_policy,
    SettlePolicy: _settle_policy,
    RegisterTool: _register_tool,
    RetireTool: _retire_tool,
    IssueCapability: _issue_capability,
    RevokeCapability: _revoke_capability,
}
