"""A ledger entry: made canonical once, stored as those bytes, hashed as those bytes, never serialised again."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import to_builtins

from cmbs.errors import BeliefServerError, LedgerCorrupt
from cmbs.ledger import canonical
from cmbs.ledger.format import FORMAT
from cmbs.ledger.merkle import leaf_hash
from cmbs.messages import Actor, AuditEntry

T = TypeVar("T")

GENESIS = bytes(32)
# How deep an entry holds a caller's own data at most: entry, payload, probe.
_FRAMES = 3


class Delta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an event changed."""

    eliminated: list[str]


class EntryBody(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="format", tag=FORMAT
):
    """The content of an entry. `payload` is what was asked, `outcome` what was decided, `delta` what changed.

    As in the entries of every kind, the tag `format` is written with it, and read but not required: `check_link` asks
    for it, and an entry without it is not the bytes that its message leads to.
    """

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
    verb: str
    idempotency_key: str | None = None
    notes: str | None = None
    # The authenticated caller; absent where there was none.
    actor: Actor | None = None
    # At digest points: the digest of the frozen state right before the entry, in hex.
    state: str | None = None


class Link(msgspec.Struct, frozen=True):
    """What entries of every kind have in common: their place in a chain. Whatever else they hold is not looked at."""

    event_id: str
    prev_event_hash: str
    seq: int
    stream_id: str
    # Unset in entries of earlier formats. Of another type, it is not one of ours.
    format: str | msgspec.UnsetType = msgspec.UNSET


class StoredEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """An entry as a store keeps it: the exact bytes, and their hash."""

    raw: bytes
    event_hash: bytes


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Where a stream ends."""

    seq: int
    event_hash: bytes


_LINK_FIELDS = ("stream_id", "seq", "prev_event_hash", "event_hash")
_BODY = msgspec.json.Decoder(EntryBody)
_LINK = msgspec.json.Decoder(Link)

# The hash of an entry's bytes, which hold the hash of the entry before: that of a leaf in RFC 6962.
hash_entry = leaf_hash


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
        format=FORMAT,
        actor=None if body.actor is None else _describe_actor(body.actor),
        state=body.state,
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
    if link.format != FORMAT:
        raise LedgerCorrupt(stream_id, seq, _describe_format(link.format), link.event_id)
    claimed = (link.stream_id, link.seq, link.prev_event_hash, stored.event_hash)
    expected = (stream_id, seq, prev_event_hash.hex(), hash_entry(stored.raw))
    if claimed == expected:
        return link
    fields = zip(_LINK_FIELDS, claimed, expected, strict=True)
    name, *values = next(each for each in fields if each[1] != each[2])
    actual, wanted = (each.hex() if isinstance(each, bytes) else each for each in values)
    raise LedgerCorrupt(stream_id, seq, f"{name} is `{actual}`, expected `{wanted}`", link.event_id)


def _describe_format(found: str | msgspec.UnsetType) -> str:
    if isinstance(found, msgspec.UnsetType):
        return f"an entry of an earlier format, which this software does not read: it names no format, not `{FORMAT}`"
    return f"an entry of another format, which this software does not read: `{found}`, not `{FORMAT}`"


def _describe_actor(actor: Actor) -> dict[str, Any]:
    """The actor as JSON has it: lists where the type has tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in to_builtins(actor).items()}
