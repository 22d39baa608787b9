"""What a key stands for, and what may be done with it: values and rules, no clock, no randomness, no log."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec import UNSET

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.identity.kernel.scopes import Grants, Role, choose_kind, grant, validate_scopes
from cmbs.messages import Actor, ActorKind

KEYS_STREAM = "identity:keys"
MAX_KEYS = 10_000
TEXT_LENGTH = 256


# The policy engine is a part of the server: there is no key to it, and no caller may claim to be it.
KINDS = tuple(kind for kind in ActorKind if kind is not ActorKind.POLICY_ENGINE)


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key as it was made: everything but the key. `key_hash` is SHA-256 in hex; roles and scopes are sorted.

    A scope holds everywhere, or, as in `belief:write@<id>`, for one session or space.
    """

    key_id: str
    key_hash: str
    kind: ActorKind
    actor_id: str
    roles: list[Role] = []
    scopes: list[str] = []
    expires_at: str | None = None
    label: str = ""

    @property
    def grants(self) -> Grants:
        """Everything that the key is good for, through a role or by itself."""
        return grant(tuple(self.roles), tuple(self.scopes))

    @property
    def actor(self) -> Actor:
        """Who holds it, and what it says of them."""
        return Actor(
            self.kind,
            self.actor_id,
            authenticated=True,
            key_id=self.key_id,
            roles=tuple(role.value for role in self.roles) or UNSET,
            scopes=tuple(self.scopes) or UNSET,
        )


class KeyStatus(StrEnum):
    """Whether a key is still good."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class KeyRecord(msgspec.Struct, frozen=True):
    """A key and what became of it; `actor` and `grants` are worked out once, for every request that presents it."""

    key: Key
    created_ts: str
    actor: Actor
    grants: Grants
    key_hash: bytes
    revoked_ts: str | None = None
    revoked_reason: str = ""

    def status(self, now: str) -> KeyStatus:
        """Whether it is good at a moment."""
        if self.revoked_ts is not None:
            return KeyStatus.REVOKED
        expires_at = self.key.expires_at
        return KeyStatus.EXPIRED if expires_at is not None and expires_at <= now else KeyStatus.ACTIVE


class Keys(msgspec.Struct, frozen=True):
    """Every key that was ever made, by id. Once there is one, there is no way back to a server without keys."""

    by_id: Mapping[str, KeyRecord] = {}

    def with_created(self, key: Key, ts: str) -> Keys:
        """One key more."""
        record = KeyRecord(key, ts, key.actor, key.grants, bytes.fromhex(key.key_hash))
        return Keys({**self.by_id, key.key_id: record})

    def with_revoked(self, key_id: str, ts: str, reason: str) -> Keys:
        """One key that is no longer good."""
        record = msgspec.structs.replace(self.by_id[key_id], revoked_ts=ts, revoked_reason=reason)
        return Keys({**self.by_id, key_id: record})


def validate_key(key: Key, known: Keys) -> Key:
    """The key in its one form, roles and scopes sorted and single; InvalidRequest where it cannot be."""
    if key.key_id in known.by_id:
        raise InvalidRequest(f"there is a key `{key.key_id}` already", {"field": "key_id"})
    if len(known.by_id) >= MAX_KEYS:
        raise LimitExceeded("keys", MAX_KEYS, len(known.by_id) + 1)
    if key.kind not in KINDS:
        raise InvalidRequest("the policy engine is a part of the server and holds no key", {"field": "kind"})
    choose_kind(key.kind, key.roles)
    validate_text("id", key.actor_id)
    if key.label:
        validate_text("label", key.label)
    if not key.roles and not key.scopes:
        raise InvalidRequest("a key needs a role or a scope", {"field": "scopes"})
    return msgspec.structs.replace(key, roles=sorted(set(key.roles)), scopes=validate_scopes(key.scopes))


def validate_text(name: str, text: str) -> str:
    """Text that is fit to be shown in a line: not empty, not too long, nothing that a terminal would act on."""
    if not text:
        raise InvalidRequest(f"`{name}` must not be empty", {"field": name, "accepted": {"minLength": 1}})
    if len(text) > TEXT_LENGTH:
        raise LimitExceeded(f"{name}_length", TEXT_LENGTH, len(text))
    if not text.isprintable():
        raise InvalidRequest(
            f"`{name}` holds characters that cannot be printed",
            {"field": name, "found": ascii(text), "accepted": "text that can be printed in a line"},
        )
    return text


def read_claimed_actor(said: str) -> Actor:
    """Who a caller without a key says that it is: `<kind>:<id>`. It is unchecked, and recorded as such."""
    kind, _, actor_id = said.partition(":")
    if kind not in KINDS:
        raise InvalidRequest(
            f"`X-Cmbs-Actor` must be `<kind>:<id>`, the kind one of {', '.join(KINDS)}",
            {"header": "x-cmbs-actor", "found": said[:TEXT_LENGTH], "accepted": [f"{each}:<id>" for each in KINDS]},
        )
    return Actor(ActorKind(kind), validate_text("X-Cmbs-Actor", actor_id))


ANONYMOUS = Actor(ActorKind.AGENT, "anonymous")
