"""Idempotency keys of a session: a request under a key is carried out once, and a key is its sender's own. Pure."""

from __future__ import annotations

from hashlib import sha256
from typing import TypeAlias

import msgspec

from cmbs.belief.kernel.events import VERB_OF, Event, Message
from cmbs.ledger import Chronicle
from cmbs.ledger.canonical import encode_frame
from cmbs.ledger.entry import GATES_SINCE
from cmbs.messages import Actor

# Whose idempotency key it is, and the key: None where no actor is authenticated, and in entries from before version 3.
RequestKey: TypeAlias = tuple[str | None, str]


class Request(msgspec.Struct, frozen=True, array_like=True):
    """A message that came with an idempotency key. Before version 3, a key was the same for all actors: `shared`."""

    seq: int
    fingerprint: bytes
    shared: bool = False


Requests: TypeAlias = Chronicle[RequestKey, Request]


def find_request(requests: Requests, key: str, actor: Actor | None, version: int) -> Request | None:
    """What was asked under a key before, by the same actor; before version 3, by any."""
    owner = _owner_of_key(actor, version)
    own = requests.get((owner, key))
    if own is not None or owner is None:
        return own
    shared = requests.get((None, key))
    return shared if shared is not None and shared.shared else None


def _owner_of_key(actor: Actor | None, version: int) -> str | None:
    """Whose the idempotency keys of an entry of this version are."""
    return actor.id if actor is not None and version >= GATES_SINCE else None


def fingerprint(message: Message) -> bytes:
    """What tells two requests with the same idempotency key apart."""
    return sha256(VERB_OF[type(message)].encode() + b"\x00" + encode_frame(message)).digest()


def append_request(requests: Requests, key: str, event: Event) -> Requests:
    """The requests and that of an event, which came with this key."""
    body = event.body
    request = Request(body.seq, fingerprint(event.message), body.v < GATES_SINCE)
    return requests.append((_owner_of_key(body.actor, body.v), key), request)
