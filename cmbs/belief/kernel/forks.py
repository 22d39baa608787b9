"""Forks: a session that begins as another one was at some event. Pure.

A fork repeats the messages of a prefix under events of its own, so that every rule and commitment holds of it as of any
session. Its declaration names the event that it begins from. Event k of a fork and event k of its origin record the
same message, up to that event. Reports that it leaves out are named with it, and have no event in the fork. The events
of the fork are of the actor who forked; they keep who declared the origin, and who sent each report first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from cmbs.belief.kernel.events import Declare, Eliminate, Event, Message, find_sender, read_event
from cmbs.ledger import StoredEntry
from cmbs.messages import Origin


def fork_declaration(declared: Event, origin: Origin) -> Declare:
    """The declaration of a fork: that of its origin, and where it begins."""
    if not isinstance(declared.message, Declare):  # pragma: no cover - a session that is there begins with one
        raise TypeError(f"the first event declares the session, not {declared.body.verb}")
    return msgspec.structs.replace(declared.message, origin=origin)


def repeat_message(origin_of_it: Origin | None, event: Event) -> Message:
    """The message of an event as a fork of its session repeats it: a report with the actor who sent it first."""
    if not isinstance(event.message, Eliminate):
        return event.message
    return msgspec.structs.replace(event.message, first_sent_by=find_sender(origin_of_it, event) or msgspec.UNSET)


def origin_of(declared: Event) -> Origin | None:
    """Where the session of a declaration comes from; None where it is no fork."""
    origin = declared.message.origin if isinstance(declared.message, Declare) else msgspec.UNSET
    return None if isinstance(origin, msgspec.UnsetType) else origin


def list_declarers(declared: Event) -> tuple[str | None, ...]:
    """Who declared or forked a session and those that it comes from, each once."""
    origin = origin_of(declared)
    earlier = () if origin is None else origin.declared_by
    return tuple(dict.fromkeys((*earlier, find_sender(origin, declared))))


def choose_repeated(origin: Origin, prefix: Sequence[StoredEntry]) -> list[StoredEntry]:
    """The entries of a prefix that a fork repeats: all but those that it leaves out."""
    left_out = frozenset(origin.left_out)
    return [stored for seq, stored in enumerate(prefix) if seq not in left_out]


def find_difference(origin: Origin, prefix: Sequence[StoredEntry], fork: Sequence[StoredEntry]) -> str | None:
    """Where a fork does not repeat the entries of its origin, up to the one that it names; None where it does."""
    if len(prefix) != origin.seq + 1 or prefix[-1].event_hash.hex() != origin.event_hash:
        return f"session `{origin.session_id}` has no event `{origin.event_hash}` at seq {origin.seq}"
    kept = choose_repeated(origin, prefix)
    if len(fork) < len(kept):
        return f"it ends at seq {len(fork) - 1}, before it has repeated its origin up to seq {origin.seq}"
    for seq in origin.left_out:
        if not isinstance(read_event(prefix[seq]).message, Eliminate):
            return f"it leaves out event {seq} of its origin `{origin.session_id}`, which is no report"
    declared = read_event(prefix[0])
    before = origin_of(declared)
    for seq, (theirs, own) in enumerate(zip(kept, islice(fork, len(kept)), strict=True)):
        first, second = read_event(theirs), read_event(own)
        repeated = repeat_message(before, first) if seq else fork_declaration(first, origin_of(second) or origin)
        if repeated != second.message:
            return f"event {seq} is not that of its origin `{origin.session_id}`"
    if origin.declared_by != list_declarers(declared):
        return f"it names others than those who declared its origin `{origin.session_id}`"
    return None
