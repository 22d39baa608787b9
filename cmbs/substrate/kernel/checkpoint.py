"""A space's state as bytes: derived data, that only saves time.

A checkpoint is never believed on its own: the entry that it claims to stand at must have the hash that it claims, and
what follows it is decided again on top of it. Where anything does not fit, the answer is None and the log is replayed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from immutables import Map

from cmbs.ledger import Chronicle, Head, StoredEntry, hash_entry
from cmbs.ledger.entry import read_link
from cmbs.messages import Actor
from cmbs.substrate.kernel.events import STREAM_PREFIX, Mode, SpaceVerb
from cmbs.substrate.kernel.model import Capability, Spent, Tool
from cmbs.substrate.kernel.policy.policy import compile_policy
from cmbs.substrate.kernel.state import (
    Approval,
    CallKey,
    Execution,
    GrantKey,
    MemoryEntry,
    Parked,
    PolicyChange,
    ProposalRecord,
    Space,
)
from cmbs.substrate.kernel.steps import encode

_VERSION = 1
_OWNED = ("policy.", "constraint.")


class _Frozen(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    space_id: str
    mode: Mode
    head: Head
    events: tuple[list[str], list[SpaceVerb]]
    snapshot_id: str
    snapshots: tuple[list[str], list[int]]
    policy_version: int
    state: dict[str, str]
    changed: dict[str, int]
    tools: dict[str, Tool]
    capabilities: dict[str, Capability]
    revoked: dict[str, int]
    spent: dict[str, Spent]
    proposals: dict[str, ProposalRecord]
    executions: dict[str, Execution]
    running: dict[str, str]
    calls: list[tuple[CallKey, str]]
    approvals: dict[str, Approval]
    grants: list[tuple[GrantKey, str]]
    parked: dict[str, Parked]
    waiting: dict[str, list[str]]
    policy_changes: dict[str, PolicyChange]
    memory: dict[str, MemoryEntry]
    requests: dict[str, tuple[int, bytes]]
    claims: list[tuple[bytes, list[str]]]
    observe_asked_by: Actor | None


_PLAIN = (
    "state",
    "changed",
    "tools",
    "capabilities",
    "revoked",
    "spent",
    "proposals",
    "executions",
    "running",
    "approvals",
    "parked",
    "policy_changes",
    "memory",
    "requests",
)
# JSON, because opaque parts are JSON already, and go in and come out as they are.
_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(_Frozen)


def freeze_space(space: Space) -> bytes:
    """The space as bytes, with a checksum in front. The same space gives the same bytes."""
    plain: dict[str, Any] = {name: dict(sorted(getattr(space, name).items())) for name in _PLAIN}
    content = _ENCODER.encode(
        _Frozen(
            version=_VERSION,
            space_id=space.space_id,
            mode=space.mode,
            head=space.head,
            events=space.events.columns(),
            snapshot_id=space.snapshot_id,
            snapshots=space.snapshots.columns(),
            policy_version=space.policy_version,
            calls=sorted(space.calls.items()),
            grants=sorted(space.grants.items(), key=_by_text),
            waiting={key: sorted(ids) for key, ids in sorted(space.waiting.items())},
            observe_asked_by=space.observe_asked_by,
            claims=sorted((claim, sorted(ids)) for claim, ids in space.claims.items()),
            **plain,
        )
    )
    return sha256(content).digest() + content


def thaw_space(data: bytes, at: StoredEntry) -> Space | None:
    """The space that `data` holds, if it stands at this entry; None otherwise."""
    try:
        frozen = _DECODER.decode(_check(data))
        link = read_link(at.raw)
    except (ValueError, msgspec.DecodeError):
        return None
    fits = (
        frozen.version == _VERSION
        and hash_entry(at.raw) == at.event_hash == frozen.head.event_hash
        and (link.stream_id, link.seq) == (STREAM_PREFIX + frozen.space_id, frozen.head.seq)
        and len(frozen.events[0]) == frozen.head.seq + 1
        and frozen.events[0][-1] == link.event_id
    )
    return _space(frozen) if fits else None


def _space(frozen: _Frozen) -> Space | None:
    plain: dict[str, Any] = {name: Map(getattr(frozen, name)) for name in _PLAIN}
    try:
        plain["proposals"] = Map((name, _own(record)) for name, record in frozen.proposals.items())
        events, snapshots = Chronicle.of(*frozen.events), Chronicle.of(*frozen.snapshots)
        waiting = Map(
            (key, Map((each, frozen.parked[each].until) for each in ids)) for key, ids in frozen.waiting.items()
        )
    except (KeyError, ValueError, msgspec.DecodeError):
        return None
    return Space(
        space_id=frozen.space_id,
        mode=frozen.mode,
        head=frozen.head,
        events=events,
        snapshot_id=frozen.snapshot_id,
        snapshots=snapshots,
        policy=compile_policy({key: text for key, text in frozen.state.items() if key.startswith(_OWNED)}),
        policy_version=frozen.policy_version,
        calls=Map(frozen.calls),
        grants=Map(frozen.grants),
        waiting=waiting,
        observe_asked_by=frozen.observe_asked_by,
        claims=Map((claim, frozenset(ids)) for claim, ids in frozen.claims),
        **plain,
    )


def _own(record: ProposalRecord) -> ProposalRecord:
    """The record with bytes of its own, as they were recorded: what was kept may be in another order, or unreadable."""
    return msgspec.structs.replace(record, payload=msgspec.Raw(encode(record.message)))


def _by_text(item: tuple[GrantKey, str]) -> tuple[str, ...]:
    return tuple(part or "" for part in item[0])


def _check(data: bytes) -> bytes:
    content = data[32:]
    if sha256(content).digest() != data[:32]:
        raise ValueError("the checksum does not fit")
    return content
