"""The entry of a register: what kits, names and their like have in common."""

from __future__ import annotations

import msgspec

from cmbs.ledger.format import FORMAT
from cmbs.messages import Actor


class RegisterEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=FORMAT):
    """The content of an entry."""

    actor: Actor
    event_id: str
    outcome: None
    payload: msgspec.Raw
    prev_event_hash: str
    seq: int
    stream_id: str
    ts: str
    verb: str
