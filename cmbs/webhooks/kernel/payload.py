"""What an endpoint is sent: a small document that names an entry, so that the receiver can look it up. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from cmbs.ledger import StoredEntry, canonical
from cmbs.spi.audit_log import SPACE_PREFIX, is_reserved
from cmbs.webhooks.kernel.model import MAX_DATA_BYTES, EventNote, EventType

# Of a text that is no id, so much is told.
_MAX_TEXT = 300


def write_body(event: EventNote) -> bytes:
    """The body of a request: the same bytes at every try."""
    return canonical.encode({"type": event.type.value, "timestamp": event.ts, "data": msgspec.json.decode(event.data)})


def note_entry(
    kind: EventType, stream_id: str, stored: StoredEntry, details: Mapping[str, Any], path: str = ""
) -> EventNote:
    """An event that is an entry of a session or of a space. `path` is what it is about, below that."""
    entry = msgspec.json.decode(stored.raw)
    is_space = stream_id.startswith(SPACE_PREFIX)
    name, owner = ("space_id", stream_id.removeprefix(SPACE_PREFIX)) if is_space else ("session_id", stream_id)
    base = f"/v1/{'spaces' if is_space else 'sessions'}/{quote(owner, safe='')}"
    handles = {
        name: owner,
        "seq": entry["seq"],
        "event_id": entry["event_id"],
        "event_hash": stored.event_hash.hex(),
    }
    paths = {"path": base + path, "proof_path": f"{base}/proofs/inclusion?at={entry['seq']}"}
    data = canonical.encode({**handles, **paths, **details})
    if len(data) > MAX_DATA_BYTES:
        # Ids can be long. With the handles, the rest is found.
        data = canonical.encode({**handles, "truncated": True})
    return EventNote(kind, stream_id, entry["seq"], entry["ts"], msgspec.Raw(data))


def note_corruption(stream_id: str, seq: int, reason: str, ts: str) -> EventNote:
    """A stream that does not verify, and where."""
    data: dict[str, Any] = {"stream_id": stream_id, "seq": seq, "reason": reason[:_MAX_TEXT]}
    if stream_id.startswith(SPACE_PREFIX):
        data |= {"space_id": stream_id.removeprefix(SPACE_PREFIX)}
    elif not is_reserved(stream_id):
        data |= {"session_id": stream_id}
    return EventNote(EventType.LEDGER_CORRUPT, stream_id, seq, ts, msgspec.Raw(canonical.encode(data)))


def note_test(webhook_id: str, stream_id: str, ts: str) -> EventNote:
    """An event that says nothing but that it arrives."""
    data = {"webhook_id": webhook_id, "path": f"/v1/webhooks/{quote(webhook_id, safe='')}"}
    return EventNote(EventType.TEST, stream_id, 0, ts, msgspec.Raw(canonical.encode(data)))
