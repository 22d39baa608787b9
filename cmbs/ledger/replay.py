"""Replay, which is verification by deciding everything again: the one skeleton for every kind of stream.

It holds no rules of its own. Each recorded message is decided anew, on the state that the log itself led to. It must
give the recorded bytes: format, decision, state digest, hashes, place in the chain and canonical form are all in them.
Only what texts for people say is taken from the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from cmbs.errors import BeliefServerError, LedgerCorrupt
from cmbs.ledger.chain import check_head
from cmbs.ledger.entry import Head, StoredEntry, check_link
from cmbs.ledger.state_digest import Spacing, bind_state, digest_of, is_digest_point

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


class _Body(Protocol):
    @property
    def event_id(self) -> str: ...
    @property
    def ts(self) -> str: ...


class RecordedEvent(Protocol):
    """An event as it stands in a log: the content of its entry, and the exact bytes."""

    @property
    def body(self) -> _Body:
        """The content of the entry."""
        ...

    @property
    def stored(self) -> StoredEntry:
        """The bytes and their hash."""
        ...


class StreamState(Protocol):
    """What a stream comes to: a value, right after its head."""

    @property
    def head(self) -> Head:
        """Where the stream ends."""
        ...


S = TypeVar("S", bound=StreamState)
E = TypeVar("E", bound=RecordedEvent)


class StateDigests(NamedTuple, Generic[S]):
    """How the states of a kind of stream become bytes, and how far apart its entries carry their digests.

    The same state gives the same bytes, whether it was lived through, replayed or read from a checkpoint.
    """

    freeze: Callable[[S], bytes]
    spacing: Spacing = Spacing.WIDENING


class ReplayRules(NamedTuple, Generic[S, E]):
    """What replay needs to know of a kind of stream.

    `read` gives the event that stored bytes hold, ValueError where they hold none. `decide_again` gives the event that
    the recorded message leads to on a state of the named stream; ValueError or BeliefServerError where it leads to
    none. `evolve` gives the state after an event. `keep_texts` gives an event that was decided again with the texts for
    people of the recorded one; those that only one of the two has stay as decided. `digests` is None for a kind
    without state digests.
    """

    read: Callable[[StoredEntry], E]
    decide_again: Callable[[str, S | None, E], E]
    evolve: Callable[[S | None, E], S]
    keep_texts: Callable[[E, E], E] = lambda again, _: again
    digests: StateDigests[S] | None = None


def is_moment(text: str) -> bool:
    """Whether this is a moment in the ledger's one form: RFC 3339 in UTC with microseconds."""
    return _MOMENT.fullmatch(text) is not None


def catch_up(rules: ReplayRules[S, E], stream_id: str, state: S | None, entries: Iterable[StoredEntry]) -> S | None:
    """Verify `entries` as what follows `state`, and fold them in. None where there is neither.

    LedgerCorrupt names the first bad event and why.
    """
    for stored in entries:
        state = rules.evolve(state, _verify_entry(rules, stream_id, state, stored))
    return state


def verify_stream(
    rules: ReplayRules[S, E], stream_id: str, entries: Iterable[StoredEntry], head: Head | None = None
) -> S:
    """The state that a whole log proves; LedgerCorrupt names the first bad event and why.

    A log cannot tell that its tail was cut off: pass the `head` recorded elsewhere to notice that too.
    """
    state = catch_up(rules, stream_id, None, entries)
    if state is None:
        raise LedgerCorrupt(stream_id, 0, "the log is empty")
    check_head(stream_id, state.head, head)
    return state


def _verify_entry(rules: ReplayRules[S, E], stream_id: str, state: S | None, stored: StoredEntry) -> E:
    """The event of an entry that is exactly what its message leads to here; LedgerCorrupt otherwise."""
    recorded: E | None = None
    problem: str | None = None
    try:
        recorded = rules.read(stored)
        if not is_moment(recorded.body.ts):
            raise ValueError(f"`{recorded.body.ts}` is not a moment with microseconds in UTC")
        again = rules.decide_again(stream_id, state, recorded)
        digests = rules.digests
        if state is not None and digests is not None and is_digest_point(state.head.seq + 1, digests.spacing):
            again = bind_state(again, digest_of(digests.freeze(state)))
        if again.stored == stored:
            return again
        again = rules.keep_texts(again, recorded)
        if again.stored == stored:
            return again
        problem = _find_difference(stored, again.stored)
    except (ValueError, BeliefServerError) as exc:
        problem = str(exc)
    # The place in the chain is part of the bytes: say so first if that is what is wrong.
    head = None if state is None else state.head
    check_link(stream_id, head, stored)
    event_id = None if recorded is None else recorded.body.event_id
    raise LedgerCorrupt(stream_id, 0 if head is None else head.seq + 1, problem, event_id)


def _find_difference(recorded: StoredEntry, decided: StoredEntry) -> str:
    """Which part of an entry is not what deciding its message again gives."""
    left, right = msgspec.json.decode(recorded.raw), msgspec.json.decode(decided.raw)
    # The message itself: where it is written in another way, its bytes are not canonical.
    right["payload"] = left["payload"]
    name = _find_differing_key(left, right)
    if name is None:
        return "its bytes are not in canonical form"
    inner = _find_differing_key(left.get(name), right.get(name))
    return f"{name if inner is None else f'{name}.{inner}'} is not what its message leads to"


def _find_differing_key(left: object, right: object) -> str | None:
    if not (isinstance(left, dict) and isinstance(right, dict)):
        return None
    return next((key for key in {**left, **right} if left.get(key) != right.get(key)), None)
