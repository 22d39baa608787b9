"""The one decision: what becomes of a proposal, on this state, under this policy, at this moment. A pure function.

Candidates are judged one by one through the stages, in their order; the first that finds something decides. What
candidates share (a budget, an approval, a key that two of them write) is asked of all of them together, so that no
verdict depends on which came first. With `explain` no stage is left out and the trace shows what each one found; the
decision is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from cmbs.messages import Actor
from cmbs.substrate.capabilities import add_demand, held
from cmbs.substrate.conflicts import Finding, clashing, commit_finding, effective_changes
from cmbs.substrate.constraints import STRICTNESS
from cmbs.substrate.events import Changes, Mode
from cmbs.substrate.model import (
    BeliefReading,
    CandidateDecision,
    Decision,
    Failure,
    Proposal,
    ReasonCode,
    Stage,
    ToolCall,
    TraceStep,
    Verdict,
)
from cmbs.substrate.stages import OF_CALLS, OF_DELTAS, CallCase, Case, DeltaCase, Hearing, hash_of_args
from cmbs.substrate.state import Space

__all__ = ["Finding", "Ruled", "Ruling", "arbitrate", "belief_sessions", "commit_finding", "hash_of_args", "recheck"]

MAX_TRACE_STEPS = 2_000
# What is kept up even where decisions are only observed: without these a call cannot be made, or a record would lie.
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
_REASON_ORDER = {reason: place for place, reason in enumerate(ReasonCode)}
_VERDICTS = {
    Failure.BLOCK: Verdict.DENY,
    Failure.DEGRADE: Verdict.DENY,
    Failure.ASK: Verdict.DEFER,
    Failure.DEFER: Verdict.DEFER,
}
_DEGRADABLE = frozenset({Stage.CAPABILITY, Stage.CONSTRAINTS})
_NO_CHANGES = Changes()
# To look up a member of an enumeration takes longer than to compare it, and every decision needs these.
_ALLOW, _ALLOWED, _OBSERVE = Verdict.ALLOW, ReasonCode.ALLOWED, Mode.OBSERVE
_NOTHING = Finding(Stage.SHAPE, ReasonCode.NOTHING_PROPOSED)


class Ruled(msgspec.Struct, frozen=True, gc=False):
    """What becomes of one candidate. `runs`: it is really executed or committed, which observing makes differ."""

    candidate: int
    runs: bool
    # That of the args of a call, or of `{"set": …, "unset": …}` of a delta.
    args_hash: str
    # The execution of the same call in the past, which answers it: it is not run again.
    answered_by: str | None = None
    # Approvals of which one use is gone, where it runs.
    used_approvals: tuple[str, ...] = ()
    # Constraints that an approval would satisfy, where approval is what the proposal waits for.
    asks: tuple[str, ...] = ()


class Ruling(msgspec.Struct, frozen=True, gc=False):
    """A decision and what follows from it."""

    decision: Decision
    candidates: tuple[Ruled, ...]
    # What all deltas that run do to the state together.
    changes: Changes
    # Whether it is to wait, for any of `waits_for`, and be decided again. A stale one is not: its proposer looks again.
    parks: bool = False
    waits_for: tuple[str, ...] = ()


def arbitrate(
    space: Space,
    proposal: Proposal,
    actor: Actor,
    now: str,
    belief: Mapping[str, BeliefReading],
    *,
    explain: bool,
) -> Ruling:
    """Decide a proposal of `actor` at `now`, given what the belief plane says of the sessions in `belief`."""
    hearing = Hearing(space, proposal, actor, now, belief, [] if explain else None)
    calls: list[CallCase] = []
    deltas: list[DeltaCase] = []
    cases: list[Case] = []
    for place, candidate in enumerate(proposal.candidates):
        if isinstance(candidate, ToolCall):
            calls.append(CallCase(place, candidate, hearing))
            cases.append(calls[-1])
        else:
            deltas.append(DeltaCase(place, candidate, hearing))
            cases.append(deltas[-1])
    _survey(hearing, calls, cases)
    for call in calls:
        _judge(hearing, call, OF_CALLS)
        if call.finding is not None and call.tool_id in space.policy.offers:
            call.finding = _degraded(call.finding)
    for delta in deltas:
        _judge(hearing, delta, OF_DELTAS)
    if deltas:
        _judge_commit(hearing, deltas)
    return _ruling(hearing, cases, deltas)


def belief_sessions(space: Space, proposal: Proposal) -> frozenset[str]:
    """The belief sessions that may be read to decide this proposal."""
    policy = space.policy
    found: set[str] = set()
    for candidate in proposal.candidates:
        if isinstance(candidate, ToolCall):
            holding = held(space.capabilities, candidate.capability_token_id)
            found |= policy.matching(candidate.tool_id, holding.permitting, holding.denying).session_ids
        else:
            found |= policy.matching(None).session_ids | policy.invariant_session_ids
    return frozenset(found)


def recheck(
    space: Space, proposal: Proposal, places: Collection[int], belief: Mapping[str, BeliefReading]
) -> Changes | Finding:
    """What the deltas at `places`, allowed before the calls of their proposal were run, do to the state as it is now.

    A finding where they may no longer be committed: a key that they write has changed since the proposal's snapshot, or
    the state would break an exclusive group or an invariant.
    """
    deltas = [
        candidate
        for place, candidate in enumerate(proposal.candidates)
        if place in places and not isinstance(candidate, ToolCall)
    ]
    if proposal.state_snapshot_id != space.snapshot_id:
        since = space.snapshots.get(proposal.state_snapshot_id)
        if since is None:
            return Finding(Stage.SHAPE, ReasonCode.UNKNOWN_SNAPSHOT)
        written = (key for delta in deltas for key in (*delta.set, *delta.unset))
        if any(space.changed.get(key, -1) > since for key in written):
            return Finding(Stage.FRESHNESS, ReasonCode.STALE_SNAPSHOT, Failure.DEFER)
    changes = effective_changes(space.state, deltas)
    return commit_finding(space.policy, space.state, changes, belief) or changes


# --- judging ----------------------------------------------------------------------------------------------------------


def _survey(hearing: Hearing, calls: Sequence[CallCase], cases: Sequence[Case]) -> None:
    """Look at what candidates share."""
    for call in calls:
        if call.answered_by is None:
            add_demand(hearing.demands, call.held, call.call.args)
    if len(cases) > 1 or not calls:
        hearing.clashes = clashing(hearing.proposal.candidates)
        hearing.twins = Counter((case.tool_id, case.args_hash) for case in cases)


_Either = TypeVar("_Either", CallCase, DeltaCase)


def _judge(
    hearing: Hearing, case: _Either, stages: Sequence[tuple[Stage, Callable[[Hearing, _Either], Finding | None]]]
) -> None:
    if not hearing.thorough:
        for _, judge in stages:
            case.finding = judge(hearing, case)
            if case.finding is not None:
                return
        return
    steps = hearing.steps
    for stage, judge in stages:
        finding = judge(hearing, case)
        if steps is not None:
            note = None if finding is None else finding.reason_code.value
            steps.append(TraceStep(stage, finding is None, case.place, note=note))
        if finding is None:
            continue
        if case.finding is None:
            case.finding = finding
        if stage in _ENFORCED_STAGES or finding.reason_code in _ENFORCED_REASONS:
            case.enforced = True


def _degraded(finding: Finding) -> Finding:
    """What is found against a call for which there is an offer: where it was blocked for want of a right, the offer."""
    if finding.failure is not Failure.BLOCK or finding.stage not in _DEGRADABLE:
        return finding
    return finding._replace(failure=Failure.DEGRADE)


def _judge_commit(hearing: Hearing, deltas: Sequence[DeltaCase]) -> None:
    """Judge what all deltas that came so far would do to the state: together, so that they fail together."""
    passed = [case for case in deltas if case.finding is None]
    if not passed:
        return
    space = hearing.space
    changes = effective_changes(space.state, (case.delta for case in passed))
    finding = commit_finding(space.policy, space.state, changes, hearing.belief, hearing.steps)
    for case in passed:
        case.finding = finding


# --- ruling -----------------------------------------------------------------------------------------------------------


def _ruling(hearing: Hearing, cases: Sequence[Case], deltas: Sequence[DeltaCase]) -> Ruling:
    decisive = _decisive(cases, atomic=hearing.proposal.atomic)
    decision = _decision(hearing, cases, decisive)
    if decision.observed:
        is_held = hearing.proposal.atomic and any(case.enforced for case in cases)
        running = [not is_held and not case.enforced for case in cases]
    elif decisive is None:
        running = [case.finding is None for case in cases]
    else:
        return _stopped(decision, cases, decisive)
    changes = _NO_CHANGES
    if deltas:
        changes = effective_changes(hearing.space.state, (case.delta for case in deltas if running[case.place]))
    ruled = []
    for case in cases:
        runs = running[case.place]
        ruled.append(Ruled(case.place, runs, case.args_hash, case.answered_by, case.used if runs else ()))
    return Ruling(decision, tuple(ruled), changes)


def _decision(hearing: Hearing, cases: Sequence[Case], decisive: Finding | None) -> Decision:
    space, steps = hearing.space, hearing.steps
    policy = space.policy
    trace = [] if steps is None else steps[:MAX_TRACE_STEPS]
    decided = [_decided(case, decisive, policy.offers) for case in cases]
    observed = space.mode is _OBSERVE
    if decisive is None:
        return Decision(
            _ALLOW, _ALLOWED, policy.policy_hash, space.snapshot_id, decided, observed=observed, trace=trace
        )
    return Decision(
        _VERDICTS[decisive.failure],
        decisive.reason_code,
        policy.policy_hash,
        space.snapshot_id,
        decided,
        decisive.failure,
        decisive.stage,
        observed,
        trace,
    )


def _stopped(decision: Decision, cases: Sequence[Case], decisive: Finding) -> Ruling:
    """A proposal of which nothing is done, and what it asks or waits for."""
    asking = decisive.failure is Failure.ASK
    ruled: list[Ruled] = []
    waits_for: set[str] = set()
    for case in cases:
        finding = case.finding
        asks = finding.matched if asking and finding is not None and finding.failure is Failure.ASK else ()
        ruled.append(Ruled(case.place, False, case.args_hash, case.answered_by, (), asks))
        waits_for.update(() if finding is None else finding.waits_for)
    # A stale proposal does not wait: whoever made it looks at the state again.
    parks = decisive.failure is Failure.DEFER and decisive.stage is not Stage.FRESHNESS
    return Ruling(decision, tuple(ruled), _NO_CHANGES, parks, tuple(sorted(waits_for)) if parks else ())


def _decisive(cases: Sequence[Case], *, atomic: bool) -> Finding | None:
    """What the whole proposal fails for; None where something of it may be done."""
    if not cases:
        return _NOTHING
    against = [case.finding for case in cases if case.finding is not None]
    if not against or len(against) < (1 if atomic else len(cases)):
        return None
    return min(against, key=_precedence)


def _precedence(finding: Finding) -> tuple[int, int, int]:
    """The strictest first, then the earliest stage, then the order of reason codes: never that of candidates."""
    return STRICTNESS[finding.failure], _STAGE_ORDER[finding.stage], _REASON_ORDER[finding.reason_code]


def _decided(case: Case, decisive: Finding | None, offers: Mapping[str, str]) -> CandidateDecision:
    finding = case.finding
    if finding is None:
        if decisive is None:
            return CandidateDecision(case.place, _ALLOW, _ALLOWED, None, None, list(case.matched))
        return CandidateDecision(case.place, _VERDICTS[decisive.failure], ReasonCode.HELD_BACK, decisive.failure)
    return CandidateDecision(
        case.place,
        _VERDICTS[finding.failure],
        finding.reason_code,
        finding.failure,
        finding.stage,
        list(finding.matched),
        finding.reason,
        list(finding.waits_for),
        offers[case.tool_id or ""] if finding.failure is Failure.DEGRADE else None,
    )
