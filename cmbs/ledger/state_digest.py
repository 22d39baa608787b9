"""Digests of a stream's state in its own chain: what a checkpoint must match to be believed.

An entry whose seq is a digest point carries the digest of the frozen state right before it. The bytes themselves may be
kept anywhere: the chain tells whether they are the state that it led to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

import msgspec

from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.ledger.entry import Link, StoredEntry, hash_entry, seal
from cmbs.ledger.tagged_hash import Domain, hash_tagged


class _Event(Protocol):
    """An event of any kind of stream, which is a `msgspec.Struct`: the content of its entry, and the exact bytes."""

    @property
    def body(self) -> Any: ...
    @property
    def stored(self) -> StoredEntry: ...


E = TypeVar("E", bound=_Event)


class _Binding(Link, frozen=True):
    state: str | None = None


_BINDING = msgspec.json.Decoder(_Binding)

_FEWEST_EVENTS = 1000
_SHARE = 4


def _list_points() -> list[int]:
    """Far apart in long streams: freezing a state costs time in proportion to its length."""
    points = [_FEWEST_EVENTS]
    while points[-1] <= MAX_SAFE_INTEGER:
        points.append(points[-1] + max(_FEWEST_EVENTS, points[-1] // _SHARE))
    return points


_POINTS: Sequence[int] = _list_points()
_POINT_SET: Container[int] = frozenset(_POINTS)
# Of streams whose state does not grow with their length.
_EVEN_POINTS: Sequence[int] = range(_FEWEST_EVENTS, MAX_SAFE_INTEGER, _FEWEST_EVENTS)


class Spacing(Enum):
    """How far apart the digest points of a stream are."""

    # Ever farther, since its state grows with its length.
    WIDENING = "widening"
    # Always as far, since its state holds only what is open.
    EVEN = "even"


def is_digest_point(seq: int, spacing: Spacing = Spacing.WIDENING) -> bool:
    """Whether the entry at this place carries a state digest; the same for every stream with this spacing."""
    return seq in (_POINT_SET if spacing is Spacing.WIDENING else _EVEN_POINTS)


def last_digest_point(seq: int, spacing: Spacing = Spacing.WIDENING) -> int | None:
    """The last digest point that is not beyond `seq`; None where there is none."""
    points = _POINTS if spacing is Spacing.WIDENING else _EVEN_POINTS
    place = bisect_right(points, seq)
    return points[place - 1] if place else None


def digest_of(frozen: bytes) -> str:
    """The digest of a frozen state, in hex."""
    return hash_tagged(Domain.STATE, frozen).hex()


def bind_state(event: E, digest: str) -> E:
    """The event with this digest in its entry."""
    struct: Any = event
    body = msgspec.structs.replace(event.body, state=digest)
    bound: E = msgspec.structs.replace(struct, body=body, stored=seal(body))
    return bound


def find_binding(frozen: bytes, at: StoredEntry) -> Link | None:
    """The link of an entry that says that `frozen` is the state right before it; None where it does not say so."""
    try:
        link = _BINDING.decode(at.raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_bound = hash_entry(at.raw) == at.event_hash and link.state == digest_of(frozen)
    return link if is_bound else None
