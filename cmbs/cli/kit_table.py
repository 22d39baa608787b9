"""`cmbs kit from-table`: any CSV of entities and attributes becomes a kit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from cmbs.cli.kit import show_kit, write_kit
from cmbs.cli.output import STANDARD_INPUT, err, failing_cleanly, read_input
from cmbs.documents.csv_text import MAX_TABLE_BYTES, Table, read_table
from cmbs.documents.findings import InvalidDocument
from cmbs.errors import InvalidKit, InvalidRequest
from cmbs.kit.model import DEFAULT_THRESHOLD, Constant, Reduction, Soundness, Window
from cmbs.kit.table import TableOptions, ValueProbes, baselines_from, kit_from_table
from cmbs.tee.access import visible

_TABLE_HELP = "A CSV file with a header, in UTF-8; - is standard input."

_REPEATED = "may be repeated"


def _columns(name: str, help_text: str) -> Any:
    return typer.Option(name, help=f"{help_text}; {_REPEATED}.", metavar="COLUMN")


TableArgument = Annotated[Path, typer.Argument(help=_TABLE_HELP, metavar="FILE", allow_dash=True)]
IdOption = Annotated[str, typer.Option("--id", help="The column that names the entities.", metavar="COLUMN")]
OutputOption = Annotated[
    str, typer.Option("--output", "-o", help="Where to: YAML, or JSON for .json; - is standard output.", metavar="KIT")
]
DropOption = Annotated[list[str] | None, _columns("--drop", "Leave a column out")]
LabelOption = Annotated[str | None, typer.Option(help="The column that describes the entities.", metavar="COLUMN")]
PriorOption = Annotated[str | None, typer.Option(help="The column with their weights.", metavar="COLUMN")]
ProbesOption = Annotated[ValueProbes, typer.Option(help="How columns with several values are asked for.")]
YesNoOption = Annotated[list[str] | None, _columns("--yes-no", "Ask for each value of this column")]
SplitOption = Annotated[list[str] | None, _columns("--split", "Cells of this column have several values")]
SeparatorOption = Annotated[str, typer.Option(help="What divides several values in a cell.")]
SplitAllOption = Annotated[bool, typer.Option("--split-all", help="Cells of any column may have several values.")]
GroupOption = Annotated[
    bool, typer.Option("--group-by-id", help="Rows of one id are cases of one hypothesis, not a mistake.")
]
NumericOption = Annotated[list[str] | None, _columns("--numeric", "Take this column for a measurement")]
TextOption = Annotated[list[str] | None, _columns("--text", "Take the numbers of this column for words")]
BandsOption = Annotated[int, typer.Option(min=2, max=100, help="Into how many intervals a measurement is cut.")]
BaselineOption = Annotated[
    Path | None, typer.Option(help="A CSV of samples: columns it shares are read as normal or not.", metavar="FILE")
]
ThresholdOption = Annotated[float, typer.Option(help="Robust z-score up to which a number is normal.")]
ConstantOption = Annotated[
    Constant, typer.Option(help="What a number means against a baseline whose samples do not spread (MAD 0).")
]
WindowOption = Annotated[
    str | None,
    typer.Option(help="How a window of samples is read against a baseline: any, mean or K-of-N.", metavar="REDUCTION"),
]
NoDataOption = Annotated[
    list[str] | None, typer.Option("--no-data", help=f"A word that means no data; {_REPEATED}.", metavar="WORD")
]
MaxValuesOption = Annotated[int, typer.Option("--max-values", min=2, max=1000, help="Values a column may have.")]
SoundnessOption = Annotated[
    Soundness | None, typer.Option(help="Of every elimination, instead of what follows from the column.")
]
DelimiterOption = Annotated[str, typer.Option(help="What divides the cells; `tab` is one.")]
KitIdOption = Annotated[str | None, typer.Option("--kit-id", help="The kit's id; by default the name of the file.")]
KitVersionOption = Annotated[
    str | None, typer.Option("--kit-version", help="The kit's version; by default a digest of its content.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite the kit if it is there.")]
TitleOption = Annotated[str | None, typer.Option(help="The kit's title.")]


def from_table(
    file: TableArgument,
    *,
    id_column: IdOption,
    output: OutputOption,
    drop: DropOption = None,
    label: LabelOption = None,
    prior: PriorOption = None,
    probes: ProbesOption = ValueProbes.N_WAY,
    yes_no: YesNoOption = None,
    split: SplitOption = None,
    separator: SeparatorOption = ";",
    split_all: SplitAllOption = False,
    group_by_id: GroupOption = False,
    numeric: NumericOption = None,
    text: TextOption = None,
    bands: BandsOption = 4,
    baseline: BaselineOption = None,
    threshold: ThresholdOption = DEFAULT_THRESHOLD,
    constant: ConstantOption = Constant.ABNORMAL,
    window: WindowOption = None,
    no_data: NoDataOption = None,
    max_values: MaxValuesOption = 64,
    soundness: SoundnessOption = None,
    delimiter: DelimiterOption = ",",
    kit_id: KitIdOption = None,
    kit_version: KitVersionOption = None,
    title: TitleOption = None,
    force: ForceOption = False,
) -> None:
    """Make a kit of a table: each row (or id) a hypothesis, each column a probe. An empty cell eliminates nothing."""
    with failing_cleanly():
        options = TableOptions(
            id_column=id_column,
            drop=frozenset(drop or ()),
            label_column=label,
            prior_column=prior,
            split=frozenset(split or ()),
            separator=separator,
            split_all=split_all,
            group_by_id=group_by_id,
            yes_no=frozenset(yes_no or ()),
            probes=probes,
            numeric=frozenset(numeric or ()),
            text=frozenset(text or ()),
            no_data=frozenset(no_data or ()),
            max_values=max_values,
            bands=bands,
            threshold=threshold,
            constant=constant,
            window=None if window is None else _parse_window(window),
            soundness=soundness,
        )
        names = _choose_names(file, kit_id, kit_version, title)
        _check(options)
        _check_output(output, [each for each in (file, baseline) if each is not None], force=force)
        table = _table(file, delimiter)
        samples = None if baseline is None else _table(baseline, delimiter)
        _convert(table, samples, options, names, output)


def _choose_names(
    file: Path, kit_id: str | None, version: str | None, title: str | None
) -> tuple[str, str | None, str]:
    """Id, version and title of the kit; what is not said is that of the file."""
    is_piped = str(file) == STANDARD_INPUT
    name = kit_id if kit_id is not None else ("table" if is_piped else file.stem)
    return name, version, title if title is not None else f"Made from {'a table' if is_piped else file.name}"


def _convert(
    table: Table, samples: Table | None, options: TableOptions, names: tuple[str, str | None, str], output: str
) -> None:
    """Make the kit, with its id, version and title, and write it; what is wrong goes to standard error, and exit 1."""
    kit_id, version, title = names
    try:
        asked = set(table.columns) - {options.id_column, options.label_column, options.prior_column} - options.drop
        baselines = None if samples is None else baselines_from(samples, asked)
        made = kit_from_table(table, options, baselines, kit_id=kit_id, version=version, title=title)
        write_kit(made.kit, output)
    except (InvalidDocument, InvalidKit) as exc:
        raise _fail(exc) from exc
    for note in made.notes:
        err.print(visible(f"note    {note}"))
    if output != STANDARD_INPUT:
        show_kit(output, made.kit)


def _fail(exc: Exception) -> typer.Exit:
    err.print(str(exc))
    return typer.Exit(1)


def _check_output(output: str, read: list[Path], *, force: bool) -> None:
    """Refuse to write over what is there, and over what is read in any case."""
    path = Path(output)
    if output == STANDARD_INPUT or not path.exists():
        return
    if any(each.exists() and path.samefile(each) for each in read):
        raise InvalidRequest(f"`{output}` is read by this command, and cannot be where the kit goes")
    if not force:
        raise InvalidRequest(f"`{output}` is there already; `--force` overwrites it")


def _check(options: TableOptions) -> None:
    if not options.separator:
        raise InvalidRequest("`--separator` must not be empty")
    both = sorted(options.numeric & options.text)
    if both:
        raise InvalidRequest(f"column `{both[0]}` cannot be both `--numeric` and `--text`")


def _parse_window(text: str) -> Window:
    matched = re.fullmatch(r"([0-9]{1,5})-of-([0-9]{1,5})", text)
    if matched:
        try:
            return Window(Reduction.K_OF_N, int(matched[1]), int(matched[2]))
        except InvalidKit as exc:
            raise InvalidRequest(f"`--window {text}`: {exc}") from exc
    if text not in {Reduction.ANY, Reduction.MEAN}:
        raise InvalidRequest(f"`--window` is `any`, `mean` or such as `3-of-5`, not `{text}`")
    return Window(Reduction(text))


def _table(file: Path, delimiter: str) -> Table:
    character = "\t" if delimiter == "tab" else delimiter
    if len(character) != 1 or character in '"\r\n':
        raise InvalidRequest(f"`--delimiter` must be one character or `tab`, not `{delimiter}`")
    name = "<stdin>" if str(file) == STANDARD_INPUT else str(file)
    try:
        return read_table(read_input(file, MAX_TABLE_BYTES), name, character)
    except InvalidDocument as exc:
        raise _fail(exc) from exc
