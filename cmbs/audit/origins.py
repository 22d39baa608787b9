"""Holding forks against the sessions that they were forked from, where these are in the same store."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from cmbs.belief.kernel.forks import find_difference
from cmbs.errors import LedgerCorrupt
from cmbs.messages import Origin
from cmbs.spi.audit_log import EntryLog
from cmbs.streams.reading import read_chain


class OriginReport(NamedTuple):
    """What was found of the origin of a fork: `found` is False where it is not in this store."""

    found: bool
    problem: str | None = None


def check_origin(log: EntryLog, session_id: str, origin: Origin) -> OriginReport:
    """Whether a verified fork repeats its origin, message for message, up to the event that it names."""
    head, own = log.head(origin.session_id), log.head(session_id)
    if head is None or own is None:
        return OriginReport(found=False)
    try:
        prefix = list(islice(read_chain(log, origin.session_id, head), origin.seq + 1))
        fork = list(islice(read_chain(log, session_id, own), origin.seq + 1))
        problem = find_difference(origin, prefix, fork)
    except (LedgerCorrupt, ValueError) as exc:
        problem = f"its origin cannot be read: {exc}"
    return OriginReport(found=True, problem=problem)
