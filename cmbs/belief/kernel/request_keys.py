"""Idempotency keys of a session: a request under a key is carried out once, and a key is its sender's own. Pure."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cmbs.belief.kernel.events import VERB_OF, DeclareConclusion, Event, Message
from cmbs.ledger import Chronicle
from cmbs.ledger.canonical import encode_frame
from cmbs.ledger.tagged_hash import Domain, hash_tagged
from cmbs.messages import Actor

# Whose idempotency key it is, and the key: None where no actor is authenticated.
RequestKey: TypeAlias = tuple[str | None, str]


class Request(msgspec.Struct, frozen=True, array_like=True):
    """A message that came with an idempotency key."""

    seq: int
    fingerprint: bytes


Requests: TypeAlias = Chronicle[RequestKey, Request]


def find_request(requests: Requests, key: str, actor: Actor | None) -> Request | None:
    """What was asked under a key before, by the same actor."""
    return requests.get((_owner_of_key(actor), key))


def _owner_of_key(actor: Actor | None) -> str | None:
    return None if actor is None else actor.id


def fingerprint(message: Message) -> bytes:
    """What tells two requests with the same idempotency key apart: what callers say, and not what the server adds."""
    if isinstance(message, DeclareConclusion):
        message = msgspec.structs.replace(message, tied_by=msgspec.UNSET)
    return hash_tagged(Domain.REQUEST, VERB_OF[type(message)].encode() + b"\x00" + encode_frame(message))


def append_request(requests: Requests, key: str, event: Event) -> Requests:
    """The requests and that of an event, which came with this key."""
    body = event.body
    return requests.append((_owner_of_key(body.actor), key), Request(body.seq, fingerprint(event.message)))
