"""`cmbs kit from-table` on tables of a million cells, beside a pass of the csv module over the same file.

The command is a process of its own, as a user runs it: its processor time, and the most memory that it held.
"""

from __future__ import annotations

import csv
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

from bench.harness import Effort, Result, at_most
from bench.servers import disk_directory

NAME = "kit_tables"
SHAPES = ((5_000, 200), (100_000, 10))
# 2.5 times faster than the first version, which took 745 and 637 passes and 657 MB.
_MOST_PASSES, _MOST_MEGABYTES = 255, 300


def run(effort: Effort) -> list[Result]:  # noqa: ARG001 - the sizes are the measurement, and once is enough
    """Make a kit of each table."""
    results = []
    with disk_directory() as directory:
        for rows, columns in SHAPES:
            table = Path(directory) / f"{rows}.csv"
            _write_table(table, rows, columns)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "cmbs", "kit", "from-table", str(table), "--id", "id"]
            subprocess.run([*command, "-o", f"{directory}/{rows}.yaml"], check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took = after.ru_utime - before.ru_utime
            alone = _read_alone(table)
            measured = f"from-table, {rows:,} × {columns}: {took:.1f} s of processor time"
            results.append(Result(NAME, measured, f"csv alone: {alone:.3f} s", took / alone, at_most(_MOST_PASSES)))
    megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    bar = at_most(_MOST_MEGABYTES, "MB")
    return [*results, Result(NAME, "memory that from-table held at most", "absolute", megabytes, bar)]


def _write_table(path: Path, rows: int, columns: int) -> None:
    dice = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(["id", *(f"c{number}" for number in range(columns))]) + "\n")
        for row in range(rows):
            cells = (str(dice.randrange(4)) if number % 2 else f"{dice.random():.4f}" for number in range(columns))
            file.write(",".join([f"e{row}", *cells]) + "\n")


def _read_alone(path: Path) -> float:
    passes = []
    for _ in range(3):
        begun = time.process_time()
        with path.open(newline="", encoding="utf-8") as file:
            for _row in csv.reader(file):
                pass
        passes.append(time.process_time() - begun)
    return sorted(passes)[1]
