"""The one decision: what becomes of a proposal, on this state, under this policy, at this moment. A pure function.

Candidates are judged one by one through the stages, in their order; the first that finds something decides. What
candidates share (a budget, an approval, a key that two of them write) is asked of all of them together, so that no
verdict depends on which came first. With `explain` no stage is left out and the trace shows what each one found; the
decision is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec

from cmbs.messages import Actor
from cmbs.substrate.kernel.arbitration.capabilities import demands_of, held
from cmbs.substrate.kernel.arbitration.conflicts import Finding, clashing, commit_finding, effective_changes
from cmbs.substrate.kernel.arbitration.stages import (
    OF_CALLS,
    OF_DELTAS,
    CallCase,
    Case,
    DeltaCase,
    Hearing,
    against_call,
    against_delta,
    call_case,
    delta_case,
    hash_of_args,
    hash_of_case,
    hearing_of,
)
from cmbs.substrate.kernel.events import Changes, Mode
from cmbs.substrate.kernel.model import (
    BeliefReading,
    Candidate,
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
from cmbs.substrate.kernel.state import Space

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
_NO_SESSIONS: frozenset[str] = frozenset()
# To look up a member of an enumeration takes longer than to compare it, and every decision needs these.
_ALLOW, _ALLOWED, _ASK, _OBSERVE = Verdict.ALLOW, ReasonCode.ALLOWED, Failure.ASK, Mode.OBSERVE
_NOTHING = Finding(Stage.SHAPE, ReasonCode.NOTHING_PROPOSED)


class Ruled(msgspec.Struct, frozen=True):
    """What becomes of one candidate. `runs`: it is really executed or committed, which observing makes differ."""

    candidate: int
    runs: bool
    # That of the args of a call, or, where it asks, of `{"set": …, "unset": …}` of a delta; else empty.
    args_hash: str
    # The execution of the same call in the past, which answers it: it is not run again.
    answered_by: str | None = None
    # Approvals of which one use is gone, where it runs; two candidates that are the same use one twice.
    used_approvals: tuple[str, ...] = ()
    # Constraints that an approval would satisfy, where that is what it waits for.
    asks: tuple[str, ...] = ()


class Ruling(msgspec.Struct, frozen=True):
    """A decision and what follows from it."""

    decision: Decision
    candidates: tuple[Ruled, ...]
    # What all deltas that run do to the state together.
    changes: Changes
    # Whether it is to wait, for any of `waits_for`, and be decided again. A stale one is not: its proposer looks again.
    # Where it is not atomic, every candidate asks and waits for itself, whatever becomes of the others.
    parks: bool = False
    waits_for: tuple[str, ...] = ()


_RUNS_ALONE = (Ruled(0, True, ""),)


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
    candidates = proposal.candidates
    hearing = hearing_of(space, proposal, actor, now, belief, [] if explain else None)
    if len(candidates) == 1 and space.mode is not _OBSERVE:
        return _alone(hearing, candidates[0])
    calls: list[CallCase] = []
    deltas: list[DeltaCase] = []
    cases: list[Case] = []
    for place, candidate in enumerate(candidates):
        if isinstance(candidate, ToolCall):
            call = call_case(hearing, place, candidate)
            calls.append(call)
            cases.append(call)
        else:
            delta = delta_case(hearing, place, candidate)
            deltas.append(delta)
            cases.append(delta)
    _survey(hearing, calls)
    for call in calls:
        _judge_call(hearing, call)
    for delta in deltas:
        _judge_delta(hearing, delta)
    changes = _judge_commit(hearing, deltas) if deltas else _NO_CHANGES
    return _ruling(hearing, cases, changes)


def belief_sessions(space: Space, proposal: Proposal) -> frozenset[str]:
    """The belief sessions that may be read to decide this proposal."""
    policy = space.policy
    if not policy.reads_belief:
        return _NO_SESSIONS
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


def _alone(hearing: Hearing, candidate: Candidate) -> Ruling:
    """Decide on the one candidate of a proposal: what most are, and what has nothing to share with another."""
    space, policy, steps = hearing.space, hearing.policy, hearing.steps
    changes = _NO_CHANGES
    case: Case
    if isinstance(candidate, StateDelta):
        case = delta_case(hearing, 0, candidate)
        if candidate.unset and candidate.set:
            hearing.clashes = clashing([candidate])
        finding = against_delta(hearing, case) if steps is None else _judge(hearing, case, OF_DELTAS)
        if finding is None:
            changes = effective_changes(space.state, (candidate,))
            finding = commit_finding(policy, space.state, changes, hearing.belief, steps)
        case.finding = finding
    else:
        case = call_case(hearing, 0, candidate)
        if case.held.bounded:
            hearing.demands = demands_of([(case.held, candidate.args)])
        finding = _judge_call(hearing, case)
    if finding is not None:
        return _ruling(hearing, [case], _NO_CHANGES)
    trace = () if steps is None else tuple(steps[:MAX_TRACE_STEPS])
    decided = _allowed_alone(case.matched)
    decision = Decision(_ALLOW, _ALLOWED, policy.policy_hash, space.snapshot_id, decided, None, None, False, trace)
    # Without the hash of its args there is neither an approval that it could use nor a call that could answer it.
    ruled = (Ruled(0, True, case.args_hash, case.answered_by, case.used),) if case.args_hash else _RUNS_ALONE
    return Ruling(decision, ruled, changes)


@lru_cache(maxsize=1_024)
def _allowed_alone(matched: tuple[str, ...]) -> tuple[CandidateDecision]:
    """What is decided of the one candidate of a proposal that is allowed. Of so many that say the same, one is kept."""
    return (CandidateDecision(0, _ALLOW, _ALLOWED, None, None, matched),)


def _survey(hearing: Hearing, calls: Sequence[CallCase]) -> None:
    """Look at what candidates share."""
    candidates = hearing.proposal.candidates
    hearing.demands = demands_of([(call.held, call.call.args) for call in calls if call.answered_by is None])
    hearing.clashes = clashing(candidates)
    if hearing.space.grants:
        tool_ids = [each.tool_id if isinstance(each, ToolCall) else None for each in candidates]
        hearing.twins = Counter(zip(tool_ids, map(hash_of_args, candidates), strict=True))


def _judge_call(hearing: Hearing, case: CallCase) -> Finding | None:
    """Keep what is found against a call; where there is an offer for what was blocked, as a degradation."""
    finding = _judge(hearing, case, OF_CALLS) if hearing.thorough else against_call(hearing, case)
    if finding is not None and finding.failure is Failure.BLOCK and case.tool_id in hearing.policy.offers:
        finding = finding._replace(failure=Failure.DEGRADE) if finding.stage in _DEGRADABLE else finding
    case.finding = finding
    return finding


def _judge_delta(hearing: Hearing, case: DeltaCase) -> None:
    """Keep what is found against a delta by itself."""
    case.finding = _judge(hearing, case, OF_DELTAS) if hearing.thorough else against_delta(hearing, case)


_Either = TypeVar("_Either", CallCase, DeltaCase)


def _judge(
    hearing: Hearing, case: _Either, stages: Sequence[tuple[Stage, Callable[[Hearing, _Either], Finding | None]]]
) -> Finding | None:
    """Go through all stages; what the first of them found that found something."""
    steps, place, first = hearing.steps, case.place, None
    for stage, judge in stages:
        finding = judge(hearing, case)
        if finding is None:
            if steps is not None:
                steps.append(TraceStep(stage, True, place))
            continue
        if steps is not None:
            steps.append(TraceStep(stage, False, place, note=finding.reason_code.value))
        first = first or finding
        if stage in _ENFORCED_STAGES or finding.reason_code in _ENFORCED_REASONS:
            case.enforced = True
    return first


def _judge_commit(hearing: Hearing, deltas: Sequence[DeltaCase]) -> Changes:
    """Judge what all deltas that came so far would do to the state: together, so that they fail together.

    What the deltas that run really do is the answer. Where decisions are observed, these may be others.
    """
    space = hearing.space
    passed = [case for case in deltas if case.finding is None]
    changes = effective_changes(space.state, [case.delta for case in passed])
    if passed:
        finding = commit_finding(hearing.policy, space.state, changes, hearing.belief, hearing.steps)
        for case in passed:
            case.finding = finding
    if space.mode is _OBSERVE:
        return effective_changes(space.state, [case.delta for case in deltas if not case.enforced])
    return changes


# --- ruling -----------------------------------------------------------------------------------------------------------


def _ruling(hearing: Hearing, cases: Sequence[Case], changes: Changes) -> Ruling:
    atomic = hearing.proposal.atomic
    decisive = _decisive(cases, atomic=atomic)
    decision = _decision(hearing, cases, decisive)
    if decision.observed:
        is_held = atomic and any(case.enforced for case in cases)
        ruled = [
            Ruled(case.place, not is_held and not case.enforced, case.args_hash, case.answered_by) for case in cases
        ]
        waiting: list[Case] = []
    else:
        ruled = [_ruled(case, decisive, atomic=atomic) for case in cases]
        waiting = [case for case in cases if _waits(case, decisive, atomic=atomic)]
    commits = any(each.runs and cases[each.candidate].written for each in ruled)
    waits_for = {key for case in waiting if case.finding is not None for key in case.finding.waits_for}
    return Ruling(decision, tuple(ruled), changes if commits else _NO_CHANGES, bool(waiting), tuple(sorted(waits_for)))


def _ruled(case: Case, decisive: Finding | None, *, atomic: bool) -> Ruled:
    """What becomes of one candidate; it asks where it, and its proposal if that is atomic, waits for an approval."""
    finding = case.finding
    if finding is None:
        runs = decisive is None
        return Ruled(case.place, runs, case.args_hash, case.answered_by, case.used if runs else ())
    asks: tuple[str, ...] = ()
    if finding.failure is _ASK and (not atomic or (decisive is not None and decisive.failure is _ASK)):
        asks = finding.matched
    return Ruled(case.place, False, hash_of_case(case) if asks else case.args_hash, case.answered_by, (), asks)


def _waits(case: Case, decisive: Finding | None, *, atomic: bool) -> bool:
    """Whether it is parked. A stale one is not, nor one whose atomic proposal fails for more, or is stale itself."""
    finding = case.finding
    if finding is None or not _is_parked(finding):
        return False
    return not atomic or (decisive is not None and _is_parked(decisive))


def _is_parked(finding: Finding) -> bool:
    return finding.failure is Failure.DEFER and finding.stage is not Stage.FRESHNESS


def _decision(hearing: Hearing, cases: Sequence[Case], decisive: Finding | None) -> Decision:
    space, policy, steps = hearing.space, hearing.policy, hearing.steps
    trace = () if steps is None else tuple(steps[:MAX_TRACE_STEPS])
    decided = tuple([_decided(case, decisive, policy.offers) for case in cases])
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
            return CandidateDecision(case.place, _ALLOW, _ALLOWED, None, None, case.matched)
        return CandidateDecision(case.place, _VERDICTS[decisive.failure], ReasonCode.HELD_BACK, decisive.failure)
    return CandidateDecision(
        case.place,
        _VERDICTS[finding.failure],
        finding.reason_code,
        finding.failure,
        finding.stage,
        finding.matched,
        finding.reason,
        finding.waits_for,
        offers[case.tool_id or ""] if finding.failure is Failure.DEGRADE else None,
    )
