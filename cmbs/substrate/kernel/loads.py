"""How much of a space each agent takes up, so that a server can bound it. No decision of the rules rests on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from immutables import Map

from cmbs.errors import LimitExceeded
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import (
    Expire,
    ExpiryOf,
    IssueCapability,
    PutMemory,
    RevokeCapability,
    SpaceEvent,
)
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.substrate.kernel.model import Capability
from cmbs.substrate.kernel.state import AgentLoad, ProposalRecord, Space
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus

# Actors whose share of a space is bounded. Operators and the policy engine can help, whatever agents fill up.
_BOUNDED = frozenset({ActorKind.AGENT, ActorKind.ENCODER, ActorKind.TOOL})
# An agent, a field of its load, and how much more there is of it.
_Change: TypeAlias = tuple[str, str, int]
_NOTHING = AgentLoad()


def is_bounded(actor: Actor) -> bool:
    """Whether limits per agent hold for an actor."""
    return actor.kind in _BOUNDED


def check_load(before: Space, after: Space, actor: Actor, limits: SpaceLimits) -> None:
    """Raise LimitExceeded where a step of this actor would have it hold more of the space than it may.

    What it holds already stays, also where the limit was higher once.
    """
    held, holds = before.loads.get(actor.id, _NOTHING), after.loads.get(actor.id, _NOTHING)
    if holds is held or not is_bounded(actor):
        return
    for field, known, now in zip(AgentLoad._fields, held, holds, strict=True):
        maximum = getattr(limits, f"agent_{field}")
        if known < now > maximum:
            raise LimitExceeded(f"agent_{field}", maximum, now, agent_id=actor.id)


def count_loads(space: Space) -> Map[str, AgentLoad]:
    """The loads of all agents, from everything that the space holds."""
    found: list[_Change] = [(space.proposals[each].actor.id, "parked", 1) for each in space.parked]
    found += [
        (approval.proposer.id, "asked", 1)
        for approval in space.approvals.values()
        if approval.status is ApprovalStatus.PENDING
    ]
    running = map(space.executions.__getitem__, space.running)
    found += [(each.agent_id, "ready", 1) for each in running if each.status is ExecutionStatus.READY]
    found += [(entry.author.id, "memory_entries", 1) for entry in space.memory.values() if not entry.expired]
    for token in space.capabilities.values():
        if token.token_id not in space.revoked:
            found += _of_token(space, token, 1)
    return _add(Map(), found)


def update_loads(before: Space, after: Space, event: SpaceEvent) -> Map[str, AgentLoad]:
    """The loads after a step; `after` is what it leads to, but for these."""
    return _add(before.loads, [*_of_proposals(before, after, event.result.statuses), *_of_message(after, event)])


def _add(loads: Map[str, AgentLoad], found: Iterable[_Change]) -> Map[str, AgentLoad]:
    changes: dict[str, Counter[str]] = {}
    for agent_id, field, more in found:
        changes.setdefault(agent_id, Counter())[field] += more
    for agent_id, by_field in changes.items():
        load = loads.get(agent_id, _NOTHING)
        load = load._replace(**{field: getattr(load, field) + more for field, more in by_field.items()})
        # What is nothing now was something before.
        loads = loads.delete(agent_id) if load == _NOTHING else loads.set(agent_id, load)
    return loads


def _of_proposals(before: Space, after: Space, proposal_ids: Iterable[str]) -> Iterator[_Change]:
    """What changed of proposals that a step concerned: whether they are parked, and how many approvals are pending."""
    for proposal_id in proposal_ids:
        record = after.proposals[proposal_id]
        parked = (proposal_id in after.parked) - (proposal_id in before.parked)
        pending = sum(_is_pending(after, each) - _is_pending(before, each) for each in record.approval_ids)
        ready = _count_ready(after, proposal_id, record) - _count_ready(before, proposal_id, record)
        if parked:
            yield record.actor.id, "parked", parked
        if ready:
            yield record.actor.id, "ready", ready
        if pending:
            yield record.actor.id, "asked", pending


def _count_ready(space: Space, proposal_id: str, record: ProposalRecord) -> int:
    """How many calls of a proposal wait to be started: its own, not those of others that answer it."""
    known = (space.executions.get(execution_id) for execution_id in record.execution_ids)
    return sum(
        each is not None and each.status is ExecutionStatus.READY and each.proposal_id == proposal_id for each in known
    )


def _is_pending(space: Space, approval_id: str) -> bool:
    approval = space.approvals.get(approval_id)
    return approval is not None and approval.status is ApprovalStatus.PENDING


def _of_message(after: Space, event: SpaceEvent) -> list[_Change]:
    if not event.result.granted:
        return []
    match event.message:
        case IssueCapability(capability=token):
            return _of_token(after, token, 1)
        case RevokeCapability(token_id=token_id):
            return _of_token(after, after.capabilities[token_id], -1)
        case PutMemory():
            return [(event.body.actor.id, "memory_entries", 1)]
        case Expire(of=ExpiryOf.MEMORY, id=entry_id):
            return [(after.memory[entry_id].author.id, "memory_entries", -1)]
        case _:
            return []


def _of_token(space: Space, token: Capability, more: int) -> list[_Change]:
    """A token counts for the holder of the one above it: an agent cannot fill up what is another one's."""
    return [] if token.parent_id is None else [(space.capabilities[token.parent_id].agent_id, "tokens", more)]
