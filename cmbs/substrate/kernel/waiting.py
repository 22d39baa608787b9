"""How proposals wait, and how that ends: looking again, rejection, withdrawal, expiry.

Waiting proposals are those that are parked or that ask for an approval.
"""

from __future__ import annotations

from collections.abc import Iterable

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.errors import Conflict
from cmbs.messages import Actor
from cmbs.substrate.kernel import memory
from cmbs.substrate.kernel.approvals import pending_approvals
from cmbs.substrate.kernel.events import Expire, ExpiryOf, Reject, SpaceVerb, StepResult, Wake, Withdraw
from cmbs.substrate.kernel.model import BeliefReading, Decision
from cmbs.substrate.kernel.proposals import (
    Turn,
    decide_again,
    find_proposal,
    is_open,
    require_pending,
    statuses_of,
    waiting_places,
)
from cmbs.substrate.kernel.state import ProposalRecord, Space
from cmbs.substrate.kernel.steps import StepReason, is_operator, is_same_actor, refuse, require_engine
from cmbs.substrate.kernel.words import ExecutionStatus, ProposalStatus


class OutcomeUnchanged(Conflict):
    """Deciding a waiting proposal again leads to what it led to before, and is not recorded."""


# --- looking again ----------------------------------------------------------------------------------------------------


def decide_wake(space: Space, message: Wake, actor: Actor, stamp: Stamp) -> StepResult:
    """Something that a waiting proposal depends on has changed: decide again.

    OutcomeUnchanged where that changes nothing.
    """
    require_engine(actor, SpaceVerb.WAKE)
    record = find_proposal(space, message.proposal_id)
    if not is_waiting(space, message.proposal_id, record):
        raise Conflict(f"proposal `{message.proposal_id}` waits for nothing", {"proposal_id": message.proposal_id})
    result = _look_again(space, record, message.belief, stamp, is_queued=message.queued is True)
    if not _changes_outcome(space, record, result):
        raise OutcomeUnchanged(
            f"proposal `{message.proposal_id}` stands where it stood", {"proposal_id": message.proposal_id}
        )
    return result


def would_change(space: Space, proposal_id: str, belief: list[BeliefReading], now: str) -> bool:
    """Whether waking a proposal would change what it came to; False for one that waits for nothing."""
    record = space.proposals.get(proposal_id)
    if record is None or not is_waiting(space, proposal_id, record):
        return False
    return _changes_outcome(space, record, _look_again(space, record, belief, Stamp("", now)))


def is_waiting(space: Space, proposal_id: str, record: ProposalRecord) -> bool:
    """Whether a proposal is parked, or asks for an approval."""
    return proposal_id in space.parked or bool(pending_approvals(space, record))


def list_ready(space: Space, record: ProposalRecord) -> list[str]:
    """The executions of a proposal that wait to be started, by id."""
    answers = {execution_id for _, execution_id in record.answered_by}
    own = [each for each in record.execution_ids if each not in answers]
    return [each for each in own if space.executions[each].status is ExecutionStatus.READY]


def _look_again(
    space: Space, record: ProposalRecord, belief: list[BeliefReading], stamp: Stamp, *, is_queued: bool = False
) -> StepResult:
    return decide_again(space, record, waiting_places(space, record), belief, stamp, Turn(is_queued=is_queued))


def _changes_outcome(space: Space, record: ProposalRecord, result: StepResult) -> bool:
    """Whether a later decision leads to anything else than the one on record: it runs something, asks for another
    approval or for none, waits for something else, or says another verdict or reason.
    """
    if result.ran or result.asked or result.withdrawn_approvals:
        return True
    (proposal_id,) = result.statuses
    parked = space.parked.get(proposal_id)
    before = None if parked is None else parked.waits_for
    after = None if result.parked_until is None else result.waits_for
    return (
        before != after
        or result.statuses[proposal_id] != record.status
        or _outcome_of(record.decision) != _outcome_of(result.decision)
    )


def _outcome_of(decision: Decision | None) -> object:
    """What a decision says, without what it was found by."""
    if decision is None:  # pragma: no cover - a proposal is always decided
        raise TypeError("a proposal without a decision")
    candidates = tuple(
        (each.candidate, each.verdict, each.failure, each.reason_code, each.waits_for, each.offer)
        for each in decision.candidates
    )
    return decision.verdict, decision.failure, decision.reason_code, decision.observed, candidates


# --- the end of waiting -----------------------------------------------------------------------------------------------


def decide_reject(space: Space, message: Reject, actor: Actor, stamp: Stamp) -> StepResult:  # noqa: ARG001
    """No. The proposer may say so too."""
    approval = require_pending(space, message.approval_id)
    if not is_operator(actor) and not is_same_actor(actor, approval.proposer):
        return refuse(StepReason.NOT_AUTHORISED)
    return end_waiting(space, [approval.proposal_id], ProposalStatus.REJECTED)


def decide_withdraw(space: Space, message: Withdraw, actor: Actor, stamp: Stamp) -> StepResult | Repeat:  # noqa: ARG001
    """What a proposal waits for is not wanted any more, say its author or an operator. Saying so again is a repeat."""
    record = find_proposal(space, message.proposal_id)
    if not is_operator(actor) and not is_same_actor(actor, record.actor):
        return refuse(StepReason.NOT_AUTHORISED)
    if record.withdrawn_seq is not None:
        return Repeat(record.withdrawn_seq)
    if not is_waiting(space, message.proposal_id, record) and not list_ready(space, record):
        raise Conflict(
            f"proposal `{message.proposal_id}` is {record.status.value}, and waits for nothing",
            {"proposal_id": message.proposal_id, "status": record.status.value},
        )
    return end_waiting(space, [message.proposal_id], ProposalStatus.WITHDRAWN)


def end_waiting(space: Space, proposal_ids: Iterable[str], ended: ProposalStatus) -> StepResult:
    """The step after which these proposals wait for nothing any more: what runs already goes on.

    What waits to be started is not started any more, unless its proposal is not atomic and another candidate ended.
    """
    statuses: dict[str, str] = {}
    unstarted: list[str] = []
    for proposal_id in proposal_ids:
        record = find_proposal(space, proposal_id)
        ready = list_ready(space, record)
        if ended is ProposalStatus.WITHDRAWN or (ready and record.message.proposal.atomic):
            unstarted += ready
            ready = []
        runs = any(map(is_open, statuses_of(space, record)))
        rest = ProposalStatus.READY if ready else ended
        statuses[proposal_id] = (ProposalStatus.RUNNING if runs else rest).value
    return StepResult(statuses=statuses, not_started=tuple(sorted(unstarted)))


def decide_expire(space: Space, message: Expire, actor: Actor, stamp: Stamp) -> StepResult:
    """The time of a request for approval, of a parked proposal, or of a memory entry is over."""
    require_engine(actor, SpaceVerb.EXPIRE)
    if message.of is ExpiryOf.MEMORY:
        entry = memory.expire(space.memory, message.id, space.head.seq + 1, stamp.ts)
        if isinstance(entry, memory.MemoryReason):
            raise Conflict(f"memory entry `{message.id}` does not expire now: {entry.value}", {"entry_id": message.id})
        return StepResult()
    if message.of is ExpiryOf.APPROVAL:
        approval = require_pending(space, message.id)
        _require_due(approval.asked.expires_at, stamp)
        return end_waiting(space, [approval.proposal_id], ProposalStatus.EXPIRED)
    if message.of is ExpiryOf.EXECUTION:
        return _expire_execution(space, message.id, stamp)
    parked = space.parked.get(message.id)
    if parked is None:
        raise Conflict(f"proposal `{message.id}` is not parked", {"proposal_id": message.id})
    _require_due(parked.until, stamp)
    # Of one that is not atomic, another candidate may still wait for an approval.
    asked = bool(pending_approvals(space, find_proposal(space, message.id)))
    ended = ProposalStatus.ASKED if asked else ProposalStatus.EXPIRED
    return end_waiting(space, [message.id], ended)


def _expire_execution(space: Space, execution_id: str, stamp: Stamp) -> StepResult:
    """The time is over in which a call could be started."""
    execution = space.executions.get(execution_id)
    if execution is None or execution.status is not ExecutionStatus.READY:
        raise Conflict(f"execution `{execution_id}` does not wait to be started", {"execution_id": execution_id})
    _require_due(execution.intent.deadline, stamp)
    record = space.proposals[execution.proposal_id]
    others = [known for known in list_ready(space, record) if known != execution_id]
    status = ProposalStatus.EXPIRED
    if any(map(is_open, statuses_of(space, record))):
        status = ProposalStatus.RUNNING
    elif pending_approvals(space, record):
        status = ProposalStatus.ASKED
    elif execution.proposal_id in space.parked:
        status = ProposalStatus.PARKED
    elif others:
        status = ProposalStatus.READY
    return StepResult(statuses={execution.proposal_id: status.value}, not_started=(execution_id,))


def _require_due(moment: str, stamp: Stamp) -> None:
    if stamp.ts < moment:
        raise Conflict(f"its time is not over before {moment}", {"due": moment})
