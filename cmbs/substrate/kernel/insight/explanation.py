"""Why a proposal was decided as it was, and what would have turned it; nothing of which the asker may not read.

An explanation is made by deciding again on the same space: nothing is recorded by it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from cmbs.messages import ActorKind
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.arbitration.authority import may_read
from cmbs.substrate.kernel.arbitration.stages import is_observation
from cmbs.substrate.kernel.events import SpaceEvent
from cmbs.substrate.kernel.insight.bounds import MayGoOn, without_bound
from cmbs.substrate.kernel.insight.fact_domains import Alteration
from cmbs.substrate.kernel.insight.findings import Because, Change, Flip, Speaker
from cmbs.substrate.kernel.insight.flips import MAX_DECISIONS, Found, Hypothetical, smallest_flip
from cmbs.substrate.kernel.model import (
    BeliefReading,
    CandidateDecision,
    Decision,
    Failure,
    Stage,
    TraceStep,
)
from cmbs.substrate.kernel.policy.constraints import Constraint
from cmbs.substrate.kernel.policy.policy import Policy
from cmbs.substrate.kernel.policy.predicates import show
from cmbs.substrate.kernel.policy.references import BELIEF_FIELDS, CASES_SINCE_PAYLOAD, MISSING, compile_reference
from cmbs.substrate.kernel.policy.source_map import SourceMap
from cmbs.substrate.kernel.proposals import situation_of
from cmbs.substrate.kernel.replay import readings_in
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.words import FlipStatus

__all__ = ["Explanation", "Hypothetical", "explain", "recall", "redact"]

# Any key of the policy: who may read one, may read all.
_POLICY_KEY = "constraint.any"


class Explanation(msgspec.Struct, frozen=True):
    """A decision, why, and what would have turned it."""

    decision: Decision
    because: list[Because]
    flip: Flip
    # How many steps of the trace are left out, since they show what the asker may not read.
    withheld: int = 0


def explain(
    asked: Hypothetical,
    reader: ActorKind,
    max_decisions: int = MAX_DECISIONS,
    *,
    readable: Policy | None = None,
    own: bool = True,
    source_map: SourceMap | None = None,
    may_go_on: MayGoOn = without_bound,
) -> Explanation:
    """Explain a proposal to an actor of this kind.

    What they may read goes by the policy `readable`, which for a decision of the past is the one of now; without it, by
    that of the decision. `own`: the proposal is theirs, so that its args may be told. `source_map` leads to the file
    that the policy of the decision was written as. The search for what would have turned it ends where `may_go_on` says
    so, and says how far it came.
    """
    decided = arbitrate(*asked).decision
    policy = asked.space.policy
    found = smallest_flip(asked, max_decisions, may_go_on)
    shown_decision = redact(decided, readable or policy, reader, own=own)
    told = _Told(shown_decision.trace, policy, reader, source_map)
    because = [_because(each, told) for each in decided.candidates]
    withheld = len(decided.trace) - len(shown_decision.trace)
    return Explanation(shown_decision, because, _flip(found, decided, asked, readable or policy, reader), withheld)


def recall(before: Space, event: SpaceEvent) -> Hypothetical:
    """What a recorded decision was made on, from the space before it; TypeError where the event decided no proposal."""
    space, proposal, actor = situation_of(before, event)
    return Hypothetical(space, proposal, actor, event.body.ts, {each.session_id: each for each in readings_in(event)})


def redact(decision: Decision, policy: Policy, reader: ActorKind, *, own: bool = True) -> Decision:
    """The decision as an actor of this kind may see it: without the steps that show what is not theirs to read.

    Where the proposal is not their `own`, what constraints found in its args is not theirs either.
    """
    trace = tuple(step for step in decision.trace if _may_see(step, policy, reader, own=own))
    return decision if len(trace) == len(decision.trace) else msgspec.structs.replace(decision, trace=trace)


def _may_see(step: TraceStep, policy: Policy, reader: ActorKind, *, own: bool) -> bool:
    if step.reference is None:
        return True
    if not own and step.reference.split(".", 1)[0] == "$args":
        return False
    if step.op is None:
        # A key that moved since the snapshot: which one, but nothing of what it says.
        return may_read(policy, reader, step.reference)
    return _may_read_all(compile_reference(step.reference, CASES_SINCE_PAYLOAD).keys, policy, reader)


def _may_read_all(keys: Collection[str], policy: Policy, reader: ActorKind) -> bool:
    return all(may_read(policy, reader, key) for key in keys)


# --- why --------------------------------------------------------------------------------------------------------------


class _Told(NamedTuple):
    """What an explanation is told from: the steps that may be seen, the policy, to whom, and the file of the policy."""

    trace: Sequence[TraceStep]
    policy: Policy
    reader: ActorKind
    source_map: SourceMap | None


def _because(decided: CandidateDecision, told: _Told) -> Because:
    speakers = [_speaker(key, decided.candidate, told) for key in decided.matched]
    holding = [
        step.key for step in told.trace if is_observation(step) and step.passed and step.candidate == decided.candidate
    ]
    return Because(
        decided.candidate,
        decided.verdict,
        decided.reason_code,
        decided.stage,
        decided.failure,
        speakers,
        decided.failure is Failure.ASK,
        [_speaker(key, decided.candidate, told) for key in holding if key is not None],
    )


def _speaker(key: str, candidate: int, told: _Told) -> Speaker:
    policy = told.policy
    _, compiled = policy.compiled.get(key, ("", None))
    reads = may_read(policy, told.reader, key)
    source_map = told.source_map if reads else None
    steps = [
        step for step in told.trace if step.key == key and step.op is not None and step.candidate in (None, candidate)
    ]
    places = {step.at or "" for step in steps}
    found = {at: source_map.find(key, at) for at in sorted(places)} if source_map is not None else {}
    return Speaker(
        key,
        policy.pairs.get(key) if reads else None,
        compiled.reason if isinstance(compiled, Constraint) else None,
        steps,
        None if source_map is None else source_map.find(key),
        {at: origin for at, origin in found.items() if origin is not None},
    )


# --- what would have turned it ----------------------------------------------------------------------------------------


def _flip(found: Found, decided: Decision, asked: Hypothetical, readable: Policy, reader: ActorKind) -> Flip:
    changes = [change for each in found.alterations for change in _changes(each, asked, readable, reader)]
    turned = None if found.decision is None else found.decision.verdict
    note = None
    if found.status is FlipStatus.NONE:
        note = "nothing that was decided here depends on facts" if decided.stage is None else _why_none(decided.stage)
    return Flip(found.status, changes, turned, found.ruled_out, note)


def _why_none(stage: Stage) -> str:
    if stage in {Stage.CONSTRAINTS, Stage.CONFLICTS, Stage.INVARIANTS}:
        return "no state and no belief would have led to another verdict"
    return f"it was decided at the stage `{stage}`, which no fact changes"


def _changes(alteration: Alteration, asked: Hypothetical, policy: Policy, reader: ActorKind) -> list[Change]:
    reads_policy = may_read(policy, reader, _POLICY_KEY)
    if alteration.reading is None:
        key = alteration.fact
        reads = may_read(policy, reader, key)
        now = asked.space.state.get(key) if reads else None
        to = alteration.text if reads and reads_policy else None
        return [Change(key, _cut(now), _cut(to), not (reads and reads_policy))]
    now_reading = asked.belief.get(alteration.reading.session_id)
    changes = []
    for field in alteration.fields:
        now = _show_field(now_reading, field)
        to = _show_field(alteration.reading, field) if reads_policy else None
        changes.append(Change(f"{alteration.fact}.{field}", now, to, not reads_policy))
    return changes


def _show_field(reading: BeliefReading | None, field: str) -> str | None:
    value = MISSING if reading is None or not reading.found else BELIEF_FIELDS[field](reading)
    return None if value is MISSING else show(value)


def _cut(text: str | None) -> str | None:
    return None if text is None else show(text)
