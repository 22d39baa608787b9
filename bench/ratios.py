"""Six ratios in a minute, beside those on record: `python -m bench.ratios`, or `make bench-short`.

Each ratio is a speed of ours over that of a baseline measured in the same run, so more is better. The benchmarks are
those of `python -m bench`, with fewer rounds. No change may leave a ratio lower than it found it: one that fell by more
than runs of the same code differ is pointed out. Nothing fails, because a busy machine can make any of them fall.
`--record` measures several times on an idle machine and writes `bench/ratios.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench import decisions, eliminate_scaling, http_eliminate, mcp, space_proposals
from bench.harness import Effort, describe_machine, shown

RECORDED = Path(__file__).with_name("ratios.json")
SHORT = Effort(rounds=3, operations=http_eliminate.CONNECTIONS * http_eliminate.ELIMINATIONS_PER_SESSION)
RUNS = 5


class Ratio(NamedTuple):
    """A ratio by name: the subject, and the baseline that it is measured against."""

    name: str
    subject: str
    baseline: str


class Recorded(msgspec.Struct, frozen=True):
    """The median of several runs, and by which share of it a run was lower than that at most."""

    ratio: float
    noise: float


class Record(msgspec.Struct, frozen=True):
    """What was measured, and on which machine."""

    machine: str
    ratios: dict[str, Recorded]


_DICT = "FastAPI with a dict"
DURABLE = Ratio("http-durable", "ELIMINATE over HTTP, SQLite", _DICT)
MEMORY = Ratio("http-memory", "ELIMINATE over HTTP, memory", _DICT)
PYTHON = Ratio("python", "ELIMINATE in process, 1,000 ids", "joining and hashing the survivors twice")
DECISION = Ratio("decision", "a decision by one constraint of 10", "cedarpy, one policy")
PROPOSALS = Ratio("proposals", "proposals on SQLite, 32 threads", "bare appends of the same size")
GATEWAY = Ratio("gateway", "a call through the gateway, what it adds", "an empty gateway")


def _measure_http(effort: Effort) -> dict[Ratio, float]:
    durable, memory = http_eliminate.run(effort)
    return {DURABLE: durable.value, MEMORY: memory.value}


def _measure_proposals(effort: Effort) -> dict[Ratio, float]:
    (proposals,) = space_proposals.run(effort)
    return {PROPOSALS: proposals.value}


MEASUREMENTS: tuple[Callable[[Effort], dict[Ratio, float]], ...] = (
    _measure_http,
    lambda effort: {PYTHON: eliminate_scaling.measure_small(effort)},
    lambda effort: {DECISION: decisions.measure_beside_cedar(effort)},
    _measure_proposals,
    lambda effort: {GATEWAY: mcp.measure_gateway(effort)},
)


def measure() -> dict[Ratio, float]:
    """Every ratio, once."""
    return {ratio: value for measurement in MEASUREMENTS for ratio, value in measurement(SHORT).items()}


def summarize(runs: list[dict[Ratio, float]]) -> dict[str, Recorded]:
    """What goes on record of several runs."""
    summary = {}
    for ratio in runs[0]:
        values = [run[ratio] for run in runs]
        middle = statistics.median(values)
        summary[ratio.name] = Recorded(round(middle, 3), round(1 - min(values) / middle, 3))
    return summary


def load_record() -> Record:
    """What the ratios are compared with."""
    return msgspec.json.decode(RECORDED.read_bytes(), type=Record)


def write_table(measured: dict[Ratio, float], recorded: dict[str, Recorded]) -> list[str]:
    """The lines of a Markdown table."""
    table = [("ratio", "subject", "baseline", "recorded", "measured", ""), ("---",) * 6]
    for ratio, value in measured.items():
        known = recorded.get(ratio.name)
        before = "none" if known is None else f"{shown(known.ratio)} × (−{known.noise:.0%})"
        table.append((ratio.name, ratio.subject, ratio.baseline, before, f"{shown(value)} ×", judge(value, known)))
    return [f"| {' | '.join(row)} |" for row in table]


def judge(value: float, known: Recorded | None) -> str:
    """A note where a ratio fell by more than runs of the same code differ."""
    if known is None or value >= known.ratio * (1 - known.noise):
        return ""
    return f"**fell by {1 - value / known.ratio:.0%}**"


def main(arguments: list[str] | None = None) -> int:
    """Print the table; with `--record`, that of the last of several runs beside what is now on record."""
    parser = argparse.ArgumentParser(prog="bench.ratios", description="Compare six speeds with those on record.")
    parser.add_argument("--record", action="store_true", help=f"measure {RUNS} times and write bench/ratios.json")
    options = parser.parse_args(arguments)
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if options.record and load > processors / 2:
        parser.error(f"the machine is busy (load average {load:.1f}, {processors} processors): record on an idle one")
    machine = describe_machine()
    runs = [measure() for _ in range(RUNS if options.record else 1)]
    if options.record:
        record = Record(machine, summarize(runs))
        RECORDED.write_text(json.dumps(msgspec.to_builtins(record), indent=2) + "\n", "utf-8")
    known = load_record()
    print("\n".join(write_table(runs[-1], known.ratios)))
    print(f"\nMeasured: {machine}. Recorded: {known.machine}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
