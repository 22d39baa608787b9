"""`cmbs serve` and `cmbs verify`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Annotated

import typer

from cmbs.audit.actors import ActorCheck
from cmbs.audit.fsck import Report, check_database, check_stream
from cmbs.audit.recorded_heads import check_recorded_heads
from cmbs.audit.verify import check_streams, every_core
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.checking import ImportedOption, list_names, print_findings, store_to_inspect
from cmbs.cli.checkpoint import KeyOption, KeysOption, verify_kept
from cmbs.cli.output import failing_cleanly, format_count, out
from cmbs.cli.serve import StoreOption
from cmbs.spi import AuditLog, is_reserved
from cmbs.substrate.kernel.events import STREAM_PREFIX

# Beyond so many streams, other processes are started to check the rest.
_MAX_STREAMS_IN_PROCESS = 200


def verify(
    session_ids: Annotated[
        list[str] | None,
        typer.Argument(help="Sessions to verify, and spaces as `space:ID`; everything, if nothing is named."),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    imported: ImportedOption = False,
    heads: Annotated[
        str, typer.Option(help="Heads or a signed checkpoint that you kept; - is standard input.", metavar="FILE")
    ] = "",
    key: KeyOption = None,
    keys: KeysOption = None,
) -> None:
    """Re-read every event, decide every message again, and check that each byte and each row is what it must be."""
    sessions = spaces = bad = 0
    with failing_cleanly(), closing(store_to_inspect(store)) as log:
        if not session_ids:
            bad += print_findings(None, check_database(log))
        names, findings = (session_ids, []) if session_ids else list_names(log)
        bad += print_findings(None, findings)
        for report in _check(store, log, names, imported=imported):
            sessions += not is_reserved(report.stream_id)
            spaces += report.stream_id.startswith(STREAM_PREFIX)
            if print_findings(report.stream_id, report.findings):
                bad += 1
            elif report.head_hash and report.summary:
                said = f"{format_count(report.events, 'event')}, {report.summary}, head {report.head_hash}"
                out.print(f"good {report.stream_id}: {said}")
        for report in check_recorded_heads(log, session_ids or ()):
            bad += print_findings(report.stream_id, report.findings)
        lost = verify_kept(log, heads, key, keys) if heads else 0
    also = f", {format_count(spaces, 'space')}" if spaces else ""
    out.print(f"{format_count(sessions, 'session')}{also}, {bad} bad")
    if bad or lost:
        raise typer.Exit(1)


def _check(url: str, log: AuditLog, names: list[str], *, imported: bool) -> Iterator[Report]:
    """One report for each stream; where there are many, a process for each core checks them."""
    wanted = iter(names)
    actors = ActorCheck(log, imported=imported)
    first = list(islice(wanted, _MAX_STREAMS_IN_PROCESS))
    for stream_id in first:
        yield check_stream(log, stream_id, actors)
    if len(first) == _MAX_STREAMS_IN_PROCESS:
        with every_core() as executor:
            yield from check_streams(url, wanted, executor, imported=imported)
