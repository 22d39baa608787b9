"""What another policy would have made of the past: every recorded decision, decided again under it.

History stays as it was: each step is taken on the state, belief, tools, tokens and time that it was really taken on,
and only the policy is another. Approvals count where the constraint that asked for them says the same in both policies.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from immutables import Map

from cmbs.belief.kernel.events import Stamp
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import StoredEntry
from cmbs.substrate.kernel.arbitration.conflicts import after, effective_changes
from cmbs.substrate.kernel.decide import decide
from cmbs.substrate.kernel.events import STREAM_PREFIX, Approve, Changes, Propose, SpaceEvent, Wake
from cmbs.substrate.kernel.model import Actor, Decision, Proposal, StateDelta, ToolCall, Verdict
from cmbs.substrate.kernel.policy.policy import Policy
from cmbs.substrate.kernel.policy.references import namespace_of
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event
from cmbs.substrate.kernel.state import Approval, Space

_POLICY = frozenset({"policy", "constraint"})


class FlipKind(StrEnum):
    """From which verdict to which; what would now be let through first, as that is what one has to look at."""

    DENY_TO_ALLOW = "deny→allow"
    DEFER_TO_ALLOW = "defer→allow"
    DENY_TO_DEFER = "deny→defer"
    ALLOW_TO_DENY = "allow→deny"
    ALLOW_TO_DEFER = "allow→defer"
    DEFER_TO_DENY = "defer→deny"


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
    """What a policy would have changed; `decisions` is how many there were."""

    space_id: str
    old_policy_hash: str
    new_policy_hash: str
    decisions: int
    flips: list[PolicyFlip]
    # Decisions with the same verdict, but for another reason or with another failure.
    otherwise: int = 0

    def counts(self) -> dict[str, int]:
        """How many flips there are of each kind."""
        found = dict.fromkeys((kind.value for kind in FlipKind), 0)
        for flip in self.flips:
            found[flip.kind.value] += 1
        return found


def impact_of(space_id: str, entries: Iterable[StoredEntry], policy: Policy) -> Impact:
    """Replay a space's log, verifying it, and decide every proposal of it under another policy too."""
    space: Space | None = None
    # The state under the other policy: kept up step by step, since a policy may be large and a log long.
    state: Map[str, str] = Map(policy.pairs)
    flips: list[PolicyFlip] = []
    decisions = otherwise = 0
    for stored in entries:
        before = space
        space = catch_up_space(space_id, space, [stored])
        event = read_space_event(stored)
        was = event.result.decision
        if before is not None and was is not None:
            decisions += 1
            approval_id = event.message.approval_id if isinstance(event.message, Approve) else None
            flip, differs = _compare(under_policy(before, policy, state, approval_id), event, was)
            flips += [] if flip is None else [flip]
            otherwise += differs
        state = after(state, _of_facts(event.result.changes))
    if space is None:
        raise LedgerCorrupt(STREAM_PREFIX + space_id, 0, "the log is empty")
    order = {kind: place for place, kind in enumerate(FlipKind)}
    flips.sort(key=lambda each: (order[each.kind], each.seq))
    return Impact(space_id, space.policy.policy_hash, policy.policy_hash, decisions, flips, otherwise)


def _of_facts(changes: Changes) -> Changes:
    """What changes do beside the policy."""
    return Changes(
        {key: text for key, text in changes.set.items() if namespace_of(key) not in _POLICY},
        [key for key in changes.unset if namespace_of(key) not in _POLICY],
    )


def _compare(space: Space, event: SpaceEvent, was: Decision) -> tuple[PolicyFlip | None, bool]:
    body = event.body
    again = decide(space, event.message, body.actor, Stamp(body.event_id, body.ts, None))
    now = again.result.decision if isinstance(again, SpaceEvent) else None
    if not isinstance(again, SpaceEvent) or now is None:  # pragma: no cover - only the policy is another
        raise TypeError(again)
    if now.verdict is was.verdict:
        return None, (now.reason_code, now.failure) != (was.reason_code, was.failure)
    proposal = _proposal(space, event)
    allowed = again if now.verdict is Verdict.ALLOW else event
    touched = Touched()
    if Verdict.ALLOW in (now.verdict, was.verdict):
        touched = _touch(space, proposal, allowed)
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
        case _:  # pragma: no cover - nothing else is decided by arbitration
            raise TypeError(event.body.verb)


def _touch(space: Space, proposal: Proposal, allowed: SpaceEvent) -> Touched:
    running = [proposal.candidates[place] for place in allowed.result.ran]
    changes = effective_changes(space.state, [each for each in running if isinstance(each, StateDelta)])
    return Touched(changes, sorted({each.tool_id for each in running if isinstance(each, ToolCall)}))
