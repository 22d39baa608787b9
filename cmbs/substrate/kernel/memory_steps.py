"""What steps on memory come to, and what they change: `memory` has the rules."""

from __future__ import annotations

from cmbs.belief.kernel.events import Stamp
from cmbs.messages import Actor
from cmbs.substrate.kernel import memory
from cmbs.substrate.kernel.events import DisputeMemory, PromoteMemory, PutMemory, SpaceEvent
from cmbs.substrate.kernel.state import MemoryEntry, Space
from cmbs.substrate.kernel.waiting_records import ChangedFields


def judge_memory(
    space: Space, message: PutMemory | PromoteMemory | DisputeMemory, actor: Actor, seq: int, stamp: Stamp
) -> MemoryEntry | memory.MemoryReason:
    """What memory's own rules say of a message."""
    threshold, ts = space.policy.memory_threshold_milli, stamp.ts
    if isinstance(message, PutMemory):
        return memory.put(space.memory, space.claims, message, actor, seq, ts, threshold)
    if isinstance(message, PromoteMemory):
        return memory.promote(space.memory, message, seq, ts, threshold)
    return memory.dispute(space.memory, message, actor, seq, ts, threshold)


def change_memory(space: Space, message: PutMemory | PromoteMemory | DisputeMemory, event: SpaceEvent) -> ChangedFields:
    """What a step on memory that was granted changes."""
    body = event.body
    stamp = Stamp(body.event_id, body.ts)
    return keep_entry(space, judge_memory(space, message, body.actor, body.seq, stamp))


def keep_entry(space: Space, entry: MemoryEntry | memory.MemoryReason) -> ChangedFields:
    """The memory of the space with this entry, new or changed, in it."""
    if isinstance(entry, memory.MemoryReason):  # pragma: no cover - a refused step is not carried out
        raise TypeError(entry)
    entries, claims = memory.keep(space.memory, space.claims, entry)
    return {"memory": entries, "claims": claims}
