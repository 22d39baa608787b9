"""A call as it stands: the candidate that its id names, and what is known of it."""

from __future__ import annotations

from typing import NamedTuple

from cmbs.errors import RecordNotFound
from cmbs.messages import Actor
from cmbs.substrate.kernel.arbitration.stages import hash_of_args
from cmbs.substrate.kernel.calls import (
    SERVER,
    hash_of_call,
    is_executor,
    name_call,
    name_runner,
    read_call_id,
)
from cmbs.substrate.kernel.events import Propose
from cmbs.substrate.kernel.model import CandidateDecision, ToolCall, Verdict
from cmbs.substrate.kernel.state import Execution, ProposalRecord, Space
from cmbs.substrate.kernel.waiting import is_waiting
from cmbs.substrate.kernel.words import ApprovalStatus, CallStatus, ExecutionStatus, ProposalStatus
from cmbs.substrate.settled import SettledRecords

_OF_EXECUTION = {
    ExecutionStatus.READY: CallStatus.WAITING,
    ExecutionStatus.RUNNING: CallStatus.RUNNING,
    ExecutionStatus.IN_DOUBT: CallStatus.IN_DOUBT,
    ExecutionStatus.SUCCEEDED: CallStatus.DONE,
    ExecutionStatus.FAILED: CallStatus.FAILED,
    ExecutionStatus.TIMED_OUT: CallStatus.FAILED,
    ExecutionStatus.RESULT_REFUSED: CallStatus.FAILED,
}
_OF_PROPOSAL = {
    ProposalStatus.WITHDRAWN: CallStatus.WITHDRAWN,
    ProposalStatus.EXPIRED: CallStatus.EXPIRED,
}
_OF_APPROVAL = {
    ApprovalStatus.REJECTED: CallStatus.DENIED,
    ApprovalStatus.WITHDRAWN: CallStatus.WITHDRAWN,
    ApprovalStatus.EXPIRED: CallStatus.EXPIRED,
}


class CallRecord(NamedTuple):
    """One candidate of a proposal, in a space that has the proposal."""

    space: Space
    proposal_id: str
    record: ProposalRecord
    place: int
    call: ToolCall

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return name_call(self.record.event_id, self.place)

    @property
    def execution(self) -> Execution | None:
        """The newest run of it, or the one of an earlier call that answers it."""
        answered = dict(self.record.answered_by).get(self.place)
        if answered is not None:
            return self.space.executions.get(answered)
        known = (self.space.executions.get(each) for each in reversed(self.record.execution_ids))
        own = (each for each in known if each is not None and each.proposal_id == self.proposal_id)
        return next((each for each in own if each.intent.candidate == self.place), None)

    @property
    def decision(self) -> CandidateDecision:
        """What was decided of it last."""
        return next(each for each in self.record.decision.candidates if each.candidate == self.place)

    @property
    def call_hash(self) -> str:
        """The hash of all that is decided, approved and sent of it."""
        record, args_hash = self.record, hash_of_args(self.call)
        return hash_of_call(self.space, record.actor.id, record.case_id, self.call.tool_id, args_hash)

    @property
    def status(self) -> CallStatus:
        """Where it stands."""
        execution = self.execution
        if execution is not None and execution.status is not ExecutionStatus.NOT_STARTED:
            return _OF_EXECUTION[execution.status]
        decision, record = self.decision, self.record
        if decision.verdict is Verdict.DENY and not record.decision.observed:
            return CallStatus.DENIED
        # The proposal may be running for another of its calls, and what becomes of that is nothing of this one.
        if is_waiting(self.space, self.proposal_id, record):
            waits = decision.verdict is Verdict.DEFER or record.message.proposal.atomic
            return CallStatus.WAITING if waits else CallStatus.DENIED
        approvals = map(self.space.approvals.__getitem__, reversed(record.approval_ids))
        asked = next((each.status for each in approvals if each.asked.candidate == self.place), None)
        if decision.verdict is Verdict.DEFER and asked in _OF_APPROVAL:
            return _OF_APPROVAL[asked]
        return _OF_PROPOSAL.get(record.status, CallStatus.DENIED)

    @property
    def executor(self) -> str:
        """Who runs it: `server`, `caller`, or the id of an executor."""
        tool = self.space.tools.get(self.call.tool_id)
        return SERVER if tool is None else name_runner(tool)

    def is_for(self, actor: Actor) -> bool:
        """Whether it waits for this actor to claim and run it."""
        execution = self.execution
        return execution is not None and execution.status is ExecutionStatus.READY and is_executor(execution, actor)

    def is_settled_for(self, actor: Actor) -> bool:
        """Whether this actor has nothing to wait for: it has ended, or is the actor's to run."""
        return self.status not in (CallStatus.WAITING, CallStatus.RUNNING) or self.is_for(actor)


def find_live_call(space: Space, call_id: str, proposal_id: str | None = None) -> CallRecord | None:
    """The call of this id, if its proposal is in the state of the space; by default one that an agent made as a call.

    `proposal_id` names the proposal where it has a name of its own.
    """
    named = read_call_id(call_id)
    if named is None:
        return None
    proposal_id = proposal_id or f"c-{named.event_id}"
    record = space.proposals.get(proposal_id)
    if record is None or record.event_id != named.event_id:
        return None
    candidates = record.message.proposal.candidates
    call = candidates[named.candidate] if named.candidate < len(candidates) else None
    return CallRecord(space, proposal_id, record, named.candidate, call) if isinstance(call, ToolCall) else None


def find_call_record(settled: SettledRecords, space: Space, call_id: str) -> CallRecord:
    """The call of this id, if need be from the ledger; RecordNotFound where there is none."""
    found = find_live_call(space, call_id)
    if found is not None:
        return found
    named = read_call_id(call_id)
    seq = None if named is None else settled.find_seq(space, named.event_id)
    message = None if seq is None else settled.read_at(space, seq).message
    if isinstance(message, Propose):
        proposal_id = message.proposal.proposal_id
        found = find_live_call(settled.with_proposal(space, proposal_id), call_id, proposal_id)
    if found is None:
        raise RecordNotFound("call", call_id)
    return found
