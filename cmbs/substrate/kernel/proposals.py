"""What becomes of proposals: decided when they are made, and again when they are approved or something has changed.

The verdict is arbitration's. What follows from it is here: intents, requests for approval, parking, the commit. How
proposals wait, and how that ends, is in `waiting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from immutables import Map

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.errors import Conflict, InvalidRequest, RecordNotFound
from cmbs.ledger.instants import later
from cmbs.messages import Actor
from cmbs.refusals import find_nearest
from cmbs.substrate.kernel.approvals import pending_approvals, with_approval
from cmbs.substrate.kernel.arbitration.arbitrate import (
    Arbitration,
    CandidateOutcome,
    arbitrate,
    belief_sessions,
)
from cmbs.substrate.kernel.arbitration.cases import NeededReadings, has_lost_case, is_read
from cmbs.substrate.kernel.arbitration.stages import hash_of_tool, is_observation
from cmbs.substrate.kernel.calls import claims, executor_of, hash_of_call, is_run_by_server
from cmbs.substrate.kernel.events import (
    Approve,
    Asked,
    Changes,
    Claim,
    Intent,
    Propose,
    SpaceEvent,
    SpaceMessage,
    Start,
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
    Tool,
    ToolCall,
    Verdict,
)
from cmbs.substrate.kernel.retention import with_recalled
from cmbs.substrate.kernel.state import Approval, CallKey, Execution, ProposalRecord, Space
from cmbs.substrate.kernel.steps import StepReason, fingerprint, is_operator, refuse, same_person
from cmbs.substrate.kernel.words import CALLER, ApprovalStatus, ExecutionStatus, ProposalStatus

# How long beyond its tool's own limit an execution is waited for before it is in doubt.
GRACE_MS = 5_000
# The messages that decide a proposal, or decide it again.
DECIDING = (Propose, Wake, Approve, Start)
MAX_USES = 1_000_000


def decide_propose(space: Space, message: Propose, actor: Actor, stamp: Stamp) -> StepResult | Repeat:
    """A new proposal. The same one again is the same event; another one under its id, a conflict."""
    proposal = message.proposal
    known = space.proposals.get(proposal.proposal_id)
    if known is not None:
        if fingerprint(known.message, known.actor) != fingerprint(message, actor):
            raise Conflict(
                f"proposal `{proposal.proposal_id}` was made before, and said something else",
                {
                    "proposal_id": proposal.proposal_id,
                    "event_id": known.event_id,
                    "field": "proposal_id",
                    "found": proposal.proposal_id,
                    "next": "propose under a new id; to repeat the first proposal, send it unchanged",
                },
            )
        return Repeat(known.seq)
    arbitration = _arbitrate(space, proposal, actor, stamp.ts, message.belief)
    arbitration = _drop_plain_trace(arbitration, proposal, message.belief)
    turn = Turn(is_queued=message.queued is True, is_own=True, claim=message.claim)
    return _carry_out(space, Decided(message, actor, arbitration, None), turn, stamp)


def decide_approve(space: Space, message: Approve, actor: Actor, stamp: Stamp) -> StepResult:
    """Yes to what was asked; the proposal is decided again, on the state of this moment."""
    approval = require_pending(space, message.approval_id)
    if not 1 <= message.uses <= MAX_USES:
        raise InvalidRequest(f"`uses` must be from 1 to {MAX_USES}, got `{message.uses}`", {"field": "uses"})
    if not is_operator(actor):
        return refuse(StepReason.NOT_AUTHORISED)
    if same_person(actor, approval.proposer):
        return refuse(StepReason.SELF_APPROVAL)
    if stamp.ts >= approval.asked.expires_at:
        return refuse(StepReason.APPROVAL_EXPIRED)
    if message.call_hash is not None and message.call_hash != approval.asked.call_hash:
        return refuse(StepReason.CALL_CHANGED)
    granted = with_approval(space, message, actor, space.head.seq + 1)
    record = find_proposal(space, approval.proposal_id)
    places = waiting_places(space, record)
    return decide_again(granted, record, places, message.belief, stamp, Turn(is_queued=message.queued is True))


def find_proposal(space: Space, proposal_id: str) -> ProposalRecord:
    """The proposal; RecordNotFound where there is none."""
    record = space.proposals.get(proposal_id)
    if record is None:
        raise RecordNotFound("proposal", proposal_id)
    return record


def require_pending(space: Space, approval_id: str) -> Approval:
    """The request for approval; RecordNotFound where there is none, Conflict where it has ended."""
    approval = space.approvals.get(approval_id)
    if approval is None:
        raise RecordNotFound("approval", approval_id, find_nearest(approval_id, space.approvals))
    if approval.status is not ApprovalStatus.PENDING:
        raise Conflict(
            f"approval `{approval_id}` is {approval.status.value} already",
            {
                "approval_id": approval_id,
                "status": approval.status.value,
                "field": "status",
                "found": approval.status.value,
                "accepted": ApprovalStatus.PENDING.value,
                "next": "read the proposal: it was decided again, or has ended",
            },
        )
    return approval


class Unprepared(Conflict):
    """A decision needs something that was not looked up, or not lately enough: look it up, and decide again."""


class BeliefUnread(Unprepared):
    """A decision needs a belief session that was not read."""


def require_readings(needed: NeededReadings, belief: Mapping[str, BeliefReading]) -> None:
    """Raise BeliefUnread where the policy may read a session of which nothing was read.

    That happens where the policy has changed since the belief plane was asked. Taken for a session that does not exist,
    it would lift every denial that rests on what the session says.
    """
    unread = sorted(
        session_id for session_id, actor_id in needed.items() if not is_read(actor_id, belief.get(session_id))
    )
    if unread:
        raise BeliefUnread(
            f"the policy reads belief session `{unread[0]}`, of which nothing was read", {"session_id": unread[0]}
        )


def _arbitrate(space: Space, proposal: Proposal, actor: Actor, now: str, belief: list[BeliefReading]) -> Arbitration:
    readings = {reading.session_id: reading for reading in belief}
    require_readings(belief_sessions(space, proposal, actor), readings)
    return arbitrate(space, proposal, actor, now, readings)


def _drop_plain_trace(arbitration: Arbitration, proposal: Proposal, belief: list[BeliefReading]) -> Arbitration:
    """What is recorded. A plain allow has no trace in the log: `trace_decision` makes it from the log at any time.

    An allow on which constraints were observed is not plain.
    """
    decision = arbitration.decision
    allowed = decision.verdict is Verdict.ALLOW and (
        proposal.atomic or all(each.verdict is Verdict.ALLOW for each in decision.candidates)
    )
    if belief or not allowed or any(map(is_observation, decision.trace)):
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
    waiting = {approval.asked.candidate for approval in pending_approvals(space, record)}
    if proposal.proposal_id in space.parked:
        waiting |= {
            each.candidate
            for each in record.decision.candidates
            if each.failure is Failure.DEFER and each.stage is not Stage.FRESHNESS
        }
    return sorted(waiting.difference(record.done))


def decide_again(
    space: Space,
    record: ProposalRecord,
    places: list[int],
    belief: list[BeliefReading],
    stamp: Stamp,
    turn: Turn,
) -> StepResult:
    """Decide what is left of a proposal on the state as it is now."""
    arbitration = arbitrate_again(space, record, places, belief, stamp)
    return _carry_out(space, Decided(record.message, record.actor, arbitration, record), turn, stamp)


def arbitrate_again(
    space: Space, record: ProposalRecord, places: list[int], belief: list[BeliefReading], stamp: Stamp
) -> Arbitration:
    """What is decided of these candidates of a proposal on the state as it is now."""
    rest = _rest(space, record, places)
    arbitration = _arbitrate(space, rest, record.actor, stamp.ts, belief)
    return _place(_drop_plain_trace(arbitration, rest, belief), places, record.decision)


def trace_decision(before: Space, event: SpaceEvent) -> Decision:
    """The decision that an event recorded, with its whole trace: made again on the space before it."""
    if not isinstance(event.message, DECIDING):
        raise TypeError(f"{event.body.verb} decides no proposal")
    before = with_recalled(before, event.message)
    space, proposal, actor = situation_of(before, event)
    arbitration = _arbitrate(space, proposal, actor, event.body.ts, event.message.belief)
    record = before.proposals.get(proposal.proposal_id)
    if record is not None:
        arbitration = _place(arbitration, _places_of(before, record, event.message), record.decision)
    return arbitration.decision


def situation_of(before: Space, event: SpaceEvent) -> tuple[Space, Proposal, Actor]:
    """What a recorded decision was made on: the space, what was left of the proposal, and whose it is."""
    message, body = event.message, event.body
    space = before = with_recalled(before, message)
    match message:
        case Propose():
            return before, message.proposal, body.actor
        case Wake():
            record = before.proposals[message.proposal_id]
        case Approve():
            record = before.proposals[before.approvals[message.approval_id].proposal_id]
            space = with_approval(before, message, body.actor, body.seq)
        case Start():
            execution = before.executions[message.execution_id]
            record = before.proposals[execution.proposal_id]
            space = take_back(before, execution)
        case _:
            raise TypeError(f"{body.verb} decides no proposal")
    return space, _rest(space, record, _places_of(before, record, message)), record.actor


def _places_of(before: Space, record: ProposalRecord, message: SpaceMessage) -> list[int]:
    """The candidates that a recorded message had decided again."""
    if isinstance(message, Start):
        return [before.executions[message.execution_id].intent.candidate]
    return waiting_places(before, record)


def take_back(space: Space, execution: Execution) -> Space:
    """The space as if an execution that was not started had not been let through: what its start is decided on."""
    record = space.proposals[execution.proposal_id]
    execution_id, place = execution.intent.execution_id, execution.intent.candidate
    left = msgspec.structs.replace(
        record,
        done=tuple(each for each in record.done if each != place),
        execution_ids=tuple(each for each in record.execution_ids if each != execution_id),
    )
    proposals = space.proposals.set(execution.proposal_id, left)
    return msgspec.structs.replace(space, proposals=proposals, calls=release_key(space, execution))


def release_key(space: Space, execution: Execution) -> Map[CallKey, str]:
    """The calls by their keys, without this execution: another one may be made under its key."""
    key = execution.call_key
    return space.calls.delete(key) if space.calls.get(key) == execution.intent.execution_id else space.calls


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


class Turn(NamedTuple):
    """Whether calls that are let through start with the step that lets them through, or wait to be started."""

    # The server has no turn for what it runs itself.
    is_queued: bool = False
    # The proposer asks: it runs, at once, what its own proposal is let through to do.
    is_own: bool = False
    claim: Claim | msgspec.UnsetType = msgspec.UNSET
    # Of a START: the execution that it is about.
    starts: str | None = None

    def begins(self, space: Space, tool: Tool) -> bool:
        """Whether a call of this tool starts now."""
        if self.starts is not None:
            return True
        if is_run_by_server(tool):
            return not self.is_queued
        if not isinstance(self.claim, msgspec.UnsetType):
            return claims(space, tool, self.claim)
        return self.is_own and not self.is_queued and executor_of(tool) == CALLER


class Decided(NamedTuple):
    """A proposal, whose it is, and what was decided of it; `record` is what it was before, None for a new one."""

    message: Propose
    actor: Actor
    arbitration: Arbitration
    record: ProposalRecord | None


def _carry_out(space: Space, decided: Decided, turn: Turn, stamp: Stamp) -> StepResult:
    """The result of a decision: what runs, what is asked, what waits."""
    message, actor, arbitration, record = decided
    proposal = message.proposal
    running = [each for each in arbitration.candidates if each.runs]
    intents = [
        _intent(space, call, each, decided, turn, stamp)
        for each in running
        if each.answered_by is None and isinstance(call := proposal.candidates[each.candidate], ToolCall)
    ]
    ready = {intent.candidate for intent in intents if intent.ready}
    answered_by = {str(each.candidate): each.answered_by for each in running if each.answered_by is not None}
    earlier = [space.executions[execution_id].status for execution_id in answered_by.values()]
    # Effects first, then the commit: the deltas of an atomic proposal wait for what it runs.
    held = proposal.atomic and (bool(intents) or any(status is not ExecutionStatus.SUCCEEDED for status in earlier))
    pending = [] if record is None else pending_approvals(space, record)
    needed = _list_needed_approvals(space, proposal, actor, arbitration)
    asked = _requests(needed, pending, stamp, message.ask_ms)
    unneeded = [each for each in pending if not _is_needed(each, needed)]
    pending = [each for each in pending if each not in unneeded]
    parked_until = None
    if arbitration.parks:
        parked = space.parked.get(proposal.proposal_id)
        parked_until = later(stamp.ts, message.defer_ms) if parked is None else parked.until
    if record is not None:
        earlier += statuses_of(space, record)
    has_done = bool(running) or (record is not None and bool(record.done))
    if len(ready) < len(intents) or any(map(is_open, earlier)):
        status = ProposalStatus.RUNNING
    elif asked or pending:
        status = ProposalStatus.ASKED
    elif parked_until is not None:
        status = ProposalStatus.PARKED
    elif ready or ExecutionStatus.READY in earlier:
        status = ProposalStatus.READY
    elif not has_done:
        status = ProposalStatus.DENIED
    elif any(status is not ExecutionStatus.SUCCEEDED for status in earlier) or (proposal.atomic and not running):
        # Of an atomic one, what was not let through in the end fails what was done before.
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
        # Of two that are the same each takes a use, so that one approval may stand here twice. What waits to be started
        # takes none before it is.
        used_approvals=tuple(
            sorted(used for each in running if each.candidate not in ready for used in each.used_approvals)
        ),
        withdrawn_approvals=tuple(sorted(each.asked.approval_id for each in unneeded)),
        answered_by=answered_by,
        ran=tuple(each.candidate for each in running),
        statuses={proposal.proposal_id: status.value},
    )


def _intent(
    space: Space, call: ToolCall, outcome: CandidateOutcome, decided: Decided, turn: Turn, stamp: Stamp
) -> Intent:
    tool = space.tools[call.tool_id]
    # Under a case that is lost, nothing starts: its START withdraws it.
    is_lost = has_lost_case(space, decided.message.proposal, decided.actor)
    begins = turn.begins(space, tool) and not is_lost
    return Intent(
        execution_id=turn.starts or f"x-{stamp.event_id}-{outcome.candidate}",
        candidate=outcome.candidate,
        tool_id=call.tool_id,
        args_hash=outcome.args_hash,
        deadline=later(stamp.ts, tool.timeout_ms + GRACE_MS if begins else decided.message.defer_ms),
        capability_token_id=call.capability_token_id,
        idempotency_key=call.idempotency_key,
        ready=not begins,
    )


class _NeededApproval(NamedTuple):
    """An approval that a candidate waits for, and what it must be bound to."""

    candidate: int
    tool_id: str | None
    args_hash: str
    call_hash: str
    constraints: tuple[str, ...]
    policy_hash: str
    tool_hash: str | None
    case_id: str | None

    def is_asked_for_by(self, approval: Approval) -> bool:
        """Whether this request, once granted, is the approval."""
        asked = approval.asked
        return (asked.candidate, tuple(asked.constraints), approval.policy_hash, asked.tool_hash) == (
            self.candidate,
            self.constraints,
            self.policy_hash,
            self.tool_hash,
        )


def _is_needed(approval: Approval, needed: list[_NeededApproval]) -> bool:
    return any(each.is_asked_for_by(approval) for each in needed)


def _list_needed_approvals(
    space: Space, proposal: Proposal, actor: Actor, arbitration: Arbitration
) -> list[_NeededApproval]:
    needed = []
    for outcome in arbitration.candidates:
        if outcome.asks:
            candidate = proposal.candidates[outcome.candidate]
            tool_id = candidate.tool_id if isinstance(candidate, ToolCall) else None
            needed.append(
                _NeededApproval(
                    outcome.candidate,
                    tool_id,
                    outcome.args_hash,
                    hash_of_call(space, actor.id, proposal.case_id, tool_id, outcome.args_hash),
                    outcome.asks,
                    arbitration.decision.policy_hash,
                    hash_of_tool(space, tool_id),
                    None if isinstance(proposal.case_id, msgspec.UnsetType) else proposal.case_id,
                )
            )
    return needed


def _requests(needed: list[_NeededApproval], pending: list[Approval], stamp: Stamp, ask_ms: int) -> list[Asked]:
    """Requests for the approvals that are not asked for already."""
    return [
        Asked(
            approval_id=f"a-{stamp.event_id}-{each.candidate}",
            candidate=each.candidate,
            args_hash=each.args_hash,
            call_hash=each.call_hash,
            constraints=list(each.constraints),
            expires_at=later(stamp.ts, ask_ms),
            tool_id=each.tool_id,
            tool_hash=each.tool_hash,
            case_id=each.case_id,
        )
        for each in needed
        if not any(map(each.is_asked_for_by, pending))
    ]


def is_open(status: ExecutionStatus) -> bool:
    """Whether an execution was started, and may still have an outcome."""
    return status in (ExecutionStatus.RUNNING, ExecutionStatus.IN_DOUBT)


def statuses_of(space: Space, record: ProposalRecord) -> list[ExecutionStatus]:
    """Where the executions of a proposal stand: its own, but for those that were not started, and what answers it."""
    answers = {execution_id for _, execution_id in record.answered_by}
    known = [space.executions[execution_id] for execution_id in record.execution_ids]
    return [
        each.status
        for each in known
        if each.status is not ExecutionStatus.NOT_STARTED or each.intent.execution_id in answers
    ]
