"""What becomes of proposals: decided when they are made, when what they wait for changes, and when they are approved.

The verdict is arbitration's. What follows from it is here: intents, requests for approval, parking, the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import msgspec

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.errors import Conflict, InvalidRequest, RecordNotFound
from cmbs.ledger.instants import later
from cmbs.messages import Actor
from cmbs.substrate.kernel import memory
from cmbs.substrate.kernel.approvals import with_approval
from cmbs.substrate.kernel.arbitration.arbitrate import Ruled, Ruling, arbitrate, belief_sessions
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
from cmbs.substrate.kernel.steps import StepReason, fingerprint, is_operator, refused, require_engine, same_person

# How long beyond its tool's own limit an execution is waited for before it is in doubt.
GRACE_MS = 5_000
MAX_USES = 1_000_000
_NO_CHANGES = Changes()
_NO_READINGS: Mapping[str, BeliefReading] = MappingProxyType({})
_THE_ONE = (0,)
_ALLOW = Verdict.ALLOW
_COMMITTED = ProposalStatus.COMMITTED.value
_Arbitration: TypeAlias = Callable[[Space, Proposal, Actor, str, list[BeliefReading]], Ruling]


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
    return _ruled(space, message, _arbitrated(space, proposal, actor, stamp.ts, message.belief), stamp, None)


def _arbitrated(space: Space, proposal: Proposal, actor: Actor, now: str, belief: list[BeliefReading]) -> Ruling:
    """The ruling, with its trace unless it is a plain allow: that one can be told again from the log at any time."""
    readings = _readings(belief) if belief else _NO_READINGS
    if space.policy.reads_belief:
        require_readings(belief_sessions(space, proposal), readings)
    if not belief:
        ruling = arbitrate(space, proposal, actor, now, readings, explain=False)
        decision = ruling.decision
        if decision.verdict is _ALLOW and (proposal.atomic or _are_allowed(decision)):
            return ruling
    return arbitrate(space, proposal, actor, now, readings, explain=True)


def _are_allowed(decision: Decision) -> bool:
    return all(each.verdict is _ALLOW for each in decision.candidates)


def decide_wake(space: Space, message: Wake, actor: Actor, stamp: Stamp) -> StepResult:
    """Something that a parked proposal waits for has changed: decide again."""
    require_engine(actor, SpaceVerb.WAKE)
    record = _proposal(space, message.proposal_id)
    if message.proposal_id not in space.parked:
        raise Conflict(f"proposal `{message.proposal_id}` is not parked", {"proposal_id": message.proposal_id})
    return _decided_again(space, record, waiting_places(space, record), message.belief, stamp)


def decide_approve(space: Space, message: Approve, actor: Actor, stamp: Stamp) -> StepResult:
    """Yes to what was asked; the proposal is decided again, on the state of this moment."""
    approval = _pending(space, message.approval_id)
    if not 1 <= message.uses <= MAX_USES:
        raise InvalidRequest(f"`uses` must be from 1 to {MAX_USES}, got `{message.uses}`", {"field": "uses"})
    if not is_operator(actor):
        return refused(StepReason.NOT_AUTHORISED)
    if same_person(actor, approval.proposer):
        return refused(StepReason.SELF_APPROVAL)
    if stamp.ts >= approval.asked.expires_at:
        return refused(StepReason.APPROVAL_EXPIRED)
    if message.args_hash is not None and message.args_hash != approval.asked.args_hash:
        return refused(StepReason.ARGS_CHANGED)
    granted = with_approval(space, message, actor, space.head.seq + 1)
    record = _proposal(space, approval.proposal_id)
    return _decided_again(granted, record, waiting_places(space, record), message.belief, stamp)


def decide_reject(space: Space, message: Reject, actor: Actor, stamp: Stamp) -> StepResult:  # noqa: ARG001
    """No. Whoever proposed it may say so too."""
    approval = _pending(space, message.approval_id)
    if not is_operator(actor) and not same_person(actor, approval.proposer):
        return refused(StepReason.NOT_AUTHORISED)
    return StepResult(statuses={approval.proposal_id: _without(space, approval, ProposalStatus.REJECTED)})


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
        return StepResult(statuses={approval.proposal_id: _without(space, approval, ProposalStatus.EXPIRED)})
    parked = space.parked.get(message.id)
    if parked is None:
        raise Conflict(f"proposal `{message.id}` is not parked", {"proposal_id": message.id})
    _require_due(parked.until, stamp)
    record = _proposal(space, message.id)
    # Of one that is not atomic, somebody may still be asked about another candidate.
    ended = ProposalStatus.ASKED if _pending_of(space, record) else ProposalStatus.EXPIRED
    return StepResult(statuses={message.id: _ended(space, record, ended)})


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
    """A decision needs to know of a belief session that nobody has asked about: ask, and decide again."""


def require_readings(session_ids: frozenset[str], belief: Mapping[str, BeliefReading]) -> None:
    """Raise BeliefUnread where the policy may read a session of which nothing was read.

    That happens where the policy has changed since somebody asked the belief plane. Taken for a session that does not
    exist, it would lift every denial that rests on what the session says.
    """
    unread = sorted(session_ids.difference(belief))
    if unread:
        raise BeliefUnread(
            f"the policy reads belief session `{unread[0]}`, of which nothing was read", {"session_id": unread[0]}
        )


def _readings(belief: Iterable[BeliefReading]) -> Mapping[str, BeliefReading]:
    return {reading.session_id: reading for reading in belief}


# --- deciding again ---------------------------------------------------------------------------------------------------


def waiting_places(space: Space, record: ProposalRecord) -> list[int]:
    """The candidates of a proposal that are decided again when something that it waits for comes about.

    Of an atomic one all. Otherwise those that somebody is asked about, and those that are deferred and still in time:
    what was blocked stays so, whatever becomes of the others, and what was let through is not decided twice.
    """
    proposal = record.message.proposal
    if proposal.atomic:
        return [place for place in range(len(proposal.candidates)) if place not in record.done]
    waiting = {approval.asked.candidate for approval in _pending_of(space, record)}
    if proposal.proposal_id in space.parked:
        waiting |= {each.candidate for each in record.decision.candidates if _is_deferred(each)}
    return sorted(waiting.difference(record.done))


def _is_deferred(decided: CandidateDecision) -> bool:
    return decided.failure is Failure.DEFER and decided.stage is not Stage.FRESHNESS


def _decided_again(
    space: Space, record: ProposalRecord, places: list[int], belief: list[BeliefReading], stamp: Stamp
) -> StepResult:
    """Decide what is left of a proposal on the state as it is now."""
    ruling = _ruling_on_rest(space, record, places, belief, stamp.ts, _arbitrated)
    return _ruled(space, record.message, ruling, stamp, record)


def _ruling_on_rest(
    space: Space,
    record: ProposalRecord,
    places: list[int],
    belief: list[BeliefReading],
    now: str,
    arbitration: _Arbitration,
) -> Ruling:
    rest = record.message.proposal
    candidates = rest.candidates
    if len(places) < len(candidates):
        rest = msgspec.structs.replace(rest, candidates=[candidates[place] for place in places])
    ruling = arbitration(space, _rebased(space, rest), record.actor, now, belief)
    return ruling if len(places) == len(candidates) else _placed(ruling, places, record.decision)


def traced(before: Space, event: SpaceEvent) -> Decision:
    """The decision that an event recorded, made again on the space before it, with its whole trace."""
    message, body = event.message, event.body
    if isinstance(message, Propose):
        return _explained(before, message.proposal, body.actor, body.ts, message.belief).decision
    if isinstance(message, Wake):
        record = before.proposals[message.proposal_id]
        places = waiting_places(before, record)
        return _ruling_on_rest(before, record, places, message.belief, body.ts, _explained).decision
    if isinstance(message, Approve):
        record = before.proposals[before.approvals[message.approval_id].proposal_id]
        places = waiting_places(before, record)
        granted = with_approval(before, message, body.actor, body.seq)
        return _ruling_on_rest(granted, record, places, message.belief, body.ts, _explained).decision
    raise TypeError(f"{body.verb} decides no proposal")


def _explained(space: Space, proposal: Proposal, actor: Actor, now: str, belief: list[BeliefReading]) -> Ruling:
    return arbitrate(space, proposal, actor, now, _readings(belief), explain=True)


def _rebased(space: Space, proposal: Proposal) -> Proposal:
    """The proposal on the newest snapshot, unless somebody else has written what it writes: then it stays stale."""
    seen = space.snapshots.get(proposal.state_snapshot_id)
    if seen is None:  # pragma: no cover - on a snapshot that never was, nothing is parked or asked for
        return proposal
    for candidate in proposal.candidates:
        if isinstance(candidate, StateDelta):
            for key in (*candidate.set, *candidate.unset):
                if space.changed.get(key, -1) > seen:
                    return proposal
    return msgspec.structs.replace(proposal, state_snapshot_id=space.snapshot_id)


def _placed(ruling: Ruling, places: list[int], before: Decision) -> Ruling:
    """A ruling on some candidates as one on the whole proposal, with what was decided of the others before."""
    decision = ruling.decision
    decided: dict[int, CandidateDecision] = {each.candidate: each for each in before.candidates}
    for each in decision.candidates:
        decided[places[each.candidate]] = msgspec.structs.replace(each, candidate=places[each.candidate])
    trace = tuple(
        step if step.candidate is None else msgspec.structs.replace(step, candidate=places[step.candidate])
        for step in decision.trace
    )
    candidates = tuple(decided[place] for place in sorted(decided))
    whole = msgspec.structs.replace(decision, candidates=candidates, trace=trace)
    ruled = tuple(msgspec.structs.replace(each, candidate=places[each.candidate]) for each in ruling.candidates)
    return msgspec.structs.replace(ruling, decision=whole, candidates=ruled)


# --- what follows from a ruling ---------------------------------------------------------------------------------------


def _ruled(space: Space, message: Propose, ruling: Ruling, stamp: Stamp, record: ProposalRecord | None) -> StepResult:
    proposal = message.proposal
    if not proposal.atomic and not ruling.decision.observed:
        ruling = _each_for_itself(ruling)
    if record is None and len(ruling.candidates) == 1:
        (only,) = ruling.candidates
        if only.runs and only.answered_by is None and isinstance(proposal.candidates[0], StateDelta):
            # A single delta that is let through, which most proposals are: nothing runs, waits or is asked for.
            return StepResult(
                decision=ruling.decision,
                changes=ruling.changes,
                used_approvals=tuple(sorted(only.used_approvals)) if only.used_approvals else (),
                ran=_THE_ONE,
                statuses={proposal.proposal_id: _COMMITTED},
            )
    running = [each for each in ruling.candidates if each.runs]
    intents = [_intent(space, proposal, each, stamp) for each in running if _begins(proposal, each)]
    answered_by = {str(each.candidate): each.answered_by for each in running if each.answered_by is not None}
    earlier = [space.executions[execution_id].status for execution_id in answered_by.values()]
    # Effects first, then the commit: the deltas of an atomic proposal wait for what it runs.
    held = proposal.atomic and (bool(intents) or any(status is not ExecutionStatus.SUCCEEDED for status in earlier))
    asked = _asked(space, proposal, ruling, stamp, message.ask_ms, record)
    parked_until = None
    if ruling.parks:
        known = None if record is None else space.parked.get(proposal.proposal_id)
        parked_until = later(stamp.ts, message.defer_ms) if known is None else known.until
    statuses = [] if record is None else [space.executions[known].status for known in record.execution_ids]
    standing = _Standing(
        running=bool(intents) or any(_is_open(status) for status in (*statuses, *earlier)),
        asked=bool(asked) or bool(_pending_of(space, record)),
        parked=parked_until is not None,
        ran=bool(running) or bool(record is not None and record.done),
        failed=any(_is_bad(status) for status in (*statuses, *earlier)),
    )
    return StepResult(
        decision=ruling.decision,
        changes=_NO_CHANGES if held else ruling.changes,
        intents=tuple(intents),
        asked=tuple(asked),
        parked_until=parked_until,
        waits_for=ruling.waits_for if ruling.parks else (),
        # Of two that are the same each takes a use, so that one approval may stand here twice.
        used_approvals=tuple(sorted(approval_id for each in running for approval_id in each.used_approvals)),
        answered_by=answered_by,
        ran=tuple(each.candidate for each in running),
        statuses={proposal.proposal_id: standing.status.value},
    )


def _each_for_itself(ruling: Ruling) -> Ruling:
    """Of a proposal that is not atomic, every candidate asks and waits whatever becomes of the others."""
    decided = {each.candidate: each for each in ruling.decision.candidates}
    waits_for: set[str] = set()
    parks = False
    candidates = []
    for ruled in ruling.candidates:
        failed = decided[ruled.candidate]
        asks = failed.matched if failed.failure is Failure.ASK else ()
        candidates.append(msgspec.structs.replace(ruled, asks=asks))
        if _is_deferred(failed):
            parks = True
            waits_for.update(failed.waits_for)
    return msgspec.structs.replace(
        ruling, candidates=tuple(candidates), parks=parks, waits_for=tuple(sorted(waits_for))
    )


class _Standing(NamedTuple):
    """What is known of a proposal after a decision."""

    running: bool
    asked: bool
    parked: bool
    ran: bool
    failed: bool

    @property
    def status(self) -> ProposalStatus:
        if self.running:
            return ProposalStatus.RUNNING
        if self.asked:
            return ProposalStatus.ASKED
        if self.parked:
            return ProposalStatus.PARKED
        if not self.ran:
            return ProposalStatus.DENIED
        return ProposalStatus.FAILED if self.failed else ProposalStatus.COMMITTED


def _begins(proposal: Proposal, ruled: Ruled) -> bool:
    return ruled.answered_by is None and isinstance(proposal.candidates[ruled.candidate], ToolCall)


def _intent(space: Space, proposal: Proposal, ruled: Ruled, stamp: Stamp) -> Intent:
    call = proposal.candidates[ruled.candidate]
    if not isinstance(call, ToolCall):  # pragma: no cover - only calls begin
        raise TypeError(call)
    tool = space.tools[call.tool_id]
    return Intent(
        execution_id=f"x-{stamp.event_id}-{ruled.candidate}",
        candidate=ruled.candidate,
        tool_id=call.tool_id,
        args_hash=ruled.args_hash,
        deadline=later(stamp.ts, tool.timeout_ms + GRACE_MS),
        capability_token_id=call.capability_token_id,
        idempotency_key=call.idempotency_key,
    )


def _asked(
    space: Space, proposal: Proposal, ruling: Ruling, stamp: Stamp, ask_ms: int, record: ProposalRecord | None
) -> list[Asked]:
    """Requests for what is not being asked for already."""
    if not any(ruled.asks for ruled in ruling.candidates):
        return []
    pending = {
        (approval.asked.candidate, tuple(approval.asked.constraints), approval.policy_hash)
        for approval in _pending_of(space, record)
    }
    asked = []
    for ruled in ruling.candidates:
        if not ruled.asks or ruled.runs or (ruled.candidate, ruled.asks, ruling.decision.policy_hash) in pending:
            continue
        candidate = proposal.candidates[ruled.candidate]
        asked.append(
            Asked(
                approval_id=f"a-{stamp.event_id}-{ruled.candidate}",
                candidate=ruled.candidate,
                args_hash=ruled.args_hash,
                constraints=list(ruled.asks),
                expires_at=later(stamp.ts, ask_ms),
                tool_id=candidate.tool_id if isinstance(candidate, ToolCall) else None,
            )
        )
    return asked


def _pending_of(space: Space, record: ProposalRecord | None) -> list[Approval]:
    if record is None:
        return []
    known = [space.approvals[approval_id] for approval_id in record.approval_ids]
    return [approval for approval in known if approval.status is ApprovalStatus.PENDING]


def _is_open(status: ExecutionStatus) -> bool:
    return status in (ExecutionStatus.RUNNING, ExecutionStatus.IN_DOUBT)


def _is_bad(status: ExecutionStatus) -> bool:
    return not _is_open(status) and status is not ExecutionStatus.SUCCEEDED


def _without(space: Space, approval: Approval, ended: ProposalStatus) -> ProposalStatus:
    """Where a proposal stands once a request of it was turned down, or nobody answered: nobody waits any more."""
    return _ended(space, _proposal(space, approval.proposal_id), ended)


def _ended(space: Space, record: ProposalRecord, ended: ProposalStatus) -> ProposalStatus:
    """Where a proposal stands that waits for nothing any more: what runs already goes on."""
    runs = any(_is_open(space.executions[known].status) for known in record.execution_ids)
    return ProposalStatus.RUNNING if runs else ended


def heard(before: Space, event: SpaceEvent) -> tuple[Space, Proposal, Actor]:
    """What a recorded decision was made on: the space, what was left of the proposal, and whose it is."""
    message, body = event.message, event.body
    if isinstance(message, Propose):
        return before, message.proposal, body.actor
    if isinstance(message, Approve):
        record = before.proposals[before.approvals[message.approval_id].proposal_id]
        places = waiting_places(before, record)
        before = with_approval(before, message, body.actor, body.seq)
    elif isinstance(message, Wake):
        record = before.proposals[message.proposal_id]
        places = waiting_places(before, record)
    else:
        raise TypeError(f"{body.verb} decides no proposal")
    proposal = record.message.proposal
    left = [proposal.candidates[place] for place in places]
    return before, _rebased(before, msgspec.structs.replace(proposal, candidates=left)), record.actor
