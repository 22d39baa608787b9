"""Outcomes of the belief protocol as JSON."""

from __future__ import annotations

import msgspec

from cmbs.belief.kernel.outcomes import Outcome
from cmbs.ledger import StoredEntry
from cmbs.messages import BeliefSnapshot

_ENCODE = msgspec.json.Encoder().encode


def encode_outcome(outcome: Outcome, *, with_survivors: bool) -> bytes:
    """The body of a write's answer; `with_survivors=False` leaves the list out."""
    return _ENCODE({**outcome._asdict(), "snapshot": outcome.snapshot.to_dict(with_survivors=with_survivors)})


def encode_snapshot(belief: BeliefSnapshot, *, with_survivors: bool) -> bytes:
    """The body of QUERY_BELIEF's answer."""
    return _ENCODE(belief.to_dict(with_survivors=with_survivors))


def encode_entry(stored: StoredEntry) -> bytes:
    """An entry as a reader gets it: the stored bytes as they are, and their hash."""
    return b'%b,"event_hash":"%b"}' % (stored.raw[:-1], stored.event_hash.hex().encode())
