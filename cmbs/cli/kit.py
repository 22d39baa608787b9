"""`cmbs kit …`: domains as files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer
from rich.table import Table

from cmbs.cli.output import STANDARD_INPUT, err, fail, failing_cleanly, format_count, out, read_input
from cmbs.documents.findings import MAX_FINDINGS, Finding, Rule, Severity
from cmbs.documents.nodes import MAX_BYTES
from cmbs.errors import InvalidRequest
from cmbs.kit.graph_kit import GraphKit
from cmbs.kit.model import Kit
from cmbs.kit.parse import InvalidKitFile
from cmbs.kit.parse_graph import parse_kit_document
from cmbs.kit.rules import KitSummary, summary_of
from cmbs.kit.writing import check_writable, format_kit, kit_pieces
from cmbs.tee.access import visible

app = typer.Typer(
    name="kit", help="Domains as files: hypotheses and the probes that tell them apart.", no_args_is_help=True
)


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """The findings about one file; `kit` is None where it is no kit."""

    name: str
    kit: Kit | GraphKit | None
    findings: tuple[Finding, ...]


@app.command()
def check(
    files: Annotated[
        list[Path], typer.Argument(help="Kits in YAML or JSON; - is standard input.", metavar="FILE…", allow_dash=True)
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Take warnings for errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON document.")] = False,
) -> None:
    """Check kits: what is wrong and where, and whether the probes tell the hypotheses apart."""
    with failing_cleanly():
        checked = [_check_file(str(file)) for file in files]
    if as_json:
        sys.stdout.write(json.dumps([_to_dict(each) for each in checked], ensure_ascii=False, indent=2) + "\n")
    else:
        for each in checked:
            _show(each)
    severities = {finding.severity for each in checked for finding in each.findings}
    if Severity.ERROR in severities or (strict and severities):
        raise typer.Exit(1)


@app.command()
def schema() -> None:
    """Print the JSON Schema of kit files, for editors and other programs."""
    sys.stdout.write((resources.files("cmbs.kit") / "kit.schema.json").read_text("utf-8"))


def read_or_fail(file: str) -> Kit:
    """A kit to work with; where it is none, what is wrong goes to standard error, and the exit code is 1."""
    with failing_cleanly():
        checked = _check_file(file)
    if checked.kit is None:
        _print_findings(checked)
        raise typer.Exit(1)
    if isinstance(checked.kit, GraphKit):
        fail(InvalidRequest(f"`{file}` is a kit over a causal graph, and this needs one that lists its hypotheses"))
    return checked.kit


def write_kit(kit: Kit, output: str) -> None:
    """Write a kit file, or to standard output; `InvalidKitFile` where it has more than a kit file can hold.

    The text is made in a temporary file first, so that what is refused half way leaves nothing.
    """
    check_writable(kit)
    with TemporaryFile("w+", encoding="utf-8", newline="") as whole:
        for piece in kit_pieces(kit, output):
            whole.write(piece)
        whole.flush()
        if os.fstat(whole.fileno()).st_size > MAX_BYTES:
            raise InvalidKitFile(output, [Finding(Rule.TOO_LARGE, f"a file has at most {MAX_BYTES:,} bytes")])
        whole.seek(0)
        if output == STANDARD_INPUT:
            copyfileobj(whole, sys.stdout)
        else:
            with Path(output).open("w", encoding="utf-8", newline="") as file:
                copyfileobj(whole, file)


def format_loadable(kit: Kit, name: str) -> str:
    """The kit as a file of this name; `InvalidKitFile` where it has more than a kit file can hold."""
    check_writable(kit)
    return format_kit(kit, name)


def _check_file(file: str) -> CheckedFile:
    try:
        parsed = parse_kit_document(read_input(file, MAX_BYTES), "<stdin>" if file == STANDARD_INPUT else file)
    except InvalidKitFile as exc:
        return CheckedFile(exc.name, None, exc.findings)
    return CheckedFile(file, parsed.kit, parsed.warnings)


def _print_findings(checked: CheckedFile) -> None:
    for finding in checked.findings[:MAX_FINDINGS]:
        err.print(visible(f"{finding.severity:<7} {finding.at(checked.name)}"))
    more = len(checked.findings) - MAX_FINDINGS
    if more > 0:
        err.print(f"and {format_count(more, 'more warning')}; `--json` has them all")


def show_kit(name: str, kit: Kit) -> None:
    """Print the figures of a kit as a table."""
    title = visible(f"{name}: kit {kit.kit_id}, version {kit.version}")
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in _rows(summary_of(kit)):
        table.add_row(*row)
    out.print(table)


def _show(checked: CheckedFile) -> None:
    _print_findings(checked)
    if checked.kit is None:
        out.print(visible(f"{checked.name}: no kit, {format_count(len(checked.findings), 'error')}"))
        return
    if isinstance(checked.kit, Kit):
        show_kit(checked.name, checked.kit)
    else:
        kinds = ", ".join(sorted(checked.kit.hypotheses))
        out.print(visible(f"{checked.name}: kit {checked.kit.kit_id}, version {checked.kit.version}, over a graph"))
        out.print(visible(f"  causes are of the types {kinds}; assumed: {checked.kit.assumption}"))
    out.print(visible(f"{checked.name}: good, {format_count(len(checked.findings), 'warning')}"))


def _rows(summary: KitSummary) -> Iterator[tuple[str, str]]:
    yield "hypotheses", f"{summary.hypotheses:,}"
    yield "told apart into classes", f"{len(summary.classes):,}"
    yield "largest class", f"{max(map(len, summary.classes)):,}"
    # Only deterministic probes are sure to tell apart whatever they can.
    exact = summary.deterministic_probes == summary.probes
    yield f"residual bits{'' if exact else ', at least'}", f"{summary.residual_bits:.3f}"
    yield "probes", f"{summary.probes:,}"
    yield "of them deterministic", f"{summary.deterministic_probes:,}"
    yield "outcomes", f"{summary.outcomes:,}"
    yield "eliminations", f"{summary.eliminations:,}"
    for soundness, number in sorted(summary.soundness.items()):
        yield f"outcomes, {soundness}", f"{number:,}"


def _to_dict(checked: CheckedFile) -> dict[str, Any]:
    data: dict[str, Any] = {"file": checked.name, "good": checked.kit is not None}
    data["findings"] = [finding.to_dict() for finding in checked.findings]
    if isinstance(checked.kit, GraphKit):
        data["kit"] = {
            "id": checked.kit.kit_id,
            "version": checked.kit.version,
            "causes": sorted(checked.kit.hypotheses),
            "assumption": checked.kit.assumption,
            "probes": len(checked.kit.probes),
        }
    elif checked.kit is not None:
        summary = summary_of(checked.kit)
        data["kit"] = {
            "id": checked.kit.kit_id,
            "version": checked.kit.version,
            "hypotheses": summary.hypotheses,
            "probes": summary.probes,
            "deterministic_probes": summary.deterministic_probes,
            "outcomes": summary.outcomes,
            "eliminations": summary.eliminations,
            "soundness": {each.value: number for each, number in sorted(summary.soundness.items())},
            "classes": len(summary.classes),
            "indistinguishable": [list(members) for members in summary.classes if len(members) > 1],
            "residual_bits": summary.residual_bits,
        }
    return data
