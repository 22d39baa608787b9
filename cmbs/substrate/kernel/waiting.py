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
from cmbs.substrate.kernel.proposals import decide_again, find_proposal, is_open, require_pending, waiting_places
from cmbs.substrate.kernel.state import ProposalRecord, Space
from cmbs.substrate.kernel.steps import StepReason, is_operator, refuse, require_engine, same_person
from cmbs.substrate.kernel.words import ProposalStatus


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
    result = _look_again(space, record, message.belief, stamp)
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


def _look_again(space: Space, record: ProposalRecord, belief: list[BeliefReading], stamp: Stamp) -> StepResult:
    return decide_again(space, record, waiting_places(space, record), belief, stamp)


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
    if not is_operator(actor) and not same_person(actor, approval.proposer):
        return refuse(StepReason.NOT_AUTHORISED)
    return StepResult(statuses=end_waiting(space, [approval.proposal_id], ProposalStatus.REJECTED))


def decide_withdraw(space: Space, message: Withdraw, actor: Actor, stamp: Stamp) -> StepResult | Repeat:  # noqa: ARG001
    """What a proposal waits for is not wanted any more, say its author or an operator. Saying so again is a repeat."""
    record = find_proposal(space, message.proposal_id)
    if not is_operator(actor) and not same_person(actor, record.actor):
        return refuse(StepReason.NOT_AUTHORISED)
    if record.withdrawn_seq is not None:
        return Repeat(record.withdrawn_seq)
    if not is_waiting(space, message.proposal_id, record):
        raise Conflict(
            f"proposal `{message.proposal_id}` is {record.status.value}, and waits for nothing",
            {"proposal_id": message.proposal_id, "status": record.status.value},
        )
    return StepResult(statuses=end_waiting(space, [message.proposal_id], ProposalStatus.WITHDRAWN))


def end_waiting(space: Space, proposal_ids: Iterable[str], ended: ProposalStatus) -> dict[str, str]:
    """Where proposals stand that wait for nothing any more: what runs already goes on.

    Recorded as the `statuses` of a step, for `evolve.end_waiting` to carry out.
    """
    statuses: dict[str, str] = {}
    for proposal_id in proposal_ids:
        record = find_proposal(space, proposal_id)
        runs = any(is_open(space.executions[known].status) for known in record.execution_ids)
        statuses[proposal_id] = (ProposalStatus.RUNNING if runs else ended).value
    return statuses


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
        return StepResult(statuses=end_waiting(space, [approval.proposal_id], ProposalStatus.EXPIRED))
    parked = space.parked.get(message.id)
    if parked is None:
        raise Conflict(f"proposal `{message.id}` is not parked", {"proposal_id": message.id})
    _require_due(parked.until, stamp)
    # Of one that is not atomic, another candidate may still wait for an approval.
    asked = bool(pending_approvals(space, find_proposal(space, message.id)))
    ended = ProposalStatus.ASKED if asked else ProposalStatus.EXPIRED
    return StepResult(statuses=end_waiting(space, [message.id], ended))


def _require_due(moment: str, stamp: Stamp) -> None:
    if stamp.ts < moment:
        raise Conflict(f"its time is not over before {moment}", {"due": moment})
