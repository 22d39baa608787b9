"""A session's state as bytes: derived data, that only saves time.

A checkpoint is never trusted on its own. `thaw` checks it against the ledger: the entry that it claims to stand at
must have the hash that it claims, and the survivors must be those that this entry commits to. Where anything does not
fit, the answer is None and the log is replayed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from cmbs.belief.kernel.events import Declare, read_event
from cmbs.belief.kernel.session import Applied, ObligationRecord, Observation, Request, Session, Verdict, evolve
from cmbs.belief.kernel.survivors import Survivors, commitment
from cmbs.ledger import Chronicle, Head, StoredEntry, hash_entry
from cmbs.ledger.entry import read_body

_VERSION = 2

K = TypeVar("K")
V = TypeVar("V")
# The keys of a record in order, and what stands under each.
_Columns: TypeAlias = tuple[list[K], list[V]]


class _Frozen(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    session_id: str
    head: Head
    bitmap: bytes
    events: _Columns[str, Verdict | None]
    observations: _Columns[Observation, Applied]
    requests: _Columns[str, Request]
    conclusions: _Columns[int, str]
    obligations: dict[str, ObligationRecord]
    active: tuple[str, ...]
    terminated_seq: int | None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Frozen)


def freeze(session: Session) -> bytes:
    """The session as bytes, with a checksum in front."""
    content = _ENCODER.encode(
        _Frozen(
            _VERSION,
            session.session_id,
            session.head,
            session.survivors.bitmap(),
            session.events.columns(),
            session.observations.columns(),
            session.requests.columns(),
            session.conclusions.columns(),
            dict(session.obligations),
            session.active,
            session.terminated_seq,
        )
    )
    return sha256(content).digest() + content


def thaw(data: bytes, declaration: StoredEntry, at: StoredEntry) -> Session | None:
    """The session that `data` holds, if it fits the declaration and the entry that it stands at; None otherwise."""
    try:
        content = memoryview(data)[32:]
        if sha256(content).digest() != data[:32]:
            return None
        frozen = _DECODER.decode(content)
        event = read_event(declaration)
        if not isinstance(event.message, Declare) or frozen.version != _VERSION:
            return None
        declared = evolve(None, event)
        survivors = Survivors.from_bitmap(declared.universe, frozen.bitmap)
        if hash_entry(declaration.raw) != declaration.event_hash or not _stands_at(frozen, survivors, at):
            return None
        return replace(
            declared,
            session_id=frozen.session_id,
            survivors=survivors,
            head=frozen.head,
            events=Chronicle.of(*frozen.events),
            observations=Chronicle.of(*frozen.observations),
            requests=Chronicle.of(*frozen.requests),
            conclusions=Chronicle.of(*frozen.conclusions),
            obligations=frozen.obligations,
            active=frozen.active,
            terminated_seq=frozen.terminated_seq,
        )
    except (ValueError, msgspec.DecodeError):
        return None


def _stands_at(frozen: _Frozen, survivors: Survivors, at: StoredEntry) -> bool:
    body = read_body(at.raw)
    return (
        hash_entry(at.raw) == at.event_hash == frozen.head.event_hash
        and (body.stream_id, body.seq) == (frozen.session_id, frozen.head.seq)
        and len(frozen.events[0]) == frozen.head.seq + 1
        and frozen.events[0][-1:] == [body.event_id]
        and commitment(frozen.session_id, bytes.fromhex(body.prev_event_hash), survivors.root)
        == body.survivors_after_hash
    )
