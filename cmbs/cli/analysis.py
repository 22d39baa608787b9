"""`cmbs analyse` and `cmbs bench agents`: what paths were worth, and what scripted agents make of a kit."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from cmbs.adapters.kits import choose_kit, find_installed_kits
from cmbs.adapters.scoreboard import Round, Score, Scoreboard, play_all
from cmbs.analysis import DEFAULT_STEPS, Analysis, KitStudy, Trajectory, analyse, trajectory_of
from cmbs.analysis.findings import EventFinding
from cmbs.analysis.report import COLUMNS, MAX_DRAWN, DrawnLog, build_report, draw_log, row_of, summary_of
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.asking import connect_to_server
from cmbs.cli.kit import read_or_fail
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out, progress
from cmbs.cli.reading import Logs, LogsOfServer, LogsOfStore
from cmbs.cli.worth import show_worth
from cmbs.console import ConsoleFiles
from cmbs.errors import InvalidHypothesisId, InvalidRequest, LedgerCorrupt
from cmbs.kit import Kit
from cmbs.tee.access import visible

bench = typer.Typer(name="bench", help="Compare agents.", no_args_is_help=True)

_KIT_SUFFIXES = (".yaml", ".yml", ".json")
_FEW_PROBES = 10
_WIDEST = 10_000

StepsOption = Annotated[
    int, typer.Option(min=0, help="Work allowed for the exact parts, before they make do with less.", metavar="N")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print everything as one JSON document.")]


def analyse_(
    session_ids: Annotated[list[str] | None, typer.Argument(help="Sessions to analyse; all, if none is named.")] = None,
    store: Annotated[
        str, typer.Option("--store", envvar="CMBS_STORE", help="The store to read.", metavar="URL")
    ] = DEFAULT_STORE,
    url: Annotated[
        str, typer.Option("--url", help="Read from the server that listens there instead.", metavar="http://…")
    ] = "",
    kit: Annotated[
        str, typer.Option("--kit", help="The kit of the sessions: a file, or the id of an installed one.")
    ] = "",
    truth: Annotated[str | None, typer.Option("--truth", help="The hypothesis that is true.", metavar="ID")] = None,
    truths: Annotated[
        Path | None,
        typer.Option("--truths", help='The truth of each session: JSON, {"session": "id"}.', metavar="FILE"),
    ] = None,
    steps: StepsOption = DEFAULT_STEPS,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a page there, as one file.", metavar="FILE")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a session's path was worth: bits, redundancy, luck and regret."""
    if html is not None:
        _require_console()
    named = _kit(kit) if kit else None
    known = {} if truths is None else _truths(truths)
    drawn: dict[str, DrawnLog | None] = {}
    with failing_cleanly(), _logs(store, url) as logs, progress() as bar:
        studies = _Studies(named)
        wanted = session_ids or list(logs.session_ids())
        corrupt: list[LedgerCorrupt] = []
        found = []
        for session_id in bar.track(wanted, description="analysing"):
            try:
                entries = logs.entries(session_id)
                trajectory = trajectory_of(entries)
            except LedgerCorrupt as exc:
                if session_ids:
                    raise
                corrupt.append(exc)
                continue
            if session_ids or studies.about(trajectory):
                own = known.get(session_id, truth if session_ids or truth in trajectory.universe else None)
                found.append(_analyse_log(trajectory, studies, own, steps))
                if html is not None and len(drawn) < MAX_DRAWN:
                    drawn[session_id] = draw_log(entries)
        if html is not None:
            _write_report(html, found, drawn)
    if as_json:
        document: Any = found[0] if session_ids and len(session_ids) == 1 else found
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    elif session_ids and len(found) == 1:
        _show(found[0])
    else:
        _show_all(found, len(wanted) - len(found) - len(corrupt))
    _say_what_is_missing(found, known, corrupt)


@bench.command()
def agents(
    kit: Annotated[
        str, typer.Argument(help="A kit: a file, or the id of an installed one; all, with --forget.", metavar="KIT")
    ] = "",
    seed: Annotated[str, typer.Option(help="What the dice of agents follow from.")] = "0",
    steps: StepsOption = DEFAULT_STEPS,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Play so many truths of a kit, drawn by the seed.", metavar="N")
    ] = None,
    forget: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Compare agents that lose what they saw after a look with this chance."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let scripted agents play the truths of a kit through a belief server, and compare them."""
    if forget is not None:
        show_worth([_kit(kit)] if kit else _list_installed(), forget, seed, sample, as_json=as_json)
        return
    if not kit:
        raise typer.BadParameter("name a kit, or give `--forget`", param_hint="KIT")
    chosen = _kit(kit)
    with failing_cleanly(), progress() as bar:

        def watch(rounds: Sequence[Round], agent: str) -> Iterable[Round]:
            return bar.track(rounds, description=agent)

        board = play_all(chosen, seed, steps, watch, sample=sample)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(board), indent=2).decode() + "\n")
    else:
        _show_board(board)


def _require_console() -> None:
    """End the command where the page of a report was not built."""
    with failing_cleanly():
        if ConsoleFiles().make_report(b"{}") is None:
            raise InvalidRequest("`--html` needs the console, which was not built: run `make console` in a checkout")


def _write_report(file: Path, found: Sequence[Analysis], drawn: dict[str, DrawnLog | None]) -> None:
    report = build_report(found, drawn, f"{format_count(len(found), 'session')} analysed")
    file.write_text(ConsoleFiles().make_report(msgspec.json.encode(report)) or "", "utf-8")


def _list_installed() -> list[Kit]:
    with failing_cleanly():
        kits = find_installed_kits()
    return [kits[kit_id] for kit_id in sorted(kits)]


def _analyse_log(trajectory: Trajectory, studies: _Studies, truth: str | None, steps: int) -> Analysis:
    try:
        return analyse(trajectory, studies.of(trajectory), truth, steps)
    except InvalidHypothesisId as exc:
        raise InvalidRequest(f"session `{trajectory.session_id}` has no hypothesis `{truth}` to be true") from exc


def _say_what_is_missing(found: Sequence[Analysis], known: dict[str, str], corrupt: Sequence[LedgerCorrupt]) -> None:
    """What was asked for and is in none of the findings; the command fails where a log does not hold."""
    unused = sorted(known.keys() - {analysis.session_id for analysis in found})
    if unused:
        err.print(
            visible(f"{format_count(len(unused), 'truth')} of sessions that were not analysed, such as `{unused[0]}`")
        )
    for exc in corrupt:
        err.print(visible(f"cmbs: {exc}"))
    if corrupt:
        raise typer.Exit(1)


class _Studies:
    """The kit that was named, or whichever installed one a session was declared over; each studied once."""

    def __init__(self, named: Kit | None) -> None:
        self._named = named
        self._installed = {} if named is not None else find_installed_kits()
        self._studies: dict[str, KitStudy] = {}

    def about(self, trajectory: Trajectory) -> bool:
        """Whether a session found in the store is about the kit that the command names."""
        return self._named is None or trajectory.universe <= self._named.hypothesis_ids

    def of(self, trajectory: Trajectory) -> KitStudy | None:
        """What to hold a session against."""
        kit = self._named or choose_kit(
            self._installed, trajectory.space_id, trajectory.space_version, trajectory.universe
        )
        return None if kit is None else self._studies.setdefault(kit.kit_id, KitStudy(kit))


def _kit(name: str) -> Kit:
    """A kit by its file or by its id; the command ends where it is none."""
    if name == "-" or name.endswith(_KIT_SUFFIXES) or Path(name).is_file():
        return read_or_fail(name)
    with failing_cleanly():
        kits = find_installed_kits()
        if name not in kits:
            there = ", ".join(f"`{kit_id}`" for kit_id in sorted(kits)) or "none"
            raise InvalidRequest(f"`{name}` is no file and no installed kit; installed: {there}")
    return kits[name]


@contextmanager
def _logs(store: str, url: str) -> Iterator[Logs]:
    if url:
        with connect_to_server(url) as client:
            yield LogsOfServer(client)
        return
    with closing(existing_store(store)) as log:
        yield LogsOfStore(log)


def _truths(file: Path) -> dict[str, str]:
    with failing_cleanly():
        try:
            return msgspec.json.decode(file.read_bytes(), type=dict[str, str])
        except msgspec.DecodeError as exc:
            raise InvalidRequest(f"`{file}` does not map sessions to hypotheses: {exc}") from exc


def _show_all(found: Sequence[Analysis], others: int) -> None:
    _print_table(COLUMNS, [row_of(analysis) for analysis in found])
    _print_pairs("together", summary_of(found))
    if others:
        err.print(f"{format_count(others, 'session')} left out: not about the kit")


def _show(analysis: Analysis) -> None:
    out.print(visible(f"session {analysis.session_id}"))
    _print_pairs("path", zip(COLUMNS[1:], row_of(analysis)[1:], strict=True))
    if analysis.truth is not None and analysis.truth.killed_by_event_id is not None:
        out.print(
            visible(
                f"the truth {analysis.truth.hypothesis_id} was killed by event {analysis.truth.killed_by_seq} "
                f"({analysis.truth.killed_by_event_id}) of {analysis.truth.killed_by_source_id}"
            )
        )
    if analysis.resolution.resolved:
        took = format_count(analysis.resolution.eliminations or 0, "elimination")
        out.print(f"resolved by event {analysis.resolution.seq}: {took}, {analysis.resolution.seconds:.3f} s")
    _print_kit(analysis)
    _print_table(
        ("observation", "source", "seq", "before", "after", "bits", "redundancy", "expected", "best", "regret"),
        [_event_row(event) for event in analysis.timeline],
    )


def _event_row(event: EventFinding) -> tuple[str, ...]:
    choice = event.choice
    return (
        event.observation_id,
        event.source_id,
        str(event.seq),
        str(event.before),
        str(event.after),
        _number(event.bits),
        (event.redundancy or "").replace("_", " "),
        _number(choice.expected_gain if choice else None),
        _number(choice.best_gain if choice else None),
        _number(choice.regret if choice else None),
    )


def _print_kit(analysis: Analysis) -> None:
    kit = analysis.kit
    if kit is None:
        return
    regret = kit.regret
    pairs = [
        ("classes at the start, now", f"{kit.classes}, {kit.classes_left}"),
        ("residual bits at the start, now", f"{kit.residual_bits:.3f}, {kit.residual_bits_left:.3f}"),
        ("expected gain (skill)", _number(kit.expected_gain)),
        ("gain beyond that (luck)", _number(kit.luck)),
        ("shortfall of the best probes", _number(kit.shortfall)),
        ("value ratio, mean", _number(kit.value_ratio)),
        ("probes asked", str(regret.probes)),
        ("probes left, expected", _number(regret.probes_left)),
        (f"optimum ({regret.method})", _optimum(regret.optimum, regret.optimum_at_least)),
        ("not answers to its probes", str(kit.unmatched)),
    ]
    _print_pairs(visible(f"kit {kit.kit_id}, version {kit.version}"), pairs)
    if regret.reason:
        out.print(f"not exact: {regret.reason}")
    if kit.remaining:
        best = ", ".join(f"{each.probe_id} ({each.expected_gain:.3f})" for each in kit.remaining[:_FEW_PROBES])
        out.print(visible(f"best next probes, in bits: {best}"))


def _show_board(board: Scoreboard) -> None:
    out.print(
        visible(
            f"kit {board.kit_id}, version {board.version}: "
            f"{format_count(board.hypotheses, 'hypothesis', 'hypotheses')}, "
            f"{format_count(board.classes, 'class', 'classes')}, {format_count(board.probes, 'probe')}, "
            f"{board.residual_bits:.3f} residual bits"
        )
    )
    optimum = _optimum(board.optimum, board.optimum_at_least)
    out.print(f"optimum {optimum} probes ({board.method}{': ' if board.reason else ''}{board.reason})")
    _print_table(
        ("agent", "games", "found", "probes", "worst", "bits", "redundant", "regret", "luck"),
        [_score_row(score) for score in board.scores],
    )
    for name, reason in board.absent.items():
        out.print(f"{name.value} did not play: {reason}")


def _score_row(score: Score) -> tuple[str, ...]:
    return (
        score.agent.value,
        str(score.games),
        str(score.found),
        _number(score.probes_mean),
        str(score.probes_worst),
        _number(score.bits_mean),
        f"{score.redundancy:.1%}",
        _number(score.regret_mean) if score.beyond_at_most_mean is None else f"at most {score.beyond_at_most_mean:.3f}",
        _number(score.luck_mean),
    )


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table with all of its text, as wide as it needs to be: half an id is no id."""
    table = Table(box=SIMPLE_HEAD)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(visible, row))
    needed = Measurement.get(out, out.options.update(max_width=_WIDEST), table).maximum
    wide = Console(width=max(out.width, needed), highlight=False, markup=False, emoji=False)
    wide.print(table)


def _print_pairs(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in pairs:
        table.add_row(name, value)
    out.print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:z.3f}"


def _optimum(optimum: float | None, at_least: float) -> str:
    return f"at least {at_least:.3f}" if optimum is None else f"{optimum:.3f}"
