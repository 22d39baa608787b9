"""What sessions said at moments of the past, from their logs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.session import Session
from cmbs.ledger import StoredEntry
from cmbs.substrate.belief_source import reading_of
from cmbs.substrate.kernel.model import BeliefReading

# Sessions that are held at a time: a policy names few, and a proposal after another mostly the same ones.
MAX_SESSIONS_HELD = 16


class _Moment(msgspec.Struct, frozen=True):
    ts: str


_MOMENT = msgspec.json.Decoder(_Moment)


class _Past(NamedTuple):
    session: Session
    entries: Sequence[StoredEntry]
    moments: list[str]
    in_order: bool


class PastBelief:
    """Readings as of any moment.

    `read_log` gives the entries of a session, none for one that is not there. Where it has every session that there
    ever was, `complete`, that means that the session was never declared; otherwise nothing is known of it.
    """

    def __init__(self, read_log: Callable[[str], Sequence[StoredEntry]], *, complete: bool) -> None:
        self._read_log = read_log
        self._complete = complete
        self._held: dict[str, _Past | None] = {}

    def at(self, session_id: str, ts: str, independent_of: str | None = None) -> BeliefReading | None:
        """What a session said at a moment, and if an actor is named also what it would have said without it; None where
        that cannot be known. LedgerCorrupt where its log is bad.

        Of an entry of the very same moment it cannot be told whether it came before, nor of any where a clock was
        turned back.
        """
        past = self._past_of(session_id)
        if past is None:
            return BeliefReading(session_id, found=False) if self._complete else None
        seq = bisect_left(past.moments, ts) - 1
        if bisect_right(past.moments, ts) != seq + 1 or not past.in_order:
            return None
        if seq < 0:
            return BeliefReading(session_id, found=False)
        return reading_of(past.session, seq, past.entries[seq].event_hash, independent_of)

    def _past_of(self, session_id: str) -> _Past | None:
        if session_id not in self._held:
            if len(self._held) >= MAX_SESSIONS_HELD:
                del self._held[next(iter(self._held))]
            self._held[session_id] = self._load(session_id)
        return self._held[session_id]

    def _load(self, session_id: str) -> _Past | None:
        entries = self._read_log(session_id)
        if not entries:
            return None
        moments = [_MOMENT.decode(each.raw).ts for each in entries]
        return _Past(verify_session(session_id, entries), entries, moments, moments == sorted(moments))
