"""`cmbs bench agents --forget P`: what the server is worth to agents that forget, as a table for documents."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import msgspec

from cmbs.adapters.forgetting import INVENTS, JUMPS, Worth, compare_memories
from cmbs.cli.output import failing_cleanly, progress
from cmbs.kit import Kit
from cmbs.tee.access import visible

_COLUMNS = ("kit", "agents", "games", "probes", "repeated", "right", "wrong", "undecided", "wrong actions", "refused")


def show_worth(kits: Sequence[Kit], forget: float, seed: str, sample: int | None, *, as_json: bool) -> None:
    """Play every kit and print how the agents did, in Markdown or as JSON."""
    with failing_cleanly(), progress() as bar:
        found = [
            row for kit in bar.track(kits, description="kits") for row in compare_memories(kit, forget, seed, sample)
        ]
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
        return
    sys.stdout.writelines(f"{line}\n" for line in format_worth(found, forget, seed))


def format_worth(found: Sequence[Worth], forget: float, seed: str) -> Iterator[str]:
    """The table as lines of Markdown, and under it how the agents are scripted."""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"| --- | --- |{' ---: |' * (len(_COLUMNS) - 2)}"
    for row in found:
        figures = (row.probes_mean, row.repeated_mean)
        counts = (row.right, row.wrong, row.undecided, row.wrong_actions)
        cells = [visible(row.kit_id), row.memory.value, str(row.games), *(f"{figure:.1f}" for figure in figures)]
        cells += [*map(str, counts), f"{row.refused_mean:.1f}"]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        f"The agents are scripts (seed {visible(seed)}). After each look they lose what they saw with a chance of "
        f"{forget:g}, and then invent {INVENTS:.0%} of it. Before each look they conclude with a chance of {JUMPS:.0%}."
    )
