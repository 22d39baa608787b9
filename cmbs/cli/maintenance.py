"""Commands that look after a store: check it, take sessions out, bring sessions in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from cmbs import fsck as checking
from cmbs.belief_server import BeliefServer
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import counted, err, existing_store, failing_cleanly, out, progress
from cmbs.spi import AuditLog
from cmbs.stores import open_store
from cmbs.transfer import export_lines, import_lines

_STANDARD = "-"

StoreArgument = Annotated[str, typer.Argument(envvar="CMBS_STORE", help="The store to check.", metavar="[URL]")]
StoreOption = Annotated[str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")]
SessionOption = Annotated[
    list[str] | None, typer.Option("--session", help="Only this session; may be given several times.", metavar="ID")
]
TargetArgument = Annotated[str, typer.Argument(help="Where to; - is standard output.", metavar="FILE")]
SourceArgument = Annotated[str, typer.Argument(help="Where from; - is standard input.", metavar="FILE")]


def fsck(url: StoreArgument = DEFAULT_STORE, session: SessionOption = None) -> None:
    """Re-read every event, commitment, tombstone and checkpoint, and say what is wrong and where."""
    events = bad = 0
    with failing_cleanly(), closing(existing_store(url)) as store, progress() as bar:
        wanted = session or [*_wanted(store, None), *checking.only_intended(store)]
        for session_id in bar.track(wanted, description="checking"):
            report = checking.check_session(store, session_id)
            events += report.events
            bad += bool(report.findings)
            for what in report.findings:
                err.print(f"bad  {session_id}: {what}")
    out.print(f"{counted(len(wanted), 'session')}, {counted(events, 'event')}, {bad} bad")
    if bad:
        raise typer.Exit(1)


def export(file: TargetArgument, store: StoreOption = DEFAULT_STORE, session: SessionOption = None) -> None:
    """Write sessions as JSON lines, byte for byte as they were hashed."""
    with failing_cleanly(), closing(existing_store(store)) as log, progress() as bar:
        wanted = _wanted(log, session)
        with _writing(file) as target:
            for line in export_lines(log, bar.track(wanted, description="exporting")):
                target.write(line + b"\n")
    err.print(f"{counted(len(wanted), 'session')} exported")


def import_(file: SourceArgument, store: StoreOption = DEFAULT_STORE) -> None:
    """Take sessions in from an export; each is verified whole before any of it is written."""
    sessions = events = 0
    with failing_cleanly(), _reading(file) as source, closing(BeliefServer(store=open_store(store))) as server:
        try:
            for moved in import_lines(server, source):
                sessions += 1
                events += moved.events
        finally:
            err.print(f"{counted(sessions, 'session')}, {counted(events, 'event')} imported")


def _wanted(log: AuditLog, session_ids: list[str] | None) -> list[str]:
    return session_ids or [summary.session_id for summary in checking.all_sessions(log)]


@contextmanager
def _writing(file: str) -> Iterator[BinaryIO]:
    if file == _STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with Path(file).open("wb") as target:
        yield target


@contextmanager
def _reading(file: str) -> Iterator[BinaryIO]:
    if file == _STANDARD:
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as source:
        yield source
