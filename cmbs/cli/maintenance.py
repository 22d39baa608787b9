"""`cmbs fsck`, `cmbs export` and `cmbs import`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from cmbs.audit import fsck as checking
from cmbs.audit import spaces as space_checks
from cmbs.audit.transfer import export_lines, import_lines
from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out, progress
from cmbs.errors import LedgerCorrupt
from cmbs.identity.kernel.model import KEYS_STREAM
from cmbs.identity.kernel.stream import verify_keys
from cmbs.spi import AuditLog
from cmbs.stores import open_store
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.server import SubstrateServer

_STANDARD = "-"

StoreArgument = Annotated[str, typer.Argument(envvar="CMBS_STORE", help="The store to check.", metavar="[URL]")]
StoreOption = Annotated[str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")]
SessionOption = Annotated[
    list[str] | None, typer.Option("--session", help="Only this session; may be given several times.", metavar="ID")
]
SpaceOption = Annotated[
    list[str] | None, typer.Option("--space", help="Only this space; may be given several times.", metavar="ID")
]
TargetArgument = Annotated[str, typer.Argument(help="Where to; - is standard output.", metavar="FILE")]
SourceArgument = Annotated[str, typer.Argument(help="Where from; - is standard input.", metavar="FILE")]


def fsck(url: StoreArgument = DEFAULT_STORE, session: SessionOption = None, space: SpaceOption = None) -> None:
    """Re-read every event, commitment, tombstone and checkpoint, and say what is wrong and where."""
    events = bad = 0
    with failing_cleanly(), closing(existing_store(url)) as store, progress() as bar:
        everything = session is None and space is None
        wanted = [*_sessions(store), *checking.only_intended(store)] if everything else session or []
        spaces = list(space_checks.all_spaces(store)) if everything else space or []
        for session_id in bar.track(wanted, description="checking"):
            report = checking.check_session(store, session_id)
            events += report.events
            bad += bool(report.findings)
            for what in report.findings:
                err.print(f"bad  {session_id}: {what}")
        for space_id in bar.track(spaces, description="checking"):
            found = space_checks.check_space(store, space_id)
            events += found.events
            bad += bool(found.findings)
            for what in found.findings:
                err.print(f"bad  {STREAM_PREFIX}{space_id}: {what}")
        bad += everything and not _keys_are_sound(store)
    out.print(f"{_describe_counts(len(wanted), len(spaces))}, {format_count(events, 'event')}, {bad} bad")
    if bad:
        raise typer.Exit(1)


def _keys_are_sound(store: AuditLog) -> bool:
    try:
        verify_keys(store.read(KEYS_STREAM), store.head(KEYS_STREAM))
    except LedgerCorrupt as exc:
        err.print(f"bad  {KEYS_STREAM}: {exc}")
        return False
    return True


def export(
    file: TargetArgument,
    store: StoreOption = DEFAULT_STORE,
    session: SessionOption = None,
    space: SpaceOption = None,
) -> None:
    """Write sessions and spaces as JSON lines, byte for byte as they were hashed."""
    with failing_cleanly(), closing(existing_store(store)) as log, progress() as bar:
        wanted = [*(session or []), *(STREAM_PREFIX + space_id for space_id in space or [])]
        if session is None and space is None:
            wanted = [*_sessions(log), *(STREAM_PREFIX + space_id for space_id in space_checks.all_spaces(log))]
        with _open_target(file) as target:
            for line in export_lines(log, bar.track(wanted, description="exporting")):
                target.write(line + b"\n")
    spaces = sum(name.startswith(STREAM_PREFIX) for name in wanted)
    err.print(f"{_describe_counts(len(wanted) - spaces, spaces)} exported")


def import_(file: SourceArgument, store: StoreOption = DEFAULT_STORE) -> None:
    """Take sessions and spaces in from an export; each is verified whole before any of it is written."""
    sessions = spaces = events = 0
    with (
        failing_cleanly(),
        _open_source(file) as source,
        closing(BeliefServer(store=open_store(store))) as server,
        closing(SubstrateServer(log=server.log, keeper_seconds=None)) as substrate,
    ):
        try:
            for moved in import_lines(server, source, substrate.import_space):
                is_space = moved.session_id.startswith(STREAM_PREFIX)
                sessions, spaces = sessions + (not is_space), spaces + is_space
                events += moved.events
        finally:
            err.print(f"{_describe_counts(sessions, spaces)}, {format_count(events, 'event')} imported")


def _sessions(log: AuditLog) -> list[str]:
    return [summary.session_id for summary in checking.all_sessions(log)]


def _describe_counts(sessions: int, spaces: int) -> str:
    """How many sessions, and how many spaces where there are any."""
    return format_count(sessions, "session") + (f", {format_count(spaces, 'space')}" if spaces else "")


@contextmanager
def _open_target(file: str) -> Iterator[BinaryIO]:
    if file == _STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with Path(file).open("wb") as target:
            yield target


def _open_source(file: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if file == _STANDARD else Path(file).open("rb")
