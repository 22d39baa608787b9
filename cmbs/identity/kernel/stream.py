"""The stream in which keys are made and revoked: hash-chained like every other, and verified whenever it is read.

It has two verbs and, of every key, only the hash. Deciding again must give the recorded bytes, so that a key that
somebody writes into the database by hand is not one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from cmbs.errors import BeliefServerError, InvalidRequest, LedgerCorrupt
from cmbs.identity.kernel.model import KEYS_STREAM, Key, Keys, checked_key, checked_text
from cmbs.ledger import GENESIS, Head, StoredEntry
from cmbs.ledger.canonical import encode_frame
from cmbs.ledger.entry import VERSION, hash_entry
from cmbs.messages import Actor
from cmbs.spi.audit_log import Append

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}")
_KEY_ID = re.compile(r"[0-9a-f]{16}")


class KeyVerb(StrEnum):
    """What can be done to keys."""

    CREATE_KEY = "CREATE_KEY"
    REVOKE_KEY = "REVOKE_KEY"


class CreateKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new key."""

    key: Key


class RevokeKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key is no longer good."""

    key_id: str
    reason: str = ""


KeyMessage: TypeAlias = CreateKey | RevokeKey

_TYPE_OF: dict[str, type[KeyMessage]] = {KeyVerb.CREATE_KEY: CreateKey, KeyVerb.REVOKE_KEY: RevokeKey}


class KeyEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an entry."""

    actor: Actor
    event_id: str
    outcome: None
    payload: msgspec.Raw
    prev_event_hash: str
    seq: int
    stream_id: str
    ts: str
    v: int
    verb: KeyVerb


class Stamp(NamedTuple):
    """What the outside world adds to a decision."""

    actor: Actor
    event_id: str
    ts: str


class KeyRing(msgspec.Struct, frozen=True):
    """All keys, and where the stream ends that says so; no head where no key was ever made."""

    keys: Keys = Keys()
    head: Head | None = None


class Step(NamedTuple):
    """A decision, ready to be written, and the keys after it."""

    append: Append
    after: KeyRing


def decide(ring: KeyRing, message: KeyMessage, stamp: Stamp) -> Step:
    """What a message does to the keys; InvalidRequest where it cannot be done."""
    if isinstance(message, CreateKey):
        key = _checked(message.key, ring.keys)
        message = CreateKey(key)
        verb, keys = KeyVerb.CREATE_KEY, ring.keys.with_created(key, stamp.ts)
    else:
        _refuse_unknown(ring.keys, message)
        verb, keys = KeyVerb.REVOKE_KEY, ring.keys.with_revoked(message.key_id, stamp.ts, message.reason)
    seq, previous = (0, GENESIS) if ring.head is None else (ring.head.seq + 1, ring.head.event_hash)
    raw = encode_frame(
        KeyEntry(
            stamp.actor,
            stamp.event_id,
            None,
            msgspec.Raw(encode_frame(message)),
            previous.hex(),
            seq,
            KEYS_STREAM,
            stamp.ts,
            VERSION,
            verb,
        )
    )
    stored = StoredEntry(raw, hash_entry(raw))
    append = Append(KEYS_STREAM, seq, stamp.event_id, previous, stored, stamp.ts, None, None, (), (), 0, False)
    return Step(append, KeyRing(keys, Head(seq, stored.event_hash)))


def caught_up(ring: KeyRing, entries: Iterable[StoredEntry]) -> KeyRing:
    """The keys after `entries`, each decided again; LedgerCorrupt names the first that is not what it must be."""
    for stored in entries:
        seq = 0 if ring.head is None else ring.head.seq + 1
        try:
            body = msgspec.json.decode(stored.raw, type=KeyEntry)
            message = msgspec.json.decode(body.payload, type=_TYPE_OF[body.verb])
            if not _MOMENT.fullmatch(body.ts):
                raise ValueError(f"`{body.ts}` is not a moment with microseconds in UTC")
            step = decide(ring, message, Stamp(body.actor, body.event_id, body.ts))
        except (ValueError, BeliefServerError) as exc:
            raise LedgerCorrupt(KEYS_STREAM, seq, str(exc)) from exc
        if step.append.entry != stored:
            raise LedgerCorrupt(KEYS_STREAM, seq, "it is not what its message leads to", body.event_id)
        ring = step.after
    return ring


def verified(entries: Iterable[StoredEntry], head: Head | None) -> KeyRing:
    """The keys of a whole stream that ends in `head`; LedgerCorrupt where it does not."""
    ring = caught_up(KeyRing(), entries)
    if ring.head != head:
        seq = -1 if ring.head is None else ring.head.seq
        raise LedgerCorrupt(KEYS_STREAM, seq + 1, f"the stream ends after seq {seq}, and not in the recorded head")
    return ring


def _checked(key: Key, known: Keys) -> Key:
    if not (_KEY_ID.fullmatch(key.key_id) and _HASH.fullmatch(key.key_hash)):
        raise InvalidRequest("a key has an id of 16 and a hash of 64 hexadecimal digits")
    if key.expires_at is not None and not _MOMENT.fullmatch(key.expires_at):
        raise InvalidRequest("`expires_at` must be a moment with microseconds in UTC", {"field": "expires_at"})
    return checked_key(key, known)


def _refuse_unknown(keys: Keys, message: RevokeKey) -> None:
    record = keys.by_id.get(message.key_id)
    if record is None:
        raise InvalidRequest("there is no such key", {"field": "key_id"})
    if record.revoked_ts is not None:
        raise InvalidRequest(f"the key `{message.key_id}` was revoked before", {"field": "key_id"})
    if message.reason:
        checked_text("reason", message.reason)
