"""`cmbs serve` and `cmbs verify`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from cmbs.audit.fsck import all_sessions
from cmbs.audit.spaces import SpaceReport, all_spaces, audit_space
from cmbs.audit.verify import Verified, every_core, verify_log, verify_logs
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import err, existing_store, fail, format_count, out
from cmbs.cli.serve import StoreOption
from cmbs.errors import CmbsError, SessionNotFound
from cmbs.spi import AuditLog
from cmbs.substrate.kernel.events import STREAM_PREFIX

# Beyond so many sessions, other processes are started to verify the rest.
_MAX_SESSIONS_IN_PROCESS = 200


def verify(
    session_ids: Annotated[
        list[str] | None,
        typer.Argument(help="Sessions to verify, and spaces as `space:ID`; everything, if nothing is named."),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Re-read every event, decide every message again, and check that each byte is what it must be."""
    checked = spaces = bad = 0
    try:
        log = existing_store(store)
        named = session_ids or []
        wanted = [name for name in named if not name.startswith(STREAM_PREFIX)]
        for verified in _verify_sessions(log, wanted if named else None):
            checked += 1
            bad += verified.problem is not None
            _print_session(verified)
        wanted = [name.removeprefix(STREAM_PREFIX) for name in named if name.startswith(STREAM_PREFIX)]
        for space_id in wanted if named else all_spaces(log):
            spaces += 1
            report = audit_space(log, space_id)
            bad += bool(report.findings)
            _print_space(report)
        log.close()
    except CmbsError as exc:
        fail(exc)
    also = f", {format_count(spaces, 'space')}" if spaces else ""
    out.print(f"{format_count(checked, 'session')}{also}, {bad} bad")
    if bad:
        raise typer.Exit(1)


def _verify_sessions(log: AuditLog, session_ids: list[str] | None) -> Iterator[Verified]:
    """One result for each session; a whole store is verified by a process for each core."""
    if session_ids is not None:
        for session_id in session_ids:
            head = log.head(session_id)
            if head is None:
                yield Verified(session_id, 0, problem=str(SessionNotFound(session_id)))
            else:
                yield verify_log((session_id, log.read(session_id), head))
        return
    found = (summary.session_id for summary in all_sessions(log))
    logs = ((session_id, log.read(session_id), log.head(session_id)) for session_id in found)
    first = list(islice(logs, _MAX_SESSIONS_IN_PROCESS))
    yield from map(verify_log, first)
    if len(first) == _MAX_SESSIONS_IN_PROCESS:
        with every_core() as executor:
            yield from verify_logs(logs, executor)


def _print_session(verified: Verified) -> None:
    if verified.problem is not None:
        err.print(f"bad  {verified.session_id}: {verified.problem}")
        return
    survivors = f"{verified.n_survivors} of {verified.universe_size} survive"
    out.print(f"good {verified.session_id}: {verified.events} events, {survivors}, head {verified.head_hash}")


def _print_space(report: SpaceReport) -> None:
    for what in report.findings:
        err.print(f"bad  {STREAM_PREFIX}{report.space_id}: {what}")
    if not report.findings:
        pins = format_count(report.pins, "belief reading")
        name = STREAM_PREFIX + report.space_id
        out.print(f"good {name}: {report.events} events, {pins}, head {report.head_hash}")
