"""From one state of a space to the next: the only way there is, live and in replay.

Nothing is decided here. What a step came to is in its result; this is what that does to the space.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from immutables import Map

from cmbs.ledger import Head
from cmbs.ledger.event_tree import EventTree
from cmbs.ledger.lookup_keys import lookup_keys
from cmbs.ledger.tagged_hash import Domain, hash_tagged
from cmbs.messages import Actor
from cmbs.substrate.kernel import memory
from cmbs.substrate.kernel.approvals import settle_approvals, use_approvals, with_approval
from cmbs.substrate.kernel.arbitration.conflicts import after as state_after
from cmbs.substrate.kernel.calls import is_run_by_server, update_open_calls
from cmbs.substrate.kernel.events import (
    VERB_OF,
    Approve,
    CloseCase,
    CreateSpace,
    DisputeMemory,
    Expire,
    ExpiryOf,
    Intent,
    IssueCapability,
    MarkInDoubt,
    OpenCase,
    PolicySource,
    PromoteMemory,
    Propose,
    ProposePolicy,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    SetGovernance,
    SetMode,
    SettlePolicy,
    SpaceEvent,
    SpaceMessage,
    SpaceVerb,
    Start,
    StepResult,
    Wake,
    Withdraw,
)
from cmbs.substrate.kernel.key_digests import HASH_BUCKETS, LOOKUP_BUCKETS, BucketDigests, hash_key
from cmbs.substrate.kernel.loads import update_loads, update_state_bytes
from cmbs.substrate.kernel.memory_steps import change_memory, keep_entry
from cmbs.substrate.kernel.model import BeliefReading, Decision, Proposal, Spent, ToolCall
from cmbs.substrate.kernel.policy.policy import compile_policy
from cmbs.substrate.kernel.proposals import release_key, take_back
from cmbs.substrate.kernel.retention import drop_settled, with_recalled
from cmbs.substrate.kernel.state import (
    MAX_OPERATORS,
    Approval,
    CallKey,
    Execution,
    Parked,
    PolicyChange,
    ProposalRecord,
    RequestKey,
    Space,
)
from cmbs.substrate.kernel.steps import fingerprint
from cmbs.substrate.kernel.waiting_records import (
    ChangedFields,
    close_case,
    end_waiting,
    open_case,
    park,
    with_statuses,
)
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus, PolicyChangeStatus, ProposalStatus


def evolve(space: Space | None, event: SpaceEvent) -> Space:
    """The state after `event`. What was settled before an epoch that ends with it leaves."""
    return drop_settled(advance(space, event))


def advance(space: Space | None, event: SpaceEvent) -> Space:
    """The state after `event`, with all that there was."""
    body, message, result = event.body, event.message, event.result
    if space is None:
        if not isinstance(message, CreateSpace):
            raise TypeError(f"the first event creates the space, not {body.verb}")
        return _create(message, event)
    space = with_recalled(space, message)
    changed = apply(space, event) if result.granted else {}
    changed["head"] = Head(body.seq, event.stored.event_hash)
    changed["head_event_id"] = body.event_id
    changed["tree"] = space.tree.append(event.stored.event_hash)
    stored = event.stored
    changed["key_digests"] = LOOKUP_BUCKETS.add(space.key_digests, body.seq, lookup_keys(stored.raw))
    changed["hash_digests"] = HASH_BUCKETS.add(space.hash_digests, body.seq, [hash_key(stored.event_hash)])
    changed["events"] = space.events.set(body.event_id, (body.seq, VERB_OF[type(message)]))
    if body.idempotency_key is not None:
        known = (body.seq, fingerprint(message, body.actor))
        changed["requests"] = space.requests.set(request_key(event), known)
    changes = result.changes
    if changes.set or changes.unset:
        changed["snapshot_id"] = event.stored.event_hash.hex()
        changed["snapshots"] = space.snapshots.set(changed["snapshot_id"], body.seq)
        changed["state"] = state_after(space.state, changes)
        changed["state_bytes"] = update_state_bytes(space.state_bytes, space.state, changes)
        changed["changed"] = space.changed.update(dict.fromkeys((*changes.set, *changes.unset), body.seq))
    after = msgspec.structs.replace(space, **changed)
    loads, open_calls = update_loads(space, after, event), update_open_calls(space, after, event)
    if loads is space.loads and open_calls is space.open_calls:
        return after
    return msgspec.structs.replace(after, loads=loads, open_calls=open_calls)


def request_key(event: SpaceEvent) -> RequestKey:
    """Under what an idempotency key is taken: for its actor alone."""
    actor = event.body.actor
    return RequestKey(event.body.idempotency_key or "", (actor.kind, actor.id))


def _set_governance(_: Space, message: SetGovernance, event: SpaceEvent) -> ChangedFields:
    if event.result.reason_code is not None:
        return {"governance_asked_by": event.body.actor}
    return {"operators_needed": message.operators_needed, "governance_asked_by": None}


def apply(space: Space, event: SpaceEvent) -> ChangedFields:
    """What a granted step changes of the records of a space, beside the state map and the place in the stream."""
    changed: ChangedFields = {}
    if event.result.not_started:
        changed = _end_unstarted(space, event)
        space = msgspec.structs.replace(space, **changed)
    changed = changed | _APPLY[type(event.message)](space, event.message, event)
    if event.result.statuses:
        proposals = changed.get("proposals", space.proposals)
        for proposal_id in event.result.statuses:
            moved = msgspec.structs.replace(proposals[proposal_id], changed_seq=event.body.seq)
            proposals = proposals.set(proposal_id, moved)
        changed["proposals"] = proposals
    return changed


def _end_unstarted(space: Space, event: SpaceEvent) -> ChangedFields:
    """The executions that a step ends before they were started: another call may be made under their keys."""
    proposals: Map[str, ProposalRecord] = with_statuses(space, event.result)["proposals"]
    for execution_id in event.result.not_started:
        execution = space.executions[execution_id]
        ended = msgspec.structs.replace(execution, status=ExecutionStatus.NOT_STARTED, settled_seq=event.body.seq)
        space = msgspec.structs.replace(
            space,
            executions=space.executions.set(execution_id, ended),
            running=space.running.delete(execution_id),
            calls=release_key(space, execution),
        )
        record = proposals[execution.proposal_id]
        left = tuple(place for place in record.done if place != execution.intent.candidate)
        proposals = proposals.set(execution.proposal_id, msgspec.structs.replace(record, done=left))
    return {"executions": space.executions, "running": space.running, "calls": space.calls, "proposals": proposals}


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
        source=_source_of(message),
    )
    fields: ChangedFields = {"policy_changes": space.policy_changes.set(message.change_id, change)}
    # Where one operator is enough, the change is in force at once, and its entry says what it did to the state.
    if space.operators_needed < MAX_OPERATORS:
        fields |= _apply_policy(space, change, event)
    return fields


def _source_of(message: CreateSpace | ProposePolicy) -> PolicySource | None:
    return None if message.source is msgspec.UNSET else message.source


def _register_tool(space: Space, message: RegisterTool, event: SpaceEvent) -> ChangedFields:  # noqa: ARG001
    return {"tools": space.tools.set(message.tool.tool_id, message.tool)}


def _retire_tool(space: Space, message: RetireTool, event: SpaceEvent) -> ChangedFields:  # noqa: ARG001
    tool = msgspec.structs.replace(space.tools[message.tool_id], retired=True)
    return {"tools": space.tools.set(message.tool_id, tool)}


def _issue_capability(space: Space, message: IssueCapability, event: SpaceEvent) -> ChangedFields:  # noqa: ARG001
    token = message.capability
    held = tuple(sorted((*space.tokens_of.get(token.agent_id, ()), token.token_id)))
    return {
        "capabilities": space.capabilities.set(token.token_id, token),
        "tokens_of": space.tokens_of.set(token.agent_id, held),
    }


def _revoke_capability(space: Space, message: RevokeCapability, event: SpaceEvent) -> ChangedFields:
    return {"revoked": space.revoked.set(message.token_id, event.body.seq)}


def _create(message: CreateSpace, event: SpaceEvent) -> Space:
    body = event.body
    snapshot_id = event.stored.event_hash.hex()
    requests: Map[RequestKey, tuple[int, bytes]] = Map()
    if body.idempotency_key is not None:
        requests = requests.set(request_key(event), (0, fingerprint(message, body.actor)))
    policy = compile_policy(message.policy)
    needed = message.operators_needed
    return Space(
        space_id=message.space_id,
        mode=message.mode,
        head=Head(0, event.stored.event_hash),
        tree=EventTree().append(event.stored.event_hash),
        key_digests=LOOKUP_BUCKETS.add(BucketDigests(), 0, lookup_keys(event.stored.raw)),
        hash_digests=HASH_BUCKETS.add(BucketDigests(), 0, [hash_key(event.stored.event_hash)]),
        head_event_id=body.event_id,
        events=Map({body.event_id: (0, SpaceVerb.CREATE_SPACE)}),
        snapshot_id=snapshot_id,
        state=policy.pairs,
        snapshots=Map({snapshot_id: 0}),
        policy=policy,
        policy_version=1,
        policy_source=_source_of(message),
        requests=requests,
        operators_needed=MAX_OPERATORS if needed is msgspec.UNSET else needed,
    )


# --- proposals --------------------------------------------------------------------------------------------------------


def _propose(space: Space, message: Propose, event: SpaceEvent) -> ChangedFields:
    body, result, proposal = event.body, event.result, message.proposal
    decision, status = _decision(result), ProposalStatus(result.statuses[proposal.proposal_id])
    # A copy only where it is a part of a whole entry, which would be held with it.
    payload = body.payload.copy()
    record = ProposalRecord(
        payload,
        body.actor,
        body.seq,
        body.event_id,
        body.seq,
        decision,
        status,
        done=result.ran,
        snapshot_id=proposal.state_snapshot_id,
        case_id=None if isinstance(proposal.case_id, msgspec.UnsetType) else proposal.case_id,
    )
    changed = _follow_decision(space, record, proposal, event, message.belief)
    return {**changed, "n_proposals": space.n_proposals + 1}


def _decide_again(space: Space, proposal_id: str, event: SpaceEvent, belief: list[BeliefReading]) -> ChangedFields:
    """What a later decision on a proposal does."""
    before, result = space.proposals[proposal_id], event.result
    record = msgspec.structs.replace(
        before,
        decided_seq=event.body.seq,
        decision=_decision(result),
        status=ProposalStatus(result.statuses[proposal_id]),
        done=before.done + result.ran,
    )
    return _follow_decision(space, record, before.message.proposal, event, belief)


def _decision(result: StepResult) -> Decision:
    if result.decision is None:  # pragma: no cover - a proposal is always decided
        raise TypeError("a proposal without a decision")
    return result.decision


def _follow_decision(
    space: Space, record: ProposalRecord, proposal: Proposal, event: SpaceEvent, belief: list[BeliefReading]
) -> ChangedFields:
    """What follows from a decision on a proposal: executions, requests for approval, parking."""
    proposal_id, result, body = proposal.proposal_id, event.result, event.body
    approvals = settle_approvals(
        space.approvals, result.withdrawn_approvals, ApprovalStatus.WITHDRAWN, body.actor, body.seq
    )
    for asked in result.asked:
        approval = Approval(asked, proposal_id, record.actor, record.decision.policy_hash, ApprovalStatus.PENDING)
        approvals = approvals.set(asked.approval_id, approval)
    grants, approvals = use_approvals(space.grants, approvals, result.used_approvals)
    begun = [each.execution_id for each in result.intents if each.execution_id not in record.execution_ids]
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
        **_begin(space, record.actor, proposal, event),
        **park(space, proposal_id, parked),
    }


def _begin(space: Space, actor: Actor, proposal: Proposal, event: SpaceEvent) -> ChangedFields:
    """Executions that may begin, and those of others that are waited for."""
    executions, running, calls, spent = space.executions, space.running, space.calls, space.spent
    result = event.result
    for intent in result.intents:
        call = proposal.candidates[intent.candidate]
        if not isinstance(call, ToolCall):  # pragma: no cover - only calls begin
            raise TypeError(call)
        execution = _begin_one(space, executions.get(intent.execution_id), intent, call, actor, event)
        execution = msgspec.structs.replace(execution, proposal_id=proposal.proposal_id)
        executions = executions.set(intent.execution_id, execution)
        running = running.set(intent.execution_id, intent.deadline)
        if intent.idempotency_key is not None:
            key = CallKey(intent.tool_id, intent.idempotency_key, (actor.kind, actor.id))
            calls = calls.set(key, intent.execution_id)
        if not intent.ready:
            spent = _charge(space, spent, intent, Spent(calls=1, bytes=len(execution.args)))
    for execution_id in result.answered_by.values():
        known = executions.get(execution_id)
        # Where a proposal is put together again from the ledger, executions of others are not there.
        if known is not None and known.settled_seq is None:
            awaited_by = (*known.awaited_by, proposal.proposal_id)
            executions = executions.set(execution_id, msgspec.structs.replace(known, awaited_by=awaited_by))
    return {"executions": executions, "running": running, "calls": calls, "spent": spent}


def _begin_one(
    space: Space, known: Execution | None, intent: Intent, call: ToolCall, actor: Actor, event: SpaceEvent
) -> Execution:
    """An execution that was let through, or one that is started now; `known` is what it was before."""
    status = ExecutionStatus.READY if intent.ready else ExecutionStatus.RUNNING
    tool, seq = space.tools[call.tool_id], event.body.seq
    if known is None:
        forwarded = b"{}" if isinstance(call.forwarded, msgspec.UnsetType) else bytes(call.forwarded)
        args = bytes(call.args)
        known = Execution(intent, "", actor.id, tool, args, status, seq, forwarded=forwarded, agent_kind=actor.kind)
    else:
        known = msgspec.structs.replace(known, intent=intent, tool=tool, status=status, begun_seq=seq)
    message = event.message
    if isinstance(message, Start) and not isinstance(message.nonce_hash, msgspec.UnsetType):
        return msgspec.structs.replace(known, nonce_hash=message.nonce_hash, executor=event.body.actor)
    claim = message.claim if isinstance(message, Propose) else msgspec.UNSET
    # What the server runs is reported by the server, which knows no nonce.
    if not isinstance(claim, msgspec.UnsetType) and not intent.ready and not is_run_by_server(tool):
        executor = event.body.actor if isinstance(claim.executor, msgspec.UnsetType) else claim.executor
        return msgspec.structs.replace(known, nonce_hash=claim.nonce_hash, executor=executor)
    return known


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


# --- approvals --------------------------------------------------------------------------------------------------------


def _wake(space: Space, message: Wake, event: SpaceEvent) -> ChangedFields:
    return _decide_again(space, message.proposal_id, event, message.belief)


def _approve(space: Space, message: Approve, event: SpaceEvent) -> ChangedFields:
    granted = with_approval(space, message, event.body.actor, event.body.seq)
    proposal_id = granted.approvals[message.approval_id].proposal_id
    return _decide_again(granted, proposal_id, event, message.belief)


def _reject(space: Space, message: Reject, event: SpaceEvent) -> ChangedFields:  # noqa: ARG001
    return end_waiting(space, event, ApprovalStatus.REJECTED)


def _withdraw(space: Space, message: Withdraw, event: SpaceEvent) -> ChangedFields:  # noqa: ARG001
    return end_waiting(space, event, ApprovalStatus.WITHDRAWN)


def _expire(space: Space, message: Expire, event: SpaceEvent) -> ChangedFields:
    if message.of is ExpiryOf.APPROVAL:
        return end_waiting(space, event, ApprovalStatus.EXPIRED)
    if message.of is ExpiryOf.EXECUTION:
        return with_statuses(space, event.result)
    if message.of is ExpiryOf.PARKED:
        return with_statuses(space, event.result) | park(space, message.id, None)
    entry = memory.expire(space.memory, message.id, event.body.seq, event.body.ts)
    return keep_entry(space, entry)


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
        result_hash=hash_tagged(Domain.RESULT, taken).hex(),
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
        **with_statuses(space, result),
    }


def _start(space: Space, message: Start, event: SpaceEvent) -> ChangedFields:
    execution = space.executions[message.execution_id]
    if event.result.decision is not None:
        before = space if event.result.not_started else take_back(space, execution)
        return _decide_again(before, execution.proposal_id, event, message.belief)
    if event.result.not_started:
        return end_waiting(space, event, ApprovalStatus.WITHDRAWN)
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
    if message.authorise:
        return _apply_policy(space, change, event)
    settled = msgspec.structs.replace(
        change, status=PolicyChangeStatus.REJECTED, settled_by=event.body.actor, settled_seq=event.body.seq, source=None
    )
    return {"policy_changes": space.policy_changes.set(message.change_id, settled)}


def _apply_policy(space: Space, change: PolicyChange, event: SpaceEvent) -> ChangedFields:
    """The change in force."""
    body = event.body
    settled = msgspec.structs.replace(
        change, status=PolicyChangeStatus.APPLIED, settled_by=body.actor, settled_seq=body.seq, source=None
    )
    policy = space.policy.change(change.set, change.unset)
    fields: ChangedFields = {
        "policy_changes": space.policy_changes.set(change.change_id, settled),
        "policy": policy,
        "policy_version": space.policy_version + 1,
        # Who wanted to set the policy aside meant the one that there was.
        "observe_asked_by": None,
        # A change by keys leaves no file that says what the policy is.
        "policy_source": change.source,
    }
    threshold = policy.memory_threshold_milli
    if threshold != space.policy.memory_threshold_milli:
        entries, claims = space.memory, space.claims
        for entry in memory.judge_again(space.memory.values(), event.body.seq, event.body.ts, threshold):
            entries, claims = memory.keep(entries, claims, entry)
        fields |= {"memory": entries, "claims": claims}
    return fields


_APPLY: dict[type[SpaceMessage], Callable[..., ChangedFields]] = {
    Propose: _propose,
    RecordOutcome: _record_outcome,
    Wake: _wake,
    Approve: _approve,
    Reject: _reject,
    Expire: _expire,
    Start: _start,
    MarkInDoubt: _mark_in_doubt,
    PutMemory: change_memory,
    PromoteMemory: change_memory,
    DisputeMemory: change_memory,
    Withdraw: _withdraw,
    SetMode: _set_mode,
    SetGovernance: _set_governance,
    ProposePolicy: _propose_policy,
    SettlePolicy: _settle_policy,
    RegisterTool: _register_tool,
    RetireTool: _retire_tool,
    IssueCapability: _issue_capability,
    RevokeCapability: _revoke_capability,
    OpenCase: open_case,
    CloseCase: close_case,
}
