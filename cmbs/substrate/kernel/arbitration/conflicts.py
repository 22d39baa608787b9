"""What deltas do to the state together: changes, clashes among candidates, exclusive goals, invariants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from immutables import Map

from cmbs.substrate.kernel.events import Changes
from cmbs.substrate.kernel.model import BeliefReading, Candidate, Failure, ReasonCode, Stage, StateDelta, TraceStep
from cmbs.substrate.kernel.policy.policy import Policy
from cmbs.substrate.kernel.policy.predicates import Asking
from cmbs.substrate.kernel.policy.references import Facing
from cmbs.substrate.kernel.state import CallKey

# Of most changes, which share it: nobody changes what a step did.
_NOTHING_UNSET: list[str] = []


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


def effective_changes(state: Mapping[str, str], deltas: Iterable[StateDelta]) -> Changes:
    """What deltas that do not clash do to the state together; what is so already is no change."""
    to_set: dict[str, str] = {}
    to_unset: list[str] = []
    for delta in deltas:
        for key, text in delta.set.items():
            if state.get(key) != text:
                to_set[key] = text  # noqa: PERF403 - a comprehension is a call, and most deltas have one key
        if delta.unset:
            to_unset += [key for key in delta.unset if key in state]
    return Changes(
        dict(sorted(to_set.items())) if len(to_set) > 1 else to_set,
        sorted(set(to_unset)) if to_unset else _NOTHING_UNSET,
    )


def after(state: Map[str, str], changes: Changes) -> Map[str, str]:
    """The state as it is after these changes."""
    mutation = state.mutate()
    mutation.update(changes.set)
    for key in changes.unset:
        mutation.pop(key, None)
    return mutation.finish()


def committed(
    state: Map[str, str], changed: Map[str, int], changes: Changes, seq: int
) -> tuple[Map[str, str], Map[str, int]]:
    """The state after these changes, and the seq of the last change of each key."""
    if len(changes.set) == 1 and not changes.unset:
        # By far the most common one.
        ((key, text),) = changes.set.items()
        return state.set(key, text), changed.set(key, seq)
    return after(state, changes), changed.update(dict.fromkeys((*changes.set, *changes.unset), seq))


def clashing(candidates: Sequence[Candidate]) -> frozenset[int]:
    """The places of candidates that cannot both be: one key written in two ways, one call made twice."""
    if len(candidates) == 1:
        only = candidates[0]
        is_torn = isinstance(only, StateDelta) and not only.set.keys().isdisjoint(only.unset)
        return frozenset({0}) if is_torn else frozenset()
    # What each candidate says of each thing that can be said only once.
    said: dict[object, dict[object, list[int]]] = {}
    for place, candidate in enumerate(candidates):
        for subject, word in _said(place, candidate):
            said.setdefault(subject, {}).setdefault(word, []).append(place)
    return frozenset(
        place for words in said.values() if len(words) > 1 for places in words.values() for place in places
    )


def _said(place: int, candidate: Candidate) -> Iterable[tuple[object, object]]:
    if isinstance(candidate, StateDelta):
        yield from candidate.set.items()
        yield from ((key, None) for key in candidate.unset)
    elif candidate.idempotency_key is not None:
        # Even the same call again is another one to whoever counts them.
        yield CallKey(candidate.tool_id, candidate.idempotency_key), place


def commit_finding(
    policy: Policy,
    state: Map[str, str],
    changes: Changes,
    belief: Mapping[str, BeliefReading],
    steps: list[TraceStep] | None = None,
) -> Finding | None:
    """What speaks against committing these changes: exclusive goals first, then invariants."""
    if steps is None and not policy.groups and not policy.invariants:
        return None
    state_after = after(state, changes)
    exclusive = _exclusive_finding(policy, state_after, changes, steps)
    if exclusive is not None and steps is None:
        return exclusive
    violated = _invariant_finding(policy, Facing(state_after, belief, ""), steps)
    return exclusive or violated


def _exclusive_finding(
    policy: Policy, state_after: Map[str, str], changes: Changes, steps: list[TraceStep] | None
) -> Finding | None:
    goals = [key for key in changes.set if key.startswith("goal.")]
    unreadable = tuple(group.key for group in policy.groups if group.goals is None) if goals else ()
    touched = {group for goal in goals for group in policy.groups_of(goal)}
    crowded = tuple(
        sorted(group.key for group in touched if sum(goal in state_after for goal in group.goals or ()) > 1)
    )
    if steps is not None:
        against = {*unreadable, *crowded}
        keys = sorted({*against, *(group.key for group in touched)})
        steps.extend(TraceStep(Stage.CONFLICTS, key not in against, key=key) for key in keys)
        steps.append(TraceStep(Stage.CONFLICTS, not against))
    if unreadable:
        return Finding(Stage.CONFLICTS, ReasonCode.MALFORMED_POLICY, matched=unreadable)
    if crowded:
        return Finding(Stage.CONFLICTS, ReasonCode.EXCLUSIVE_GOALS, matched=crowded)
    return None


def _invariant_finding(policy: Policy, facing: Facing, steps: list[TraceStep] | None) -> Finding | None:
    unreadable, violated = [], []
    for invariant in policy.invariants:
        if invariant.predicate is None:
            unreadable.append(invariant.key)
            holds = False
        elif steps is None:
            holds = invariant.predicate.holds(facing)
        else:
            holds = invariant.predicate.trace(facing, Asking(Stage.INVARIANTS, None, invariant.key), steps)
        if not holds:
            violated.append(invariant.key)
        if steps is not None:
            steps.append(TraceStep(Stage.INVARIANTS, holds, key=invariant.key))
    if steps is not None:
        steps.append(TraceStep(Stage.INVARIANTS, not violated))
    if unreadable:
        return Finding(Stage.INVARIANTS, ReasonCode.MALFORMED_POLICY, matched=tuple(unreadable))
    if violated:
        return Finding(Stage.INVARIANTS, ReasonCode.INVARIANT_VIOLATED, matched=tuple(violated))
    return None
