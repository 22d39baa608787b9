"""`cmbs kit import …` and `cmbs kit builtin`: kits from benchmarks, and the ones that cmbs brings along."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cmbs.cli.kit import format_loadable
from cmbs.cli.output import failing_cleanly, format_count, out
from cmbs.errors import InvalidRequest
from cmbs.kit import Kit
from cmbs.tee.access import visible

importing = typer.Typer(name="import", help="Kits from benchmarks.", no_args_is_help=True)

ClosedWorld = Annotated[
    bool, typer.Option("--closed-world", help="Let an alert that is silent eliminate every fault that raises it.")
]


class Language(StrEnum):
    """What a kit is written in."""

    YAML = "yaml"
    JSON = "json"


class BuiltIn(StrEnum):
    """The kits that come with cmbs."""

    TWENTY_QUESTIONS = "twenty-questions"
    WEBSHOP_SIGNATURE = "webshop-signature"
    WEBSHOP_STRUCTURE = "webshop-structure"


def add_to(group: typer.Typer) -> None:
    """Put the commands into the group `cmbs kit`."""
    group.add_typer(importing)
    group.command("builtin")(builtin)


@importing.command("itbench")
def itbench(
    directory: Annotated[Path, typer.Argument(help="Where the folders `scenario_*` are.", metavar="DIR")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the files go; made where it is not there.", metavar="DIR")
    ] = Path(),
    closed_world: ClosedWorld = False,
    language: Annotated[Language, typer.Option("--format", help="What the kits are written in.")] = Language.YAML,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only count what could not be used.")] = False,
) -> None:
    """Read ITBench scenarios into a signature kit, a structural kit and a causal graph for Tee.

    The signature kit tells known faults apart by their alerts, the structural kit says where the trouble began. What
    could not be used, and why, is printed.
    """
    with failing_cleanly():
        from cmbs.adapters.itbench import read_benchmark
        from cmbs.adapters.sre import World, causal_graph, cycles, signature_kit, structural_kit

        benchmark = read_benchmark(directory)
        world = World.CLOSED if closed_world else World.OPEN
        graph = causal_graph(benchmark.system)
        kits = [signature_kit(benchmark.system, world), structural_kit(benchmark.system, world)]
        names = [f"{kit.kit_id}.{language}" for kit in kits]
        texts = {name: format_loadable(kit, name) for name, kit in zip(names, kits, strict=True)}
        texts["itbench-graph.json"] = json.dumps(graph, ensure_ascii=False, indent=1) + "\n"
        for line in benchmark.totals() if quiet else benchmark.summary():
            out.print(visible(line))
        for circle in cycles(benchmark.system):
            out.print(
                visible(f"{len(circle)} components spread to each other in a circle: {', '.join(sorted(circle))}")
            )
        written = _write_all(output, texts, force=force)
    for path, what in zip(written, [*map(_shape, kits), _shape_of_graph(graph)], strict=True):
        out.print(f"wrote {path}: {what}")


def builtin(
    name: Annotated[BuiltIn, typer.Argument(help="Which one.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A file in YAML or JSON, by its ending.", metavar="FILE", show_default="-"),
    ] = None,
    closed_world: ClosedWorld = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
) -> None:
    """Write one of the kits that come with cmbs as a file, to look at or to begin from."""
    with failing_cleanly():
        kit = _builtin(name, closed_world=closed_world)
        if output is None:
            sys.stdout.write(format_loadable(kit, "kit.yaml"))
            return
        _write_all(output.parent, {output.name: format_loadable(kit, output.name)}, force=force)
    out.print(f"wrote {output}: {_shape(kit)}")


def _builtin(name: BuiltIn, *, closed_world: bool) -> Kit:
    from cmbs.adapters.sre import World, signature_kit, structural_kit
    from cmbs.adapters.sre.webshop import webshop
    from cmbs.adapters.twenty_questions import things_kit

    world = World.CLOSED if closed_world else World.OPEN
    made: dict[BuiltIn, Callable[[], Kit]] = {
        BuiltIn.TWENTY_QUESTIONS: things_kit,
        BuiltIn.WEBSHOP_SIGNATURE: lambda: signature_kit(webshop(), world),
        BuiltIn.WEBSHOP_STRUCTURE: lambda: structural_kit(webshop(), world),
    }
    return made[name]()


def _write_all(directory: Path, texts: dict[str, str], *, force: bool) -> list[Path]:
    """Write files, all or none where one is in the way."""
    paths = [directory / name for name in texts]
    in_the_way = [path for path in paths if path.exists()]
    if in_the_way and not force:
        raise InvalidRequest(f"`{in_the_way[0]}` is there already; `--force` overwrites it")
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def _shape(kit: Kit) -> str:
    hypotheses = format_count(len(kit.hypotheses), "hypothesis", "hypotheses")
    return f"{hypotheses}, {format_count(len(kit.probes), 'probe')}, version {kit.version}"


def _shape_of_graph(graph: dict[str, list[object]]) -> str:
    return (
        f"{format_count(len(graph['nodes']), 'node')}, {format_count(len(graph['edges']), 'edge')}, for `cmbs tee load`"
    )
