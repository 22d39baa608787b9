"""Refusals from decisions: for every candidate that was not let through, why, and what to do about it. Pure.

Nothing of it is recorded: it follows from the decision and from the space as it is when the answer is given. `ADVICE`
has a row for every reason code; what a candidate waits for (an approval, a change, another offer) comes on top.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from cmbs.messages import Actor, ActorKind
from cmbs.refusals import Fault, Refusal, quote, refuse_faults
from cmbs.substrate.kernel.arbitration.authority import WRITERS, proposable_by
from cmbs.substrate.kernel.calls import executor_of, is_run_by_server
from cmbs.substrate.kernel.events import Asked
from cmbs.substrate.kernel.insight.call_advice import (
    advise_on_args,
    advise_on_key_conflict,
    advise_on_missing_key,
    advise_on_token,
    advise_on_unknown_tool,
)
from cmbs.substrate.kernel.insight.explanation import Explanation, Hypothetical, redact
from cmbs.substrate.kernel.insight.findings import Change
from cmbs.substrate.kernel.insight.refused import Refused
from cmbs.substrate.kernel.insight.rule_advice import (
    advise_on_constraints,
    advise_on_exclusive_goals,
    advise_on_invariant,
    advise_on_malformed,
    advise_on_no_allow,
    advise_on_no_case,
)
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import CandidateDecision, Failure, ReasonCode, Stage, StateDelta, ToolCall, Verdict
from cmbs.substrate.kernel.policy.references import namespace_of
from cmbs.substrate.kernel.proposals import DECIDING
from cmbs.substrate.kernel.state import ProposalRecord, Space
from cmbs.substrate.kernel.steps import is_same_actor
from cmbs.substrate.kernel.words import CALLER, ApprovalStatus, ProposalStatus

Advise: TypeAlias = Callable[[Refused, CandidateDecision], Refusal]

_SNAPSHOT = "state_snapshot_id"
_WAITING = (ProposalStatus.ASKED, ProposalStatus.PARKED, ProposalStatus.READY, ProposalStatus.RUNNING)


def advise(refused: Refused) -> list[Refusal]:
    """The refusals of a decision, in the order of its candidates; none for what was let through."""
    decision = refused.decision
    if not decision.candidates and decision.verdict is not Verdict.ALLOW:
        return [_advise_on_nothing(refused, CandidateDecision(0, decision.verdict, decision.reason_code))]
    return [
        _with_standing(refused, each, ADVICE.get(each.reason_code, _advise_generally)(refused, each))
        for each in decision.candidates
        if each.verdict is not Verdict.ALLOW and each.candidate not in refused.ran
    ]


def advise_on_answer(answer: SpaceAnswer, reader: Actor) -> list[Refusal]:
    """The refusals of the decision that an answer records; none where it records none, or is not the reader's."""
    space, event, result = answer.space, answer.event, answer.event.result
    decision, message = result.decision, event.message
    if decision is None or not isinstance(message, DECIDING):
        return []
    (proposal_id, status), *_ = result.statuses.items()
    record = space.proposals[proposal_id]
    return _advise_reader(
        space,
        msgspec.structs.replace(record, decision=decision, status=ProposalStatus(status), done=result.ran),
        reader,
        asked=[*result.asked, *_list_pending(space, record)],
        parked_until=result.parked_until,
        now=event.body.ts,
    )


def advise_on_record(space: Space, record: ProposalRecord, reader: Actor, now: str | None = None) -> list[Refusal]:
    """The refusals of the newest decision on a proposal, as it stands."""
    parked = space.parked.get(record.message.proposal.proposal_id)
    until = None if parked is None else parked.until
    return _advise_reader(space, record, reader, asked=_list_pending(space, record), parked_until=until, now=now)


def advise_on_explanation(asked: Hypothetical, explained: Explanation, reader: Actor) -> list[Refusal]:
    """The refusals of a decision that was explained, with what would have turned it; none where it is not theirs."""
    if not _may_be_advised(reader, asked.actor):
        return []
    made = Refused(
        asked.space, asked.proposal, asked.actor, explained.decision, reader.kind, asked.space.policy,
        None, now=asked.now, flip=_describe_flip(explained),
    )  # fmt: skip
    return advise(made)


def _describe_flip(explained: Explanation) -> str | None:
    flip = explained.flip
    if explained.decision.verdict is Verdict.ALLOW or not flip.changes:
        return None
    return f"it would be allowed if {' and '.join(map(_describe_change, flip.changes))}"


def _describe_change(change: Change) -> str:
    if change.withheld:
        return f"`{change.reference}` were another"
    return f"`{change.reference}` were " + ("absent" if change.to is None else f"`{change.to}`")


def _may_be_advised(reader: Actor, proposer: Actor) -> bool:
    """What another actor could do better is between that actor and the operators."""
    return reader.kind is ActorKind.OPERATOR or is_same_actor(reader, proposer)


def _advise_reader(
    space: Space,
    record: ProposalRecord,
    reader: Actor,
    *,
    asked: list[Asked],
    parked_until: str | None,
    now: str | None,
) -> list[Refusal]:
    is_allowed = all(each.verdict is Verdict.ALLOW for each in record.decision.candidates)
    if (is_allowed and record.decision.candidates) or not _may_be_advised(reader, record.actor):
        return []
    decision = redact(record.decision, space.policy, reader.kind)
    proposal = record.message.proposal
    made = Refused(
        space, proposal, record.actor, decision, reader.kind, space.policy, record.status, record.done, asked,
        parked_until, now,
    )  # fmt: skip
    return advise(made)


def _list_pending(space: Space, record: ProposalRecord) -> list[Asked]:
    known = (space.approvals.get(approval_id) for approval_id in record.approval_ids)
    return [each.asked for each in known if each is not None and each.status is ApprovalStatus.PENDING]


def _name_runner(refused: Refused, decided: CandidateDecision) -> str:
    """Who runs a call, or commits a delta, once it is allowed."""
    candidate = refused.proposal.candidates[decided.candidate]
    tool = refused.space.tools.get(candidate.tool_id) if isinstance(candidate, ToolCall) else None
    if tool is None or is_run_by_server(tool):
        return "it runs by itself"
    executor = executor_of(tool)
    return "claim the call and run it" if executor == CALLER else f"`{executor}` runs it"


# --- shape, freshness, authority --------------------------------------------------------------------------------------


def _advise_on_nothing(refused: Refused, decided: CandidateDecision) -> Refusal:
    empty = bool(refused.proposal.candidates)
    return Refusal(
        code=decided.reason_code,
        message="the delta sets nothing and unsets nothing" if empty else "the proposal has no candidates",
        next="name what is to be set or unset" if empty else "add a state_delta or a tool_call",
        field=f"candidates.{decided.candidate}" if empty else "candidates",
        accepted={"minProperties": 1} if empty else {"minItems": 1},
    )


def _advise_on_keys(refused: Refused, decided: CandidateDecision) -> Refusal:
    """Keys outside of all namespaces, or of namespaces that this actor does not write."""
    if isinstance(refused.proposal.candidates[decided.candidate], ToolCall):
        return Refusal(
            code=decided.reason_code,
            message=f"an actor of kind `{refused.proposer.kind.value}` makes no calls of its own",
            next="make the call with the agent's credential, and claim it with this one",
            field="actor.kind",
            found=refused.proposer.kind.value,
            accepted=[ActorKind.AGENT.value],
        )
    allowed = proposable_by(refused.proposer.kind)
    accepted = [f"{namespace}." for namespace in sorted(allowed)]
    kind = refused.proposer.kind.value
    faults = []
    for key in _list_written(refused, decided):
        namespace = namespace_of(key)
        if namespace is None:
            faults.append(Fault(key, f"`{key}` is in no namespace", key, accepted))
        elif namespace not in allowed:
            writers = quote(sorted(each.value for each in WRITERS[namespace]))
            faults.append(Fault(key, f"`{key}` is written by {writers}, not by `{kind}`", key, accepted))
    if accepted:
        step = f"write keys that begin with {quote(accepted)}, and leave the others to those who may write them"
    else:
        step = f"leave the state as it is: an actor of kind `{kind}` proposes no changes of it"
    return refuse_faults(decided.reason_code, faults, step)


def _list_written(refused: Refused, decided: CandidateDecision) -> list[str]:
    candidate = refused.proposal.candidates[decided.candidate]
    return [*candidate.set, *candidate.unset] if isinstance(candidate, StateDelta) else []


def _advise_on_clash(refused: Refused, decided: CandidateDecision) -> Refusal:
    candidates = refused.proposal.candidates
    clashing = [
        place
        for place, each in enumerate(candidates)
        if place != decided.candidate and _clash(each, candidates[decided.candidate])
    ]
    named = quote(f"candidates.{place}" for place in clashing) or "another candidate"
    return Refusal(
        code=decided.reason_code,
        message=f"{named} writes the same key otherwise, or makes the same call",
        next="keep one of them, or send the others in a later proposal",
        field=f"candidates.{decided.candidate}",
        found=clashing,
    )


def _clash(one: StateDelta | ToolCall, other: StateDelta | ToolCall) -> bool:
    if isinstance(one, StateDelta) and isinstance(other, StateDelta):
        return bool({*one.set, *one.unset} & {*other.set, *other.unset})
    if isinstance(one, ToolCall) and isinstance(other, ToolCall):
        return (one.tool_id, one.idempotency_key) == (other.tool_id, other.idempotency_key)
    return False


def _advise_on_provenance(refused: Refused, decided: CandidateDecision) -> Refusal:
    provenance, proposer = refused.proposal.provenance, refused.proposer
    if provenance.source != proposer.id:
        return Refusal(
            code=decided.reason_code,
            message=f"the proposal names `{provenance.source}` as its source, and `{proposer.id}` sent it",
            next="name yourself as the source",
            field="provenance.source",
            found=provenance.source,
            accepted=proposer.id,
        )
    tokens = refused.space.capabilities
    own = {name for name in provenance.permissions if name in tokens and tokens[name].agent_id == proposer.id}
    holds = proposer.kind is ActorKind.AGENT
    foreign = [name for name in provenance.permissions if name not in own or not holds]
    return Refusal(
        code=decided.reason_code,
        message=f"{quote(foreign)} in the permissions is no token of {proposer.kind.value} `{proposer.id}`",
        next="name tokens of your own, or none",
        field="provenance.permissions",
        found=foreign,
        accepted=sorted(own) if holds else [],
    )


def _advise_on_snapshot(refused: Refused, decided: CandidateDecision) -> Refusal:
    """The proposal is based on a state that never was, or that has moved in what matters to it."""
    if decided.reason_code is ReasonCode.UNKNOWN_SNAPSHOT:
        message = f"this space never had the snapshot `{refused.proposal.state_snapshot_id}`"
    else:
        moved = sorted(
            step.reference
            for step in refused.decision.trace
            if step.stage is Stage.FRESHNESS and step.candidate == decided.candidate and step.reference is not None
        )
        what = quote(moved) or "something that a rule reads"
        message = f"{what} changed since the snapshot that the proposal is based on"
    return Refusal(
        code=decided.reason_code,
        message=message,
        next="read the state again, and propose under a new proposal_id on the current snapshot if you still want it",
        field=_SNAPSHOT,
        found=refused.proposal.state_snapshot_id,
        accepted=refused.space.snapshot_id,
    )


# --- held back, and what waits ----------------------------------------------------------------------------------------


def _advise_on_held_back(refused: Refused, decided: CandidateDecision) -> Refusal:
    others = [each for each in refused.decision.candidates if each.reason_code is not ReasonCode.HELD_BACK]
    named = ", ".join(f"`candidates.{each.candidate}` ({each.reason_code.value})" for each in others)
    return Refusal(
        code=decided.reason_code,
        message=f"nothing is wrong with it, but {named} holds it back",
        next="mend that one, or send this one by itself or with `atomic` false",
        field=f"candidates.{decided.candidate}",
        found=[each.candidate for each in others],
    )


def _advise_generally(refused: Refused, decided: CandidateDecision) -> Refusal:  # noqa: ARG001
    return Refusal(
        code=decided.reason_code,
        message=f"it was not allowed: {decided.reason_code.value}",
        next="ask for an explanation of the proposal",
        rules=decided.matched,
    )


def _with_standing(refused: Refused, decided: CandidateDecision, made: Refusal) -> Refusal:
    """The refusal of one candidate, and where it stands: asked for, parked, degraded, or over."""
    made = msgspec.structs.replace(made, candidate=decided.candidate)
    parks = decided.failure is Failure.DEFER and decided.stage is not Stage.FRESHNESS
    if decided.reason_code is ReasonCode.HELD_BACK or not (parks or decided.failure in (Failure.ASK, Failure.DEGRADE)):
        return made
    if decided.failure is Failure.DEGRADE:
        step = f"use what the policy offers instead: {decided.offer}; or {made.next}"
        return msgspec.structs.replace(made, next=step, accepted=made.accepted or decided.offer)
    if refused.status not in _WAITING:
        return msgspec.structs.replace(made, next=_step_without_waiting(refused, decided, made))
    then = _name_runner(refused, decided)
    if decided.failure is Failure.ASK:
        asked = next((each for each in refused.asked if each.candidate == decided.candidate), None)
        if asked is None:
            return made
        step = f"wait until an operator approves `{asked.approval_id}`, by {asked.expires_at}: then {then}"
        return msgspec.structs.replace(made, next=step, approval_id=asked.approval_id, until=asked.expires_at)
    step = f"it waits for {_name_awaited(refused, decided)} until {refused.parked_until}: then {then}"
    return msgspec.structs.replace(made, next=f"{made.next}; {step}", until=refused.parked_until)


def _step_without_waiting(refused: Refused, decided: CandidateDecision, made: Refusal) -> str:
    """What to do about a candidate that would wait, and does not: not proposed yet, or over."""
    if refused.status is not None:
        return f"it no longer waits, since it is {refused.status.value}: propose it again if you still want it"
    if decided.failure is Failure.ASK:
        return f"{made.next}; or propose it, and an operator is asked to approve it"
    return f"{made.next}; once proposed, it waits for {_name_awaited(refused, decided)}"


def _name_awaited(refused: Refused, decided: CandidateDecision) -> str:
    return quote(each for each in decided.waits_for if each.startswith("$") or refused.may_read(each)) or "a change"


ADVICE: dict[ReasonCode, Advise] = {
    ReasonCode.NOTHING_PROPOSED: _advise_on_nothing,
    ReasonCode.KEY_OUTSIDE_NAMESPACES: _advise_on_keys,
    ReasonCode.CONFLICTING_CANDIDATES: _advise_on_clash,
    ReasonCode.FORGED_PROVENANCE: _advise_on_provenance,
    ReasonCode.UNKNOWN_SNAPSHOT: _advise_on_snapshot,
    ReasonCode.STALE_SNAPSHOT: _advise_on_snapshot,
    ReasonCode.AUTHORITY_DENIED: _advise_on_keys,
    ReasonCode.UNKNOWN_TOOL: advise_on_unknown_tool,
    ReasonCode.TOOL_RETIRED: advise_on_unknown_tool,
    ReasonCode.ARGS_INVALID: advise_on_args,
    ReasonCode.IDEMPOTENCY_KEY_REQUIRED: advise_on_missing_key,
    ReasonCode.IDEMPOTENCY_CONFLICT: advise_on_key_conflict,
    ReasonCode.CAPABILITY_REQUIRED: advise_on_token,
    ReasonCode.CAPABILITY_UNKNOWN: advise_on_token,
    ReasonCode.CAPABILITY_OTHER_AGENT: advise_on_token,
    ReasonCode.CAPABILITY_EXPIRED: advise_on_token,
    ReasonCode.CAPABILITY_REVOKED: advise_on_token,
    ReasonCode.CAPABILITY_TOOL: advise_on_token,
    ReasonCode.CAPABILITY_SCOPE: advise_on_token,
    ReasonCode.BUDGET_EXHAUSTED: advise_on_token,
    ReasonCode.MALFORMED_CONSTRAINT: advise_on_malformed,
    ReasonCode.NO_CASE: advise_on_no_case,
    ReasonCode.CONSTRAINT_DENIED: advise_on_constraints,
    ReasonCode.ALLOW_UNMET: advise_on_constraints,
    ReasonCode.NO_ALLOW: advise_on_no_allow,
    ReasonCode.EXCLUSIVE_GOALS: advise_on_exclusive_goals,
    ReasonCode.MALFORMED_POLICY: advise_on_malformed,
    ReasonCode.INVARIANT_VIOLATED: advise_on_invariant,
    ReasonCode.HELD_BACK: _advise_on_held_back,
}
