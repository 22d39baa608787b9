"""Checking a store: every byte of every stream is read again, and every row of every table is compared with it.

The library behind `cmbs fsck` and `cmbs verify`. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from cmbs.audit.actors import ActorCheck
from cmbs.audit.observations import check_observations
from cmbs.audit.origins import check_origin
from cmbs.audit.plain_rows import all_sessions, all_streams, rows_of
from cmbs.audit.stream_check import StreamCheck
from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.kit_stream import KitShelf
from cmbs.belief.kernel.session import Session
from cmbs.belief.kits import KITS
from cmbs.belief.names import NAMES
from cmbs.errors import InvalidRequest, StoreUnavailable
from cmbs.identity.kernel.stream import KeyKind
from cmbs.messages import Actor, Origin
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import HEADS_STREAM
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
from cmbs.webhooks.kernel.events import Webhook
from cmbs.webhooks.kernel.stream import WebhookFolding

_NAMES_AT_ONCE = 500

Pace = Callable[[int], None]


def _refuse_to_decide(_: Actor) -> NoReturn:
    raise AssertionError("a check decides nothing new")


# Every kind of stream that the bare install can check.
_FOLDINGS: tuple[Folding[Any], ...] = (BeliefFolding(), KeyKind(_refuse_to_decide), KITS, NAMES, WebhookFolding())


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
    """Read a stream again, decide every message again, and compare all rows under its name with what they should be.

    InvalidRequest names the extra to install where streams of its kind cannot be checked without.
    """
    folding = find_folding(stream_id)
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
    elif stream_id.startswith(STREAM_PREFIX):
        from cmbs.audit.spaces import check_belief_readings

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


def find_folding(stream_id: str) -> Folding[Any] | None:
    """How states of this stream follow from its entries; None for a name that no stream of this software has."""
    try:
        if stream_id.startswith(STREAM_PREFIX):
            from cmbs.audit.spaces import WholeSpaceFolding

            return WholeSpaceFolding()
        if stream_id == HEADS_STREAM:
            from cmbs.transparency.kernel.records import HeadsFolding

            return HeadsFolding()
    except ModuleNotFoundError as exc:
        extra = "checkpoints" if stream_id == HEADS_STREAM else "substrate"
        what = f"checking `{stream_id}` needs the `{extra}` extra: `pip install 'cmbs[{extra}]'`"
        raise InvalidRequest(what) from exc
    return next((each for each in _FOLDINGS if each.owns(stream_id)), None)


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
    "Report",
    "all_sessions",
    "all_streams",
    "check_database",
    "check_space",
    "check_stream",
    "names_in",
]
