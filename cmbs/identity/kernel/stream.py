"""The stream in which keys are made and revoked: hash-chained like every other, and verified whenever it is read.

It has two verbs and, of every key, only the hash. Deciding again must give the recorded bytes, so that a key that is
written into the database by hand is not one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from cmbs.errors import InvalidRequest, LedgerCorrupt
from cmbs.identity.kernel.model import KEYS_STREAM, Key, Keys, validate_key, validate_text
from cmbs.ledger import GENESIS, Head, StoredEntry, replay, seal
from cmbs.ledger.canonical import encode_frame
from cmbs.ledger.format import FORMAT
from cmbs.messages import Actor
from cmbs.spi.audit_log import Append

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


class KeyEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=FORMAT):
    """The content of an entry."""

    actor: Actor
    event_id: str
    outcome: None
    payload: msgspec.Raw
    prev_event_hash: str
    seq: int
    stream_id: str
    ts: str
    verb: KeyVerb


class Stamp(NamedTuple):
    """What the outside world adds to a decision."""

    actor: Actor
    event_id: str
    ts: str


class KeyRing(msgspec.Struct, frozen=True):
    """All keys, and where the stream ends that says so."""

    keys: Keys
    head: Head


class KeyEvent(NamedTuple):
    """A decision, ready to be written: the message, the content of its entry, and the exact bytes."""

    message: KeyMessage
    body: KeyEntry
    stored: StoredEntry


class KeyCommand(NamedTuple):
    """A message on its way to the stream, and who sends it."""

    message: KeyMessage
    by: Actor
    stream_id: str = KEYS_STREAM


class KeyKind:
    """The register of keys as a kind of stream, of which there is one."""

    def __init__(self, stamp: Callable[[Actor], Stamp]) -> None:
        self._stamp = stamp

    def owns(self, stream_id: str) -> bool:
        """The one."""
        return stream_id == KEYS_STREAM

    def not_found(self, stream_id: str) -> InvalidRequest:  # noqa: ARG002 - there is one
        """Without a stream there is no key that could be meant."""
        return _unknown_key()

    def catch_up(self, stream_id: str, state: KeyRing | None, entries: Sequence[StoredEntry]) -> KeyRing | None:
        """Every message is decided again."""
        return replay.catch_up(_RULES, stream_id, state, entries)

    def opens(self, command: KeyCommand) -> bool:
        """The first key does."""
        return isinstance(command.message, CreateKey)

    def decide(self, state: KeyRing | None, command: KeyCommand) -> tuple[KeyRing, tuple[KeyRing, Append]]:
        """Decide on the newest state; the answer is the keys after it."""
        event = decide(state, command.message, self._stamp(command.by))
        after = evolve(state, event)
        return after, (after, _append_of(event))

    def fold(self, state: KeyRing | None, stored: StoredEntry) -> tuple[KeyRing, Append]:
        """The keys after one entry more."""
        event = read_key_event(stored)
        return evolve(state, event), _append_of(event)


def decide(ring: KeyRing | None, message: KeyMessage, stamp: Stamp) -> KeyEvent:
    """What a message does to the keys; InvalidRequest where it cannot be done."""
    keys = Keys() if ring is None else ring.keys
    if isinstance(message, CreateKey):
        verb, message = KeyVerb.CREATE_KEY, CreateKey(_validate(message.key, keys))
    else:
        verb = KeyVerb.REVOKE_KEY
        _refuse_unknown(keys, message)
    seq, previous = (0, GENESIS) if ring is None else (ring.head.seq + 1, ring.head.event_hash)
    payload = msgspec.Raw(encode_frame(message))
    body = KeyEntry(stamp.actor, stamp.event_id, None, payload, previous.hex(), seq, KEYS_STREAM, stamp.ts, verb)
    return KeyEvent(message, body, seal(body))


def evolve(ring: KeyRing | None, event: KeyEvent) -> KeyRing:
    """The keys after an event."""
    keys, message, ts = Keys() if ring is None else ring.keys, event.message, event.body.ts
    if isinstance(message, CreateKey):
        keys = keys.with_created(message.key, ts)
    else:
        keys = keys.with_revoked(message.key_id, ts, message.reason)
    return KeyRing(keys, Head(event.body.seq, event.stored.event_hash))


# Made here, by one thread: msgspec crashes where several meet a type for the first time.
_ENTRIES = msgspec.json.Decoder(KeyEntry)
_MESSAGES = {verb: msgspec.json.Decoder(kind) for verb, kind in _TYPE_OF.items()}


def read_key_event(stored: StoredEntry) -> KeyEvent:
    """The event that stored bytes hold; ValueError where they hold none."""
    body = _ENTRIES.decode(stored.raw)
    return KeyEvent(_MESSAGES[body.verb].decode(body.payload), body, stored)


def _decide_again(stream_id: str, ring: KeyRing | None, recorded: KeyEvent) -> KeyEvent:  # noqa: ARG001 - there is one
    body = recorded.body
    return decide(ring, recorded.message, Stamp(body.actor, body.event_id, body.ts))


_RULES = replay.ReplayRules(read_key_event, _decide_again, evolve)


def verify_keys(entries: Iterable[StoredEntry], head: Head | None) -> Keys:
    """The keys of a whole stream that ends in `head`; LedgerCorrupt where it does not. None are none."""
    ring = replay.catch_up(_RULES, KEYS_STREAM, None, entries)
    if ring is None and head is None:
        return Keys()
    if ring is None or ring.head != head:
        seq = -1 if ring is None else ring.head.seq
        raise LedgerCorrupt(KEYS_STREAM, seq + 1, f"the stream ends after seq {seq}, and not in the recorded head")
    return ring.keys


def _append_of(event: KeyEvent) -> Append:
    body = event.body
    previous = bytes.fromhex(body.prev_event_hash)
    return Append(body.stream_id, body.seq, body.event_id, previous, event.stored, body.ts)


def _validate(key: Key, known: Keys) -> Key:
    if not (_KEY_ID.fullmatch(key.key_id) and _HASH.fullmatch(key.key_hash)):
        raise InvalidRequest("a key has an id of 16 and a hash of 64 hexadecimal digits")
    if key.expires_at is not None and not replay.is_moment(key.expires_at):
        raise InvalidRequest("`expires_at` must be a moment with microseconds in UTC", {"field": "expires_at"})
    return validate_key(key, known)


def _refuse_unknown(keys: Keys, message: RevokeKey) -> None:
    record = keys.by_id.get(message.key_id)
    if record is None:
        raise _unknown_key()
    if record.revoked_ts is not None:
        raise InvalidRequest(f"the key `{message.key_id}` was revoked before", {"field": "key_id"})
    if message.reason:
        validate_text("reason", message.reason)


def _unknown_key() -> InvalidRequest:
    return InvalidRequest("there is no such key", {"field": "key_id"})
