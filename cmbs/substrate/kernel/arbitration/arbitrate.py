"""The one decision: what becomes of a proposal, on this state, under this policy, at this moment. A pure function.

Candidates are judged one by one through all stages, in their order; the first that finds something decides. What
candidates share (a budget, an approval, a key that two of them write) is asked of all of them together, so that no
verdict depends on which came first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from cmbs.messages import Actor
from cmbs.substrate.kernel.arbitration.capabilities import token_line
from cmbs.substrate.kernel.arbitration.cases import NeededReadings, find_case, list_readings
from cmbs.substrate.kernel.arbitration.conflicts import Finding, commit_finding, effective_changes, find_clashes
from cmbs.substrate.kernel.arbitration.stages import (
    CALL_STAGES,
    DELTA_STAGES,
    ArbitrationContext,
    CallState,
    CandidateState,
    DeltaState,
    begin_call,
    begin_delta,
    provenance_fault,
)
from cmbs.substrate.kernel.events import Changes, Mode
from cmbs.substrate.kernel.model import (
    REASON_ORDER,
    BeliefReading,
    CandidateDecision,
    Decision,
    Failure,
    Proposal,
    ReasonCode,
    Stage,
    StateDelta,
    ToolCall,
    TraceStep,
    Verdict,
)
from cmbs.substrate.kernel.policy.constraints import STRICTNESS
from cmbs.substrate.kernel.policy.references import CaseContext, CaseUse
from cmbs.substrate.kernel.state import Space

MAX_TRACE_STEPS = 2_000
# Enforced even where decisions are only observed: without these a call cannot be made, or a record would lie.
_ENFORCED_STAGES = frozenset({Stage.SHAPE, Stage.AUTHORITY})
_ENFORCED_REASONS = frozenset(
    {
        ReasonCode.UNKNOWN_TOOL,
        ReasonCode.TOOL_RETIRED,
        ReasonCode.IDEMPOTENCY_KEY_REQUIRED,
        ReasonCode.IDEMPOTENCY_CONFLICT,
    }
)
_STAGE_ORDER = {stage: place for place, stage in enumerate(Stage)}
_VERDICTS = {
    Failure.BLOCK: Verdict.DENY,
    Failure.DEGRADE: Verdict.DENY,
    Failure.ASK: Verdict.DEFER,
    Failure.DEFER: Verdict.DEFER,
}
_DEGRADABLE = frozenset({Stage.CAPABILITY, Stage.CONSTRAINTS})


class CandidateOutcome(msgspec.Struct, frozen=True):
    """What becomes of one candidate. `runs`: it is really executed or committed, which observing makes differ."""

    candidate: int
    runs: bool
    # That of the args of a call, or of `{"set": …, "unset": …}` of a delta.
    args_hash: str
    # The execution of the same call in the past, which answers it: it is not run again.
    answered_by: str | None = None
    # Approvals of which one use is gone, where it runs; two candidates that are the same use one twice.
    used_approvals: tuple[str, ...] = ()
    # Constraints that an approval would satisfy, where that is what it waits for.
    asks: tuple[str, ...] = ()


class Arbitration(msgspec.Struct, frozen=True):
    """A decision and what follows from it."""

    decision: Decision
    candidates: tuple[CandidateOutcome, ...]
    # What all deltas that run do to the state together.
    changes: Changes
    # Whether it is to wait, for any of `waits_for`, and be decided again. A stale one is not: its proposer looks again.
    # Where it is not atomic, every candidate asks and waits for itself, whatever becomes of the others.
    parks: bool = False
    waits_for: tuple[str, ...] = ()


def arbitrate(
    space: Space, proposal: Proposal, actor: Actor, now: str, belief: Mapping[str, BeliefReading]
) -> Arbitration:
    """Decide a proposal of `actor` at `now`, given what the belief plane says of the sessions in `belief`."""
    return arbitrate_in_case(space, proposal, actor, now, belief, find_case(space, proposal, actor, belief))


def arbitrate_in_case(
    space: Space,
    proposal: Proposal,
    actor: Actor,
    now: str,
    belief: Mapping[str, BeliefReading],
    case: CaseContext | None,
) -> Arbitration:
    """Decide a proposal in the case of another: what a tool writes belongs to the case that it was called in."""
    states: list[CandidateState] = [
        begin_call(space, actor, belief, case, place, candidate)
        if isinstance(candidate, ToolCall)
        else begin_delta(space, actor, belief, case, place, candidate)
        for place, candidate in enumerate(proposal.candidates)
    ]
    calls = [state for state in states if isinstance(state, CallState)]
    deltas = [state for state in states if isinstance(state, DeltaState)]
    is_current = proposal.state_snapshot_id == space.snapshot_id
    context = ArbitrationContext(
        space,
        actor,
        now,
        since=None if is_current else space.snapshots.get(proposal.state_snapshot_id),
        forgery=provenance_fault(space, proposal, actor),
        clashes=find_clashes(proposal.candidates),
        states=states,
        case_id=None if isinstance(proposal.case_id, msgspec.UnsetType) else proposal.case_id,
        steps=[],
    )
    for call in calls:
        _judge(context, call, CALL_STAGES)
        _degrade(space, call)
    for delta in deltas:
        _judge(context, delta, DELTA_STAGES)
    changes = _judge_commit(context, deltas) if deltas else Changes()
    return _conclude(context, states, changes, atomic=proposal.atomic)


def belief_sessions(space: Space, proposal: Proposal, actor: Actor) -> NeededReadings:
    """The belief sessions that may be read to decide this proposal of `actor`, those of its case included."""
    policy = space.policy
    found: set[str] = set()
    uses: list[tuple[CaseContext | None, CaseUse]] = []
    case = find_case(space, proposal, actor) if policy.reads_belief else None
    for candidate in proposal.candidates if policy.reads_belief else ():
        if isinstance(candidate, ToolCall):
            token = token_line(space.capabilities, candidate.capability_token_id)
            matching = policy.matching(candidate.tool_id, token.permitting, token.denying)
        else:
            matching = policy.matching(None)
            found |= policy.invariant_session_ids
            uses.append((case, policy.invariant_case_use))
        found |= matching.session_ids
        uses.append((case, matching.case_use))
    return list_readings(found, uses)


def recheck(
    space: Space, proposal: Proposal, actor: Actor, places: Collection[int], belief: Mapping[str, BeliefReading]
) -> Changes | Finding:
    """What the deltas at `places`, allowed before the calls of their proposal were run, do to the state as it is now.

    A finding where they may no longer be committed: a key that they write has changed since the proposal's snapshot, or
    the state would break an exclusive group or an invariant.
    """
    let_through = [proposal.candidates[place] for place in sorted(places)]
    deltas = [candidate for candidate in let_through if isinstance(candidate, StateDelta)]
    if proposal.state_snapshot_id != space.snapshot_id:
        since = space.snapshots.get(proposal.state_snapshot_id)
        if since is None:
            return Finding(Stage.SHAPE, ReasonCode.UNKNOWN_SNAPSHOT)
        written = (key for delta in deltas for key in (*delta.set, *delta.unset))
        if any(space.changed.get(key, -1) > since for key in written):
            return Finding(Stage.FRESHNESS, ReasonCode.STALE_SNAPSHOT, Failure.DEFER)
    changes = effective_changes(space.state, deltas)
    case = find_case(space, proposal, actor, belief)
    return commit_finding(space.policy, space.state, changes, belief, case, []) or changes


# --- judging ----------------------------------------------------------------------------------------------------------

_State = TypeVar("_State", CallState, DeltaState)


def _judge(
    context: ArbitrationContext,
    state: _State,
    stages: Sequence[tuple[Stage, Callable[[ArbitrationContext, _State], Finding | None]]],
) -> None:
    """Go through all stages, and keep what the first of them found that found something."""
    steps = context.steps
    for stage, check in stages:
        finding = check(context, state)
        if finding is None:
            steps.append(TraceStep(stage, True, state.place))
            continue
        steps.append(TraceStep(stage, False, state.place, note=finding.reason_code.value))
        state.finding = state.finding or finding
        if stage in _ENFORCED_STAGES or finding.reason_code in _ENFORCED_REASONS:
            state.enforced = True


def _degrade(space: Space, state: CallState) -> None:
    """Where the policy has an offer for a call that is blocked, the call is degraded."""
    finding = state.finding
    if finding is None or finding.failure is not Failure.BLOCK or finding.stage not in _DEGRADABLE:
        return
    if state.candidate.tool_id in space.policy.offers:
        state.finding = finding._replace(failure=Failure.DEGRADE)


def _judge_commit(context: ArbitrationContext, deltas: Sequence[DeltaState]) -> Changes:
    """Judge what all deltas that came so far would do to the state: together, so that they fail together.

    What the deltas that run really do is the answer. Where decisions are observed, these may be others.
    """
    space = context.space
    passed = [state for state in deltas if state.finding is None]
    changes = effective_changes(space.state, [state.candidate for state in passed])
    if passed:
        seen = passed[0].seen
        finding = commit_finding(space.policy, space.state, changes, seen.belief, seen.case, context.steps)
        for state in passed:
            state.finding = finding
    if space.mode is Mode.OBSERVE:
        return effective_changes(space.state, [state.candidate for state in deltas if not state.enforced])
    return changes


# --- concluding -------------------------------------------------------------------------------------------------------


def _conclude(
    context: ArbitrationContext, states: Sequence[CandidateState], changes: Changes, *, atomic: bool
) -> Arbitration:
    space, decisive = context.space, _decisive(states, atomic=atomic)
    observed = space.mode is Mode.OBSERVE
    decided, outcomes = [], []
    parks = commits = False
    waits_for: set[str] = set()
    for state in states:
        decided.append(_decide_candidate(state, decisive, space.policy.offers))
        if observed:
            outcome = _outcome_when_observed(state, states, atomic=atomic)
        else:
            outcome = _outcome(state, decisive, atomic=atomic)
            if state.finding is not None and _waits(state.finding, decisive, atomic=atomic):
                parks = True
                waits_for.update(state.finding.waits_for)
        outcomes.append(outcome)
        commits = commits or (outcome.runs and isinstance(state, DeltaState))
    decision = Decision(
        Verdict.ALLOW if decisive is None else _VERDICTS[decisive.failure],
        ReasonCode.ALLOWED if decisive is None else decisive.reason_code,
        space.policy.policy_hash,
        space.snapshot_id,
        tuple(decided),
        None if decisive is None else decisive.failure,
        None if decisive is None else decisive.stage,
        observed,
        tuple(context.steps[:MAX_TRACE_STEPS]),
    )
    return Arbitration(decision, tuple(outcomes), changes if commits else Changes(), parks, tuple(sorted(waits_for)))


def _decisive(states: Sequence[CandidateState], *, atomic: bool) -> Finding | None:
    """What the whole proposal fails for; None where something of it may be done."""
    if not states:
        return Finding(Stage.SHAPE, ReasonCode.NOTHING_PROPOSED)
    against = [state.finding for state in states if state.finding is not None]
    if not against or len(against) < (1 if atomic else len(states)):
        return None
    return min(against, key=_precedence)


def _precedence(finding: Finding) -> tuple[int, int, int]:
    """The strictest first, then the earliest stage, then the order of reason codes: never that of candidates."""
    return STRICTNESS[finding.failure], _STAGE_ORDER[finding.stage], REASON_ORDER[finding.reason_code]


def _decide_candidate(state: CandidateState, decisive: Finding | None, offers: Mapping[str, str]) -> CandidateDecision:
    finding = state.finding
    if finding is None:
        if decisive is None:
            return CandidateDecision(state.place, Verdict.ALLOW, ReasonCode.ALLOWED, matched=state.matched)
        return CandidateDecision(state.place, _VERDICTS[decisive.failure], ReasonCode.HELD_BACK, decisive.failure)
    return CandidateDecision(
        state.place,
        _VERDICTS[finding.failure],
        finding.reason_code,
        finding.failure,
        finding.stage,
        finding.matched,
        finding.reason,
        finding.waits_for,
        offers[state.seen.tool_id or ""] if finding.failure is Failure.DEGRADE else None,
    )


def _outcome(state: CandidateState, decisive: Finding | None, *, atomic: bool) -> CandidateOutcome:
    """What becomes of one candidate; it asks where it, and its proposal if that is atomic, waits for an approval."""
    finding = state.finding
    if finding is None:
        runs = decisive is None
        return CandidateOutcome(state.place, runs, state.args_hash, state.answered_by, state.used if runs else ())
    asks: tuple[str, ...] = ()
    if finding.failure is Failure.ASK and (not atomic or (decisive is not None and decisive.failure is Failure.ASK)):
        asks = finding.matched
    return CandidateOutcome(state.place, False, state.args_hash, state.answered_by, (), asks)


def _outcome_when_observed(
    state: CandidateState, states: Sequence[CandidateState], *, atomic: bool
) -> CandidateOutcome:
    """What becomes of one candidate where decisions are observed: it runs, unless something is enforced even then."""
    stopped = any(each.enforced for each in states) if atomic else state.enforced
    return CandidateOutcome(state.place, not stopped, state.args_hash, state.answered_by)


def _waits(finding: Finding, decisive: Finding | None, *, atomic: bool) -> bool:
    """Whether it is parked. A stale one is not, nor one whose atomic proposal fails for more, or is stale itself."""
    return _is_parked(finding) and (not atomic or _is_parked(decisive))


def _is_parked(finding: Finding | None) -> bool:
    return finding is not None and finding.failure is Failure.DEFER and finding.stage is not Stage.FRESHNESS
