"""What becomes of proposals: decided when they are made, when what they wait for changes, and when they are approved.

The verdict is arbitration's. What follows from it is here: intents, requests for approval, parking, the commit.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.errors import Conflict, InvalidRequest, RecordNotFound
from cmbs.ledger.instants import later
from cmbs.messages import Actor
from cmbs.substrate.kernel import memory
from cmbs.substrate.kernel.approvals import with_approval
from cmbs.substrate.kernel.arbitration.arbitrate import (
    Arbitration,
    CandidateOutcome,
    arbitrate,
    belief_sessions,
)
from cmbs.substrate.kernel.events import (
    Approve,
    Asked,
    Changes,
    Expire,
    ExpiryOf,
    Intent,
    Propose,
    Reject,
    SpaceEvent,
    SpaceVerb,
    StepResult,
    Wake,
)
from cmbs.substrate.kernel.model import (
    BeliefReading,
    CandidateDecision,
    Decision,
    Failure,
    Proposal,
    Stage,
    StateDelta,
    ToolCall,
    Verdict,
)
from cmbs.substrate.kernel.state import Approval, ApprovalStatus, ExecutionStatus, ProposalRecord, ProposalStatus, Space
from cmbs.substrate.kernel.steps import StepReason, fingerprint, is_operator, refuse, require_engine, same_person

# How long beyond its tool's own limit an execution is waited for before it is in doubt.
GRACE_MS = 5_000
MAX_USES = 1_000_000


def decide_propose(space: Space, message: Propose, actor: Actor, stamp: Stamp) -> StepResult | Repeat:
    """A new proposal. The same one again is the same event; another one under its id, a conflict."""
    proposal = message.proposal
    known = space.proposals.get(proposal.proposal_id)
    if known is not None:
        if fingerprint(known.message, known.actor) != fingerprint(message, actor):
            raise Conflict(
                f"proposal `{proposal.proposal_id}` was made before, and said something else",
                {"proposal_id": proposal.proposal_id, "event_id": known.event_id},
            )
        return Repeat(known.seq)
    arbitration = _arbitrate(space, proposal, actor, stamp.ts, message.belief)
    arbitration = _drop_plain_trace(arbitration, proposal, message.belief)
    return _carry_out(space, message, arbitration, stamp, None)


def decide_wake(space: Space, message: Wake, actor: Actor, stamp: Stamp) -> StepResult:
    """Something that a parked proposal waits for has changed: decide again."""
    require_engine(actor, SpaceVerb.WAKE)
    record = _proposal(space, message.proposal_id)
    if message.proposal_id not in space.parked:
        raise Conflict(f"proposal `{message.proposal_id}` is not parked", {"proposal_id": message.proposal_id})
    return _decide_again(space, record, waiting_places(space, record), message.belief, stamp)


def decide_approve(space: Space, message: Approve, actor: Actor, stamp: Stamp) -> StepResult:
    """Yes to what was asked; the proposal is decided again, on the state of this moment."""
    approval = _pending(space, message.approval_id)
    if not 1 <= message.uses <= MAX_USES:
        raise InvalidRequest(f"`uses` must be from 1 to {MAX_USES}, got `{message.uses}`", {"field": "uses"})
    if not is_operator(actor):
        return refuse(StepReason.NOT_AUTHORISED)
    if same_person(actor, approval.proposer):
        return refuse(StepReason.SELF_APPROVAL)
    if stamp.ts >= approval.asked.expires_at:
        return refuse(StepReason.APPROVAL_EXPIRED)
    if message.args_hash is not None and message.args_hash != approval.asked.args_hash:
        return refuse(StepReason.ARGS_CHANGED)
    granted = with_approval(space, message, actor, space.head.seq + 1)
    record = _proposal(space, approval.proposal_id)
    return _decide_again(granted, record, waiting_places(space, record), message.belief, stamp)


def decide_reject(space: Space, message: Reject, actor: Actor, stamp: Stamp) -> StepResult:  # noqa: ARG001
    """No. The proposer may say so too."""
    approval = _pending(space, message.approval_id)
    if not is_operator(actor) and not same_person(actor, approval.proposer):
        return refuse(StepReason.NOT_AUTHORISED)
    return StepResult(statuses={approval.proposal_id: _end(space, approval.proposal_id, ProposalStatus.REJECTED)})


def decide_expire(space: Space, message: Expire, actor: Actor, stamp: Stamp) -> StepResult:
    """The time of a request for approval, of a parked proposal, or of a memory entry is over."""
    require_engine(actor, SpaceVerb.EXPIRE)
    if message.of is ExpiryOf.MEMORY:
        entry = memory.expire(space.memory, message.id, space.head.seq + 1, stamp.ts)
        if isinstance(entry, memory.MemoryReason):
            raise Conflict(f"memory entry `{message.id}` does not expire now: {entry.value}", {"entry_id": message.id})
        return StepResult()
    if message.of is ExpiryOf.APPROVAL:
        approval = _pending(space, message.id)
        _require_due(approval.asked.expires_at, stamp)
        return StepResult(statuses={approval.proposal_id: _end(space, approval.proposal_id, ProposalStatus.EXPIRED)})
    parked = space.parked.get(message.id)
    if parked is None:
        raise Conflict(f"proposal `{message.id}` is not parked", {"proposal_id": message.id})
    _require_due(parked.until, stamp)
    # Of one that is not atomic, another candidate may still wait for an approval.
    asked = bool(_pending_approvals(space, _proposal(space, message.id)))
    ended = ProposalStatus.ASKED if asked else ProposalStatus.EXPIRED
    return StepResult(statuses={message.id: _end(space, message.id, ended)})


def _require_due(moment: str, stamp: Stamp) -> None:
    if stamp.ts < moment:
        raise Conflict(f"its time is not over before {moment}", {"due": moment})


def _proposal(space: Space, proposal_id: str) -> ProposalRecord:
    record = space.proposals.get(proposal_id)
    if record is None:
        raise RecordNotFound("proposal", proposal_id)
    return record


def _pending(space: Space, approval_id: str) -> Approval:
    approval = space.approvals.get(approval_id)
    if approval is None:
        raise RecordNotFound("approval", approval_id)
    if approval.status is not ApprovalStatus.PENDING:
        raise Conflict(
            f"approval `{approval_id}` is {approval.status.value} already",
            {"approval_id": approval_id, "status": approval.status.value},
        )
    return approval


class BeliefUnread(Conflict):
    """A decision needs a belief session that was not read: read it, and decide again."""


def require_readings(session_ids: frozenset[str], belief: Mapping[str, BeliefReading]) -> None:
    """Raise BeliefUnread where the policy may read a session of which nothing was read.

    That happens where the policy has changed since the belief plane was asked. Taken for a session that does not exist,
    it would lift every denial that rests on what the session says.
    """
    unread = sorted(session_ids.difference(belief))
    if unread:
        raise BeliefUnread(
            f"the policy reads belief session `{unread[0]}`, of which nothing was read", {"session_id": unread[0]}
        )


def _arbitrate(space: Space, proposal: Proposal, actor: Actor, now: str, belief: list[BeliefReading]) -> Arbitration:
    readings = {reading.session_id: reading for reading in belief}
    require_readings(belief_sessions(space, proposal), readings)
    return arbitrate(space, proposal, actor, now, readings)


def _drop_plain_trace(arbitration: Arbitration, proposal: Proposal, belief: list[BeliefReading]) -> Arbitration:
    """What is recorded. A plain allow has no trace in the log: `trace_decision` makes it from the log at any time."""
    decision = arbitration.decision
    allowed = decision.verdict is Verdict.ALLOW and (
        proposal.atomic or all(each.verdict is Verdict.ALLOW for each in decision.candidates)
    )
    if belief or not allowed:
        return arbitration
    return msgspec.structs.replace(arbitration, decision=msgspec.structs.replace(decision, trace=()))


# --- deciding again ---------------------------------------------------------------------------------------------------


def waiting_places(space: Space, record: ProposalRecord) -> list[int]:
    """The candidates of a proposal that are decided again when something that it waits for comes about.

    Of an atomic one all. Otherwise those that wait for an approval, and those that are deferred and still in time: what
    was blocked stays so, whatever becomes of the others, and what was let through is not decided twice.
    """
    proposal = record.message.proposal
    if proposal.atomic:
        return [place for place in range(len(proposal.candidates)) if place not in record.done]
    waiting = {approval.asked.candidate for approval in _pending_approvals(space, record)}
    if proposal.proposal_id in space.parked:
        waiting |= {
            each.candidate
            for each in record.decision.candidates
            if each.failure is Failure.DEFER and each.stage is not Stage.FRESHNESS
        }
    return sorted(waiting.difference(record.done))


def _decide_again(
    space: Space, record: ProposalRecord, places: list[int], belief: list[BeliefReading], stamp: Stamp
) -> StepResult:
    """Decide what is left of a proposal on the state as it is now."""
    rest = _rest(space, record, places)
    arbitration = _arbitrate(space, rest, record.actor, stamp.ts, belief)
    arbitration = _place(_drop_plain_trace(arbitration, rest, belief), places, record.decision)
    return _carry_out(space, record.message, arbitration, stamp, record)


def trace_decision(before: Space, event: SpaceEvent) -> Decision:
    """The decision that an event recorded, with its whole trace: made again on the space before it."""
    if not isinstance(event.message, (Propose, Wake, Approve)):
        raise TypeError(f"{event.body.verb} decides no proposal")
    space, proposal, actor = situation_of(before, event)
    arbitration = _arbitrate(space, proposal, actor, event.body.ts, event.message.belief)
    record = before.proposals.get(proposal.proposal_id)
    if record is not None:
        arbitration = _place(arbitration, waiting_places(before, record), record.decision)
    return arbitration.decision


def situation_of(before: Space, event: SpaceEvent) -> tuple[Space, Proposal, Actor]:
    """What a recorded decision was made on: the space, what was left of the proposal, and whose it is."""
    message, body = event.message, event.body
    space = before
    match message:
        case Propose():
            return before, message.proposal, body.actor
        case Wake():
            record = before.proposals[message.proposal_id]
        case Approve():
            record = before.proposals[before.approvals[message.approval_id].proposal_id]
            space = with_approval(before, message, body.actor, body.seq)
        case _:
            raise TypeError(f"{body.verb} decides no proposal")
    return space, _rest(space, record, waiting_places(before, record)), record.actor


def _rest(space: Space, record: ProposalRecord, places: list[int]) -> Proposal:
    """What is left of a proposal, on the newest snapshot, unless another step has written what it writes: then it is
    stale, and stays so.
    """
    proposal = record.message.proposal
    left = [proposal.candidates[place] for place in places]
    seen = space.snapshots.get(proposal.state_snapshot_id)
    written = (key for each in left if isinstance(each, StateDelta) for key in (*each.set, *each.unset))
    # On a snapshot that never was, nothing is parked or asked for.
    is_stale = seen is None or any(space.changed.get(key, -1) > seen for key in written)
    snapshot_id = proposal.state_snapshot_id if is_stale else space.snapshot_id
    return msgspec.structs.replace(proposal, candidates=left, state_snapshot_id=snapshot_id)


def _place(arbitration: Arbitration, places: list[int], before: Decision) -> Arbitration:
    """An arbitration of some candidates as one of the whole proposal, with what was decided of the others before."""
    decision = arbitration.decision
    decided: dict[int, CandidateDecision] = {each.candidate: each for each in before.candidates}
    for each in decision.candidates:
        decided[places[each.candidate]] = msgspec.structs.replace(each, candidate=places[each.candidate])
    trace = tuple(
        step if step.candidate is None else msgspec.structs.replace(step, candidate=places[step.candidate])
        for step in decision.trace
    )
    whole = msgspec.structs.replace(
        decision, candidates=tuple(decided[place] for place in sorted(decided)), trace=trace
    )
    outcomes = tuple(msgspec.structs.replace(each, candidate=places[each.candidate]) for each in arbitration.candidates)
    return msgspec.structs.replace(arbitration, decision=whole, candidates=outcomes)


# --- what follows from a decision -------------------------------------------------------------------------------------


def _carry_out(
    space: Space, message: Propose, arbitration: Arbitration, stamp: Stamp, record: ProposalRecord | None
) -> StepResult:
    """The result of a decision: what runs, what is asked, what waits. `record` is None for a new proposal."""
    proposal = message.proposal
    running = [each for each in arbitration.candidates if each.runs]
    intents = [
        _intent(space, call, each, stamp)
        for each in running
        if each.answered_by is None and isinstance(call := proposal.candidates[each.candidate], ToolCall)
    ]
    answered_by = {str(each.candidate): each.answered_by for each in running if each.answered_by is not None}
    earlier = [space.executions[execution_id].status for execution_id in answered_by.values()]
    # Effects first, then the commit: the deltas of an atomic proposal wait for what it runs.
    held = proposal.atomic and (bool(intents) or any(status is not ExecutionStatus.SUCCEEDED for status in earlier))
    pending = [] if record is None else _pending_approvals(space, record)
    asked = _requests(proposal, arbitration, pending, stamp, message.ask_ms)
    parked_until = None
    if arbitration.parks:
        parked = space.parked.get(proposal.proposal_id)
        parked_until = later(stamp.ts, message.defer_ms) if parked is None else parked.until
    if record is not None:
        earlier += [space.executions[known].status for known in record.execution_ids]
    if intents or any(map(_is_open, earlier)):
        status = ProposalStatus.RUNNING
    elif asked or pending:
        status = ProposalStatus.ASKED
    elif parked_until is not None:
        status = ProposalStatus.PARKED
    elif not running and not (record is not None and record.done):
        status = ProposalStatus.DENIED
    elif any(status is not ExecutionStatus.SUCCEEDED for status in earlier):
        status = ProposalStatus.FAILED
    else:
        status = ProposalStatus.COMMITTED
    return StepResult(
        decision=arbitration.decision,
        changes=Changes() if held else arbitration.changes,
        intents=tuple(intents),
        asked=tuple(asked),
        parked_until=parked_until,
        waits_for=arbitration.waits_for,
        # Of two that are the same each takes a use, so that one approval may stand here twice.
        used_approvals=tuple(sorted(approval_id for each in running for approval_id in each.used_approvals)),
        answered_by=answered_by,
        ran=tuple(each.candidate for each in running),
        statuses={proposal.proposal_id: status.value},
    )


def _intent(space: Space, call: ToolCall, outcome: CandidateOutcome, stamp: Stamp) -> Intent:
    return Intent(
        execution_id=f"x-{stamp.event_id}-{outcome.candidate}",
        candidate=outcome.candidate,
        tool_id=call.tool_id,
        args_hash=outcome.args_hash,
        deadline=later(stamp.ts, space.tools[call.tool_id].timeout_ms + GRACE_MS),
        capability_token_id=call.capability_token_id,
        idempotency_key=call.idempotency_key,
    )


def _requests(
    proposal: Proposal, arbitration: Arbitration, pending: list[Approval], stamp: Stamp, ask_ms: int
) -> list[Asked]:
    """Requests for the approvals that are not asked for already."""
    policy_hash = arbitration.decision.policy_hash
    known = {(each.asked.candidate, tuple(each.asked.constraints), each.policy_hash) for each in pending}
    asked = []
    for outcome in arbitration.candidates:
        if not outcome.asks or (outcome.candidate, outcome.asks, policy_hash) in known:
            continue
        candidate = proposal.candidates[outcome.candidate]
        asked.append(
            Asked(
                approval_id=f"a-{stamp.event_id}-{outcome.candidate}",
                candidate=outcome.candidate,
                args_hash=outcome.args_hash,
                constraints=list(outcome.asks),
                expires_at=later(stamp.ts, ask_ms),
                tool_id=candidate.tool_id if isinstance(candidate, ToolCall) else None,
            )
        )
    return asked


def _pending_approvals(space: Space, record: ProposalRecord) -> list[Approval]:
    known = [space.approvals[approval_id] for approval_id in record.approval_ids]
    return [approval for approval in known if approval.status is ApprovalStatus.PENDING]


def _is_open(status: ExecutionStatus) -> bool:
    return status in (ExecutionStatus.RUNNING, ExecutionStatus.IN_DOUBT)


def _end(space: Space, proposal_id: str, ended: ProposalStatus) -> ProposalStatus:
    """Where a proposal stands that waits for nothing any more: what runs already goes on."""
    record = _proposal(space, proposal_id)
    runs = any(_is_open(space.executions[known].status) for known in record.execution_ids)
    return ProposalStatus.RUNNING if runs else ended
