"""A space's state as bytes: what state digests are computed over, and what is kept as a checkpoint.

A checkpoint decides nothing by itself. `thaw_space` believes it only where the entry that it stands at carries its
digest; where anything does not fit, the answer is None and the log is replayed.
"""

from __future__ import annotations

from typing import Any

import msgspec
from immutables import Map

from cmbs.ledger import Head, StoredEntry
from cmbs.ledger.event_tree import EventTree
from cmbs.ledger.replay import StateDigests
from cmbs.ledger.state_digest import Spacing, find_binding
from cmbs.messages import Actor
from cmbs.substrate.kernel.calls import index_open_calls, list_tokens
from cmbs.substrate.kernel.events import STREAM_PREFIX, Mode, PolicySource, SpaceVerb
from cmbs.substrate.kernel.key_digests import freeze_digests, thaw_digests
from cmbs.substrate.kernel.loads import count_loads, measure_state
from cmbs.substrate.kernel.model import Capability, Spent, Tool
from cmbs.substrate.kernel.policy.policy import POLICY_PREFIXES, compile_policy
from cmbs.substrate.kernel.state import (
    Approval,
    CallKey,
    Case,
    Execution,
    GrantKey,
    MemoryEntry,
    Parked,
    PolicyChange,
    ProposalRecord,
    RequestKey,
    Space,
)

_OWNED = ("policy.", "constraint.")


class FrozenSpace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A space as JSON, field by field. The compiled policy is not repeated: it follows from the state."""

    space_id: str
    mode: Mode
    head: Head
    tree: EventTree
    head_event_id: str
    events: list[tuple[str, tuple[int, SpaceVerb]]]
    snapshot_id: str
    snapshots: dict[str, int]
    policy_version: int
    policy_source: PolicySource | None
    state: dict[str, str]
    changed: dict[str, int]
    tools: dict[str, Tool]
    capabilities: dict[str, Capability]
    revoked: dict[str, int]
    spent: dict[str, Spent]
    n_proposals: int
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
    requests: list[tuple[RequestKey, tuple[int, bytes]]]
    claims: list[tuple[bytes, list[str]]]
    observe_asked_by: Actor | None
    operators_needed: int
    governance_asked_by: Actor | None
    cases: dict[str, Case]
    key_digests: bytes
    hash_digests: bytes


_PLAIN = (
    "snapshots",
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
    "cases",
)
# JSON, because opaque parts are JSON already, and go in and come out as they are.
_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(FrozenSpace)


def freeze_space(space: Space) -> bytes:
    """The space as bytes; what has no order of its own is sorted."""
    plain: dict[str, Any] = {name: dict(getattr(space, name)) for name in _PLAIN}
    return _ENCODER.encode(
        FrozenSpace(
            space_id=space.space_id,
            mode=space.mode,
            head=space.head,
            tree=space.tree,
            head_event_id=space.head_event_id,
            events=sorted(space.events.items(), key=_by_seq),
            snapshot_id=space.snapshot_id,
            policy_version=space.policy_version,
            policy_source=space.policy_source,
            n_proposals=space.n_proposals,
            calls=sorted(space.calls.items(), key=_by_call),
            grants=sorted(space.grants.items(), key=_by_text),
            requests=sorted(space.requests.items(), key=_by_actor),
            waiting={key: sorted(ids) for key, ids in space.waiting.items()},
            observe_asked_by=space.observe_asked_by,
            operators_needed=space.operators_needed,
            governance_asked_by=space.governance_asked_by,
            claims=sorted((claim, sorted(ids)) for claim, ids in space.claims.items()),
            key_digests=freeze_digests(space.key_digests),
            hash_digests=freeze_digests(space.hash_digests),
            **plain,
        )
    )


STATE_DIGESTS = StateDigests(freeze_space, Spacing.EVEN)


def thaw_space(data: bytes, at: StoredEntry) -> Space | None:
    """The space right before the entry `at`, if that entry says that `data` is this space; None otherwise."""
    link = find_binding(data, at)
    if link is None:
        return None
    try:
        frozen = _DECODER.decode(data)
    except (ValueError, msgspec.DecodeError):
        return None
    fits = (STREAM_PREFIX + frozen.space_id, frozen.head.seq, frozen.head.event_hash.hex()) == (
        link.stream_id,
        link.seq - 1,
        link.prev_event_hash,
    )
    return _space(frozen) if fits and frozen.tree.is_of(frozen.head) else None


def _space(frozen: FrozenSpace) -> Space | None:
    plain: dict[str, Any] = {name: Map(getattr(frozen, name)) for name in _PLAIN}
    try:
        plain["proposals"] = Map((name, _own(record)) for name, record in frozen.proposals.items())
        waiting = Map(
            (key, Map((each, frozen.parked[each].until) for each in ids)) for key, ids in frozen.waiting.items()
        )
        key_digests, hash_digests = thaw_digests(frozen.key_digests), thaw_digests(frozen.hash_digests)
    except (KeyError, ValueError, msgspec.DecodeError):
        return None
    events = Map(frozen.events)
    if len(events) != len(frozen.events):
        return None
    space = Space(
        space_id=frozen.space_id,
        mode=frozen.mode,
        head=frozen.head,
        tree=frozen.tree,
        key_digests=key_digests,
        hash_digests=hash_digests,
        head_event_id=frozen.head_event_id,
        events=events,
        snapshot_id=frozen.snapshot_id,
        policy=compile_policy({key: text for key, text in frozen.state.items() if key.startswith(POLICY_PREFIXES)}),
        policy_version=frozen.policy_version,
        policy_source=frozen.policy_source,
        n_proposals=frozen.n_proposals,
        calls=Map(frozen.calls),
        grants=Map(frozen.grants),
        waiting=waiting,
        requests=Map(frozen.requests),
        observe_asked_by=frozen.observe_asked_by,
        operators_needed=frozen.operators_needed,
        governance_asked_by=frozen.governance_asked_by,
        claims=Map((claim, frozenset(ids)) for claim, ids in frozen.claims),
        **plain,
    )
    tokens = ((token.agent_id, token.token_id) for token in space.capabilities.values())
    return msgspec.structs.replace(
        space,
        loads=count_loads(space),
        state_bytes=measure_state(space.state),
        tokens_of=list_tokens(tokens),
        open_calls=index_open_calls(space),
    )


def _own(record: ProposalRecord) -> ProposalRecord:
    """The record with bytes of its own: those that were read are a part of the whole checkpoint, and would keep it."""
    return msgspec.structs.replace(record, payload=msgspec.Raw(bytes(record.payload)))


def _by_seq(item: tuple[str, tuple[int, SpaceVerb]]) -> int:
    return item[1][0]


def _by_call(item: tuple[CallKey, str]) -> tuple[str, ...]:
    tool_id, idempotency_key, actor = item[0]
    return (tool_id, idempotency_key, *actor)


def _by_text(item: tuple[GrantKey, str]) -> tuple[str, ...]:
    return tuple(part or "" for part in item[0])


def _by_actor(item: tuple[RequestKey, tuple[int, bytes]]) -> tuple[str, ...]:
    return (item[0].idempotency_key, *item[0].actor)
