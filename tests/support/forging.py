"""An attacker with full write access, who knows the protocol: changes one entry, then makes everything after it fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cmbs.belief.kernel.events import Event, Stamp, read_event
from cmbs.belief.kernel.session import Session, decide, decide_declare, evolve
from cmbs.errors import BeliefServerError
from cmbs.ledger import StoredEntry, canonical, hash_entry

Alteration = Callable[[bytes], bytes]


def sealed(raw: bytes) -> StoredEntry:
    """Any bytes, under the hash that they have."""
    return StoredEntry(raw, hash_entry(raw))


def changing(**members: Any) -> Alteration:
    """Set members of the entry. The result is canonical."""

    def alter(raw: bytes) -> bytes:
        return canonical.encode({**json.loads(raw), **members})

    return alter


def changing_payload(**members: Any) -> Alteration:
    """Set members of the entry's payload. The result is canonical."""

    def alter(raw: bytes) -> bytes:
        content = json.loads(raw)
        return canonical.encode({**content, "payload": {**content["payload"], **members}})

    return alter


def without(name: str) -> Alteration:
    """Leave a member of the entry out."""

    def alter(raw: bytes) -> bytes:
        content = json.loads(raw)
        del content[name]
        return canonical.encode(content)

    return alter


def replacing(old: bytes, new: bytes) -> Alteration:
    """Change the bytes, of which `old` must be some."""

    def alter(raw: bytes) -> bytes:
        assert old in raw
        return raw.replace(old, new)

    return alter


def forged(session_id: str, log: list[StoredEntry], seq: int, alter: Alteration) -> list[StoredEntry]:
    """The log with entry `seq` altered, every hash from there on computed anew, and every later decision taken anew.

    It ends where the alteration leaves nothing that could follow.
    """
    session: Session | None = None
    written: list[StoredEntry] = []
    for stored in log:
        try:
            event = _decided(session_id, session, stored)
            if event.body.seq == seq:
                written.append(sealed(alter(event.stored.raw)))
                event = read_event(written[-1])
            else:
                written.append(event.stored)
            session = evolve(session, event)
        except (BeliefServerError, ValueError, KeyError, TypeError):
            break
    return written


def _decided(session_id: str, session: Session | None, stored: StoredEntry) -> Event:
    event = read_event(stored)
    stamp = Stamp(event.body.event_id, event.body.ts, event.body.idempotency_key)
    if session is None:
        again = decide_declare(session_id, event.message, stamp)  # type: ignore[arg-type]
    else:
        again = decide(session, event.message, stamp)  # type: ignore[assignment]
    if not isinstance(again, Event):
        raise TypeError("a repeat")
    return again
