"""Under which keys an entry of a space is found again: what a log keeps beside the entry, and derives from it alone.

A key is a short hash. Two things may have the same one, so what is found is held against what was looked for; that
nothing is found under a key means that there is no such thing.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from cmbs.ledger.tagged_hash import Domain, hash_tagged

_KEY_BYTES = 8


class Lookup(StrEnum):
    """What entries can be found by."""

    EVENT = "event"
    # Every entry after which a proposal stands elsewhere than before, the first one included.
    PROPOSAL = "proposal"
    # Every entry on an execution, from the second on, and on a request for approval: their ids name the first.
    EXECUTION = "execution"
    APPROVAL = "approval"
    # The entry that began a call with an idempotency key, by the tool and the key.
    CALL = "call"
    # The entry of a message with an idempotency key.
    REQUEST = "request"
    # Every registration of a tool.
    TOOL = "tool"


def lookup_key(lookup: Lookup, *parts: str) -> int:
    """The key of a thing: a signed number of 64 bits."""
    digest = hash_tagged(Domain.LOOKUP, "\x00".join((lookup, *parts)).encode(errors="surrogatepass"))
    return int.from_bytes(digest[:_KEY_BYTES], "big", signed=True)


class _Entry(msgspec.Struct, frozen=True):
    event_id: str
    verb: str
    outcome: msgspec.Raw
    payload: msgspec.Raw
    idempotency_key: str | None = None


class _Intent(msgspec.Struct, frozen=True):
    tool_id: str
    attempt: int = 1
    idempotency_key: str | None = None


class _Outcome(msgspec.Struct, frozen=True):
    granted: bool = True
    intents: tuple[_Intent, ...] = ()
    statuses: dict[str, str] = {}


class _OfExecution(msgspec.Struct, frozen=True):
    execution_id: str


class _OfApproval(msgspec.Struct, frozen=True):
    approval_id: str


class _Expiry(msgspec.Struct, frozen=True):
    of: str
    id: str


class _Tool(msgspec.Struct, frozen=True):
    tool_id: str


class _Registration(msgspec.Struct, frozen=True):
    tool: _Tool


_ENTRY = msgspec.json.Decoder(_Entry)
_OUTCOME = msgspec.json.Decoder(_Outcome)
_PAYLOADS: dict[str, msgspec.json.Decoder[_OfExecution | _OfApproval | _Expiry | _Registration]] = {
    "START": msgspec.json.Decoder(_OfExecution),
    "MARK_IN_DOUBT": msgspec.json.Decoder(_OfExecution),
    "RECORD_OUTCOME": msgspec.json.Decoder(_OfExecution),
    "APPROVE": msgspec.json.Decoder(_OfApproval),
    "REJECT": msgspec.json.Decoder(_OfApproval),
    "EXPIRE": msgspec.json.Decoder(_Expiry),
    "REGISTER_TOOL": msgspec.json.Decoder(_Registration),
}


def lookup_keys(raw: bytes) -> list[int]:
    """The keys of an entry of a space, each once, sorted; none where the bytes are no such entry."""
    try:
        entry = _ENTRY.decode(raw)
        outcome = _OUTCOME.decode(entry.outcome)
        decoder = _PAYLOADS.get(entry.verb)
        payload = None if decoder is None or not outcome.granted else decoder.decode(entry.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    keys = {lookup_key(Lookup.EVENT, entry.event_id)}
    if entry.idempotency_key is not None:
        keys.add(lookup_key(Lookup.REQUEST, entry.idempotency_key))
    keys.update(lookup_key(Lookup.PROPOSAL, proposal_id) for proposal_id in outcome.statuses)
    keys.update(
        lookup_key(Lookup.CALL, intent.tool_id, intent.idempotency_key)
        for intent in outcome.intents
        if intent.idempotency_key is not None and intent.attempt == 1
    )
    match payload:
        case _OfExecution():
            keys.add(lookup_key(Lookup.EXECUTION, payload.execution_id))
        case _OfApproval():
            keys.add(lookup_key(Lookup.APPROVAL, payload.approval_id))
        case _Expiry() if payload.of == "approval":
            keys.add(lookup_key(Lookup.APPROVAL, payload.id))
        case _Registration():
            keys.add(lookup_key(Lookup.TOOL, payload.tool.tool_id))
        case _:
            pass
    return sorted(keys)
