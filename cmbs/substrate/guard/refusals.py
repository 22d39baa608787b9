"""Why a guarded call gave no result: the decision, and a sentence that an agent can hand to its model."""

from __future__ import annotations

from collections.abc import Sequence

from cmbs.errors import CmbsError
from cmbs.refusals import Refusal
from cmbs.substrate.kernel.model import Decision, Failure
from cmbs.substrate.kernel.state import Execution, ProposalRecord
from cmbs.substrate.kernel.words import ProposalStatus

# A call of such a proposal has an execution, or an earlier one that answers it.
ALLOWED_SO_FAR = (ProposalStatus.READY, ProposalStatus.RUNNING, ProposalStatus.COMMITTED, ProposalStatus.FAILED)


class GuardError(CmbsError):
    """A guarded call gave no result."""


class ProposalPending(GuardError):
    """What became of a proposal, as far as it is known."""

    said = "has no result yet"

    def __init__(self, record: ProposalRecord, refusals: Sequence[Refusal] = ()) -> None:
        self.record = record
        self.refusals = tuple(refusals)
        super().__init__(f"the call {self.said}: {_describe(record.decision, self.refusals)}")

    @property
    def refusal(self) -> Refusal | None:
        """Why the call was not let through, and what to do about it; None where nothing was decided against it."""
        return self.refusals[0] if self.refusals else None

    @property
    def proposal_id(self) -> str:
        """The proposal; `Guard.wait` waits for it."""
        return self.record.message.proposal.proposal_id

    @property
    def decision(self) -> Decision:
        """The newest decision on it."""
        return self.record.decision


class CallDenied(ProposalPending):
    """The call is not allowed and did not run."""

    said = "is denied"


class CallDegraded(CallDenied):
    """The call is not allowed; the policy offers something else. `offer` is the policy's own text."""

    said = "is denied, and something else is offered"

    @property
    def offer(self) -> str | None:
        """What may be used instead."""
        return self.decision.candidates[0].offer


class CallRejected(CallDenied):
    """An approval was asked for, and refused."""

    said = "was rejected"


class CallWithdrawn(CallDenied):
    """The call was withdrawn while it waited."""

    said = "was withdrawn"


class CallExpired(CallDenied):
    """What the call waited for did not come in time."""

    said = "waited in vain"


class CallDeferred(ProposalPending):
    """The call is parked: this process runs it when what it waits for has changed, unless that takes too long."""

    said = "is deferred"

    @property
    def waits_for(self) -> list[str]:
        """State keys and belief sessions that it waits for."""
        return list(self.decision.candidates[0].waits_for)


class CallAsked(ProposalPending):
    """The call needs an approval first; then this process runs it."""

    said = "needs an approval"

    @property
    def approval_ids(self) -> tuple[str, ...]:
        """The requests for approval."""
        return self.record.approval_ids


class CallFailed(ProposalPending):
    """The call ran, and failed, took too long, or gave a result that cannot be taken over."""

    said = "failed"

    def __init__(self, record: ProposalRecord, execution: Execution) -> None:
        self.execution = execution
        super().__init__(record)
        self.args = (f"the call {execution.status.value.replace('_', ' ')}: {execution.error}",)


class CallInDoubt(ProposalPending):
    """Whether the call took place is not known. It is not tried again unless its tool is declared idempotent."""

    said = "is in doubt"

    def __init__(self, record: ProposalRecord, execution: Execution) -> None:
        self.execution = execution
        super().__init__(record)
        self.args = ("the call is in doubt: it may or may not have taken place",)


def refusal_of(record: ProposalRecord, refusals: Sequence[Refusal] = ()) -> ProposalPending:
    """The error for a proposal whose call has not run."""
    match record.status:
        case ProposalStatus.PARKED:
            return CallDeferred(record, refusals)
        case ProposalStatus.ASKED:
            return CallAsked(record, refusals)
        case ProposalStatus.REJECTED:
            return CallRejected(record, refusals)
        case ProposalStatus.EXPIRED:
            return CallExpired(record, refusals)
        case ProposalStatus.WITHDRAWN:
            return CallWithdrawn(record, refusals)
        case _ if record.decision.failure is Failure.DEGRADE:
            return CallDegraded(record, refusals)
        case _:
            return CallDenied(record, refusals)


def _describe(decision: Decision, refusals: Sequence[Refusal]) -> str:
    return "; ".join(f"{each.code}: {each.sentence}" for each in refusals) or decision.reason_code.value
