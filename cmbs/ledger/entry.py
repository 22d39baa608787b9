"""A ledger entry: made canonical once, stored as those bytes, hashed as those bytes, never serialised again."""

from __future__ import annotations

from hashlib import sha256
from typing import TypeVar

import msgspec

from cmbs.errors import BeliefServerError, LedgerCorrupt
from cmbs.ledger import canonical
from cmbs.messages import Actor, AuditEntry

T = TypeVar("T")

VERSION = 1
GENESIS = bytes(32)
# How deep an entry holds a caller's own data at most: entry, payload, probe.
_FRAMES = 3


class Delta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an event changed."""

    eliminated: list[str]


class EntryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of an entry. `payload` is what was asked, `outcome` what was decided, `delta` what changed."""

    delta: Delta
    event_id: str
    outcome: msgspec.Raw
    payload: msgspec.Raw
    prev_event_hash: str
    seq: int
    stream_id: str
    survivors_after_hash: str
    survivors_before_hash: str
    ts: str
    v: int
    verb: str
    idempotency_key: str | None = None
    notes: str | None = None
    # The authenticated caller; absent where there was none.
    actor: Actor | None = None


class Link(msgspec.Struct, frozen=True):
    """What entries of every kind have in common: their place in a chain. Whatever else they hold is not looked at."""

    event_id: str
    prev_event_hash: str
    seq: int
    stream_id: str
    v: int


class StoredEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """An entry as a store keeps it: the exact bytes, and their hash."""

    raw: bytes
    event_hash: bytes


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Where a stream ends."""

    seq: int
    event_hash: bytes


_BODY = msgspec.json.Decoder(EntryBody)
_LINK = msgspec.json.Decoder(Link)


def hash_entry(raw: bytes) -> bytes:
    """The hash of an entry's bytes, which hold the hash of the entry before; 0x00 is the leaf prefix of RFC 6962."""
    return sha256(b"\x00" + raw).digest()


def seal(body: msgspec.Struct) -> StoredEntry:
    """Canonical bytes and hash of a new entry."""
    raw = canonical.encode_frame(body)
    return StoredEntry(raw, hash_entry(raw))


def read_body(raw: bytes) -> EntryBody:
    """The content of stored bytes; ValueError where they are not an entry of a session."""
    return _decode(_BODY, raw)


def read_link(raw: bytes) -> Link:
    """The place in a chain that stored bytes claim; ValueError where they are not an entry of any kind."""
    return _decode(_LINK, raw)


def _decode(decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ValueError(f"not a ledger entry: {exc}") from exc


def to_audit_entry(stored: StoredEntry) -> AuditEntry:
    """The entry as a reader gets it: plain data of its own."""
    body = read_body(stored.raw)
    return AuditEntry(
        event_id=body.event_id,
        ts=body.ts,
        verb=body.verb,
        payload=msgspec.json.decode(body.payload),
        survivors_before_hash=body.survivors_before_hash,
        survivors_after_hash=body.survivors_after_hash,
        delta_eliminated=body.delta.eliminated,
        notes=body.notes,
        outcome=msgspec.json.decode(body.outcome),
        idempotency_key=body.idempotency_key,
        stream_id=body.stream_id,
        seq=body.seq,
        prev_event_hash=body.prev_event_hash,
        event_hash=stored.event_hash.hex(),
        v=body.v,
        actor=None if body.actor is None else msgspec.to_builtins(body.actor),
    )


def from_audit_entry(entry: AuditEntry) -> StoredEntry:
    """The bytes that the entry stands for, under the hash that it claims; LedgerCorrupt where it stands for none."""
    content = entry.to_dict()
    claimed = content.pop("event_hash")
    try:
        return StoredEntry(canonical.encode(content, canonical.MAX_DEPTH + _FRAMES), bytes.fromhex(claimed))
    except (ValueError, TypeError, BeliefServerError) as exc:
        raise LedgerCorrupt(entry.stream_id, entry.seq, str(exc), entry.event_id) from exc


def check_link(stream_id: str, previous: Head | None, stored: StoredEntry) -> Link:
    """The place of an entry, of any kind, that follows `previous`; LedgerCorrupt says what does not fit."""
    seq, prev_event_hash = (0, GENESIS) if previous is None else (previous.seq + 1, previous.event_hash)
    try:
        link = read_link(stored.raw)
    except ValueError as exc:
        raise LedgerCorrupt(stream_id, seq, str(exc)) from exc
    expected: list[tuple[str, str | int, str | int]] = [
        ("stream_id", link.stream_id, stream_id),
        ("seq", link.seq, seq),
        ("v", link.v, VERSION),
        ("prev_event_hash", link.prev_event_hash, prev_event_hash.hex()),
        ("event_hash", stored.event_hash.hex(), hash_entry(stored.raw).hex()),
    ]
    for name, actual, wanted in expected:
        if actual != wanted:
            raise LedgerCorrupt(stream_id, seq, f"{name} is `{actual}`, expected `{wanted}`", link.event_id)
    return link
