"""What a reader may see of a space, in the response types. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.api import spaces as schemas
from cmbs.http.exchange import build_answer
from cmbs.messages import Actor, ActorKind
from cmbs.refusals import Refusal
from cmbs.substrate.call_records import CallRecord
from cmbs.substrate.kernel.approvals import pending_approvals
from cmbs.substrate.kernel.arbitration.authority import may_read
from cmbs.substrate.kernel.arbitration.stages import hash_of_tool
from cmbs.substrate.kernel.calls import SERVER, is_executor, name_call, name_runner
from cmbs.substrate.kernel.insight.advice import advise_on_answer, advise_on_record
from cmbs.substrate.kernel.insight.explanation import redact
from cmbs.substrate.kernel.insight.step_advice import advise_on_step
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import BeliefReading, Capability, Decision, Spent, StateDelta, Tool, ToolCall
from cmbs.substrate.kernel.policy.policy import Policy
from cmbs.substrate.kernel.state import Approval, Case, Execution, MemoryEntry, PolicyChange, ProposalRecord, Space
from cmbs.substrate.kernel.words import CallStatus, ExecutionStatus
from cmbs.substrate.listing import labels_of, may_see_case, title_of


class Reader(NamedTuple):
    """A caller who reads a space, and the policy of the space now: the two that say what is left out."""

    actor: Actor
    policy: Policy

    @property
    def is_operator(self) -> bool:
        """Whether nothing is left out."""
        return self.actor.kind is ActorKind.OPERATOR

    def may_read(self, key: str) -> bool:
        """Whether the value under a key of the state is shown."""
        return may_read(self.policy, self.actor.kind, key)

    def owns(self, kind: ActorKind, actor_id: str) -> bool:
        """Whether what this actor sent is shown: to the actor itself, and to operators.

        One of another kind is another actor, whatever its id.
        """
        return self.is_operator or (self.actor.kind, self.actor.id) == (kind, actor_id)

    def filter_values(self, values: Mapping[str, str]) -> dict[str, str]:
        """The pairs that are shown, sorted by key."""
        return {key: values[key] for key in sorted(values) if self.may_read(key)}


# --- records of a space -----------------------------------------------------------------------------------------------


def show_space(space: Space, reader: Reader) -> schemas.SpaceResponse:
    """Show the space itself."""
    return build_answer(
        schemas.SpaceResponse,
        space,
        state_snapshot_id=space.snapshot_id,
        policy_hash=space.policy.policy_hash,
        head_seq=space.head.seq,
        n_keys=len(space.state) if reader.is_operator else sum(map(reader.may_read, space.state)),
        n_proposals=space.n_proposals,
        n_parked=len(space.parked),
        n_running=len(space.running),
        observe_asked_by=None if space.observe_asked_by is None else space.observe_asked_by.id,
        governance_asked_by=None if space.governance_asked_by is None else space.governance_asked_by.id,
    )


def show_decision(decision: Decision, proposer: Actor, reader: Reader) -> Decision:
    """Show a decision without the steps of its trace that hold what the reader may not read."""
    return redact(decision, reader.policy, reader.actor.kind, own=reader.owns(proposer.kind, proposer.id))


def show_proposal(space: Space, record: ProposalRecord, reader: Reader) -> schemas.ProposalResponse:
    """Show a proposal; the args of its calls only to its proposer and to operators."""
    return _show_proposal(space, record, reader, advise_on_record(space, record, reader.actor))


def _show_proposal(
    space: Space, record: ProposalRecord, reader: Reader, refusals: list[Refusal]
) -> schemas.ProposalResponse:
    proposal = record.message.proposal
    parked = space.parked.get(proposal.proposal_id)
    own = reader.owns(record.actor.kind, record.actor.id)
    return build_answer(
        schemas.ProposalResponse,
        record,
        proposal,
        decision=show_decision(record.decision, record.actor, reader),
        candidates=[_show_candidate(each, reader, own=own) for each in proposal.candidates],
        calls={
            str(place): name_call(record.event_id, place)
            for place, each in enumerate(proposal.candidates)
            if isinstance(each, ToolCall)
        },
        answered_by={str(candidate): execution_id for candidate, execution_id in record.answered_by},
        waits_for=() if parked is None else parked.waits_for,
        parked_until=None if parked is None else parked.until,
        refusals=refusals or None,
        replayed=False,
        belief=None,
    )


def _show_candidate(candidate: StateDelta | ToolCall, reader: Reader, *, own: bool) -> msgspec.Struct:
    if isinstance(candidate, StateDelta):
        values = candidate.set if own else reader.filter_values(candidate.set)
        return schemas.StateDeltaItem(values, candidate.unset)
    return build_answer(
        schemas.ToolCallItem,
        candidate,
        args=candidate.args if own else None,
        forwarded=_show_forwarded(candidate) if own else None,
    )


def _show_forwarded(call: ToolCall) -> msgspec.Raw | None:
    return None if isinstance(call.forwarded, UnsetType) else call.forwarded


def show_approval(space: Space, approval: Approval, reader: Reader) -> schemas.ApprovalItem:
    """Show a request for approval; operators, who approve it, see the args that it is about."""
    candidate = space.proposals[approval.proposal_id].message.proposal.candidates[approval.asked.candidate]
    shown = reader.owns(approval.proposer.kind, approval.proposer.id)
    call = candidate if shown and isinstance(candidate, ToolCall) else None
    return build_answer(
        schemas.ApprovalItem,
        approval,
        approval.asked,
        args=None if call is None else call.args,
        forwarded=None if call is None else _show_forwarded(call),
        # With a hash of the args, a reader could check guesses of them.
        args_hash=approval.asked.args_hash if shown else None,
        call_hash=approval.asked.call_hash if shown else None,
    )


def show_execution(space: Space, execution: Execution, reader: Reader) -> schemas.ExecutionResponse:
    """Show one run of a tool; args, result, error and hashes only to its agent, its tool and operators."""
    is_its_tool = reader.actor.kind is ActorKind.TOOL and reader.actor.id == execution.intent.tool_id
    is_own = reader.owns(execution.agent_kind, execution.agent_id)
    shown = is_own or is_its_tool or is_executor(execution, reader.actor)
    return build_answer(
        schemas.ExecutionResponse,
        execution,
        execution.intent,
        call_id=name_call(space.proposals[execution.proposal_id].event_id, execution.intent.candidate),
        args=msgspec.Raw(execution.args) if shown else None,
        args_hash=execution.intent.args_hash if shown else None,
        result_hash=execution.result_hash if shown else None,
        result=msgspec.Raw(execution.result) if shown else None,
        error=execution.error if shown else None,
    )


def show_tool(space: Space, tool: Tool, reader: Reader) -> schemas.ToolResponse:
    """Show a tool; where it is reached only to operators."""
    return build_answer(
        schemas.ToolResponse,
        tool,
        target=tool.target if reader.is_operator else None,
        caller_facts=tool.caller_facts is True,
        executor=name_runner(tool),
        tool_hash=hash_of_tool(space, tool.tool_id),
    )


def show_call(found: CallRecord, reader: Reader, answer: SpaceAnswer | None = None) -> schemas.CallResponse:
    """Show a call; what it says only to its agent, to the one who runs it, and to operators."""
    space, record, call, execution = found.space, found.record, found.call, found.execution
    is_runner = execution is not None and is_executor(execution, reader.actor)
    shown = is_runner or reader.owns(record.actor.kind, record.actor.id)
    refusals = {each.candidate: each for each in advise_on_record(space, record, reader.actor)}
    step = None if answer is None or answer.event.result.decision is not None else advise_on_step(answer)
    has_run = execution is not None and execution.status is not ExecutionStatus.NOT_STARTED
    run = execution if shown and has_run else None
    return build_answer(
        schemas.CallResponse,
        found,
        record,
        call,
        args=call.args if shown else None,
        forwarded=_show_forwarded(call) if shown else None,
        is_claimed=execution is not None and execution.nonce_hash is not None,
        call_hash=found.call_hash if shown else None,
        tool_hash=hash_of_tool(space, call.tool_id),
        reason_code=found.decision.reason_code,
        waits_for=_show_wait(found),
        refusal=step or (None if has_run else refusals.get(found.place)),
        outcome=None if run is None else run.outcome,
        result=None if run is None or run.outcome is None else msgspec.Raw(run.result),
        error=None if run is None else run.error,
        duration_ms=0 if run is None else run.duration_ms,
        deadline=None if run is None or run.outcome is not None else run.intent.deadline,
        joined=answer is not None and answer.repeated,
        candidate=found.place,
        execution_id=None if execution is None else execution.intent.execution_id,
    )


def _show_wait(found: CallRecord) -> schemas.CallWait | None:
    """What a call waits for; None for one that does not."""
    if found.status is not CallStatus.WAITING:
        return None
    space, execution = found.space, found.execution
    if execution is not None and execution.status is ExecutionStatus.READY:
        kind = schemas.CallWaitKind.TURN if found.executor == SERVER else schemas.CallWaitKind.EXECUTOR
        return schemas.CallWait(kind=kind, until=execution.intent.deadline)
    pending = pending_approvals(space, found.record)
    if pending:
        names = [each.asked.approval_id for each in pending]
        soonest = min(each.asked.expires_at for each in pending)
        return schemas.CallWait(kind=schemas.CallWaitKind.APPROVAL, until=soonest, approval_ids=names)
    parked = space.parked.get(found.proposal_id)
    keys = None if parked is None else list(parked.waits_for)
    until = None if parked is None else parked.until
    return schemas.CallWait(kind=schemas.CallWaitKind.CHANGE, until=until, keys=keys)


def show_capability(space: Space, token: Capability, _: Reader) -> schemas.CapabilityResponse:
    """Show a token. Its id is no secret: it works for its agent alone."""
    spent = space.spent.get(token.token_id, Spent())
    return build_answer(schemas.CapabilityResponse, token, spent=spent, revoked=token.token_id in space.revoked)


def show_case(_: Space, case: Case, reader: Reader) -> schemas.CaseResponse:
    """Show a case; who may act under it, and what is said of it, not to agents that may not."""
    shown = may_see_case(case, reader.actor)
    return build_answer(
        schemas.CaseResponse,
        case,
        title=title_of(case) if shown else UNSET,
        labels=dict(labels_of(case)) if shown else None,
        attributes=msgspec.Raw(case.attributes) if shown else None,
        agents=sorted(case.known_agents) if shown else None,
    )


def show_memory(_: Space, entry: MemoryEntry, __: Reader) -> schemas.MemoryResponse:
    """Show a claim in memory."""
    return build_answer(schemas.MemoryResponse, entry, claim=msgspec.Raw(entry.claim))


def show_policy_change(_: Space, change: PolicyChange, __: Reader) -> schemas.PolicyChangeResponse:
    """Show a change of policy."""
    return build_answer(schemas.PolicyChangeResponse, change)


# --- answers to writes ------------------------------------------------------------------------------------------------


def show_step(answer: SpaceAnswer, _: Reader) -> schemas.StepResponse:
    """Show what a request came to."""
    body, result = answer.event.body, answer.event.result
    return build_answer(
        schemas.StepResponse,
        result,
        body,
        state_snapshot_id=answer.space.snapshot_id,
        refusal=advise_on_step(answer) or None,
        replayed=answer.repeated,
    )


def show_recorded_decision(answer: SpaceAnswer, reader: Reader) -> schemas.ProposalResponse:
    """Show the decision that the event recorded: a repeat gets the first answer, whatever has happened since."""
    message: Any = answer.event.message
    decision: Any = answer.event.result.decision
    result = answer.event.result
    proposal_id = message.proposal.proposal_id
    return msgspec.structs.replace(
        _show_proposal(
            answer.space, answer.space.proposals[proposal_id], reader, advise_on_answer(answer, reader.actor)
        ),
        status=result.statuses[proposal_id],
        decision=show_decision(decision, answer.event.body.actor, reader),
        execution_ids=[intent.execution_id for intent in result.intents],
        approval_ids=[asked.approval_id for asked in result.asked],
        answered_by=result.answered_by,
        waits_for=result.waits_for,
        parked_until=result.parked_until,
        decided_seq=answer.seq,
        replayed=answer.repeated,
        belief=_compare_belief(message.belief, answer.belief_now) or None,
    )


def _compare_belief(then: Iterable[BeliefReading], now: Iterable[BeliefReading]) -> list[schemas.BeliefThenAndNow]:
    current = {reading.session_id: reading for reading in now}
    return [
        schemas.BeliefThenAndNow(
            reading.session_id,
            build_answer(schemas.BeliefSighting, reading),
            build_answer(schemas.BeliefSighting, current[reading.session_id]),
        )
        for reading in then
        if reading.session_id in current
    ]


def show_settled_approval(answer: SpaceAnswer, reader: Reader) -> schemas.SettledApproval:
    """Show an approval or a rejection, and the proposal that was decided again."""
    message: Any = answer.event.message
    space = answer.space
    approval = space.approvals[message.approval_id]
    return schemas.SettledApproval(
        show_step(answer, reader),
        show_approval(space, approval, reader),
        show_proposal(space, space.proposals[approval.proposal_id], reader),
    )


def show_withdrawal(answer: SpaceAnswer, reader: Reader) -> schemas.WithdrawnProposal:
    """Show a withdrawal, and the proposal as it stands."""
    message: Any = answer.event.message
    record = answer.space.proposals[message.proposal_id]
    return schemas.WithdrawnProposal(show_step(answer, reader), show_proposal(answer.space, record, reader))
