"""`cmbs diff`, `cmbs fork` and `cmbs sources`: the past of sessions and spaces of a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cmbs.belief.kernel.contradictions import ContradictionResponse, ReportItem
from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out
from cmbs.cli.serve import StoreOption
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.server import SubstrateServer

if TYPE_CHECKING:
    from cmbs.belief.kernel.comparisons import Place, SessionChangeItem
    from cmbs.substrate.kernel.insight.findings import SpaceChangeItem

_MAX_SEQ_DIGITS = 16

StreamArgument = Annotated[str, typer.Argument(help="A session, or a space as `space:ID`.", metavar="STREAM")]
SessionArgument = Annotated[str, typer.Argument(help="The session.", metavar="SESSION")]
SinceArgument = Annotated[str, typer.Argument(help="A seq or an event id; of a space, a snapshot id.", metavar="SINCE")]
UntilArgument = Annotated[str | None, typer.Argument(help="The same; by default the last event.", metavar="[UNTIL]")]
AtOption = Annotated[str | None, typer.Option(help="Begin after this seq or event id; by default the last event.")]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option("--without", help="Leave out this report, a seq or an event id; may be given several times."),
]
LimitOption = Annotated[int, typer.Option("--limit", help="Print at most so many changes.", min=1)]


def diff(
    stream: StreamArgument,
    since: SinceArgument,
    until: UntilArgument = None,
    store: StoreOption = DEFAULT_STORE,
    limit: LimitOption = 1000,
) -> None:
    """Print what happened between two events of a session or a space."""
    with failing_cleanly(), _open_server(store) as server:
        if stream.startswith(STREAM_PREFIX):
            _diff_space(server, stream.removeprefix(STREAM_PREFIX), since, until, limit)
        else:
            _diff_session(server, stream, since, until, limit)


def fork(
    session: SessionArgument, at: AtOption = None, without: WithoutOption = None, store: StoreOption = DEFAULT_STORE
) -> None:
    """Open a session that begins as another one was right after an event."""
    with failing_cleanly(), _open_server(store) as server:
        left = [_read_place(each) or 0 for each in without or ()]
        forked = server.fork_session(session, _read_place(at), without=left)
        survivors = format_count(forked.snapshot.n_survivors, "survivor")
        left_out = len(forked.origin.left_out)
        of_them = f" without {format_count(left_out, 'report')}" if left_out else ""
        err.print(f"forked from event {forked.origin.seq} of {session}{of_them}, {survivors}")
        out.print(forked.session_id)


def contradiction(
    session: SessionArgument,
    store: StoreOption = DEFAULT_STORE,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON document, as over HTTP.")] = False,
) -> None:
    """Say which reports to doubt where nothing is left of a session. Exit code 1 where there is a contradiction."""
    with failing_cleanly(), _open_server(store) as server:
        found = server.contradiction(session)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    elif found.contradiction:
        _print_contradiction(found)
    else:
        err.print("no contradiction: something is left")
    if found.contradiction:
        raise typer.Exit(1)


def _print_contradiction(found: ContradictionResponse) -> None:
    out.print(f"nothing is left since {_describe_report(found.left_none)}")
    out.print(f"{format_count(found.smallest, 'report')} must be wrong at least")
    for each in found.explanations:
        causes = ", ".join(each.causes) + ("" if len(each.causes) == each.n_causes else ", …")
        wrong = " and ".join(map(_describe_report, each.reports))
        out.print(f"  if {wrong} {'is' if len(each.reports) == 1 else 'are'} wrong: {causes}")
    if not found.exhaustive or found.n_explanations > len(found.explanations):
        err.print("not all explanations are shown")
    about = "look again at" if found.shortest else "look again at (a shorter list may do)"
    out.print(f"{about}: {', '.join(map(_describe_report, found.look_again))}")


def _describe_report(report: ReportItem | None) -> str:
    if report is None:
        return ""
    sound = "" if report.soundness is None else f", {report.soundness}"
    return f"event {report.seq} ({report.source_id}, {report.observation_id}{sound})"


def sources(session: SessionArgument, store: StoreOption = DEFAULT_STORE) -> None:
    """Print what each source of a session eliminated, alone and after others, and where sources agree."""
    from rich.table import Table

    with failing_cleanly(), _open_server(store) as server:
        found = server.sources(session)
    table = Table("source", "events", "eliminated", "only here", "after others", "again", "bits", "contradicts")
    for each in found.sources:
        contradicted = ", ".join(each.contradicted_conclusions) + (" left none" if each.left_none else "")
        table.add_row(
            each.source_id,
            str(each.events),
            str(each.eliminated),
            str(each.only_here),
            str(each.already_eliminated_by_others),
            str(each.already_eliminated_by_itself),
            f"{each.bits:.3f}",
            contradicted.strip(),
        )
    out.print(table)
    for pair in found.agreements:
        out.print(f"{pair.source_id} and {pair.other_source_id}: both listed {pair.both}, {pair.share:.0%} of either's")
    if found.next_source_id is not None:
        err.print(f"{found.n_sources - len(found.sources)} more sources are not shown")


def _diff_session(server: BeliefServer, session_id: str, start: str, end: str | None, limit: int) -> None:
    after: Place | None = None
    while True:
        size = min(limit, server.requests.limits.page_size)
        found = server.diff(session_id, _read_place(start) or 0, _read_place(end), after, size)
        if after is None:
            out.print(f"{found.n_survivors_before} survivors after event {found.from_seq}")
        for change in found.changes:
            out.print(_describe(change))
        limit, after = limit - len(found.changes), found.next_place
        if after is None or limit == 0:
            break
    out.print(f"{found.n_survivors_after} survivors after event {found.to_seq}")
    out.print(", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in found.counts.items()))
    if after is not None:
        err.print("not all changes are shown; `--limit` shows more")


def _describe(change: SessionChangeItem) -> str:
    source = "" if change.source_id is None else f" by {change.source_id}, {change.observation_id}"
    return f"{change.seq:>6} {change.kind.value.replace('_', ' ')} {change.id or ''}{source}".rstrip()


def _diff_space(server: BeliefServer, space_id: str, start: str, end: str | None, limit: int) -> None:
    with closing(SubstrateServer(log=server.log, keeper_seconds=None)) as spaces:
        found = spaces.diff(space_id, _read_place(start) or 0, _read_place(end))
    for change in found.changes[:limit]:
        out.print(_describe_of_space(change))
    out.print(f"{format_count(len(found.changes), 'change')}, {found.refused} refused")
    if len(found.changes) > limit:
        err.print("not all changes are shown; `--limit` shows more")


def _describe_of_space(change: SpaceChangeItem) -> str:
    values = change.after or ""
    if change.before is not None or change.after is None:
        values = f"{change.before} -> {'gone' if change.after is None else change.after}"
    return f"{change.seq:>6} {change.kind.value.replace('_', ' ')} {change.id}: {values}"


@contextmanager
def _open_server(url: str) -> Iterator[BeliefServer]:
    with closing(BeliefServer(store=existing_store(url))) as server:
        yield server


def _read_place(text: str | None) -> int | str | None:
    is_seq = text is not None and text.isascii() and text.isdigit() and len(text) <= _MAX_SEQ_DIGITS
    return int(text) if text is not None and is_seq else text
