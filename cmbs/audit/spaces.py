"""Checking the spaces of a store: every byte is read again, every message decided again, every belief reading held
against the log of its session.

The library behind what `cmbs verify` and `cmbs fsck` say of spaces. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from cmbs.errors import LedgerCorrupt, SpaceNotFound
from cmbs.ledger import StoredEntry
from cmbs.spi import AuditLog
from cmbs.substrate.kernel.checkpoint import freeze_space, thaw_space
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.kernel.replay import belief_sessions_in, fold_space, verify_belief_pins, verify_space
from cmbs.substrate.kernel.state import Space

_PAGE = 500


class SpaceReport(NamedTuple):
    """What was found of one space: each finding says what is wrong, and where."""

    space_id: str
    events: int
    findings: list[str]
    # Of a good one: how many belief readings it pins, and where it ends.
    pins: int = 0
    snapshot_id: str = ""
    head_hash: str = ""


def all_spaces(log: AuditLog) -> Iterator[str]:
    """The id of every space of a store, by name."""
    after: str | None = None
    while page := log.streams(STREAM_PREFIX, after, _PAGE):
        yield from (name.removeprefix(STREAM_PREFIX) for name in page)
        after = page[-1]


def verified_space(log: AuditLog, space_id: str) -> SpaceReport:
    """Decide every message of a space again, and hold its belief readings against the sessions of the same store."""
    return _verified(log, space_id)[0]


def check_space(store: AuditLog, space_id: str) -> SpaceReport:
    """As `verified_space`, and compare what is derived from the log with it."""
    report, space, entries = _verified(store, space_id)
    if space is None:
        return report
    return report._replace(findings=[*report.findings, *_checkpoint(store, space, entries)])


def _verified(log: AuditLog, space_id: str) -> tuple[SpaceReport, Space | None, list[StoredEntry]]:
    stream_id = STREAM_PREFIX + space_id
    head = log.head(stream_id)
    if head is None:
        return SpaceReport(space_id, 0, [str(SpaceNotFound(space_id))]), None, []
    entries = log.read(stream_id)
    try:
        space = verify_space(space_id, entries, head)
    except LedgerCorrupt as exc:
        return SpaceReport(space_id, len(entries), [str(exc)]), None, entries
    findings: list[str] = []
    pins = 0
    try:
        sessions = {session_id: log.read(session_id) for session_id in belief_sessions_in(entries)}
        pins = verify_belief_pins(entries, sessions)
    except LedgerCorrupt as exc:
        findings.append(str(exc))
    head_hash = space.head.event_hash.hex()
    return SpaceReport(space_id, len(entries), findings, pins, space.snapshot_id, head_hash), space, entries


def _checkpoint(store: AuditLog, space: Space, entries: list[StoredEntry]) -> Iterator[str]:
    kept = store.checkpoint(STREAM_PREFIX + space.space_id)
    if kept is None:
        return
    seq, data = kept
    if not 0 <= seq < len(entries):
        yield f"the checkpoint is of seq {seq}, beyond the log"
        return
    thawed = thaw_space(data, entries[seq])
    if thawed is None:
        yield f"the checkpoint of seq {seq} does not fit the log"
        return
    kept_bytes = freeze_space(thawed)
    # A long space is large: one of the two at a time. The entries were verified before.
    del thawed
    replayed = fold_space(None, islice(entries, seq + 1))
    if replayed is None or freeze_space(replayed) != kept_bytes:
        yield f"the checkpoint of seq {seq} is not what the log leads to"
