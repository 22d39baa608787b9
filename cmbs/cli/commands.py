"""The commands: thin, every one over a library function."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version as installed_version
from itertools import islice
from typing import Annotated

import typer

from cmbs.audit.fsck import all_sessions
from cmbs.audit.spaces import SpaceReport, all_spaces, verified_space
from cmbs.audit.verify import Verified, every_core, verify_log, verify_logs
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli import analysis, keys, kit, kit_import, kit_table, maintenance, play, policy, serve, tee
from cmbs.cli.output import counted, err, existing_store, fail, out
from cmbs.cli.serve import StoreOption
from cmbs.errors import CmbsError, SessionNotFound
from cmbs.spi import AuditLog
from cmbs.substrate.kernel.events import STREAM_PREFIX

app = typer.Typer(
    name="cmbs",
    help="The epistemic control plane for AI agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(serve.serve)
app.command()(maintenance.fsck)
app.command()(maintenance.export)
app.command("import")(maintenance.import_)
app.command("analyse")(analysis.analyse_)
app.add_typer(analysis.bench)
kit.app.command("from-table")(kit_table.from_table)
kit_import.add_to(kit.app)
app.add_typer(keys.app)
app.add_typer(kit.app)
app.add_typer(play.app)
app.add_typer(tee.app)
app.add_typer(policy.app)
# Up to so many sessions are verified here; beyond, other processes are started to help.
_FEW_SESSIONS = 200


@app.command()
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
        for verified in _verified(log, wanted if named else None):
            checked += 1
            bad += verified.problem is not None
            _tell(verified)
        wanted = [name.removeprefix(STREAM_PREFIX) for name in named if name.startswith(STREAM_PREFIX)]
        for space_id in wanted if named else all_spaces(log):
            spaces += 1
            report = verified_space(log, space_id)
            bad += bool(report.findings)
            _tell_space(report)
        log.close()
    except CmbsError as exc:
        fail(exc)
    also = f", {counted(spaces, 'space')}" if spaces else ""
    out.print(f"{counted(checked, 'session')}{also}, {bad} bad")
    if bad:
        raise typer.Exit(1)


@app.command()
def version() -> None:
    """Print the version."""
    out.print(installed_version("cmbs"))


def _verified(log: AuditLog, session_ids: list[str] | None) -> Iterator[Verified]:
    """One finding for each session; a whole store is worth a process for each core."""
    if session_ids is not None:
        for session_id in session_ids:
            head = log.head(session_id)
            if head is None:
                yield Verified(session_id, 0, problem=str(SessionNotFound(session_id)))
            else:
                yield verify_log((session_id, log.read(session_id), head))
        return
    everyone = (summary.session_id for summary in all_sessions(log))
    logs = ((session_id, log.read(session_id), log.head(session_id)) for session_id in everyone)
    first = list(islice(logs, _FEW_SESSIONS))
    yield from map(verify_log, first)
    if len(first) == _FEW_SESSIONS:
        with every_core() as executor:
            yield from verify_logs(logs, executor)


def _tell(verified: Verified) -> None:
    if verified.problem is not None:
        err.print(f"bad  {verified.session_id}: {verified.problem}")
        return
    survivors = f"{verified.n_survivors} of {verified.universe_size} survive"
    out.print(f"good {verified.session_id}: {verified.events} events, {survivors}, head {verified.head_hash}")


def _tell_space(report: SpaceReport) -> None:
    for what in report.findings:
        err.print(f"bad  {STREAM_PREFIX}{report.space_id}: {what}")
    if not report.findings:
        pins = counted(report.pins, "belief reading")
        name = STREAM_PREFIX + report.space_id
        out.print(f"good {name}: {report.events} events, {pins}, head {report.head_hash}")
