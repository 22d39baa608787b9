"""`cmbs fsck`, `cmbs export` and `cmbs import`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from cmbs.audit import fsck as checking
from cmbs.audit.actors import ActorCheck
from cmbs.audit.plain_rows import all_sessions, all_streams
from cmbs.audit.recorded_heads import check_recorded_heads
from cmbs.audit.spaces import all_spaces
from cmbs.audit.transfer import check_header, export_lines, import_lines
from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.checking import ImportedOption, Pace, list_names, print_findings, store_to_inspect
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out, progress
from cmbs.cli.tee_client import (
    AuthoritiesOption,
    ClientCertOption,
    ClientKeyOption,
    TokenOption,
    open_tee_store,
)
from cmbs.cli.tee_repair import compare_incidents
from cmbs.identity.kernel.model import KEYS_STREAM
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import HEADS_STREAM, KIT_PREFIX, NAMES_PREFIX, NAMES_STREAM
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
KitOption = Annotated[
    list[str] | None, typer.Option("--kit", help="Only this kit; may be given several times.", metavar="ID")
]
RateOption = Annotated[
    int | None,
    typer.Option("--rate", min=1, help="Look at no more than so many events a second.", metavar="EVENTS"),
]
TargetArgument = Annotated[str, typer.Argument(help="Where to; - is standard output.", metavar="FILE")]
SourceArgument = Annotated[str, typer.Argument(help="Where from; - is standard input.", metavar="FILE")]


def fsck(
    url: StoreArgument = DEFAULT_STORE,
    session: SessionOption = None,
    space: SpaceOption = None,
    rate: RateOption = None,
    imported: ImportedOption = False,
    tee: Annotated[
        str, typer.Option("--tee", help="Compare sessions with their incidents in this Tee too.", metavar="HOST:PORT")
    ] = "",
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
) -> None:
    """Compare every row of every table, and the schema, with the log, and say what is wrong and where."""
    named = [*(session or []), *(STREAM_PREFIX + space_id for space_id in space or [])]
    everything = session is None and space is None
    events = bad = 0
    with failing_cleanly(), closing(store_to_inspect(url)) as store, progress() as bar:
        task = bar.add_task("checking", total=None)
        pace = Pace(rate, lambda total: bar.update(task, description=f"checking, {format_count(total, 'event')}"))
        if everything:
            bad += print_findings(None, checking.check_database(store))
        actors = ActorCheck(store, imported=imported)
        wanted, findings = list_names(store) if everything else (named, [])
        bad += print_findings(None, findings)
        for stream_id in bar.track(wanted, task_id=task):
            report = checking.check_stream(store, stream_id, actors, pace)
            events += 0 if stream_id in (KEYS_STREAM, HEADS_STREAM) else report.events
            bad += print_findings(stream_id, report.findings)
        for report in check_recorded_heads(store, named):
            bad += print_findings(report.stream_id, report.findings)
        if tee:
            with open_tee_store(tee, token, authorities, client_cert, client_key) as incidents:
                bad += compare_incidents(store, incidents, None if everything else session or [])
    counted = [each for each in wanted if each not in (KEYS_STREAM, HEADS_STREAM)]
    out.print(f"{_describe_counts(counted)}, {format_count(events, 'event')}, {bad} bad")
    if bad:
        raise typer.Exit(1)


def export(
    file: TargetArgument,
    store: StoreOption = DEFAULT_STORE,
    session: SessionOption = None,
    space: SpaceOption = None,
    kit: KitOption = None,
) -> None:
    """Write sessions, spaces and kits as JSON lines, byte for byte as they were hashed."""
    with failing_cleanly(), closing(existing_store(store)) as log, progress() as bar:
        wanted = [*(session or []), *(STREAM_PREFIX + each for each in space or [])]
        wanted += [KIT_PREFIX + each for each in kit or []]
        if session is None and space is None and kit is None:
            wanted = [*_sessions(log), *(STREAM_PREFIX + each for each in all_spaces(log))]
            # Names last: they are taken over for cases that are there.
            wanted += [*all_streams(log, KIT_PREFIX), *all_streams(log, NAMES_PREFIX)]
        with _open_target(file) as target:
            for line in export_lines(log, bar.track(wanted, description="exporting")):
                target.write(line + b"\n")
    err.print(f"{_describe_counts(wanted)} exported")
    err.print("keys stay behind: the key register is not exported, and actors in these entries are checked here alone")


def import_(file: SourceArgument, store: StoreOption = DEFAULT_STORE) -> None:
    """Take sessions, spaces and kits in from an export, once all of it is verified; before, nothing is written."""
    taken: list[str] = []
    events = 0
    with failing_cleanly(), _open_source(file) as source:
        # Before the store is opened, which makes one where there is none.
        lines = check_header(source)
        with (
            closing(BeliefServer(store=open_store(store))) as server,
            closing(SubstrateServer(log=server.log, keeper_seconds=None)) as substrate,
        ):
            try:
                for moved in import_lines(server, lines, substrate.import_space):
                    taken.append(moved.session_id)
                    events += moved.events
            finally:
                err.print(f"{_describe_counts(taken)}, {format_count(events, 'event')} imported")
                err.print(
                    "warning: keys were not imported; the actors in these entries cannot be checked against this"
                    " store's keys. Keep a copy of the source store to check them, and make keys here with"
                    " `cmbs keys create`"
                )


def _sessions(log: AuditLog) -> list[str]:
    return [summary.session_id for summary in all_sessions(log)]


def _describe_counts(names: Iterable[str]) -> str:
    """How many sessions, and how many spaces and kits where there are any."""
    counts = Counter(
        next((each for each in (STREAM_PREFIX, KIT_PREFIX) if name.startswith(each)), "")
        for name in names
        if name != NAMES_STREAM
    )
    parts = [format_count(counts[""], "session")]
    parts += [format_count(counts[each], each[:-1]) for each in (STREAM_PREFIX, KIT_PREFIX) if counts[each]]
    return ", ".join(parts)


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
