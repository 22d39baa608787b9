"""What deltas do to the state together: changes, clashes among candidates, exclusive goals, invariants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from immutables import Map

from cmbs.substrate.kernel.events import Changes
from cmbs.substrate.kernel.model import BeliefReading, Candidate, Failure, ReasonCode, Stage, StateDelta, TraceStep
from cmbs.substrate.kernel.policy.policy import Policy
from cmbs.substrate.kernel.policy.predicates import Asking
from cmbs.substrate.kernel.policy.references import CaseContext, EvaluationContext


class Finding(NamedTuple):
    """Something that speaks against a candidate: the stage that found it, why, and what happens instead."""

    stage: Stage
    reason_code: ReasonCode
    failure: Failure = Failure.BLOCK
    # Keys of constraints, groups or invariants.
    matched: tuple[str, ...] = ()
    reason: str | None = None
    # What a deferred candidate waits for.
    waits_for: tuple[str, ...] = ()


def effective_changes(state: Mapping[str, str], deltas: Sequence[StateDelta]) -> Changes:
    """What deltas that do not clash do to the state together; what is so already is no change."""
    to_set = {key: text for delta in deltas for key, text in delta.set.items() if state.get(key) != text}
    to_unset = {key for delta in deltas for key in delta.unset if key in state}
    return Changes(dict(sorted(to_set.items())), sorted(to_unset))


def after(state: Map[str, str], changes: Changes) -> Map[str, str]:
    """The state as it is after these changes."""
    mutation = state.mutate()
    mutation.update(changes.set)
    for key in changes.unset:
        mutation.pop(key, None)
    return mutation.finish()


def find_clashes(candidates: Sequence[Candidate]) -> frozenset[int]:
    """The places of candidates that cannot both be: one key written in two ways, one call made twice."""
    # What each candidate says of each thing that can be said only once.
    claims: dict[object, dict[object, list[int]]] = {}
    for place, candidate in enumerate(candidates):
        for subject, claim in _claims(place, candidate):
            claims.setdefault(subject, {}).setdefault(claim, []).append(place)
    return frozenset(
        place for by_claim in claims.values() if len(by_claim) > 1 for places in by_claim.values() for place in places
    )


def _claims(place: int, candidate: Candidate) -> Iterable[tuple[object, object]]:
    if isinstance(candidate, StateDelta):
        yield from candidate.set.items()
        yield from ((key, None) for key in candidate.unset)
    elif candidate.idempotency_key is not None:
        # The same call twice counts as two calls, so that it clashes too.
        yield (candidate.tool_id, candidate.idempotency_key), place


def commit_finding(
    policy: Policy,
    state: Map[str, str],
    changes: Changes,
    belief: Mapping[str, BeliefReading],
    case: CaseContext | None,
    steps: list[TraceStep],
) -> Finding | None:
    """What speaks against committing these changes, which `case` is the case of, if there is one: exclusive goals
    first, then invariants. Both go into the trace.
    """
    state_after = after(state, changes)
    exclusive = _exclusive_finding(policy, state_after, changes, steps)
    violated = _invariant_finding(policy, EvaluationContext(state_after, belief, None, case=case), steps)
    return exclusive or violated


def _exclusive_finding(
    policy: Policy, state_after: Map[str, str], changes: Changes, steps: list[TraceStep]
) -> Finding | None:
    goals = [key for key in changes.set if key.startswith("goal.")]
    unreadable = tuple(group.key for group in policy.groups if group.goals is None) if goals else ()
    touched = {group for goal in goals for group in policy.groups_of(goal)}
    crowded = tuple(
        sorted(group.key for group in touched if sum(goal in state_after for goal in group.goals or ()) > 1)
    )
    against = {*unreadable, *crowded}
    keys = sorted({*against, *(group.key for group in touched)})
    steps.extend(TraceStep(Stage.CONFLICTS, key not in against, key=key) for key in keys)
    steps.append(TraceStep(Stage.CONFLICTS, not against))
    if unreadable:
        return Finding(Stage.CONFLICTS, ReasonCode.MALFORMED_POLICY, matched=unreadable)
    if crowded:
        return Finding(Stage.CONFLICTS, ReasonCode.EXCLUSIVE_GOALS, matched=crowded)
    return None


def _invariant_finding(policy: Policy, seen: EvaluationContext, steps: list[TraceStep]) -> Finding | None:
    unreadable, lacking, violated = [], [], []
    for key, predicate in policy.invariants:
        holds = predicate is not None and predicate.evaluate(seen, Asking(Stage.INVARIANTS, None, key), steps)
        if predicate is not None and predicate.lacks(seen):
            lacking += [key] if predicate.lacks_case(seen) else []
            holds = False
        steps.append(TraceStep(Stage.INVARIANTS, holds, key=key))
        if predicate is None:
            unreadable.append(key)
        if not holds:
            violated.append(key)
    steps.append(TraceStep(Stage.INVARIANTS, not violated))
    if unreadable:
        return Finding(Stage.INVARIANTS, ReasonCode.MALFORMED_POLICY, matched=tuple(unreadable))
    if lacking:
        return Finding(Stage.INVARIANTS, ReasonCode.NO_CASE, matched=tuple(lacking))
    if violated:
        return Finding(Stage.INVARIANTS, ReasonCode.INVARIANT_VIOLATED, matched=tuple(violated))
    return None
