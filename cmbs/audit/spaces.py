"""Checking the spaces of a store: every byte is read again, every message decided again, every belief reading held
against the log of its session.

The library behind what `cmbs verify` and `cmbs fsck` say of spaces. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cmbs.audit.fsck import check_checkpoint
from cmbs.errors import LedgerCorrupt, SpaceNotFound
from cmbs.spi import AuditLog
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.kernel.kind import SpaceFolding
from cmbs.substrate.kernel.replay import belief_sessions_in, verify_belief_pins, verify_space

_PAGE = 500


class SpaceReport(NamedTuple):
    """What was found of one space: each finding says what is wrong, and where."""

    space_id: str
    events: int
    findings: list[str]
    # Of one whose log verifies: how many belief readings it pins, and where it ends.
    pins: int = 0
    snapshot_id: str = ""
    head_hash: str = ""


def all_spaces(log: AuditLog) -> Iterator[str]:
    """The id of every space of a store, by name."""
    after: str | None = None
    while page := log.streams(STREAM_PREFIX, after, _PAGE):
        yield from (name.removeprefix(STREAM_PREFIX) for name in page)
        after = page[-1]


def check_space(log: AuditLog, space_id: str) -> SpaceReport:
    """As `audit_space`, and compare the checkpoint with the log."""
    report = audit_space(log, space_id)
    if not report.head_hash:
        return report
    stream_id = STREAM_PREFIX + space_id
    faults = check_checkpoint(log, SpaceFolding(), stream_id, log.read(stream_id, limit=report.events))
    return report._replace(findings=[*report.findings, *faults])


def audit_space(log: AuditLog, space_id: str) -> SpaceReport:
    """Decide every message of a space again, and hold its belief readings against the sessions of the same store."""
    stream_id = STREAM_PREFIX + space_id
    head = log.head(stream_id)
    if head is None:
        return SpaceReport(space_id, 0, [str(SpaceNotFound(space_id))])
    entries = log.read(stream_id)
    try:
        space = verify_space(space_id, entries, head)
    except LedgerCorrupt as exc:
        return SpaceReport(space_id, len(entries), [str(exc)])
    findings: list[str] = []
    pins = 0
    try:
        sessions = {session_id: log.read(session_id) for session_id in belief_sessions_in(entries)}
        pins = verify_belief_pins(entries, sessions)
    except LedgerCorrupt as exc:
        findings.append(str(exc))
    head_hash = space.head.event_hash.hex()
    return SpaceReport(space_id, len(entries), findings, pins, space.snapshot_id, head_hash)
