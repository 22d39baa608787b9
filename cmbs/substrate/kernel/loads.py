"""How much of a space each agent takes up, so that a server can bound it. No decision of the rules rests on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from immutables import Map

from cmbs.errors import LimitExceeded
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import (
    Changes,
    Expire,
    ExpiryOf,
    IssueCapability,
    PutMemory,
    RevokeCapability,
    SpaceEvent,
)
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.substrate.kernel.model import Capability
from cmbs.substrate.kernel.state import AgentLoad, MemoryEntry, ProposalRecord, Space, StateBytes
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus

# Actors whose share of a space is bounded. Operators and the policy engine can help, whatever agents fill up.
_BOUNDED = frozenset({ActorKind.AGENT, ActorKind.ENCODER, ActorKind.TOOL})
# An agent, a field of its load, and how much more there is of it.
_Change: TypeAlias = tuple[str, str, int]
_NOTHING = AgentLoad()


def is_bounded(actor: Actor) -> bool:
    """Whether limits per agent hold for an actor."""
    return actor.kind in _BOUNDED


def check_load(before: Space, after: Space, actor: Actor, limits: SpaceLimits, *, proposes: bool = False) -> None:
    """Raise LimitExceeded where a step of this actor would have it, or the space, hold more than it may.

    What is held already stays, also where the limit was higher once. The state is asked about where the actor
    `proposes`: what a call that ran comes to is recorded in any case.
    """
    if proposes and after.state_bytes is not before.state_bytes and is_bounded(actor):
        for known, now in zip(before.state_bytes, after.state_bytes, strict=True):
            if known < now > limits.state_bytes:
                raise LimitExceeded("state_bytes", limits.state_bytes, now)
    held, holds = before.loads.get(actor.id, _NOTHING), after.loads.get(actor.id, _NOTHING)
    if holds is held or not is_bounded(actor):
        return
    for field, known, now in zip(AgentLoad._fields, held, holds, strict=True):
        maximum = getattr(limits, f"agent_{field}")
        if known < now > maximum:
            raise LimitExceeded(f"agent_{field}", maximum, now, agent_id=actor.id)
        if known < now and field.endswith("_bytes"):
            most = getattr(limits, f"space_{field}")
            held_by_all = sum(getattr(each, field) for each in after.loads.values())
            if held_by_all > most:
                raise LimitExceeded(f"space_{field}", most, held_by_all)


def measure_state(state: Mapping[str, str]) -> StateBytes:
    """The bytes of a whole state."""
    return update_state_bytes(StateBytes(), {}, Changes(dict(state)))


def update_state_bytes(known: StateBytes, state: Mapping[str, str], changes: Changes) -> StateBytes:
    """The bytes of the state that these changes of one lead to."""
    more = {"goal": 0, "fact": 0}
    for key in (*changes.set, *changes.unset):
        namespace = key.partition(".")[0]
        if namespace in more:
            more[namespace] += _bytes_of(key, changes.set.get(key)) - _bytes_of(key, state.get(key))
    return StateBytes(known.goal + more["goal"], known.fact + more["fact"])


def _bytes_of(key: str, value: str | None) -> int:
    return 0 if value is None else len(key.encode()) + len(value.encode())


def count_loads(space: Space) -> Map[str, AgentLoad]:
    """The loads of all agents, from everything that the space holds."""
    found: list[_Change] = [(space.proposals[each].actor.id, "parked", 1) for each in space.parked]
    found += [
        (approval.proposer.id, "asked", 1)
        for approval in space.approvals.values()
        if approval.status is ApprovalStatus.PENDING
    ]
    running = [space.executions[each] for each in space.running]
    found += [(each.agent_id, "ready", 1) for each in running if each.status is ExecutionStatus.READY]
    for entry in space.memory.values():
        if not entry.expired:
            found += _of_memory(entry, 1)
    waiting = {*space.parked, *(each.proposal_id for each in running if each.status is ExecutionStatus.READY)}
    waiting.update(each.proposal_id for each in space.approvals.values() if each.status is ApprovalStatus.PENDING)
    records = map(space.proposals.__getitem__, waiting)
    found += [(record.actor.id, "waiting_bytes", len(bytes(record.payload))) for record in records]
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
        asked = [sum(_is_pending(space, each) for each in record.approval_ids) for space in (before, after)]
        calls = [_count_ready(space, proposal_id, record) for space in (before, after)]
        pending, ready = asked[1] - asked[0], calls[1] - calls[0]
        waited = proposal_id in before.parked or bool(asked[0] or calls[0])
        waits = proposal_id in after.parked or bool(asked[1] or calls[1])
        if parked:
            yield record.actor.id, "parked", parked
        if ready:
            yield record.actor.id, "ready", ready
        if pending:
            yield record.actor.id, "asked", pending
        if waits is not waited:
            yield record.actor.id, "waiting_bytes", len(bytes(record.payload)) * (1 if waits else -1)


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
        case PutMemory(entry_id=entry_id):
            return _of_memory(after.memory[entry_id], 1)
        case Expire(of=ExpiryOf.MEMORY, id=entry_id):
            return _of_memory(after.memory[entry_id], -1)
        case _:
            return []


def _of_memory(entry: MemoryEntry, more: int) -> list[_Change]:
    author = entry.author.id
    return [(author, "memory_entries", more), (author, "memory_bytes", len(bytes(entry.claim)) * more)]


def _of_token(space: Space, token: Capability, more: int) -> list[_Change]:
    """A token counts for the holder of the one above it: an agent cannot fill up what is another one's."""
    return [] if token.parent_id is None else [(space.capabilities[token.parent_id].agent_id, "tokens", more)]
