"""Forks: a session that begins as another one was at some event. Pure.

A fork repeats the messages of a prefix under events of its own, so that every rule and commitment holds of it as of any
session. Its declaration names the event that it begins from. Event k of a fork and event k of its origin record the
same message, up to that event. Reports that it leaves out are named with it, and have no event in the fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from cmbs.belief.kernel.events import Declare, Eliminate, Event, Message, read_event
from cmbs.ledger import StoredEntry
from cmbs.messages import Origin


def fork_declaration(declared: Event, origin: Origin) -> Declare:
    """The declaration of a fork: that of its origin, and where it begins."""
    if not isinstance(declared.message, Declare):  # pragma: no cover - a session that is there begins with one
        raise TypeError(f"the first event declares the session, not {declared.body.verb}")
    return msgspec.structs.replace(declared.message, origin=origin)


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
    for seq, (theirs, own) in enumerate(zip(kept, islice(fork, len(kept)), strict=True)):
        first, second = read_event(theirs), read_event(own)
        if _without_origin(first.message) != _without_origin(second.message):
            return f"event {seq} is not that of its origin `{origin.session_id}`"
    return None


def _without_origin(message: Message) -> Message:
    return msgspec.structs.replace(message, origin=msgspec.UNSET) if isinstance(message, Declare) else message
