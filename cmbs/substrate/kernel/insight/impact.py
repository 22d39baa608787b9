"""What another policy would have made of the past: every recorded decision, decided again under it.

History stays as it was: each step is taken on the state, belief, tools, tokens and time that it was really taken on,
and only the policy is another. Approvals count where the constraint that asked for them says the same in both policies.
What the other policy reads of sessions that were not read then is read from the past, as far as that can be known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import TypeAlias

import msgspec
from immutables import Map

from cmbs.belief.kernel.events import Stamp
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import StoredEntry
from cmbs.substrate.kernel.arbitration.arbitrate import belief_sessions
from cmbs.substrate.kernel.arbitration.cases import is_read
from cmbs.substrate.kernel.arbitration.conflicts import after, effective_changes
from cmbs.substrate.kernel.decide import decide
from cmbs.substrate.kernel.events import STREAM_PREFIX, Approve, Changes, Propose, SpaceEvent, Start, Wake
from cmbs.substrate.kernel.insight.findings import Timeline, TimelinePart, UnknownDecision
from cmbs.substrate.kernel.model import Actor, BeliefReading, Decision, Proposal, StateDelta, ToolCall, Verdict
from cmbs.substrate.kernel.policy.policy import Policy
from cmbs.substrate.kernel.policy.references import namespace_of
from cmbs.substrate.kernel.proposals import situation_of, trace_decision
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event, readings_in
from cmbs.substrate.kernel.state import Approval, Space
from cmbs.substrate.kernel.waiting import OutcomeUnchanged
from cmbs.substrate.kernel.words import FlipKind

_POLICY = frozenset({"policy", "constraint"})
TIMELINE_PARTS = 60

# What a session said right before a moment, and if an actor is named also without its eliminations; None where that
# cannot be known.
BeliefAt: TypeAlias = Callable[[str, str, str | None], BeliefReading | None]


class Touched(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an allowed proposal does: the state that it changes and the tools that it calls."""

    changes: Changes = Changes()
    tool_ids: list[str] = []


class PolicyFlip(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision that would have been another."""

    kind: FlipKind
    seq: int
    event_id: str
    ts: str
    verb: str
    proposal_id: str
    actor: Actor
    before: Decision
    after: Decision
    # What it touched, or would have touched: of whichever of the two is the allowed one.
    touched: Touched = Touched()


class Impact(msgspec.Struct, frozen=True):
    """What would have been otherwise; `decisions` is how many there were to look at."""

    space_id: str
    old_policy_hash: str
    new_policy_hash: str
    decisions: int
    flips: list[PolicyFlip]
    # Decisions with the same verdict, but for another reason or with another failure.
    otherwise: int = 0
    unknown: list[UnknownDecision] = []
    # When the decisions were made, and what they were; None where there are none.
    timeline: Timeline | None = None

    def counts(self) -> dict[str, int]:
        """How many flips there are of each kind."""
        found = dict.fromkeys((kind.value for kind in FlipKind), 0)
        for flip in self.flips:
            found[flip.kind.value] += 1
        return found


def know_nothing(session_id: str, ts: str, independent_of: str | None) -> None:
    """The past of no session is known."""


def impact_of(
    space_id: str, entries: Iterable[StoredEntry], policy: Policy, belief_at: BeliefAt = know_nothing
) -> Impact:
    """Replay a space's log, verifying it, and decide every proposal of it under another policy too."""
    # The state under the other policy: kept up step by step, since a policy may be large and a log long.
    state: Map[str, str] = Map(policy.pairs)
    tally = _Tally()
    newest: Space | None = None
    for before, event, newest in _replay(space_id, entries):  # noqa: B007 - what it is in the end is needed
        was = event.result.decision
        if before is not None and was is not None:
            approval_id = event.message.approval_id if isinstance(event.message, Approve) else None
            under = under_policy(before, policy, state, approval_id)
            more, unknown = _read_more(under, event, belief_at)
            if unknown:
                tally.add_unknown(before, event, was, unknown)
            else:
                tally.add(under, event, was, more)
        state = after(state, _of_facts(event.result.changes))
    return tally.impact(space_id, newest, policy)


def impact_of_readings(
    space_id: str, entries: Iterable[StoredEntry], reread: Callable[[BeliefReading], BeliefReading | None]
) -> Impact:
    """Replay a space's log, verifying it, and decide again what rested on readings that `reread` makes others.

    `reread` answers None for a reading of which it is not known what it would have been. Only decisions with a reading
    that is another, or not known, count.
    """
    tally = _Tally()
    newest: Space | None = None
    for before, event, newest in _replay(space_id, entries):  # noqa: B007 - what it is in the end is needed
        was, readings = event.result.decision, readings_in(event)
        if before is None or was is None:
            continue
        others = [reread(each) for each in readings]
        unknown = [each.session_id for each, other in zip(readings, others, strict=True) if other is None]
        if unknown:
            tally.add_unknown(before, event, was, unknown)
        elif others != readings:
            tally.add(before, event, was, [each for each in others if each is not None])
    return tally.impact(space_id, newest, None)


def _replay(space_id: str, entries: Iterable[StoredEntry]) -> Iterator[tuple[Space | None, SpaceEvent, Space]]:
    """Every event of a log that verifies, with the space before and after it."""
    space: Space | None = None
    for stored in entries:
        before, space = space, catch_up_space(space_id, space, [stored])
        if space is not None:  # pragma: no branch - there is one after an entry
            yield before, read_space_event(stored), space


def _read_more(space: Space, event: SpaceEvent, belief_at: BeliefAt) -> tuple[list[BeliefReading], list[str]]:
    """What would have been read to decide in this space, from what was read then and from the past; and what is not
    known of it.
    """
    needed = belief_sessions(*situation_of(space, event))
    read = {each.session_id: each for each in readings_in(event)}
    found = {
        session_id: reading
        if is_read(actor_id, reading := read.get(session_id))
        else belief_at(session_id, event.body.ts, actor_id)
        for session_id, actor_id in sorted(needed.items())
    }
    unknown = [session_id for session_id, reading in found.items() if reading is None]
    return [each for each in found.values() if each is not None], unknown


class _Tally:
    """What decisions came to when they were made again."""

    def __init__(self) -> None:
        self._flips: list[PolicyFlip] = []
        self._unknown: list[UnknownDecision] = []
        self._decided: list[tuple[str, Verdict]] = []
        self._otherwise = 0

    def add(self, space: Space, event: SpaceEvent, was: Decision, readings: list[BeliefReading]) -> None:
        """Make a decision again in this space, on these readings."""
        self._decided.append((event.body.ts, was.verdict))
        flip, differs = _compare(space, event, was, readings)
        self._flips += [] if flip is None else [flip]
        self._otherwise += differs

    def add_unknown(self, space: Space, event: SpaceEvent, was: Decision, session_ids: list[str]) -> None:
        """Note a decision that cannot be made again."""
        self._decided.append((event.body.ts, was.verdict))
        body, proposal_id = event.body, _proposal(space, event).proposal_id
        unknown = UnknownDecision(body.seq, body.event_id, body.ts, body.verb, proposal_id, session_ids)
        self._unknown.append(unknown)

    def impact(self, space_id: str, newest: Space | None, policy: Policy | None) -> Impact:
        """Everything, of a space as it is in the end; `policy` is the other one, if there is one."""
        if newest is None:
            raise LedgerCorrupt(STREAM_PREFIX + space_id, 0, "the log is empty")
        was, tried = newest.policy.policy_hash, (policy or newest.policy).policy_hash
        order = {kind: place for place, kind in enumerate(FlipKind)}
        flips = sorted(self._flips, key=lambda each: (order[each.kind], each.seq))
        decided = len(self._decided)
        timeline = _draw_timeline(self._decided)
        return Impact(space_id, was, tried, decided, flips, self._otherwise, self._unknown, timeline)


def _draw_timeline(decided: list[tuple[str, Verdict]]) -> Timeline | None:
    if not decided:
        return None
    # Clocks may go back, so the first entry need not have the first time.
    moments = [(datetime.fromisoformat(ts), ts, verdict) for ts, verdict in decided]
    first, last = min(moments), max(moments)
    span = last[0] - first[0]
    parts: dict[int, Counter[Verdict]] = defaultdict(Counter)
    for moment, _, verdict in moments:
        part = int((moment - first[0]) / span * TIMELINE_PARTS) if span else 0
        parts[min(part, TIMELINE_PARTS - 1)][verdict] += 1
    shown = [
        TimelinePart(part, found[Verdict.ALLOW], found[Verdict.DEFER], found[Verdict.DENY])
        for part, found in sorted(parts.items())
    ]
    return Timeline(first[1], last[1], TIMELINE_PARTS, shown)


def _of_facts(changes: Changes) -> Changes:
    """What changes do beside the policy."""
    return Changes(
        {key: text for key, text in changes.set.items() if namespace_of(key) not in _POLICY},
        [key for key in changes.unset if namespace_of(key) not in _POLICY],
    )


def _compare(
    space: Space, event: SpaceEvent, was: Decision, readings: list[BeliefReading]
) -> tuple[PolicyFlip | None, bool]:
    body = event.body
    message = msgspec.structs.replace(event.message, belief=readings)
    again: SpaceEvent | None = None
    try:
        decided = decide(space, message, body.actor, Stamp(body.event_id, body.ts))
    except OutcomeUnchanged:
        # What waits goes on waiting, and that is not recorded.
        now = trace_decision(space, msgspec.structs.replace(event, message=message))
    else:
        if not isinstance(decided, SpaceEvent) or decided.result.decision is None:  # pragma: no cover
            raise TypeError(decided)
        again, now = decided, decided.result.decision
    if now.verdict is was.verdict:
        return None, (now.reason_code, now.failure) != (was.reason_code, was.failure)
    proposal = _proposal(space, event)
    touched = Touched()
    if Verdict.ALLOW in (now.verdict, was.verdict):
        touched = _touch(space, proposal, again if again is not None and now.verdict is Verdict.ALLOW else event)
    record = space.proposals.get(proposal.proposal_id)
    actor = body.actor if record is None else record.actor
    kind = FlipKind(f"{was.verdict.value}→{now.verdict.value}")
    flip = PolicyFlip(kind, body.seq, body.event_id, body.ts, body.verb, proposal.proposal_id, actor, was, now, touched)
    return flip, False


def under_policy(space: Space, policy: Policy, state: Map[str, str], approval_id: str | None = None) -> Space:
    """The space as it would be under another policy, with the state that has its pairs, and nothing else changed.

    Approvals that can still be used, and the one that is being given, are taken over where they can be.
    """
    kept = {*space.grants.values(), *([] if approval_id is None else [approval_id])}
    rebound = {each: _rebound(space.approvals[each], space.policy, policy) for each in kept}
    grants = {
        key._replace(policy_hash=rebound[approval_id].policy_hash): approval_id
        for key, approval_id in space.grants.items()
    }
    return msgspec.structs.replace(
        space, policy=policy, state=state, approvals=space.approvals.update(rebound), grants=Map(grants)
    )


def _rebound(approval: Approval, old: Policy, new: Policy) -> Approval:
    """An approval as one under the new policy, where it was good under the old and what asked for it is the same."""
    stays = approval.policy_hash == old.policy_hash and all(
        old.pairs.get(key) == new.pairs.get(key) for key in approval.asked.constraints
    )
    return msgspec.structs.replace(approval, policy_hash=new.policy_hash) if stays else approval


def _proposal(space: Space, event: SpaceEvent) -> Proposal:
    match event.message:
        case Propose():
            return event.message.proposal
        case Wake():
            return space.proposals[event.message.proposal_id].message.proposal
        case Approve():
            approval = space.approvals[event.message.approval_id]
            return space.proposals[approval.proposal_id].message.proposal
        case Start():
            execution = space.executions[event.message.execution_id]
            return space.proposals[execution.proposal_id].message.proposal
        case _:  # pragma: no cover - nothing else is decided by arbitration
            raise TypeError(event.body.verb)


def _touch(space: Space, proposal: Proposal, allowed: SpaceEvent) -> Touched:
    running = [proposal.candidates[place] for place in allowed.result.ran]
    changes = effective_changes(space.state, [each for each in running if isinstance(each, StateDelta)])
    return Touched(changes, sorted({each.tool_id for each in running if isinstance(each, ToolCall)}))
