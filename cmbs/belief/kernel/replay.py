"""From a log back to a session: replay, which is verification by deciding everything again.

It is not a second set of rules. Each recorded message is decided anew, on the state that the log itself led to, and
must give the recorded bytes: survivors, outcome, hashes, place in the chain and canonical form are all in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from operator import ge
from typing import assert_never

import msgspec

from cmbs.belief.kernel.events import (
    Declare,
    DeclareConclusion,
    Eliminate,
    EnterObligation,
    Event,
    Message,
    RequestExit,
    RequestTermination,
    Stamp,
    read_message,
)
from cmbs.belief.kernel.session import Session, decide, decide_declare, evolve
from cmbs.errors import BeliefServerError, LedgerCorrupt
from cmbs.ledger import EntryBody, Head, StoredEntry, canonical, check_head
from cmbs.ledger.entry import check_link, read_body

# What a moment looks like once every digit is a zero: a comparison is three times as fast as a regular expression.
_MOMENT = b"0000-00-00T00:00:00.000000Z"
_ZEROED = bytes.maketrans(b"123456789", b"000000000")


def verify_session(session_id: str, entries: Iterable[StoredEntry], head: Head | None = None) -> Session:
    """The state that a whole log proves; LedgerCorrupt names the first bad event and why.

    A log cannot tell that its tail was cut off: pass the `head` recorded elsewhere to notice that too.
    """
    session = catch_up(session_id, None, entries)
    if session is None:
        raise LedgerCorrupt(session_id, 0, "the log is empty")
    check_head(session_id, session.head, head)
    return session


def catch_up(session_id: str, session: Session | None, entries: Iterable[StoredEntry]) -> Session | None:
    """Verify `entries` as what follows `session`, and fold them in. None where there is neither."""
    for stored in entries:
        event = _verified(session_id, session, stored)
        session = evolve(session, event)
    return session


def _verified(session_id: str, session: Session | None, stored: StoredEntry) -> Event:
    """The event of an entry that is exactly what its message leads to here; LedgerCorrupt otherwise."""
    head = None if session is None else session.head
    body: EntryBody | None = None
    try:
        body = read_body(stored.raw)
        again = _decided_again(session_id, session, body)
    except (ValueError, BeliefServerError) as exc:
        check_link(session_id, head, stored)
        seq = 0 if head is None else head.seq + 1
        raise LedgerCorrupt(session_id, seq, str(exc), body.event_id if body else None) from exc
    if again.stored != stored:
        # The place in the chain is part of the bytes: say so first if that is what is wrong.
        check_link(session_id, head, stored)
        raise LedgerCorrupt(session_id, body.seq, _difference(body, again.body), body.event_id)
    return again


def _decided_again(session_id: str, session: Session | None, body: EntryBody) -> Event:
    message = read_message(body)
    _require_admissible(message)
    if body.ts.encode().translate(_ZEROED) != _MOMENT:
        raise ValueError(f"`{body.ts}` is not a moment with microseconds in UTC")
    if body.actor is not None and not body.actor.authenticated:
        raise ValueError("it names an actor that was not authenticated")
    stamp = Stamp(body.event_id, body.ts, body.idempotency_key, body.actor)
    if session is None:
        if isinstance(message, Declare):
            return decide_declare(session_id, message, stamp)
        raise ValueError(f"the first event declares the session, not {body.verb}")
    if session.events.position(stamp.event_id) is not None:
        raise ValueError(f"its event id is that of event {session.events.position(stamp.event_id)}")
    if session.provider is None and isinstance(message, Eliminate) and message.probe is not None:
        raise ValueError("it records a probe, and the session has no provider")
    again = decide(session, message, stamp)
    if isinstance(again, Event):
        return again
    raise ValueError(f"it repeats event {again.seq}, and a repeat is never recorded")


def _require_admissible(message: Message) -> None:
    """Raise ValueError for a message that the door would never have let through as it stands."""
    match message:
        case Eliminate():
            _require_sorted(message.eliminated)
            _require_object(message.justification)
            if message.probe is not None:
                _require_canonical(bytes(message.probe.response))
        case Declare():
            if not message.hypotheses:
                raise ValueError("it declares no hypotheses")
            _require_sorted(message.hypotheses)
            _require_count(message.policy.stability_window)
            _require_object(message.metadata)
        case RequestExit() | DeclareConclusion() | RequestTermination():
            _require_object(message.context)
        case EnterObligation():
            _require_count(message.min_total_eliminations)
        case _:
            assert_never(message)


def _require_sorted(ids: list[str]) -> None:
    if len(ids) > 1 and any(map(ge, ids, islice(ids, 1, None))):
        raise ValueError("the ids are not sorted and single")


def _require_count(number: int) -> None:
    if not 0 <= number <= canonical.MAX_SAFE_INTEGER:
        raise ValueError(f"{number} is not a count")


def _require_object(raw: msgspec.Raw) -> None:
    text = bytes(raw)
    if text == b"null":
        return
    if text[:1] != b"{":
        raise ValueError("what a caller adds must be an object")
    _require_canonical(text)


def _require_canonical(text: bytes) -> None:
    if not canonical.is_canonical(text):
        raise ValueError("the payload is not canonical JSON")


def _difference(recorded: EntryBody, decided: EntryBody) -> str:
    """Which part of an entry is not what deciding its message again gives."""
    for name in recorded.__struct_fields__:
        if name != "payload" and getattr(recorded, name) != getattr(decided, name):
            return f"{name} is not what its message leads to"
    return "its bytes are not in canonical form"
