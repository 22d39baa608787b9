"""A space as it was: its entries are held against the space that is given, and folded.

They are not decided again. That they lead to this space was verified when it was loaded.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from cmbs.errors import LedgerCorrupt
from cmbs.ledger import StoredEntry
from cmbs.spi import AuditLog
from cmbs.streams.reading import read_entries, read_entry
from cmbs.substrate.kernel.events import STREAM_PREFIX, Changes
from cmbs.substrate.kernel.evolve import evolve
from cmbs.substrate.kernel.kind import SpaceFolding
from cmbs.substrate.kernel.policy.policy import POLICY_PREFIXES, hash_of
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.state import Space


class StateSnapshot(NamedTuple):
    """The state map of a space right after the entry `seq`."""

    seq: int
    snapshot_id: str
    policy_hash: str
    state: dict[str, str]


class _Outcome(msgspec.Struct, frozen=True):
    changes: Changes = Changes()


class _Step(msgspec.Struct, frozen=True):
    """What an entry did to the state map. All else is skipped, which is what makes a long past quick to read."""

    outcome: _Outcome


_STEP = msgspec.json.Decoder(_Step)


def space_at(log: AuditLog, space: Space, seq: int) -> Space:
    """The whole space right after its entry `seq`, which is not beyond the head of `space`."""
    stream_id = STREAM_PREFIX + space.space_id
    then = _find_checkpoint(log, space, seq)
    first = -1 if then is None else then.head.seq
    for stored in read_entries(log, stream_id, space.tree, first, seq - first):
        then = evolve(then, read_space_event(stored))
    if then is None:  # pragma: no cover - a space that is there has entries
        raise LedgerCorrupt(stream_id, 0, "the log is empty")
    return then


def _find_checkpoint(log: AuditLog, space: Space, seq: int) -> Space | None:
    """The space of the checkpoint, if the entry that carries its digest is not beyond `seq`."""
    stream_id = STREAM_PREFIX + space.space_id
    kept = log.checkpoint(stream_id)
    if kept is None or not 0 < kept[0] <= seq:
        return None
    first, at = (read_entry(log, stream_id, space.tree, place) for place in (0, kept[0]))
    return SpaceFolding().thaw(stream_id, kept[1], first, at)


def state_at(log: AuditLog, space: Space, seq: int) -> StateSnapshot:
    """The state map right after the entry `seq`: some ten times as quick as the whole space."""
    state: dict[str, str] = {}
    committed: StoredEntry | None = None
    for stored in read_entries(log, STREAM_PREFIX + space.space_id, space.tree, -1, seq + 1):
        if committed is None:
            state.update(evolve(None, read_space_event(stored)).state)
            committed = stored
            continue
        changes = _STEP.decode(stored.raw).outcome.changes
        if changes.set or changes.unset:
            committed = stored
            state.update(changes.set)
            for key in changes.unset:
                state.pop(key, None)
    if committed is None:  # pragma: no cover - a space that is there has entries
        raise LedgerCorrupt(STREAM_PREFIX + space.space_id, 0, "the log is empty")
    pairs = {key: text for key, text in state.items() if key.startswith(POLICY_PREFIXES)}
    return StateSnapshot(seq, committed.event_hash.hex(), hash_of(pairs), state)
