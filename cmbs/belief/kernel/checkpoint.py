"""A session's state as bytes: what state digests are computed over, and what is kept as a checkpoint.

A checkpoint decides nothing by itself. `thaw` believes it only where the entry that it stands at carries its digest;
where anything does not fit, the answer is None and the log is replayed.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from cmbs.belief.kernel.case_fields import CaseRecord
from cmbs.belief.kernel.events import Declare, read_event
from cmbs.belief.kernel.listed import reports_of
from cmbs.belief.kernel.looks import Applied, Observation, looks_of
from cmbs.belief.kernel.request_keys import Request, RequestKey
from cmbs.belief.kernel.session import (
    ObligationRecord,
    Session,
    Verdict,
    evolve,
)
from cmbs.belief.kernel.speakers import speakers_of
from cmbs.belief.kernel.survivors import Survivors
from cmbs.ledger import Chronicle, Head, StoredEntry, hash_entry
from cmbs.ledger.event_tree import EventTree
from cmbs.ledger.replay import StateDigests
from cmbs.ledger.state_digest import find_binding

K = TypeVar("K")
V = TypeVar("V")
# The keys of a record in order, and what stands under each.
_Columns: TypeAlias = tuple[list[K], list[V]]


class FrozenSession(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A session as MessagePack, field by field. What the declaration says is not repeated: its hash stands for it."""

    session_id: str
    head: Head
    tree: EventTree
    declaration_hash: bytes
    bitmap: bytes
    events: _Columns[str, Verdict | None]
    observations: _Columns[Observation, Applied]
    requests: _Columns[RequestKey, Request]
    conclusions: _Columns[int, str]
    obligations: dict[str, ObligationRecord]
    active: tuple[str, ...]
    terminated_seq: int | None
    case: CaseRecord


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(FrozenSession)


def freeze(session: Session) -> bytes:
    """The session as bytes; obligations in the order in which they were entered."""
    return _ENCODER.encode(
        FrozenSession(
            session.session_id,
            session.head,
            session.tree,
            session.declaration_hash,
            session.survivors.bitmap(),
            session.events.columns(),
            session.observations.columns(),
            session.requests.columns(),
            session.conclusions.columns(),
            dict(session.obligations),
            session.active,
            session.terminated_seq,
            session.case,
        )
    )


STATE_DIGESTS = StateDigests(freeze)


def thaw(data: bytes, declaration: StoredEntry, at: StoredEntry) -> Session | None:
    """The session right before the entry `at`, if that entry says that `data` is this session; None otherwise."""
    link = find_binding(data, at)
    if link is None:
        return None
    try:
        frozen = _DECODER.decode(data)
        event = read_event(declaration)
        fits = (
            (frozen.session_id, frozen.head.seq) == (link.stream_id, link.seq - 1)
            and frozen.head.event_hash.hex() == link.prev_event_hash
            and frozen.tree.is_of(frozen.head)
            and hash_entry(declaration.raw) == declaration.event_hash == frozen.declaration_hash
        )
        if not fits or not isinstance(event.message, Declare):
            return None
        declared = evolve(None, event)
        observations = Chronicle.of(*frozen.observations)
        return replace(
            declared,
            survivors=Survivors.from_bitmap(declared.universe, frozen.bitmap),
            head=frozen.head,
            tree=frozen.tree,
            events=Chronicle.of(*frozen.events),
            observations=observations,
            looks=looks_of(observations),
            speakers=speakers_of(declared.universe, (record for _, record in observations)),
            reports=reports_of(declared, observations),
            requests=Chronicle.of(*frozen.requests),
            conclusions=Chronicle.of(*frozen.conclusions),
            obligations=frozen.obligations,
            active=frozen.active,
            terminated_seq=frozen.terminated_seq,
            case=frozen.case,
        )
    except (ValueError, msgspec.DecodeError):
        return None
