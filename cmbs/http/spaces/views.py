"""Spaces as their readers see them: what is there, without what the reader may not read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.http.belief.schemas import RecordedActor
from cmbs.http.spaces import schemas
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.authority import may_read
from cmbs.substrate.kernel.events import Changes
from cmbs.substrate.kernel.insight.explanation import redact
from cmbs.substrate.kernel.model import Capability, Decision, Spent, StateDelta, Tool, ToolCall
from cmbs.substrate.kernel.policy.policy import Policy
from cmbs.substrate.kernel.state import Approval, Execution, MemoryEntry, PolicyChange, ProposalRecord, Space

_NOTHING_SPENT = Spent()


class Reader(NamedTuple):
    """Somebody who reads a space, under the policy that it has now."""

    actor: Actor
    policy: Policy

    @property
    def is_operator(self) -> bool:
        """Whether nothing is kept from them."""
        return self.actor.kind is ActorKind.OPERATOR

    def may_read(self, key: str) -> bool:
        """Whether they may see the value under a key."""
        return may_read(self.policy, self.actor.kind, key)

    def is_or_governs(self, actor_id: str) -> bool:
        """Whether it is their own, or nothing is kept from them."""
        return self.is_operator or self.actor.id == actor_id

    def readable(self, values: Mapping[str, str]) -> dict[str, str]:
        """The pairs that they may see, sorted."""
        return {key: values[key] for key in sorted(values) if self.may_read(key)}


def actor_view(actor: Actor) -> RecordedActor:
    """Who it was."""
    return RecordedActor(actor.kind, actor.id, actor.authenticated, actor.key_id)


def space_view(space: Space, reader: Reader) -> schemas.SpaceResponse:
    """The space as it is."""
    return schemas.SpaceResponse(
        space.space_id,
        space.mode,
        space.snapshot_id,
        space.policy.policy_hash,
        space.policy_version,
        space.head.seq,
        space.head_event_id,
        len(space.state) if reader.is_operator else sum(map(reader.may_read, space.state)),
        len(space.proposals),
        len(space.parked),
        len(space.running),
        None if space.observe_asked_by is None else space.observe_asked_by.id,
    )


def decision_view(decision: Decision, proposer: Actor, reader: Reader) -> Decision:
    """The decision, without the steps of its trace that show what is not the reader's to know."""
    return redact(decision, reader.policy, reader.actor.kind, own=reader.is_or_governs(proposer.id))


def proposal_view(space: Space, record: ProposalRecord, reader: Reader) -> schemas.ProposalResponse:
    """A proposal and where it stands."""
    proposal = record.message.proposal
    parked = space.parked.get(proposal.proposal_id)
    own = reader.is_or_governs(record.actor.id)
    return schemas.ProposalResponse(
        proposal_id=proposal.proposal_id,
        status=record.status,
        decision=decision_view(record.decision, record.actor, reader),
        actor=actor_view(record.actor),
        atomic=proposal.atomic,
        state_snapshot_id=proposal.state_snapshot_id,
        provenance=proposal.provenance,
        candidates=[_candidate_view(each, reader, own=own) for each in proposal.candidates],
        execution_ids=list(record.execution_ids),
        approval_ids=list(record.approval_ids),
        answered_by={str(candidate): execution_id for candidate, execution_id in record.answered_by},
        waits_for=[] if parked is None else list(parked.waits_for),
        parked_until=None if parked is None else parked.until,
        seq=record.seq,
        event_id=record.event_id,
        decided_seq=record.decided_seq,
    )


def _candidate_view(
    candidate: StateDelta | ToolCall, reader: Reader, *, own: bool
) -> schemas.StateDeltaItem | schemas.ToolCallItem:
    if isinstance(candidate, StateDelta):
        return schemas.StateDeltaItem(
            dict(candidate.set) if own else reader.readable(candidate.set), list(candidate.unset)
        )
    return schemas.ToolCallItem(
        candidate.tool_id,
        candidate.args if own else UNSET,
        candidate.capability_token_id,
        candidate.idempotency_key,
    )


def approval_view(space: Space, approval: Approval, reader: Reader) -> schemas.ApprovalItem:
    """A request for approval; whoever may approve sees the args that it is about."""
    asked = approval.asked
    candidate = space.proposals[approval.proposal_id].message.proposal.candidates[asked.candidate]
    shown = isinstance(candidate, ToolCall) and reader.is_or_governs(approval.proposer.id)
    return schemas.ApprovalItem(
        approval_id=asked.approval_id,
        status=approval.status,
        proposal_id=approval.proposal_id,
        candidate=asked.candidate,
        tool_id=asked.tool_id,
        args=candidate.args if shown and isinstance(candidate, ToolCall) else UNSET,
        args_hash=asked.args_hash,
        constraints=asked.constraints,
        policy_hash=approval.policy_hash,
        proposer=actor_view(approval.proposer),
        expires_at=asked.expires_at,
        approver=None if approval.approver is None else actor_view(approval.approver),
        uses_left=approval.uses_left,
        good_until=approval.good_until,
    )


def execution_view(execution: Execution, reader: Reader) -> schemas.ExecutionResponse:
    """One run of a tool; what went in and came out is for its agent, its tool and operators."""
    intent = execution.intent
    own = reader.is_or_governs(execution.agent_id) or (
        reader.actor.kind is ActorKind.TOOL and reader.actor.id == intent.tool_id
    )
    return schemas.ExecutionResponse(
        execution_id=intent.execution_id,
        status=execution.status,
        proposal_id=execution.proposal_id,
        agent_id=execution.agent_id,
        tool_id=intent.tool_id,
        attempt=intent.attempt,
        deadline=intent.deadline,
        capability_token_id=intent.capability_token_id,
        idempotency_key=intent.idempotency_key,
        args=_raw(execution.args, shown=own),
        args_hash=intent.args_hash,
        outcome=execution.outcome,
        result=_raw(execution.result, shown=own),
        result_hash=execution.result_hash,
        error=execution.error if own else None,
        duration_ms=execution.duration_ms,
        started_seq=execution.started_seq,
        settled_seq=execution.settled_seq,
    )


def tool_view(tool: Tool, reader: Reader) -> schemas.ToolResponse:
    """A tool; how it is reached is for operators."""
    return schemas.ToolResponse(
        tool_id=tool.tool_id,
        kind=tool.kind,
        description=tool.description,
        args_schema=tool.args_schema,
        result_schema=tool.result_schema,
        target=tool.target if reader.is_operator else UNSET,
        timeout_ms=tool.timeout_ms,
        max_result_bytes=tool.max_result_bytes,
        writes=tool.writes,
        idempotent=tool.idempotent,
        facts=tool.facts,
        retired=tool.retired,
    )


def capability_view(space: Space, token: Capability) -> schemas.CapabilityResponse:
    """A token and how much of it is used. Its id is no secret: it is good for its agent alone."""
    return schemas.CapabilityResponse(
        token_id=token.token_id,
        agent_id=token.agent_id,
        tool_ids=token.tool_ids,
        capabilities=token.capabilities,
        scopes=token.scopes,
        budget=token.budget,
        spent=space.spent.get(token.token_id, _NOTHING_SPENT),
        expires_at=token.expires_at,
        parent_id=token.parent_id,
        revoked=token.token_id in space.revoked,
    )


def memory_view(entry: MemoryEntry) -> schemas.MemoryResponse:
    """A claim that is remembered."""
    return schemas.MemoryResponse(
        entry_id=entry.entry_id,
        kind=entry.kind,
        claim=msgspec.Raw(entry.claim),
        author=actor_view(entry.author),
        evidence=entry.evidence,
        conflict_state=entry.conflict_state,
        confirmed=entry.confirmed,
        ts=entry.ts,
        expires_at=entry.expires_at,
        review_at=entry.review_at,
        expired=entry.expired,
        seq=entry.seq,
    )


def change_view(change: PolicyChange) -> schemas.PolicyChangeResponse:
    """A change of policy."""
    return schemas.PolicyChangeResponse(
        change_id=change.change_id,
        status=change.status,
        proposer=actor_view(change.proposer),
        base_policy_hash=change.base_policy_hash,
        set=dict(change.set),
        unset=list(change.unset),
        reason=change.reason,
        seq=change.seq,
        settled_by=None if change.settled_by is None else actor_view(change.settled_by),
        settled_seq=change.settled_seq,
    )


def readable_changes(changes: Changes, reader: Reader) -> tuple[dict[str, str], list[str]]:
    """What a commit set and unset, as far as the reader may know of it."""
    return reader.readable(changes.set), sorted(key for key in changes.unset if reader.may_read(key))


def _raw(text: bytes, *, shown: bool) -> msgspec.Raw | UnsetType:
    return msgspec.Raw(text) if shown else UNSET
