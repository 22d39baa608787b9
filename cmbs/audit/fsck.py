"""Checking a store: every byte of every stream is read again, and every row of every table is compared with it.

The library behind `cmbs fsck` and `cmbs verify`. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from cmbs.audit.actors import ActorCheck
from cmbs.audit.observations import check_observations
from cmbs.audit.origins import check_origin
from cmbs.audit.plain_rows import all_sessions, all_streams, rows_of
from cmbs.audit.spaces import check_belief_readings
from cmbs.audit.stream_check import StreamCheck, entries_of
from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.kit_stream import KitFolding, KitShelf
from cmbs.belief.kernel.session import Session
from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.identity.kernel.stream import KeyKind
from cmbs.ledger import Head, StoredEntry
from cmbs.ledger.entry import check_link
from cmbs.ledger.merkle import CompactRange
from cmbs.messages import Actor, Origin
from cmbs.spi import AuditLog
from cmbs.spi.stored_rows import (
    CHECKPOINTS,
    EVENTS,
    INTENTS,
    LISTINGS,
    LOOKUPS,
    SEALS,
    SESSIONS,
    TERMS,
    TOMBSTONES,
    UNIVERSES,
    Finding,
    RowsBeside,
    StoredRows,
)
from cmbs.streams.kinds import Folding
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.kernel.kind import SpaceFolding, space_id_of
from cmbs.substrate.kernel.replay import catch_up_whole
from cmbs.substrate.kernel.state import Space
from cmbs.transparency.kernel.faults import Fault
from cmbs.transparency.kernel.records import HEADS_STREAM, HeadRecord, HeadsFolding
from cmbs.transparency.stream_trees import compare_head, describe_fork
from cmbs.webhooks.kernel.events import Webhook
from cmbs.webhooks.kernel.stream import WebhookFolding

_NAMES_AT_ONCE = 500

Pace = Callable[[int], None]


def _refuse_to_decide(_: Actor) -> NoReturn:
    raise AssertionError("a check decides nothing new")


class WholeSpaceFolding(SpaceFolding):
    """Spaces, decided again with everything that ever was in them."""

    def catch_up(self, stream_id: str, state: Any, entries: Sequence[StoredEntry]) -> Any:
        """Every message is decided again, and what it carries of the past is compared with the past."""
        return catch_up_whole(space_id_of(stream_id), state, entries)


# Every kind of stream that this software knows.
FOLDINGS: tuple[Folding[Any], ...] = (
    BeliefFolding(),
    WholeSpaceFolding(),
    KeyKind(_refuse_to_decide),
    HeadsFolding(),
    KitFolding(),
    WebhookFolding(),
)


class Report(NamedTuple):
    """What was found under one name. A log that verifies to its end has a head, and a line on what it comes to."""

    stream_id: str
    events: int
    findings: list[Finding]
    head_hash: str = ""
    summary: str = ""


def check_database(log: AuditLog) -> list[Finding]:
    """What is wrong with a store as a whole: its schema, rows that belong to no stream, and the order of entries."""
    rows = rows_of(log)
    findings = rows.check_schema()
    try:
        findings += rows.find_nameless_rows()
        findings += rows.check_journal()
    except StoreUnavailable as exc:
        findings.append(Finding(str(exc)))
    return findings


def names_in(log: AuditLog) -> Iterator[str]:
    """Every name that any row of any table has: streams, sessions without a log, and what belongs to none."""
    rows = rows_of(log)
    after: str | None = None
    while page := rows.row_names(after, _NAMES_AT_ONCE):
        yield from page
        after = page[-1]


def check_stream(
    log: AuditLog, stream_id: str, actors: ActorCheck | None = None, pace: Pace = lambda _: None
) -> Report:
    """Read a stream again, decide every message again, and compare all rows under its name with what they should be."""
    folding = next((each for each in FOLDINGS if each.owns(stream_id)), None)
    if folding is None or not _is_text(stream_id):
        return Report(stream_id, 0, list(_find_unknown(rows_of(log), stream_id)))
    check = StreamCheck(rows_of(log), folding, stream_id, actors, pace)
    try:
        check.run()
    except StoreUnavailable as exc:
        return Report(stream_id, check.events, [*check.findings, Finding(str(exc), "", stream_id)])
    state = check.state
    if state is None:
        return Report(stream_id, check.events, check.findings)
    summary = ""
    if isinstance(state, Session):
        summary = f"{len(state.survivors)} of {len(state.universe)} survive"
        check.findings += check_observations(log, state)
        if state.origin is not None:
            forked, findings = _check_origin(log, stream_id, state.origin)
            check.findings += findings
            summary += forked
    elif isinstance(state, Space):
        readings, findings = check_belief_readings(log, stream_id, state.head.seq + 1)
        check.findings += findings
        summary = f"{readings} belief reading{'' if readings == 1 else 's'}"
    elif isinstance(state, KitShelf):
        summary = f"{len(state.contents)} content{'' if len(state.contents) == 1 else 's'} of a kit"
    elif isinstance(state, Webhook):
        summary = f"{len(state.pending)} deliver{'y' if len(state.pending) == 1 else 'ies'} of a webhook wait"
    return Report(stream_id, check.events, check.findings, state.head.event_hash.hex(), summary)


def check_space(log: AuditLog, space_id: str) -> Report:
    """As `check_stream`, by the id of a space."""
    return check_stream(log, STREAM_PREFIX + space_id)


def check_recorded_heads(log: AuditLog, stream_ids: Collection[str] = ()) -> Iterator[Report]:
    """Compare streams with what was recorded of them last; a report for each that does not hold it.

    All streams of which there is a record, or those that are named. What the check of a stream by itself finds is not
    repeated. Where the records cannot be read or do not verify, that is the report.
    """
    rows = rows_of(log)
    try:
        heads = HeadsFolding().catch_up(HEADS_STREAM, None, entries_of(rows, HEADS_STREAM))
        records = [] if heads is None else heads.records.values()
        for record in records:
            if stream_ids and record.stream_id not in stream_ids:
                continue
            fault = _compare_with_record(rows, record)
            if fault is not None:
                what = f"{fault.kind}: {fault.message}, as `{HEADS_STREAM}` records"
                yield Report(record.stream_id, 0, [Finding(what, EVENTS, record.stream_id)])
    except (LedgerCorrupt, StoreUnavailable) as exc:
        what = f"streams cannot be compared with what was recorded of them: {exc}"
        yield Report(HEADS_STREAM, 0, [Finding(what, "", HEADS_STREAM)])


def _compare_with_record(rows: StoredRows, record: HeadRecord) -> Fault | None:
    last: Head | None = None
    hashes: list[bytes] = []
    try:
        for stored in islice(entries_of(rows, record.stream_id), record.size):
            last = Head(check_link(record.stream_id, last, stored).seq, stored.event_hash)
            hashes.append(stored.event_hash)
    except LedgerCorrupt:
        return None
    fault = compare_head(record, last)
    if fault is None and (last != record.head or CompactRange().extend(hashes).root.hex() != record.root):
        return describe_fork(record)
    return fault


def _check_origin(log: AuditLog, stream_id: str, origin: Origin) -> tuple[str, list[Finding]]:
    """What a summary says of a fork, and where it does not repeat its origin, if that is in this store."""
    report = check_origin(log, stream_id, origin)
    said = f", forked from event {origin.seq} of {origin.session_id}"
    said += f" without {len(origin.left_out)} of its reports" if origin.left_out else ""
    said += "" if report.found else ", which is not in this store"
    return said, [] if report.problem is None else [Finding(report.problem, EVENTS, stream_id)]


def _find_unknown(rows: StoredRows, name: str) -> Iterator[Finding]:
    """Every row under a name that no stream of this software can have."""
    page = rows.rows(name, None, _NAMES_AT_ONCE)
    beside = page.beside or RowsBeside()
    counts = {
        EVENTS: len(page.events),
        SESSIONS: int(beside.session is not None),
        TOMBSTONES: len(beside.tombstones),
        UNIVERSES: int(beside.universe is not None),
        SEALS: int(beside.seal is not None),
        CHECKPOINTS: int(beside.checkpoint is not None),
        INTENTS: int(beside.intent is not None),
        LOOKUPS: len(rows.lookup_rows(name, None, _NAMES_AT_ONCE)),
        LISTINGS: int(beside.listing is not None),
        TERMS: len(beside.terms),
    }
    for table, count in counts.items():
        if count:
            column = "stream_id" if table in (EVENTS, INTENTS, LOOKUPS) else "session_id"
            what = "this software knows no kind of stream that can have this name"
            yield Finding(what, table, name, column=column, stored=name)


def _is_text(name: str) -> bool:
    """Whether a name can be asked for at all: SQLite keeps bytes that are no text where it was told to keep text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


__all__ = [
    "FOLDINGS",
    "Report",
    "all_sessions",
    "all_streams",
    "check_database",
    "check_recorded_heads",
    "check_space",
    "check_stream",
    "names_in",
]
